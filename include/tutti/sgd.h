/* Stochastic gradient descent over a store, with momentum.   [Polyak 1964; Sutskever et al. 2013]
 *
 *     g = grad / loss_scale
 *     with clip_norm:  g *= min(1, clip_norm / (norm + 1e-6)),  norm = sqrt(sum g^2) over the store
 *     g += weight_decay * master
 *     velocity = momentum * velocity + g
 *     master -= learning_rate * lr_scale * (nesterov ? g + momentum * velocity : velocity)
 *
 * Without momentum there is no velocity, and g takes its place.  learning_rate and loss_scale come
 * from the step block, lr_scale and a factor on weight_decay from each parameter.  All else is as
 * in tutti/adamw.h: the working values, the types, the order of the norm's sum. */
#ifndef TUTTI_SGD_H
#define TUTTI_SGD_H

#include "tutti/param.h"

TUTTI_BEGIN

typedef struct tutti_sgd tutti_sgd;

typedef struct tutti_sgd_desc {
    size_t size;
    double momentum;     /* in [0, 1); 0: none */
    int nesterov;        /* wants momentum */
    double weight_decay; /* >= 0; 0: none */
    double clip_norm;    /* 0: no clipping */
    int skip_nonfinite;  /* change nothing in a step whose norm is not finite */
} tutti_sgd_desc;
#define TUTTI_SGD_DESC_INIT TUTTI_DESC_INIT(tutti_sgd_desc)
TUTTI_API tutti_sgd_desc tutti_sgd_desc_default(void);

/* For a built store, which it keeps alive.  desc NULL means the defaults.  Reads the parameters'
 * factors, which later changes do not affect: TUTTI_ERR_ARG, with the parameter's name, for one of
 * a trained parameter that is not finite and >= 0. */
TUTTI_API tutti_status tutti_sgd_create(tutti_context *ctx, tutti_params *params,
                                        const tutti_sgd_desc *desc, tutti_sgd **sgd);
/* NULL is allowed. */
TUTTI_API void tutti_sgd_destroy(tutti_sgd **sgd);

/* One update from the store's gradients.  Asynchronous; can be captured.  If the store has an
 * exchange, the gradients must be summed: TUTTI_ERR_STATE unless tutti_grad_sync_finish was called
 * since the last update and the last ready, or TUTTI_ERR_COMM and the reason where the exchange's
 * communicator has died.  Collective for a sharded store, whose values may then be on their way
 * (desc.exclusive of tutti/grad_sync.h). */
TUTTI_API tutti_status tutti_sgd_update(tutti_sgd *sgd, tutti_context *ctx,
                                        const tutti_step_block *step);

typedef struct tutti_sgd_stats {
    double grad_norm; /* of the last update's gradients / loss_scale, before clipping */
    int64_t updates;
    int skipped; /* the last update was skipped */
} tutti_sgd_stats;
/* Of the last update.  Waits for the stream; from the second call on, if that update was made on
 * the context of the call before and none is captured, for that update alone: what was enqueued
 * after it goes on, and what was loaded into "updates" shows after the next one. */
TUTTI_API tutti_status tutti_sgd_get_stats(tutti_sgd *sgd, tutti_context *ctx,
                                           tutti_sgd_stats *stats);

/* The state: with momentum "velocity", laid out like the store's gradients; then "updates", f64
 * [1].  0 for NULL. */
TUTTI_API int tutti_sgd_state_count(const tutti_sgd *sgd);
/* The tensor with this index, from 0.  The optimizer owns its name and memory. */
TUTTI_API tutti_status tutti_sgd_state_get(const tutti_sgd *sgd, int index,
                                           tutti_state_tensor *state);

TUTTI_END
#endif
