/* LayerNorm: the contract and the typed calls; norm.c does the rest. */
#include "tutti/layernorm.h"

#include "layers/norm.h"

static const tutti_layer_option options[] = {
    TUTTI__NORM_OPTIONS(tutti_layernorm_desc, "1e-5"),
    {"no_beta", "bool", "0", offsetof(tutti_layernorm_desc, no_beta), 0, 0},
};
static const tutti_slot slots[] = {
    TUTTI__NORM_SLOTS,
    TUTTI__KEPT("mean"),
    TUTTI__KEPT("rstd"),
};
static const tutti_param_type params[] = {
    TUTTI__NORM_GAMMA,
    {.name = "beta", .dims = {"cols"}, .dtype = "param_dtype", .unless = "no_beta"},
};

static tutti_status check(const char *name, const void *untyped)
{
    const tutti_layernorm_desc *desc = untyped;
    _Static_assert(offsetof(tutti_layernorm_desc, zero_centered) ==
                       offsetof(tutti_rmsnorm_desc, zero_centered),
                   "RMSNorm's descriptor is the beginning of LayerNorm's");
    TUTTI_REQUIRE(!desc->no_gamma || desc->no_beta, "%s: no_gamma requires no_beta", name);
    return tutti__norm_check(name, desc);
}

const tutti__layer_class tutti__layernorm_class = {
    .type = {.name = "layernorm",
             .flags = TUTTI_LAYER_BACKWARD | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot),
             TUTTI__TABLE(param)},
    TUTTI__OPERATION(tutti_layernorm_desc, norm),
    .takes_leaves = 1u << TUTTI_BACKEND_CUDA,
    .adds_pairs = {1u << TUTTI_BACKEND_CUDA, 1u << TUTTI_BACKEND_CUDA},
    .any_grad = true,
    .check = check,
    .finish = tutti__norm_finish,
    .fill = tutti__norm_fill,
};

TUTTI__PUBLIC(layernorm, .in = {c->x, c->residual}, .out = {c->y, c->sum},
              .upstream = {c->dy, c->dsum}, .din = {c->dx})
TUTTI__PUBLIC_CALL(layernorm, backward)
