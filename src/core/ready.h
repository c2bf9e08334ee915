/* What a layer's backward tells a gradient exchange, which begins with this, so that core need not
 * know the exchange. */
#ifndef TUTTI_CORE_READY_H
#define TUTTI_CORE_READY_H

#include <stdbool.h>

#include "tutti/param.h"

/* Gradients of one parameter by some leaves: the first at data, the next `apart` bytes on. */
typedef struct tutti__leaf_grads {
    char *data;
    size_t apart;
    int span;   /* each is the sum of so many leaves, one after another: 1 or 2 */
    bool given; /* an earlier call has written them */
    bool pairs; /* each two of the call's leaves, from the first, are added to each other anyway */
    char *sum;  /* where the sum of the call's leaves belongs, if they are one such pair, or NULL */
} tutti__leaf_grads;

typedef struct tutti__ready_sink tutti__ready_sink;
struct tutti__ready_sink {
    /* Before backward: whether it may declare this layer's gradients ready, and, unless it
     * accumulates, that no other layer has given gradients of a tied parameter before. */
    tutti_status (*may_begin)(const tutti__ready_sink *self, const tutti_context *ctx,
                              tutti_layer *layer, bool accumulate);
    /* This layer's gradients are complete.  more: a part of its backward follows. */
    tutti_status (*ready)(tutti__ready_sink *self, tutti_context *ctx, tutti_layer *layer,
                          bool more);
    /* Whether an exchange begins then, beside which backward should go on. */
    bool (*begins)(const tutti__ready_sink *self, tutti_layer *layer);
    /* Whether the exchange adds the leaves of a call, whose gradients then do not go to the
     * parameters', but for sum, or refuses them (leaf_grads); leaves: 0 of a call that has
     * none. */
    bool (*adds_leaves)(const tutti__ready_sink *self, int leaves);
    /* Where backward puts the gradients of a call's leaves; data NULL: in memory of its own, or at
     * sum. */
    tutti_status (*leaf_grads)(const tutti__ready_sink *self, const tutti_context *ctx,
                               const tutti_param *param, int leaves, tutti__leaf_grads *grads);
    /* Adds leaves first to first + count - 1 of the call, from first to last; grads: of the first.
     * Enqueued on ctx, so their memory can be reused. */
    tutti_status (*add_leaves)(tutti__ready_sink *self, tutti_context *ctx,
                               const tutti_param *param, int first, int count,
                               const tutti__leaf_grads *grads);
    /* Backward has failed after some leaves were added: the step is lost.  Returns status. */
    tutti_status (*lose)(tutti__ready_sink *self, tutti_status status);
};

#endif
