/* The byte model: a residual network that predicts a byte from the `context` bytes before it.
 *
 *     h_0 = W_in [E(token_1) ... E(token_context)] + b_in
 *     h_i+1 = h_i + dropout(W_down,i act(W_up,i norm_i(h_i) + b_up,i) + b_down,i)
 *     logits = W norm(h_depth) + b
 *
 * [Bengio et al. 2003; He et al. 2016, pre-activation] */
#ifndef TUTTI_TRAIN_BYTES_MODEL_H
#define TUTTI_TRAIN_BYTES_MODEL_H

#include "common/network.h"
#include "options.h"

enum { BYTES_VOCAB = 256, BYTES_EXPANSION = 2 }; /* a block is EXPANSION width wide inside */

typedef struct bytes_model {
    network network;
    int32_t *tokens; /* [capacity, context], the input */
} bytes_model;

/* What --norm may be, NULL last. */
extern const char *const bytes_model_norms[];

/* Errors and cleanup are network_create's. */
int bytes_model_create(bytes_model *model, tutti_context *ctx, const train_options *options,
                       int64_t capacity, tutti_params *params);
/* Line "model" of the configuration. */
void bytes_model_describe(const train_options *options);

#endif
