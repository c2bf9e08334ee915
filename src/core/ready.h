/* The receiver of "this layer's gradients are complete".  A gradient exchange begins with it, so
 * that a layer's backward can notify the exchange without knowing it. */
#ifndef TUTTI_CORE_READY_H
#define TUTTI_CORE_READY_H

#include "tutti/param.h"

typedef struct tutti__ready_sink {
    tutti_status (*ready)(struct tutti__ready_sink *self, tutti_context *ctx, tutti_layer *layer);
} tutti__ready_sink;

#endif
