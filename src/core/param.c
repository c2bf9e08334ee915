/* One parameter: its name, what is bound to it, its first values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/params.h"
#include "core/text.h"

/* Names */

int tutti__path_parts(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (int parts = 1;; parts++) {
        size_t length = strspn(name, letters);
        bool dots = strspn(name, ".") == length; /* "." and ".." have a meaning in HDF5 */
        if (length == 0 || dots) return 0;
        if (!name[length]) return parts;
        if (name[length] != '/') return 0;
        name += length + 1;
    }
}

bool tutti__paths_collide(const char *a, const char *b)
{
    size_t length = 0;
    while (a[length] && a[length] == b[length]) length++;
    return (!a[length] && (!b[length] || b[length] == '/')) || (!b[length] && a[length] == '/');
}

tutti_status tutti__name_check(const char *name, int more, const char *noun, const char *function)
{
    int parts = tutti__path_parts(name);
    TUTTI_REQUIRE(
        parts > 0,
        "%s: the %s '%s' is not a path of letters, digits and ._- in parts separated by /",
        function, noun, name);
    TUTTI_REQUIRE(parts + more <= TUTTI__NAME_PARTS_MAX,
                  "%s: the %s %s has %d parts, want at most %d", function, noun, name, parts,
                  TUTTI__NAME_PARTS_MAX - more);
    return TUTTI_OK;
}

/* What is bound */

static bool is_contiguous(const tutti_tensor *t)
{
    int64_t stride = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->dims[i] != 1 && t->strides[i] != stride) return false;
        stride *= t->dims[i];
    }
    return true;
}

tutti_status tutti__shape_check(const tutti_tensor *value, const char *name, const char *function)
{
    int64_t count = 1;
    TUTTI_REQUIRE(value->ndim >= 1 && value->ndim <= TUTTI_MAX_DIMS,
                  "%s: %s: value.ndim is %d, want 1 to %d", function, name, value->ndim,
                  TUTTI_MAX_DIMS);
    for (int i = 0; i < value->ndim; i++) {
        int64_t dim = value->dims[i];
        TUTTI_REQUIRE(dim > 0 && count <= INT64_MAX / 16 / dim,
                      "%s: %s: value.dims[%d] is %lld, want > 0 and a product below 2^59", function,
                      name, i, (long long)dim);
        count *= dim;
    }
    return TUTTI_OK;
}

tutti_status tutti__init_check(const tutti_param *param, const char *name, const char *function)
{
    TUTTI_REQUIRE(isfinite(param->init_bound) && param->init_bound >= 0,
                  "%s: %s: init_bound is %g, want finite and >= 0", function, name,
                  param->init_bound);
    TUTTI_REQUIRE((unsigned)param->init <= TUTTI_INIT_UNIFORM,
                  "%s: %s: init is %d, want a tutti_init", function, name, (int)param->init);
    return TUTTI_OK;
}

static size_t bytes_of(const tutti_tensor *tensor)
{
    return (size_t)tutti_tensor_count(tensor) * tutti_dtype_size(tensor->dtype);
}

/* what: the tensor, of the parameter of this name. */
static tutti_status check_shape(const tutti_tensor *tensor, const tutti_tensor *like,
                                const char *what, const char *name, const char *function)
{
    char given[TUTTI__DIMS_TEXT], wanted[TUTTI__DIMS_TEXT];
    TUTTI_REQUIRE(tutti__same_shape(tensor, like), "%s: %s: %s is %s, want %s", function, name,
                  what, tutti__dims_text(tensor, given), tutti__dims_text(like, wanted));
    return TUTTI_OK;
}

tutti_status tutti_param_bind(tutti_param *param, const tutti_tensor *value,
                              const tutti_tensor *grad)
{
    TUTTI_REQUIRE(param, "param_bind: param is NULL");
    TUTTI_TRY(tutti__param_unstored(param, "param_bind"));
    TUTTI_REQUIRE(value, "param_bind: %s: value is NULL", param->name);
    TUTTI_REQUIRE(value->data, "param_bind: %s: value.data is NULL", param->name);
    TUTTI_REQUIRE(value->ndim >= 1 && value->ndim <= TUTTI_MAX_DIMS,
                  "param_bind: %s: value.ndim is %d, want 1 to %d", param->name, value->ndim,
                  TUTTI_MAX_DIMS);
    TUTTI_REQUIRE(value->dtype == param->value.dtype, "param_bind: %s: value is %s, want %s",
                  param->name, tutti__dtype_text(value->dtype),
                  tutti_dtype_name(param->value.dtype));
    TUTTI_TRY(check_shape(value, &param->value, "value", param->name, "param_bind"));
    TUTTI_REQUIRE(is_contiguous(value), "param_bind: %s: value is not contiguous", param->name);
    if (grad) {
        TUTTI_REQUIRE(grad->data, "param_bind: %s: grad.data is NULL", param->name);
        TUTTI_REQUIRE(
            grad->dtype == TUTTI_F64 || (grad->dtype == TUTTI_F32 && value->dtype != TUTTI_F64),
            "param_bind: %s: grad is %s, want %s", param->name, tutti__dtype_text(grad->dtype),
            value->dtype == TUTTI_F64 ? "f64" : "f32 or f64");
        TUTTI_TRY(check_shape(grad, &param->value, "grad", param->name, "param_bind"));
        TUTTI_REQUIRE(is_contiguous(grad), "param_bind: %s: grad is not contiguous", param->name);
    }
    param->value = param->master = *value;
    param->grad = grad ? *grad : (tutti_tensor){.data = NULL};
    return TUTTI_OK;
}

/* The value has been checked. */
static tutti_status check_master(const tutti_tensor *value, const tutti_tensor *master,
                                 const char *name, const char *function)
{
    TUTTI_REQUIRE(value->dtype == TUTTI_F16 || value->dtype == TUTTI_BF16,
                  "%s: %s: value is %s, want f16 or bf16 for a separate master", function, name,
                  tutti_dtype_name(value->dtype));
    TUTTI_REQUIRE(master->dtype == TUTTI_F32, "%s: %s: master is %s, want f32", function, name,
                  tutti__dtype_text(master->dtype));
    TUTTI_TRY(check_shape(master, value, "master", name, function));
    TUTTI_REQUIRE(is_contiguous(master), "%s: %s: master is not contiguous", function, name);
    uintptr_t a = (uintptr_t)value->data, b = (uintptr_t)master->data;
    TUTTI_REQUIRE(a + bytes_of(value) <= b || b + bytes_of(master) <= a,
                  "%s: %s: master overlaps the value", function, name);
    return TUTTI_OK;
}

static tutti_status check_bound(const tutti_param *param, const char *name, const char *function)
{
    const tutti_tensor *value = &param->value;
    if (!value->data || !param->master.data)
        return tutti__fail(TUTTI_ERR_STATE, "%s: %s is not bound (tutti_param_bind)", function,
                           name);
    TUTTI_REQUIRE(tutti__is_float(value->dtype), "%s: %s: value is %s, want a float type", function,
                  name, tutti__dtype_text(value->dtype));
    TUTTI_TRY(tutti__shape_check(value, name, function));
    TUTTI_REQUIRE(is_contiguous(value), "%s: %s: value is not contiguous", function, name);
    return TUTTI_OK;
}

tutti_status tutti__own_name_check(const tutti_param *param, const char *function)
{
    TUTTI_REQUIRE(memchr(param->name, 0, TUTTI_NAME_MAX) && param->name[0],
                  "%s: the parameter's name is empty or not terminated by a 0", function);
    return TUTTI_OK;
}

tutti_status tutti__param_check(const tutti_param *param, const char **name, const char *function)
{
    TUTTI_REQUIRE(param, "%s: param is NULL", function);
    if (!*name) {
        TUTTI_TRY(tutti__own_name_check(param, function));
        *name = param->name;
    }
    TUTTI_REQUIRE(strlen(*name) < TUTTI_NAME_MAX, "%s: the name %s is longer than %d bytes",
                  function, *name, TUTTI_NAME_MAX - 1);
    TUTTI_TRY(tutti__name_check(*name, 0, "name", function));
    TUTTI_TRY(check_bound(param, *name, function));
    if (param->master.data != param->value.data)
        return check_master(&param->value, &param->master, *name, function);
    return TUTTI_OK;
}

tutti_status tutti_param_bind_master(tutti_param *param, const tutti_tensor *master)
{
    TUTTI_REQUIRE(param, "param_bind_master: param is NULL");
    TUTTI_TRY(tutti__param_unstored(param, "param_bind_master"));
    TUTTI_REQUIRE(master, "param_bind_master: %s: master is NULL", param->name);
    TUTTI_REQUIRE(master->data, "param_bind_master: %s: master.data is NULL", param->name);
    TUTTI_TRY(check_bound(param, param->name, "param_bind_master"));
    TUTTI_TRY(check_master(&param->value, master, param->name, "param_bind_master"));
    param->master = *master;
    return TUTTI_OK;
}

/* Its first values */

/* Numbers that depend on seed, name and element only: the output function of SplitMix64 [Steele et
 * al. 2014] on a counter. */
static double uniform(uint64_t key, int64_t element)
{
    uint64_t z = key + (uint64_t)(element + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-52 - 1.0; /* in [-1, 1) */
}

void tutti__param_fill(const tutti_param *param, const char *name, uint64_t seed, tutti_dtype dtype,
                       void *host)
{
    uint64_t key = tutti__hash(TUTTI__HASH_START, &seed, sizeof seed);
    key = tutti__hash(key, name, strlen(name));
    const int64_t count = tutti_tensor_count(&param->value);
#pragma omp parallel for schedule(static) if (count >= 1 << 20)
    for (int64_t i = 0; i < count; i++) {
        double value = param->init == TUTTI_INIT_UNIFORM ? param->init_bound * uniform(key, i)
                       : param->init == TUTTI_INIT_ONE   ? 1.0
                                                         : 0.0;
        if (dtype == TUTTI_F64)
            ((double *)host)[i] = value;
        else
            ((float *)host)[i] = (float)value;
    }
}

/* Copies from host memory; values of another type are converted behind the masters'. */
static tutti_status put_init(const tutti_param *param, tutti_context *ctx, tutti_dtype dtype,
                             void *host)
{
    const tutti_tensor *tensors[] = {&param->master, &param->value};
    int64_t count = tutti_tensor_count(&param->value);
    void *rounded = (char *)host + (size_t)count * tutti_dtype_size(dtype);
    for (int i = param->master.data == param->value.data; i < 2; i++) {
        bool as_is = tensors[i]->dtype == dtype;
        if (!as_is) TUTTI_TRY(tutti_convert(rounded, tensors[i]->dtype, host, dtype, count));
        TUTTI_TRY(tutti_copy(ctx, tensors[i]->data, as_is ? host : rounded, bytes_of(tensors[i])));
    }
    return tutti_context_synchronize(ctx);
}

tutti_status tutti_param_init(const tutti_param *param, tutti_context *ctx, const char *name,
                              uint64_t seed)
{
    static const char function[] = "param_init";
    TUTTI_TRY(tutti__param_check(param, &name, function));
    TUTTI_TRY(tutti__init_check(param, name, function));
    TUTTI_REQUIRE(ctx, "%s: %s: ctx is NULL", function, name);
    TUTTI_TRY(
        tutti_context_synchronize(ctx)); /* fails during capture, before anything is enqueued */
    tutti_dtype dtype = param->value.dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    void *host = malloc((size_t)tutti_tensor_count(&param->value) * 2 * tutti_dtype_size(dtype));
    if (!host) return tutti__fail(TUTTI_ERR_MEMORY, "%s: %s: no memory", function, name);
    tutti__param_fill(param, name, seed, dtype, host);
    tutti_status status = put_init(param, ctx, dtype, host);
    free(host);
    return status;
}
