/* The classifier: blocks of norm and FusedLinear, then a FusedLinear with ten outputs and
 * CrossEntropy.
 *
 *     h_0 = images;   h_i = act(W_i norm(h_i-1) + b_i);   logits = W h_depth + b */
#ifndef TUTTI_TRAIN_FASHION_MODEL_H
#define TUTTI_TRAIN_FASHION_MODEL_H

#include "options.h"
#include "tutti/tutti.h"

typedef struct model_block {
    tutti_layer *norm, *linear;
    int64_t in;
    void *normed, *y;                /* [capacity, in], [capacity, width] */
    void *norm_saved, *linear_saved; /* what forward keeps for backward */
} model_block;

typedef struct model {
    tutti_context *ctx;
    tutti_dtype dtype;
    int64_t capacity, width, depth; /* capacity: rows of the largest call */
    model_block *blocks;            /* [depth] */
    tutti_layer *head, *loss;

    void *images;             /* [capacity, pixels], the input */
    int32_t *labels;          /* [capacity] */
    void *logits;             /* [capacity, classes]; their gradient after model_loss */
    double *loss_sum;         /* [1] */
    void *d_width, *d_normed; /* gradients on their way down */
} model;

/* What --norm may be, NULL last. */
extern const char *const model_norms[];

/* Makes the layers and the buffers; adds the parameters to a store.  Not collective.  On failure
 * model_free cleans up. */
int model_create(model *model, tutti_context *ctx, const train_options *options, int64_t capacity,
                 tutti_params *params);
void model_free(model *model);
/* Line "model" of the configuration. */
void model_describe(const train_options *options);

/* logits of the first `rows` images; keeps what backward needs if `training`. */
int model_forward(model *model, int64_t rows, bool training);
/* loss_sum, and, with a step, the gradient of the logits in their place. */
int model_loss(model *model, int64_t rows, const tutti_step_block *step);
/* As task.h says of backward. */
int model_backward(model *model, int64_t rows, int code, unsigned flags, tutti_grad_sync *sync);

#endif
