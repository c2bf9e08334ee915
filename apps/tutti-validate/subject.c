/* A case that is ready to be run; subject.h. */
#include "subject.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/exit_code.h"
#include "run.h"

int subject_fail(const subject *s, const char *format, ...)
{
    char text[APP_MESSAGE_MAX / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return app_fail(APP_FAILED, "%s: case %s: %s", s->source->name, s->which->name, text);
}

int subject_explain(const subject *s, int code)
{
    if (code == APP_OK || app_failure_is_comm()) return code;
    char text[APP_MESSAGE_MAX / 2];
    snprintf(text, sizeof text, "%.500s", app_failure());
    if (strstr(text, s->source->name)) return code; /* it says so itself */
    return subject_fail(s, "%s", text);
}

bool subject_is_result(const tutti_case_tensor *tensor)
{
    return tensor->part == TUTTI_CASE_EXPECTED || tensor->part == TUTTI_CASE_EXPECTED_GRAD;
}

bool subject_has_rows(const subject *s, const tutti_case_tensor *tensor)
{
    if (tensor->part == TUTTI_CASE_PARAMS) return false;
    if (s->sum_slot >= 0 && tensor == s->out[s->sum_slot]) return false;
    for (int i = 0; i < s->param_count; i++)
        if (tensor == s->grad[i]) return false;
    return true;
}

int64_t subject_row(const subject *s, const tutti_case_tensor *tensor)
{
    int64_t row = 1;
    for (int i = subject_has_rows(s, tensor) ? 1 : 0; i < tensor->ndim; i++) row *= tensor->dims[i];
    return row;
}

int64_t subject_rows_of(const subject *s, const tutti_case_tensor *tensor, int64_t count)
{
    return subject_has_rows(s, tensor) ? count : tensor->dims[0];
}

/* Matching */

/* The index of a slot of this role and name; −1: there is none. */
static int slot_of(const tutti_layer_type *type, tutti_slot_role role, const char *name)
{
    for (int i = 0, index = 0; i < type->slot_count; i++) {
        if (type->slots[i].role != role) continue;
        if (strcmp(type->slots[i].name, name) == 0) return index;
        index++;
    }
    return -1;
}

/* The name of a role's slot; NULL: there is none. */
static const char *slot_name(const tutti_layer_type *type, tutti_slot_role role, int index)
{
    for (int i = 0; i < type->slot_count; i++)
        if (type->slots[i].role == role && index-- == 0) return type->slots[i].name;
    return NULL;
}

static int param_of(const subject *s, const char *name)
{
    for (int i = 0; i < s->param_count; i++)
        if (strcmp(tutti_layer_param(s->layer, i)->name, name) == 0) return i;
    return -1;
}

static int no_such(const subject *s, const tutti_case_tensor *tensor)
{
    return subject_fail(s, "%s/%s: a %s with the options \"%s\" has no such tensor",
                        tutti_case_part_name(tensor->part), tensor->name, s->which->layer,
                        s->which->options);
}

static int match_grad(subject *s, const tutti_layer_type *type, const tutti_case_tensor *tensor)
{
    int slot = slot_of(type, TUTTI_SLOT_IN, tensor->name + 1), param = param_of(s, tensor->name + 1);
    if (tensor->name[0] != 'd' || (slot < 0 && param < 0)) return no_such(s, tensor);
    if (slot >= 0)
        s->din[slot] = tensor;
    else
        s->grad[param] = tensor;
    s->backward = true;
    return APP_OK;
}

static int match(subject *s, const tutti_layer_type *type, const tutti_case_tensor *tensor)
{
    const bool gradient = tensor->part == TUTTI_CASE_UPSTREAM;
    int slot = -1;
    switch (tensor->part) {
    case TUTTI_CASE_INPUTS:
        slot = slot_of(type, TUTTI_SLOT_IN, tensor->name);
        if (slot >= 0) s->in[slot] = tensor;
        break;
    case TUTTI_CASE_PARAMS:
        slot = param_of(s, tensor->name);
        if (slot >= 0) s->param[slot] = tensor;
        break;
    case TUTTI_CASE_UPSTREAM:
    case TUTTI_CASE_EXPECTED:
        if (!gradient || tensor->name[0] == 'd')
            slot = slot_of(type, TUTTI_SLOT_OUT, tensor->name + (gradient ? 1 : 0));
        if (slot >= 0) *(gradient ? &s->upstream[slot] : &s->out[slot]) = tensor;
        break;
    case TUTTI_CASE_EXPECTED_GRAD:
        return match_grad(s, type, tensor);
    default:
        break;
    }
    return slot < 0 ? no_such(s, tensor) : APP_OK;
}

static bool same_shape(const tutti_case_tensor *tensor, const tutti_tensor *param)
{
    bool same = tensor->ndim == param->ndim;
    for (int i = 0; same && i < param->ndim; i++) same = tensor->dims[i] == param->dims[i];
    return same;
}

static int check_params(const subject *s)
{
    for (int i = 0; i < s->param_count; i++) {
        const tutti_param *param = tutti_layer_param(s->layer, i);
        if (!s->param[i]) return subject_fail(s, "params/%s is missing", param->name);
        if (!same_shape(s->param[i], &param->value))
            return subject_fail(s, "params/%s is not of the shape that the layer's %s has",
                                param->name, param->name);
        if (s->grad[i] && !same_shape(s->grad[i], &param->value))
            return subject_fail(s, "expected_grad/d%s is not of the shape that the layer's %s has",
                                param->name, param->name);
    }
    return APP_OK;
}

/* What the slots of outputs need beside what is expected. */
static int complete(subject *s, const tutti_layer_type *type)
{
    bool upstream = false;
    s->sum_slot = slot_of(type, TUTTI_SLOT_OUT, "loss_sum");
    s->kept_slot = -1;
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++) {
        upstream = upstream || s->upstream[i];
        if (!s->out[i]) s->out[i] = s->upstream[i]; /* of one shape and type */
    }
    if (s->backward && !upstream)
        return subject_fail(s, "gradients are expected, but there is no upstream/d%s",
                            slot_name(type, TUTTI_SLOT_OUT, 0));
    int residual = slot_of(type, TUTTI_SLOT_IN, "residual"), sum = slot_of(type, TUTTI_SLOT_OUT, "sum");
    const char *name;
    for (int i = 0; (name = slot_name(type, TUTTI_SLOT_IN, i)) != NULL; i++)
        if (!s->in[i] && i != residual) return subject_fail(s, "inputs/%s is missing", name);
    if (residual >= 0 && sum >= 0 && s->in[residual]) {
        s->kept_slot = sum; /* the norms' headers: what was normalised */
        if (!s->out[sum] && s->backward) s->out[sum] = s->in[0];
    }
    return check_params(s);
}

/* Which tensor of the case a name in a layer's message means; NULL: none. */
static const char *group_of(const subject *s, const char *name)
{
    static const tutti_case_part parts[] = {TUTTI_CASE_INPUTS, TUTTI_CASE_UPSTREAM,
                                            TUTTI_CASE_EXPECTED, TUTTI_CASE_EXPECTED_GRAD,
                                            TUTTI_CASE_PARAMS};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (tutti_case_find(s->which, parts[i], name)) return tutti_case_part_name(parts[i]);
    /* one that is not there */
    const tutti_layer_type *type = tutti_layer_type_of(s->layer);
    if (slot_of(type, TUTTI_SLOT_IN, name) >= 0) return tutti_case_part_name(TUTTI_CASE_INPUTS);
    if (slot_of(type, TUTTI_SLOT_OUT, name) >= 0) return tutti_case_part_name(TUTTI_CASE_EXPECTED);
    if (name[0] != 'd') return NULL;
    if (slot_of(type, TUTTI_SLOT_OUT, name + 1) >= 0) return tutti_case_part_name(TUTTI_CASE_UPSTREAM);
    if (slot_of(type, TUTTI_SLOT_IN, name + 1) >= 0) return tutti_case_part_name(TUTTI_CASE_EXPECTED_GRAD);
    return NULL;
}

/* The layer's message begins "softmax: x is bf16"; the user's tensor is inputs/x. */
static int blame(const subject *s, int code)
{
    const char *word = strstr(app_failure(), ": ");
    char name[TUTTI_CASE_NAME_MAX] = "", text[APP_MESSAGE_MAX / 2];
    for (size_t i = 0;
         word && i + 1 < sizeof name && (isalnum((unsigned char)word[2 + i]) || word[2 + i] == '_');
         i++)
        name[i] = word[2 + i];
    const char *group = group_of(s, name);
    if (!group) return subject_explain(s, code);
    snprintf(text, sizeof text, "%.500s", app_failure());
    return subject_fail(s, "%s/%s: %s", group, name, text);
}

static int set_step(validator *v, subject *s)
{
    tutti_step_values values = {.step = 1, .loss_weight = 1};
    values.loss_weight = s->which->loss_weight;
    values.loss_scale = s->which->loss_scale;
    APP_CHECK(tutti_step_block_create(v->ctx, &s->step));
    return app_check(tutti_step_block_set(s->step, v->ctx, &values));
}

static int make(validator *v, subject *s)
{
    const tutti_case *which = s->which;
    if (tutti_layer_create_by_name(v->ctx, which->layer, which->options, &s->layer) != TUTTI_OK)
        return subject_fail(s, "layer %s, options \"%.200s\": %s", which->layer, which->options,
                            tutti_last_error());
    const tutti_layer_type *type = tutti_layer_type_of(s->layer);
    s->param_count = tutti_layer_param_count(s->layer);
    if (s->param_count > PARAMS_MAX)
        return subject_fail(s, "layer %s has %d parameters, want at most %d", which->layer,
                            s->param_count, PARAMS_MAX);
    s->same_bits = strcmp(which->layer, "linear") != 0;
    for (int i = 0; i < which->tensor_count; i++) APP_TRY(match(s, type, &which->tensors[i]));
    APP_TRY(complete(s, type));
    APP_TRY(set_step(v, s));
    const run_plan probe = {.probe = true};
    int code = run_case(v, s, &probe, NULL);
    return code == APP_OK ? code : blame(s, code);
}

int subject_make(validator *v, const source *source, const tutti_case *which, subject *s)
{
    *s = (subject){.source = source, .which = which, .sum_slot = -1};
    const int code = make(v, s);
    if (code != APP_OK) subject_drop(s);
    return code;
}

void subject_drop(subject *s)
{
    tutti_step_block_destroy(&s->step);
    tutti_layer_destroy(&s->layer);
}
