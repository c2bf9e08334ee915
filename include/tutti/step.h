/* The values that change from step to step, in one block of device memory that kernels read, so
 * that a training step can be captured in a CUDA graph once and replayed with other values. */
#ifndef TUTTI_STEP_H
#define TUTTI_STEP_H

#include "tutti/context.h"

TUTTI_BEGIN

typedef struct tutti_step_block tutti_step_block;

typedef struct tutti_step_values {
    int64_t step;         /* number of the step, from 1; with the seed it determines random masks */
    double learning_rate; /* the optimizer's */
    /* factor of each row's loss gradient: 1 / (labels not ignored, over all ranks); must be set,
     * though tutti_step_block_weigh may replace it */
    double loss_weight;
    /* a second factor, a power of two, which optimizers divide out; 0: 1, right for all types but
     * f16 */
    double loss_scale;
    uint64_t seed; /* of random masks */
} tutti_step_values;

/* A block on the context's device.  Calls that read it before tutti_step_block_set are
 * TUTTI_ERR_STATE, except in capture, where it must be set before the graph's first replay. */
TUTTI_API tutti_status tutti_step_block_create(tutti_context *ctx, tutti_step_block **step);
/* NULL is allowed.  The context may be destroyed already; all work that reads the block must be
 * complete. */
TUTTI_API void tutti_step_block_destroy(tutti_step_block **step);

/* Writes the block in stream order.  loss_weight must be finite and > 0, loss_scale 0 or a power of
 * two, learning_rate finite and >= 0, step > 0.  TUTTI_ERR_STATE while ctx's stream is being
 * captured: the values belong outside the graph. */
TUTTI_API tutti_status tutti_step_block_set(tutti_step_block *step, tutti_context *ctx,
                                            const tutti_step_values *values);

/* loss_weight = 1 / count, in stream order and on the device; 0 where count is 0, so that gradients
 * of a batch without labels are 0; NaN where it is negative or NaN, so that an update tells.  For a
 * count that only the device knows: of the labels that count (tutti_cross_entropy_count), summed
 * over the ranks (tutti_comm_all_reduce).  Can be captured.  count: f64, [1], on the block's
 * device.  TUTTI_ERR_STATE for a block that was never set, whose other values are missing: give
 * tutti_step_block_set any loss_weight first. */
TUTTI_API tutti_status tutti_step_block_weigh(tutti_step_block *step, tutti_context *ctx,
                                              const tutti_tensor *count);

TUTTI_END
#endif
