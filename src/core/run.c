/* Runs a checked call: one call of the layer's operation, or one per leaf with their sums added as
 * a tree. */
#include "core/layer.h"
#include "ops/tree_sum.h"

static tutti__plan_key key_of(const tutti_layer *layer, const tutti__views *views)
{
    const uintptr_t bits = views->bits | 16;
    return (tutti__plan_key){
        .op = layer->op,
        .kind = layer->class,
        .settings = layer->desc,
        .settings_bytes = layer->class->desc_size,
        .settings_hash = layer->desc_hash,
        .rows = views->rows,
        .alignment = (uint32_t)(bits & -bits),
        .backward = views->backward,
    };
}

static tutti_status run_once(tutti_layer *layer, tutti_context *ctx, const tutti__views *views,
                             bool plan)
{
    union {
        char bytes[TUTTI__ARGS_MAX];
        int64_t aligns;
    } args;
    layer->class->fill(layer, views, &args);
    const tutti__plan_key key = key_of(layer, views);
    return plan ? tutti__op_plan(ctx, &key, &args) : tutti__op_run(ctx, &key, &args);
}

/* Leaves */

/* The sums of a call: gradients of parameters, or outputs.  Leaves' sums are kept in levels: level
 * 0 is the result itself, unless accumulating, and the others lie in scratch, one after another. */
enum { SUMS_MAX = TUTTI__LAYER_PARAMS_MAX + TUTTI_MAX_SLOTS };
typedef struct leaf_sums {
    tutti_layer *layer;
    tutti_context *ctx;
    const tutti__views *views;
    bool plan;
    int count;
    struct {
        void *result;
        tutti_dtype dtype;
        int64_t elements;
        size_t at; /* in a level */
    } list[SUMS_MAX];
    size_t level_bytes;
    char *scratch;
} leaf_sums;

static void add_sum(leaf_sums *sums, void *result, tutti_dtype dtype, int64_t elements)
{
    if (!result) return;
    sums->list[sums->count].result = result;
    sums->list[sums->count].dtype = dtype;
    sums->list[sums->count].elements = elements;
    sums->list[sums->count].at = sums->level_bytes;
    sums->level_bytes += ((size_t)elements * tutti__size_of(dtype) + 255) / 256 * 256;
    sums->count++;
}

static void find_sums(leaf_sums *sums)
{
    const tutti_layer *layer = sums->layer;
    const tutti__views *views = sums->views;
    if (views->backward) {
        for (int i = 0; i < layer->param_count; i++)
            add_sum(sums, views->grad[i], views->grad_dtype,
                    tutti_tensor_count(&layer->params[i].value));
        return;
    }
    for (int i = 0; i < layer->class->type.slot_count; i++) {
        const tutti_slot_shape *shape = &layer->slots[i].shape;
        if (shape->flags & TUTTI_SLOT_SUM)
            add_sum(sums, views->out[shape->index].data, shape->dtype, shape->cols);
    }
}

static void *sum_at(const leaf_sums *sums, int sum, int level)
{
    if (level == 0 && !sums->views->accumulate) return sums->list[sum].result;
    return sums->scratch + (size_t)level * sums->level_bytes + sums->list[sum].at;
}

/* dst = a + b, elementwise; dst may be one of them. */
static tutti_status add(const leaf_sums *sums, int sum, void *dst, const void *a, const void *b)
{
    if (sums->plan) return TUTTI_OK;
    const tutti__tree_sum_args args = {
        .count = sums->list[sum].elements,
        .dtype = sums->list[sum].dtype,
        .dst = dst,
        .inputs = 2,
        .threads = sums->ctx->threads,
        .in = {a, b},
        .pops = {0, 1},
    };
    return sums->ctx->backend->op.tree_sum(sums->ctx->device, sums->ctx->stream, &args);
}

static void cut_rows(tutti__matrix *matrix, int64_t begin)
{
    if (matrix->data)
        matrix->data =
            (char *)matrix->data + begin * matrix->stride * (int64_t)tutti__size_of(matrix->dtype);
}

/* The views of a leaf, with its sums in a level. */
static tutti__views leaf_views(const leaf_sums *sums, int leaf, int level)
{
    const tutti_layer *layer = sums->layer;
    tutti__views v = *sums->views;
    const int64_t begin = v.leaf_rows[leaf];
    const int64_t end = leaf + 1 < v.leaves ? v.leaf_rows[leaf + 1] : v.rows;
    for (int i = 0; i < layer->class->type.slot_count; i++) {
        const tutti_slot_shape *shape = &layer->slots[i].shape;
        const tutti_slot_role role = layer->class->type.slots[i].role;
        if (role == TUTTI_SLOT_KEPT) {
            /* a plan may have no saved; the shift then determines the alignment */
            const int64_t shift = begin * shape->cols * (int64_t)tutti__size_of(shape->dtype);
            char *kept = v.kept[shape->index];
            if (kept) v.kept[shape->index] = kept + shift;
            v.bits |= (uintptr_t)shift;
        } else if (!(shape->flags & TUTTI_SLOT_SUM)) {
            cut_rows(role == TUTTI_SLOT_IN ? &v.in[shape->index] : &v.out[shape->index], begin);
            cut_rows(role == TUTTI_SLOT_IN ? &v.din[shape->index] : &v.upstream[shape->index],
                     begin);
        }
    }
    v.rows = end - begin;
    v.first_row += begin;
    v.leaves = 1;
    v.accumulate = false;
    int next = 0;
    for (int i = 0; v.backward && i < layer->param_count; i++)
        if (v.grad[i]) v.grad[i] = sum_at(sums, next++, level);
    for (int i = 0; !v.backward && i < layer->class->type.slot_count; i++) {
        const tutti_slot_shape *shape = &layer->slots[i].shape;
        if ((shape->flags & TUTTI_SLOT_SUM) && v.out[shape->index].data)
            v.out[shape->index].data = sum_at(sums, next++, level);
    }
    return v;
}

/* Leaves [first, first + count), a power of two of them, into a level; uses the levels above. */
static tutti_status run_leaves(const leaf_sums *sums, int first, int count, int level)
{
    if (count == 1) {
        const tutti__views leaf = leaf_views(sums, first, level);
        return run_once(sums->layer, sums->ctx, &leaf, sums->plan);
    }
    TUTTI_TRY(run_leaves(sums, first, count / 2, level));
    TUTTI_TRY(run_leaves(sums, first + count / 2, count / 2, level + 1));
    for (int i = 0; i < sums->count; i++) {
        void *low = sum_at(sums, i, level);
        TUTTI_TRY(add(sums, i, low, low, sum_at(sums, i, level + 1)));
    }
    return TUTTI_OK;
}

static tutti_status run_tree(tutti_layer *layer, tutti_context *ctx, const tutti__views *views,
                             bool plan)
{
    leaf_sums sums = {.layer = layer, .ctx = ctx, .views = views, .plan = plan};
    int levels = 1;
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++) TUTTI_ASSERT(views->period[i] == 0);
    while (1 << (levels - 1) < views->leaves) levels++;
    find_sums(&sums);
    TUTTI_TRY(tutti__scratch_of(ctx, TUTTI__SCRATCH_LEAVES, (size_t)levels * sums.level_bytes,
                                (void **)&sums.scratch));
    TUTTI_TRY(run_leaves(&sums, 0, views->leaves, 0));
    for (int i = 0; views->accumulate && i < sums.count; i++)
        TUTTI_TRY(add(&sums, i, sums.list[i].result, sums.list[i].result, sum_at(&sums, i, 0)));
    return TUTTI_OK;
}

/* Whether any gradient is wanted. */
static bool computes(const tutti_layer *layer, const tutti__views *views)
{
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++)
        if (views->din[i].data) return true;
    for (int i = 0; i < layer->param_count; i++)
        if (views->grad[i]) return true;
    return false;
}

tutti_status tutti__layer_run(tutti_layer *layer, tutti_context *ctx, const tutti__views *views,
                              bool plan)
{
    if (views->backward && !computes(layer, views)) return TUTTI_OK;
    if (views->leaves == 1) return run_once(layer, ctx, views, plan);
    /* rows that do not affect each other need no leaves, unless they are summed */
    leaf_sums sums = {.layer = layer, .views = views};
    find_sums(&sums);
    if (sums.count == 0 && (layer->class->type.flags & TUTTI_LAYER_ROWS_ALONE))
        return run_once(layer, ctx, views, plan);
    return run_tree(layer, ctx, views, plan);
}
