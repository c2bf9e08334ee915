/* Checks that a step's loss and gradients are finite, and acts if they are not. */
#ifndef TUTTI_TRAIN_NONFINITE_H
#define TUTTI_TRAIN_NONFINITE_H

#include "trainer.h"

/* Reads loss and gradient norm of the last step, if not done yet, and applies --on-nonfinite or, if
 * only f16 overflowed, the rule of the loss scale.  It waits for the last update, so call it once
 * the next step's samples are on their way, and before anything that uses the result.  The
 * gradients must still be the step's.  Collective. */
int nonfinite_check(trainer *trainer);

#endif
