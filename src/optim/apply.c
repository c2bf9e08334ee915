/* The parts of an optimizer's step, over lists: the norm of gradients, the update of parameters.
 * What is given is checked here; the operations grad_norm and apply do the rest. */
#include "optim/apply.h"

#include <stdio.h>

#include "core/text.h"
#include "optim/optimizer.h"

/* Checks */

static bool overlap(const tutti_tensor *a, const tutti_tensor *b)
{
    const uintptr_t from_a = (uintptr_t)a->data, from_b = (uintptr_t)b->data;
    const size_t bytes_a = (size_t)tutti_tensor_count(a) * tutti__size_of(a->dtype);
    const size_t bytes_b = (size_t)tutti_tensor_count(b) * tutti__size_of(b->dtype);
    return from_a < from_b + bytes_b && from_b < from_a + bytes_a;
}

/* A tensor of a list: what[index].part is contiguous, of this type and, unless like is NULL, of
 * like's shape. */
typedef struct place {
    const char *function, *what;
    int index;
    const char *part; /* "", ".grad" */
} place;

static tutti_status check_tensor(const tutti_tensor *tensor, tutti_dtype dtype,
                                 const tutti_tensor *like, const place *at)
{
    char what[80], given[TUTTI__DIMS_TEXT], wanted[TUTTI__DIMS_TEXT];
    if (tutti__tensor_check(tensor, dtype, at->function) == TUTTI_OK &&
        (!like || tutti__same_shape(tensor, like)))
        return TUTTI_OK;
    /* only now, since a text for every tensor of a step takes time */
    snprintf(what, sizeof what, "%s: %s[%d]%s", at->function, at->what, at->index, at->part);
    TUTTI_TRY(tutti__tensor_check(tensor, dtype, what));
    return tutti__fail(TUTTI_ERR_ARG, "%s is %s, want %s as the parameter's value", what,
                       tutti__dims_text(tensor, given), tutti__dims_text(like, wanted));
}

/* A few numbers on the device, or NULL. */
static tutti_status check_numbers(const tutti_tensor *tensor, int count, const char *what)
{
    if (!tensor) return TUTTI_OK;
    TUTTI_TRY(tutti__tensor_check(tensor, TUTTI_F64, what));
    TUTTI_REQUIRE(tensor->ndim == 1 && tensor->dims[0] == count, "%s has %lld elements, want [%d]",
                  what, (long long)tutti_tensor_count(tensor), count);
    return TUTTI_OK;
}

static tutti_status check_step(const tutti_step_block *step, const tutti_context *ctx,
                               const char *function)
{
    TUTTI_REQUIRE(step->backend == ctx->backend && step->device == ctx->device,
                  "%s: step is on another device than the context", function);
    return tutti__step_block_check(step, ctx, function);
}

static tutti_status check_list(const void *list, int count, const char *what, const char *function)
{
    TUTTI_REQUIRE(count >= 0, "%s: count is %d, want >= 0", function, count);
    TUTTI_REQUIRE(list || count == 0, "%s: %s is NULL", function, what);
    return TUTTI_OK;
}

/* The norm */

tutti_grad_norm_desc tutti_grad_norm_desc_default(void)
{
    return (tutti_grad_norm_desc)TUTTI_GRAD_NORM_DESC_INIT;
}

static tutti_status check_grads(tutti__grad_norm_args *args, const tutti_tensor *norm)
{
    for (int i = 0; i < args->count; i++) {
        const tutti_tensor *grad = &args->grads[i];
        const bool wide = grad->dtype == TUTTI_F64;
        const place at = {"grad_norm", "grads", i, ""};
        TUTTI_REQUIRE(wide || grad->dtype == TUTTI_F32,
                      "grad_norm: grads[%d] is %s, want f32 or f64", i,
                      tutti__dtype_text(grad->dtype));
        TUTTI_TRY(check_tensor(grad, grad->dtype, NULL, &at));
        TUTTI_REQUIRE(!overlap(grad, norm), "grad_norm: norm overlaps grads[%d]", i);
        args->elements[wide] += tutti__padded(tutti_tensor_count(grad));
        TUTTI_REQUIRE(args->elements[wide] <= INT64_MAX / 16,
                      "grad_norm: grads have more than 2^59 elements");
    }
    return TUTTI_OK;
}

tutti_status tutti_grad_norm(tutti_context *ctx, const tutti_tensor *grads, int count,
                             const tutti_step_block *step, const tutti_grad_norm_desc *desc,
                             const tutti_tensor *norm)
{
    tutti_grad_norm_desc wanted;
    TUTTI_REQUIRE(ctx, "grad_norm: ctx is NULL");
    TUTTI_TRY(tutti__context_open(ctx, "grad_norm"));
    TUTTI_TRY(tutti__desc_read(&wanted, sizeof wanted, desc, "grad_norm"));
    TUTTI_TRY(tutti__optimizer_check(0, wanted.clip_norm, "grad_norm"));
    TUTTI_TRY(check_list(grads, count, "grads", "grad_norm"));
    TUTTI_REQUIRE(norm, "grad_norm: norm is NULL");
    TUTTI_TRY(
        check_numbers(norm, sizeof(tutti_grad_norm_values) / sizeof(double), "grad_norm: norm"));
    if (step) TUTTI_TRY(check_step(step, ctx, "grad_norm"));
    tutti__grad_norm_args args = {.grads = grads,
                                  .count = count,
                                  .step = step ? step->values : NULL,
                                  .clip_norm = wanted.clip_norm,
                                  .skip_nonfinite = wanted.skip_nonfinite,
                                  .norm = norm->data};
    TUTTI_TRY(check_grads(&args, norm));
    TUTTI_TRY(tutti__context_advance(ctx));
    const tutti__plan_key key = {.op = ctx->backend->op.grad_norm, .rows = tutti__list_runs(&args)};
    return tutti__op_run(ctx, &key, &args);
}

/* The update */

/* No two tensors of a parameter share memory, but the value may be its own master. */
static tutti_status check_apart(const tutti__apply_args *args, int i, const char *function)
{
    static const char *const names[] = {"value", "master", "grad", "state[0]", "state[1]"};
    const tutti_param *param = args->params[i];
    const tutti_tensor *master = tutti__master_of(param);
    const tutti_tensor *parts[] = {&param->value, param->value.data == master->data ? NULL : master,
                                   &param->grad, args->state[0] ? &args->state[0][i] : NULL,
                                   args->state[1] ? &args->state[1][i] : NULL};
    for (int a = 0; a < 5; a++)
        for (int b = a + 1; parts[a] && b < 5; b++)
            TUTTI_REQUIRE(!parts[b] || !overlap(parts[a], parts[b]),
                          "%s: params[%d]: %s overlaps %s", function, i, names[a], names[b]);
    return TUTTI_OK;
}

static tutti_status check_factors(const tutti_param *param, int i, const char *function)
{
    char what[64];
    if (tutti__factors_check(param, "") == TUTTI_OK) return TUTTI_OK;
    snprintf(what, sizeof what, "%s: params[%d].", function, i);
    return tutti__factors_check(param, what);
}

static tutti_status check_param(const tutti__apply_args *args, int i, const char *function)
{
    const tutti_param *param = args->params[i];
    TUTTI_REQUIRE(param, "%s: params[%d] is NULL", function, i);
    const tutti_tensor *value = &param->value, *master = tutti__master_of(param);
    const bool wide = value->dtype == TUTTI_F64;
    place at = {function, "params", i, ".value"};
    TUTTI_REQUIRE(tutti__is_float(value->dtype), "%s: params[%d].value is %s, want a float type",
                  function, i, tutti__dtype_text(value->dtype));
    TUTTI_TRY(check_tensor(value, value->dtype, NULL, &at));
    TUTTI_REQUIRE(master->data != value->data || wide || value->dtype == TUTTI_F32,
                  "%s: params[%d].value is %s, want a separate master of f32", function, i,
                  tutti_dtype_name(value->dtype));
    at.part = ".master";
    TUTTI_TRY(check_tensor(master, wide ? TUTTI_F64 : TUTTI_F32, value, &at));
    at.part = ".grad";
    TUTTI_TRY(check_tensor(&param->grad,
                           !wide && param->grad.dtype == TUTTI_F64 ? TUTTI_F64 : master->dtype,
                           value, &at));
    for (int s = 0; s < 2; s++) {
        at = (place){function, s ? "state[1]" : "state[0]", i, ""};
        if (args->state[s]) TUTTI_TRY(check_tensor(&args->state[s][i], master->dtype, value, &at));
    }
    TUTTI_TRY(check_apart(args, i, function));
    return check_factors(param, i, function);
}

static tutti_status check_call(const tutti_context *ctx, const tutti_update_call *call, int states,
                               const char *function)
{
    char what[48];
    TUTTI_REQUIRE(call, "%s: call is NULL", function);
    TUTTI_TRY(check_list(call->params, call->count, "params", function));
    for (int s = 0; s < 2; s++) {
        snprintf(what, sizeof what, "state[%d]", s);
        if (s < states) TUTTI_TRY(check_list(call->state[s], call->count, what, function));
        TUTTI_REQUIRE(s < states || !call->state[s],
                      "%s: %s is not NULL, but there is no such state", function, what);
    }
    TUTTI_REQUIRE(call->step, "%s: step is NULL", function);
    TUTTI_TRY(check_step(call->step, ctx, function));
    snprintf(what, sizeof what, "%s: updates", function);
    TUTTI_TRY(check_numbers(call->updates, 1, what));
    snprintf(what, sizeof what, "%s: norm", function);
    return check_numbers(call->norm, sizeof(tutti_grad_norm_values) / sizeof(double), what);
}

tutti_status tutti__apply(tutti_context *ctx, const tutti__update_options *options, int states,
                          const tutti_update_call *call, const char *function)
{
    TUTTI_TRY(tutti__context_open(ctx, function));
    TUTTI_REQUIRE(options->clip_norm == 0, "%s: clip_norm is %g, want 0: tutti_grad_norm clips",
                  function, options->clip_norm);
    TUTTI_REQUIRE(!options->skip_nonfinite,
                  "%s: skip_nonfinite is set, want 0: tutti_grad_norm decides", function);
    TUTTI_TRY(check_call(ctx, call, states, function));
    const tutti__apply_args args = {.options = *options,
                                    .params = call->params,
                                    .count = call->count,
                                    .state = {call->state[0], call->state[1]},
                                    .step = call->step->values,
                                    .norm = call->norm ? call->norm->data : NULL,
                                    .updates = call->updates ? call->updates->data : NULL};
    for (int i = 0; i < args.count; i++) TUTTI_TRY(check_param(&args, i, function));
    TUTTI_TRY(tutti__context_advance(ctx));
    return tutti__op_run(ctx, &(tutti__plan_key){.op = ctx->backend->op.apply}, &args);
}
