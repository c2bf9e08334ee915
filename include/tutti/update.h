/* An optimizer's step in parts, for a trainer that keeps its parameters itself: the norm of its
 * gradients, then the update of a list of parameters.  No store, and no memory of the library's.
 *
 *     tutti_grad_norm                        norm = sqrt(sum g^2) over a list of gradients,
 *                                            clip = min(1, clip_norm / (norm + 1e-6))
 *     tutti_adamw_apply, tutti_sgd_apply     the update of tutti/adamw.h or tutti/sgd.h
 *
 * A step of two parameters, where grads are the tensors of their gradients, norm is f64 [4], m and
 * v are f32 and zero before the first step:
 *
 *     tutti_step_block_set(step, ctx, &(tutti_step_values){
 *                              .step = t, .learning_rate = 1e-3, .loss_weight = 1});
 *     tutti_grad_norm(ctx, grads, 2, step, &(tutti_grad_norm_desc){.clip_norm = 1}, &norm);
 *     tutti_adamw_apply(ctx, NULL, &(tutti_update_call){
 *                           .params = params, .count = 2, .state = {m, v}, .step = step,
 *                           .norm = &norm});
 *
 * All calls are asynchronous on the context's stream, read and write device memory only, and can be
 * captured; none is collective.  Bad arguments are TUTTI_ERR_ARG before anything is written.  The
 * lists themselves are read during the call.  Scratch does not grow in a capture: TUTTI_ERR_STATE
 * there if it must, as with the first norm of so many elements on a context.  The results have the
 * bits of a store's update of the same values by tutti_adamw_update or tutti_sgd_update. */
#ifndef TUTTI_UPDATE_H
#define TUTTI_UPDATE_H

#include "tutti/adamw.h"
#include "tutti/sgd.h"

TUTTI_BEGIN

typedef struct tutti_grad_norm_desc {
    size_t size;
    double clip_norm;   /* 0: no clipping */
    int skip_nonfinite; /* updates by a norm that is not finite are skipped */
} tutti_grad_norm_desc;
#define TUTTI_GRAD_NORM_DESC_INIT TUTTI_DESC_INIT(tutti_grad_norm_desc)
TUTTI_API tutti_grad_norm_desc tutti_grad_norm_desc_default(void);

/* What tutti_grad_norm leaves in device memory, as a tensor f64 [4]. */
typedef struct tutti_grad_norm_values {
    double norm;      /* of the gradients / loss_scale, before clipping */
    double clip;      /* a factor on gradients; 1 without clip_norm */
    double nonfinite; /* 1: the norm is infinite or NaN */
    double skip;      /* 1: updates are to change nothing */
} tutti_grad_norm_values;

/* The norm of a list of `count` gradients: f32 and f64 ones in any mix, of any shape, contiguous.
 * step: whose loss_scale is divided out, or NULL: 1.  desc NULL means the defaults.  norm: f64 [4],
 * none of the gradients' memory.
 *
 * The squares are summed in f64, in an order that depends only on the tensors' sizes and types: in
 * the order of the list, each tensor from a multiple of TUTTI_PARAM_ALIGN elements on, by runs of
 * fixed length; f64 ones after f32 ones.  So the norm has the bits of a store's if the list is the
 * store's flat gradients (tutti_params_flat), or, where all its values have one type, its
 * parameters' gradients in layout order (tutti_params_get). */
TUTTI_API tutti_status tutti_grad_norm(tutti_context *ctx, const tutti_tensor *grads, int count,
                                       const tutti_step_block *step,
                                       const tutti_grad_norm_desc *desc, const tutti_tensor *norm);

/* A list of `count` parameters and what an update of them needs.  Of a parameter are read:
 *
 *     value                   what the layer reads, which is rewritten; any float type
 *     master                  f32 for a value that is f16 or bf16.  The value itself, or without
 *                             data, for one that is f32 or f64
 *     grad                    f64, or f32 unless the value is f64
 *     weight_decay, lr_scale  finite and >= 0; both are 0 in a zeroed tutti_param
 *
 * so the parameters of layers (tutti_param_bind) can be listed as they are.  All tensors of a
 * parameter have one shape and are contiguous.  No memory is that of two tensors, or of a parameter
 * that is listed twice: only overlaps within one parameter are detected. */
typedef struct tutti_update_call {
    const tutti_param *const *params;
    int count;
    /* Arrays of `count` tensors, of the masters' types, zero before the first update.  AdamW: m and
     * v.  SGD: the velocity, or NULL without momentum, and NULL. */
    const tutti_tensor *state[2];
    const tutti_step_block *step; /* learning_rate, loss_scale, and where updates is NULL t */
    /* t, f64 [1], 0 before the first update: each update that is not skipped adds 1.  NULL: t is
     * the step's number, so skipped steps count. */
    const tutti_tensor *updates;
    /* What tutti_grad_norm wrote: clip is a factor on gradients, and with skip nothing is written.
     * NULL: neither. */
    const tutti_tensor *norm;
} tutti_update_call;

/* One update.  desc NULL means the defaults; clip_norm and skip_nonfinite, which are
 * tutti_grad_norm's, must be 0.  TUTTI_ERR_STATE for a step block that was never set. */
TUTTI_API tutti_status tutti_adamw_apply(tutti_context *ctx, const tutti_adamw_desc *desc,
                                         const tutti_update_call *call);
TUTTI_API tutti_status tutti_sgd_apply(tutti_context *ctx, const tutti_sgd_desc *desc,
                                       const tutti_update_call *call);

TUTTI_END
#endif
