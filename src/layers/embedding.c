/* Embedding: the contract, the operation's args, the typed calls. */
#include "tutti/embedding.h"

#include <math.h>

#include "core/layer.h"
#include "ops/embedding.h"

static const tutti_layer_option options[] = {
    {"vocab", "int", NULL, offsetof(tutti_embedding_desc, vocab), 1, INT32_MAX},
    {"cols", "int", NULL, offsetof(tutti_embedding_desc, cols), 1, 1 << 20},
    {"dtype", "dtype", "f32", offsetof(tutti_embedding_desc, dtype), 0, 0},
};
static const tutti_slot slots[] = {
    TUTTI__IN("tokens", .dtype = "i32", .below = "vocab", .flags = TUTTI_SLOT_READ),
    TUTTI__OUT("y", .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_GRAD),
};
static const tutti_param_type params[] = {
    {.name = "weight", .dims = {"vocab", "cols"}, .dtype = "dtype", .decays = 1},
};

static void finish(tutti_layer *layer)
{
    layer->params[0].init = TUTTI_INIT_UNIFORM;
    layer->params[0].init_bound = sqrt(3);
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *args)
{
    const tutti_embedding_desc *desc = layer->desc;
    *(tutti__embedding_args *)args = (tutti__embedding_args){
        .rows = views->rows,
        .vocab = desc->vocab,
        .cols = desc->cols,
        .dtype = desc->dtype,
        .tokens = views->in[0].data,
        .weight = views->value[0],
        .y = views->out[0],
        .dy = views->upstream[0],
        .dweight = views->grad[0],
        .accumulate = views->accumulate,
        .finding = layer->finding,
    };
}

static tutti_status explain(const tutti__finding *finding)
{
    return tutti__fail(TUTTI_ERR_DATA, "embedding: token %d of row %lld is not in [0, %lld)",
                       (int)finding->value, (long long)finding->row, (long long)finding->limit);
}

const tutti__layer_class tutti__embedding_class = {
    .type = {.name = "embedding",
             .flags = TUTTI_LAYER_BACKWARD | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot),
             TUTTI__TABLE(param)},
    TUTTI__OPERATION(tutti_embedding_desc, embedding),
    .rows_most = INT32_MAX,
    .finish = finish,
    .fill = fill,
    .explain = explain,
};

TUTTI__PUBLIC(embedding, .in = {c->tokens}, .out = {c->y}, .upstream = {c->dy})
TUTTI__PUBLIC_CALL(embedding, backward)
