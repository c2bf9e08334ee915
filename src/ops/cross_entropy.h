/* CrossEntropy, forward only; include/tutti/cross_entropy.h has the mathematics. */
#ifndef TUTTI_OPS_CROSS_ENTROPY_H
#define TUTTI_OPS_CROSS_ENTROPY_H

#include "core/op.h"
#include "tutti/step.h"

typedef struct tutti__cross_entropy_args {
    int64_t rows, cols;
    tutti__matrix logits;
    const int32_t *labels;
    int32_t ignore_label;
    /* loss = log Z - keep x_label - share sum_k x_k + z_loss (log Z)^2 */
    bool plain; /* keep is 1, the others 0 */
    double keep, share, z_loss;
    void *loss;                    /* optional; f32 or f64 as the arithmetic */
    double *loss_sum;              /* optional */
    tutti__matrix dlogits;         /* optional; may be logits */
    const tutti_step_values *step; /* on the device; optional */
    int32_t finding;               /* the code for findings: a row with its label */
} tutti__cross_entropy_args;

#endif
