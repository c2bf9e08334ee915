/* LayerNorm and RMSNorm, backward, of few rows: dx, dgamma and dbeta by one kernel.
 *
 * The sums over rows need none over columns.  So some blocks have rows, and write dx; others have a
 * few columns of all rows, and write dgamma and dbeta.  What both read comes from memory once and
 * from the second level of the caches once more, which takes less time than partial sums and the
 * start of a second kernel to add them.  Rows that clusters share have the cluster kernel for dx,
 * and this one, of columns alone, beside it.
 *
 * dx may be dy: then the blocks of columns are a launch before the others, with the same bits. */
#include "kernels/cuda/norm_backward_rows.cuh"

enum {
    FEW_THREADS = 256, /* 133 x 4096: 6.8 us, with 512 8.9 */
    FEW_LANES = 768,   /* a row's threads, at most */
    COLUMN_LANES = 2
};

/* Some threads of a block, as many as in norm_backward.cu, for a row.  WHOLE: all vectors are, and
 * aligned. */
template<class T, int ELEMENTS, bool CENTERED, bool WHOLE>
static __device__ __forceinline__ void few_rows(const tutti__norm_args &args,
                                                const norm_backward_even &even, int64_t block,
                                                int lanes, float *places)
{
    constexpr int N = vector16<T>::N, VECS = ELEMENTS / N, VALUES = CENTERED ? 2 : 1;
    const int group = (int)threadIdx.x / lanes, together = lanes < 32 ? lanes : 32;
    const int64_t row = block * ((int)blockDim.x / lanes) + group;
    const bool exists = row < args.rows;
    const backward_lane which = {(int)threadIdx.x % lanes, lanes, together, 0};
    const row_place place = {which.first(VECS), together, together};
    const int cols = exists ? (int)args.cols : 0;

    uint4 x[VECS], dy[VECS], dsum[VECS];
    auto load = [&](uint4(&raw)[VECS], const tutti__matrix &matrix) {
        const T *from = (const T *)matrix.data + (exists ? row : 0) * matrix.stride;
        if constexpr (WHOLE) {
#pragma unroll
            for (int k = 0; k < VECS; k++) {
                const int col = place.column<T>(k);
                raw[k] = col < cols ? *(const uint4 *)(from + col) : make_uint4(0, 0, 0, 0);
            }
        } else
            load_row(raw, from, place, cols);
    };
    load(x, args.x);
    load(dy, args.dy);
    const float rstd = exists ? ((const float *)args.rstd)[row] : 0;
    const float mean = CENTERED && exists ? ((const float *)args.mean)[row] : 0;
    if (args.dsum.data) load(dsum, args.dsum);

    auto gamma_of = [&](float(&gamma)[N], int k) {
        const int col = place.column<T>(k);
#pragma unroll
        for (int i = 0; i < N; i++) gamma[i] = 1;
        if (!args.gamma || col >= cols) return;
        load_param(gamma, args.gamma, args.param_dtype, col, N, WHOLE || even.gamma);
        if (args.zero_centered) {
#pragma unroll
            for (int i = 0; i < N; i++) gamma[i] += 1;
        }
    };
    float sums[VALUES] = {};
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        float n[N], g[N], gamma[N];
        gamma_of(gamma, k);
        vector16<T>::unpack(x[k], n);
        vector16<T>::unpack(dy[k], g);
#pragma unroll
        for (int i = 0; i < N; i++) {
            g[i] = __fmul_rn(g[i], gamma[i]);
            sums[0] = fmaf(g[i], normalised<CENTERED>(n[i], mean, rstd), sums[0]);
            if constexpr (CENTERED) sums[1] += g[i];
        }
        hold_packed<T>(x[k]);
        hold_packed<T>(dy[k]);
    }
    if (lanes <= 32)
        lanes_team<VALUES>{lanes}.reduce(sums);
    else
        warps_team<VALUES, true>(places, lanes).reduce(sums);
    const dx_formula<CENTERED> formula(sums, rstd, even.inverse_cols);
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        float n[N], g[N], gamma[N];
        gamma_of(gamma, k); /* once more: it would take registers meanwhile */
        hold_packed<T>(x[k]);
        hold_packed<T>(dy[k]);
        vector16<T>::unpack(x[k], n);
        vector16<T>::unpack(dy[k], g);
#pragma unroll
        for (int i = 0; i < N; i++)
            g[i] = formula.of(normalised<CENTERED>(n[i], mean, rstd), g[i], gamma[i]);
        if (args.dsum.data) {
            vector16<T>::unpack(dsum[k], n);
#pragma unroll
            for (int i = 0; i < N; i++) g[i] = __fadd_rn(g[i], n[i]);
        }
        x[k] = vector16<T>::pack(g);
    }
    T *to = (T *)args.dx.data + (exists ? row : 0) * args.dx.stride;
    if constexpr (WHOLE) {
#pragma unroll
        for (int k = 0; k < VECS; k++) store_whole(to, place.column<T>(k), x[k], cols);
    } else
        store_row(to, x, place, cols);
}

/* Adds up values over lanes of a warp that differ in `apart` and the bits below it but the lowest:
 * each time a lane gives away the half of its values that it will not keep.  In the end it has
 * value lane / (32 / COUNT) of those with its lowest bit, in values[0]. */
template<int COUNT, int APART, int ALL>
static __device__ __forceinline__ void fold_lanes(float (&values)[ALL])
{
    constexpr int HALF = COUNT / 2;
    if constexpr (APART >= COLUMN_LANES) {
        const bool upper = threadIdx.x & APART;
        if constexpr (HALF == 0) values[0] += __shfl_xor_sync(0xffffffffu, values[0], APART);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            const float given = upper ? values[i] : values[i + HALF];
            const float kept = upper ? values[i + HALF] : values[i];
            values[i] = kept + __shfl_xor_sync(0xffffffffu, given, APART);
        }
        fold_lanes<(HALF > 0 ? HALF : 1), APART / 2>(values);
    }
}

/* Two lanes have a vector each of a row, the other threads of a block those of other rows. */
template<class T, bool CENTERED, bool WHOLE>
static __device__ __forceinline__ void few_columns(const tutti__norm_args &args, int64_t slice,
                                                   float *places)
{
    constexpr int N = vector16<T>::N, COUNT = CENTERED ? 2 * N : N;
    constexpr int AHEAD = COUNT > 8 ? 3 : 4; /* as registers go */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int rows = (int)args.rows, strips = (int)blockDim.x / COLUMN_LANES;
    const int col = ((int)slice * COLUMN_LANES + lane % COLUMN_LANES) * N;
    const bool has = col < args.cols;

    /* what this thread writes in the end: a value that fold_lanes leaves to it */
    const int value = lane / (32 / COUNT), at = col + value % N;
    void *to = value / N ? args.dbeta : args.dgamma;
    if (warp > 0 || !has || lane / 2 % (16 / COUNT) != 0) to = NULL;
    const bool wide = args.grad_dtype == TUTTI_F64;
    double before = 0;
    if (to && args.accumulate) before = wide ? ((double *)to)[at] : (double)((float *)to)[at];

    float sums[COUNT] = {};
    for (int first = (int)threadIdx.x / COLUMN_LANES; first < rows; first += strips * AHEAD) {
        uint4 x[AHEAD], dy[AHEAD]; /* on their way together */
        float mean[AHEAD], rstd[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int row = first + k * strips;
            const bool reads = has && row < rows;
            const T *of_x = (const T *)args.x.data + row * args.x.stride + col;
            const T *of_dy = (const T *)args.dy.data + row * args.dy.stride + col;
            if constexpr (WHOLE) {
                x[k] = reads ? *(const uint4 *)of_x : make_uint4(0, 0, 0, 0);
                dy[k] = reads ? *(const uint4 *)of_dy : make_uint4(0, 0, 0, 0);
            } else {
                x[k] = gather(of_x, reads ? N : 0);
                dy[k] = gather(of_dy, reads ? N : 0);
            }
            rstd[k] = reads ? ((const float *)args.rstd)[row] : 0;
            mean[k] = CENTERED && reads ? ((const float *)args.mean)[row] : 0;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            float n[N], g[N];
            hold_packed<T>(x[k]);
            hold_packed<T>(dy[k]);
            vector16<T>::unpack(x[k], n);
            vector16<T>::unpack(dy[k], g);
#pragma unroll
            for (int i = 0; i < N; i++) {
                sums[i] = fmaf(g[i], normalised<CENTERED>(n[i], mean[k], rstd[k]), sums[i]);
                if constexpr (CENTERED) sums[N + i] += g[i];
            }
        }
    }
    fold_lanes<COUNT, 16>(sums);
    places[warp * 32 + lane] = sums[0];
    __syncthreads();
    if (!to) return;
    float total = places[lane];
#pragma unroll 4
    for (int other = 1; other < (int)blockDim.x / 32; other++) total += places[other * 32 + lane];
    if (wide)
        ((double *)to)[at] = before + (double)total;
    else
        ((float *)to)[at] = (float)before + total;
}

/* Two blocks on a multiprocessor, of usual rows. */
constexpr int few_registers(int element, int elements, bool whole)
{
    return element * elements > 32 ? 96 : whole ? 64 : 80;
}

/* slices: blocks of columns, the first ones. */
template<class T, int ELEMENTS, bool CENTERED, bool WHOLE>
__global__ void __maxnreg__(bound_registers(few_registers(sizeof(T), ELEMENTS, WHOLE)))
    norm_backward_few_kernel(const __grid_constant__ tutti__norm_args args,
                             const __grid_constant__ norm_backward_even even, unsigned slices,
                             int lanes)
{
    __shared__ __align__(1024) float places[FEW_LANES];
    if (blockIdx.x >= slices) {
        few_rows<T, ELEMENTS, CENTERED, WHOLE>(args, even, blockIdx.x - slices, lanes, places);
        return;
    }
    few_columns<T, CENTERED, WHOLE>(args, blockIdx.x, places);
    wait_for_previous(); /* so that a kernel after this one finds the results of the one before */
}

/* Host side */

static int64_t divide_up(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

template<class T, int ELEMENTS>
static tutti_status launch(tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan)
{
    const char *what = "norm_backward";
    constexpr int N = vector16<T>::N;
    cudaStream_t stream = tutti__cuda_stream(ctx);
    const norm_backward_even even = find_even(args, N);
    const bool whole = even.is_whole(args, N) && even.gamma,
               clusters = plan.kind == backward_plan::CLUSTER;
    int threads = plan.lanes > FEW_THREADS ? plan.lanes : FEW_THREADS / plan.lanes * plan.lanes;
    if (clusters && threads > COLUMN_LANES * args->rows)
        threads = (int)divide_up(COLUMN_LANES * args->rows, 32) * 32;
    const bool writes = args->dx.data != NULL, sums = args->dgamma || args->dbeta;
    const unsigned slices = sums ? (unsigned)divide_up(args->cols, COLUMN_LANES * N) : 0;
    const unsigned blocks =
        writes && !clusters ? (unsigned)divide_up(args->rows, threads / plan.lanes) : 0;
    auto kernel = args->centered ? whole ? norm_backward_few_kernel<T, ELEMENTS, true, true>
                                         : norm_backward_few_kernel<T, ELEMENTS, true, false>
                  : whole ? norm_backward_few_kernel<T, ELEMENTS, false, true>
                                 : norm_backward_few_kernel<T, ELEMENTS, false, false>;
    auto run = [&](unsigned columns, unsigned rows) {
        return row_launch(what, kernel, columns + rows, threads, 1, 0, stream, *args, even, columns,
                          plan.lanes);
    };
    const bool in_place = writes && args->dx.data == args->dy.data;
    if (in_place && slices) TUTTI_TRY(run(slices, 0));
    if (clusters && writes) {
        tutti__norm_args rows = *args;
        rows.dgamma = rows.dbeta = NULL;
        TUTTI_TRY(tutti__cuda_norm_backward_cluster(ctx, &rows, plan, {NULL, NULL, plan.pitch}));
        if (in_place || !slices) return TUTTI_OK;
        return launch_early(what, ctx->device, kernel, dim3(slices), dim3((unsigned)threads),
                            stream, *args, even, slices, plan.lanes);
    }
    const unsigned columns = in_place ? 0 : slices;
    return columns + blocks ? run(columns, blocks) : TUTTI_OK;
}

template<class T>
static tutti_status launch_of(tutti_context *ctx, const tutti__norm_args *args,
                              const backward_plan &plan)
{
    return plan.elements == 8 ? launch<T, 8>(ctx, args, plan) : launch<T, 16>(ctx, args, plan);
}

tutti_status tutti__cuda_norm_backward_few(tutti_context *ctx, const tutti__norm_args *args,
                                           const backward_plan &plan)
{
    switch (args->x.dtype) {
    case TUTTI_F16:
        return launch_of<__half>(ctx, args, plan);
    case TUTTI_BF16:
        return launch_of<__nv_bfloat16>(ctx, args, plan);
    default:
        return launch_of<float>(ctx, args, plan);
    }
}
