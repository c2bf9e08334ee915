/* Measured choices between the ways of computing a product: each shape is measured once, on a
 * context that tunes, and remembered by it (tutti_context_tune). */
#ifndef TUTTI_KERNELS_CUDA_TUNE_H
#define TUTTI_KERNELS_CUDA_TUNE_H

#include "ops/gemm.h"

/* The ways of one product, numbered from 0; way 0 always exists, and is the one that is taken
 * without a measurement. */
struct tutti__cuda_ways {
    int count;

    /* Makes this way the prepared one.  *there: it exists, and is not the same as way 0. */
    virtual tutti_status prepare(int way, bool *there) = 0;
    /* Enqueues a product like the one planned in the prepared way. */
    virtual tutti_status run(const tutti__gemm *trial) = 0;
    /* *good: the prepared way rounds as it must. */
    virtual tutti_status check(int way, bool *good) = 0;
    /* Tells the prepared way from others that could have its number, in another process. */
    virtual uint64_t mark() = 0;
    /* Chooses the prepared way. */
    virtual void take() = 0;

  protected:
    explicit tutti__cuda_ways(int n) : count(n) {}
    ~tutti__cuda_ways() = default;
};

/* Chooses the way that is known for this shape, or, if the context tunes, measures them. */
tutti_status tutti__cuda_tune(tutti_context *ctx, const tutti__gemm *gemm, tutti__cuda_ways *ways);

#endif
