/* Prepares a case for running; subject.h. */
#include "subject.h"

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
    return app_fail(APP_FAILED, "%s: case %s: %s", s->source->name, s->test_case->name, text);
}

int subject_explain(const subject *s, int code)
{
    if (code == APP_OK || app_failure_is_comm()) return code;
    char text[APP_MESSAGE_MAX / 2];
    snprintf(text, sizeof text, "%.500s", app_failure());
    if (strstr(text, s->source->name)) return code; /* the message names the file already */
    return subject_fail(s, "%s", text);
}

bool subject_is_result(const tutti_case_tensor *tensor)
{
    return tensor->part == TUTTI_CASE_EXPECTED || tensor->part == TUTTI_CASE_EXPECTED_GRAD;
}

bool subject_is_sum(const subject *s, const tutti_case_tensor *tensor)
{
    for (int i = 0; i < s->type->slot_count; i++)
        if (tensor == s->slots[i].value) return s->slots[i].shape.flags & TUTTI_SLOT_SUM;
    return false;
}

bool subject_has_rows(const subject *s, const tutti_case_tensor *tensor)
{
    if (tensor->part == TUTTI_CASE_PARAMS || subject_is_sum(s, tensor)) return false;
    for (int i = 0; i < s->type->slot_count; i++)
        if (tensor == s->slots[i].grad && (s->slots[i].shape.flags & TUTTI_SLOT_SUM)) return false;
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

/* The slot of this name; NULL if there is none. */
static const subject_slot *slot_of(const subject *s, const char *name)
{
    for (int i = 0; name && i < s->type->slot_count; i++)
        if (strcmp(s->type->slots[i].name, name) == 0) return &s->slots[i];
    return NULL;
}

/* The slot or parameter for a tensor of the case; NULL if the layer has no such tensor. */
static const tutti_case_tensor **place_for(subject *s, const tutti_case_tensor *tensor)
{
    const tutti_case_part part = tensor->part;
    const bool gradient = part == TUTTI_CASE_UPSTREAM || part == TUTTI_CASE_EXPECTED_GRAD;
    const bool input = part == TUTTI_CASE_INPUTS || part == TUTTI_CASE_EXPECTED_GRAD;
    const char *name = tensor->name;
    if (gradient && (*name++ != 'd' || !(s->type->flags & TUTTI_LAYER_BACKWARD))) return NULL;
    for (int i = 0; part != TUTTI_CASE_PARAMS && i < s->type->slot_count; i++) {
        subject_slot *slot = &s->slots[i];
        if (slot->role == (input ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT) &&
            strcmp(s->type->slots[i].name, name) == 0 &&
            (!gradient || (slot->shape.flags & TUTTI_SLOT_GRAD)))
            return gradient ? &slot->grad : &slot->value;
    }
    const bool of_param = part == TUTTI_CASE_PARAMS || part == TUTTI_CASE_EXPECTED_GRAD;
    for (int i = 0; of_param && i < s->param_count; i++)
        if (strcmp(tutti_layer_param(s->layer, i)->name, name) == 0)
            return gradient ? &s->grad[i] : &s->param[i];
    return NULL;
}

static int match(subject *s, const tutti_case_tensor *tensor)
{
    const tutti_case_tensor **place = place_for(s, tensor);
    if (!place)
        return subject_fail(s, "%s/%s: a %s with the options \"%s\" has no such tensor",
                            tutti_case_part_name(tensor->part), tensor->name, s->test_case->layer,
                            s->test_case->options);
    *place = tensor;
    s->backward = s->backward || tensor->part == TUTTI_CASE_EXPECTED_GRAD;
    return APP_OK;
}

/* Fails with both shapes. */
static int wrong_shape(const subject *s, const tutti_case_tensor *tensor, int ndim,
                       const int64_t *dims, const char *why)
{
    return subject_fail(s, "%s/%s is %s, want %s%s", tutti_case_part_name(tensor->part),
                        tensor->name, tutti_case_shape(tensor->ndim, tensor->dims).text,
                        tutti_case_shape(ndim, dims).text, why);
}

/* The columns of a parameter may be stored in several dimensions, none of them 1. */
static int check_param_shape(const subject *s, const tutti_case_tensor *tensor,
                             const tutti_tensor *param)
{
    bool same = tensor->ndim == param->ndim, several = param->ndim == 1;
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) {
        same = same && tensor->dims[i] == param->dims[i];
        several = several && tensor->dims[i] > 1;
        count *= tensor->dims[i];
    }
    if (same || (several && count == param->dims[0])) return APP_OK;
    return wrong_shape(s, tensor, param->ndim, param->dims, "");
}

static int check_params(const subject *s)
{
    for (int i = 0; i < s->param_count; i++) {
        const tutti_param *param = tutti_layer_param(s->layer, i);
        if (!s->param[i]) return subject_fail(s, "params/%s is missing", param->name);
        APP_TRY(check_param_shape(s, s->param[i], &param->value));
        if (s->param[i]->dtype != param->value.dtype)
            return subject_fail(s, "params/%s is %s, want %s", param->name,
                                tutti_dtype_name(s->param[i]->dtype),
                                tutti_dtype_name(param->value.dtype));
        if (s->grad[i]) APP_TRY(check_param_shape(s, s->grad[i], &param->value));
    }
    return APP_OK;
}

/* A row that is a matrix is stored as [lines, columns]. */
static int check_matrix(const subject *s, const tutti_slot_shape *shape,
                        const tutti_case_tensor *tensor)
{
    const int64_t dims[] = {s->test_case->rows, shape->lines, shape->cols / shape->lines};
    if (tensor->ndim == 3 && tensor->dims[1] == dims[1] && tensor->dims[2] == dims[2])
        return APP_OK;
    return wrong_shape(s, tensor, 3, dims, "");
}

/* Checks the columns of a slot's value or gradient.  The probe would do so too, but its message
 * would name a shape without rows. */
static int check_columns(const subject *s, int slot, const tutti_case_tensor *tensor)
{
    const tutti_slot_shape *shape = &s->slots[slot].shape;
    if (tensor && s->type->slots[slot].lines) return check_matrix(s, shape, tensor);
    if (!tensor || subject_row(s, tensor) == shape->cols) return APP_OK;
    const bool sum = !subject_has_rows(s, tensor), named = s->type->slots[slot].cols != NULL;
    const int64_t dims[] = {sum ? shape->cols : s->test_case->rows, shape->cols};
    char why[48];
    snprintf(why, sizeof why, " (%lld columns)", (long long)shape->cols);
    return wrong_shape(s, tensor, named && !sum ? 2 : 1, dims, why);
}

/* Checks that no input or upstream gradient is missing, and adds outputs and gradients that are not
 * expected but that a call requires. */
static int complete(subject *s)
{
    for (int i = 0; i < s->type->slot_count; i++) {
        const tutti_slot *row = &s->type->slots[i];
        subject_slot *slot = &s->slots[i];
        const unsigned flags = slot->shape.flags;
        const bool grad = s->backward && (flags & TUTTI_SLOT_GRAD);
        const bool grad_needed = grad && !(flags & TUTTI_SLOT_GRAD_OPTIONAL);
        const subject_slot *with = slot_of(s, row->with), *other = slot_of(s, row->replaces);
        if (slot->role == TUTTI_SLOT_KEPT) continue;
        if (slot->role == TUTTI_SLOT_IN && !slot->value && !(flags & TUTTI_SLOT_OPTIONAL))
            return subject_fail(s, "inputs/%s is missing", row->name);
        if (slot->role == TUTTI_SLOT_OUT && !slot->grad && grad_needed)
            return subject_fail(s, "gradients are expected, but there is no upstream/d%s",
                                row->name);
        if (s->backward && other && (!row->with || with->value))
            slot->replaces = other->shape.index;
        const bool needed = slot->role == TUTTI_SLOT_OUT &&
                            (!(flags & TUTTI_SLOT_OPTIONAL) || slot->replaces >= 0 ||
                             (s->backward && (flags & TUTTI_SLOT_READ)));
        slot->asked = slot->value || needed;
        slot->grad_asked = grad && (slot->grad || grad_needed);
        APP_TRY(check_columns(s, i, slot->value));
        APP_TRY(check_columns(s, i, slot->grad));
    }
    return check_params(s);
}

/* The tensor of the case that a refused call complained about, as "inputs/x"; false: none. */
static bool refused_tensor(const subject *s, char *text, size_t size)
{
    static const tutti_case_part parts[] = {[TUTTI_PART_IN] = TUTTI_CASE_INPUTS,
                                            [TUTTI_PART_OUT] = TUTTI_CASE_EXPECTED,
                                            [TUTTI_PART_UPSTREAM] = TUTTI_CASE_UPSTREAM,
                                            [TUTTI_PART_DIN] = TUTTI_CASE_EXPECTED_GRAD,
                                            [TUTTI_PART_PARAM] = TUTTI_CASE_PARAMS,
                                            [TUTTI_PART_PARAM_GRAD] = TUTTI_CASE_EXPECTED_GRAD};
    const tutti_call_place at = tutti_last_error_place();
    if (at.part == TUTTI_PART_NONE || at.part == TUTTI_PART_SAVED) return false;
    const bool input = at.part == TUTTI_PART_IN || at.part == TUTTI_PART_DIN;
    const bool param = at.part == TUTTI_PART_PARAM || at.part == TUTTI_PART_PARAM_GRAD;
    const bool gradient = at.part == TUTTI_PART_UPSTREAM || at.part == TUTTI_PART_DIN ||
                          at.part == TUTTI_PART_PARAM_GRAD;
    const char *name = param ? tutti_layer_param(s->layer, at.index)->name : NULL;
    for (int i = 0; !param && i < s->type->slot_count; i++)
        if (s->slots[i].role == (input ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT) &&
            s->slots[i].shape.index == at.index)
            name = s->type->slots[i].name;
    if (name)
        snprintf(text, size, "%s/%s%s", tutti_case_part_name(parts[at.part]), gradient ? "d" : "",
                 name);
    return name;
}

static int explain_refusal(const subject *s, int code)
{
    char tensor[TUTTI_NAME_MAX + 32], text[APP_MESSAGE_MAX / 2];
    if (!refused_tensor(s, tensor, sizeof tensor)) return subject_explain(s, code);
    snprintf(text, sizeof text, "%.500s", app_failure());
    return subject_fail(s, "%s: %s", tensor, text);
}

tutti_step_values subject_step(const subject *s)
{
    return (tutti_step_values){.step = 1,
                               .loss_weight = s->test_case->loss_weight,
                               .loss_scale = s->test_case->loss_scale};
}

static int set_step(validator *v, subject *s)
{
    const tutti_step_values values = subject_step(s);
    APP_CHECK(tutti_step_block_create(v->ctx, &s->step));
    return app_check(tutti_step_block_set(s->step, v->ctx, &values));
}

static int make(validator *v, subject *s)
{
    const tutti_case *test_case = s->test_case;
    if (tutti_layer_create_by_name(v->ctx, test_case->layer, test_case->options, &s->layer) !=
        TUTTI_OK)
        return subject_fail(s, "layer %s, options \"%.200s\": %s", test_case->layer,
                            test_case->options, tutti_last_error());
    s->type = tutti_layer_type_of(s->layer);
    s->same_bits = s->type->flags & TUTTI_LAYER_ROWS_ALONE;
    s->param_count = tutti_layer_param_count(s->layer);
    if (s->param_count > PARAMS_MAX || s->type->slot_count > SLOTS_MAX)
        return subject_fail(s, "layer %s has %d parameters and %d tensors, want at most %d and %d",
                            test_case->layer, s->param_count, s->type->slot_count, PARAMS_MAX,
                            SLOTS_MAX);
    for (int i = 0; i < s->type->slot_count; i++) {
        s->slots[i] = (subject_slot){.role = s->type->slots[i].role, .replaces = -1};
        APP_CHECK(tutti_layer_slot_shape(s->layer, i, &s->slots[i].shape));
    }
    for (int i = 0; i < test_case->tensor_count; i++) APP_TRY(match(s, &test_case->tensors[i]));
    APP_TRY(complete(s));
    APP_TRY(set_step(v, s));
    const run_plan probe = {.probe = true};
    int code = run_case(v, s, &probe, NULL);
    return code == APP_OK ? code : explain_refusal(s, code);
}

int subject_make(validator *v, const source *source, const tutti_case *test_case, subject *s)
{
    *s = (subject){.source = source, .test_case = test_case};
    const int code = make(v, s);
    if (code != APP_OK) subject_drop(s);
    return code;
}

void subject_drop(subject *s)
{
    tutti_step_block_destroy(&s->step);
    tutti_layer_destroy(&s->layer);
}
