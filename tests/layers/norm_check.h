/* One set of tests for LayerNorm and RMSNorm. */
#ifndef TESTS_LAYERS_NORM_CHECK_H
#define TESTS_LAYERS_NORM_CHECK_H

#include "harness.h"

typedef enum norm_kind { LAYERNORM, RMSNORM } norm_kind;

/* Runs them for one kind and returns the exit code. */
int norm_main(int argc, char **argv, norm_kind tested);

#endif
