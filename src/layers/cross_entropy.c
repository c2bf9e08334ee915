/* CrossEntropy: validate, plan, call the table. */
#include "tutti/cross_entropy.h"

#include "core/layer.h"

typedef struct cross_entropy_layer {
    tutti_layer head;
    tutti_cross_entropy_desc desc;
} cross_entropy_layer;

static const tutti_layer_option options[] = {
    {"cols", "int", NULL},
    {"dtype", "dtype", "f32"},
    {"ignore_label", "int", "-1"},
};
static const tutti__option_place places[] = {
    {TUTTI__OPTION_INT64, offsetof(tutti_cross_entropy_desc, cols)},
    {TUTTI__OPTION_DTYPE, offsetof(tutti_cross_entropy_desc, dtype)},
    {TUTTI__OPTION_INT32, offsetof(tutti_cross_entropy_desc, ignore_label)},
};
static const tutti_cross_entropy_desc defaults = TUTTI_CROSS_ENTROPY_DESC_INIT;

static tutti_status plan(tutti_layer *layer, tutti_context *ctx, int64_t rows)
{
    const cross_entropy_layer *entropy = (const cross_entropy_layer *)layer;
    if (!layer->backend->op.cross_entropy_plan) return TUTTI_OK;
    tutti__cross_entropy_args args = {
        .rows = rows,
        .cols = entropy->desc.cols,
        .logits = {NULL, entropy->desc.dtype, entropy->desc.cols},
        .dlogits = {NULL, entropy->desc.dtype, entropy->desc.cols},
    };
    return layer->backend->op.cross_entropy_plan(ctx, &args);
}

static tutti_status forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    const cross_entropy_layer *entropy = (const cross_entropy_layer *)layer;
    const tutti_cross_entropy_desc *desc = &entropy->desc;
    if (!layer->backend->op.cross_entropy) return tutti__unsupported(layer, "cross_entropy");
    int64_t rows = -1, one = 1;
    tutti__matrix labels, loss, loss_sum;
    tutti__cross_entropy_args args = {.cols = desc->cols, .ignore_label = desc->ignore_label};
    TUTTI_TRY(tutti__as_rows(call->in[0], "cross_entropy: logits", desc->dtype, desc->cols, &rows,
                             &args.logits));
    TUTTI_TRY(tutti__as_rows(call->in[1], "cross_entropy: labels", TUTTI_I32, 1, &rows, &labels));
    TUTTI_REQUIRE(rows <= 1 || labels.stride == 1, "cross_entropy: labels are not contiguous");
    TUTTI_TRY(tutti__as_rows_if(call->out[0], "cross_entropy: loss",
                                tutti__accumulate_dtype(desc->dtype, desc->dtype), 1, &rows,
                                &loss));
    TUTTI_REQUIRE(!loss.data || rows <= 1 || loss.stride == 1,
                  "cross_entropy: loss is not contiguous");
    TUTTI_TRY(
        tutti__as_rows_if(call->out[1], "cross_entropy: loss_sum", TUTTI_F64, 1, &one, &loss_sum));
    TUTTI_TRY(tutti__as_rows_if(call->out[2], "cross_entropy: dlogits", desc->dtype, desc->cols,
                                &rows, &args.dlogits));
    TUTTI_TRY(tutti__check_apart(&args.dlogits, "cross_entropy: dlogits", desc->cols, &args.logits,
                                 "cross_entropy: logits", desc->cols, rows, true));
    args.rows = rows;
    args.labels = labels.data;
    args.loss = loss.data;
    args.loss_sum = loss_sum.data;
    args.step = call->step ? call->step->values : NULL;
    return layer->backend->op.cross_entropy(ctx, &args);
}

static tutti_status backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    (void)layer, (void)ctx, (void)call;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "cross_entropy has no backward: forward gives dlogits");
}

static tutti_status create(tutti_context *ctx, const void *desc, tutti_layer **layer)
{
    return tutti_cross_entropy_create(ctx, desc, layer);
}

const tutti__layer_class tutti__cross_entropy_class = {
    .type = {.name = "cross_entropy",
             .option_count = sizeof options / sizeof options[0],
             .options = options,
             .in = {"logits", "labels"},
             .out = {"loss", "loss_sum", "dlogits"}},
    .option_places = places,
    .desc_size = sizeof defaults,
    .desc_default = &defaults,
    .create = create,
    .plan = plan,
    .forward = forward,
    .backward = backward,
};

tutti_status tutti_cross_entropy_create(tutti_context *ctx, const tutti_cross_entropy_desc *desc,
                                        tutti_layer **layer)
{
    TUTTI_REQUIRE(ctx, "cross_entropy: ctx is NULL");
    TUTTI_REQUIRE(desc, "cross_entropy: desc is NULL");
    TUTTI_REQUIRE(layer, "cross_entropy: layer is NULL");
    TUTTI_REQUIRE(desc->cols >= 1 && desc->cols <= 1 << 20,
                  "cross_entropy: cols is %lld, want 1 to 2^20", (long long)desc->cols);
    TUTTI_REQUIRE(tutti__is_float(desc->dtype),
                  "cross_entropy: dtype is %s, want f32, f64, f16 or bf16",
                  tutti_dtype_name(desc->dtype));
    cross_entropy_layer *made;
    TUTTI_TRY(
        tutti__layer_new(ctx, &tutti__cross_entropy_class, sizeof *made, (tutti_layer **)&made));
    made->desc = *desc;
    *layer = &made->head;
    return TUTTI_OK;
}

tutti_status tutti_cross_entropy_forward(tutti_layer *layer, tutti_context *ctx,
                                         const tutti_tensor *logits, const tutti_tensor *labels,
                                         const tutti_tensor *loss, const tutti_tensor *loss_sum,
                                         const tutti_tensor *dlogits, const tutti_step *step)
{
    TUTTI_TRY(tutti__check_class(layer, &tutti__cross_entropy_class));
    tutti_call call = {.in = {logits, labels}, .out = {loss, loss_sum, dlogits}, .step = step};
    return tutti_layer_forward(layer, ctx, &call);
}
