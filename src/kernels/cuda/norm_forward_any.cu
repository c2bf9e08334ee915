/* LayerNorm and RMSNorm, forward, of any types: kernels that load and store by run-time type.
 *
 *   kept    up to 65536 columns of f64, 131072 of f32: a row is in the registers of some lanes of a
 *           warp, a block or a cluster, as arithmetic values
 *   reread  longer ones, and devices without clusters: a block reads a row once for each of the
 *           sums and once for y
 *
 * Neighbouring threads have neighbouring vectors of 16 bytes of arithmetic values, so that a warp
 * reads and writes whole lines of any type; a row that lies elsewhere, or ends within a vector,
 * is read and written one element at a time, by the same threads. */
#include "kernels/cuda/norm_forward.cuh"
#include "kernels/cuda/norm_types.cuh"

enum { KEPT_THREADS = 512, KEPT_LANES_THREADS = 128, REREAD_THREADS = 512 };

/* Who has a row.  Of LayerNorm's, a warp takes the squares about what is nearly the mean of its own
 * columns, and all are merged then [Chan, Golub & LeVeque 1983], so that a row's warps wait for
 * each other once. */
template<class A, bool CENTERED>
struct kept_warps {
    using exchange = row_exchange<A, CENTERED ? 3 : 1>;
    exchange warps;
    __device__ __forceinline__ void begin() const { warps.begin(); }
    __device__ __forceinline__ int count() const { return (int)blockDim.x / 32; }
    __device__ __forceinline__ void reduce_warp(A (&values)[1]) const
    {
        reduce_lanes<row_add>(values, 32);
    }
    template<int N>
    __device__ __forceinline__ void reduce(A (&values)[N])
    {
        warps.reduce(values, 0, count());
    }
    static __device__ __forceinline__ A near(A sum, float columns)
    {
        return columns > 0 ? sum * (A)__frcp_rn(columns) : (A)0;
    }
    template<int VECS>
    __device__ __forceinline__ float columns_of(const own_columns<A, VECS> &own) const
    {
        int mine = 0;
#pragma unroll
        for (int k = 0; k < VECS; k++)
#pragma unroll
            for (int i = 0; i < any_width<A>; i++) mine += own.has(k, i);
        return (float)__reduce_add_sync(0xffffffffu, mine);
    }
    /* The point that a warp's squares are taken about, from the sum of its columns. */
    template<int VECS>
    __device__ __forceinline__ A first_mean(const own_columns<A, VECS> &own, A sum) const
    {
        return near(sum, columns_of(own));
    }
    /* mean, squares: the row's, after the warp's. */
    template<int VECS>
    __device__ __forceinline__ void merge(const own_columns<A, VECS> &own, A &mean, A &squares,
                                          A sum)
    {
        A mine[3] = {sum, squares, (A)columns_of(own)};
        const A *parts = warps.of_warps(mine);
        if (warps.cluster > 1) {
            A all[2];
            exchange::add_parts(all, count(), [&](int n, int i) { return parts[3 * i + 2 * n]; });
            mine[0] = all[0], mine[2] = all[1];
            mine[1] = squares_about(near(all[0], (float)all[1]), parts, count());
            parts = warps.of_blocks(mine);
        }
        const int number = warps.cluster > 1 ? warps.cluster : count();
        A all[1];
        exchange::add_parts(all, number, [&](int, int i) { return parts[3 * i]; });
        mean = all[0] / (A)own.cols;
        squares = squares_about(mean, parts, number);
    }
    static __device__ __forceinline__ A squares_about(A center, const A *parts, int number)
    {
        A all[1];
        exchange::add_parts(all, number, [&](int, int i) {
            const A total = parts[3 * i], columns = parts[3 * i + 2];
            const A point = near(total, (float)columns), away = point - center;
            const A moved = total - columns * point;
            return parts[3 * i + 1] + away * (columns * away + 2 * moved);
        });
        return all[0];
    }
    /* So in all threads. */
    __device__ __forceinline__ bool any(bool so) const
    {
        return so;
    }
    /* After merge: so often reduce was called. */
    __device__ __forceinline__ int passes() const
    {
        return warps.turn - 1;
    }
};
template<class A>
struct kept_lanes {
    lane_team lanes;
    int done = 0;
    __device__ __forceinline__ void begin() const {}
    template<int N>
    __device__ __forceinline__ void reduce(A (&values)[N])
    {
        lanes.template reduce<row_add>(values);
    }
    __device__ __forceinline__ void reduce_warp(A (&values)[1]) { reduce(values); }
    template<int VECS>
    __device__ __forceinline__ A first_mean(const own_columns<A, VECS> &own, A sum) const
    {
        return own.cols > 0 ? sum / (A)own.cols : (A)0;
    }
    template<int VECS>
    __device__ __forceinline__ void merge(const own_columns<A, VECS> &, A &, A &, A) const
    {
    }
    __device__ __forceinline__ bool any(bool so) const { return lanes.any(so); }
    __device__ __forceinline__ int passes() { return ++done; }
};

template<class A, int VECS, bool CENTERED, class Team>
__device__ __forceinline__ void normalise_kept(const tutti__norm_args &args,
                                               const norm_forward_even &even, int64_t row,
                                               own_columns<A, VECS> &own, Team &team)
{
    constexpr int W = any_width<A>, AHEAD = 2;
    auto count = [&] {
        int cols = (int)args.cols;
        forget(cols);
        return (A)cols;
    };
    A v[VECS][W], mean = 0;
    with_type<A>(args.x.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        own.template read<VECS>(0, (const T *)args.x.data + row * args.x.stride, even.x,
                                [&](int k, int i, A value) { v[k][i] = value; });
    });
    if (args.residual.data) {
        with_type<A>(args.x.dtype, [&](auto type) {
            using T = typename decltype(type)::type;
#pragma unroll
            for (int from = 0; from < VECS; from += AHEAD)
                own.template read<AHEAD>(from,
                                         (const T *)args.residual.data + row * args.residual.stride,
                                         even.residual, [&](int k, int i, A value) {
                                             v[k][i] = widen<A>(narrow<T>::of(v[k][i] + value));
                                         });
        });
        if (args.sum.data) own.store(v, args.sum, row, even.sum);
    }
    team.begin();
    own.forget_columns();
    A squares[1];
    if constexpr (CENTERED) {
        auto centred = [&](int k, int i) { return own.has(k, i) ? v[k][i] - mean : (A)0; };
        auto squared = [&](int k, int i) { return centred(k, i) * centred(k, i); };
        A total[1] = {sum_over<A, VECS>([&](int k, int i) { return v[k][i]; })};
        team.reduce_warp(total);
        mean = team.first_mean(own, total[0]);
        squares[0] = sum_over<A, VECS>(squared);
        team.reduce_warp(squares);
        team.merge(own, mean, squares[0], total[0]);
        const bool mine = is_delicate(mean, squares[0] / count());
        forget(mean), own.forget_columns();
        if (team.any(mine)) {
#pragma unroll 1
            do {
                own.forget_columns();
                A sums[2] = {sum_over<A, VECS>(squared), sum_over<A, VECS>(centred)};
                team.reduce(sums);
                if (mine) {
                    squares[0] = sums[0];
                    correct_mean(mean, squares[0], sums[1], sums[1] / count());
                }
            } while (team.passes() < DELICATE_PASSES);
        }
    } else {
        squares[0] = sum_over<A, VECS>([&](int k, int i) { return v[k][i] * v[k][i]; });
        team.reduce(squares);
    }
    if (CENTERED) forget(mean);
    own.forget_columns();
    const A rstd =
        isfinite(squares[0]) ? (A)1 / sqrt(squares[0] / count() + (A)args.eps) : (A)CUDART_NAN;
    if (args.rstd && own.first == 0 && own.cols > 0) {
        ((A *)args.rstd)[row] = rstd;
        if (CENTERED) ((A *)args.mean)[row] = mean;
    }
#pragma unroll
    for (int k = 0; k < VECS; k++)
#pragma unroll
        for (int i = 0; i < W; i++) v[k][i] = (CENTERED ? v[k][i] - mean : v[k][i]) * rstd;
    if (args.gamma)
        with_type<A>(args.param_dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            const A more = args.zero_centered ? 1 : 0;
#pragma unroll
            for (int from = 0; from < VECS; from += AHEAD) {
                own.template read<AHEAD>(from, (const T *)args.gamma, even.gamma,
                                         [&](int k, int i, A gamma) { v[k][i] *= gamma + more; });
                if (CENTERED && args.beta)
                    own.template read<AHEAD>(from, (const T *)args.beta, even.beta,
                                             [&](int k, int i, A beta) { v[k][i] += beta; });
            }
        });
    own.store(v, args.y, row, even.y);
}

template<class A, int VECS, bool CENTERED>
__global__ void __launch_bounds__(KEPT_THREADS, bound_blocks(2))
    norm_forward_kept_kernel(tutti__norm_args args, norm_forward_even even, int cluster)
{
    using team_type = kept_warps<A, CENTERED>;
    constexpr int BYTES = team_type::exchange::bytes(ROW_CLUSTER_MAX, KEPT_THREADS);
    __shared__ __align__(16) unsigned char memory[BYTES];
    team_type team = {typename team_type::exchange(memory, cluster)};
    const int rank = cluster > 1 ? team.warps.rank() : 0;
    own_columns<A, VECS> own((int)threadIdx.x, (int)blockDim.x, rank, (int)args.cols,
                             args.cols % any_width<A> == 0);
    normalise_kept<A, VECS, CENTERED>(args, even, blockIdx.x >> (__ffs(cluster) - 1), own, team);
}

/* A group of lanes past the end has no columns but takes part in the shuffles. */
template<class A, int VECS, bool CENTERED>
__global__ void __launch_bounds__(KEPT_LANES_THREADS)
    norm_forward_kept_lanes_kernel(tutti__norm_args args, norm_forward_even even, int lanes)
{
    kept_lanes<A> team;
    team.lanes.lanes = lanes;
    const int lane = (int)threadIdx.x % lanes;
    const int64_t row =
        (int64_t)blockIdx.x * (KEPT_LANES_THREADS / lanes) + (int)threadIdx.x / lanes;
    const bool has_row = row < args.rows;
    own_columns<A, VECS> own(lane, lanes, 0, has_row ? (int)args.cols : 0,
                             args.cols % any_width<A> == 0);
    normalise_kept<A, VECS, CENTERED>(args, even, has_row ? row : 0, own, team);
}

enum { WIDTH = 8 }; /* a thread's neighbouring columns */

template<class A>
struct norm_forward_reader {
    const tutti__norm_args &args;
    const norm_forward_even &even;
    int64_t row;

    /* the values to be normalised; `again`: the sum has been written, by the same thread */
    __device__ __forceinline__ void operator()(A (&v)[WIDTH], int col, bool again) const
    {
        int cols = (int)args.cols, count = cols - col;
        if (again && args.sum.data) {
            load_any(v, args.sum.data, args.sum.dtype, row * args.sum.stride + col, count,
                     even.sum);
            return;
        }
        load_any(v, args.x.data, args.x.dtype, row * args.x.stride + col, count, even.x);
        if (args.residual.data) {
            A r[WIDTH];
            load_any(r, args.residual.data, args.residual.dtype, row * args.residual.stride + col,
                     count, even.residual);
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                with_type<A>(args.x.dtype, [&](auto type) {
                    using T = typename decltype(type)::type;
                    v[i] = widen<A>(narrow<T>::of(v[i] + r[i]));
                });
        }
    }
};

template<class A>
__global__ void __launch_bounds__(REREAD_THREADS, sizeof(A) == 8 ? 1 : 2)
    norm_forward_reread_kernel(tutti__norm_args args, norm_forward_even even)
{
    __shared__ block_team_slots<A, 2> slots;
    block_team<A, 2> team(slots, 1);
    int cols = (int)args.cols, step = blockDim.x * WIDTH, first = threadIdx.x * WIDTH;
    A count = (A)cols;

    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        norm_forward_reader<A> read = {args, even, row};
        A v[WIDTH], mean = 0;
        row_total<A> total;
        for (int col = first; col < cols; col += step) {
            A part = 0;
            read(v, col, false);
            if (args.sum.data)
                store_any(args.sum.data, args.sum.dtype, row * args.sum.stride + col, v, cols - col,
                          even.sum);
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                if (col + i < cols) part += args.centered ? v[i] : v[i] * v[i];
            total.add(part);
        }
        A sums[2] = {total.value(), 0};
        /* sums over the row of (x - mean)^2 and of x - mean */
        auto sum_centred = [&]() {
            row_total<A> squares, moved;
            for (int col = first; col < cols; col += step) {
                read(v, col, true);
                A part = 0, part_moved = 0;
#pragma unroll
                for (int i = 0; i < WIDTH; i++)
                    if (col + i < cols) {
                        A centred = v[i] - mean;
                        part += centred * centred;
                        part_moved += centred;
                    }
                squares.add(part);
                moved.add(part_moved);
            }
            sums[0] = squares.value();
            sums[1] = moved.value();
            team.template reduce<row_add>(sums);
        };
        team.template reduce<row_add>(sums);
        if (args.centered) {
            mean = sums[0] / count;
            int passes = 1; /* and more for a delicate row */
#pragma unroll 1
            for (int pass = 0; pass < passes; pass++) {
                sum_centred();
                if (pass == 0 && is_delicate(mean, sums[0] / count)) passes += DELICATE_PASSES;
                if (pass > 0) correct_mean(mean, sums[0], sums[1], sums[1] / count);
            }
        }
        A rstd = isfinite(sums[0]) ? (A)1 / sqrt(sums[0] / count + (A)args.eps) : (A)CUDART_NAN;
        if (args.rstd && threadIdx.x == 0) {
            ((A *)args.rstd)[row] = rstd;
            if (args.centered) ((A *)args.mean)[row] = mean;
        }
        for (int col = first; col < cols; col += step) {
            read(v, col, true);
#pragma unroll
            for (int i = 0; i < WIDTH; i++) v[i] = (v[i] - mean) * rstd;
            if (args.gamma) {
                A p[WIDTH];
                load_any(p, args.gamma, args.param_dtype, col, cols - col, even.gamma);
#pragma unroll
                for (int i = 0; i < WIDTH; i++) v[i] *= args.zero_centered ? p[i] + (A)1 : p[i];
                if (args.beta) {
                    load_any(p, args.beta, args.param_dtype, col, cols - col, even.beta);
#pragma unroll
                    for (int i = 0; i < WIDTH; i++) v[i] += p[i];
                }
            }
            store_any(args.y.data, args.y.dtype, row * args.y.stride + col, v, cols - col, even.y);
        }
    }
}

/* Host side */

/* Which thread has a column depends on their number and the arithmetic alone. */
struct kept_plan {
    int vecs, lanes, threads, cluster; /* lanes 0: a block or a cluster; cluster 0: fits nowhere */
};

template<class A>
static kept_plan plan_kept(int64_t cols, int device)
{
    const int64_t vectors = (cols + any_width<A> - 1) / any_width<A>;
    const int most = tutti__cuda_has_clusters(device) ? ROW_CLUSTER_MAX : 1;
    if (vectors > 8 * KEPT_THREADS * most) return {};
    kept_plan plan = {8, 0, 0, 1};
    if (vectors <= 4 * 32) {
        plan = {4, 1, KEPT_LANES_THREADS, 1};
        while (plan.lanes * 4 < vectors) plan.lanes *= 2;
        return plan;
    }
    if (vectors <= 4 * 128) plan.vecs = 4;
    while (vectors > (int64_t)plan.vecs * KEPT_THREADS * plan.cluster) plan.cluster *= 2;
    const int each = plan.vecs * plan.cluster;
    plan.threads = row_round_up((int)((vectors + each - 1) / each), 32);
    return plan;
}

template<class A, int VECS, bool CENTERED>
static tutti_status launch_kept(tutti_context *ctx, const tutti__norm_args *args,
                                const kept_plan &plan)
{
    norm_forward_even even = {};
    if (args->cols % any_width<A> == 0) even = find_even(args, any_width<A>);
    const int64_t rows = plan.lanes ? KEPT_LANES_THREADS / plan.lanes : 1;
    auto kernel = norm_forward_kept_kernel<A, VECS, CENTERED>;
    if constexpr (VECS == 4)
        if (plan.lanes) kernel = norm_forward_kept_lanes_kernel<A, 4, CENTERED>;
    return row_launch("norm_forward", kernel,
                      (unsigned)((args->rows + rows - 1) / rows * plan.cluster), plan.threads,
                      plan.cluster, 0, tutti__cuda_stream(ctx), *args, even,
                      plan.lanes ? plan.lanes : plan.cluster);
}

template<class A>
static tutti_status launch_reread(tutti_context *ctx, const tutti__norm_args *args)
{
    return row_launch("norm_forward", norm_forward_reread_kernel<A>, row_grid(args->rows, 1, 1),
                      REREAD_THREADS, 1, 0, tutti__cuda_stream(ctx), *args, find_even(args, WIDTH));
}

template<class A>
static tutti_status forward_any(tutti_context *ctx, const tutti__norm_args *args)
{
    const kept_plan plan = plan_kept<A>(args->cols, ctx->device);
    if (plan.cluster == 0) return launch_reread<A>(ctx, args);
    if (plan.vecs == 4)
        return args->centered ? launch_kept<A, 4, true>(ctx, args, plan)
                              : launch_kept<A, 4, false>(ctx, args, plan);
    return args->centered ? launch_kept<A, 8, true>(ctx, args, plan)
                          : launch_kept<A, 8, false>(ctx, args, plan);
}

tutti_status tutti__cuda_norm_forward_any(tutti_context *ctx, const tutti__norm_args *args,
                                          bool wide)
{
    return wide ? forward_any<double>(ctx, args) : forward_any<float>(ctx, args);
}
