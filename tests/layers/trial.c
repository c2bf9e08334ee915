/* See trial.h. */
#include "trial.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EACH_SLOT(t, i) for (int i = 0; i < (t)->type->slot_count; i++)
#define EACH_PARAM(t, i) for (int i = 0; i < (t)->param_count; i++)

trial_desc trial_usual(const trial_kind *kind, int64_t rows, const char *options, ...)
{
    trial_desc c = {.kind = kind, .rows = rows, .first_row = kind->first_row, .step = kind->step};
    if (c.step.step == 0) c.step = (tutti_step_values){.step = 1, .loss_weight = 1};
    va_list args;
    va_start(args, options);
    const int length = vsnprintf(c.options, sizeof c.options, options, args);
    va_end(args);
    CHECK(length < (int)sizeof c.options, "no room for options of %d characters", length);
    return c;
}

static bool present(const trial *t, int slot, bool gradient)
{
    const unsigned absent = gradient ? t->c.absent_grads : t->c.absent;
    return t->type->slots[slot].role != TUTTI_SLOT_KEPT && !(absent >> slot & 1) &&
           (!gradient || (t->shapes[slot].flags & TUTTI_SLOT_GRAD));
}

static bool written(const trial *t, int slot, bool gradient)
{
    return t->type->slots[slot].role == (gradient ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT);
}

/* Sets a tensor, or NULL, in a call. */
static void place(const trial *t, tutti_call *call, int slot, bool gradient, tutti_tensor *tensor)
{
    const int index = t->shapes[slot].index;
    const bool in = t->type->slots[slot].role == TUTTI_SLOT_IN;
    if (in && gradient)
        call->din[index] = tensor;
    else if (in)
        call->in[index] = tensor;
    else if (gradient)
        call->upstream[index] = tensor;
    else
        call->out[index] = tensor;
}

static void add_tensor(trial_tensor list[], int *count, trial_tensor tensor, const char *name)
{
    snprintf(tensor.name, sizeof tensor.name, "%s%s", tensor.gradient ? "d" : "", name);
    list[(*count)++] = tensor;
}

/* A tensor's numbers depend on the options and the rows, not on its layout or on the other
 * tensors. */
static harness_rng rng_of(const trial *t, int tensor)
{
    harness_rng rng = {(uint64_t)t->c.rows * 1000003 + (uint64_t)tensor};
    for (const char *c = t->c.options; *c; c++) rng.state = rng.state * 31 + (unsigned char)*c;
    return rng;
}

/* A roughly normal number made one of the slot's range, often one of its ends. */
static double into_range(const tutti_slot *slot, double value)
{
    const double width = slot->most - slot->least;
    return fmin(fmax(slot->least + width / 2 * (1 + value), slot->least), slot->most);
}

/* Tensors with one element per row have one dimension. */
static void make_tensor(trial *t, int slot, bool gradient)
{
    harness_rng rng = rng_of(t, 2 * slot + gradient);
    const tutti_slot *row = &t->type->slots[slot];
    const tutti_slot_shape *shape = &t->shapes[slot];
    const bool list = !row->cols, sum = shape->flags & TUTTI_SLOT_SUM;
    const bool output = written(t, slot, gradient);
    const int64_t rows = sum ? 1 : t->c.rows * shape->lines;
    const int further = (2 * slot + gradient) * t->c.place.apart;
    const layout flat = {0, t->c.place.misaligned + further, 0};
    const layout by_row = {t->c.place.pad + further, flat.misaligned, 0};
    const double deviation = t->c.kind->deviation != 0 && !gradient ? t->c.kind->deviation : 1;
    operand *o = &t->slots[slot][gradient];
    *o = operand_make(t->ctx, &rng, shape->dtype, list ? 1 : rows,
                      list ? rows : shape->cols / shape->lines, list ? flat : by_row,
                      gradient ? 0.1 : 0.25, output || shape->below > 0 ? -1 : deviation);
    if (list) o->tensor = tutti_tensor_1d(o->buffer.data, shape->dtype, rows);
    if (row->lines) operand_split(o, shape->lines);
    for (int64_t i = 0; i < o->count && shape->below > 0; i++)
        o->values[i] = (double)(harness_random(&rng) % (uint64_t)shape->below);
    for (int64_t i = 0; i < o->count && row->least < row->most; i++)
        o->values[i] = harness_round(shape->dtype, into_range(row, o->values[i]));
    if (shape->below > 0 || row->least < row->most) operand_put(t->ctx, o);
    place(t, &t->call, slot, gradient, &o->tensor);
    add_tensor(output ? t->results : t->inputs, output ? &t->result_count : &t->input_count,
               (trial_tensor){.at = o, .gradient = gradient, .by_row = !sum, .index = slot},
               row->name);
}

static int number_of(const trial *t, const tutti_param *param)
{
    int number = 0;
    while (strcmp(t->type->params[number].name, param->name) != 0) number++;
    return number;
}

/* Values have their initial magnitude.  Gradients to add to have values, those to overwrite NaN. */
static void make_param(trial *t, int i)
{
    harness_rng rng = rng_of(t, 2 * REFERENCE_SLOTS + i);
    tutti_param *param = tutti_layer_param(t->layer, i);
    const int64_t *dims = param->value.dims, rows = param->value.ndim > 1 ? dims[0] : 1;
    const int64_t cols = tutti_tensor_count(&param->value) / rows;
    const double deviation = param->init == TUTTI_INIT_ONE       ? 0.3
                             : param->init == TUTTI_INIT_UNIFORM ? 1.5 * param->init_bound
                                                                 : 0.5;
    const layout flat = {0, t->c.place.misaligned, 0};
    tutti_dtype sums = t->c.wide_grads || param->value.dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    EACH_SLOT(t, k)
    if (t->shapes[k].dtype == TUTTI_F64 && !(t->shapes[k].flags & TUTTI_SLOT_SUM)) sums = TUTTI_F64;
    operand *value = &t->params[i][0], *grad = &t->params[i][1];
    *value = operand_make(t->ctx, &rng, param->value.dtype, rows, cols, flat,
                          param->init == TUTTI_INIT_ONE, deviation);
    *grad = operand_make(t->ctx, &rng, sums, rows, cols, flat, 0, t->c.accumulate ? 1 : -1);
    const bool trained = !(t->c.untrained >> i & 1);
    bind_param(t->layer, i, value, trained ? grad : NULL);
    trial_tensor tensor = {.at = value, .param = true, .index = number_of(t, param)};
    add_tensor(t->inputs, &t->input_count, tensor, param->name);
    tensor.at = grad;
    tensor.gradient = true;
    if (!trained) return;
    add_tensor(t->results, &t->result_count, tensor, param->name);
    if (!t->c.accumulate) return;
    t->old[tensor.index] = harness_calloc((size_t)grad->count, sizeof(double));
    memcpy(t->old[tensor.index], grad->values, (size_t)grad->count * sizeof(double));
}

/* Memory for what the table says is kept, if anything is. */
static void make_saved(trial *t)
{
    size_t kept = 0;
    EACH_SLOT(t, i)
    if (t->type->slots[i].role == TUTTI_SLOT_KEPT)
        kept += (size_t)(t->c.rows * t->shapes[i].cols) * tutti_dtype_size(t->shapes[i].dtype);
    t->saved = saved_make(t->ctx, t->layer, t->c.rows);
    t->call.saved = t->saved.data;
    t->call.saved_bytes = (size_t)t->saved.cols;
    CHECK(kept ? t->call.saved_bytes >= kept : t->call.saved_bytes == 0,
          "saved has %zu bytes, for %zu that are kept", t->call.saved_bytes, kept);
}

static void make_step(trial *t)
{
    if (!(t->type->flags & TUTTI_LAYER_STEP)) return;
    CHECK_OK(tutti_step_block_create(t->ctx, &t->step));
    CHECK_OK(tutti_step_block_set(t->step, t->ctx, &t->c.step));
    t->call.step = t->step;
}

bool trial_open(trial *t, tutti_context *ctx, const trial_desc *desc)
{
    *t = (trial){.c = *desc, .ctx = ctx};
    harness_where(
        "%s %s rows %lld from %lld pad %d misaligned %d apart %d absent %x, gradients %x, %x%s%s",
        desc->kind->name, desc->options, (long long)desc->rows, (long long)desc->first_row,
        desc->place.pad, desc->place.misaligned, desc->place.apart, desc->absent,
        desc->absent_grads, desc->untrained, desc->accumulate ? " accumulate" : "",
        desc->forward_only ? " not saved" : "");
    if (!CHECK_OK(tutti_layer_create_by_name(ctx, desc->kind->name, desc->options, &t->layer)))
        return false;
    t->type = tutti_layer_type_of(t->layer);
    t->param_count = tutti_layer_param_count(t->layer);
    EACH_SLOT(t, i) CHECK_OK(tutti_layer_slot_shape(t->layer, i, &t->shapes[i]));
    for (int i = 0; i < 2 * t->type->slot_count; i++)
        if (present(t, i / 2, i % 2)) make_tensor(t, i / 2, i % 2);
    EACH_PARAM(t, i) make_param(t, i);
    make_saved(t);
    if (desc->forward_only) trial_save_nothing(t);
    t->call.first_row = &t->c.first_row;
    t->call.flags = desc->accumulate ? TUTTI_GRAD_ACCUMULATE : 0;
    make_step(t);
    if (!desc->kind->draw) return true;
    desc->kind->draw(t);
    trial_put(t);
    return true;
}

void trial_save_nothing(trial *t)
{
    t->c.forward_only = true;
    t->call.saved = NULL;
    t->call.saved_bytes = 0;
}

void trial_close(trial *t)
{
    CHECK_OK(tutti_context_check(t->ctx));
    tutti_layer_destroy(&t->layer);
    tutti_step_block_destroy(&t->step);
    for (int i = 0; i < REFERENCE_SLOTS * 2; i++) operand_free(t->ctx, &t->slots[i / 2][i % 2]);
    for (int i = 0; i < REFERENCE_PARAMS * 2; i++) operand_free(t->ctx, &t->params[i / 2][i % 2]);
    for (int i = 0; i < REFERENCE_PARAMS; i++) free(t->old[i]);
    if (t->saved.mirror) harness_buffer_free(t->ctx, &t->saved);
    harness_where(NULL);
}

operand *trial_find(trial *t, const char *name)
{
    for (int i = 0; i < t->input_count; i++)
        if (strcmp(t->inputs[i].name, name) == 0) return t->inputs[i].at;
    for (int i = 0; i < t->result_count; i++)
        if (strcmp(t->results[i].name, name) == 0) return t->results[i].at;
    CHECK(false, "there is no %s", name);
    exit(1);
}

void trial_put(trial *t)
{
    for (int i = 0; i < t->input_count; i++) operand_put(t->ctx, t->inputs[i].at);
}

bool trial_forward(trial *t)
{
    return CHECK_OK(tutti_layer_forward(t->layer, t->ctx, &t->call));
}

/* The output that backward reads instead of a slot's input; -1: none. */
static int replacement(const trial *t, int slot)
{
    EACH_SLOT(t, i)
    {
        const char *replaces = t->type->slots[i].replaces;
        if (replaces && strcmp(replaces, t->type->slots[slot].name) == 0 && present(t, i, false))
            return i;
    }
    return -1;
}

static bool has_backward(const trial *t)
{
    return (t->type->flags & TUTTI_LAYER_BACKWARD) && !t->c.forward_only;
}

bool trial_backward(trial *t)
{
    if (!has_backward(t)) return true;
    tutti_call call = t->call;
    EACH_SLOT(t, i)
    {
        const int other = replacement(t, i);
        if (other >= 0)
            call.in[t->shapes[i].index] = t->call.out[t->shapes[other].index];
        else if (t->type->slots[i].role != TUTTI_SLOT_KEPT &&
                 !(t->shapes[i].flags & TUTTI_SLOT_READ))
            place(t, &call, i, false, NULL);
    }
    return CHECK_OK(tutti_layer_backward(t->layer, t->ctx, &call));
}

bool trial_run(trial *t)
{
    return trial_forward(t) && trial_backward(t);
}

void trial_get(trial *t, bool backward)
{
    for (int i = 0; i < t->result_count; i++)
        if (t->results[i].gradient == backward)
            operand_get(t->ctx, t->results[i].at, t->results[i].name);
    for (int i = 0; i < t->input_count; i++)
        operand_check_unchanged(t->ctx, t->inputs[i].at, t->inputs[i].name);
    EACH_PARAM(t, i)
    if (t->c.untrained >> i & 1)
        operand_check_unchanged(t->ctx, &t->params[i][1], "a gradient that is not bound");
    CHECK(harness_buffer_intact(t->ctx, &t->saved), "saved: written outside");
}

static reference_tensor *reference_of(reference_problem *p, const trial_tensor *tensor)
{
    return &(tensor->param ? p->params : p->slots)[tensor->index][tensor->gradient];
}

/* The problem of a direction; an output that backward reads, also instead of an input, is given as
 * forward stored it. */
static reference_problem problem_of(const trial *t, bool backward)
{
    reference_problem p = {.layer = t->layer,
                           .options = t->c.options,
                           .rows = t->c.rows,
                           .first_row = t->c.first_row,
                           .step = t->c.step};
    for (int i = 0; i < t->input_count; i++)
        if (backward || !t->inputs[i].gradient)
            reference_of(&p, &t->inputs[i])->given = t->inputs[i].at->values;
    EACH_SLOT(t, i)
    if (backward && written(t, i, false) && present(t, i, false) &&
        ((t->shapes[i].flags & TUTTI_SLOT_READ) || t->type->slots[i].replaces))
        p.slots[i][0].given = t->slots[i][0].values;
    for (int i = 0; i < REFERENCE_PARAMS && backward; i++) p.params[i][1].given = t->old[i];
    return p;
}

static void check_direction(trial *t, bool backward)
{
    trial_get(t, backward);
    reference_problem p = problem_of(t, backward);
    expected wanted[HARNESS_COUNT(t->results)] = {0};
    for (int i = 0; i < t->result_count; i++) {
        const trial_tensor *r = &t->results[i];
        if (r->gradient != backward) continue;
        wanted[i] = expected_make(r->at->count);
        reference_tensor *to = reference_of(&p, r);
        to->value = wanted[i].want;
        to->bound = wanted[i].bound;
    }
    const char *wrong = reference_compute(&p);
    CHECK(!wrong, "the reference: %s", wrong);
    for (int i = 0; i < t->result_count && !wrong; i++) {
        const trial_tensor *r = &t->results[i];
        const bool sharp = t->c.kind->sharp && t->c.kind->sharp(t, r);
        if (r->gradient == backward) check_expected(r->name, r->at, &wanted[i], sharp);
    }
    for (int i = 0; i < t->result_count; i++) expected_free(&wanted[i]);
}

void trial_check(trial *t)
{
    check_direction(t, false);
    if (has_backward(t)) check_direction(t, true);
}

void trial_case(const trial_desc *desc)
{
    trial t;
    if (trial_open(&t, harness_context(), desc) && trial_run(&t)) trial_check(&t);
    trial_close(&t);
}

void trial_same_bits(const trial *a, const trial *b)
{
    for (int i = 0; i < a->result_count; i++)
        check_same_bits(a->ctx, a->results[i].name, a->results[i].at, b->results[i].at);
}

/* The sum of the outputs, each times its upstream gradient; a sum over rows has none, but the
 * factors of the step. */
static double loss_of(void *self)
{
    trial *t = self;
    trial_put(t);
    trial_forward(t);
    const double factors = t->c.step.loss_weight * t->c.step.loss_scale;
    double total = 0;
    EACH_SLOT(t, i)
    {
        operand *y = &t->slots[i][0], *dy = &t->slots[i][1];
        const bool sum = t->shapes[i].flags & TUTTI_SLOT_SUM;
        if (t->type->slots[i].role != TUTTI_SLOT_OUT || !(sum || dy->values) || !y->values)
            continue;
        operand_get(t->ctx, y, t->type->slots[i].name);
        for (int64_t k = 0; k < y->count; k++) /* hidden values may be infinite */
            if (isfinite(y->values[k])) total += y->values[k] * (sum ? factors : dy->values[k]);
    }
    return total;
}

void trial_differences(trial *t, const char *name, operand *of, const operand *gradient)
{
    check_gradient(name, loss_of, t, of->values, of->count, gradient->values);
    trial_put(t);
}
