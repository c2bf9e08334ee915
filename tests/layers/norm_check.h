/* One set of tests for LayerNorm and RMSNorm. */
#ifndef TESTS_LAYERS_NORM_CHECK_H
#define TESTS_LAYERS_NORM_CHECK_H

#include "harness.h"
#include "tutti/rmsnorm.h"

typedef enum norm_kind { LAYERNORM, RMSNORM } norm_kind;

/* Runs them for one kind and returns the exit code. */
int norm_main(int argc, char **argv, norm_kind tested);

/* For norm_statistics.c */
norm_kind norm_tested(void);
/* tutti_rmsnorm_forward, or LayerNorm's: its call has the same slots. */
tutti_status norm_forward(tutti_layer *layer, tutti_context *ctx, const tutti_rmsnorm_call *call);
void norm_test_statistics(void);

#endif
