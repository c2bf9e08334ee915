/* AdamW over a store.                                                  [Loshchilov & Hutter 2019]
 *
 *     g = grad / loss_scale
 *     with clip_norm:  g *= min(1, clip_norm / (norm + 1e-6)),  norm = sqrt(sum g^2) over the store
 *     m = beta1 m + (1 - beta1) g;    v = beta2 v + (1 - beta2) g^2
 *     lr = learning_rate * lr_scale
 *     master -= lr * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * master)
 *
 * learning_rate and loss_scale come from the step block, lr_scale and a factor on weight_decay from
 * each parameter; t counts the updates.  The working values are rewritten in the same pass.  State
 * and arithmetic have the masters' type.  The norm is summed in f64, in an order that depends only
 * on the layout. */
#ifndef TUTTI_ADAMW_H
#define TUTTI_ADAMW_H

#include "tutti/param.h"

TUTTI_BEGIN

typedef struct tutti_adamw tutti_adamw;

typedef struct tutti_adamw_desc {
    size_t size;
    double beta1;        /* in [0, 1); 0: 0.9, TUTTI_ZERO: 0 */
    double beta2;        /* in [0, 1); 0: 0.999, TUTTI_ZERO: 0 */
    double eps;          /* > 0; 0: 1e-8 */
    double weight_decay; /* >= 0; 0: none */
    double clip_norm;    /* 0: no clipping */
    int skip_nonfinite;  /* change nothing in a step whose norm is not finite */
} tutti_adamw_desc;
#define TUTTI_ADAMW_DESC_INIT TUTTI_DESC_INIT(tutti_adamw_desc)
TUTTI_API tutti_adamw_desc tutti_adamw_desc_default(void);

/* For a built store, which it keeps alive.  desc NULL means the defaults.  Reads the parameters'
 * factors, which later changes do not affect: TUTTI_ERR_ARG, with the parameter's name, for one of
 * a trained parameter that is not finite and >= 0. */
TUTTI_API tutti_status tutti_adamw_create(tutti_context *ctx, tutti_params *params,
                                          const tutti_adamw_desc *desc, tutti_adamw **adamw);
/* NULL is allowed. */
TUTTI_API void tutti_adamw_destroy(tutti_adamw **adamw);

/* One update from the store's gradients.  Asynchronous; can be captured.  If the store has an
 * exchange, the gradients must be summed: TUTTI_ERR_STATE unless tutti_grad_sync_finish was called
 * since the last update and the last ready, or TUTTI_ERR_COMM and the reason where the exchange's
 * communicator has died.  Collective for a sharded store, whose values may then be on their way
 * (desc.exclusive of tutti/grad_sync.h). */
TUTTI_API tutti_status tutti_adamw_update(tutti_adamw *adamw, tutti_context *ctx,
                                          const tutti_step_block *step);

typedef struct tutti_adamw_stats {
    double grad_norm; /* of the last update's gradients / loss_scale, before clipping */
    int64_t updates;  /* t */
    int skipped;      /* the last update was skipped */
} tutti_adamw_stats;
/* Of the last update.  Waits for the stream; from the second call on, if that update was made on
 * the context of the call before and none is captured, for that update alone: what was enqueued
 * after it goes on, and what was loaded into "updates" shows after the next one. */
TUTTI_API tutti_status tutti_adamw_get_stats(tutti_adamw *adamw, tutti_context *ctx,
                                             tutti_adamw_stats *stats);

/* The state: "m" and "v", laid out like the store's gradients, and "updates", f64 [1].  0 for
 * NULL. */
TUTTI_API int tutti_adamw_state_count(const tutti_adamw *adamw);
/* The tensor with this index, from 0.  The optimizer owns its name and memory. */
TUTTI_API tutti_status tutti_adamw_state_get(const tutti_adamw *adamw, int index,
                                             tutti_state_tensor *state);

TUTTI_END
#endif
