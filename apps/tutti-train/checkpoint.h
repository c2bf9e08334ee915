/* The run's checkpoint: what goes into it, and --resume. */
#ifndef TUTTI_TRAIN_CHECKPOINT_H
#define TUTTI_TRAIN_CHECKPOINT_H

#include "trainer.h"

/* Collective, all but checkpoint_close: all ranks return the same code. */

/* With --checkpoint, once the data are known and before there is a model: makes the file this run's
 * own (with --evaluate it writes none), finds out whether it can be saved, whether the run resumes
 * (trainer->resumed), and whether the file's run is this one. */
int checkpoint_open(trainer *trainer);
/* Adds the model to what is saved, and if the run resumes, brings the file's tensors, state and
 * history. */
int checkpoint_load(trainer *trainer);
/* Saves, unless nothing has changed or there is no --checkpoint. */
int checkpoint_save(trainer *trainer);
/* Another run may have the file from now on. */
void checkpoint_close(trainer *trainer);

#endif
