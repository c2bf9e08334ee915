/* What changes from step to step, in one block of device memory that kernels read: so a training step
 * can be captured in a CUDA graph once and replayed with other values. */
#ifndef TUTTI_STEP_H
#define TUTTI_STEP_H

#include "tutti/context.h"

TUTTI_BEGIN

typedef struct tutti_step tutti_step;

typedef struct tutti_step_values {
    int64_t step;         /* number of the step, from 1 */
    double learning_rate; /* AdamW's */
    double
        loss_weight; /* factor of each row's loss gradient: 1 / (labels that count, over all ranks) */
    double
        loss_scale; /* a second factor, a power of two, which AdamW divides out; 1 except for f16 */
    uint64_t seed;  /* of random masks */
} tutti_step_values;
#define TUTTI_STEP_VALUES_INIT \
    {                          \
        1, 0.0, 1.0, 1.0, 0    \
    }

/* A block on the context's device holding TUTTI_STEP_VALUES_INIT. */
TUTTI_API tutti_status tutti_step_create(tutti_context *ctx, tutti_step **step);
/* NULL is allowed.  The context may be gone; its work that reads the block must be done. */
TUTTI_API void tutti_step_destroy(tutti_step **step);

/* Writes the block in stream order.  loss_scale and loss_weight must be finite and above 0,
 * learning_rate finite and not below 0, step above 0.  TUTTI_ERR_STATE while ctx's stream is being captured:
 * the values belong outside the graph. */
TUTTI_API tutti_status tutti_step_set(tutti_step *step, tutti_context *ctx,
                                      const tutti_step_values *values);

TUTTI_END
#endif
