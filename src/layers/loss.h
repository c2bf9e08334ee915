/* The losses that are means over a row's elements: rows of their tables, and their args. */
#ifndef TUTTI_LAYERS_LOSS_H
#define TUTTI_LAYERS_LOSS_H

#include "core/layer.h"
#include "ops/loss.h"

#define TUTTI__LOSS_OPTIONS(desc)                            \
    {"cols", "int", NULL, offsetof(desc, cols), 1, 1 << 20}, \
    {                                                        \
        "dtype", "dtype", "f32", offsetof(desc, dtype), 0, 0 \
    }

/* in: what the loss is a function of.  from, to: the target's range, 0 and 0 for any. */
#define TUTTI__LOSS_SLOTS(in, from, to)                                                        \
    TUTTI__IN(in, .cols = "cols", .dtype = "dtype"),                                           \
        TUTTI__IN("target", .cols = "cols", .dtype = "dtype", .least = from, .most = to),      \
        TUTTI__OUT("loss", .flags = TUTTI_SLOT_OPTIONAL),                                      \
        TUTTI__OUT("loss_sum", .dtype = "f64", .flags = TUTTI_SLOT_OPTIONAL | TUTTI_SLOT_SUM), \
        TUTTI__OUT("d" in, .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_OPTIONAL,     \
                   .may_be = in)

static inline tutti__loss_args tutti__loss_args_of(const tutti_layer *layer,
                                                   const tutti__views *views, int64_t cols)
{
    return (tutti__loss_args){
        .rows = views->rows,
        .cols = cols,
        .each = 1 / (double)cols,
        .x = views->in[0],
        .target = views->in[1],
        .loss = views->out[0].data,
        .loss_sum = views->out[1].data,
        .dx = views->out[2],
        .step = views->step,
        .finding = layer->finding,
    };
}

#endif
