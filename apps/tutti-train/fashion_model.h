/* The classifier: blocks of norm and FusedLinear, then a FusedLinear with ten outputs and
 * CrossEntropy.
 *
 *     h_0 = images;   h_i = dropout(act(W_i norm(h_i-1) + b_i));   logits = W h_depth + b */
#ifndef TUTTI_TRAIN_FASHION_MODEL_H
#define TUTTI_TRAIN_FASHION_MODEL_H

#include "common/network.h"
#include "options.h"

typedef struct model {
    network network;
    void *images; /* [capacity, pixels], the input */
} model;

/* What --norm may be, NULL last. */
extern const char *const model_norms[];

/* Errors and cleanup are network_create's. */
int model_create(model *model, tutti_context *ctx, const train_options *options, int64_t capacity,
                 tutti_params *params);
/* Line "model" of the configuration. */
void model_describe(const train_options *options);

#endif
