/* Errors, assertions and small helpers that every C file of the library uses. */
#ifndef TUTTI_CORE_INTERNAL_H
#define TUTTI_CORE_INTERNAL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "tutti/log.h"
#include "tutti/status.h"
#include "tutti/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the thread's message and returns status.  Called once, where the error is detected. */
tutti_status tutti__fail(tutti_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Passes one line to the log callback, if one is set. */
void tutti__log(tutti_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For the caller's errors: always checked. */
#define TUTTI_REQUIRE(condition, ...)                                     \
    do {                                                                  \
        if (!(condition)) return tutti__fail(TUTTI_ERR_ARG, __VA_ARGS__); \
    } while (0)

/* For the library's own errors: debug builds only. */
#define TUTTI_ASSERT(condition) assert(condition)

/* Propagates a failure, whose message is already set. */
#define TUTTI_TRY(call)                          \
    do {                                         \
        tutti_status status_ = (call);           \
        if (status_ != TUTTI_OK) return status_; \
    } while (0)

/* Copies a caller's descriptor, which begins with its size_t size.  Fields that an older, shorter
 * one lacks are 0; given NULL: all are.  A longer one is refused unless the fields unknown to this
 * library are 0. */
tutti_status tutti__desc_read(void *own, size_t own_size, const void *given, const char *function);

/* A real field of a descriptor: 0 selects the default, TUTTI_ZERO 0. */
static inline double tutti__field(double given, double otherwise)
{
    return given == 0 ? otherwise : given == TUTTI_ZERO ? 0 : given;
}

/* Monotonic clock, in seconds. */
static inline double tutti__now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
/* Sleeps for about this long (for polling loops). */
void tutti__sleep(double seconds);

/* 64-bit FNV-1a over bytes, continued from hash; start with TUTTI__HASH_START. */
#define TUTTI__HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t tutti__hash(uint64_t hash, const void *data, size_t bytes);

/* Fails unless tensor is a contiguous view of memory, of this type.  what: "function: argument". */
tutti_status tutti__tensor_check(const tutti_tensor *tensor, tutti_dtype dtype, const char *what);
/* Whether both have the same dimensions. */
bool tutti__same_shape(const tutti_tensor *a, const tutti_tensor *b);

static inline bool tutti__is_float(tutti_dtype dtype)
{
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

/* tutti_dtype_size of a valid type. */
static inline size_t tutti__size_of(tutti_dtype dtype)
{
    return dtype == TUTTI_F64                         ? 8
           : dtype == TUTTI_F32 || dtype == TUTTI_I32 ? 4
           : dtype == TUTTI_U8                        ? 1
                                                      : 2;
}

/* The type that a layer computes and accumulates in. */
static inline tutti_dtype tutti__accumulate_dtype(tutti_dtype a, tutti_dtype b)
{
    return a == TUTTI_F64 || b == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
}

#ifdef __cplusplus
}
#endif
#endif
