/* Embedding: copies rows from a table and sums their gradients.  include/tutti/embedding.h has the
 * mathematics.
 *
 * Forward must read the tokens and their rows, and write y.  Rows are copied in the widest words
 * that all addresses allow, by neighbouring lanes, several rows per thread at once.
 *
 * Backward must read the tokens and dy, and write dE.
 *   1. The rows are sorted by token, stably: a radix sort of (token, row) over as many bits as the
 *      vocabulary has, up to 131072 rows (65536 where clusters have
 *      at most 8 blocks) by one cluster of blocks, more by CUB's.
 *   2. A run of one token is summed in blocks of CHUNK rows, counted from its own first, one row
 *      after the other.  The list is cut into shares of SHARE positions, and some lanes take the
 *      blocks that begin in a share, a vector of columns each.  A run of one block goes straight to
 *      dE.  Blocks of longer ones leave partial sums in scratch, at most two rows for CHUNK
 *      positions: a block that begins there is its run's only one.  Longer runs are listed.
 *   3. The partial sums of each listed run are merged pairwise.
 * So the GPU is busy whether all rows have one token or each has another, and the order of every
 * sum depends on the number of its rows alone, as on the host.  Rows of dE whose token does not
 * occur are zeroed on a second stream from the start (embedding_zero.cu): during the sort the
 * memory is idle.  A token out of range counts as token 0 with no row. */
#include <type_traits>

#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/tokens.cuh"
#include "ops/embedding.h"

enum { COPY_THREADS = 256, COPY_ROWS = 4 };
/* MERGE_BLOCKS, sum_blocks a multiprocessor: as many as leave a thread the registers for the rows
 * in flight */
enum { SUM_THREADS = 128, CHUNK = 64, SHARE = 16 };
enum { MERGE_GROUPS = 6, MERGE_BLOCKS = 5, MERGE_FAN = 8 };

constexpr int sum_blocks(bool even)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    (void)even;
    return 4;
#else
    return even ? 5 : 4;
#endif
}

/* How threads are assigned to items of `units` pieces: `lanes` neighbouring threads per item,
 * `groups` items per block, blocks for all items (x of the grid), and slabs of lanes per item
 * (y). */
struct team_shape {
    int lanes, groups, blocks, slabs;
};

static team_shape team_for(int64_t things, int64_t units, int threads)
{
    int slabs = (int)((units + threads - 1) / threads), wanted = (int)((units + slabs - 1) / slabs);
    int lanes = wanted > 32 ? (wanted + 31) / 32 * 32 : 1;
    while (lanes < wanted) lanes *= 2;
    int groups = threads / lanes;
    return {lanes, groups, (int)((things + groups - 1) / groups), slabs};
}

static dim3 grid_of(const team_shape &team)
{
    return dim3((unsigned)team.blocks, (unsigned)team.slabs);
}
static dim3 block_of(const team_shape &team)
{
    return dim3((unsigned)(team.lanes * team.groups));
}

/* Forward */

struct copy_call {
    const int32_t *tokens;
    int rows, vocab, units; /* units: words of a row */
    int64_t y_stride;       /* words */
    const void *weight;
    void *y;
    int lanes;
    findings found;
};

template<class W>
__global__ void __launch_bounds__(COPY_THREADS) embedding_copy_kernel(copy_call call)
{
    int group = blockIdx.x * (blockDim.x / call.lanes) + threadIdx.x / call.lanes;
    int unit = blockIdx.y * call.lanes + threadIdx.x % call.lanes;
    int64_t first = (int64_t)group * COPY_ROWS;
    if (unit >= call.units || first >= call.rows) return;
    int rows = call.rows - first < COPY_ROWS ? (int)(call.rows - first) : COPY_ROWS;
    /* without branches up to the stores, so that all rows are in flight at once */
    int32_t token[COPY_ROWS];
    bool good[COPY_ROWS];
    W word[COPY_ROWS];
#pragma unroll
    for (int r = 0; r < COPY_ROWS; r++) token[r] = call.tokens[first + min(r, rows - 1)];
#pragma unroll
    for (int r = 0; r < COPY_ROWS; r++) {
        good[r] = token[r] >= 0 && token[r] < call.vocab;
        word[r] = ((const W *)call.weight)[(int64_t)(good[r] ? token[r] : 0) * call.units + unit];
    }
    W *y = (W *)call.y + first * call.y_stride + unit;
#pragma unroll
    for (int r = 0; r < COPY_ROWS; r++) {
        if (r >= rows) continue;
        if (!good[r]) {
            memset(&word[r], 0xff, sizeof word[r]); /* a NaN in every type */
            if (unit == 0) report_token(call.found, token[r], first + r, call.vocab);
        }
        y[r * call.y_stride] = word[r];
    }
}

template<class W>
static tutti_status copy_words(tutti_context *ctx, copy_call call, int64_t row_bytes,
                               int64_t y_bytes)
{
    call.units = (int)(row_bytes / (int64_t)sizeof(W));
    call.y_stride = y_bytes / (int64_t)sizeof(W);
    int64_t groups = ((int64_t)call.rows + COPY_ROWS - 1) / COPY_ROWS;
    team_shape team = team_for(groups, call.units, COPY_THREADS);
    call.lanes = team.lanes;
    embedding_copy_kernel<W><<<grid_of(team), block_of(team), 0, tutti__cuda_stream(ctx)>>>(call);
    TUTTI_CUDA_LAUNCHED("embedding_forward");
    return TUTTI_OK;
}

static tutti_status embedding_forward(const tutti__job *job, const void *untyped)
{
    tutti_context *ctx = job->ctx;
    const tutti__embedding_args *args = (const tutti__embedding_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "embedding_forward"));
    if (args->rows == 0) return TUTTI_OK;
    copy_call call = {};
    call.tokens = args->tokens;
    call.rows = (int)args->rows;
    call.vocab = (int)args->vocab;
    call.weight = args->weight;
    call.y = args->y.data;
    call.found = {ctx->finding, args->finding};
    int64_t size = (int64_t)tutti_dtype_size(args->dtype);
    int64_t row_bytes = args->cols * size;
    int64_t y_bytes = args->rows > 1 ? args->y.stride * size : row_bytes;
    uint64_t all = (uintptr_t)call.weight | (uintptr_t)call.y | (uint64_t)(row_bytes | y_bytes);
    if (all % 16 == 0) return copy_words<uint4>(ctx, call, row_bytes, y_bytes);
    if (all % 8 == 0) return copy_words<uint2>(ctx, call, row_bytes, y_bytes);
    if (all % 4 == 0) return copy_words<uint32_t>(ctx, call, row_bytes, y_bytes);
    return copy_words<uint16_t>(ctx, call, row_bytes, y_bytes);
}

/* Backward: the list that CUB sorts.  It leaves alone what is behind the rows, in either place. */

__global__ void __launch_bounds__(COPY_THREADS)
    embedding_list_kernel(token_list list, tutti__cuda_pairs pairs)
{
    const int64_t at = (int64_t)blockIdx.x * COPY_THREADS + threadIdx.x;
    if (at >= list.room) return;
    if (at == 0) *list.runs = 0;
    const uint2 entry = list.entry(at, list.token(at));
    for (int i = 0; i < (at < list.rows ? 1 : 2); i++) {
        pairs.keys[i][at] = entry.x;
        pairs.values[i][at] = (int32_t)entry.y;
    }
}

/* Backward: the sums.  partial holds two rows a chunk: of a block of a run that began before, and
 * of the first block of a run that goes on behind it. */

struct sum_call {
    const uint32_t *keys; /* [count], sorted */
    const int32_t *row_of;
    int *runs; /* of several blocks: their number, then where each begins, in any order */
    int count, cols, lanes;
    const void *dy;
    void *partial, *dweight;
    int64_t dy_stride, partial_stride;
    bool accumulate, dweight_even;
};

/* The columns of a thread: N side by side, or, where rows do not begin on 16-byte boundaries, each
 * one beside the next lane's. */
template<int N, bool EVEN>
struct sum_columns {
    int first, step;
    __device__ __forceinline__ sum_columns(int slab, int lane, int lanes)
        : first(slab * lanes * N + (EVEN ? lane * N : lane)), step(EVEN ? 1 : lanes)
    {
    }
    __device__ __forceinline__ int at(int k) const { return first + k * step; }
};

/* Without branches, so that the loads of several rows are in flight at once; columns after the last
 * repeat it and are not stored. */
template<class T, int N, bool EVEN>
static __device__ __forceinline__ void load_columns(T (&values)[N], const T *row,
                                                    const sum_columns<N, EVEN> &columns, int cols)
{
    if constexpr (EVEN) {
        uint4 raw = *(const uint4 *)(row + columns.first);
        memcpy(values, &raw, sizeof values);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) values[k] = row[min(columns.at(k), cols - 1)];
    }
}

/* N entries of the sorted list, from a multiple of 4. */
template<class E, int N>
static __device__ __forceinline__ void load_list(E (&entries)[N], const E *at)
{
#pragma unroll
    for (int k = 0; k < N / 4; k++) {
        uint4 raw = ((const uint4 *)at)[k];
        memcpy(&entries[4 * k], &raw, sizeof raw);
    }
}

template<class A, int N, bool EVEN>
static __device__ __forceinline__ void put_columns(A *row, const A (&sum)[N], bool add,
                                                   const sum_columns<N, EVEN> &columns, int cols)
{
    A value[N];
    if constexpr (EVEN) {
        A *at = row + columns.first;
        if (add) load_elements(value, at, N, true);
#pragma unroll
        for (int k = 0; k < N; k++) value[k] = add ? value[k] + sum[k] : sum[k];
        store_elements(at, value, N, true);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            if (columns.at(k) < cols)
                row[columns.at(k)] = add ? row[columns.at(k)] + sum[k] : sum[k];
    }
}

/* The beginning of the run of `key` that reaches position `end`: the first of the sorted keys
 * before `end` that is not below `key`.  Each of a group's lanes, up to 32, reads another position.
 * Called by whole warps; a group without a search passes end = 0. */
static __device__ __forceinline__ int run_start(const uint32_t *keys, int end, uint32_t key,
                                                int lanes)
{
    lanes = min(lanes, 32);
    int lane = threadIdx.x % lanes, shift = threadIdx.x % 32 - lane;
    uint32_t group = 0xffffffffu >> (32 - lanes);
    int low = 0, high = end;
    while (__any_sync(0xffffffffu, low < high)) {
        int step = (high - low) / (lanes + 1) + 1, at = low + (lane + 1) * step - 1;
        uint32_t below = __ballot_sync(0xffffffffu, at < high && keys[at] < key);
        low += __popc(below >> shift & group) * step;
        if (high - low >= step) high = low + step - 1;
    }
    return low;
}

template<class T, class A, bool EVEN>
__global__ void __launch_bounds__(SUM_THREADS, sum_blocks(EVEN)) embedding_sum_kernel(sum_call call)
{
    constexpr int N = 16 / (int)sizeof(T);
    constexpr int DEPTH = EVEN || N < 4 ? 8 : 4; /* rows in flight */
    start_next();
    wait_for_previous();
    const int share = blockIdx.x * (blockDim.x / call.lanes) + threadIdx.x / call.lanes;
    const int base = share * SHARE, count = call.count - base; /* to the end of the list */
    sum_columns<N, EVEN> columns(blockIdx.y, threadIdx.x % call.lanes, call.lanes);
    const uint32_t *keys = call.keys + base;
    const int32_t *row_of = call.row_of + base;
    /* the current block: its token, its first position, whether it is not its run's first */
    uint32_t key = count > 0 ? keys[0] : 0;
    bool came = count > 0 && share > 0 && keys[-1] == key;
    const int begun = base - run_start(call.keys, came ? base : 0, key, call.lanes);
    int start = came ? (CHUNK - begun % CHUNK) % CHUNK : 0;
    if (count <= 0 || columns.first >= call.cols) return;
    const bool goes_on = count > SHARE && keys[SHARE] == keys[SHARE - 1];
    /* a run whose next block begins elsewhere, or that ends before, is another share's */
    bool mine = !came || (start < SHARE && start < count && keys[start] == key);
    A sum[N] = {};
    auto finish = [&](bool open) {
        A *dst = (A *)call.dweight + (int64_t)key * call.cols;
        if (came || open)
            dst = (A *)call.partial +
                  (2 * (int64_t)((base + start) / CHUNK) + !came) * call.partial_stride;
        if (mine) put_columns(dst, sum, call.accumulate && !came && !open, columns, call.cols);
        if (open && !came && columns.first == 0)
            call.runs[1 + atomicAdd(call.runs, 1)] = base + start;
        came = false;
        mine = true;
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] = 0;
    };
    /* the lists have room for whole chunks */
    for (int p = mine ? start / DEPTH * DEPTH : 0;
         p < SHARE || (goes_on && mine && p < start + CHUNK); p += DEPTH) {
        const int stop = p < SHARE ? count : min(count, start + CHUNK);
        if (p >= stop) break;
        uint32_t next[DEPTH];
        int32_t row[DEPTH];
        T values[DEPTH][N];
        load_list(next, keys + p);
        load_list(row, row_of + p);
        if (p >= SHARE && next[0] != key) break;
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const bool ours =
                p < SHARE ? (mine && p + d >= start) || next[d] != key : next[d] == key;
            if (p + d >= stop || !ours) row[d] = -1;
            load_columns(values[d], (const T *)call.dy + max(row[d], 0) * call.dy_stride, columns,
                         call.cols);
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (p < SHARE && p + d < stop && next[d] != key) {
                finish(false);
                key = next[d];
                start = p + d;
            }
            if (row[d] < 0) continue;
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += widen<A>(values[d][k]);
        }
    }
    finish(start + CHUNK < count && keys[start + CHUNK] == key);
}

template<class A, int N>
static __device__ __forceinline__ void put_sum(A *dst, const A (&sum)[N], int left,
                                               const sum_call &call)
{
    A value[N] = {};
    if (call.accumulate) load_elements(value, dst, left, call.dweight_even);
#pragma unroll
    for (int k = 0; k < N; k++) value[k] += sum[k];
    store_elements(dst, value, left, call.dweight_even);
}

/* A block of threads takes listed runs in turn, and merges a run's partial sums pairwise, MERGE_FAN
 * of them at once: first neighbours, then these sums, each stored in place of its first term.
 * Missing terms of a full fan count as 0. */
template<class A>
__global__ void __launch_bounds__(32 * MERGE_GROUPS, MERGE_BLOCKS)
    embedding_merge_kernel(sum_call call)
{
    constexpr int N = 16 / (int)sizeof(A);
    wait_for_previous();
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32, runs = call.runs[0];
    const int col = (blockIdx.y * 32 + lane) * N, left = call.cols - col;
    for (int run = blockIdx.x; run < runs; run += gridDim.x) {
        const int start = call.runs[1 + run], count = call.count - start;
        const uint32_t *keys = call.keys + start;
        const uint32_t key = keys[0];
        int blocks = 2; /* of the run, as far as they are known */
        for (int more = blockDim.x; more == (int)blockDim.x; blocks += more) {
            int64_t next = (int64_t)(blocks + (int)threadIdx.x) * CHUNK;
            more = __syncthreads_count(next < count && keys[next] == key);
        }
        A *dst = (A *)call.dweight + (int64_t)key * call.cols + col;
        A *sums = (A *)call.partial + 2 * (int64_t)(start / CHUNK) * call.partial_stride + col;
        /* the first block's sum is beside that of a block that began before */
        auto place = [&](int block) {
            return sums + (2 * (int64_t)block + (block == 0)) * call.partial_stride;
        };
        for (int span = 1; span < blocks; span *= MERGE_FAN) {
            const int whole = span * MERGE_FAN;
            for (int first = group * whole; first < blocks; first += MERGE_GROUPS * whole) {
                A part[MERGE_FAN][N];
#pragma unroll
                for (int f = 0; f < MERGE_FAN; f++)
                    load_elements(part[f], place(first + f * span),
                                  first + f * span < blocks ? left : 0, true);
#pragma unroll
                for (int apart = 1; apart < MERGE_FAN; apart *= 2)
#pragma unroll
                    for (int f = 0; f < MERGE_FAN; f += 2 * apart)
#pragma unroll
                        for (int k = 0; k < N; k++) part[f][k] += part[f + apart][k];
                if (whole < blocks)
                    store_elements(place(first), part[0], left, true);
                else
                    put_sum(dst, part[0], left, call);
            }
            __syncthreads();
        }
    }
}

/* Backward: putting it together */

struct sum_scratch {
    tutti__cuda_pairs list; /* tokens and rows */
    void *sort, *partial;
    int *runs; /* [1 + chunks] */
    int64_t partial_stride;
};

/* A plan's parameters. */
struct sum_plan {
    size_t sort_bytes;
    int sort_blocks; /* of the cluster that sorts; 0: CUB's sort, with scratch */
    int bits;        /* of a token */
};

static int64_t chunks_of(const tutti__embedding_args *args)
{
    return (args->rows + CHUNK - 1) / CHUNK;
}

/* Lays the scratch out from data on; returns its bytes. */
static size_t lay_out(const tutti__embedding_args *args, const sum_plan &plan, char *data,
                      sum_scratch *s)
{
    const int64_t chunks = chunks_of(args);
    size_t sum_size = tutti_dtype_size(tutti__accumulate_dtype(args->dtype, args->dtype));
    *s = {};
    s->partial_stride = (args->cols + 7) / 8 * 8;
    auto room = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
    size_t column = room((size_t)chunks * CHUNK * sizeof(uint32_t)), sort = room(plan.sort_bytes);
    size_t partial = room((size_t)(2 * chunks * s->partial_stride) * sum_size);
    size_t runs = room((size_t)(1 + chunks) * sizeof(int));
    if (data) {
        for (int i = 0; i < 2; i++) {
            s->list.keys[i] = (uint32_t *)(data + i * column);
            s->list.values[i] = (int32_t *)(data + (2 + i) * column);
        }
        s->sort = data + 4 * column;
        s->partial = data + 4 * column + sort;
        s->runs = (int *)(data + 4 * column + sort + partial);
    }
    return 4 * column + sort + partial + runs;
}

static tutti_status embedding_plan(tutti_context *ctx, const void *untyped, bool backward,
                                   tutti__plan *plan)
{
    const tutti__embedding_args *args = (const tutti__embedding_args *)untyped;
    if (!backward || args->rows == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "embedding_plan"));
    TUTTI_TRY(tutti__cuda_beside_open(ctx));
    sum_plan *chosen = tutti__cuda_parameters<sum_plan>(plan);
    for (chosen->bits = 1; INT64_C(1) << chosen->bits < args->vocab;) chosen->bits++;
    TUTTI_TRY(tutti__cuda_sort_blocks(ctx, args->rows, &chosen->sort_blocks));
    tutti__cuda_pairs none = {};
    if (!chosen->sort_blocks)
        TUTTI_TRY(tutti__cuda_sort_pairs(ctx, NULL, &chosen->sort_bytes, &none, args->rows,
                                         chosen->bits));
    sum_scratch s;
    plan->scratch = lay_out(args, *chosen, NULL, &s);
    return TUTTI_OK;
}

template<class T, class A, bool EVEN>
static tutti_status add_sums(tutti_context *ctx, sum_call call)
{
    constexpr int N = 16 / (int)sizeof(T), MERGE_N = 16 / (int)sizeof(A);
    cudaStream_t stream = tutti__cuda_stream(ctx);
    const int shares = (int)(((int64_t)call.count + SHARE - 1) / SHARE);
    team_shape team = team_for(shares, (call.cols + N - 1) / N, SUM_THREADS);
    call.lanes = team.lanes;
    call.dweight_even = (uintptr_t)call.dweight % 16 == 0 && call.cols % MERGE_N == 0;
    auto start = [&](auto kernel) {
        return launch_early("embedding_backward", ctx->device, kernel, grid_of(team),
                            block_of(team), stream, call);
    };
    TUTTI_TRY(start(embedding_sum_kernel<T, A, EVEN>));
    if (call.count <= CHUNK) return TUTTI_OK;
    /* each run of several blocks has more than CHUNK rows */
    const int slabs = (call.cols + 32 * MERGE_N - 1) / (32 * MERGE_N), runs = call.count / CHUNK;
    const int most = (MERGE_BLOCKS * tutti__cuda_sm_count(ctx->device) + slabs - 1) / slabs;
    team = {32, MERGE_GROUPS, runs < most ? runs : most, slabs};
    return start(embedding_merge_kernel<A>);
}

static tutti_status sort_rows(tutti_context *ctx, const tutti__embedding_args *args, sum_plan plan,
                              sum_scratch *s)
{
    const int64_t room = chunks_of(args) * CHUNK;
    const token_list list = {args->tokens, (int)args->rows, (int)args->vocab,
                             room,         s->runs,         {ctx->finding, args->finding}};
    if (plan.sort_blocks) {
        s->list.sorted_keys = s->list.keys[0];
        s->list.sorted_values = s->list.values[0];
        return tutti__cuda_sort_tokens(ctx, list, plan.sort_blocks, plan.bits, s->list.keys[0],
                                       s->list.values[0]);
    }
    embedding_list_kernel<<<(unsigned)((list.room + COPY_THREADS - 1) / COPY_THREADS), COPY_THREADS,
                            0, tutti__cuda_stream(ctx)>>>(list, s->list);
    TUTTI_CUDA_LAUNCHED("embedding_backward");
    return tutti__cuda_sort_pairs(ctx, s->sort, &plan.sort_bytes, &s->list, args->rows, plan.bits);
}

static tutti_status sort_and_sum(tutti_context *ctx, const tutti__embedding_args *args,
                                 const sum_plan &plan, sum_scratch s)
{
    TUTTI_TRY(sort_rows(ctx, args, plan, &s));
    sum_call call = {};
    call.keys = s.list.sorted_keys;
    call.row_of = s.list.sorted_values;
    call.count = (int)args->rows;
    call.runs = s.runs;
    call.cols = (int)args->cols;
    call.dy = args->dy.data;
    call.dy_stride = args->dy.stride;
    call.partial = s.partial;
    call.partial_stride = s.partial_stride;
    call.dweight = args->dweight;
    call.accumulate = args->accumulate;
    return tutti__cuda_dispatch(args->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        using A = typename std::conditional<sizeof(T) == 8, double, float>::type;
        constexpr int N = 16 / (int)sizeof(T);
        bool even = row_even(args->dy, args->rows, N) && (uintptr_t)args->dweight % 16 == 0 &&
                    args->cols % N == 0;
        return even ? add_sums<T, A, true>(ctx, call) : add_sums<T, A, false>(ctx, call);
    });
}

static tutti_status embedding_backward(const tutti__job *job, const void *untyped)
{
    tutti_context *ctx = job->ctx;
    const tutti__embedding_args *args = (const tutti__embedding_args *)untyped;
    const char *what = "embedding_backward";
    TUTTI_TRY(tutti__cuda_use(ctx->device, what));
    cudaStream_t stream = tutti__cuda_stream(ctx);
    size_t sum_size = tutti_dtype_size(tutti__accumulate_dtype(args->dtype, args->dtype));
    const bool zeroes = !args->accumulate;
    if (args->rows == 0 && zeroes)
        TUTTI_CUDA(cudaMemsetAsync(args->dweight, 0, (size_t)(args->vocab * args->cols) * sum_size,
                                   stream),
                   what);
    if (args->rows == 0) return TUTTI_OK;
    const sum_plan &plan = *tutti__cuda_parameters<sum_plan>(job->plan);
    sum_scratch s;
    lay_out(args, plan, (char *)job->scratch, &s);
    if (!zeroes) return sort_and_sum(ctx, args, plan, s);
    cudaStream_t beside;
    TUTTI_TRY(tutti__cuda_beside_part(ctx, &beside));
    const tutti_status zeroed = tutti__cuda_zero_absent(ctx, args, sum_size, beside);
    const tutti_status summed = sort_and_sum(ctx, args, plan, s);
    /* also after a failure: a capture must not end with streams apart */
    const tutti_status joined = tutti__cuda_beside_join(ctx);
    return zeroed != TUTTI_OK ? zeroed : summed != TUTTI_OK ? summed : joined;
}

extern "C" const tutti__op tutti__cuda_embedding = {embedding_plan, embedding_forward,
                                                    embedding_backward};
