/* Checks a case and its tensors: attributes, types and shapes, by docs/case-files.md. */
#include "inside.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Elements of a row, and of a tensor: larger than any file, and far from overflow. */
#define ELEMENTS_MAX ((int64_t)1 << 48)
#define FIRST_ROW_MAX ((int64_t)1 << 59)

/* Fails with a message after file, case and tensor ("soft: inputs/x"). */
#define FAIL(cases, node, ...)                      \
    do {                                            \
        char text_[512];                            \
        snprintf(text_, sizeof text_, __VA_ARGS__); \
        return fail(cases, node, text_);            \
    } while (0)

static int fail(const tutti_cases *cases, const tutti__node *node, const char *text)
{
    const char *name = node->path + strlen("cases/");
    size_t length = strcspn(name, "/");
    CASES_REFUSE(cases, "case %.*s: %s%s%s", (int)length, name,
                 name[length] ? name + length + 1 : "", name[length] ? ": " : "", text);
}

static bool is_number(const tutti__attribute *attribute)
{
    return (attribute->kind == TUTTI__ATTRIBUTE_INT || attribute->kind == TUTTI__ATTRIBUTE_REAL) &&
           attribute->count == 1;
}

/* Reads a number from an attribute, if it exists. */
static int get_real(const tutti_cases *cases, const tutti__node *node, const char *name,
                    bool *there, double *value)
{
    const tutti__attribute *attribute = tutti__node_attribute(cases->file.structure, node, name);
    *there = attribute != NULL;
    if (!attribute) return APP_OK;
    if (!is_number(attribute)) FAIL(cases, node, "%s is not one number", name);
    *value = attribute->reals[0];
    return APP_OK;
}

static int get_text(const tutti_cases *cases, const tutti__node *node, const char *name,
                    size_t size, char *value)
{
    const tutti__attribute *attribute = tutti__node_attribute(cases->file.structure, node, name);
    if (!attribute) return APP_OK;
    if (attribute->kind != TUTTI__ATTRIBUTE_TEXT) FAIL(cases, node, "%s is not a text", name);
    if (strlen(attribute->text) >= size)
        FAIL(cases, node, "%s has %zu letters, want at most %zu", name, strlen(attribute->text),
             size - 1);
    strcpy(value, attribute->text);
    return APP_OK;
}

int case_from(const tutti_cases *cases, const tutti__node *node, tutti_case *test_case)
{
    bool there;
    double first_row = 0;
    strcpy(test_case->name, node->path + strlen("cases/"));
    APP_TRY(get_text(cases, node, "layer", sizeof test_case->layer, test_case->layer));
    if (!test_case->layer[0]) FAIL(cases, node, "has no layer");
    APP_TRY(get_text(cases, node, "options", sizeof test_case->options, test_case->options));
    APP_TRY(get_real(cases, node, "first_row", &there, &first_row));
    if (!(first_row >= 0 && first_row <= (double)(FIRST_ROW_MAX / 2)) ||
        first_row != floor(first_row))
        FAIL(cases, node, "first_row is %g, want a whole number from 0 to 2^58", first_row);
    test_case->first_row = (int64_t)first_row;
    test_case->loss_weight = test_case->loss_scale = 1;
    APP_TRY(get_real(cases, node, "loss_weight", &there, &test_case->loss_weight));
    APP_TRY(get_real(cases, node, "loss_scale", &there, &test_case->loss_scale));
    if (!isfinite(test_case->loss_weight) || test_case->loss_weight <= 0)
        FAIL(cases, node, "loss_weight is %g, want finite and above 0", test_case->loss_weight);
    if (!isfinite(test_case->loss_scale) || test_case->loss_scale <= 0)
        FAIL(cases, node, "loss_scale is %g, want finite and above 0", test_case->loss_scale);
    return APP_OK;
}

/* A type may be stored as itself or as a wider one. */
static bool may_be_stored(tutti_dtype dtype, tutti__file_type stored)
{
    switch (dtype) {
    case TUTTI_F64:
        return stored == TUTTI__FILE_F64;
    case TUTTI_F32:
        return stored == TUTTI__FILE_F32 || stored == TUTTI__FILE_F64;
    case TUTTI_F16:
    case TUTTI_BF16:
        return stored == (tutti__file_type)dtype || may_be_stored(TUTTI_F32, stored);
    case TUTTI_I32:
        return stored == TUTTI__FILE_I32 || stored == TUTTI__FILE_I64;
    case TUTTI_U8:
        break;
    }
    return false;
}

static int take_type(const tutti_cases *cases, const tutti__node *node, tutti_case_tensor *tensor)
{
    char name[16] = "";
    APP_TRY(get_text(cases, node, "dtype", sizeof name, name));
    if (!name[0] && !tutti__node_attribute(cases->file.structure, node, "dtype"))
        snprintf(name, sizeof name, "%.15s", tutti__file_type_name(node->type));
    if (tutti_dtype_parse(name, &tensor->dtype) != TUTTI_OK || tensor->dtype == TUTTI_U8)
        FAIL(cases, node, "dtype is '%s', want f64, f32, f16, bf16 or i32", name);
    if (!may_be_stored(tensor->dtype, node->type))
        FAIL(cases, node, "is %s%s, want little-endian numbers that hold %s",
             node->type == TUTTI__FILE_OTHER ? "" : "stored as ", tutti__file_type_name(node->type),
             name);
    return APP_OK;
}

static int take_shape(const tutti_cases *cases, const tutti__node *node, tutti_case_tensor *tensor)
{
    if (node->ndim < 1 || node->ndim > TUTTI_MAX_DIMS)
        FAIL(cases, node, "has %d dimensions, want 1 to %d", node->ndim < 0 ? 0 : node->ndim,
             TUTTI_MAX_DIMS);
    if (!node->plain)
        FAIL(cases, node,
             "is not stored in one piece, uncompressed, in the file itself, written to the end");
    tensor->ndim = node->ndim;
    int64_t row = 1;
    for (int i = 0; i < node->ndim; i++) {
        tensor->dims[i] = node->dims[i];
        if (node->dims[i] > ELEMENTS_MAX || (i > 0 && row > ELEMENTS_MAX / (node->dims[i] + 1)))
            FAIL(cases, node, "its dimensions multiply beyond 2^48");
        if (i > 0) row *= node->dims[i];
    }
    if (row == 0) FAIL(cases, node, "has rows without elements");
    return APP_OK;
}

static int take_bound(const tutti_cases *cases, const tutti__node *node, tutti_case_tensor *tensor)
{
    bool atol, rtol;
    APP_TRY(get_real(cases, node, "atol", &atol, &tensor->atol));
    APP_TRY(get_real(cases, node, "rtol", &rtol, &tensor->rtol));
    if (atol != rtol) FAIL(cases, node, "has one of atol and rtol, want both or neither");
    if (!isfinite(tensor->atol) || tensor->atol < 0)
        FAIL(cases, node, "atol is %g, want finite and not negative", tensor->atol);
    if (!isfinite(tensor->rtol) || tensor->rtol < 0)
        FAIL(cases, node, "rtol is %g, want finite and not negative", tensor->rtol);
    tensor->has_bound = atol;
    return APP_OK;
}

int case_tensor_from(const tutti_cases *cases, const tutti__node *node, tutti_case_part part,
                     tutti_case_tensor *tensor)
{
    tensor->part = part;
    APP_TRY(take_type(cases, node, tensor));
    APP_TRY(take_shape(cases, node, tensor));
    if (case_is_expected(part)) {
        if (tensor->dtype == TUTTI_I32) FAIL(cases, node, "is i32, want a float type");
        APP_TRY(take_bound(cases, node, tensor));
    }
    return APP_OK;
}

/* The kind's output that an expected tensor names, or whose gradient an upstream tensor is; NULL if
 * there is none. */
static const tutti_slot *output_of(const tutti_layer_type *type, const tutti_case_tensor *tensor)
{
    const bool upstream = tensor->part == TUTTI_CASE_UPSTREAM && tensor->name[0] == 'd';
    if (!type || !(upstream || tensor->part == TUTTI_CASE_EXPECTED)) return NULL;
    for (int i = 0; i < type->slot_count; i++)
        if (type->slots[i].role == TUTTI_SLOT_OUT &&
            strcmp(type->slots[i].name, tensor->name + upstream) == 0)
            return &type->slots[i];
    return NULL;
}

static bool is_sum(const tutti_slot *output)
{
    return output && (output->flags & TUTTI_SLOT_SUM);
}

/* By the kind's table, which also lists parameters that the case lacks; for an unknown kind, by the
 * case. */
static bool is_param(const tutti_case *test_case, const tutti_layer_type *type, const char *name)
{
    for (int i = 0; type && i < type->param_count; i++)
        if (strcmp(type->params[i].name, name) == 0) return true;
    return !type && tutti_case_find(test_case, TUTTI_CASE_PARAMS, name);
}

/* Whether the first dimension counts rows: in all but parameters, their gradients, and sums over
 * rows.  An output of an unknown kind may be such a sum. */
static bool has_rows(const tutti_case *test_case, const tutti_layer_type *type,
                     const tutti_case_tensor *tensor)
{
    if (tensor->part == TUTTI_CASE_PARAMS) return false;
    if (tensor->part == TUTTI_CASE_EXPECTED || tensor->part == TUTTI_CASE_UPSTREAM)
        return type && !is_sum(output_of(type, tensor));
    return tensor->part != TUTTI_CASE_EXPECTED_GRAD || tensor->name[0] != 'd' ||
           !is_param(test_case, type, tensor->name + 1);
}

int case_complete(const tutti_cases *cases, tutti_case *test_case)
{
    const int base = (int)(test_case->tensors - cases->tensors);
    const tutti_layer_type *type = tutti_layer_type_find(test_case->layer);
    const tutti_case_tensor *first = NULL;
    int expected = 0;
    for (int i = 0; i < test_case->tensor_count; i++)
        if (has_rows(test_case, type, &test_case->tensors[i]) &&
            (!first ||
             (test_case->tensors[i].part == TUTTI_CASE_INPUTS && first->part != TUTTI_CASE_INPUTS)))
            first = &test_case->tensors[i];
    if (!first) CASES_REFUSE(cases, "case %s: has no inputs", test_case->name);
    test_case->rows = first->dims[0];
    for (int i = 0; i < test_case->tensor_count; i++) {
        const tutti_case_tensor *tensor = &test_case->tensors[i];
        expected += case_is_expected(tensor->part);
        const tutti_case_text shape = tutti_case_shape(tensor->ndim, tensor->dims);
        if (has_rows(test_case, type, tensor) && tensor->dims[0] != test_case->rows)
            FAIL(cases, cases->nodes[base + i],
                 "is %s, has %" PRId64 " rows, but %s/%s is %s and has %" PRId64, shape.text,
                 tensor->dims[0], tutti_case_part_name(first->part), first->name,
                 tutti_case_shape(first->ndim, first->dims).text, test_case->rows);
        const tutti_slot *output = output_of(type, tensor);
        if (is_sum(output) && !output->cols && (tensor->ndim != 1 || tensor->dims[0] != 1))
            FAIL(cases, cases->nodes[base + i], "is %s, want [1]", shape.text);
    }
    if (expected == 0) CASES_REFUSE(cases, "case %s: has no expected results", test_case->name);
    return APP_OK;
}
