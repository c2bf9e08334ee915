/* The training loop. */
#ifndef TUTTI_TRAIN_TRAIN_H
#define TUTTI_TRAIN_TRAIN_H

#include "trainer.h"

/* Collective: all steps that are left, or until something stops them.  All ranks return the same
 * code. */
int train_run(trainer *trainer);

/* Collective: --evaluate, the score of the model as it was loaded. */
int train_evaluate(trainer *trainer);

#endif
