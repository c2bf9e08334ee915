/* What the programs' models are made of: layers in a row, over buffers of `capacity` rows, with a
 * loss at the end.  A model says which layers, and which tensors each has in both directions; the
 * two passes are here. */
#ifndef TUTTI_APPS_NETWORK_H
#define TUTTI_APPS_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/tutti.h"

/* A tensor of a call with `rows` rows: [rows, cols], [rows * of_row, cols / of_row], or for cols 0
 * tokens, [rows * of_row]. */
typedef struct view {
    void *data; /* NULL: none */
    int64_t cols, of_row;
} view;

/* A layer's tensors, by the numbers of its kind's slots. */
typedef struct wiring {
    view in[2], out[2];         /* forward */
    view x, y, upstream[2], dx; /* backward: its in[0], out[0], … */
} wiring;

typedef struct network_layer {
    tutti_layer *layer;
    wiring wiring;
    void *saved; /* what forward keeps for backward */
} network_layer;

typedef struct network {
    tutti_context *ctx;
    tutti_params *params;
    tutti_dtype dtype;
    tutti_dtype norm_dtype; /* of the norms' parameters */
    int64_t capacity;       /* rows of the largest call */
    network_layer *layers;
    void **buffers;
    int64_t count, buffer_count, room;
    tutti_layer *loss;
    int64_t classes;
    void *logits;     /* [capacity, classes]; after network_loss with a step their gradient */
    int32_t *labels;  /* [capacity] */
    double *loss_sum; /* [1] */
} network;

/* Room for a model of so many blocks and what is before and after them.  Its parameters go to the
 * store.  Not collective.  On failure, here and below, network_free cleans up. */
int network_create(network *network, tutti_context *ctx, tutti_dtype dtype, int64_t blocks,
                   int64_t capacity, tutti_params *params);
void network_free(network *network);

/* [capacity, cols] */
int network_buffer(network *network, int64_t cols, void **data);
/* [capacity, cols] of tokens */
int network_tokens(network *network, int64_t cols, int32_t **tokens);

/* The layers, in the order of forward.  block -1: the name stands alone. */
int network_add_norm(network *network, const char *kind, int64_t cols, const wiring *wiring,
                     int64_t block, const char *name);
int network_add_linear(network *network, int64_t in, int64_t out, tutti_activation activation,
                       const wiring *wiring, int64_t block, const char *name);
int network_add_embedding(network *network, int64_t vocab, int64_t cols, const wiring *wiring,
                          const char *name);
/* The loss over the logits, which are some layer's output. */
int network_add_loss(network *network, int64_t classes, void *logits);

/* The first `rows` rows; keeps what backward needs if `training`. */
int network_forward(network *network, int64_t rows, bool training);
/* loss_sum, and, with a step, the gradient of the logits in their place. */
int network_loss(network *network, int64_t rows, const tutti_step_block *step);
/* Gradients of all parameters, and of the input where its layer's wiring has one.  Each layer is
 * declared ready to the exchange, if there is one, whatever code, of the step so far, is. */
int network_backward(network *network, int64_t rows, int code, unsigned flags,
                     tutti_grad_sync *sync);

#endif
