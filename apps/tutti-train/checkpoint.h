/* The run's checkpoint: what goes into it, and --resume. */
#ifndef TUTTI_TRAIN_CHECKPOINT_H
#define TUTTI_TRAIN_CHECKPOINT_H

#include "trainer.h"

/* Collective, all of them: all ranks return the same code. */

/* With --checkpoint, once the data are known and before there is a model: whether files can be
 * written, whether the run resumes (trainer->resumed), and whether the file's run is this one. */
int checkpoint_open(trainer *trainer);
/* If the run resumes: the file's tensors, state and history. */
int checkpoint_load(trainer *trainer);
/* Saves, unless nothing has changed or there is no --checkpoint. */
int checkpoint_save(trainer *trainer);

#endif
