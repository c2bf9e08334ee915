/* Runs a checked call: one call of the layer's operation, or one per leaf with their sums added as
 * a tree, here or by a gradient exchange. */
#include "core/layer.h"
#include "ops/tree_sum.h"

static bool takes_leaves(const tutti_layer *layer)
{
    return layer->class->takes_leaves >> layer->backend->kind & 1;
}

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
        .leaves = !takes_leaves(layer) ? 1
                  : views->in_leaves   ? views->leaves
                                       : 0,
        .alignment = (uint32_t)(bits & -bits),
        .backward = views->backward,
    };
}

typedef union call_args {
    char bytes[TUTTI__ARGS_MAX];
    int64_t aligns;
} call_args;

/* What is left of a backward when its gradients of parameters are complete. */
typedef struct remainder {
    bool any;
    tutti__job job;
    call_args args;
} remainder;

/* rest: NULL, or runs the first stage and keeps the other one. */
static tutti_status run_once(tutti_layer *layer, tutti_context *ctx, const tutti__views *views,
                             bool plan, remainder *rest)
{
    call_args own, *args = rest ? &rest->args : &own;
    layer->class->fill(layer, views, args);
    const tutti__plan_key key = key_of(layer, views);
    if (plan) return tutti__op_plan(ctx, &key, args);
    if (!rest) return tutti__op_run(ctx, &key, args);
    rest->any = true;
    return tutti__op_begin(ctx, &key, args, &rest->job);
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
        int index; /* of the parameter or output */
        void *result;
        tutti_dtype dtype;
        int64_t elements;
        size_t at; /* in a level */
    } list[SUMS_MAX];
    size_t level_bytes;
    char *scratch;
} leaf_sums;

static void add_sum(leaf_sums *sums, int index, void *result, tutti_dtype dtype, int64_t elements)
{
    if (!result) return;
    sums->list[sums->count].index = index;
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
            add_sum(sums, i, views->grad[i], views->grad_dtype,
                    tutti_tensor_count(&layer->params[i].value));
        return;
    }
    for (int i = 0; i < layer->class->type.slot_count; i++) {
        const tutti_slot_shape *shape = &layer->slots[i].shape;
        if (shape->flags & TUTTI_SLOT_SUM)
            add_sum(sums, shape->index, views->out[shape->index].data, shape->dtype, shape->cols);
    }
}

/* A caller's gradient may lie where a product has another algorithm, with other bits, than in
 * scratch: a leaf's go there whatever is beside it. */
static bool lies_apart(const tutti__views *views, const void *result)
{
    return views->backward && views->in_leaves && (uintptr_t)result % 16 != 0;
}

static void *sum_at(const leaf_sums *sums, int sum, int level)
{
    void *result = sums->list[sum].result;
    if (level == 0 && !sums->views->accumulate && !lies_apart(sums->views, result)) return result;
    return sums->scratch + (size_t)level * sums->level_bytes + sums->list[sum].at;
}

/* dst = a + b, elementwise; dst may be one of them; b NULL: dst = a. */
static tutti_status add(const leaf_sums *sums, int sum, void *dst, const void *a, const void *b)
{
    if (sums->plan) return TUTTI_OK;
    const tutti__tree_sum_args args = {
        .count = sums->list[sum].elements,
        .dtype = sums->list[sum].dtype,
        .dst = dst,
        .inputs = b ? 2 : 1,
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

/* The views of leaves first to end - 1; their sums are still to be put somewhere. */
static tutti__views leaf_views(const leaf_sums *sums, int first, int after)
{
    const tutti_layer *layer = sums->layer;
    tutti__views v = *sums->views;
    const int64_t begin = v.leaf_rows[first];
    const int64_t end = after < v.leaves ? v.leaf_rows[after] : v.rows;
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
    v.leaves = after - first;
    v.accumulate = false;
    return v;
}

static void put_sum(const leaf_sums *sums, tutti__views *views, int sum, void *at)
{
    const int index = sums->list[sum].index;
    *(views->backward ? &views->grad[index] : &views->out[index].data) = at;
}

/* Leaves [first, first + count) into a level; uses the levels above. */
static tutti_status run_leaves(const leaf_sums *sums, int first, int count, int level)
{
    int left = 1;
    if (count == 1) {
        tutti__views leaf = leaf_views(sums, first, first + 1);
        for (int i = 0; i < sums->count; i++) put_sum(sums, &leaf, i, sum_at(sums, i, level));
        return run_once(sums->layer, sums->ctx, &leaf, sums->plan, NULL);
    }
    while (2 * left < count) left *= 2;
    TUTTI_TRY(run_leaves(sums, first, left, level));
    TUTTI_TRY(run_leaves(sums, first + left, count - left, level + 1));
    for (int i = 0; i < sums->count; i++) {
        void *low = sum_at(sums, i, level);
        TUTTI_TRY(add(sums, i, low, low, sum_at(sums, i, level + 1)));
    }
    return TUTTI_OK;
}

/* Leaves that are computed before an exchange adds them. */
enum { AT_ONCE = 8 };

/* Room for the levels of a tree, or for backward's leaves at once: a plan serves both. */
static tutti_status open_scratch(leaf_sums *sums)
{
    const int leaves = sums->views->leaves, at_once = leaves < AT_ONCE ? leaves : AT_ONCE;
    int rooms = 1;
    while (1 << (rooms - 1) < leaves) rooms++;
    if (sums->views->backward && rooms < at_once) rooms = at_once;
    return tutti__scratch_of(sums->ctx, TUTTI__SCRATCH_LEAVES, (size_t)rooms * sums->level_bytes,
                             (void **)&sums->scratch);
}

static tutti_status run_tree(leaf_sums *sums)
{
    const tutti__views *views = sums->views;
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++) TUTTI_ASSERT(views->period[i] == 0);
    TUTTI_TRY(open_scratch(sums));
    TUTTI_TRY(run_leaves(sums, 0, views->leaves, 0));
    for (int i = 0; i < sums->count; i++) {
        void *result = sums->list[i].result, *sum = sum_at(sums, i, 0);
        if (views->accumulate)
            TUTTI_TRY(add(sums, i, result, result, sum));
        else if (sum != result)
            TUTTI_TRY(add(sums, i, result, sum, NULL));
    }
    return TUTTI_OK;
}

/* Whether the operation takes leaves first to end - 1 in one call. */
static bool takes_run(const leaf_sums *sums, int first, int end)
{
    const tutti__views *views = sums->views;
    const int64_t begin = views->leaf_rows[first];
    const int64_t after = end < views->leaves ? views->leaf_rows[end] : views->rows;
    const int64_t rows = (after - begin) / (end - first);
    for (int i = first; i < end; i++)
        if (views->leaf_rows[i] != begin + (i - first) * rows) return false;
    return takes_leaves(sums->layer) && after == begin + (end - first) * rows;
}

static bool adds_pairs(const tutti_layer *layer, int param)
{
    return layer->class->adds_pairs[param] >> layer->backend->kind & 1;
}

/* Computes `room` leaves at a time, and has the sink add them; grads: as it wants them; *changed:
 * whether it was given any; rest: of the last ones. */
static tutti_status add_to_sink(const leaf_sums *sums, tutti__ready_sink *sink, int room,
                                const tutti__leaf_grads grads[SUMS_MAX], bool *changed,
                                remainder *rest)
{
    const tutti_layer *layer = sums->layer;
    const tutti__views *views = sums->views;
    const int leaves = views->leaves;
    for (int first = 0; first < leaves; first += room) {
        const int end = leaves - first < room ? leaves : first + room;
        const int step = takes_run(sums, first, end) ? end - first : 1;
        tutti__leaf_grads part[SUMS_MAX];
        for (int i = 0; i < sums->count; i++) {
            const bool pairs =
                step % 2 == 0 && grads[i].pairs && adds_pairs(layer, sums->list[i].index);
            part[i] = grads[i];
            part[i].span = pairs ? 2 : 1;
            part[i].data = grads[i].data           ? grads[i].data + (size_t)first * grads[i].apart
                           : pairs && grads[i].sum ? grads[i].sum
                                                   : sums->scratch + sums->list[i].at;
        }
        for (int leaf = first; leaf < end; leaf += step) {
            tutti__views v = leaf_views(sums, leaf, leaf + step);
            v.accumulate = views->accumulate;
            for (int i = 0; i < sums->count; i++) {
                put_sum(sums, &v, i, part[i].data + (size_t)(leaf - first) * part[i].apart);
                v.grad_apart[sums->list[i].index] = part[i].apart;
                v.grad_span[sums->list[i].index] = part[i].span;
            }
            TUTTI_TRY(run_once(sums->layer, sums->ctx, &v, sums->plan,
                               leaf + step == leaves ? rest : NULL));
        }
        if (sums->plan) continue;
        *changed = true;
        for (int i = 0; i < sums->count; i++)
            TUTTI_TRY(sink->add_leaves(sink, sums->ctx, &layer->params[sums->list[i].index], first,
                                       end - first, &part[i]));
    }
    return TUTTI_OK;
}

/* Leaves whose gradients an exchange adds.  A few at a time are computed apart, so that it reads
 * and writes less than by adding them one by one. */
static tutti_status run_for_sink(leaf_sums *sums, tutti__ready_sink *sink, remainder *rest)
{
    const tutti_layer *layer = sums->layer;
    const tutti__views *views = sums->views;
    const int leaves = views->leaves;
    tutti__leaf_grads grads[SUMS_MAX] = {{.data = NULL}};
    for (int i = 0; !sums->plan && i < sums->count; i++) {
        const tutti_param *param = &layer->params[sums->list[i].index];
        TUTTI_TRY(
            sink->leaf_grads(sink, sums->ctx, param, views->in_leaves ? leaves : 0, &grads[i]));
        if (views->accumulate && !grads[i].given)
            return tutti__fail(TUTTI_ERR_STATE,
                               "%s: flags is TUTTI_GRAD_ACCUMULATE, but '%s' has no gradients of "
                               "these %d leaves to add to",
                               layer->class->type.name, param->name, leaves);
        if (!views->accumulate && grads[i].given)
            return tutti__fail(TUTTI_ERR_STATE,
                               "%s: '%s' has gradients of these %d leaves by another layer: want "
                               "flags TUTTI_GRAD_ACCUMULATE",
                               layer->class->type.name, param->name, leaves);
    }
    TUTTI_TRY(open_scratch(sums));
    for (int i = 0; i < sums->count; i++)
        if (!grads[i].data) grads[i].apart = sums->level_bytes;
    bool changed = views->accumulate;
    const tutti_status status =
        add_to_sink(sums, sink, leaves < AT_ONCE ? leaves : AT_ONCE, grads, &changed, rest);
    return status == TUTTI_OK || sums->plan || !changed ? status : sink->lose(sink, status);
}

static bool any_lies_apart(const tutti_layer *layer, const tutti__views *views)
{
    for (int i = 0; i < layer->param_count; i++)
        if (views->grad[i] && lies_apart(views, views->grad[i])) return true;
    return false;
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

/* rest: NULL, or may leave that of the call. */
static tutti_status run_call(tutti_layer *layer, tutti_context *ctx, const tutti__views *views,
                             tutti__ready_sink *sink, bool plan, remainder *rest)
{
    const bool apart =
        views->backward && sink && sink->adds_leaves(sink, views->in_leaves ? views->leaves : 0);
    if (views->backward && !computes(layer, views)) return TUTTI_OK;
    if (views->leaves == 1 && !apart && !any_lies_apart(layer, views))
        return run_once(layer, ctx, views, plan, rest);
    /* rows that do not affect each other need no leaves, unless they are summed */
    leaf_sums sums = {.layer = layer, .ctx = ctx, .views = views, .plan = plan};
    find_sums(&sums);
    if (sums.count == 0 && (layer->class->type.flags & TUTTI_LAYER_ROWS_ALONE)) {
        tutti__views all = *views;
        all.leaves = 1;
        return run_once(layer, ctx, &all, plan, NULL);
    }
    if (sums.count == 0 && takes_run(&sums, 0, views->leaves))
        return run_once(layer, ctx, views, plan, NULL);
    return apart && sums.count > 0 ? run_for_sink(&sums, sink, rest) : run_tree(&sums);
}

static bool is_exchanged(const tutti__exchanged *list, const void *grad)
{
    while (list && list->grad != grad) list = list->next;
    return list;
}

/* A gradient that is ready must not change before its exchange's step has ended. */
static tutti_status check_not_exchanged(const tutti_layer *layer, const tutti__views *views)
{
    for (int i = 0; i < layer->param_count; i++)
        if (is_exchanged(layer->exchanged[i], views->grad[i]))
            return tutti__fail(TUTTI_ERR_STATE,
                               "%s: '%s' already declared ready in this step of an exchange that "
                               "the call does not name (sync); call tutti_grad_sync_finish first",
                               layer->class->type.name, layer->params[i].name);
    return TUTTI_OK;
}

tutti_status tutti__layer_run(tutti_layer *layer, tutti_context *ctx, const tutti__views *views,
                              tutti__ready_sink *sink, bool plan)
{
    if (!views->backward || plan) return run_call(layer, ctx, views, sink, plan, NULL);
    if (sink) TUTTI_TRY(sink->may_begin(sink, ctx, layer, views->accumulate));
    TUTTI_TRY(check_not_exchanged(layer, views));
    if (!sink) return run_call(layer, ctx, views, NULL, false, NULL);
    remainder rest; /* long, and written before it is read */
    rest.any = false;
    const bool early = layer->class->has_stages && sink->begins(sink, layer);
    TUTTI_TRY(run_call(layer, ctx, views, sink, false, early ? &rest : NULL));
    TUTTI_TRY(sink->ready(sink, ctx, layer, rest.any));
    return rest.any ? layer->op->backward(&rest.job, &rest.args) : TUTTI_OK;
}
