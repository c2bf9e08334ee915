/* Element types, tensor views, and conversion in host memory. */
#include <math.h>
#include <string.h>

#include "core/half.h"
#include "core/internal.h"
#include "core/text.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [TUTTI_F32] = {"f32", 4},   [TUTTI_F64] = {"f64", 8}, [TUTTI_F16] = {"f16", 2},
    [TUTTI_BF16] = {"bf16", 2}, [TUTTI_I32] = {"i32", 4}, [TUTTI_U8] = {"u8", 1},
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof dtypes[0] };

static bool is_dtype(tutti_dtype dtype)
{
    return dtype >= TUTTI_F32 && (unsigned)dtype < DTYPE_COUNT;
}

size_t tutti_dtype_size(tutti_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].size : 0;
}

const char *tutti_dtype_name(tutti_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "unknown";
}

tutti_status tutti_dtype_parse(const char *name, tutti_dtype *dtype)
{
    TUTTI_REQUIRE(name, "dtype_parse: name is NULL");
    TUTTI_REQUIRE(dtype, "dtype_parse: dtype is NULL");
    for (int i = TUTTI_F32; i < DTYPE_COUNT; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            *dtype = (tutti_dtype)i;
            return TUTTI_OK;
        }
    return tutti__fail(TUTTI_ERR_ARG, "dtype '%s' is unknown, want f32, f64, f16, bf16, i32 or u8",
                       name);
}

tutti_tensor tutti_tensor_make(void *data, tutti_dtype dtype, int ndim, const int64_t *dims)
{
    tutti_tensor tensor = {.data = data, .dtype = dtype, .ndim = ndim};
    if (ndim < 1 || ndim > TUTTI_MAX_DIMS || !dims)
        return tensor;   /* refused by the call that takes it */
    uint64_t stride = 1; /* wraps if dims are too large: the call that takes it checks them */
    for (int i = ndim - 1; i >= 0; i--) {
        tensor.dims[i] = dims[i];
        tensor.strides[i] = (int64_t)stride;
        stride *= dims[i] > 0 ? (uint64_t)dims[i] : 1;
    }
    return tensor;
}

tutti_tensor tutti_tensor_1d(void *data, tutti_dtype dtype, int64_t count)
{
    return tutti_tensor_make(data, dtype, 1, &count);
}

tutti_tensor tutti_tensor_2d(void *data, tutti_dtype dtype, int64_t rows, int64_t cols)
{
    return tutti_tensor_make(data, dtype, 2, (const int64_t[]){rows, cols});
}

int64_t tutti_tensor_count(const tutti_tensor *tensor)
{
    if (!tensor || tensor->ndim < 1 || tensor->ndim > TUTTI_MAX_DIMS) return 0;
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
    return count;
}

static double load(const void *data, tutti_dtype dtype, int64_t i)
{
    switch (dtype) {
    case TUTTI_F32:
        return ((const float *)data)[i];
    case TUTTI_F64:
        return ((const double *)data)[i];
    case TUTTI_F16:
        return tutti__f16_to_float(((const uint16_t *)data)[i]);
    case TUTTI_BF16:
        return tutti__bf16_to_float(((const uint16_t *)data)[i]);
    case TUTTI_I32:
        return ((const int32_t *)data)[i];
    case TUTTI_U8:
        return ((const uint8_t *)data)[i];
    }
    return NAN;
}

/* double to float, rounded to odd, so that a second rounding, to 16 bits, is correct. */
static float round_to_odd(double value)
{
    float nearest = (float)value;
    if (isnan(value) || (double)nearest == value) return nearest;
    if (isinf(nearest)) return nearest; /* above 16 bits' range in any case */
    uint32_t bits = tutti__bits_of_float(nearest);
    if (bits & 1) return nearest;
    bool away = fabs((double)nearest) > fabs(value);
    return tutti__float_of_bits(away ? bits - 1 : bits + 1);
}

static double saturate(double value, double least, double most)
{
    if (isnan(value)) return 0;
    value = nearbyint(value);
    return value < least ? least : value > most ? most : value;
}

static void store(void *data, tutti_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case TUTTI_F32:
        ((float *)data)[i] = (float)value;
        break;
    case TUTTI_F64:
        ((double *)data)[i] = value;
        break;
    case TUTTI_F16:
        ((uint16_t *)data)[i] = tutti__float_to_f16(round_to_odd(value));
        break;
    case TUTTI_BF16:
        ((uint16_t *)data)[i] = tutti__float_to_bf16(round_to_odd(value));
        break;
    case TUTTI_I32:
        ((int32_t *)data)[i] = (int32_t)saturate(value, INT32_MIN, INT32_MAX);
        break;
    case TUTTI_U8:
        ((uint8_t *)data)[i] = (uint8_t)saturate(value, 0, 255);
        break;
    }
}

tutti_status tutti__tensor_check(const tutti_tensor *tensor, tutti_dtype dtype, const char *what)
{
    TUTTI_REQUIRE(tensor, "%s is NULL", what);
    TUTTI_REQUIRE(tensor->dtype == dtype, "%s is %s, want %s", what,
                  tutti__dtype_text(tensor->dtype), tutti_dtype_name(dtype));
    TUTTI_REQUIRE(tensor->ndim >= 1 && tensor->ndim <= TUTTI_MAX_DIMS,
                  "%s has ndim %d, want 1 to %d", what, tensor->ndim, TUTTI_MAX_DIMS);
    int64_t count = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        TUTTI_REQUIRE(tensor->dims[i] >= 0, "%s has dims[%d] %lld, want >= 0", what, i,
                      (long long)tensor->dims[i]);
        TUTTI_REQUIRE(tensor->dims[i] <= 1 || tensor->strides[i] == count,
                      "%s has strides[%d] %lld, want %lld", what, i, (long long)tensor->strides[i],
                      (long long)count);
        const int64_t dim = tensor->dims[i] > 0 ? tensor->dims[i] : 1;
        TUTTI_REQUIRE(!__builtin_mul_overflow(count, dim, &count) && count <= INT64_MAX / 16,
                      "%s has dims whose product is above 2^59", what);
    }
    TUTTI_REQUIRE(tensor->data || tutti_tensor_count(tensor) == 0, "%s has data NULL", what);
    TUTTI_REQUIRE((uintptr_t)tensor->data % dtypes[dtype].size == 0,
                  "%s has data that is not aligned to its elements", what);
    return TUTTI_OK;
}

tutti_status tutti_convert(void *dst, tutti_dtype dst_dtype, const void *src, tutti_dtype src_dtype,
                           int64_t count)
{
    TUTTI_REQUIRE(is_dtype(dst_dtype), "convert: dst_dtype is %d, want a tutti_dtype",
                  (int)dst_dtype);
    TUTTI_REQUIRE(is_dtype(src_dtype), "convert: src_dtype is %d, want a tutti_dtype",
                  (int)src_dtype);
    TUTTI_REQUIRE(count >= 0, "convert: count is %lld, want >= 0", (long long)count);
    TUTTI_REQUIRE(dst || count == 0, "convert: dst is NULL");
    TUTTI_REQUIRE(src || count == 0, "convert: src is NULL");
    TUTTI_REQUIRE(count <= PTRDIFF_MAX / 8, "convert: count is %lld, more than memory can hold",
                  (long long)count);
    const size_t dst_bytes = (size_t)count * dtypes[dst_dtype].size,
                 src_bytes = (size_t)count * dtypes[src_dtype].size;
    const uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
    const bool in_place = to == from && dst_bytes == src_bytes;
    TUTTI_REQUIRE(in_place || to + dst_bytes <= from || from + src_bytes <= to,
                  "convert: dst and src overlap");
    if (count == 0) return TUTTI_OK;
    if (dst_dtype == src_dtype)
        memmove(dst, src, dst_bytes);
    else
        for (int64_t i = 0; i < count; i++) store(dst, dst_dtype, i, load(src, src_dtype, i));
    return TUTTI_OK;
}

bool tutti__same_shape(const tutti_tensor *a, const tutti_tensor *b)
{
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}
