/* What the kernels of softmax know of a call, for all but the plain ones. */
#ifndef TUTTI_KERNELS_CUDA_SOFTMAX_CALL_CUH
#define TUTTI_KERNELS_CUDA_SOFTMAX_CALL_CUH

#include "kernels/cuda/softmax_plain.cuh"

struct softmax_call {
    tutti__softmax_args args;
    bool x_even, bias_even, y_even, dy_even, dx_even, dbias_even;
    tutti__finding *finding;
};

/* What a kernel knows besides the plain layer. */
enum softmax_kind {
    SOFTMAX_PLAIN,   /* only f64 and the long kernels */
    SOFTMAX_LENGTHS, /* forward with lengths, or a size of 0 */
    SOFTMAX_BIAS     /* forward with a bias, backward with lengths or dbias; perhaps with both */
};

/* The number of visible columns of a row; -1 if its length is out of range, which the thread that
 * leads the row reports. */
template<softmax_kind KIND>
__device__ __forceinline__ int visible_columns(const softmax_call &call, int64_t row, bool leads)
{
    const tutti__softmax_args &args = call.args;
    int visible = (int)args.cols;
    if constexpr (KIND != SOFTMAX_PLAIN) {
        if (args.lengths) {
            int32_t length = args.lengths[row];
            bool good = length >= 0 && length <= visible;
            if (!good && leads && atomicCAS(&call.finding->code, 0, args.finding) == 0) {
                call.finding->value = length;
                call.finding->row = row;
                call.finding->limit = visible;
            }
            if (!good) return -1;
            visible = length;
        }
    }
    return causal_columns(visible, args.causal_period, args.first_row + row);
}

template<class T>
__device__ __forceinline__ const T *bias_row(const tutti__softmax_args &args, int64_t row)
{
    return (const T *)args.bias.data + row % args.bias_period * args.bias.stride;
}

/* Of a column that is not visible. */
template<softmax_kind KIND, class A>
__device__ __forceinline__ A hidden_value(int visible, A usual)
{
    return KIND != SOFTMAX_PLAIN && visible < 0 ? (A)CUDART_NAN : usual;
}

#endif
