/* What every loss of rows does around the arithmetic of a row: the plan, the kernel of rows that
 * stay in a warp's registers, the launch, and the sum of the rows' losses, in an order that depends
 * only on the number of rows and on whether the device has clusters.
 *
 * Losses, of one loss and type, is the rest:
 *   call       the kernels' parameter: args, row_losses ([rows], or NULL), finding
 *   of_rows    loss and gradient of up to ROWS rows, in the registers of a team of threads, which
 *              reduces at most VALUES values a row
 *   lengthy()  the kernel of rows that are too long for a warp, and of f64, a block a row
 *   lengthy_threads(cols), lengthy_shared(threads)   its block's threads, and shared memory
 *   WARP_BLOCKS   the least blocks of the warps' kernel on a multiprocessor (0: any) */
#ifndef TUTTI_KERNELS_CUDA_ROW_LOSSES_CUH
#define TUTTI_KERNELS_CUDA_ROW_LOSSES_CUH

#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/rows.cuh"

/* A block sums up to SUM_ALONE losses, a cluster more. */
enum { SUM_THREADS = 1024, SUM_ALONE = 8 * SUM_THREADS };

static __global__ void __launch_bounds__(SUM_THREADS)
    sum_in_order_kernel(const double *values, int64_t count, double *total, int cluster)
{
    __shared__ block_team_slots<double, 1> slots;
    block_team<double, 1> team(slots, cluster);
    const int first = team.rank * SUM_THREADS + threadIdx.x, step = cluster * SUM_THREADS;
    row_total<double> mine;
#pragma unroll 8
    for (int64_t i = first; i < count; i += step) mine.add(values[i]);
    double sum[1] = {mine.value()};
    team.begin();
    team.reduce<row_add>(sum);
    if (first == 0) *total = sum[0];
}

/* losses: [rows], in f64; for no rows the sum is 0. */
static inline tutti_status sum_losses(const char *what, tutti_context *ctx, const double *losses,
                                      int64_t rows, double *sum)
{
    const int cluster =
        rows > SUM_ALONE && tutti__cuda_has_clusters(ctx->device) ? ROW_CLUSTER_MAX : 1;
    return row_launch(what, sum_in_order_kernel, cluster, SUM_THREADS, cluster, 0,
                      tutti__cuda_stream(ctx), losses, rows, sum, cluster);
}

/* The losses are in scratch. */
static inline void plan_losses(const tutti__matrix &x, int64_t rows, int64_t cols,
                               tutti__plan *plan)
{
    const bool clusters = false; /* no row is a cluster's */
    *tutti__cuda_parameters<row_plan>(plan) =
        row_plan_for(cols, 16 / (int)tutti_dtype_size(x.dtype), 1, clusters);
    plan->scratch = (size_t)rows * sizeof(double);
}

template<class Losses, int VECS>
__global__ void __launch_bounds__(ROW_WARP_THREADS, Losses::WARP_BLOCKS)
    losses_warp_kernel(typename Losses::call call, int lanes)
{
    constexpr int ROWS = ROW_WARP_VECS / VECS;
    lane_team team = {lanes};
    int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = ROW_WARP_THREADS / lanes;
    int64_t stride = (int64_t)gridDim.x * groups * ROWS;
    for (int64_t base = (int64_t)blockIdx.x * groups * ROWS; base < call.args.rows;
         base += stride) {
        int64_t first_row = base + (int64_t)group * ROWS, left = call.args.rows - first_row;
        int rows = left <= 0 ? 0 : left < ROWS ? (int)left : ROWS;
        Losses::template of_rows<VECS, ROWS>(call, team, first_row, rows,
                                             row_place{lane, lanes, lanes}, lane == 0);
    }
}

template<class Losses, class T>
static tutti_status launch_losses(const char *what, const tutti__job *job,
                                  const typename Losses::call &call)
{
    const row_plan &plan = *tutti__cuda_parameters<row_plan>(job->plan);
    const int64_t rows = call.args.rows, cols = call.args.cols;
    cudaStream_t stream = tutti__cuda_stream(job->ctx);
    if constexpr (sizeof(T) < 8)
        if (plan.kind == ROW_WARP)
            return row_with_vecs(plan, [&](auto vecs) {
                constexpr int VECS = decltype(vecs)::value;
                return row_launch(
                    what, losses_warp_kernel<Losses, VECS>,
                    row_grid(rows, ROW_WARP_THREADS / plan.lanes * (ROW_WARP_VECS / VECS), 1),
                    plan.threads, 1, 0, stream, call, plan.lanes);
            });
    const int threads = Losses::lengthy_threads(cols);
    return row_launch(what, Losses::lengthy(), row_grid(rows, 1, 1), threads, 1,
                      Losses::lengthy_shared(threads), stream, call);
}

/* Forward; launch(type) completes the call and launches its kernel, if there are rows. */
template<class Call, class Launch>
static tutti_status run_losses(const char *what, const tutti__job *job, const tutti__matrix &x,
                               Call &call, Launch &&launch)
{
    tutti_context *ctx = job->ctx;
    TUTTI_TRY(tutti__cuda_use(ctx->device, what));
    call.row_losses = call.args.loss_sum ? (double *)job->scratch : NULL;
    call.finding = ctx->finding;
    if (call.args.rows > 0) TUTTI_TRY(tutti__cuda_dispatch(x.dtype, launch));
    if (!call.args.loss_sum) return TUTTI_OK;
    return sum_losses(what, ctx, call.row_losses, call.args.rows, call.args.loss_sum);
}

#endif
