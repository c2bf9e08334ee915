/* Checks a call against the layer's tables: each tensor's type, shape, strides and address, and
 * that no output overlaps other memory. */
#include <string.h>

#include "core/layer.h"
#include "core/text.h"

/* The subject of a check: a tensor of a call, a parameter, its gradient, or saved. */
enum { OF_PARAM = TUTTI__PART_DIN + 1, OF_PARAM_GRAD, OF_SAVED };
typedef struct subject {
    const tutti_layer *layer;
    uint8_t part, index, slot; /* as in tutti__operand; part may also be one of the above */
} subject;

static const char *name_of(const subject *s)
{
    if (s->part == OF_SAVED) return "saved";
    if (s->part == OF_PARAM || s->part == OF_PARAM_GRAD) return s->layer->params[s->index].name;
    return s->layer->class->type.slots[s->slot].name;
}

static const char *prefix_of(const subject *s)
{
    const bool gradient =
        s->part == TUTTI__PART_UPSTREAM || s->part == TUTTI__PART_DIN || s->part == OF_PARAM_GRAD;
    return gradient ? "d" : "";
}

static void blame(const subject *s)
{
    static const tutti_call_part parts[] = {
        [TUTTI__PART_IN] = TUTTI_PART_IN,
        [TUTTI__PART_OUT] = TUTTI_PART_OUT,
        [TUTTI__PART_UPSTREAM] = TUTTI_PART_UPSTREAM,
        [TUTTI__PART_DIN] = TUTTI_PART_DIN,
        [OF_PARAM] = TUTTI_PART_PARAM,
        [OF_PARAM_GRAD] = TUTTI_PART_PARAM_GRAD,
        [OF_SAVED] = TUTTI_PART_SAVED,
    };
    tutti__blame(parts[s->part], s->index);
}

#define REQUIRE_OF(s, condition, format, ...)                                            \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            tutti__fail(TUTTI_ERR_ARG, "%s: %s%s " format, (s)->layer->class->type.name, \
                        prefix_of(s), name_of(s), __VA_ARGS__);                          \
            blame(s);                                                                    \
            return TUTTI_ERR_ARG;                                                        \
        }                                                                                \
    } while (0)

/* Rows */

/* Whether the product of two numbers >= 0 is at most 2^59, so that its bytes do not overflow. */
static bool within(int64_t a, int64_t b)
{
    int64_t product;
    return !__builtin_mul_overflow(a, b, &product) && product <= INT64_MAX / 16;
}

static bool is_empty(const tutti_tensor *tensor)
{
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->dims[i] == 0) return true;
    return false;
}

/* The dimensions from .. lead-1 as evenly spaced rows, or lines, of `cols` elements; of a tensor
 * without elements whatever its strides. */
static tutti_status collapse(const tutti_tensor *tensor, const subject *s, const char *noun,
                             int from, int lead, int64_t cols, int64_t *rows, int64_t *stride)
{
    const bool empty = is_empty(tensor);
    *rows = 1;
    *stride = cols;
    for (int i = lead - 1; i >= from; i--) {
        if (tensor->dims[i] != 1) {
            if (*rows == 1)
                *stride = tensor->strides[i];
            else
                REQUIRE_OF(s,
                           empty || (tensor->strides[i] % *rows == 0 &&
                                     tensor->strides[i] / *rows == *stride),
                           "has %ss that are not evenly spaced: strides[%d] is %lld, want %lld "
                           "times %lld",
                           noun, i, (long long)tensor->strides[i], (long long)*rows,
                           (long long)*stride);
        }
        REQUIRE_OF(s, within(*rows, tensor->dims[i]), "has dims whose product is above %s", "2^59");
        *rows *= tensor->dims[i];
    }
    if (empty) *stride = cols;
    REQUIRE_OF(s, *rows <= 1 || *stride >= cols, "has a %s stride of %lld, want >= %lld", noun,
               (long long)*stride, (long long)cols);
    REQUIRE_OF(s, within(*stride, *rows),
               "has a %s stride of %lld and %lld %ss, more than 2^59 elements", noun,
               (long long)*stride, (long long)*rows, noun);
    return TUTTI_OK;
}

static tutti_status wrong_columns(const tutti_tensor *tensor, const subject *s,
                                  const tutti_slot_shape *shape)
{
    char dims[TUTTI__DIMS_TEXT];
    REQUIRE_OF(s, shape->lines == 1, "is %s, want last dims [%lld, %lld]",
               tutti__dims_text(tensor, dims), (long long)shape->lines,
               (long long)(shape->cols / shape->lines));
    REQUIRE_OF(s, false, "is %s, want last dims that multiply to %lld columns",
               tutti__dims_text(tensor, dims), (long long)shape->cols);
    return TUTTI_OK;
}

/* Takes the dimensions of stride 0 that lead a tensor off it; its first `lead` ones count rows.
 * *times: how often what is left is repeated. */
static tutti_status take_repeats(tutti_tensor *tensor, const subject *s, int lead, int64_t *times)
{
    *times = 1;
    for (int i = 0; i < lead && (tensor->dims[i] == 1 || tensor->strides[i] == 0); i++) {
        REQUIRE_OF(s, within(*times, tensor->dims[i]), "has dims whose product is above %s",
                   "2^59");
        *times *= tensor->dims[i];
        tensor->dims[i] = 1;
    }
    return TUTTI_OK;
}

/* The last of the leading dimensions as evenly spaced lines; *lead: those that are left. */
static tutti_status as_lines(const tutti_tensor *tensor, const subject *s,
                             const tutti_slot_shape *shape, int *lead, int64_t *line)
{
    int first = *lead;
    int64_t product = 1, found;
    while (first > 0 && product < shape->lines && product > 0) {
        first--;
        if (tensor->dims[first] > shape->lines) break; /* and no overflow below */
        product *= tensor->dims[first];
    }
    if (product != shape->lines) return wrong_columns(tensor, s, shape);
    const int end = *lead;
    *lead = first;
    return collapse(tensor, s, "line", first, end, shape->cols / shape->lines, &found, line);
}

/* Rows of several lines lie one after another, or each in the gaps between another's lines. */
static tutti_status check_lines_apart(const subject *s, const tutti_slot_shape *shape, int64_t rows,
                                      int64_t stride, int64_t line)
{
    const int64_t width = shape->cols / shape->lines, extent = (shape->lines - 1) * line + width;
    const bool apart = rows <= 1 || stride >= extent || (rows - 1) * stride + width <= line;
    REQUIRE_OF(s, apart, "has %lld rows, %lld apart, of lines that are %lld apart: they overlap",
               (long long)rows, (long long)stride, (long long)line);
    return TUTTI_OK;
}

/* Views a tensor as rows of a slot: lines of contiguous elements, *line apart.  *rows < 0: set to
 * the tensor's rows; otherwise the tensor must have that many.  *period: the rows that are
 * repeated; 0: none are. */
static tutti_status as_rows(const tutti_tensor *tensor, const subject *s,
                            const tutti_slot_shape *shape, int64_t *rows, tutti__matrix *matrix,
                            int64_t *line, int64_t *period)
{
    const tutti_dtype dtype = shape->dtype;
    const int64_t cols = shape->cols / shape->lines;
    REQUIRE_OF(s, tensor->dtype == dtype, "is %s, want %s", tutti__dtype_text(tensor->dtype),
               tutti_dtype_name(dtype));
    REQUIRE_OF(s, tensor->ndim >= 1 && tensor->ndim <= TUTTI_MAX_DIMS, "has ndim %d, want 1 to %d",
               tensor->ndim, TUTTI_MAX_DIMS);
    for (int i = 0; i < tensor->ndim; i++)
        REQUIRE_OF(s, tensor->dims[i] >= 0, "has dims[%d] %lld, want >= 0", i,
                   (long long)tensor->dims[i]);
    /* the last dimensions, which multiply to cols, form a line */
    int lead = tensor->ndim;
    int64_t product = 1;
    while (lead > 0 && product < cols && product > 0) {
        lead--;
        if (tensor->dims[lead] > cols) break; /* and no overflow below */
        product *= tensor->dims[lead];
    }
    if (product != cols) return wrong_columns(tensor, s, shape);
    int64_t step = 1;
    for (int i = tensor->ndim - 1; i >= lead; step *= tensor->dims[i--])
        REQUIRE_OF(s, tensor->dims[i] <= 1 || tensor->strides[i] == step,
                   "has strides[%d] %lld, want %lld for a row of %lld", i,
                   (long long)tensor->strides[i], (long long)step, (long long)cols);
    *line = cols;
    if (shape->lines > 1) TUTTI_TRY(as_lines(tensor, s, shape, &lead, line));
    int64_t found, stride, times = 1;
    *period = 0;
    if (shape->flags & TUTTI_SLOT_REPEATS && s->part == TUTTI__PART_IN) {
        tutti_tensor block = *tensor;
        TUTTI_TRY(take_repeats(&block, s, lead, &times));
        TUTTI_TRY(collapse(&block, s, "row", 0, lead, cols, &found, &stride));
        REQUIRE_OF(s, within(found, times), "has dims whose product is above %s", "2^59");
        if (times > 1) *period = found;
        found *= times;
    } else {
        TUTTI_TRY(collapse(tensor, s, "row", 0, lead, cols, &found, &stride));
    }
    if (shape->lines > 1) TUTTI_TRY(check_lines_apart(s, shape, found, stride, *line));
    if (*rows < 0)
        *rows = found;
    else
        REQUIRE_OF(s, found == *rows, "has %lld rows, want %lld", (long long)found,
                   (long long)*rows);
    *matrix = (tutti__matrix){tensor->data, dtype, stride};
    return TUTTI_OK;
}

/* Memory */

/* A range of memory that a call uses. */
typedef struct span {
    uintptr_t from, to;
    subject owner;
} span;
enum { SPANS_MAX = TUTTI__OPERANDS_MAX + TUTTI__LAYER_PARAMS_MAX + 1 };

/* The state of a call's check. */
typedef struct check {
    const tutti_layer *layer;
    const tutti_call *call;
    tutti__views *views;
    bool plan;
    uint32_t given;    /* a set, as in tutti__slot_state */
    int span_count[2]; /* of memory that is read, and written */
    span spans[2][SPANS_MAX];
} check;

static void add_span(check *c, subject owner, const void *data, size_t bytes, bool written)
{
    if (!data || bytes == 0) return;
    c->views->bits |= (uintptr_t)data;
    c->spans[written][c->span_count[written]++] =
        (span){(uintptr_t)data, (uintptr_t)data + bytes, owner};
}

/* The bit of a tensor in a set. */
static uint32_t bit_of(const subject *s)
{
    const bool gradient = s->part == TUTTI__PART_UPSTREAM || s->part == TUTTI__PART_DIN;
    return UINT32_C(1) << (s->slot + (gradient ? 16 : 0));
}

static bool is_tensor(const subject *s)
{
    return s->part <= TUTTI__PART_DIN;
}

static const tutti__matrix *matrix_of(const check *c, const subject *s)
{
    return &c->views->tensors[s->part][s->index];
}

/* Elements from one line of its rows to the next. */
static int64_t *line_of(const check *c, const subject *s)
{
    return &c->views->lines[s->part][s->index];
}

static uint32_t may_be(const check *c, const subject *s)
{
    const tutti__slot_state *state = &c->layer->slots[s->slot];
    return s->part == TUTTI__PART_DIN   ? state->grad_may_be
           : s->part == TUTTI__PART_OUT ? state->may_be
                                        : 0;
}

/* The end of a tensor's part of each period of this many elements; the first period begins with its
 * first element.  Rows, or lines, a whole number of periods apart have the same part; others follow
 * one another within a period. */
static int64_t part_of(const check *c, const subject *s, int64_t period)
{
    const tutti_slot_shape *shape = &c->layer->slots[s->slot].shape;
    const int64_t stride = matrix_of(c, s)->stride, line = *line_of(c, s);
    const int64_t repeated = s->part == TUTTI__PART_IN ? c->views->period[s->index] : 0;
    const int64_t rows = repeated > 0 ? repeated : c->views->rows;
    int64_t end = shape->cols / shape->lines;
    if (shape->lines > 1 && line % period) end += (shape->lines - 1) * line;
    if (rows > 1 && stride % period) end += (rows - 1) * stride;
    return end;
}

/* Whether one tensor, which begins `shift` bytes before another, has other parts of each period. */
static bool apart_in(const check *c, const subject *first, const subject *second, uintptr_t shift,
                     int64_t period)
{
    if (period <= 0) return false;
    const size_t size = tutti__size_of(matrix_of(c, first)->dtype), step = (size_t)period * size;
    const size_t low = (size_t)part_of(c, first, period) * size;
    const size_t high = (size_t)part_of(c, second, period) * size;
    return shift % step >= low && shift % step + high <= step;
}

/* Rows, or lines, of one matrix may lie in the gaps between the other's, as slices of one tensor
 * do, or both may have the same rows where the tables allow it. */
static bool may_overlap(const check *c, const span *written, const span *other)
{
    if (!is_tensor(&written->owner) || !is_tensor(&other->owner)) return false;
    const tutti__slot_state *w = &c->layer->slots[written->owner.slot],
                            *o = &c->layer->slots[other->owner.slot];
    const tutti__matrix *a = matrix_of(c, &written->owner), *b = matrix_of(c, &other->owner);
    const size_t size = tutti__size_of(a->dtype);
    if (size != tutti__size_of(b->dtype)) return false;
    if ((w->shape.flags | o->shape.flags) & TUTTI_SLOT_SUM) return false;
    const int64_t line = *line_of(c, &written->owner);
    const bool same_steps = (a->stride == b->stride || c->views->rows == 1) &&
                            w->shape.lines == o->shape.lines && line == *line_of(c, &other->owner);
    if (a->data == b->data && same_steps && w->shape.cols == o->shape.cols) {
        /* an input that backward reads must not be overwritten, unless backward reads that output
         * instead */
        const bool lost =
            !c->views->backward && c->call->saved && other->owner.part == TUTTI__PART_IN &&
            (o->shape.flags & TUTTI_SLOT_READ) && !(w->replaces & bit_of(&other->owner));
        return !lost && ((may_be(c, &written->owner) & bit_of(&other->owner)) ||
                         (may_be(c, &other->owner) & bit_of(&written->owner)));
    }
    const bool a_low = written->from <= other->from;
    const uintptr_t shift = a_low ? other->from - written->from : written->from - other->from;
    const subject *first = a_low ? &written->owner : &other->owner,
                  *second = a_low ? &other->owner : &written->owner;
    return apart_in(c, first, second, shift, a->stride) ||
           apart_in(c, first, second, shift, line) ||
           apart_in(c, first, second, shift, b->stride) ||
           apart_in(c, first, second, shift, *line_of(c, &other->owner));
}

static tutti_status check_apart_from(const check *c, const span *a, const span *others, int count)
{
    for (int i = 0; i < count; i++) {
        const span *b = &others[i];
        if (a->to <= b->from || b->to <= a->from || may_overlap(c, a, b)) continue;
        REQUIRE_OF(&a->owner, false, "and %s%s share memory", prefix_of(&b->owner),
                   name_of(&b->owner));
    }
    return TUTTI_OK;
}

static tutti_status check_apart(const check *c)
{
    const span *written = c->spans[true];
    const int count = c->span_count[true];
    for (int i = 0; i < count; i++) {
        TUTTI_TRY(check_apart_from(c, &written[i], &written[i + 1], count - i - 1));
        TUTTI_TRY(check_apart_from(c, &written[i], c->spans[false], c->span_count[false]));
    }
    return TUTTI_OK;
}

/* Tensors */

static _Alignas(16) char placeholder[16]; /* stands for memory that a plan does not have yet */

static tutti_status check_tensor(check *c, const tutti__operand *operand)
{
    const subject s = {c->layer, operand->part, operand->index, operand->slot};
    const tutti_slot_shape *shape = &c->layer->slots[operand->slot].shape;
    const tutti_tensor *tensor = tutti__operand_tensor(c->call, operand);
    if (!tensor && operand->optional) return TUTTI_OK;
    REQUIRE_OF(&s, tensor, "is %s", "NULL");
    tutti__matrix *matrix = &c->views->tensors[operand->part][operand->index];
    int64_t one = 1, *rows = shape->flags & TUTTI_SLOT_SUM ? &one : &c->views->rows;
    int64_t *line = line_of(c, &s), period = 0;
    TUTTI_TRY(as_rows(tensor, &s, shape, rows, matrix, line, &period));
    if (operand->part == TUTTI__PART_IN) c->views->period[operand->index] = period;
    REQUIRE_OF(&s, tensor->data || *rows == 0 || c->plan, "has data %s", "NULL");
    const size_t size = tutti__size_of(shape->dtype);
    REQUIRE_OF(&s, (uintptr_t)tensor->data % size == 0, "has data that is not aligned to its %s",
               "elements");
    /* kernels' args have no stride for tensors with one element per row */
    REQUIRE_OF(&s,
               c->layer->class->type.slots[operand->slot].cols || *rows <= 1 || matrix->stride == 1,
               "is not %s", "contiguous");
    c->given |= bit_of(&s);
    if (*rows > 1) c->views->bits |= (uintptr_t)matrix->stride * size;
    if (shape->lines > 1) c->views->bits |= (uintptr_t)*line * size;
    if (c->plan && !matrix->data) {
        matrix->data = placeholder;
        return TUTTI_OK;
    }
    const int64_t extent = (shape->lines - 1) * *line + shape->cols / shape->lines;
    const int64_t own = period > 0 ? period : *rows;
    const size_t bytes = *rows > 0 ? (size_t)((own - 1) * matrix->stride + extent) * size : 0;
    add_span(c, s, matrix->data, bytes, operand->written);
    return TUTTI_OK;
}

/* Slots that are only allowed with another: sum with a residual, dsum with dx. */
static tutti_status check_with(const check *c)
{
    const bool backward = c->views->backward;
    for (int i = 0; i < c->layer->operand_count[backward]; i++) {
        const tutti__operand *operand = &c->layer->operands[backward][i];
        const tutti__slot_state *state = &c->layer->slots[operand->slot];
        const bool gradient =
            operand->part == TUTTI__PART_UPSTREAM || operand->part == TUTTI__PART_DIN;
        const uint32_t with = gradient ? state->grad_with : backward ? 0 : state->with;
        if (!with || (c->given & with)) continue;
        const subject s = {c->layer, operand->part, operand->index, operand->slot};
        const tutti_slot *row = &c->layer->class->type.slots[operand->slot];
        REQUIRE_OF(&s, !(c->given & bit_of(&s)), "is given without %s",
                   gradient ? row->grad_with : row->with);
    }
    return TUTTI_OK;
}

static tutti_status check_kept(check *c)
{
    const tutti_layer_type *type = &c->layer->class->type;
    const bool backward = c->views->backward;
    const subject s = {c->layer, OF_SAVED, 0, 0};
    char *saved = c->call->saved;
    size_t bytes = 0;
    for (int i = 0; i < type->slot_count; i++) {
        const tutti_slot_shape *shape = &c->layer->slots[i].shape;
        if (type->slots[i].role != TUTTI_SLOT_KEPT || shape->cols == 0) continue;
        if (saved) c->views->kept[shape->index] = saved + bytes;
        bytes += tutti__kept_bytes(shape, c->views->rows);
    }
    REQUIRE_OF(&s, saved || bytes == 0 || !backward || c->plan, "is %s", "NULL");
    REQUIRE_OF(&s, !saved || c->call->saved_bytes >= bytes, "has %zu bytes, want %zu",
               c->call->saved_bytes, bytes);
    add_span(c, s, saved, bytes, !backward);
    return TUTTI_OK;
}

/* Parameters */

static tutti_status check_params(check *c)
{
    const tutti_layer *layer = c->layer;
    const tutti_param *first = NULL; /* of those with gradients */
    c->views->grad_dtype = layer->accumulate;
    for (int i = 0; i < layer->param_count; i++) {
        const tutti_param *param = &layer->params[i];
        const size_t elements = (size_t)layer->param_elements[i];
        const subject value = {layer, OF_PARAM, (uint8_t)i, 0},
                      grad = {layer, OF_PARAM_GRAD, (uint8_t)i, 0};
        if (!param->value.data && !c->plan) {
            tutti__fail(TUTTI_ERR_STATE,
                        "%s: parameter %s is not bound (tutti_params_build or tutti_param_bind)",
                        layer->class->type.name, param->name);
            blame(&value);
            return TUTTI_ERR_STATE;
        }
        if (layer->store && layer->stored_value[i] &&
            (param->value.data != layer->stored_value[i] ||
             param->grad.data != layer->stored_grad[i])) {
            tutti__fail(
                TUTTI_ERR_STATE,
                "%s: parameter %s has other memory than its store gave it at tutti_params_build",
                layer->class->type.name, param->name);
            blame(&value);
            return TUTTI_ERR_STATE;
        }
        c->views->value[i] = param->value.data ? param->value.data : placeholder;
        add_span(c, value, param->value.data, elements * tutti__size_of(param->value.dtype), false);
        if (!c->views->backward) continue;
        c->views->grad[i] = param->value.data ? param->grad.data : placeholder;
        if (!param->grad.data) continue;
        if (!first) first = param;
        if (layer->class->any_grad) c->views->grad_dtype = first->grad.dtype;
        REQUIRE_OF(&grad, param->grad.dtype == c->views->grad_dtype, "is %s, want %s%s%s",
                   tutti_dtype_name(param->grad.dtype), tutti_dtype_name(c->views->grad_dtype),
                   layer->class->any_grad ? ", as the gradient of " : "",
                   layer->class->any_grad ? first->name : "");
        add_span(c, grad, param->grad.data, elements * tutti__size_of(param->grad.dtype), true);
    }
    return TUTTI_OK;
}

/* The rest */

/* A tensor in a slot that the layer does not have would be ignored silently. */
static tutti_status check_slots(const tutti_layer *layer, const tutti_call *call)
{
    static const char *const names[] = {"in", "out", "upstream", "din"};
    for (int part = TUTTI__PART_IN; part <= TUTTI__PART_DIN; part++)
        for (int i = 0; i < TUTTI_MAX_SLOTS; i++) {
            const tutti__operand at = {.part = (uint8_t)part, .index = (uint8_t)i};
            if ((layer->has_slot[part] >> i & 1) || !tutti__operand_tensor(call, &at)) continue;
            const subject s = {layer, (uint8_t)part, (uint8_t)i, 0};
            tutti__fail(TUTTI_ERR_ARG, "%s: there is no %s[%d], want NULL", layer->class->type.name,
                        names[part], i);
            blame(&s);
            return TUTTI_ERR_ARG;
        }
    return TUTTI_OK;
}

tutti_status tutti__check_common(const tutti_layer *layer, const tutti_call *call)
{
    const char *name = layer->class->type.name;
    const int leaves = call->leaves;
    TUTTI_REQUIRE((call->flags & ~(unsigned)TUTTI_GRAD_ACCUMULATE) == 0,
                  "%s: flags is %#x, want 0 or TUTTI_GRAD_ACCUMULATE", name, call->flags);
    if (call->first_row)
        TUTTI_REQUIRE(*call->first_row >= 0 && *call->first_row <= INT64_C(1) << 59,
                      "%s: first_row is %lld, want 0 to 2^59", name, (long long)*call->first_row);
    TUTTI_REQUIRE((uintptr_t)call->saved % 16 == 0, "%s: saved is not 16-byte aligned", name);
    TUTTI_REQUIRE(leaves >= 0 && leaves <= TUTTI_CALL_LEAVES_MAX, "%s: leaves is %d, want 0 to %d",
                  name, leaves, TUTTI_CALL_LEAVES_MAX);
    TUTTI_REQUIRE(leaves < 2 || call->leaf_rows,
                  "%s: leaf_rows is NULL, want the first row of each of %d leaves", name, leaves);
    if (!call->step) return TUTTI_OK;
    TUTTI_REQUIRE(call->step->backend == layer->backend && call->step->device == layer->device,
                  "%s: step is on another device than the layer", name);
    return TUTTI_OK;
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

/* Forces a call of memset: the inline code that compilers generate (rep stos) takes longer to start
 * than a tensor's checks. */
static __attribute__((noipa)) void clear(void *data, size_t bytes)
{
    memset(data, 0, bytes);
}

tutti_status tutti__check_call(const tutti_layer *layer, const tutti_call *call, bool backward,
                               bool plan, tutti__views *views)
{
    const char *name = layer->class->type.name;
    TUTTI_REQUIRE(call, "%s: call is NULL", name);
    TUTTI_TRY(tutti__check_common(layer, call));
    TUTTI_TRY(check_slots(layer, call));

    clear(views, sizeof *views);
    views->backward = backward;
    views->rows = -1;
    views->accumulate = backward && (call->flags & TUTTI_GRAD_ACCUMULATE);
    tutti__views_common(views, call);
    views->leaves = call->leaves > 1 ? call->leaves : 1;
    views->in_leaves = call->leaves > 0;
    static const int64_t whole = 0; /* where a call begins that has no leaves, or one */
    views->leaf_rows = call->leaves > 1 ? call->leaf_rows : &whole;

    check c; /* spans stay uninitialised: they are long, and written before they are read */
    c.layer = layer;
    c.call = call;
    c.views = views;
    c.plan = plan;
    c.given = 0;
    c.span_count[false] = c.span_count[true] = 0;
    for (int i = 0; i < layer->operand_count[backward]; i++)
        TUTTI_TRY(check_tensor(&c, &layer->operands[backward][i]));
    TUTTI_REQUIRE(layer->class->rows_most == 0 || views->rows <= layer->class->rows_most,
                  "%s: rows is %lld, want at most %lld", name, (long long)views->rows,
                  (long long)layer->class->rows_most);
    TUTTI_REQUIRE(call->first_row || !layer->reads_first_row || plan ||
                      (c.given & layer->tells_row),
                  "%s: first_row is NULL, but these options' bits depend on it", name);
    TUTTI_REQUIRE(call->step || !layer->reads_step || plan,
                  "%s: step is NULL, but these options' bits depend on it", name);
    TUTTI_TRY(check_leaves(name, call, views->rows));
    TUTTI_TRY(check_with(&c));
    TUTTI_TRY(check_kept(&c));
    TUTTI_TRY(check_params(&c));
    return check_apart(&c);
}
