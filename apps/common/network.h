/* The base of the programs' models: a sequence of layers over buffers of `capacity` rows, with a
 * loss at the end.  A model chooses the layers and each one's tensors; forward and backward are
 * here. */
#ifndef TUTTI_APPS_NETWORK_H
#define TUTTI_APPS_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/tutti.h"

/* A tensor of a call with `rows` rows: [rows * of_row, cols / of_row], where of_row 0 counts as 1;
 * for cols 0, tokens, [rows * of_row]. */
typedef struct view {
    void *data; /* NULL: none */
    int64_t cols, of_row;
} view;

/* A layer's tensors, numbered as the slots of its kind. */
typedef struct wiring {
    view in[2], out[2];         /* forward */
    view x, y, upstream[2], dx; /* backward: its in[0], out[0], … */
} wiring;

typedef struct network_layer {
    tutti_layer *layer;
    tutti_layer *resting; /* takes its place in forward outside of training; NULL: itself */
    wiring wiring;
    void *saved; /* what forward keeps for backward */
} network_layer;

typedef struct network {
    tutti_context *ctx;
    tutti_params *params;
    tutti_dtype dtype;
    tutti_dtype norm_dtype; /* of the norms' parameters */
    int64_t capacity;       /* most rows of a call */
    network_layer *layers;
    void **buffers;
    int64_t count, buffer_count, room;
    /* of a training call, which its layers' masks depend on; set by the program */
    const tutti_step_block *step;
    int64_t first_row;
    /* of a training call in reproducible mode: where each leaf begins; 0: no leaves */
    int leaves;
    int64_t leaf_rows[TUTTI_LEAVES_MAX];
    tutti_layer *loss;
    int64_t classes;
    void *logits;     /* [capacity, classes]; their gradient after network_loss with a step */
    int32_t *labels;  /* [capacity] */
    double *loss_sum; /* [TUTTI_LEAVES_MAX], of a training call's leaves; otherwise [1] */
} network;

/* Room for a model of `blocks` blocks and the layers before and after them; its parameters go to
 * the store.  Not collective.  After a failure, here and below, call network_free. */
int network_create(network *network, tutti_context *ctx, tutti_dtype dtype, int64_t blocks,
                   int64_t capacity, tutti_params *params);
void network_free(network *network);

/* [capacity, cols] */
int network_buffer(network *network, int64_t cols, void **data);
/* [capacity, cols] of tokens */
int network_tokens(network *network, int64_t cols, int32_t **tokens);

/* Add a layer, in the order of forward.  block -1: the name has no prefix. */
int network_add_norm(network *network, const char *kind, int64_t cols, const wiring *wiring,
                     int64_t block, const char *name);
int network_add_linear(network *network, int64_t in, int64_t out, tutti_activation activation,
                       const wiring *wiring, int64_t block, const char *name);
int network_add_embedding(network *network, int64_t vocab, int64_t cols, const wiring *wiring,
                          const char *name);
/* Dropout with the probability p, in training alone; number: unlike those of the model's others. */
int network_add_dropout(network *network, int64_t cols, tutti_activation activation, double p,
                        int64_t number, const wiring *wiring, int64_t block, const char *name);
/* Adds the loss over the logits, the output of a layer. */
int network_add_loss(network *network, int64_t classes, void *logits);

/* Cuts the rows of the training calls that follow into equal leaves; 0: they have none. */
void network_cut(network *network, int64_t rows, int leaves);
/* Forward of the first `rows` rows; keeps what backward needs if `training`. */
int network_forward(network *network, int64_t rows, bool training);
/* Computes loss_sum and, with a step, in training, the gradient of the logits in their place. */
int network_loss(network *network, int64_t rows, const tutti_step_block *step);
/* Gradients of all parameters, and of the input where its layer's wiring has one.  code: the step's
 * so far; after a failure nothing is computed, but each layer is still declared ready to `sync`, if
 * that is not NULL and accepts it: of several leaves it does not. */
int network_backward(network *network, int64_t rows, int code, unsigned flags,
                     tutti_grad_sync *sync);

#endif
