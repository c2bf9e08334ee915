/* LayerNorm and RMSNorm, forward: what both kinds of kernels use. */
#ifndef TUTTI_KERNELS_CUDA_NORM_FORWARD_CUH
#define TUTTI_KERNELS_CUDA_NORM_FORWARD_CUH

#include "kernels/cuda/norm.cuh"

struct norm_forward_even {
    bool x, residual, sum, y, gamma, beta;
    bool params; /* gamma and beta are, and of x's type or float */
    float inverse_cols, eps;
};

static inline norm_forward_even find_even(const tutti__norm_args *args, int width)
{
    int64_t rows = args->rows;
    norm_forward_even even = {row_even(args->x, rows, width),
                              row_even(args->residual, rows, width),
                              row_even(args->sum, rows, width),
                              row_even(args->y, rows, width),
                              row_param_even(args->gamma, args->param_dtype, width),
                              row_param_even(args->beta, args->param_dtype, width),
                              false,
                              (float)(1.0 / (double)args->cols),
                              (float)args->eps};
    even.params = even.gamma && even.beta &&
                  (args->param_dtype == args->x.dtype || args->param_dtype == TUTTI_F32);
    return even;
}

/* A row is delicate if its deviations are so small relative to its mean that the mean's rounding
 * would show in them, or if its sums overflow (it stays NaN then); a row of zeros is not.  The mean
 * is then corrected twice by the mean of x - mean, and the squares by its square [Chan, Golub &
 * LeVeque 1983].  So a row of equal values has that value as its mean, and squares of 0. */
template<class A>
__device__ __forceinline__ bool is_delicate(A mean, A mean_square)
{
    return mean != 0 && !(mean_square > mean * mean * (A)0x1p-6);
}

enum { DELICATE_PASSES = 2 };

/* After a pass: the sums of x - mean and of (x - mean)^2, and the mean of the former. */
template<class A>
__device__ __forceinline__ void correct_mean(A &mean, A &squares, A sum, A moved)
{
    mean += moved;
    squares = fma(-moved, sum, squares);
    squares = squares < 0 ? 0 : squares;
}

/* norm_forward_parked.cu: of x's type.  whole: all rows and the parameters are aligned whole
 * vectors. */
struct parked_plan;
tutti_status tutti__cuda_norm_forward_parked(tutti_context *ctx, const tutti__norm_args *args,
                                             const norm_forward_even &even, bool whole,
                                             const parked_plan &plan);

/* norm_forward_any.cu: any types, any length, in f64 (wide) or f32. */
tutti_status tutti__cuda_norm_forward_any(tutti_context *ctx, const tutti__norm_args *args,
                                          bool wide);

#endif
