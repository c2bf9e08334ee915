/* A call that a context has checked before is not checked again.  So one that differs in any way
 * must have the status, message and bits that it has on a context that knows no calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer_fixture.h"

enum { ROWS = 6 };

/* A layer, and memory that a change may use instead of a tensor's. */
typedef struct subject {
    layer_fixture f;
    harness_buffer spare;
    tutti_step_block *step;
    tutti_tensor removed;
} subject;

static const int64_t halves[2] = {0, ROWS / 2};

/* What may change in a tensor of a call. */
enum { TENSOR_CHANGES = 9 };
static void change_tensor(subject *s, int slot, bool gradient, int number)
{
    tutti_tensor *t = &s->f.tensors[slot][gradient];
    switch (number) {
    case 0:
        t->dtype = t->dtype == TUTTI_F64   ? TUTTI_F32
                   : t->dtype == TUTTI_I32 ? TUTTI_F32
                                           : TUTTI_I32;
        break;
    case 1:
        t->dims[0]++;
        break;
    case 2:
        t->dims[0]--;
        break;
    case 3:
        t->strides[t->ndim - 1]++;
        break;
    case 4:
        t->data = (char *)t->data + 1;
        break;
    case 5:
        t->data = NULL;
        break;
    case 6:
        t->data = s->spare.data;
        break;
    case 7:
        t->ndim = 0;
        break;
    default:
        slot_put(&s->f, slot, gradient, NULL);
    }
}

/* What may change in a parameter. */
enum { PARAM_CHANGES = 4 };
static void change_param(subject *s, int index, int number)
{
    tutti_param *param = tutti_layer_param(s->f.layer, index);
    if (number == 0) param->value.data = NULL;
    if (number == 1) param->value.data = s->spare.data;
    if (number == 2) param->grad.data = NULL;
    if (number == 3) {
        param->grad.dtype = param->grad.dtype == TUTTI_F64 ? TUTTI_F32 : TUTTI_F64;
        param->grad.data = s->spare.data; /* has room for doubles */
    }
}

/* What may change in the rest of a call, or in what it points to. */
enum { OTHER_CHANGES = 11 };
static void change_other(subject *s, int number)
{
    layer_fixture *f = &s->f;
    tutti_call *call = &f->call;
    if (number == 0) call->flags = TUTTI_GRAD_ACCUMULATE;
    if (number == 1) call->flags = 2;
    if (number == 2) call->first_row = NULL;
    if (number == 3) f->first_row = 5;
    if (number == 4) f->first_row = -1;
    if (number == 5) call->saved = NULL;
    if (number == 6 && call->saved_bytes) call->saved_bytes--;
    if (number == 7) call->step = f->step ? s->step : NULL;
    if (number == 8) call->step = NULL;
    if (number == 9) call->leaves = 2, call->leaf_rows = halves;
    if (number == 10) call->in[TUTTI_MAX_SLOTS - 1] = &f->tensors[0][0];
}

/* Applies a change; false past the last. */
static bool change(subject *s, int number, char what[128])
{
    const layer_fixture *f = &s->f;
    for (int i = 0; i < f->type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            if (!slot_has(f, i, gradient)) continue;
            if (number < TENSOR_CHANGES) {
                snprintf(what, 128, "change %d of %s", number, slot_name(f, i, gradient));
                change_tensor(s, i, gradient, number);
                return true;
            }
            number -= TENSOR_CHANGES;
        }
    for (int i = 0; i < tutti_layer_param_count(f->layer); i++, number -= PARAM_CHANGES)
        if (number < PARAM_CHANGES) {
            snprintf(what, 128, "change %d of %s", number, tutti_layer_param(f->layer, i)->name);
            change_param(s, i, number);
            return true;
        }
    snprintf(what, 128, "change %d of the rest", number);
    if (number < OTHER_CHANGES) change_other(s, number);
    return number < OTHER_CHANGES;
}

static void open_subject(subject *s, tutti_context *ctx, const layer_kind *kind,
                         const char *options)
{
    open_layer(&s->f, ctx, kind->name, options, ROWS, true);
    int64_t most = 0;
    for (int i = 0; i < s->f.type->slot_count; i++)
        most = s->f.shapes[i].cols > most ? s->f.shapes[i].cols : most;
    for (int i = 0; i < tutti_layer_param_count(s->f.layer); i++) {
        const int64_t count = tutti_tensor_count(&tutti_layer_param(s->f.layer, i)->value);
        most = count > most ? count : most;
    }
    s->spare = harness_buffer_make(ctx, TUTTI_F64, ROWS, most, 0, 0);
    s->step = NULL;
    if (!s->f.step) return;
    CHECK_OK(tutti_step_block_create(ctx, &s->step));
    CHECK_OK(tutti_step_block_set(s->step, ctx,
                                  &(tutti_step_values){.step = 9, .loss_weight = 2, .seed = 1}));
}

static void close_subject(subject *s)
{
    tutti_context *ctx = s->f.ctx;
    close_layer(&s->f);
    harness_buffer_free(ctx, &s->spare);
    tutti_step_block_destroy(&s->step);
}

/* All memory of a subject as before any call. */
static void reset(subject *s)
{
    for (int i = 0; i < s->f.type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++)
            if (slot_written(&s->f, i, gradient, gradient))
                harness_buffer_poison(s->f.ctx, &s->f.buffers[i][gradient]);
    harness_buffer_poison(s->f.ctx, &s->f.saved);
    fill_all(&s->f, 8);
    double *zeros = harness_calloc((size_t)(s->spare.rows * s->spare.cols), sizeof *zeros);
    harness_buffer_put(s->f.ctx, &s->spare, zeros);
    free(zeros);
}

/* Both directions of the changed call on both subjects; true if both were right. */
static bool compare(subject *known, subject *fresh, const char *what)
{
    bool right = true;
    for (int backward = 0; backward <= (known->f.kind->backward != NULL); backward++) {
        subject *both[] = {known, fresh};
        tutti_status status[2];
        char message[2][512];
        for (int i = 0; i < 2; i++) {
            layer_fixture *f = &both[i]->f;
            status[i] =
                (backward ? tutti_layer_backward : tutti_layer_forward)(f->layer, f->ctx, &f->call);
            snprintf(message[i], sizeof message[i], "%s",
                     status[i] == TUTTI_OK ? "" : tutti_last_error());
        }
        CHECK(status[0] == status[1] && strcmp(message[0], message[1]) == 0,
              "%s, %s: '%s', on a new context '%s'", what, backward ? "backward" : "forward",
              message[0], message[1]);
        right = right && status[1] == TUTTI_OK;
    }
    return right;
}

/* Calls that the change made invalid, and those that it did not: there must be some of both. */
static int refused, accepted;

static void check_changes(const layer_kind *kind, const char *options)
{
    tutti_context *ctx = harness_new_context(0, 1);
    subject known, fresh;
    open_subject(&known, harness_context(), kind, options);
    open_subject(&fresh, ctx, kind, options);
    for (int number = 0;; number++) {
        const subject known_before = known, fresh_before = fresh;
        tutti_param params[2][PARAMS];
        const int param_count = tutti_layer_param_count(known.f.layer);
        for (int i = 0; i < param_count; i++) {
            params[0][i] = *tutti_layer_param(known.f.layer, i);
            params[1][i] = *tutti_layer_param(fresh.f.layer, i);
        }
        reset(&known);
        CHECK_OK(tutti_layer_forward(known.f.layer, known.f.ctx, &known.f.call));
        if (kind->backward)
            CHECK_OK(tutti_layer_backward(known.f.layer, known.f.ctx, &known.f.call));
        reset(&known);
        reset(&fresh);
        CHECK_OK(tutti_context_trim(ctx)); /* forgets its calls */
        char what[128];
        const bool changed = change(&known, number, what) && change(&fresh, number, what);
        if (changed && compare(&known, &fresh, what)) {
            accepted++;
            check_same("the other memory", &known.f, &known.spare, &fresh.f, &fresh.spare);
        } else
            refused++;
        known = known_before, fresh = fresh_before;
        for (int i = 0; i < param_count; i++) {
            *tutti_layer_param(known.f.layer, i) = params[0][i];
            *tutti_layer_param(fresh.f.layer, i) = params[1][i];
        }
        check_same_results(&known.f, &fresh.f, true);
        if (!changed) break;
    }
    close_subject(&known);
    close_subject(&fresh);
    tutti_context_destroy(&ctx);
}

static void test_changes(void)
{
    refused = accepted = 0;
    for_all(check_changes);
    CHECK(refused > accepted && accepted > 100, "%d calls refused, %d accepted", refused, accepted);
}

/* A layer may get the address of one that was destroyed. */
static void test_address(void)
{
    layer_fixture f;
    open_layer(&f, harness_context(), "softmax", "cols=6", ROWS, true);
    fill_all(&f, 3);
    for (int i = 0; i < 8; i++) {
        run_both(&f);
        tutti_layer_destroy(&f.layer);
        CHECK_OK(tutti_layer_create_by_name(f.ctx, "softmax", "cols=3", &f.layer));
        CHECK_FAILS(TUTTI_ERR_ARG, "columns", tutti_layer_forward(f.layer, f.ctx, &f.call));
        CHECK_FAILS(TUTTI_ERR_ARG, "columns", tutti_layer_backward(f.layer, f.ctx, &f.call));
        tutti_layer_destroy(&f.layer);
        CHECK_OK(tutti_layer_create_by_name(f.ctx, "softmax", "cols=6", &f.layer));
    }
    close_layer(&f);
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"changed calls", test_changes},
        {"a layer's address", test_address},
    };
    return harness_main(argc, argv, "recent calls", tests, HARNESS_COUNT(tests));
}
