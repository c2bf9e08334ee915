/* Looking at a step's result: whether its loss and gradients are numbers, and what follows if
 * not. */
#ifndef TUTTI_TRAIN_NONFINITE_H
#define TUTTI_TRAIN_NONFINITE_H

#include "trainer.h"

/* Reads loss and gradient norm of the last step, if that has not been done, and applies
 * --on-nonfinite or, where only f16's range was left, the rule of the loss scale.  Waits for the
 * stream: so the loop calls it once the next step's samples are under way, when the device has
 * little left to do, and before anything that uses the result.  The gradients must still be the
 * step's.  Collective. */
int nonfinite_look(trainer *trainer);

#endif
