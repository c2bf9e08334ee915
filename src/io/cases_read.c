/* Rows of a tensor of a case file, block by block, and exactly. */
#include "io/cases.h"

#ifdef TUTTI_WITH_HDF5

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/checkpoint.h"

static const char who[] = "cases_read";

enum { BLOCK = 1 << 14 }; /* elements that are converted at a time */

/* A part of a tensor on its way. */
typedef struct reading {
    const tutti_cases *cases;
    const tutti_case_tensor *tensor;
    const tutti__node *node;
    tutti_dtype dtype; /* wanted */
    int64_t at;        /* of the first element of the block, in the tensor */
    double values[BLOCK], again[BLOCK];
    char raw[BLOCK * sizeof(double)];
} reading;

static tutti_status read_bytes(const reading *r, int64_t count, void *data)
{
    int failed = tutti__read_at(r->cases->fd, data, count * r->node->element,
                                r->node->offset + r->at * r->node->element);
    if (failed == 0) return TUTTI_OK;
    return tutti__fail(failed < 0 ? TUTTI_ERR_DATA : TUTTI_ERR_IO, "%s: %s: /%s: %s", who,
                       r->cases->path, r->node->path,
                       failed < 0 ? "the file ends before it does" : strerror(failed));
}

static tutti_status not_a_number_of_it(const reading *r, int64_t index, double value)
{
    return tutti__fail(
        TUTTI_ERR_DATA, "%s: %s: /%s: element %" PRId64 " is %.17g, which is no number of %s", who,
        r->cases->path, r->node->path, r->at + index, value, tutti_dtype_name(r->dtype));
}

static tutti_status to_i32(const reading *r, int64_t count, int32_t *data)
{
    const int64_t *raw = (const int64_t *)(const void *)r->raw;
    for (int64_t i = 0; i < count; i++) {
        if (raw[i] < INT32_MIN || raw[i] > INT32_MAX)
            return not_a_number_of_it(r, i, (double)raw[i]);
        data[i] = (int32_t)raw[i];
    }
    return TUTTI_OK;
}

/* Through f64, which holds every float; there and back must be the same. */
static tutti_status convert(reading *r, int64_t count, void *data)
{
    if (r->dtype == TUTTI_I32) return to_i32(r, count, data);
    TUTTI_TRY(tutti_convert(r->values, TUTTI_F64, r->raw, (tutti_dtype)r->node->type, count));
    TUTTI_TRY(tutti_convert(data, r->dtype, r->values, TUTTI_F64, count));
    if (r->dtype == TUTTI_F64) return TUTTI_OK;
    TUTTI_TRY(tutti_convert(r->again, TUTTI_F64, data, r->dtype, count));
    for (int64_t i = 0; i < count; i++)
        if (r->again[i] != r->values[i] && !(isnan(r->again[i]) && isnan(r->values[i])))
            return not_a_number_of_it(r, i, r->values[i]);
    return TUTTI_OK;
}

static tutti_status read_rows(reading *r, int64_t end, char *data)
{
    if ((tutti__file_type)r->dtype == r->node->type) return read_bytes(r, end - r->at, data);
    while (r->at < end) {
        int64_t count = end - r->at < BLOCK ? end - r->at : BLOCK;
        TUTTI_TRY(read_bytes(r, count, r->raw));
        TUTTI_TRY(convert(r, count, data));
        data += (size_t)count * tutti_dtype_size(r->dtype);
        r->at += count;
    }
    return TUTTI_OK;
}

tutti_status tutti_cases_read(const tutti_cases *cases, const tutti_case_tensor *tensor,
                              int64_t first, int64_t count, tutti_dtype dtype, void *data)
{
    TUTTI_REQUIRE(cases, "%s: cases is NULL", who);
    uintptr_t begin = (uintptr_t)cases->tensors, at = (uintptr_t)tensor;
    TUTTI_REQUIRE(tensor && at >= begin &&
                      (at - begin) / sizeof *tensor < (size_t)cases->tensor_count,
                  "%s: tensor is not of this file", who);
    TUTTI_REQUIRE(first >= 0 && count >= 0 && first <= tensor->dims[0] &&
                      count <= tensor->dims[0] - first,
                  "%s: %" PRId64 " rows from row %" PRId64 " are wanted, and %s has %" PRId64, who,
                  count, first, tensor->name, tensor->dims[0]);
    TUTTI_REQUIRE(dtype == tensor->dtype || (dtype == TUTTI_F64 && tensor->dtype != TUTTI_I32),
                  "%s: dtype is %s, and %s is of %s", who, tutti_dtype_name(dtype), tensor->name,
                  tutti_dtype_name(tensor->dtype));
    if (count == 0) return TUTTI_OK;
    TUTTI_REQUIRE(data, "%s: data is NULL", who);
    int64_t row = 1;
    for (int i = 1; i < tensor->ndim; i++) row *= tensor->dims[i];
    reading *r = malloc(sizeof *r);
    if (!r) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    r->cases = cases;
    r->tensor = tensor;
    r->node = cases->nodes[tensor - cases->tensors];
    r->dtype = dtype;
    r->at = first * row;
    tutti_status status = read_rows(r, (first + count) * row, data);
    free(r);
    return status;
}

#endif
