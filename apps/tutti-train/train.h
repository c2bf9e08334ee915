/* The training loop. */
#ifndef TUTTI_TRAIN_TRAIN_H
#define TUTTI_TRAIN_TRAIN_H

#include "trainer.h"

/* SIGTERM, SIGINT and SIGUSR1 end the run after the step that is under way. */
void train_watch_signals(void);

/* Collective: all epochs, or until something stops them.  All ranks return the same code. */
int train_run(trainer *trainer);

#endif
