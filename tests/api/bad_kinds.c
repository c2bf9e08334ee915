/* Bad input for the headers of the layers: every kind's descriptor, plan, forward and backward, by
 * the tables of its options and slots. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bad_input.h"
#include "layer_fixture.h"

enum { ROWS = 3 };

/* Descriptors */

/* A descriptor with the required fields set, on the heap. */
static char *good_desc(const layer_kind *kind)
{
    const tutti_layer_type *type = tutti_layer_type_find(kind->name);
    char *desc = harness_calloc(2, kind->desc_size); /* room for a newer program's fields */
    kind->put_init(desc);
    for (int i = 0; i < type->option_count; i++)
        if (!type->options[i].default_value) *(int64_t *)(desc + type->options[i].offset) = 6;
    return desc;
}

typedef struct creation {
    const layer_kind *kind;
    const tutti_layer_option *option;
    char *desc;
} creation;

static void refused(const creation *c, const char *word)
{
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, word,
                        c->kind->create(harness_context(), c->desc, &layer));
}

#define REFUSED_AS(type, value)                                              \
    do {                                                                     \
        type *field = (type *)(c->desc + c->option->offset);                 \
        const type kept = *field;                                            \
        *field = (value);                                                    \
        harness_where("%s.%s = %s", c->kind->name, c->option->name, #value); \
        refused(c, c->option->name);                                         \
        *field = kept;                                                       \
    } while (0)

static void check_option(const creation *c)
{
    const tutti_layer_option *o = c->option;
    const bool bounds = o->least != 0 || o->most != 0;
    if (strcmp(o->type, "int") == 0) {
        if (!bounds) return;
        REFUSED_AS(int64_t, (int64_t)o->least - 1);
        REFUSED_AS(int64_t, (int64_t)o->most + 1);
        REFUSED_AS(int64_t, INT64_MIN);
        REFUSED_AS(int64_t, INT64_MAX);
    } else if (strcmp(o->type, "real") == 0) {
        REFUSED_AS(double, NAN);
        REFUSED_AS(double, INFINITY);
        REFUSED_AS(double, -INFINITY);
        if (bounds) REFUSED_AS(double, o->least - 1e-9);
        if (bounds && o->most < DBL_MAX) REFUSED_AS(double, o->most * 1.001);
    } else if (strcmp(o->type, "dtype") == 0) {
        REFUSED_AS(tutti_dtype, TUTTI_I32);
        REFUSED_AS(tutti_dtype, TUTTI_U8);
        REFUSED_AS(tutti_dtype, (tutti_dtype)99);
        REFUSED_AS(tutti_dtype, (tutti_dtype)-1);
    } else if (strcmp(o->type, "int32") == 0) {
        CHECK(!bounds, "%s of a kind that is not tested", o->name);
    } else {
        REFUSED_AS(int, -1);
        REFUSED_AS(int, 99); /* for a bool or a choice */
    }
}

static void check_create(const layer_kind *kind)
{
    const tutti_layer_type *type = tutti_layer_type_find(kind->name);
    tutti_context *ctx = harness_context();
    tutti_layer *layer = UNTOUCHED(tutti_layer);
    creation c = {.kind = kind, .desc = good_desc(kind)};
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx", kind->create(NULL, c.desc, &layer));
    CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "desc", kind->create(ctx, NULL, &layer));
    CHECK_FAILS(TUTTI_ERR_ARG, "layer", kind->create(ctx, c.desc, NULL));
    for (int i = 0; i < type->option_count; i++) {
        c.option = &type->options[i];
        check_option(&c);
    }
    harness_where("%s", kind->name);
    size_t *size = (size_t *)c.desc;
    static const size_t garbage[] = {1, sizeof(size_t) - 1, 5000, SIZE_MAX};
    for (int i = 0; i < HARNESS_COUNT(garbage); i++) {
        *size = garbage[i];
        refused(&c, "size");
    }
    /* a newer program's, with an unknown field set */
    *size = 2 * kind->desc_size;
    c.desc[2 * kind->desc_size - 1] = 1;
    refused(&c, "newer");
    *size = sizeof *size; /* older than the first field: required fields are missing */
    refused(&c, type->options[0].name);
    harness_where(NULL);
    free(c.desc);
}

/* Calls */

typedef enum verb { PLAN, FORWARD, BACKWARD } verb;

static struct {
    layer_fixture f;
    verb verb;
    bool typed;
} fix;

static tutti_status attempt(void)
{
    const layer_kind *kind = fix.f.kind;
    if (!fix.typed)
        return (fix.verb == PLAN      ? tutti_layer_plan
                : fix.verb == FORWARD ? tutti_layer_forward
                                      : tutti_layer_backward)(fix.f.layer, fix.f.ctx, &fix.f.call);
    void *call = typed_call(kind, &fix.f.call);
    const tutti_status status =
        (fix.verb == PLAN      ? kind->plan
         : fix.verb == FORWARD ? kind->forward
                               : kind->backward)(fix.f.layer, fix.f.ctx, call);
    free(call);
    return status;
}

/* Checks that the attempt is refused with this word after one change of `fix`. */
#define CHECK_WITH(change, status, word)                    \
    do {                                                    \
        const layer_fixture before = fix.f;                 \
        change;                                             \
        harness_where("%s: %s", fix.f.kind->name, #change); \
        CHECK_FAILS(status, word, attempt());               \
        harness_where(NULL);                                \
        fix.f = before;                                     \
    } while (0)

static void check_place(tutti_call_place want)
{
    const tutti_call_place got = tutti_last_error_place();
    CHECK(got.part == want.part && got.index == want.index,
          "'%s' is about part %d, %d, want %d, %d", tutti_last_error(), got.part, got.index,
          want.part, want.index);
}

static void check_untouched(void)
{
    layer_fixture *f = &fix.f;
    for (int i = 0; i < SLOTS; i++)
        for (int gradient = 0; gradient < 2; gradient++)
            if (f->buffers[i][gradient].mirror)
                CHECK(harness_buffer_unchanged(f->ctx, &f->buffers[i][gradient]),
                      "%s: a refused call wrote to %s", f->kind->name, slot_name(f, i, gradient));
    for (int i = 0; i < PARAMS; i++)
        if (f->grads[i].mirror)
            CHECK(harness_buffer_unchanged(f->ctx, &f->grads[i]) &&
                      harness_buffer_unchanged(f->ctx, &f->params[i]),
                  "%s: a refused call wrote to parameter %d", f->kind->name, i);
    CHECK(harness_buffer_unchanged(f->ctx, &f->saved), "%s: a refused call wrote to saved",
          f->kind->name);
}

/* True if the verb checks this tensor in this direction. */
static bool looked_at_by(int slot, bool gradient, bool backward)
{
    if (fix.verb != PLAN && backward != (fix.verb == BACKWARD)) return false;
    if (backward && !fix.f.kind->backward) return false;
    return slot_read(&fix.f, slot, gradient, backward) ||
           slot_written(&fix.f, slot, gradient, backward);
}

static bool looked_at(int slot, bool gradient)
{
    return looked_at_by(slot, gradient, false) || looked_at_by(slot, gradient, true);
}

static bool optional(int slot, bool gradient)
{
    const unsigned flags = fix.f.shapes[slot].flags;
    return flags & (gradient ? TUTTI_SLOT_GRAD_OPTIONAL : TUTTI_SLOT_OPTIONAL);
}

/* The tensor that determines the number of rows: the direction's first, inputs and outputs before
 * gradients. */
static bool sets_rows(int slot, bool gradient)
{
    const bool backward = !looked_at_by(slot, gradient, false);
    for (int of_gradients = 0; of_gradients < 2; of_gradients++)
        for (int step = 0; step < 2; step++) {
            const int role = step == of_gradients ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT;
            for (int i = 0; i < fix.f.type->slot_count; i++)
                if ((int)fix.f.type->slots[i].role == role &&
                    looked_at_by(i, of_gradients, backward))
                    return i == slot && gradient == of_gradients;
        }
    return false;
}

/* Leading dimensions that no single stride describes. */
static void split_rows(tutti_tensor *t)
{
    int64_t cols = t->dims[1];
    t->ndim = 3;
    memcpy(t->dims, (int64_t[]){ROWS, 2, cols}, 3 * sizeof(int64_t));
    memcpy(t->strides, (int64_t[]){5 * cols, cols, 1}, 3 * sizeof(int64_t));
}

/* A matrix's lines as its columns. */
static void exchange(tutti_tensor *t)
{
    const int64_t lines = t->dims[1];
    t->dims[1] = t->dims[2];
    t->strides[1] = lines;
    t->dims[2] = lines;
}

/* Checks one change of the tensor `bad`, which is in its slot. */
#define CHECK_TENSOR(change)                                           \
    do {                                                               \
        bad = *good;                                                   \
        change;                                                        \
        harness_where("%s: %s with %s", f->kind->name, name, #change); \
        CHECK_FAILS(TUTTI_ERR_ARG, name, attempt());                   \
        check_place(slot_place(f, slot, gradient));                    \
        harness_where(NULL);                                           \
    } while (0)

/* Every way in which a tensor can be wrong. */
static void check_tensor(int slot, bool gradient)
{
    layer_fixture *f = &fix.f;
    tutti_tensor *good = &f->tensors[slot][gradient], bad = *good;
    char name[64];
    snprintf(name, sizeof name, ": %s ", slot_name(f, slot, gradient));
    slot_put(f, slot, gradient, &bad);
    CHECK_TENSOR(bad.dtype = bad.dtype == TUTTI_BF16 ? TUTTI_F16 : TUTTI_BF16);
    CHECK_TENSOR(bad.dtype = TUTTI_U8);
    CHECK_TENSOR(bad.dtype = (tutti_dtype)0);
    CHECK_TENSOR(bad.dtype = (tutti_dtype)99);
    CHECK_TENSOR(bad.ndim = 0);
    CHECK_TENSOR(bad.ndim = TUTTI_MAX_DIMS + 1);
    CHECK_TENSOR(bad.ndim = -1);
    CHECK_TENSOR(bad.dims[0] = -1);
    if (fix.verb != PLAN) CHECK_TENSOR(bad.data = NULL);
    CHECK_TENSOR(bad.data = (char *)bad.data + 1); /* not aligned to its elements */
    if (f->type->slots[slot].cols) {
        CHECK_TENSOR(bad.dims[1] += 1);
        CHECK_TENSOR(bad.dims[1] -= 1);
        CHECK_TENSOR(bad.dims[1] = 0);
        CHECK_TENSOR(bad.dims[1] = -bad.dims[1]);
        CHECK_TENSOR(bad.strides[bad.ndim - 1] = 2);
        CHECK_TENSOR(bad.strides[bad.ndim - 1] = -1);
        CHECK_TENSOR(bad.strides[0] = bad.dims[1] - 1); /* rows overlap */
        if (gradient || !(f->shapes[slot].flags & TUTTI_SLOT_REPEATS))
            CHECK_TENSOR(bad.strides[0] = 0);
        CHECK_TENSOR(bad.strides[0] = -bad.dims[1]);
        CHECK_TENSOR(bad.dims[0] = INT64_MAX);
        CHECK_TENSOR(bad.strides[0] = INT64_MAX);
        CHECK_TENSOR(split_rows(&bad));
    } else if (!(f->shapes[slot].flags & TUTTI_SLOT_SUM)) {
        CHECK_TENSOR(bad.strides[0] = 2);
    }
    if (f->type->slots[slot].lines) {
        CHECK_TENSOR(bad.dims[2] += 1);
        CHECK_TENSOR(bad.strides[1] = bad.dims[2] - 1); /* lines overlap */
        CHECK_TENSOR(bad.strides[1] = 0);
        CHECK_TENSOR(bad.strides[1] = INT64_MAX);
        CHECK_TENSOR(bad.strides[0] = bad.dims[2]); /* rows do, in no gap */
        CHECK_TENSOR(bad.strides[0] -= 1);
        CHECK_TENSOR(exchange(&bad));
    }
    if (sets_rows(slot, gradient)) {
        bad = *good;
        bad.dims[0]++;
        CHECK_FAILS(TUTTI_ERR_ARG, "rows", attempt()); /* differs from another tensor's */
    } else {
        CHECK_TENSOR(bad.dims[0] += 1);
    }
    const tutti_call whole = f->call;
    if (fix.verb == PLAN) { /* without y, for example, it would be a valid plan of backward only */
        memset(f->call.upstream, 0, sizeof f->call.upstream);
        memset(f->call.din, 0, sizeof f->call.din);
    }
    if (!optional(slot, gradient) && !(fix.verb == PLAN && gradient))
        CHECK_TENSOR(slot_put(f, slot, gradient, NULL));
    f->call = whole;
    slot_put(f, slot, gradient, good);
}

/* "sum without residual", "dsum without dx". */
static void check_company(void)
{
    layer_fixture *f = &fix.f;
    for (int i = 0; i < f->type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            const tutti_slot *slot = &f->type->slots[i];
            const char *with = gradient ? slot->grad_with : slot->with;
            if (!with || !looked_at(i, gradient)) continue;
            for (int j = 0; j < f->type->slot_count; j++)
                if (strcmp(slot_name(f, j, gradient), with) == 0) {
                    slot_put(f, j, gradient, NULL);
                    CHECK_FAILS(TUTTI_ERR_ARG, with, attempt());
                    check_place(slot_place(f, i, gradient));
                    slot_put(f, j, gradient, &f->tensors[j][gradient]);
                }
        }
}

/* A tensor in a slot that the kind does not have, or a gradient of a slot without one. */
static void check_no_slot(void)
{
    layer_fixture *f = &fix.f;
    tutti_tensor *extra = &f->tensors[0][0];
    static const char *const names[] = {"in", "out", "upstream", "din"};
    for (int part = 0; part < 4; part++)
        for (int i = 0; i < TUTTI_MAX_SLOTS; i++) {
            const layer_fixture before = *f;
            const void *there[] = {f->call.in[i], f->call.out[i], f->call.upstream[i],
                                   f->call.din[i]};
            if (there[part]) continue;
            if (part == 0) f->call.in[i] = extra;
            if (part == 1) f->call.out[i] = extra;
            if (part == 2) f->call.upstream[i] = extra;
            if (part == 3) f->call.din[i] = extra;
            char word[32];
            snprintf(word, sizeof word, "%s[%d]", names[part], i);
            CHECK_FAILS(TUTTI_ERR_ARG, word, attempt());
            static const tutti_call_part parts[] = {TUTTI_PART_IN, TUTTI_PART_OUT,
                                                    TUTTI_PART_UPSTREAM, TUTTI_PART_DIN};
            check_place((tutti_call_place){parts[part], i});
            *f = before;
        }
}

/* Memory */

/* A range of memory that a call accesses. */
typedef struct span {
    char name[TUTTI_NAME_MAX + 1];
    char *data;
    size_t bytes;
    tutti_call_place place;
    int slot; /* -1: none */
    bool gradient, written;
} span;

static int spans_of(span *spans)
{
    layer_fixture *f = &fix.f;
    const bool backward = fix.verb == BACKWARD;
    int count = 0;
    for (int i = 0; i < f->type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            if (!looked_at(i, gradient)) continue;
            const tutti_tensor *t = &f->tensors[i][gradient];
            span *s = &spans[count++];
            *s = (span){"",
                        t->data,
                        (size_t)tutti_tensor_count(t) * tutti_dtype_size(t->dtype),
                        slot_place(f, i, gradient),
                        i,
                        gradient,
                        slot_written(f, i, gradient, backward)};
            snprintf(s->name, sizeof s->name, "%s", slot_name(f, i, gradient));
        }
    for (int i = 0; i < tutti_layer_param_count(f->layer); i++)
        for (int gradient = 0; gradient <= backward; gradient++) {
            const tutti_param *param = tutti_layer_param(f->layer, i);
            const tutti_tensor *t = gradient ? &param->grad : &param->value;
            span *s = &spans[count++];
            *s = (span){"",
                        t->data,
                        (size_t)tutti_tensor_count(t) * tutti_dtype_size(t->dtype),
                        {gradient ? TUTTI_PART_PARAM_GRAD : TUTTI_PART_PARAM, i},
                        -1,
                        gradient,
                        gradient};
            snprintf(s->name, sizeof s->name, "%s%s", gradient ? "d" : "", param->name);
        }
    if (f->call.saved)
        spans[count++] =
            (span){"saved", f->call.saved, f->call.saved_bytes, {TUTTI_PART_SAVED, 0}, -1,
                   false,   !backward};
    return count;
}

/* Moves a range to other memory, and back. */
static void move(const span *s, void *data)
{
    layer_fixture *f = &fix.f;
    if (s->slot >= 0)
        f->tensors[s->slot][s->gradient].data = data;
    else if (s->place.part == TUTTI_PART_SAVED)
        f->call.saved = data;
    else {
        tutti_param *param = tutti_layer_param(f->layer, s->place.index);
        tutti_tensor value = param->value, grad = param->grad;
        *(s->gradient ? &grad.data : &value.data) = data;
        CHECK_OK(tutti_param_bind(param, &value, &grad));
    }
}

/* True if `name` is a word of `names`. */
static bool lists(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = names; at && (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ')) return true;
    return false;
}

/* True if one may alias the other, row by row.  Backward reads inputs that forward keeps, unless an
 * output replaces them. */
static bool may_be(const span *a, const span *b)
{
    const tutti_slot *slots = fix.f.type->slots;
    if (a->slot < 0 || b->slot < 0) return false;
    const tutti_slot *slot = &slots[a->slot];
    if (!lists(a->gradient ? slot->grad_may_be : slot->may_be, b->name)) return false;
    const bool kept = fix.verb == FORWARD && fix.f.call.saved &&
                      slots[b->slot].role == TUTTI_SLOT_IN &&
                      (fix.f.shapes[b->slot].flags & TUTTI_SLOT_READ);
    return !kept || (slot->replaces && strcmp(slot->replaces, b->name) == 0);
}

static void check_shared(const span *a, const span *b)
{
    CHECK_FAILS(TUTTI_ERR_ARG, "share memory", attempt());
    CHECK(strstr(tutti_last_error(), a->name) && strstr(tutti_last_error(), b->name),
          "'%s' names not both %s and %s", tutti_last_error(), a->name, b->name);
    const tutti_call_place got = tutti_last_error_place();
    const bool about_a = got.part == a->place.part && got.index == a->place.index;
    const bool about_b = got.part == b->place.part && got.index == b->place.index;
    CHECK(about_a || (b->written && about_b), "'%s' is about part %d, %d", tutti_last_error(),
          got.part, got.index);
}

/* What is written must not overlap anything else. */
static void check_memory(void)
{
    layer_fixture *f = &fix.f;
    span spans[2 * SLOTS + 2 * PARAMS + 1];
    const int count = spans_of(spans);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            const span *a = &spans[i], *b = &spans[j];
            if (i == j || !a->written) continue;
            harness_where("%s: %s over %s", f->kind->name, a->name, b->name);
            if (!may_be(a, b) && !may_be(b, a)) {
                move(a, b->data);
                check_shared(a, b);
            }
            if (a->place.part != TUTTI_PART_SAVED && b->bytes > 8) { /* not on a 16-byte boundary */
                move(a, b->data + 8);
                check_shared(a, b);
            }
            move(a, a->data);
            if (a->slot < 0 || b->slot < 0 || !f->type->slots[a->slot].cols) continue;
            tutti_tensor *tensor = &f->tensors[a->slot][a->gradient];
            move(a, b->data);
            tensor->strides[0]++; /* aliased, but with other rows */
            check_shared(a, b);
            tensor->strides[0]--;
            move(a, a->data);
        }
    harness_where(NULL);
}

/* What all calls have */

static void check_leaves(void)
{
    layer_fixture *f = &fix.f;
    static const int64_t good[4] = {0, 1, 1, 2};
    static const struct {
        int64_t rows[4];
        const char *word;
    } bad[] = {{{1, 1, 2, 3}, "leaf_rows[0]"},  {{-1, 1, 2, 3}, "leaf_rows[0]"},
               {{0, 2, 1, 3}, "leaf_rows[2]"},  {{0, 1, 2, ROWS + 1}, "leaf_rows[3]"},
               {{0, -1, 1, 2}, "leaf_rows[1]"}, {{0, INT64_MAX, 1, 2}, "leaf_rows[1]"}};
    f->call.leaf_rows = good;
    static const int counts[] = {3, -1, 512, 6, INT32_MIN, INT32_MAX};
    for (int i = 0; i < HARNESS_COUNT(counts); i++)
        CHECK_WITH(f->call.leaves = counts[i], TUTTI_ERR_ARG, "leaves is");
    f->call.leaves = 4;
    CHECK_WITH(f->call.leaf_rows = NULL, TUTTI_ERR_ARG, "leaf_rows is NULL");
    for (int i = 0; i < HARNESS_COUNT(bad); i++)
        CHECK_WITH(f->call.leaf_rows = bad[i].rows, TUTTI_ERR_ARG, bad[i].word);
    f->call.leaves = 0;
    f->call.leaf_rows = NULL;
}

static void check_step(void)
{
    layer_fixture *f = &fix.f;
    tutti_step_block *step = NULL;
    CHECK_OK(tutti_step_block_create(f->ctx, &step));
    /* a plan is made before the first step's values are known */
    if (fix.verb != PLAN) CHECK_WITH(f->call.step = step, TUTTI_ERR_STATE, "never set");
    tutti_step_block_destroy(&step);
    if (!foreign_context()) return;
    CHECK_OK(tutti_step_block_create(foreign_context(), &step));
    CHECK_WITH(f->call.step = step, TUTTI_ERR_ARG, "step");
    tutti_step_block_destroy(&step);
    CHECK_WITH(f->ctx = foreign_context(), TUTTI_ERR_ARG, "ctx");
}

static void check_common(const char *options)
{
    layer_fixture *f = &fix.f;
    CHECK_WITH(f->layer = NULL, TUTTI_ERR_ARG, "layer");
    CHECK_WITH(f->ctx = NULL, TUTTI_ERR_ARG, "ctx");
    CHECK_WITH(f->call.flags = 2, TUTTI_ERR_ARG, "flags");
    CHECK_WITH(f->call.flags = ~0u, TUTTI_ERR_ARG, "flags");
    CHECK_WITH(f->first_row = -1, TUTTI_ERR_ARG, "first_row");
    CHECK_WITH(f->first_row = INT64_MAX, TUTTI_ERR_ARG, "first_row");
    if (fix.verb != PLAN && strstr(options, "causal_period"))
        CHECK_WITH(f->call.first_row = NULL, TUTTI_ERR_ARG, "first_row");
    CHECK_WITH(f->call.saved = (char *)f->saved.data + 8, TUTTI_ERR_ARG, "saved");
    if (f->call.saved) {
        CHECK_WITH(f->call.saved_bytes--, TUTTI_ERR_ARG, "saved");
        check_place((tutti_call_place){TUTTI_PART_SAVED, 0});
        CHECK_WITH(f->call.saved_bytes = 0, TUTTI_ERR_ARG, "saved");
        if (fix.verb == BACKWARD) {
            CHECK_WITH(f->call.saved = NULL, TUTTI_ERR_ARG, "saved");
            check_place((tutti_call_place){TUTTI_PART_SAVED, 0});
        }
    }
    check_leaves();
    check_step();
    CHECK_WITH(f->call.flags = 2, TUTTI_ERR_ARG, "flags");
    check_place((tutti_call_place){TUTTI_PART_NONE, 0}); /* not a tensor */
}

static void check_unbound(const char *kind, const char *options)
{
    layer_fixture *f = &fix.f;
    open_layer(f, harness_context(), kind, options, ROWS, false);
    for (int i = 0; i < tutti_layer_param_count(f->layer); i++) {
        tutti_param *param = tutti_layer_param(f->layer, i);
        const int64_t count = tutti_tensor_count(&param->value);
        CHECK_FAILS(TUTTI_ERR_STATE, param->name, attempt());
        check_place((tutti_call_place){TUTTI_PART_PARAM, i});
        f->params[i] = harness_buffer_make(f->ctx, TUTTI_F32, 1, count, 0, 0);
        tutti_tensor value = param->value;
        value.data = f->params[i].data;
        CHECK_OK(tutti_param_bind(param, &value, NULL));
    }
    check_untouched();
    close_layer(f);
}

static void check_verb(const layer_kind *kind, verb verb, bool typed)
{
    layer_fixture *f = &fix.f;
    fix.verb = verb;
    fix.typed = typed;
    const char *options;
    for (int o = 0; (options = kind_options(kind, o)); o++) {
        open_layer(f, harness_context(), kind->name, options, ROWS, true);
        check_common(options);
        for (int i = 0; i < f->type->slot_count; i++)
            for (int gradient = 0; gradient < 2; gradient++)
                if (looked_at(i, gradient)) check_tensor(i, gradient);
        check_company();
        if (!typed) check_no_slot();
        if (verb != PLAN) check_memory();
        check_untouched();
        close_layer(f);
        if (verb != PLAN) check_unbound(kind->name, options);
    }
}

/* A kind's own call with another kind's layer, and with none. */
static void check_stranger(const layer_kind *kind, typed_call_fn *call)
{
    layer_fixture *f = &fix.f;
    for (int i = 0; i < layer_kind_count; i++) {
        const layer_kind *other = &layer_kinds[i];
        open_layer(f, harness_context(), other->name, kind_options(other, 0), ROWS, true);
        void *typed = harness_calloc(1, kind->call_size);
        if (other == kind)
            CHECK_FAILS(TUTTI_ERR_ARG, "call", call(f->layer, f->ctx, NULL));
        else
            CHECK_FAILS(TUTTI_ERR_ARG, kind->name, call(f->layer, f->ctx, typed));
        free(typed);
        close_layer(f);
    }
}

static void check_typed(const layer_kind *kind, verb verb)
{
    check_stranger(kind, verb == PLAN      ? kind->plan
                         : verb == FORWARD ? kind->forward
                                           : kind->backward);
    check_verb(kind, verb, true);
}

/* The general calls of every kind. */
static void check_general(verb verb)
{
    for (int i = 0; i < layer_kind_count; i++) {
        const layer_kind *kind = &layer_kinds[i];
        if (verb != BACKWARD || kind->backward) {
            check_verb(kind, verb, false);
            continue;
        }
        open_layer(&fix.f, harness_context(), kind->name, kind_options(kind, 0), ROWS, true);
        CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "backward",
                    tutti_layer_backward(fix.f.layer, fix.f.ctx, &fix.f.call));
        check_untouched();
        close_layer(&fix.f);
    }
}

static void bad_layer_plan(void)
{
    check_general(PLAN);
    tutti_context *ctx = harness_context();
    layer_fixture *f = &fix.f;
    open_layer(f, ctx, "softmax", "cols=6", ROWS, false);
    CHECK_FAILS(TUTTI_ERR_ARG, "call", tutti_layer_plan(f->layer, ctx, NULL));
    CHECK_FAILS(TUTTI_ERR_ARG, "x is NULL", tutti_layer_plan(f->layer, ctx, &(tutti_call){0}));
    close_layer(f);

    /* too many rows; rows and columns whose product is too large */
    tutti_layer *table = NULL, *wide = NULL;
    CHECK_OK(tutti_layer_create_by_name(ctx, "embedding", "vocab=4,cols=6", &table));
    tutti_tensor tokens = tutti_tensor_1d(NULL, TUTTI_I32, INT64_C(1) << 31);
    tutti_tensor y = tutti_tensor_2d(NULL, TUTTI_F32, INT64_C(1) << 31, 6);
    const tutti_embedding_call many = {.tokens = &tokens, .y = &y, .dy = &y};
    CHECK_FAILS(TUTTI_ERR_ARG, "rows", tutti_embedding_plan(table, ctx, &many));
    CHECK_OK(tutti_layer_create_by_name(ctx, "linear", "in=2147483647,out=1", &wide));
    tutti_tensor x = tutti_tensor_2d(NULL, TUTTI_F32, INT64_C(1) << 30, INT32_MAX);
    y = tutti_tensor_2d(NULL, TUTTI_F32, INT64_C(1) << 30, 1);
    CHECK_FAILS(TUTTI_ERR_ARG, "rows",
                tutti_linear_plan(wide, ctx, &(tutti_linear_call){.x = &x, .y = &y}));
    tutti_layer_destroy(&table);
    tutti_layer_destroy(&wide);
}

static void bad_layer_forward(void)
{
    check_general(FORWARD);
    layer_fixture *f = &fix.f;
    open_layer(f, harness_context(), "softmax", "cols=6", ROWS, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "call", tutti_layer_forward(f->layer, f->ctx, NULL));
    close_layer(f);
}

/* The first parameter's gradient has another type than the arithmetic or the other parameter's. */
static void check_gradient_type(const char *kind, const char *options)
{
    layer_fixture *f = &fix.f;
    open_layer(f, harness_context(), kind, options, ROWS, true);
    tutti_param *param = tutti_layer_param(f->layer, 0);
    const int64_t count = tutti_tensor_count(&param->value);
    harness_buffer memory = harness_buffer_make(f->ctx, TUTTI_F64, 1, count, 0, 0);
    tutti_tensor value = param->value, grad = param->value;
    grad.dtype = TUTTI_F64;
    grad.data = memory.data;
    CHECK_OK(tutti_param_bind(param, &value, &grad));
    CHECK_FAILS(TUTTI_ERR_ARG, param->name, tutti_layer_backward(f->layer, f->ctx, &f->call));
    CHECK(tutti_last_error_place().part == TUTTI_PART_PARAM_GRAD, "'%s' is about part %d",
          tutti_last_error(), tutti_last_error_place().part);
    CHECK(harness_buffer_unchanged(f->ctx, &memory), "the gradient was written");
    harness_buffer_free(f->ctx, &memory);
    check_untouched();
    close_layer(f);
}

static void bad_layer_backward(void)
{
    check_general(BACKWARD);
    layer_fixture *f = &fix.f;
    open_layer(f, harness_context(), "softmax", "cols=6", ROWS, true);
    CHECK_FAILS(TUTTI_ERR_ARG, "call", tutti_layer_backward(f->layer, f->ctx, NULL));
    close_layer(f);
    check_gradient_type("linear", "in=6,out=4");
    check_gradient_type("layernorm", "cols=6");
    check_gradient_type("embedding", "vocab=4,cols=6");
}

/* The cases: one for each public function of each kind. */

#define VERB(name, verb, VERB)               \
    static void bad_##name##_##verb(void)    \
    {                                        \
        check_typed(find_kind(#name), VERB); \
    }
#define CASES(name)                                                              \
    static void bad_##name##_create(void)                                        \
    {                                                                            \
        check_create(find_kind(#name));                                          \
    }                                                                            \
    VERB(name, plan, PLAN)                                                       \
    VERB(name, forward, FORWARD)                                                 \
    static void bad_##name##_backward(void)                                      \
    {                                                                            \
        if (find_kind(#name)->backward) check_typed(find_kind(#name), BACKWARD); \
    }
TUTTI__KINDS(CASES)

#define LINE(name, verb) {"tutti_" #name "_" #verb, bad_##name##_##verb},
#define LINES(name) LINE(name, create) LINE(name, plan) LINE(name, forward) LINE(name, backward)
const harness_test bad_kinds[] = {
    TUTTI__KINDS(LINES){"tutti_layer_plan", bad_layer_plan},
    {"tutti_layer_forward", bad_layer_forward},
    {"tutti_layer_backward", bad_layer_backward},
    {NULL, NULL},
};
