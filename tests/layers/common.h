/* Shared by the layer tests: guarded tensors of a case, parameters bound to them, checks against
 * the reference, finite differences. */
#ifndef TESTS_LAYERS_COMMON_H
#define TESTS_LAYERS_COMMON_H

#include "harness.h"

extern const tutti_dtype float_dtypes[4];

/* Layout variants of a case: where its tensors lie. */
typedef struct layout {
    int pad;        /* elements between rows beyond cols */
    int misaligned; /* elements beyond a 256-byte boundary */
    int apart;      /* further ones of both, times the number of the tensor in its call */
} layout;

/* A tensor on the device and its values on the host. */
typedef struct operand {
    harness_buffer buffer;
    tutti_tensor tensor;
    double *values; /* rows * cols; inputs: what was put there; outputs: what get() fetched */
    int64_t count;
} operand;

/* An input with roughly normal values, or an output full of NaN (deviation < 0). */
operand operand_make(tutti_context *ctx, harness_rng *rng, tutti_dtype dtype, int64_t rows,
                     int64_t cols, layout place, double mean, double deviation);
/* The rows of a tensor as [rows / lines, lines, cols]. */
void operand_split(operand *o, int64_t lines);
void operand_free(tutti_context *ctx, operand *o);
/* Puts values there again, after the test changed them. */
void operand_put(tutti_context *ctx, operand *o);
/* Fetches what a call wrote, and checks that nothing around it changed. */
void operand_get(tutti_context *ctx, operand *o, const char *name);
/* An input is as it was. */
void operand_check_unchanged(tutti_context *ctx, const operand *o, const char *name);
/* Same bits in both. */
void check_same_bits(tutti_context *ctx, const char *what, const operand *a, const operand *b);
/* Row `row` of a has the bits of the only row of b. */
void check_same_row(tutti_context *ctx, const char *what, const operand *a, int64_t row,
                    const operand *b);

/* Memory for `saved`, between guards; data NULL where bytes is 0. */
harness_buffer saved_make(tutti_context *ctx, const tutti_layer *layer, int64_t rows);

/* Binds operands as a parameter's value and gradient (NULL: not trained). */
void bind_param(tutti_layer *layer, int index, const operand *value, const operand *grad);

/* want and bound on the host, for comparison with an operand's values */
typedef struct expected {
    double *want, *bound;
    int64_t count;
} expected;
expected expected_make(int64_t count);
void expected_free(expected *e);
/* Values are within the bounds; with sharp also: a change of 16 ulp would have been seen. */
void check_expected(const char *what, const operand *got, const expected *e, bool sharp);

/* Compares analytic[i] with the finite difference of loss at values[i], all of f64.  loss(self)
 * reads values. */
void check_gradient(const char *what, double (*loss)(void *self), void *self, double *values,
                    int64_t count, const double *analytic);

#endif
