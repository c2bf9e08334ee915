/* A layer of any kind with everything that its calls need; see layer_fixture.h. */
#include "layer_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool slot_has(const layer_fixture *fix, int slot, bool gradient)
{
    return fix->type->slots[slot].role != TUTTI_SLOT_KEPT &&
           (!gradient || (fix->shapes[slot].flags & TUTTI_SLOT_GRAD));
}

void slot_put(layer_fixture *fix, int slot, bool gradient, tutti_tensor *tensor)
{
    const int index = fix->shapes[slot].index;
    if (fix->type->slots[slot].role == TUTTI_SLOT_IN) {
        if (gradient)
            fix->call.din[index] = tensor;
        else
            fix->call.in[index] = tensor;
    } else if (gradient)
        fix->call.upstream[index] = tensor;
    else
        fix->call.out[index] = tensor;
}

const char *slot_name(const layer_fixture *fix, int slot, bool gradient)
{
    static char names[2][64];
    static int turn;
    turn = !turn;
    snprintf(names[turn], sizeof names[turn], "%s%s", gradient ? "d" : "",
             fix->type->slots[slot].name);
    return names[turn];
}

bool slot_written(const layer_fixture *fix, int slot, bool gradient, bool backward)
{
    const tutti_slot_role role = fix->type->slots[slot].role;
    return slot_has(fix, slot, gradient) && gradient == backward &&
           role == (backward ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT);
}

bool slot_read(const layer_fixture *fix, int slot, bool gradient, bool backward)
{
    const tutti_slot_role role = fix->type->slots[slot].role;
    if (!slot_has(fix, slot, gradient)) return false;
    if (!backward) return role == TUTTI_SLOT_IN && !gradient;
    return gradient ? role == TUTTI_SLOT_OUT : (fix->shapes[slot].flags & TUTTI_SLOT_READ) != 0;
}

tutti_call_place slot_place(const layer_fixture *fix, int slot, bool gradient)
{
    static const tutti_call_part parts[][2] = {{TUTTI_PART_IN, TUTTI_PART_DIN},
                                               {TUTTI_PART_OUT, TUTTI_PART_UPSTREAM}};
    return (tutti_call_place){parts[fix->type->slots[slot].role][gradient],
                              fix->shapes[slot].index};
}

/* Lists of one number a row are tensors of one dimension, rows that are matrices of three. */
static void make_tensor(layer_fixture *fix, int slot, bool gradient)
{
    const tutti_slot_shape *shape = &fix->shapes[slot];
    const bool list = !fix->type->slots[slot].cols;
    const int64_t rows = shape->flags & TUTTI_SLOT_SUM ? 1 : fix->rows;
    harness_buffer *buffer = &fix->buffers[slot][gradient];
    tutti_tensor *tensor = &fix->tensors[slot][gradient];
    *buffer = harness_buffer_make(fix->ctx, shape->dtype, list ? 1 : rows,
                                  list ? rows : shape->cols, 0, 0);
    const int64_t dims[] = {rows, shape->lines, shape->cols / shape->lines};
    *tensor = list ? tutti_tensor_1d(buffer->data, shape->dtype, rows)
              : fix->type->slots[slot].lines
                  ? tutti_tensor_make(buffer->data, shape->dtype, 3, dims)
                  : harness_buffer_tensor(buffer);
}

static void bind_params(layer_fixture *fix)
{
    tutti_dtype sums = TUTTI_F32;
    for (int i = 0; i < fix->type->slot_count; i++)
        if (fix->shapes[i].dtype == TUTTI_F64 && !(fix->shapes[i].flags & TUTTI_SLOT_SUM))
            sums = TUTTI_F64;
    for (int i = 0; i < tutti_layer_param_count(fix->layer); i++) {
        tutti_param *param = tutti_layer_param(fix->layer, i);
        const int64_t count = tutti_tensor_count(&param->value);
        fix->params[i] = harness_buffer_make(fix->ctx, param->value.dtype, 1, count, 0, 0);
        fix->grads[i] = harness_buffer_make(fix->ctx, sums, 1, count, 0, 0);
        tutti_tensor value = param->value, grad = param->value;
        value.data = fix->params[i].data;
        grad.data = fix->grads[i].data;
        grad.dtype = sums;
        CHECK_OK(tutti_param_bind(param, &value, &grad));
    }
}

void open_layer(layer_fixture *fix, tutti_context *ctx, const char *kind, const char *options,
                int64_t rows, bool bound)
{
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_layer_create_by_name(ctx, kind, options, &layer));
    open_made(fix, ctx, layer, rows, bound);
}

void open_made(layer_fixture *fix, tutti_context *ctx, tutti_layer *layer, int64_t rows, bool bound)
{
    const tutti_layer_type *type = tutti_layer_type_of(layer);
    *fix = (layer_fixture){
        .ctx = ctx, .kind = find_kind(type->name), .type = type, .layer = layer, .rows = rows};
    CHECK(fix->type->slot_count <= SLOTS, "%d slots", fix->type->slot_count);
    for (int i = 0; i < fix->type->slot_count; i++)
        CHECK_OK(tutti_layer_slot_shape(fix->layer, i, &fix->shapes[i]));
    for (int i = 0; i < fix->type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++)
            if (slot_has(fix, i, gradient)) {
                make_tensor(fix, i, gradient);
                slot_put(fix, i, gradient, &fix->tensors[i][gradient]);
            }
    if (bound) bind_params(fix);
    const size_t bytes = tutti_layer_saved_bytes(fix->layer, rows);
    fix->saved = harness_buffer_make(ctx, TUTTI_U8, 1, (int64_t)bytes, 0, 0);
    fix->call.saved = bytes ? fix->saved.data : NULL;
    fix->call.saved_bytes = bytes;
    fix->call.first_row = &fix->first_row;
    if (!(type->flags & TUTTI_LAYER_STEP)) return;
    CHECK_OK(tutti_step_block_create(ctx, &fix->step));
    CHECK_OK(tutti_step_block_set(fix->step, ctx,
                                  &(tutti_step_values){.step = 3, .loss_weight = 1, .seed = 7}));
    fix->call.step = fix->step;
}

void close_layer(layer_fixture *fix)
{
    CHECK_OK(tutti_context_synchronize(fix->ctx));
    tutti_layer_destroy(&fix->layer);
    tutti_step_block_destroy(&fix->step);
    for (int i = 0; i < SLOTS; i++)
        for (int gradient = 0; gradient < 2; gradient++)
            if (fix->buffers[i][gradient].mirror)
                harness_buffer_free(fix->ctx, &fix->buffers[i][gradient]);
    for (int i = 0; i < PARAMS; i++) {
        if (fix->params[i].mirror) harness_buffer_free(fix->ctx, &fix->params[i]);
        if (fix->grads[i].mirror) harness_buffer_free(fix->ctx, &fix->grads[i]);
    }
    if (fix->saved.mirror) harness_buffer_free(fix->ctx, &fix->saved);
}

static void fill(layer_fixture *f, harness_buffer *buffer, harness_rng *rng, int64_t below,
                 const tutti_slot *slot)
{
    const int64_t count = buffer->rows * buffer->cols;
    double *values = harness_calloc((size_t)count, sizeof *values);
    if (buffer->dtype == TUTTI_I32)
        for (int64_t i = 0; i < count; i++)
            values[i] = (double)(harness_random(rng) % (uint64_t)below);
    else
        harness_fill(rng, values, count, buffer->dtype, 0.1, 1);
    for (int64_t i = 0; i < count && slot && slot->least < slot->most; i++)
        values[i] = fmin(fmax(values[i], slot->least), slot->most);
    harness_buffer_put(f->ctx, buffer, values);
    free(values);
}

void fill_all(layer_fixture *f, uint64_t seed)
{
    harness_rng rng = {seed};
    for (int i = 0; i < f->type->slot_count; i++) {
        if (slot_read(f, i, false, false))
            fill(f, &f->buffers[i][0], &rng, f->shapes[i].below, &f->type->slots[i]);
        if (slot_read(f, i, true, true)) fill(f, &f->buffers[i][1], &rng, 0, NULL);
    }
    for (int i = 0; i < tutti_layer_param_count(f->layer); i++) {
        fill(f, &f->params[i], &rng, 0, NULL);
        fill(f, &f->grads[i], &rng, 0, NULL);
    }
}

void run_both(layer_fixture *f)
{
    CHECK_OK(tutti_layer_forward(f->layer, f->ctx, &f->call));
    if (!f->kind->backward) return;
    const tutti_call forward = f->call;
    for (int i = 0; i < f->type->slot_count; i++)
        for (int j = 0; j < f->type->slot_count; j++)
            if (f->type->slots[i].replaces &&
                strcmp(f->type->slots[i].replaces, f->type->slots[j].name) == 0)
                slot_put(f, j, false, &f->tensors[i][0]);
    CHECK_OK(tutti_layer_backward(f->layer, f->ctx, &f->call));
    f->call = forward;
}

void check_same(const char *what, const layer_fixture *a, const harness_buffer *one,
                const layer_fixture *b, const harness_buffer *other)
{
    const size_t bytes = (size_t)(one->rows * one->cols) * tutti_dtype_size(one->dtype);
    unsigned char *bits = harness_calloc(2, bytes);
    harness_buffer_get_raw(a->ctx, one, bits);
    harness_buffer_get_raw(b->ctx, other, bits + bytes);
    CHECK(memcmp(bits, bits + bytes, bytes) == 0, "%s has other bits", what);
    free(bits);
}

void check_same_results(const layer_fixture *a, const layer_fixture *b, bool sums)
{
    for (int i = 0; i < a->type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++)
            if (slot_written(a, i, gradient, gradient) &&
                (sums || !(a->shapes[i].flags & TUTTI_SLOT_SUM)))
                check_same(slot_name(a, i, gradient), a, &a->buffers[i][gradient], b,
                           &b->buffers[i][gradient]);
    for (int i = 0; sums && i < tutti_layer_param_count(a->layer); i++)
        check_same(tutti_layer_param(a->layer, i)->name, a, &a->grads[i], b, &b->grads[i]);
}

/* Adds the type of this number to the options as "dtype=bf16", number 4 to the first of several
 * types only; false past the last. */
static bool with_types(const layer_kind *kind, const char *options, int number, char text[256])
{
    static const char *const names[] = {"f32", "f64", "f16", "bf16", "bf16"};
    const tutti_layer_type *type = tutti_layer_type_find(kind->name);
    int found = 0;
    snprintf(text, 256, "%s", options);
    for (int i = 0; i < type->option_count; i++) {
        if (strcmp(type->options[i].type, "dtype") != 0 || (number == 4 && found++ > 0)) continue;
        const size_t used = strlen(text);
        snprintf(text + used, 256 - used, ", %s=%s", type->options[i].name, names[number]);
    }
    return number < 4 || found > 1;
}

void for_all(void (*check)(const layer_kind *kind, const char *options))
{
    for (int i = 0; i < layer_kind_count; i++)
        for (int o = 0; kind_options(&layer_kinds[i], o); o++)
            for (int number = 0; number < 5; number++) {
                char text[256];
                if (!with_types(&layer_kinds[i], kind_options(&layer_kinds[i], o), number, text))
                    continue;
                harness_where("%s %s", layer_kinds[i].name, text);
                check(&layer_kinds[i], text);
            }
    harness_where(NULL);
}
