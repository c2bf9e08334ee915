/* The byte model: a residual network that predicts a byte from the `context` bytes before it.
 *
 *     h_0 = W_in [E(token_1) ... E(token_context)] + b_in
 *     h_i+1 = h_i + W_down,i act(W_up,i norm_i(h_i) + b_up,i) + b_down,i
 *     logits = W norm(h_depth) + b
 *
 * [Bengio et al. 2003; He et al. 2016, pre-activation] */
#ifndef TUTTI_TRAIN_BYTES_MODEL_H
#define TUTTI_TRAIN_BYTES_MODEL_H

#include "options.h"
#include "tutti/tutti.h"

enum { BYTES_VOCAB = 256, BYTES_EXPANSION = 2 }; /* a block is EXPANSION width wide inside */

/* A norm of the residual stream and what reads it: the layers of a block, or in the last stage the
 * head, as `up`. */
typedef struct bytes_stage {
    tutti_layer *norm, *up, *down; /* down: NULL in the last stage */
    int64_t inner_cols;
    void *h, *normed, *inner;    /* [capacity, width] twice, [capacity, inner_cols] */
    void *norm_saved, *up_saved; /* what forward keeps for backward */
} bytes_stage;

typedef struct bytes_model {
    tutti_context *ctx;
    tutti_dtype dtype;
    int64_t capacity; /* rows of the largest call */
    int64_t context, embedding, width, depth;
    tutti_layer *embed, *input, *loss;
    bytes_stage *stages; /* [depth + 1] */

    int32_t *tokens, *labels; /* [capacity, context], [capacity]: the input */
    void *embedded;           /* [capacity, context embedding] */
    void *branch;             /* [capacity, width]: what a block adds, later a norm's gradient */
    void *d_h;                /* [capacity, width]: gradient of the stream */
    void *d_inner;            /* [capacity, the widest of inner and embedded] */
    double *loss_sum;         /* [1] */
} bytes_model;

/* What --norm may be, NULL last. */
extern const char *const bytes_model_norms[];

/* Makes the layers and the buffers; adds the parameters to a store.  Not collective.  On failure
 * bytes_model_free cleans up. */
int bytes_model_create(bytes_model *model, tutti_context *ctx, const train_options *options,
                       int64_t capacity, tutti_params *params);
void bytes_model_free(bytes_model *model);
/* Line "model" of the configuration. */
void bytes_model_describe(const train_options *options);

/* The logits of the first `rows` rows of tokens; keeps what backward needs if `training`. */
int bytes_model_forward(bytes_model *model, int64_t rows, bool training);
/* [capacity, BYTES_VOCAB]; after bytes_model_loss with a step their gradient. */
void *bytes_model_logits(const bytes_model *model);
/* loss_sum, and, with a step, the gradient of the logits in their place. */
int bytes_model_loss(bytes_model *model, int64_t rows, const tutti_step_block *step);
/* As task.h says of backward. */
int bytes_model_backward(bytes_model *model, int64_t rows, int code, unsigned flags,
                         tutti_grad_sync *sync);

#endif
