/* What the tests of every loss of rows share. */
#ifndef TESTS_LAYERS_LOSS_CHECK_H
#define TESTS_LAYERS_LOSS_CHECK_H

#include "matrix.h"

/* In which results 16 ulp must show: all but the sum over rows, of rows of 8 to 256 columns. */
bool loss_is_sharp(const trial *t, const trial_tensor *result);
/* Calls with several factors in the step block, and one without a block. */
void loss_check_step(const trial_kind *kind);

#endif
