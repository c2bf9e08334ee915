/* The training loop. */
#ifndef TUTTI_TRAIN_TRAIN_H
#define TUTTI_TRAIN_TRAIN_H

#include "trainer.h"

/* Makes the remaining steps.  Collective: all ranks return the same code. */
int train_run(trainer *trainer);

/* --evaluate: evaluates the loaded model.  Collective. */
int train_evaluate(trainer *trainer);

#endif
