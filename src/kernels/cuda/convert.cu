/* Conversion between the floating-point types on the device, each value rounded once.  Elementwise:
 * reads and writes every element once. */
#include "kernels/cuda/rows.cuh"

enum { CONVERT_THREADS = 256, CONVERT_WIDTH = 8 };

/* A holds both types' values exactly, or is wider than the result. */
template<class A>
__global__ void __launch_bounds__(CONVERT_THREADS)
    convert_kernel(void *dst, tutti_dtype dst_dtype, const void *src, tutti_dtype src_dtype,
                   int64_t count, bool dst_aligned, bool src_aligned)
{
    int64_t step = (int64_t)gridDim.x * CONVERT_THREADS * CONVERT_WIDTH;
    int64_t i = ((int64_t)blockIdx.x * CONVERT_THREADS + threadIdx.x) * CONVERT_WIDTH;
    for (; i < count; i += step) {
        int left = count - i < CONVERT_WIDTH ? (int)(count - i) : CONVERT_WIDTH;
        bool whole = left == CONVERT_WIDTH;
        A values[CONVERT_WIDTH];
        load_any(values, src, src_dtype, i, left, whole && src_aligned);
        store_any(dst, dst_dtype, i, values, left, whole && dst_aligned);
    }
}

tutti_status tutti__cuda_convert(tutti_context *ctx, void *dst, tutti_dtype dst_dtype,
                                 const void *src, tutti_dtype src_dtype, int64_t count)
{
    TUTTI_TRY(tutti__cuda_use(ctx->device, "convert"));
    if (count == 0) return TUTTI_OK;
    bool dst_aligned = row_param_even(dst, dst_dtype, CONVERT_WIDTH);
    bool src_aligned = row_param_even(src, src_dtype, CONVERT_WIDTH);
    bool wide = tutti__accumulate_dtype(dst_dtype, src_dtype) == TUTTI_F64;
    return row_launch("convert", wide ? convert_kernel<double> : convert_kernel<float>,
                      row_grid(count, (int64_t)CONVERT_THREADS * CONVERT_WIDTH, 1), CONVERT_THREADS,
                      1, 0, tutti__cuda_stream(ctx), dst, dst_dtype, src, src_dtype, count,
                      dst_aligned, src_aligned);
}
