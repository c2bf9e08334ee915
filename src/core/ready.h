/* Who is told that a layer's gradients are complete.  A gradient exchange begins with this, so that
 * a layer's backward, which does not know exchanges, can tell it. */
#ifndef TUTTI_CORE_READY_H
#define TUTTI_CORE_READY_H

#include "tutti/param.h"

typedef struct tutti__ready_sink {
    tutti_status (*ready)(struct tutti__ready_sink *self, tutti_context *ctx, tutti_layer *layer);
} tutti__ready_sink;

#endif
