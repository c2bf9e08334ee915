/* RMSNorm: the contract and the typed calls; norm.c does the rest. */
#include "tutti/rmsnorm.h"

#include "layers/norm.h"

static const tutti_layer_option options[] = {TUTTI__NORM_OPTIONS(tutti_rmsnorm_desc, "1e-6")};
static const tutti_slot slots[] = {
    TUTTI__NORM_SLOTS,
    TUTTI__KEPT("rstd"),
};
static const tutti_param_type params[] = {TUTTI__NORM_GAMMA};

const tutti__layer_class tutti__rmsnorm_class = {
    .type = {.name = "rmsnorm",
             .flags = TUTTI_LAYER_BACKWARD | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot),
             TUTTI__TABLE(param)},
    TUTTI__OPERATION(tutti_rmsnorm_desc, norm),
    .takes_leaves = 1u << TUTTI_BACKEND_CUDA,
    .adds_pairs = {1u << TUTTI_BACKEND_CUDA},
    .any_grad = true,
    .check = tutti__norm_check,
    .finish = tutti__norm_finish,
    .fill = tutti__norm_fill,
};

TUTTI__PUBLIC(rmsnorm, .in = {c->x, c->residual}, .out = {c->y, c->sum},
              .upstream = {c->dy, c->dsum}, .din = {c->dx})
TUTTI__PUBLIC_CALL(rmsnorm, backward)
