/* Softmax and log-softmax in f64, with and without lengths and bias: rows in registers
 * (double_rows.cuh).  Backward has y there and dy in shared memory. */
#ifndef TUTTI_KERNELS_CUDA_SOFTMAX_DOUBLE_CUH
#define TUTTI_KERNELS_CUDA_SOFTMAX_DOUBLE_CUH

#include "kernels/cuda/double_rows.cuh"
#include "kernels/cuda/softmax_call.cuh"

template<bool BACKWARD, softmax_kind KIND>
struct softmax_doubles {
    using call = softmax_call;
    static constexpr int TENSORS = BACKWARD, VALUES = BACKWARD ? 1 : 2;

    template<int COUNT, class Team>
    static __device__ __forceinline__ void of_row(const call &c, Team &team, int64_t row,
                                                  bool exists, double_place place, double *shared)
    {
        const int visible = exists ? visible_columns<KIND>(c, row, place.first == 0) : 0;
        const int cols = exists ? (int)c.args.cols : 0;
        if constexpr (BACKWARD)
            backward<COUNT>(c, team, row, visible, cols, place, shared);
        else
            forward<COUNT>(c, team, row, visible, cols, place);
    }

  private:
    static constexpr bool BIAS = KIND == SOFTMAX_BIAS;
    static constexpr int E = DOUBLES_TOGETHER;

    template<int COUNT, class Team>
    static __device__ __forceinline__ void forward(const call &c, Team &team, int64_t row,
                                                   int visible, int cols, double_place place)
    {
        const tutti__softmax_args &args = c.args;
        const double lead = BIAS ? 1 : args.lead, size = BIAS ? 1 : args.size;
        const int held = place.held(visible);
        double v[COUNT], top[1] = {-DBL_MAX}, sum[1] = {0};
        load_doubles(v, row_of<const double>(args.x, row), place, held);
        const double *bias = BIAS ? bias_row<double>(args, row) + place.first : NULL;
        team.begin();

#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            if (k >= held)
                v[k] = -CUDART_INF;
            else
                v[k] = BIAS ? fma(v[k], args.scale, bias[k * place.step]) : v[k] * lead;
            if (v[k] > top[0]) top[0] = v[k];
        }
        reduce_lanes<row_max>(top, place.lanes);
        each_exponential<COUNT>(
            held, [&](int k) { return (v[k] - top[0]) * size; },
            [&](int k, double e) {
                if (k < held) sum[0] += e;
                if (!args.log) v[k] = e;
            });
        reduce_lanes<row_add>(sum, place.lanes);
        double both[2] = {top[0], sum[0]}, factor[1];
        merge_exponentials(team, size, both);

        factor[0] = (top[0] - both[0]) * size;
        exponentials(factor);
        factor[0] = args.log ? log(both[1]) : factor[0] / both[1];
        const int all = place.held(cols);
        const double hidden = hidden_value<KIND>(visible, args.log ? -CUDART_INF : 0.0);
        double *y = row_of<double>(args.y, row) + place.first;
#pragma unroll
        for (int k = 0; k < COUNT; k++, y += place.step) {
            v[k] = args.log ? (v[k] - both[0]) * size - factor[0] : v[k] * factor[0];
            if (k < all) *y = k < held ? v[k] : hidden;
        }
    }

    template<int COUNT, class Team>
    static __device__ __forceinline__ void backward(const call &c, Team &team, int64_t row,
                                                    int visible, int cols, double_place place,
                                                    double *shared)
    {
        const tutti__softmax_args &args = c.args;
        const int threads = blockDim.x, held = place.held(visible);
        const double *dy = row_of<const double>(args.dy, row) + place.first;
#pragma unroll
        for (int k = 0; k < COUNT; k++, dy += place.step)
            if (k < held) fetch8(shared + k * threads, dy);
        double y[COUNT], sum[1] = {0};
        load_doubles(y, row_of<const double>(args.y, row), place, held);
        team.begin();
        await_fetches();

#pragma unroll
        for (int k = 0; k < COUNT; k++)
            if (k < held) sum[0] += args.log ? shared[k * threads] : y[k] * shared[k * threads];
        team.template reduce<row_add>(sum);

        const int all = place.held(cols);
        const double hidden = hidden_value<KIND>(visible, 0.0);
        double *dx = row_of<double>(args.dx, row) + place.first;
        double *dbias = BIAS ? row_of<double>(args.dbias, row) + place.first : NULL;
#pragma unroll
        for (int k = 0; k < COUNT; k += E) {
            double g[E];
#pragma unroll
            for (int i = 0; i < E; i++) g[i] = y[k + i];
            if (args.log) exponentials(g);
#pragma unroll
            for (int i = 0; i < E; i++, dx += place.step) {
                if (k + i >= all) continue;
                double d = hidden, scaled = hidden;
                if (k + i < held) {
                    const double part =
                        shared[(k + i) * threads] - (args.log ? g[i] * sum[0] : sum[0]);
                    if constexpr (BIAS) {
                        d = args.log ? part : g[i] * part;
                        scaled = args.scale * d;
                    } else
                        scaled = args.log ? args.scale * part : args.scale * g[i] * part;
                }
                if (BIAS && args.dbias.data) dbias[(k + i) * place.step] = d;
                *dx = scaled;
            }
        }
    }
};

#endif
