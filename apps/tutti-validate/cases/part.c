/* Parts, names and the tensors of a case. */
#include "inside.h"

#include <ctype.h>
#include <string.h>

static const char *const part_names[] = {"inputs",        "params", "upstream",  "expected",
                                         "expected_grad", "actual", "difference"};

const char *tutti_case_part_name(tutti_case_part part)
{
    return part_names[part];
}

tutti_case_text tutti_case_shape(int ndim, const int64_t *dims)
{
    tutti_case_text shape;
    tutti__shape_text(shape.text, sizeof shape.text, ndim, dims);
    return shape;
}

int case_part_parse(const char *name, size_t length)
{
    for (int i = 0; i <= TUTTI_CASE_DIFFERENCE; i++)
        if (strlen(part_names[i]) == length && memcmp(part_names[i], name, length) == 0) return i;
    return -1;
}

bool case_is_expected(tutti_case_part part)
{
    return part == TUTTI_CASE_EXPECTED || part == TUTTI_CASE_EXPECTED_GRAD;
}

bool case_name_ok(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= TUTTI_CASE_NAME_MAX || name[0] == '.') return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("-_.", *name)) return false;
    return true;
}

const tutti_case_tensor *tutti_case_find(const tutti_case *test_case, tutti_case_part part,
                                         const char *name)
{
    for (int i = 0; i < test_case->tensor_count; i++)
        if (test_case->tensors[i].part == part && strcmp(test_case->tensors[i].name, name) == 0)
            return &test_case->tensors[i];
    return NULL;
}
