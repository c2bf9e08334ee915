/* The run's checkpoint: what goes into it, and --resume. */
#ifndef TUTTI_TRAIN_CHECKPOINT_H
#define TUTTI_TRAIN_CHECKPOINT_H

#include "trainer.h"

/* All but checkpoint_close are collective: all ranks return the same code. */

/* With --checkpoint, once the data are open and before the model is created: takes ownership of the
 * file (not with --evaluate, which writes none), checks that it can be saved, decides whether the
 * run resumes (trainer->resumed), and if so, that the file is of the same run. */
int checkpoint_open(trainer *trainer);
/* Adds the model to what is saved, and if the run resumes, loads tensors, state and history. */
int checkpoint_load(trainer *trainer);
/* Saves, unless nothing has changed or there is no --checkpoint. */
int checkpoint_save(trainer *trainer);
/* Gives up ownership of the file. */
void checkpoint_close(trainer *trainer);

#endif
