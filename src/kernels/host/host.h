/* Shared by the files of the host backend: the operations' names, rows of any type converted to
 * float or double, and parallel loops whose number of threads never changes a result.
 *
 * An operation's arithmetic is float or double (REAL).  Its body is written once, in X_rows.h,
 * which X.c includes by each_real.h, once for each; OF(name) is then name_f32 or name_f64.  A body
 * loads a row of another type into an aligned row of REALs, works there, and stores it; a row of
 * REALs it may also take where it lies (row_in, row_out).  The order of a sum depends only on the
 * number of columns. */
#ifndef TUTTI_KERNELS_HOST_HOST_H
#define TUTTI_KERNELS_HOST_HOST_H

#include <math.h>
#include <stdatomic.h>

#include "core/context.h"
#include "core/half.h"

/* A function whose loops the compiler vectorises, once for any x86-64, once for AVX2 and FMA, once
 * for AVX-512; the loader picks one. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define TUTTI__VECTORISED \
    __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define TUTTI__VECTORISED
#endif

/* A helper of vectorised bodies: always inlined, as a copy would be code for any x86-64. */
#define TUTTI__INLINE static inline __attribute__((always_inline))

/* Rows */

/* Row `row` of a matrix. */
static inline void *tutti__row(const tutti__matrix *matrix, int64_t row)
{
    return (char *)matrix->data + row * matrix->stride * (int64_t)tutti_dtype_size(matrix->dtype);
}

/* Element i of a contiguous buffer of this type. */
static inline void *tutti__at(const void *data, tutti_dtype dtype, int64_t i)
{
    return (char *)data + i * (int64_t)tutti_dtype_size(dtype);
}

/* Convert count values of any float type to and from a row of REALs; round: as a store and a load
 * would. */
void tutti__load_f32(float *row, const void *src, tutti_dtype dtype, int64_t count);
void tutti__load_f64(double *row, const void *src, tutti_dtype dtype, int64_t count);
void tutti__store_f32(void *dst, tutti_dtype dtype, const float *row, int64_t count);
void tutti__store_f64(void *dst, tutti_dtype dtype, const double *row, int64_t count);
void tutti__round_f32(float *row, tutti_dtype dtype, int64_t count);
void tutti__round_f64(double *row, tutti_dtype dtype, int64_t count);

/* Rows are gone through in pieces of columns, of which the last may be shorter.  With each comes
 * the demand for what lies there of a row that is next, so that memory is read all the time, not
 * only while a row is summed; and what is stored past the caches goes by way of the first one.  A
 * room of a row's may take each piece at its beginning: what lay there has been read. */
enum { TUTTI__PIECE = 128 };
TUTTI__INLINE int64_t tutti__piece_of(int64_t cols, int64_t column)
{
    return cols - column < TUTTI__PIECE ? cols - column : TUTTI__PIECE;
}

/* Row 0 is that row from a column on. */
TUTTI__INLINE tutti__matrix tutti__columns_from(const tutti__matrix *matrix, int64_t row,
                                                int64_t column)
{
    char *const data = tutti__row(matrix, row);
    return (tutti__matrix){data + column * (int64_t)tutti__size_of(matrix->dtype), matrix->dtype,
                           0};
}

/* Asks for columns of a row. */
TUTTI__INLINE void tutti__expect(const tutti__matrix *matrix, int64_t row, int64_t column,
                                 int64_t count)
{
    const char *const from = tutti__columns_from(matrix, row, column).data;
    const int64_t bytes = count * (int64_t)tutti__size_of(matrix->dtype);
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

/* Whether a call that reads and writes so many matrices like this exceeds what caches keep.  Rows
 * of REALs are then stored past them, from room, by whole lines: a plain store reads a line first.
 * Not worth while where the arithmetic takes longer than memory. */
TUTTI__INLINE bool tutti__past_caches(int matrices, const tutti__matrix *matrix, int64_t rows,
                                      int64_t cols)
{
    return rows * cols * matrices >= (int64_t)((96 << 20) / tutti__size_of(matrix->dtype));
}
/* tutti__parallel makes these stores visible to other threads. */
void tutti__store_past(void *dst, const void *src, size_t bytes);

/* A row as REALs: itself, where that is its type, else loaded into room.  Where REALs of a row are
 * to be written: there itself, or room, from which store_row stores them.  past: what
 * tutti__past_caches says. */
#define TUTTI__ROWS_OF(name, REAL, DTYPE)                                                   \
    TUTTI__INLINE const REAL *tutti__row_in_##name(REAL *room, const tutti__matrix *matrix, \
                                                   int64_t row, int64_t count)              \
    {                                                                                       \
        if (matrix->dtype == DTYPE) return tutti__row(matrix, row);                         \
        tutti__load_##name(room, tutti__row(matrix, row), matrix->dtype, count);            \
        return room;                                                                        \
    }                                                                                       \
    TUTTI__INLINE REAL *tutti__row_out_##name(REAL *room, const tutti__matrix *matrix,      \
                                              int64_t row, bool past)                       \
    {                                                                                       \
        return matrix->dtype == DTYPE && !past ? tutti__row(matrix, row) : room;            \
    }                                                                                       \
    TUTTI__INLINE void tutti__store_row_##name(const tutti__matrix *matrix, int64_t row,    \
                                               const REAL *from, int64_t count, bool past)  \
    {                                                                                       \
        void *const to = tutti__row(matrix, row);                                           \
        if (past && matrix->dtype == DTYPE)                                                 \
            tutti__store_past(to, from, (size_t)count * sizeof *from);                      \
        else if (from != to)                                                                \
            tutti__store_##name(to, matrix->dtype, from, count);                            \
    }
TUTTI__ROWS_OF(f32, float, TUTTI_F32)
TUTTI__ROWS_OF(f64, double, TUTTI_F64)

/* Long rows are summed in chunks of this many columns: REALs within a chunk, in so many lanes, two
 * words across. */
#define TUTTI__CHUNK 512
#define TUTTI__LANES 32

/* A sum in two words: the rounding error of each addition is kept, so that a chain is as accurate
 * as one addition.  [Knuth 1997, 4.2.2] */
typedef struct tutti__long_sum {
    double high, low;
} tutti__long_sum;

TUTTI__INLINE void tutti__long_add(tutti__long_sum *sum, double term)
{
    const double high = sum->high + term, part = high - sum->high;
    sum->low += (sum->high - (high - part)) + (term - part);
    sum->high = high;
}

/* An infinity has no second word. */
TUTTI__INLINE double tutti__long_total(const tutti__long_sum *sum)
{
    return isfinite(sum->high) ? sum->high + sum->low : sum->high;
}

/* Bytes of `count` elements, rounded up to a multiple of 256. */
static inline size_t tutti__room(int64_t count, size_t size)
{
    return ((size_t)count * size + 255) / 256 * 256;
}

/* Threads */

/* Works on items [begin, end); thread: 0 to ctx->threads − 1, for scratch. */
typedef void (*tutti__work)(void *task, int64_t begin, int64_t end, int thread);

/* So many threads, or 1 in a process that was forked from one that has had several: OpenMP's do not
 * survive that, and a parallel region would wait for them forever. */
int tutti__threads_here(int threads);

/* Runs work on [0, count) in pieces, in parallel.  cost: roughly the nanoseconds per item on one
 * thread; little work stays on the calling thread.  Results must not depend on how items are
 * grouped or on their thread. */
void tutti__parallel(const tutti_context *ctx, int64_t count, double cost, tutti__work work,
                     void *task);

/* Reductions over rows: fixed blocks of rows, one partial row of `cols` REALs per block, merged in
 * block order. */
typedef struct tutti__row_blocks {
    int64_t count, rows; /* blocks, and rows in each (the last may have fewer) */
} tutti__row_blocks;
tutti__row_blocks tutti__split_rows(int64_t rows, int64_t cols);

/* dst[j] (+)= sum over blocks of partial[block * stride + j], in f64.  real: type of the
 * partials. */
void tutti__merge_blocks(const tutti_context *ctx, void *dst, tutti_dtype dst_dtype,
                         bool accumulate, const void *partial, tutti_dtype real, int64_t blocks,
                         int64_t stride, int64_t cols);

/* exp of a float to about one ulp: x = n ln 2 + r with |r| <= ln 2 / 2, Taylor's polynomial in r,
 * and 2^n in two factors so that the ends of the range are right.  No branch and no call, so that
 * loops over it vectorise. */
TUTTI__INLINE float tutti__exp_f32(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float t = x * 1.44269504f + shift;
    float n = t - shift;
    float r =
        x -
        n * 0.693145751953125f; /* ln 2 in two parts, the first short enough for an exact product */
    r = r - n * 1.42860677e-6f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r;
    p = p + 1.0f;
    int32_t exponent = (int32_t)(tutti__bits_of_float(t) - 0x4b400000u);
    int32_t half = exponent >> 1;
    float low = tutti__float_of_bits((uint32_t)(half + 127) << 23);
    float high = tutti__float_of_bits((uint32_t)(exponent - half + 127) << 23);
    return p * low * high;
}
TUTTI__INLINE double tutti__exp_f64(double x)
{
    return exp(x);
}

/* Lowers *first to row: for the first bad row of a call, whichever thread finds it. */
static inline void tutti__note_first(_Atomic int64_t *first, int64_t row)
{
    int64_t known = *first;
    while (row < known && !atomic_compare_exchange_weak(first, &known, row)) continue;
}

/* Records a fault in a call's data, if none is recorded yet. */
static inline void tutti__host_find(tutti_context *ctx, int32_t code, int32_t value, int64_t row,
                                    int64_t limit)
{
    if (ctx->finding->code == 0)
        *ctx->finding = (tutti__finding){.code = code, .value = value, .row = row, .limit = limit};
}

/* The functions of backend.h besides the operations. */
tutti_status tutti__host_tree_sum(int device, tutti__stream stream,
                                  const struct tutti__tree_sum_args *args);
tutti_status tutti__host_hash(tutti_context *ctx, const uint32_t *words, int64_t count,
                              uint64_t *hash);
tutti_status tutti__host_convert(tutti_context *ctx, void *dst, tutti_dtype dst_dtype,
                                 const void *src, tutti_dtype src_dtype, int64_t count);
tutti_status tutti__host_count_labels(tutti_context *ctx, const int32_t *labels, int64_t rows,
                                      int32_t ignored, int64_t below, double *count,
                                      bool accumulate);
tutti_status tutti__host_weigh(tutti_context *ctx, const double *count, double *weight);

#endif
