/* What changes from step to step, in one block of device memory that kernels read: so a training
 * step can be captured in a CUDA graph once and replayed with other values. */
#ifndef TUTTI_STEP_H
#define TUTTI_STEP_H

#include "tutti/context.h"

TUTTI_BEGIN

typedef struct tutti_step_block tutti_step_block;

typedef struct tutti_step_values {
    int64_t step;         /* number of the step, from 1: of random masks, with the seed */
    double learning_rate; /* AdamW's */
    /* factor of each row's loss gradient: 1 / (labels that count, over all ranks); has to be set */
    double loss_weight;
    /* a second factor, a power of two, which AdamW divides out; 0: 1, the right one but for f16 */
    double loss_scale;
    uint64_t seed; /* of random masks */
} tutti_step_values;

/* A block on the context's device.  What reads it before tutti_step_block_set is TUTTI_ERR_STATE,
 * unless it is captured: a graph's first replay wants it set. */
TUTTI_API tutti_status tutti_step_block_create(tutti_context *ctx, tutti_step_block **step);
/* NULL is allowed.  The context may be gone; its work that reads the block must be done. */
TUTTI_API void tutti_step_block_destroy(tutti_step_block **step);

/* Writes the block in stream order.  loss_weight must be finite and above 0, loss_scale 0 or a
 * power of two, learning_rate finite and not below 0, step above 0.  TUTTI_ERR_STATE while ctx's
 * stream is being captured: the values belong outside the graph. */
TUTTI_API tutti_status tutti_step_block_set(tutti_step_block *step, tutti_context *ctx,
                                            const tutti_step_values *values);

TUTTI_END
#endif
