/* Elementwise passes around matrix products; `name` is the layer's, in messages. */
#ifndef TUTTI_KERNELS_CUDA_PASSES_H
#define TUTTI_KERNELS_CUDA_PASSES_H

#include "kernels/cuda/cuda.h"
#include "ops/activation.h"

/* y = act(z), [rows, cols]; z may be y. */
tutti_status tutti__cuda_activate(const char *name, cudaStream_t stream, int64_t rows, int64_t cols,
                                  tutti__activation activation, const tutti__matrix *z,
                                  const tutti__matrix *y);

/* Sets every row of y to the bias, for a product that adds to it. */
tutti_status tutti__cuda_fill_rows(const char *name, cudaStream_t stream, int64_t rows,
                                   int64_t cols, const void *bias, const tutti__matrix *y);

/* Where column sums go: of some leaves of equally many rows, to one of each, or, if span is 2, to
 * one of leaves 2 i and 2 i + 1, `apart` elements from one to the next; to NULL: they are not
 * wanted.  run: rows of a partial sum; 0: column_run.  later: the pass leaves the partial sums to
 * tutti__cuda_add_partial, which runs beside the kernel between the two; each of that one's blocks
 * must have waited for the pass before it lets the next kernel start (wait_for_previous, then
 * start_next). */
typedef struct tutti__cuda_sums {
    void *to;
    int leaves, span;
    int64_t apart;
    bool accumulate;
    int64_t run;
    bool later = false;
} tutti__cuda_sums;

/* dz = dy act'(v), v being z if it is needed and otherwise y, and its column sums, in f64 for f64
 * and otherwise in f32; dz may be absent.  partial: scratch for a row of sums per run of each
 * leaf. */
tutti_status tutti__cuda_activate_backward(const char *name, cudaStream_t stream, int64_t rows,
                                           int64_t cols, tutti__activation activation,
                                           const tutti__matrix *dy, const tutti__matrix *v,
                                           const tutti__matrix *dz, void *partial,
                                           const tutti__cuda_sums &sums);

/* The sums of `runs` rows of partial sums of each leaf, in f64 or f32. */
tutti_status tutti__cuda_add_partial(const char *name, cudaStream_t stream, tutti_dtype real,
                                     const void *partial, int64_t runs, int64_t cols,
                                     const tutti__cuda_sums &sums);

/* Loads the kernels of these passes, which is not allowed during a capture. */
tutti_status tutti__cuda_load_passes(const char *name, tutti_dtype dtype,
                                     tutti__activation activation);

/* Whether 16-byte accesses are possible. */
static inline bool tutti__cuda_aligned(const void *data)
{
    return (uintptr_t)data % 16 == 0;
}

#endif
