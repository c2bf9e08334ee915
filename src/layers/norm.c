/* LayerNorm and RMSNorm: checks beyond the tables, and the operation's args. */
#include "layers/norm.h"

tutti_status tutti__norm_check(const char *name, const void *untyped)
{
    const tutti_rmsnorm_desc *desc = untyped;
    TUTTI_REQUIRE(desc->y_dtype == desc->x_dtype || desc->y_dtype == desc->param_dtype,
                  "%s: y_dtype is %s, want x's (%s) or the parameters' (%s)", name,
                  tutti_dtype_name(desc->y_dtype), tutti_dtype_name(desc->x_dtype),
                  tutti_dtype_name(desc->param_dtype));
    TUTTI_REQUIRE(!desc->no_gamma || !desc->zero_centered, "%s: zero_centered requires gamma",
                  name);
    return TUTTI_OK;
}

void tutti__norm_finish(tutti_layer *layer)
{
    const tutti_rmsnorm_desc *desc = layer->desc;
    tutti_param *gamma = tutti__layer_param(layer, "gamma");
    if (gamma) gamma->init = desc->zero_centered ? TUTTI_INIT_ZERO : TUTTI_INIT_ONE;
}

void tutti__norm_fill(const tutti_layer *layer, const tutti__views *views, void *untyped)
{
    const tutti_rmsnorm_desc *desc = layer->desc;
    tutti__norm_args *args = untyped;
    const bool centered = layer->class == &tutti__layernorm_class;
    *args = (tutti__norm_args){
        .rows = views->rows,
        .cols = desc->cols,
        .centered = centered,
        .zero_centered = desc->zero_centered,
        .eps = desc->eps,
        .param_dtype = desc->param_dtype,
        .grad_dtype = views->grad_dtype,
        .x = views->in[0],
        .gamma = views->value[0],
        .beta = views->value[1],
        .mean = centered ? views->kept[0] : NULL,
        .rstd = views->kept[centered],
        .residual = views->in[1],
        .y = views->out[0],
        .sum = views->out[1],
        .dy = views->upstream[0],
        .dsum = views->upstream[1],
        .dx = views->din[0],
        .dgamma = views->grad[0],
        .dbeta = views->grad[1],
        .accumulate = views->accumulate,
        .leaves = views->leaves,
        .in_leaves = views->in_leaves,
        .dgamma_apart = (int64_t)(views->grad_apart[0] / tutti__size_of(views->grad_dtype)),
        .dbeta_apart = (int64_t)(views->grad_apart[1] / tutti__size_of(views->grad_dtype)),
        .dgamma_span = tutti__span_of(views, 0),
        .dbeta_span = tutti__span_of(views, 1),
    };
}
