/* Tests that every kind of layer runs, driven by the library's table of the kind and a record:
 * options, types, shapes, strides, alignment, optional tensors, in place, no rows, NaN, indices out
 * of range, bits of rows and of threads, finite differences, factors of a loss, TF32.  A layer's
 * test is a record, its special cases (trial.h) and a line of main. */
#ifndef TESTS_LAYERS_MATRIX_H
#define TESTS_LAYERS_MATRIX_H

#include "trial.h"

typedef struct matrix_shape {
    int64_t rows;
    const char *sizes; /* "in=3,out=5" */
} matrix_shape;

/* `sharp` of losses of rows: all but the sum over rows, of rows of 8 to 256 columns. */
bool matrix_loss_is_sharp(const trial *t, const trial_tensor *result);

enum {
    /* gradients of parameters may be f64 where the arithmetic is f32 */
    MATRIX_WIDE_GRADS = 1,
    /* the bits of an output do not depend on what else is wanted, or saved */
    MATRIX_OUTPUTS_ALONE = 2
};

typedef struct matrix_kind {
    trial_kind trial;
    unsigned flags;
    /* Options besides sizes and types, each in one at least; "" for none; up to a NULL. */
    const char *variants[32];
    int common;   /* the number of first variants that run large shapes too; 0: all alternate */
    int pairings; /* number of pairings of types that the kind allows; 0: 4 */
    const char *types[12]; /* the pairings of all tests but one; none: dtype=each */
    /* Up to a NULL; shapes NULL: default ones of the only size, cols. */
    const matrix_shape *shapes, *some;
    const char *small; /* even sizes; NULL: "cols=10" */
} matrix_kind;

/* Runs the matrix and the tests of the kind's own; returns the exit code. */
int matrix_main(int argc, char **argv, const matrix_kind *kind, const harness_test *own, int count);

#endif
