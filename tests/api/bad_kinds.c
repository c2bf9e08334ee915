/* Bad input for the headers of the layers: every kind's create, plan, forward and backward, and the
 * general calls; what all calls have. */
#include <stdlib.h>
#include <string.h>

#include "bad_kinds.h"

struct bad_call fix;

tutti_status attempt(void)
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

void check_place(tutti_call_place want)
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

bool looked_at_by(int slot, bool gradient, bool backward)
{
    if (fix.verb != PLAN && backward != (fix.verb == BACKWARD)) return false;
    if (backward && !fix.f.kind->backward) return false;
    return slot_read(&fix.f, slot, gradient, backward) ||
           slot_written(&fix.f, slot, gradient, backward);
}

bool looked_at(int slot, bool gradient)
{
    return looked_at_by(slot, gradient, false) || looked_at_by(slot, gradient, true);
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
    static const int counts[] = {-1, TUTTI_CALL_LEAVES_MAX + 1, INT32_MIN, INT32_MAX};
    for (int i = 0; i < HARNESS_COUNT(counts); i++)
        CHECK_WITH(f->call.leaves = counts[i], TUTTI_ERR_ARG, "leaves is");
    f->call.leaves = 4;
    CHECK_WITH(f->call.leaf_rows = NULL, TUTTI_ERR_ARG,
               "leaf_rows is NULL, want the first row of each of 4");
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
