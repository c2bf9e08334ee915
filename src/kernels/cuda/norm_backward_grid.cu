/* LayerNorm and RMSNorm, backward: long rows that blocks anywhere on the device share.
 *
 * Each block of a row has a piece of it, and of every so many rows.  One warp of a block asks for
 * its pieces, by bulk copies (norm_backward_skewed.cuh), and sends their sums to the row's other
 * blocks by way of device memory, in words of a sum and the number of its turn, so that nothing
 * else needs an order [PTX ISA, memory consistency model]; another warp receives theirs.  The rest
 * do not wait for that: they write dx of a row some turns after they have added it up, so the ring
 * holds the rows between, besides those on their way.  All blocks must be on the device at a time:
 * the launch is a cooperative one [CUDA C++ Programming Guide, grid synchronization].
 *
 * Barriers, by turns: a warp arrives at that of turn t when it has added up its part.  It comes to
 * turn t only after it has received the sums of turn t - 1 - delay, so after all blocks of the row
 * have sent these.  Hence so many barriers, and places for sums in shared and device memory. */
#include "kernels/cuda/norm_backward_skewed.cuh"

enum {
    GRID_WARPS = 8, /* of a block, at most, besides those that serve */
    GRID_ELEMENTS = 16,
    GRID_SERVICE = 64, /* threads: a warp that asks and sends, one that receives */
    GRID_SPARE = 2048  /* bytes of shared memory for all else */
};
enum {
    GRID_STAGES = 8,
    GRID_DELAY = 3, /* turns between a row's sums and its dx, at most */
    GRID_TURNS = GRID_DELAY + 1,
    GRID_PLACES = 2 * GRID_DELAY + 2 /* in device memory */
};

struct grid_call {
    uint64_t *sums; /* [rows at a time][GRID_PLACES][blocks][VALUES] */
    int blocks, piece, delay;
    uint32_t first_tag; /* of the first turn; not 0 */
};

template<int VALUES>
struct grid_space {
    float warps[GRID_TURNS][GRID_WARPS * VALUES];
    float rows[GRID_TURNS][VALUES];
    uint64_t given[GRID_TURNS]; /* of rows */
};

/* threads: those that arrive and those that wait, in whole warps. */
__device__ __forceinline__ void turn_arrive(int turn, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + turn % GRID_TURNS), "r"(threads) : "memory");
}
__device__ __forceinline__ void turn_wait(int turn, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + turn % GRID_TURNS), "r"(threads) : "memory");
}
__device__ __forceinline__ void send_word(uint64_t *to, float value, uint32_t tag)
{
    const uint64_t word = (uint64_t)tag << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ uint64_t receive_word(const uint64_t *from)
{
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
}

/* The sums of a turn over the blocks of a row, in all lanes of a warp. */
template<int VALUES>
__device__ __forceinline__ void receive_sums(float (&sums)[VALUES], const uint64_t *place,
                                             int count, uint32_t tag)
{
    constexpr int AT_ONCE = 8;
    float part = 0;
    for (int at = (int)threadIdx.x % 32; at < count; at += AT_ONCE * 32) {
        uint64_t words[AT_ONCE] = {}; /* no tag is 0 */
        bool missing;
        do { /* those that are missing are on their way together */
            missing = false;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (at + 32 * i < count && words[i] >> 32 != tag)
                    words[i] = receive_word(place + at + 32 * i);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                missing = missing || (at + 32 * i < count && words[i] >> 32 != tag);
        } while (missing);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) part += __uint_as_float((uint32_t)words[i]);
    }
    __syncwarp();
    share_sums(sums, part, 32 / VALUES);
}

template<class T, bool CENTERED, bool APART>
__global__ void __launch_bounds__(GRID_WARPS * 32 + GRID_SERVICE, 2)
    norm_backward_grid_kernel(tutti__norm_args args, norm_backward_even even, backward_steps steps,
                              backward_scratch<float> scratch, grid_call call, skewed_space space)
{
    extern __shared__ __align__(128) uint4 shared[];
    constexpr int N = vector16<T>::N, VECS = GRID_ELEMENTS / N, VALUES = CENTERED ? 2 : 1;
    __shared__ grid_space<VALUES> own;
    __shared__ skewed_stage stages[GRID_STAGES];
    __shared__ skewed_queue queue;
    start_next();
    const int lanes = (int)blockDim.x - GRID_SERVICE, lane = (int)threadIdx.x % 32;
    const int64_t first = blockIdx.x / call.blocks;
    const int rank = (int)(blockIdx.x % call.blocks);
    const backward_lane which = {(int)threadIdx.x, lanes, 32, rank * call.piece};
    skewed_rows<T, GRID_ELEMENTS, CENTERED, false, true, APART> rows(
        args, steps, space, shared, stages, which, 0, first, call.piece);
    const int turns = (int)((args.rows - first + steps.rows - 1) / steps.rows);
    const bool serves = (int)threadIdx.x >= lanes, asks = (int)threadIdx.x == lanes;
    if (asks) {
        for (int i = 0; i < GRID_TURNS; i++) barrier_init(shared_address(&own.given[i]), 1);
        rows.start(&queue, first, args.rows);
    }
    if (!serves) rows.store_gamma(even.gamma);
    __syncthreads();

    const int count = call.blocks * VALUES, threads = lanes + 32;
    uint64_t *const sums_of_row = call.sums + first * (GRID_PLACES * count);
    auto place_of = [&](int turn) { return sums_of_row + turn % GRID_PLACES * count; };
    if ((int)threadIdx.x >= lanes + 32) {
        for (int turn = 0; turn < turns; turn++) {
            float sums[VALUES];
            receive_sums(sums, place_of(turn), count, call.first_tag + (uint32_t)turn);
#pragma unroll
            for (int n = 0; n < VALUES; n++)
                if (lane == 0) own.rows[turn % GRID_TURNS][n] = sums[n];
            if (lane == 0) barrier_arrive(shared_address(&own.given[turn % GRID_TURNS]));
        }
        return;
    }
    if (serves) {
        for (int turn = 0; turn < turns; turn++) {
            __syncwarp();
            turn_wait(turn, threads);
            const float *parts = own.warps[turn % GRID_TURNS];
            float sums[VALUES];
            share_sums(sums, lane < lanes / 32 * VALUES ? parts[lane] : 0, 32 / VALUES);
            if (lane < VALUES)
                send_word(place_of(turn) + rank * VALUES + lane,
                          lane % VALUES ? sums[VALUES - 1] : sums[0],
                          call.first_tag + (uint32_t)turn);
            /* the others are through with the row whose dx they wrote a turn ago */
            if (turn > call.delay && asks) rows.request(&queue, args.rows);
        }
        await_fetches();
        return;
    }

    const int warp = (int)threadIdx.x / 32;
    for (int turn = 0; turn < turns + call.delay; turn++) {
        if (turn < turns) {
            rows.wait();
            float sums[VALUES] = {};
            rows.add_up_known(sums);
            const float mine = sum_lanes(sums, 32);
            if (lane < VALUES) own.warps[turn % GRID_TURNS][warp * VALUES + lane] = mine;
            turn_arrive(turn, threads);
        }
        const int past = turn - call.delay, at = past % GRID_TURNS;
        if (past >= 0) {
            barrier_wait(shared_address(&own.given[at]), past / GRID_TURNS % 2);
            if (args.dx.data) {
                float sums[VALUES];
#pragma unroll
                for (int n = 0; n < VALUES; n++) sums[n] = own.rows[at][n];
                const auto now = rows.go_back(call.delay);
                rows.finish(sums, even.inverse_cols);
                rows.return_to(now, call.delay);
            }
        }
        rows.release();
    }

#pragma unroll
    for (int k = 0; k < VECS; k++) {
        const int vector = rows.word + k * 32;
        /* the pitch has room for the last vector */
        const int vectors = rows.beyond ? rows.beyond : (rows.cols + N - 1) / N;
        const int count = vector < vectors ? N : 0;
        if (args.dgamma)
            store_elements(scratch.row(first, 0) + vector * N, rows.dgamma[k], count, true);
        if constexpr (CENTERED)
            if (args.dbeta)
                store_elements(scratch.row(first, 1) + vector * N, rows.dbeta[k], count, true);
    }
}

/* Host side */

static int shared_of_each(const tutti_context *ctx, int resident)
{
    return tutti__cuda_shared_limit(ctx->device) / resident - GRID_SPARE;
}

/* For each row a multiprocessor has as much to do as its blocks have warps, and OTHERS warps' for
 * all else: so pieces that leave few threads and multiprocessors without columns.  With fewer warps
 * than BUSY it waits for its own instructions. */
void tutti__cuda_norm_grid_plan(const tutti_context *ctx, const tutti__norm_args *args,
                                backward_plan *plan)
{
    /* stages, of two tensors: the rows between sums and dx, this turn's and two on their way */
    enum { LEAST_DEPTH = GRID_DELAY + 3, WARPS_AT_A_TIME = 20, OTHERS = 2, BUSY = 12 };
    const int width = 16 / (int)tutti_dtype_size(args->x.dtype), line = 64;
    const int64_t sms = tutti__cuda_sm_count(ctx->device);
    tutti__norm_args two = *args, three = *args;
    two.dsum.data = NULL, three.dsum.data = &three; /* any that is not NULL */
    /* ptxas reserves all 16 of a block, of which sm_120, which has less shared memory, has 24 */
    const bool few_barriers = tutti__cuda_shared_limit(ctx->device) < 128 << 10;
    double least = 0;
    for (int64_t blocks = 1;; blocks++) {
        const int64_t piece = ((args->cols + blocks - 1) / blocks + line - 1) / line * line;
        if (piece > GRID_WARPS * 32 * GRID_ELEMENTS) continue;
        if (piece < 32 * GRID_ELEMENTS || blocks > sms * WARPS_AT_A_TIME) break;
        /* the last one has a line: no block asks for less than a word */
        if (blocks > 1 && (blocks - 1) * piece + line > args->cols) continue;
        backward_plan one = *plan;
        one.kind = backward_plan::GRID;
        one.cluster = 1;
        one.elements = GRID_ELEMENTS;
        one.blocks = (int)blocks;
        one.piece = (int)piece / width;
        one.threads = one.lanes = row_round_up((int)piece / GRID_ELEMENTS, 32);
        const int warps = one.lanes / 32;
        skewed_space space;
        one.resident = few_barriers ? 1 : WARPS_AT_A_TIME / (warps + GRID_SERVICE / 32);
        for (; one.resident > 0; one.resident--) {
            const int limit = shared_of_each(ctx, one.resident);
            if (skewed_space::find(&two, one, LEAST_DEPTH, LEAST_DEPTH, limit, &space) &&
                skewed_space::find(&three, one, SKEWED_STAGES_LEAST, SKEWED_STAGES_LEAST, limit,
                                   &space))
                break;
        }
        one.partials = sms * one.resident / blocks;
        if (one.partials == 0) continue;
        const int busy = warps * one.resident;
        const double time = (warps + OTHERS) * one.resident / (double)one.partials *
                            (busy < BUSY ? BUSY / (double)busy : 1);
        if (least > 0 && time >= least) continue;
        least = time;
        *plan = one;
    }
}

size_t tutti__cuda_norm_grid_bytes(const backward_plan &plan)
{
    return (size_t)plan.partials * GRID_PLACES * (size_t)plan.blocks * 2 * sizeof(uint64_t);
}

template<class T, bool APART>
static tutti_status launch(tutti_context *ctx, const tutti__norm_args *args,
                           const backward_plan &plan, const backward_scratch<float> &scratch,
                           uint32_t first_tag)
{
    constexpr int N = vector16<T>::N;
    skewed_space space;
    skewed_space::find(args, plan, SKEWED_STAGES_LEAST, GRID_STAGES,
                       shared_of_each(ctx, plan.resident), &space);
    const int delay = space.depth / 2 < GRID_DELAY ? space.depth / 2 : GRID_DELAY;
    const norm_backward_even even = find_even(args, N);
    auto kernel = args->centered ? norm_backward_grid_kernel<T, true, APART>
                                 : norm_backward_grid_kernel<T, false, APART>;
    /* always the same value: contexts of other threads launch it */
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    tutti__cuda_shared_limit(ctx->device) - GRID_SPARE),
               "norm_backward");
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(plan.partials * plan.blocks));
    config.blockDim = dim3((unsigned)plan.threads + GRID_SERVICE);
    config.dynamicSmemBytes = (size_t)space.bytes;
    config.stream = tutti__cuda_stream(ctx);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    const grid_call call = {(uint64_t *)scratch.sums, plan.blocks, plan.piece, delay, first_tag};
    return tutti__cuda_status(cudaLaunchKernelEx(&config, kernel, *args, even,
                                                 backward_steps::of<T>(args, plan.partials),
                                                 scratch, call, space),
                              "norm_backward");
}

template<class T>
static tutti_status launch_of(tutti_context *ctx, const tutti__norm_args *args,
                              const backward_plan &plan, const backward_scratch<float> &scratch,
                              uint32_t first_tag)
{
    return are_skewed_alike(args, (int)sizeof(T))
               ? launch<T, false>(ctx, args, plan, scratch, first_tag)
               : launch<T, true>(ctx, args, plan, scratch, first_tag);
}

tutti_status tutti__cuda_norm_backward_grid(tutti_context *ctx, const tutti__norm_args *args,
                                            const backward_plan &plan,
                                            const backward_scratch<float> &scratch,
                                            uint32_t first_tag)
{
    switch (args->x.dtype) {
    case TUTTI_F16:
        return launch_of<__half>(ctx, args, plan, scratch, first_tag);
    case TUTTI_BF16:
        return launch_of<__nv_bfloat16>(ctx, args, plan, scratch, first_tag);
    default:
        return launch_of<float>(ctx, args, plan, scratch, first_tag);
    }
}
