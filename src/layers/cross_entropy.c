/* CrossEntropy: the contract, the operation's args, the typed call. */
#include "tutti/cross_entropy.h"

#include <float.h>
#include <math.h>

#include "core/layer.h"
#include "ops/cross_entropy.h"

static const tutti_layer_option options[] = {
    {"cols", "int", NULL, offsetof(tutti_cross_entropy_desc, cols), 1, 1 << 20},
    {"dtype", "dtype", "f32", offsetof(tutti_cross_entropy_desc, dtype), 0, 0},
    {"ignore_label", "int32", "-1", offsetof(tutti_cross_entropy_desc, ignore_label), 0, 0},
    {"label_smoothing", "real", "0", offsetof(tutti_cross_entropy_desc, label_smoothing), 0, 1},
    {"z_loss", "real", "0", offsetof(tutti_cross_entropy_desc, z_loss), 0, DBL_MAX},
};
static const tutti_slot slots[] = {
    TUTTI__IN("logits", .cols = "cols", .dtype = "dtype"),
    TUTTI__IN("labels", .dtype = "i32", .below = "cols"),
    TUTTI__OUT("loss", .flags = TUTTI_SLOT_OPTIONAL),
    TUTTI__OUT("loss_sum", .dtype = "f64", .flags = TUTTI_SLOT_OPTIONAL | TUTTI_SLOT_SUM),
    TUTTI__OUT("dlogits", .cols = "cols", .dtype = "dtype", .flags = TUTTI_SLOT_OPTIONAL,
               .may_be = "logits"),
};

static tutti_status check(const char *name, const void *untyped)
{
    const tutti_cross_entropy_desc *desc = untyped;
    TUTTI_REQUIRE(desc->label_smoothing < 1, "%s: label_smoothing is %g, want below 1", name,
                  desc->label_smoothing);
    TUTTI_REQUIRE(desc->dtype == TUTTI_F64 || isfinite((float)desc->z_loss),
                  "%s: z_loss is %g, want finite in the arithmetic, f32", name, desc->z_loss);
    return TUTTI_OK;
}

static void fill(const tutti_layer *layer, const tutti__views *views, void *args)
{
    const tutti_cross_entropy_desc *desc = layer->desc;
    *(tutti__cross_entropy_args *)args = (tutti__cross_entropy_args){
        .rows = views->rows,
        .cols = desc->cols,
        .logits = views->in[0],
        .labels = views->in[1].data,
        .ignore_label = desc->ignore_label,
        .plain = desc->label_smoothing == 0 && desc->z_loss == 0,
        .keep = 1 - desc->label_smoothing,
        .share = desc->label_smoothing / (double)desc->cols,
        .z_loss = desc->z_loss,
        .loss = views->out[0].data,
        .loss_sum = views->out[1].data,
        .dlogits = views->out[2],
        .step = views->step,
        .finding = layer->finding,
    };
}

static tutti_status explain(const tutti__finding *finding)
{
    return tutti__fail(TUTTI_ERR_DATA,
                       "cross_entropy: the label of row %lld is %d, want 0 to %lld or ignore_label",
                       (long long)finding->row, (int)finding->value, (long long)finding->limit - 1);
}

const tutti__layer_class tutti__cross_entropy_class = {
    .type = {.name = "cross_entropy",
             .flags = TUTTI_LAYER_STEP | TUTTI_LAYER_ROWS_ALONE,
             TUTTI__TABLE(option),
             TUTTI__TABLE(slot)},
    TUTTI__OPERATION(tutti_cross_entropy_desc, cross_entropy),
    .check = check,
    .fill = fill,
    .explain = explain,
};

static bool overlap(const tutti_tensor *labels, const tutti_tensor *count)
{
    const uintptr_t from = (uintptr_t)labels->data, at = (uintptr_t)count->data;
    const size_t bytes = (size_t)tutti_tensor_count(labels) * sizeof(int32_t);
    return at < from + bytes && from < at + sizeof(double);
}

tutti_status tutti_cross_entropy_count(tutti_layer *layer, tutti_context *ctx,
                                       const tutti_tensor *labels, tutti_tensor *count,
                                       unsigned flags)
{
    TUTTI_TRY(tutti__check_typed(layer, &tutti__cross_entropy_class, layer));
    TUTTI_REQUIRE(ctx, "cross_entropy_count: ctx is NULL");
    TUTTI_TRY(tutti__context_open(ctx, "cross_entropy_count"));
    TUTTI_REQUIRE(layer->backend == ctx->backend && layer->device == ctx->device,
                  "cross_entropy_count: the layer is on %s device %d, ctx on %s device %d",
                  layer->backend->name, layer->device, ctx->backend->name, ctx->device);
    TUTTI_REQUIRE((flags & ~(unsigned)TUTTI_GRAD_ACCUMULATE) == 0,
                  "cross_entropy_count: flags is %#x, want 0 or TUTTI_GRAD_ACCUMULATE", flags);
    TUTTI_TRY(tutti__tensor_check(labels, TUTTI_I32, "cross_entropy_count: labels"));
    TUTTI_TRY(tutti__tensor_check(count, TUTTI_F64, "cross_entropy_count: count"));
    TUTTI_REQUIRE(tutti_tensor_count(count) == 1,
                  "cross_entropy_count: count has %lld elements, want 1",
                  (long long)tutti_tensor_count(count));
    TUTTI_REQUIRE(!overlap(labels, count), "cross_entropy_count: labels and count share memory");
    const tutti_cross_entropy_desc *desc = layer->desc;
    TUTTI_TRY(tutti__context_advance(ctx));
    return layer->backend->op.count_labels(ctx, labels->data, tutti_tensor_count(labels),
                                           desc->ignore_label, desc->cols, count->data,
                                           flags & TUTTI_GRAD_ACCUMULATE);
}

TUTTI__PUBLIC(cross_entropy, .in = {c->logits, c->labels},
              .out = {c->loss, c->loss_sum, c->dlogits})
