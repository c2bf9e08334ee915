/* Checks of a call against the layer's tables: each tensor's type, shape, strides and address, and that what is written lies apart
 * from everything else.  Nothing is written before all is checked. */
#include <stdio.h>
#include <string.h>

#include "core/layer.h"

/* What messages and tutti_last_error_place name. */
typedef struct subject {
    const char *layer, *prefix, *name; /* "softmax", "d" or "", "x" */
    tutti_call_part part;
    int index;
} subject;

#define REQUIRE_OF(s, condition, format, ...)                                                  \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            tutti__fail(TUTTI_ERR_ARG, "%s: %s%s " format, (s)->layer, (s)->prefix, (s)->name, \
                        __VA_ARGS__);                                                          \
            tutti__blame((s)->part, (s)->index);                                               \
            return TUTTI_ERR_ARG;                                                              \
        }                                                                                      \
    } while (0)

/* Rows */

/* The leading dimensions 0 .. lead-1 as evenly spaced rows. */
static tutti_status collapse_rows(const tutti_tensor *tensor, const subject *s, int lead,
                                  int64_t cols, int64_t *rows, int64_t *stride)
{
    *rows = 1;
    *stride = cols;
    for (int i = lead - 1; i >= 0; i--) {
        if (tensor->dims[i] != 1) {
            if (*rows == 1)
                *stride = tensor->strides[i];
            else
                REQUIRE_OF(
                    s,
                    *rows == 0 || tensor->dims[i] == 0 ||
                        (tensor->strides[i] % *rows == 0 && tensor->strides[i] / *rows == *stride),
                    "has rows that are not evenly spaced: strides[%d] is %lld, want %lld "
                    "times %lld",
                    i, (long long)tensor->strides[i], (long long)*rows, (long long)*stride);
        }
        REQUIRE_OF(s, tensor->dims[i] == 0 || *rows <= INT64_MAX / 16 / tensor->dims[i],
                   "has dims that multiply beyond %s", "2^59");
        *rows *= tensor->dims[i];
    }
    if (*rows == 0) *stride = cols;
    REQUIRE_OF(s, *rows <= 1 || *stride >= cols, "has a row stride of %lld, want >= %lld",
               (long long)*stride, (long long)cols);
    REQUIRE_OF(s, *rows == 0 || *stride <= INT64_MAX / 16 / *rows,
               "has a row stride of %lld, and %lld rows of it are beyond 2^59", (long long)*stride,
               (long long)*rows);
    return TUTTI_OK;
}

static tutti_status wrong_columns(const tutti_tensor *tensor, const subject *s, int64_t cols)
{
    char dims[128] = "";
    for (int i = 0; i < tensor->ndim; i++) {
        const size_t used = strlen(dims);
        snprintf(dims + used, sizeof dims - used, "%s%lld", i ? ", " : "",
                 (long long)tensor->dims[i]);
    }
    REQUIRE_OF(s, false, "is [%s], want last dims that multiply to %lld columns", dims,
               (long long)cols);
    return TUTTI_OK;
}

/* Sees a tensor as rows of `cols` contiguous elements.  *rows < 0: takes the tensor's; otherwise it must have that many. */
static tutti_status as_rows(const tutti_tensor *tensor, const subject *s, tutti_dtype dtype,
                            int64_t cols, int64_t *rows, tutti__matrix *matrix)
{
    REQUIRE_OF(s, tensor->dtype == dtype, "is %s, want %s", tutti_dtype_name(tensor->dtype),
               tutti_dtype_name(dtype));
    REQUIRE_OF(s, tensor->ndim >= 1 && tensor->ndim <= TUTTI_MAX_DIMS, "has ndim %d, want 1 to %d",
               tensor->ndim, TUTTI_MAX_DIMS);
    for (int i = 0; i < tensor->ndim; i++)
        REQUIRE_OF(s, tensor->dims[i] >= 0, "has dims[%d] %lld, want >= 0", i,
                   (long long)tensor->dims[i]);
    /* the last dimensions that multiply to cols are a row */
    int lead = tensor->ndim;
    int64_t product = 1;
    while (lead > 0 && product < cols && product > 0) {
        lead--;
        REQUIRE_OF(s, tensor->dims[lead] <= 1 || tensor->strides[lead] == product,
                   "has strides[%d] %lld, but a row of %lld wants %lld", lead,
                   (long long)tensor->strides[lead], (long long)cols, (long long)product);
        if (tensor->dims[lead] > cols) break; /* and no overflow below */
        product *= tensor->dims[lead];
    }
    if (product != cols) return wrong_columns(tensor, s, cols);
    int64_t found, stride;
    TUTTI_TRY(collapse_rows(tensor, s, lead, cols, &found, &stride));
    if (*rows < 0)
        *rows = found;
    else
        REQUIRE_OF(s, found == *rows, "has %lld rows, want %lld", (long long)found,
                   (long long)*rows);
    REQUIRE_OF(s, (uintptr_t)tensor->data % tutti_dtype_size(dtype) == 0,
               "has data that is not aligned to its %s", "elements");
    *matrix = (tutti__matrix){tensor->data, dtype, stride};
    return TUTTI_OK;
}

/* Memory */

/* A stretch of memory that a call touches.  Writes come first. */
typedef struct span {
    uintptr_t from, to;
    tutti__matrix matrix;
    int64_t cols, rows;
    subject who;
    uint32_t self, may_be, replaces; /* sets, as in tutti__slot_state */
    bool
        kept_input; /* an input that backward will read, in a forward that saves: no output may take its place */
} span;

enum { SPANS_MAX = 4 * TUTTI_MAX_SLOTS + 2 * TUTTI__LAYER_PARAMS_MAX + 1 };
typedef struct spans {
    span list[SPANS_MAX];
    int count, written;
} spans;

static void add_span(spans *all, span s)
{
    if (!s.matrix.data || s.rows == 0 || s.cols == 0) return;
    s.from = (uintptr_t)s.matrix.data;
    s.to = s.from +
           (size_t)((s.rows - 1) * s.matrix.stride + s.cols) * tutti_dtype_size(s.matrix.dtype);
    all->list[all->count++] = s;
}

/* Rows of one matrix may lie in the gaps of the other's, as slices of one tensor do. */
static bool interleave(const span *a, const span *b)
{
    const size_t size = tutti_dtype_size(a->matrix.dtype);
    if (size != tutti_dtype_size(b->matrix.dtype) || a->matrix.stride != b->matrix.stride)
        return false;
    const uintptr_t step = (uintptr_t)a->matrix.stride * size;
    const span *low = a->from <= b->from ? a : b, *high = low == a ? b : a;
    const uintptr_t shift = (high->from - low->from) % step;
    return shift >= (size_t)low->cols * size && shift + (size_t)high->cols * size <= step;
}

static bool may_be_equal(const span *written, const span *other)
{
    const bool equal =
        written->from == other->from && written->cols == other->cols &&
        written->rows == other->rows &&
        tutti_dtype_size(written->matrix.dtype) == tutti_dtype_size(other->matrix.dtype) &&
        (written->rows == 1 || written->matrix.stride == other->matrix.stride);
    return equal && (!other->kept_input || (written->replaces & other->self)) &&
           ((written->may_be & other->self) || (other->may_be & written->self));
}

static tutti_status check_apart(const spans *all)
{
    for (int i = 0; i < all->written; i++) {
        const span *a = &all->list[i];
        for (int j = i + 1; j < all->count; j++) {
            const span *b = &all->list[j];
            if (a->to <= b->from || b->to <= a->from || may_be_equal(a, b) || interleave(a, b))
                continue;
            REQUIRE_OF(&a->who, false, "and %s%s share memory", b->who.prefix, b->who.name);
        }
    }
    return TUTTI_OK;
}

/* Slots */

/* What a check of a call works on. */
typedef struct check {
    const tutti_layer *layer;
    const tutti_call *call;
    tutti__views *views;
    bool plan;
    uint32_t given; /* a set, as in tutti__slot_state */
    spans spans;
} check;

static _Alignas(16) char there[16]; /* stands for memory that a plan does not have yet */

static subject subject_of(const check *c, int slot, bool gradient)
{
    const tutti_slot *row = &c->layer->class->type.slots[slot];
    const tutti_call_part parts[2][2] = {{TUTTI_PART_IN, TUTTI_PART_OUT},
                                         {TUTTI_PART_DIN, TUTTI_PART_UPSTREAM}};
    return (subject){
        .layer = c->layer->class->type.name,
        .prefix = gradient ? "d" : "",
        .name = row->name,
        .part = row->role == TUTTI_SLOT_KEPT ? TUTTI_PART_SAVED : parts[gradient][row->role],
        .index = c->layer->slots[slot].shape.index,
    };
}

/* One tensor of the call: a slot's, or its gradient. */
static tutti_status see(check *c, int slot, bool gradient, const tutti_tensor *tensor,
                        bool optional, tutti__matrix *matrix)
{
    const tutti__slot_state *state = &c->layer->slots[slot];
    const subject s = subject_of(c, slot, gradient);
    if (!tensor && optional) return TUTTI_OK;
    REQUIRE_OF(&s, tensor, "is %s", "NULL");
    int64_t one = 1, *rows = state->shape.flags & TUTTI_SLOT_SUM ? &one : &c->views->rows;
    TUTTI_TRY(as_rows(tensor, &s, state->shape.dtype, state->shape.cols, rows, matrix));
    REQUIRE_OF(&s, tensor->data || *rows == 0 || c->plan, "has data %s", "NULL");
    /* lists of one number a row have no stride in a kernel's args */
    REQUIRE_OF(&s,
               state->shape.cols > 1 || c->layer->class->type.slots[slot].cols || *rows <= 1 ||
                   matrix->stride == 1,
               "is not %s", "contiguous");
    if (c->plan && !matrix->data) matrix->data = there;
    c->given |= UINT32_C(1) << (slot + (gradient ? 16 : 0));
    return TUTTI_OK;
}

static void note(check *c, int slot, bool gradient, const tutti__matrix *matrix)
{
    const tutti__slot_state *state = &c->layer->slots[slot];
    const bool input = c->layer->class->type.slots[slot].role == TUTTI_SLOT_IN;
    add_span(&c->spans, (span){
                            .matrix = *matrix,
                            .cols = state->shape.cols,
                            .rows = state->shape.flags & TUTTI_SLOT_SUM ? 1 : c->views->rows,
                            .who = subject_of(c, slot, gradient),
                            .self = UINT32_C(1) << (slot + (gradient ? 16 : 0)),
                            .may_be = gradient ? state->grad_may_be : state->may_be,
                            .replaces = gradient ? 0 : state->replaces,
                            .kept_input = !c->views->backward && c->call->saved && input &&
                                          (state->shape.flags & TUTTI_SLOT_READ),
                        });
}

static tutti__matrix *value_of(check *c, int slot)
{
    const int index = c->layer->slots[slot].shape.index;
    return c->layer->class->type.slots[slot].role == TUTTI_SLOT_IN ? &c->views->in[index]
                                                                   : &c->views->out[index];
}
static tutti__matrix *gradient_of(check *c, int slot)
{
    const int index = c->layer->slots[slot].shape.index;
    return c->layer->class->type.slots[slot].role == TUTTI_SLOT_IN ? &c->views->din[index]
                                                                   : &c->views->upstream[index];
}

/* Forward: inputs, then outputs.  Backward: what it reads of these, then gradients, of the outputs first. */
static tutti_status see_slots(check *c)
{
    const tutti_layer_type *type = &c->layer->class->type;
    const bool backward = c->views->backward;
    for (int role = TUTTI_SLOT_IN; role <= TUTTI_SLOT_OUT; role++)
        for (int i = 0; i < type->slot_count; i++) {
            const tutti_slot_shape *shape = &c->layer->slots[i].shape;
            if ((int)type->slots[i].role != role || (backward && !(shape->flags & TUTTI_SLOT_READ)))
                continue;
            const tutti_tensor *tensor =
                role == TUTTI_SLOT_IN ? c->call->in[shape->index] : c->call->out[shape->index];
            TUTTI_TRY(see(c, i, false, tensor, !backward && (shape->flags & TUTTI_SLOT_OPTIONAL),
                          value_of(c, i)));
        }
    for (int role = TUTTI_SLOT_OUT; backward && role >= TUTTI_SLOT_IN; role--)
        for (int i = 0; i < type->slot_count; i++) {
            const tutti_slot_shape *shape = &c->layer->slots[i].shape;
            if ((int)type->slots[i].role != role || !(shape->flags & TUTTI_SLOT_GRAD)) continue;
            const tutti_tensor *tensor = role == TUTTI_SLOT_IN ? c->call->din[shape->index]
                                                               : c->call->upstream[shape->index];
            TUTTI_TRY(see(c, i, true, tensor, shape->flags & TUTTI_SLOT_GRAD_OPTIONAL,
                          gradient_of(c, i)));
        }
    return TUTTI_OK;
}

/* "only with": sum with a residual, dsum with dx. */
static tutti_status check_company(const check *c)
{
    const tutti_layer_type *type = &c->layer->class->type;
    for (int i = 0; i < type->slot_count; i++) {
        const tutti__slot_state *state = &c->layer->slots[i];
        const bool gradient = c->views->backward;
        const uint32_t self = UINT32_C(1) << (i + (gradient ? 16 : 0));
        const uint32_t with = gradient ? state->grad_with : state->with;
        const subject s = subject_of(c, i, gradient);
        REQUIRE_OF(&s, !(c->given & self) || !with || (c->given & with), "is given without %s",
                   gradient ? type->slots[i].grad_with : type->slots[i].with);
    }
    return TUTTI_OK;
}

/* saved: what is kept, each part on a 16-byte boundary. */
static tutti_status see_kept(check *c)
{
    const tutti_layer_type *type = &c->layer->class->type;
    char *at = c->call->saved;
    const char *name = type->name;
    bool keeps = false;
    for (int i = 0; i < type->slot_count; i++) {
        const tutti_slot_shape *shape = &c->layer->slots[i].shape;
        if (type->slots[i].role != TUTTI_SLOT_KEPT || shape->cols == 0) continue;
        keeps = true;
        if (!at) continue;
        c->views->kept[shape->index] = at;
        at += ((size_t)c->views->rows * (size_t)shape->cols * tutti_dtype_size(shape->dtype) + 15) /
              16 * 16;
    }
    const subject s = {name, "", "saved", TUTTI_PART_SAVED, 0};
    const bool missing = keeps && !at && c->views->backward && c->views->rows > 0;
    REQUIRE_OF(&s, !missing || c->plan, "is %s", "NULL");
    const size_t bytes = tutti_layer_saved_bytes(c->layer, c->views->rows);
    REQUIRE_OF(&s, !at || c->call->saved_bytes >= bytes, "has %zu bytes, want %zu",
               c->call->saved_bytes, bytes);
    return TUTTI_OK;
}

/* Parameters */

static tutti_status see_params(check *c)
{
    const tutti_layer *layer = c->layer;
    const char *name = layer->class->type.name;
    const tutti_param *first = NULL; /* of those with gradients */
    c->views->grad_dtype = layer->accumulate;
    for (int i = 0; i < layer->param_count; i++) {
        const tutti_param *param = &layer->params[i];
        if (!param->value.data && !c->plan) {
            tutti__fail(TUTTI_ERR_STATE, "%s: parameter %s is not bound", name, param->name);
            tutti__blame(TUTTI_PART_PARAM, i);
            return TUTTI_ERR_STATE;
        }
        c->views->value[i] = param->value.data ? param->value.data : there;
        if (!c->views->backward) continue;
        c->views->grad[i] = param->value.data ? param->grad.data : there;
        if (!param->grad.data) continue;
        const subject s = {name, "d", param->name, TUTTI_PART_PARAM_GRAD, i};
        if (!first) first = param;
        if (layer->class->any_grad) c->views->grad_dtype = first->grad.dtype;
        REQUIRE_OF(&s, param->grad.dtype == c->views->grad_dtype, "is %s, want %s%s%s",
                   tutti_dtype_name(param->grad.dtype), tutti_dtype_name(c->views->grad_dtype),
                   layer->class->any_grad ? ", as the gradient of " : "",
                   layer->class->any_grad ? first->name : "");
    }
    return TUTTI_OK;
}

static void note_params(check *c, bool gradients)
{
    for (int i = 0; i < c->layer->param_count; i++) {
        const tutti_param *param = &c->layer->params[i];
        const tutti_tensor *tensor = gradients ? &param->grad : &param->value;
        add_span(&c->spans,
                 (span){
                     .matrix = {tensor->data, tensor->dtype, 0},
                     .cols = tutti_tensor_count(&param->value),
                     .rows = 1,
                     .who = {c->layer->class->type.name, gradients ? "d" : "", param->name,
                             gradients ? TUTTI_PART_PARAM_GRAD : TUTTI_PART_PARAM, i},
                 });
    }
}

static void note_saved(check *c)
{
    add_span(&c->spans, (span){
                            .matrix = {c->call->saved, TUTTI_U8, 0},
                            .cols = (int64_t)tutti_layer_saved_bytes(c->layer, c->views->rows),
                            .rows = 1,
                            .who = {c->layer->class->type.name, "", "saved", TUTTI_PART_SAVED, 0},
                        });
}

/* Everything that the call touches, what it writes first. */
static void note_spans(check *c)
{
    const tutti_layer_type *type = &c->layer->class->type;
    const bool backward = c->views->backward;
    const tutti_slot_role written = backward ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT;
    for (int i = 0; i < type->slot_count; i++)
        if (type->slots[i].role == written)
            note(c, i, backward, backward ? gradient_of(c, i) : value_of(c, i));
    if (backward)
        note_params(c, true);
    else
        note_saved(c);
    c->spans.written = c->spans.count;
    for (int i = 0; i < type->slot_count; i++) {
        if (type->slots[i].role == TUTTI_SLOT_KEPT) continue;
        if (backward || type->slots[i].role == TUTTI_SLOT_IN) note(c, i, false, value_of(c, i));
        if (backward && type->slots[i].role == TUTTI_SLOT_OUT) note(c, i, true, gradient_of(c, i));
    }
    if (backward) note_saved(c);
    note_params(c, false);
}

/* A tensor in a slot that the layer does not have would be passed over in silence. */
static tutti_status check_slots(const tutti_layer *layer, const char *what, tutti_call_part part,
                                const tutti_tensor *const tensors[TUTTI_MAX_SLOTS],
                                tutti_slot_role role, unsigned flag)
{
    const tutti_layer_type *type = &layer->class->type;
    unsigned has = 0;
    for (int i = 0; i < type->slot_count; i++)
        if (type->slots[i].role == role && (!flag || (type->slots[i].flags & flag)))
            has |= 1u << layer->slots[i].shape.index;
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++)
        if (tensors[i] && !(has >> i & 1)) {
            tutti__fail(TUTTI_ERR_ARG, "%s: there is no %s[%d], want NULL", type->name, what, i);
            tutti__blame(part, i);
            return TUTTI_ERR_ARG;
        }
    return TUTTI_OK;
}

/* What a call has beside its tensors, as far as it does not hang on these. */
static tutti_status check_common(const tutti_layer *layer, const tutti_call *call)
{
    const char *name = layer->class->type.name;
    const int leaves = call->leaves;
    if (call->first_row)
        TUTTI_REQUIRE(*call->first_row >= 0 && *call->first_row <= INT64_MAX / 16,
                      "%s: first_row is %lld, want 0 to 2^59", name, (long long)*call->first_row);
    TUTTI_REQUIRE((uintptr_t)call->saved % 16 == 0, "%s: saved is not 16-byte aligned", name);
    TUTTI_REQUIRE(leaves >= 0 && leaves <= TUTTI_CALL_LEAVES_MAX && (leaves & (leaves - 1)) == 0,
                  "%s: leaves is %d, want a power of two to %d", name, leaves,
                  TUTTI_CALL_LEAVES_MAX);
    TUTTI_REQUIRE(leaves < 2 || call->leaf_rows, "%s: leaf_rows is NULL", name);
    if (!call->step) return TUTTI_OK;
    TUTTI_REQUIRE(call->step->backend == layer->backend && call->step->device == layer->device,
                  "%s: step is on another device than the layer", name);
    return tutti__step_block_check(call->step, name);
}

static tutti_status check_leaves(const char *name, const tutti_call *call, int64_t rows)
{
    for (int i = 0; i < call->leaves && call->leaves > 1; i++) {
        const int64_t least = i == 0 ? 0 : call->leaf_rows[i - 1], most = i == 0 ? 0 : rows;
        TUTTI_REQUIRE(call->leaf_rows[i] >= least && call->leaf_rows[i] <= most,
                      "%s: leaf_rows[%d] is %lld, want %lld to %lld", name, i,
                      (long long)call->leaf_rows[i], (long long)least, (long long)most);
    }
    return TUTTI_OK;
}

tutti_status tutti__check_call(const tutti_layer *layer, const tutti_call *call, bool backward,
                               bool plan, tutti__views *views)
{
    const char *name = layer->class->type.name;
    TUTTI_REQUIRE(call, "%s: call is NULL", name);
    TUTTI_REQUIRE((call->flags & ~(unsigned)TUTTI_GRAD_ACCUMULATE) == 0,
                  "%s: flags is %#x, want 0 or TUTTI_GRAD_ACCUMULATE", name, call->flags);
    TUTTI_TRY(check_common(layer, call));
    TUTTI_TRY(check_slots(layer, "in", TUTTI_PART_IN, call->in, TUTTI_SLOT_IN, 0));
    TUTTI_TRY(check_slots(layer, "out", TUTTI_PART_OUT, (const tutti_tensor *const *)call->out,
                          TUTTI_SLOT_OUT, 0));
    TUTTI_TRY(check_slots(layer, "upstream", TUTTI_PART_UPSTREAM, call->upstream, TUTTI_SLOT_OUT,
                          TUTTI_SLOT_GRAD));
    TUTTI_TRY(check_slots(layer, "din", TUTTI_PART_DIN, (const tutti_tensor *const *)call->din,
                          TUTTI_SLOT_IN, TUTTI_SLOT_GRAD));

    check c; /* the spans are long, and not looked at before they are written */
    c.layer = layer;
    c.call = call;
    c.views = views;
    c.plan = plan;
    c.given = 0;
    c.spans.count = c.spans.written = 0;
    memset(views, 0, sizeof *views);
    views->backward = backward;
    views->rows = -1;
    views->first_row = call->first_row ? *call->first_row : 0;
    views->leaves = call->leaves > 1 ? call->leaves : 1;
    views->leaf_rows = call->leaf_rows;
    views->accumulate = call->flags & TUTTI_GRAD_ACCUMULATE;
    views->step = call->step ? call->step->values : NULL;
    TUTTI_TRY(see_slots(&c));
    TUTTI_REQUIRE(layer->class->rows_most == 0 || views->rows <= layer->class->rows_most,
                  "%s: rows is %lld, want at most %lld", name, (long long)views->rows,
                  (long long)layer->class->rows_most);
    TUTTI_REQUIRE(call->first_row || !layer->place_matters || plan,
                  "%s: first_row is NULL, but these options' bits depend on it", name);
    TUTTI_TRY(check_leaves(name, call, views->rows));
    TUTTI_TRY(check_company(&c));
    TUTTI_TRY(see_kept(&c));
    TUTTI_TRY(see_params(&c));
    if (plan) return TUTTI_OK;
    note_spans(&c);
    return check_apart(&c.spans);
}
