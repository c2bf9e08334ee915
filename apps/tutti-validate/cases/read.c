/* Reads rows of a tensor of a case file, block by block; a conversion must be exact. */
#include "inside.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 14 }; /* elements that are converted at a time */

/* The state of reading a tensor. */
typedef struct reading {
    const tutti_cases *cases;
    const tutti_case_tensor *tensor;
    const tutti__node *node;
    tutti_dtype dtype; /* wanted */
    int64_t at;        /* of the first element of the block, in the tensor */
    double values[BLOCK], again[BLOCK];
    char raw[BLOCK * sizeof(double)];
} reading;

static int read_bytes(const reading *r, int64_t count, void *data)
{
    int failed = tutti__read_at(r->cases->file.fd, data, count * r->node->element,
                                r->node->offset + r->at * r->node->element);
    if (failed == 0) return APP_OK;
    CASES_REFUSE(r->cases, "/%s: %s", r->node->path,
                 failed < 0 ? "the file is truncated" : strerror(failed));
}

static int inexact(const reading *r, int64_t index, double value)
{
    CASES_REFUSE(r->cases, "/%s: element %" PRId64 " is %.17g, which is not a value of type %s",
                 r->node->path, r->at + index, value, tutti_dtype_name(r->dtype));
}

static int to_i32(const reading *r, int64_t count, int32_t *data)
{
    const int64_t *raw = (const int64_t *)(const void *)r->raw;
    for (int64_t i = 0; i < count; i++) {
        if (raw[i] < INT32_MIN || raw[i] > INT32_MAX) return inexact(r, i, (double)raw[i]);
        data[i] = (int32_t)raw[i];
    }
    return APP_OK;
}

/* Converts through f64, which holds every float; the way back must give the same value. */
static int convert(reading *r, int64_t count, void *data)
{
    if (r->dtype == TUTTI_I32) return to_i32(r, count, data);
    APP_CHECK(tutti_convert(r->values, TUTTI_F64, r->raw, (tutti_dtype)r->node->type, count));
    APP_CHECK(tutti_convert(data, r->dtype, r->values, TUTTI_F64, count));
    if (r->dtype == TUTTI_F64) return APP_OK;
    APP_CHECK(tutti_convert(r->again, TUTTI_F64, data, r->dtype, count));
    for (int64_t i = 0; i < count; i++)
        if (r->again[i] != r->values[i] && !(isnan(r->again[i]) && isnan(r->values[i])))
            return inexact(r, i, r->values[i]);
    return APP_OK;
}

static int read_rows(reading *r, int64_t end, char *data)
{
    if ((tutti__file_type)r->dtype == r->node->type) return read_bytes(r, end - r->at, data);
    while (r->at < end) {
        int64_t count = end - r->at < BLOCK ? end - r->at : BLOCK;
        APP_TRY(read_bytes(r, count, r->raw));
        APP_TRY(convert(r, count, data));
        data += (size_t)count * tutti_dtype_size(r->dtype);
        r->at += count;
    }
    return APP_OK;
}

int tutti_cases_read(const tutti_cases *cases, const tutti_case_tensor *tensor, int64_t first,
                     int64_t count, tutti_dtype dtype, void *data)
{
    int64_t row = 1;
    for (int i = 1; i < tensor->ndim; i++) row *= tensor->dims[i];
    reading *r = malloc(sizeof *r);
    if (!r) return app_fail(APP_FAILED, "no memory for %s", tensor->name);
    r->cases = cases;
    r->tensor = tensor;
    r->node = cases->nodes[tensor - cases->tensors];
    r->dtype = dtype;
    r->at = first * row;
    int code = read_rows(r, (first + count) * row, data);
    free(r);
    return code;
}
