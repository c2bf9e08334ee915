/* BiasDropoutActivation on the GPU: one pass over the elements.
 *
 * Forward reads x (and a residual) and writes y, backward reads dy and x and writes dx: 2 (3) and 3
 * rows cols elements; the mask is computed again instead of stored, a Philox block for 8
 * neighbouring columns.  A thread has such a group of columns, whose bias and sums for dbias stay
 * in registers, of every strips-th row of its block's run of rows; the next rows are on their way
 * to shared memory meanwhile, where they cost no registers, and the schedule of Philox keys is the
 * same for all.  Sums are added by thread, by block as a tree, and over blocks by column_sums.cuh,
 * in f32 (f64 for f64); their order depends on the shape and the type.
 *
 * gelu of a 16-bit type takes 20 instructions an element forward and 31 backward, 5 of them
 * Philox's; an H200 issues about 27 and 41 in the time of a copy.  Rows that are not 16-byte
 * aligned, or end within a group, are read element by element. */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/rows.cuh"
#include "ops/dropout.h"

constexpr int group = 8; /* columns whose random bits come together */

enum class pass { FORWARD, RESIDUAL, BACKWARD };

/* How the kernels of rows in whole groups, 16-byte aligned, are cut. */
template<class T, tutti_activation act, pass what>
struct tuning {
    static constexpr bool backward = what == pass::BACKWARD;
    /* rows of a thread in flight or computed */
    static constexpr int depth = sizeof(T) == 8           ? 1
                                 : sizeof(T) == 4         ? 2
                                 : what == pass::FORWARD  ? 3
                                 : what == pass::RESIDUAL ? 2
                                                          : 5;
    /* of a multiprocessor, at least; as many as its registers hold */
    static constexpr int blocks = sizeof(T) == 8          ? backward ? 1 : 2
                                  : sizeof(T) == 4        ? backward ? 2 : 3
                                  : what == pass::FORWARD ? act == TUTTI_ACT_GELU_ERF ? 4 : 5
                                  : backward              ? 3
                                                          : 4;
};
/* About as many blocks: waves of an H200's 132 multiprocessors, 3 forward with an exponential, 8
 * without; backward 4, or 8 of 16-bit types, whose threads take more rows then. */
static int64_t blocks_of(const tutti__dropout_args *args, bool backward)
{
    const tutti_activation kind = args->activation.kind;
    if (backward && tutti_dtype_size(args->dtype) > 2) return 1584;
    if (backward) return args->rows * args->cols < 1 << 26 ? 1056 : 2112; /* 15 rows a thread */
    return kind == TUTTI_ACT_GELU || kind == TUTTI_ACT_GELU_ERF || kind == TUTTI_ACT_SILU ? 1980
                                                                                          : 5280;
}

/* Forward, rows of a thread at most, a multiple of its depth.  Blocks that end soon keep the loads
 * of some beside the work of others; what a block begins with must not count, though. */
static int64_t rows_of(const tutti__dropout_args *args)
{
    const tutti_activation kind = args->activation.kind;
    if (tutti_dtype_size(args->dtype) > 2 || args->residual.data) return args->rows;
    return kind == TUTTI_ACT_GELU || kind == TUTTI_ACT_GELU_ERF || kind == TUTTI_ACT_SILU ? 9 : 6;
}

/* A block has 2^lanes_log2 groups of columns, and threads >> lanes_log2 strips of rows. */
struct dropout_plan {
    int lanes_log2;
    int64_t run; /* rows of a block, below 2^31 in any memory */
};

/* A group of a row; even: in 16-byte accesses.  Columns from `count` on are 0, and not stored. */
template<class T, bool even>
struct octet {
    static constexpr int width = width_of<T>, vectors = group / width;
    uint4 raw[vectors];

    __device__ __forceinline__ void load(const T *at, int count)
    {
#pragma unroll
        for (int k = 0; k < vectors; k++)
            raw[k] = even ? ((const uint4 *)at)[k] : gather(at + k * width, count - k * width);
    }
    __device__ __forceinline__ void get(real_of<T> (&values)[group]) const
    {
#pragma unroll
        for (int k = 0; k < vectors; k++) {
            real_of<T> part[width];
            unpack<T>(raw[k], part);
#pragma unroll
            for (int i = 0; i < width; i++) values[k * width + i] = part[i];
        }
    }
    static __device__ __forceinline__ void store(T *at, const real_of<T> (&values)[group],
                                                 int count)
    {
        if constexpr (even) {
#pragma unroll
            for (int k = 0; k < vectors; k++) {
                real_of<T> part[width];
#pragma unroll
                for (int i = 0; i < width; i++) part[i] = values[k * width + i];
                store_pack(at + k * width, part);
            }
        } else {
#pragma unroll
            for (int i = 0; i < group; i++)
                if (i < count) at[i] = narrow<T>::of(values[i]);
        }
    }
};

/* A thread's group of columns in the rows of its block; near: the stride has 32 bits in bytes, and
 * an address takes one instruction. */
template<class T, bool near>
struct column {
    char *base;
    std::conditional_t<near, uint32_t, uint64_t> stride;

    __device__ __forceinline__ column(const tutti__matrix &m, int64_t begin, int64_t col)
        : base((char *)((T *)m.data + begin * m.stride + col)), stride(m.stride * sizeof(T))
    {
        asm("" : "+l"(base)); /* or its terms are added for every row */
    }
    __device__ __forceinline__ T *at(int row) const
    {
        return (T *)(base + uint64_t(uint32_t(row)) * stride);
    }
};

/* A number that all lanes of a warp have, as one that the compiler knows to be such: the schedule
 * of keys then stays in uniform registers for all rounds of all rows.  To be called outside of
 * conditions: ptxas 13.0 may apply a wrong one. */
__device__ __forceinline__ uint32_t same_in_warp(uint32_t value)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_or_sync(0xffffffffu, value);
#else
    return value;
#endif
}

/* The random bits of one group of columns, as tutti__dropout_kept has them: their comparison with
 * limit is the mask. */
struct mask_bits {
    uint32_t key0, key1, limit;
    bool drawn; /* at p = 0 and 1 all bits count as 0, and step is not read */
    tutti__random counter;

    mask_bits() = default;
    __device__ __forceinline__ mask_bits(const tutti__dropout_args &args, uint32_t at)
        : key0(0), key1(0), limit(args.dropped << 16), counter()
    {
        drawn = args.dropped > 0 && args.dropped < 65536;
        if (args.dropped == 65536) limit = 1u << 16;
        const uint64_t seed = drawn ? args.step->seed : 0;
        key0 = same_in_warp((uint32_t)seed);
        key1 = same_in_warp((uint32_t)(seed >> 32));
        if (!drawn) return;
        counter = tutti__random_counter(args.layer_number, args.step->step, 0, at);
    }

    /* Those of row low + 2^32 high of the global batch. */
    template<bool DRAWN>
    __device__ __forceinline__ tutti__random draw(uint32_t low, uint32_t high) const
    {
        tutti__random bits = {};
        if (!DRAWN) return bits;
        bits = counter;
        bits.word[2] = low;
        bits.word[3] = high;
        uint32_t a = key0, b = key1;
#pragma unroll
        for (int round = 0; round < 10; round++) {
            bits = tutti__philox_round(bits, a, b);
            a += TUTTI__PHILOX_BUMP0;
            b += TUTTI__PHILOX_BUMP1;
        }
        return bits;
    }

    /* Half a word against dropped: the upper one decides whatever the lower one is. */
    __device__ __forceinline__ bool kept(const tutti__random &bits, int i) const
    {
        const uint32_t word = bits.word[i / 2];
        return (i % 2 ? word : word << 16) >= limit;
    }

    /* Whether few enough are dropped for kept_pair. */
    __device__ __forceinline__ bool few() const
    {
        return limit <= 1u << 31;
    }

    /* Both halves of a word as a mask of two 16-bit elements.  The smaller of the bits and dropped,
     * plus 2^15 - dropped, is below 2^15 exactly where the element is dropped, and its upper bit
     * fills the half. */
    __device__ __forceinline__ uint32_t kept_pair(uint32_t word) const
    {
        const uint32_t both = limit | limit >> 16;
        uint32_t spread;
        asm("prmt.b32 %0, %1, 0, 0xbb99;"
            : "=r"(spread)
            : "r"(__vminu2(word, both) + (0x80008000u - both)));
        return spread;
    }
};

/* The block's sums of its columns to a row of partial: its strips are added as a tree. */
template<class R>
__device__ __forceinline__ void add_strips(const R (&sum)[group], int lanes, int64_t col,
                                           int64_t cols, R *row)
{
    __shared__ R sums[group][threads];
    const int thread = threadIdx.x;
#pragma unroll
    for (int i = 0; i < group; i++) sums[i][thread] = sum[i];
    for (int half = threads / 2; half >= lanes; half /= 2) {
        __syncthreads();
        if (thread < half) {
#pragma unroll
            for (int i = 0; i < group; i++) sums[i][thread] += sums[i][thread + half];
        }
    }
    if (thread >= lanes) return;
#pragma unroll
    for (int i = 0; i < group; i++)
        if (col + i < cols) row[col + i] = sums[i][thread];
}

/* 16 bytes of this thread on their way to shared memory, if wanted; as a predicate here, since the
 * compiler computes addresses within a condition with twice the instructions. */
__device__ __forceinline__ void fetch(uint4 *to, const uint4 *from, bool wanted)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0;"
                 "@p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"((uint32_t)wanted)
                 : "memory");
}

/* A thread's group of columns in its block's rows strip, strip + apart, …, below `rows`; even: as
 * all_even says.  DEPTH - 1 rows are on their way while one is computed. */
template<class T, tutti_activation act, pass what, bool even, int DEPTH>
struct dropout_strip {
    typedef real_of<T> real;
    static constexpr bool backward = what == pass::BACKWARD, ahead = even && DEPTH > 1;
    static constexpr bool reads_x = !backward || act != TUTTI_ACT_NONE;
    static constexpr bool reads_other = what != pass::FORWARD; /* residual, or dy */
    static constexpr int tensors = reads_x + reads_other, vectors = octet<T, even>::vectors;
    static constexpr bool shrunk = has_short_way<T, act> && !backward; /* z is 2^-8 of itself */
#if __CUDA_ARCH__ >= 900 /* which has an instruction for __vminu2 */
    static constexpr bool in_pairs = even && sizeof(T) == 2 && what == pass::FORWARD;
#else
    static constexpr bool in_pairs = false;
#endif
    typedef uint4 ring[DEPTH][tensors][vectors][ahead ? threads : 1];

    ring &waiting;
    const activation_constants<real> constants;
    mask_bits mask;
    const real p_keep, scale; /* scale: f32 and f64 divide by p_keep; of no use at p = 1 */
    const short_scaled<act, 8> shrunk_activation;
    const int64_t first; /* of the block's rows, in the global batch */
    const column<T, even> x, other, y;
    const int count, strip, apart, rows;
    const bool writes, has_other; /* has_other: RESIDUAL is FORWARD, too (see run) */
    real bias[group], sum[group];

    /* from: idle threads read the first columns, but do not write. */
    __device__ __forceinline__ dropout_strip(ring &places, const tutti__dropout_args &args,
                                             int64_t begin, int64_t at, int columns, int my_strip,
                                             int strips_apart, int block_rows)
        : waiting(places), constants(args.activation), mask(), p_keep(tutti__dropout_p_keep(&args)),
          scale(sizeof(T) == 2 ? 1 / p_keep : 1), shrunk_activation(float(p_keep)),
          first(args.first_row + begin), x(args.x, begin, columns > 0 ? at * group : 0),
          other(backward ? args.dy : args.residual, begin, columns > 0 ? at * group : 0),
          y(backward ? args.dx : args.y, begin, at * group), count(columns), strip(my_strip),
          apart(strips_apart), rows(block_rows), writes(columns > 0 && (!backward || args.dx.data)),
          has_other(ahead || backward || args.residual.data), bias(), sum()
    {
        /* first of all, since these take the longest */
        for (int d = 0; d < DEPTH - 1; d++) request(d, strip + d * apart);
        mask = mask_bits(args, (uint32_t)at);
#pragma unroll
        for (int i = 0; i < group; i++) bias[i] = real(-0.0); /* adds nothing, to -0 either */
        if (reads_x && args.bias)
            load_elements(bias, (const T *)args.bias + at * group, count, false);
#pragma unroll
        for (int i = 0; i < group && shrunk; i++) bias[i] *= real(0x1p-8);
    }

    __device__ __forceinline__ void request(int d, int row) const
    {
        if constexpr (ahead) {
#pragma unroll
            for (int k = 0; k < vectors; k++) {
                uint4 *to = &waiting[d][0][k][threadIdx.x];
                if (reads_x) fetch(to, (const uint4 *)x.at(row) + k, row < rows);
                to = &waiting[d][tensors - 1][k][threadIdx.x];
                if (reads_other) fetch(to, (const uint4 *)other.at(row) + k, row < rows);
            }
            asm volatile("cp.async.commit_group;");
        }
    }
    /* Until at most LATER of the rows requested are on their way. */
    template<int LATER>
    __device__ __forceinline__ void await() const
    {
        if constexpr (ahead) asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
    }
    /* x and the other tensor; what is not read stays 0. */
    __device__ __forceinline__ void receive(int d, int row, real (&z)[group],
                                            real (&v)[group]) const
    {
        octet<T, even> from, added;
        if constexpr (ahead) {
#pragma unroll
            for (int k = 0; k < vectors; k++) {
                if (reads_x) from.raw[k] = waiting[d][0][k][threadIdx.x];
                if (reads_other) added.raw[k] = waiting[d][tensors - 1][k][threadIdx.x];
            }
        } else {
            from = {}, added = {};
            if (reads_x && row < rows) from.load(x.at(row), count);
            if (reads_other && has_other && row < rows) added.load(other.at(row), count);
        }
        if (reads_x) from.get(z);
        if (reads_other) added.get(v);
#pragma unroll
        for (int i = 0; i < group && !has_other; i++) v[i] = real(-0.0); /* adds nothing */
    }
    /* act(z) or act'(z), over p_keep for the 16-bit types */
    __device__ __forceinline__ real factor(real z) const
    {
        if constexpr (backward) return scaled_slope<T, act>(z, constants, scale);
        if constexpr (shrunk) return shrunk_activation(z);
        return activate<T, act>(z, constants) * scale;
    }
    template<bool DRAWN, bool PAIRS>
    __device__ __forceinline__ void take(int d, int row)
    {
        real z[group] = {}, v[group] = {};
        receive(d, row, z, v);
        const int64_t it = first + row;
        const uint32_t high = uint32_t((even ? first : it) >> 32); /* even: of all rows */
        const tutti__random bits = mask.draw<DRAWN>((uint32_t)it, high);
#pragma unroll
        for (int k = 0; k < group; k++) {
            if (reads_x) z[k] = fma(z[k], real(shrunk ? 0x1p-8 : 1), bias[k]);
            real part = backward ? rounded_product(v[k], factor(z[k])) : factor(z[k]);
            if (sizeof(T) > 2) part /= p_keep;
            if (!PAIRS && !mask.kept(bits, k)) part = 0;
            if (backward) sum[k] += part;
            v[k] = what == pass::RESIDUAL ? v[k] + part : part;
        }
        if constexpr (PAIRS) {
            uint4 raw = pack<T>(v);
            raw.x &= mask.kept_pair(bits.word[0]);
            raw.y &= mask.kept_pair(bits.word[1]);
            raw.z &= mask.kept_pair(bits.word[2]);
            raw.w &= mask.kept_pair(bits.word[3]);
            if (writes && row < rows) __stwb((uint4 *)y.at(row), raw);
        } else if (writes && row < rows)
            octet<T, even>::store(y.at(row), v, count);
    }
    template<bool DRAWN, bool PAIRS>
    __device__ __forceinline__ void take_all()
    {
        int row = strip, done = 0;
        /* All threads take equally many rows: were they to diverge, the compiler would not keep the
         * keys in uniform registers.  Backward leaves the last ones, which must not be added. */
        for (; backward ? done + DEPTH * apart <= rows : done < rows; done += DEPTH * apart) {
#pragma unroll
            for (int d = 0; d < DEPTH; d++, row += apart) {
                if (!backward && d > 0 && done + d * apart >= rows) return;
                request((d + DEPTH - 1) % DEPTH, row + (DEPTH - 1) * apart);
                await<DEPTH - 1>();
                take<DRAWN, PAIRS>(d, row);
            }
        }
        if (!backward) return;
        request(DEPTH - 1, row + (DEPTH - 1) * apart);
        await<0>();
#pragma unroll 1
        for (int d = 0; row < rows; d++, row += apart) take<DRAWN, PAIRS>(d, row);
    }
};

/* partial: backward's, NULL where dbias is not wanted. */
template<class T, tutti_activation act, pass what, bool even, int DEPTH, int BLOCKS>
__global__ void __launch_bounds__(threads, bound_blocks(BLOCKS))
    dropout_kernel(const __grid_constant__ tutti__dropout_args args, dropout_plan plan,
                   real_of<T> *partial)
{
    typedef dropout_strip<T, act, what, even, DEPTH> its;
    __shared__ typename its::ring waiting;
    if (its::backward) start_next();
    const int lanes = 1 << plan.lanes_log2, apart = threads >> plan.lanes_log2;
    const int64_t at = int64_t(blockIdx.x) * lanes + (threadIdx.x & (lanes - 1));
    const int64_t left = args.cols - at * group;
    const int count = left < 0 ? 0 : left < group ? int(left) : group;
    const int64_t begin = blockIdx.y * plan.run;
    const int rows = begin + plan.run < args.rows ? int(plan.run) : int(args.rows - begin);
    its strip(waiting, args, begin, at, count, int(threadIdx.x) >> plan.lanes_log2, apart, rows);
    if (!strip.mask.drawn)
        strip.template take_all<false, false>();
    else if (its::in_pairs && strip.mask.few())
        strip.template take_all<true, its::in_pairs>();
    else
        strip.template take_all<true, false>();
    if (its::backward && partial)
        add_strips(strip.sum, lanes, at * group, args.cols, partial + blockIdx.y * args.cols);
}

/* Backward: at most chain rows a thread, until the grid is full. */
static dropout_plan plan_of(const tutti__dropout_args *args, bool backward)
{
    const int64_t groups = div_up(args->cols, group);
    dropout_plan plan = {0, 0};
    /* The narrower a block's columns, the fewer partial rows for as many blocks. */
    const int most_log2 = backward && tutti_dtype_size(args->dtype) == 2 ? 4 : 5;
    while (plan.lanes_log2 < most_log2 && 1 << plan.lanes_log2 < groups) plan.lanes_log2++;
    const int64_t apart = threads >> plan.lanes_log2;
    int64_t runs = blocks_of(args, backward) / div_up(groups, 1 << plan.lanes_log2);
    const int64_t least = backward ? div_up(args->rows, chain * apart) : 1;
    if (runs < least) runs = least < 32768 ? least : 32768;
    if (runs < 1) runs = 1;
    plan.run = div_up(args->rows, runs);
    const int64_t most = apart * rows_of(args), turn = apart * 3; /* rows in flight of 16 bits */
    if (!backward && plan.run > most) plan.run = most;
    if (!backward && plan.run > apart) plan.run = div_up(plan.run, turn) * turn;
    if (plan.run < (backward ? apart : 1)) plan.run = backward ? apart : 1;
    if (plan.run < div_up(args->rows, 32768)) plan.run = div_up(args->rows, 32768);
    return plan;
}

static tutti_status make_plan(tutti_context *ctx, const void *untyped, bool backward,
                              tutti__plan *plan)
{
    (void)ctx;
    const tutti__dropout_args *args = (const tutti__dropout_args *)untyped;
    dropout_plan *made = tutti__cuda_parameters<dropout_plan>(plan);
    *made = plan_of(args, backward);
    if (backward && args->bias)
        plan->scratch = size_t(div_up(args->rows, made->run) * args->cols) *
                        (args->dtype == TUTTI_F64 ? sizeof(double) : sizeof(float));
    return TUTTI_OK;
}

/* Whether all rows of the call are whole groups, 16-byte aligned and less than 4 GiB apart, and
 * their numbers have the same upper 32 bits. */
static bool all_even(const tutti__dropout_args &args)
{
    const int64_t last = args.first_row + (args.rows > 0 ? args.rows - 1 : 0);
    if (args.cols % group || args.first_row >> 32 != last >> 32) return false;
    for (const tutti__matrix &m : {args.x, args.residual, args.y, args.dy, args.dx})
        if (m.data &&
            (!row_even(m, args.rows, group) || m.stride * tutti_dtype_size(m.dtype) > UINT32_MAX))
            return false;
    return true;
}

template<class T, tutti_activation act, pass what, bool even, int DEPTH, int BLOCKS>
static void launch(const tutti__dropout_args &args, const dropout_plan &plan, cudaStream_t stream,
                   real_of<T> *partial)
{
    const int64_t runs = div_up(args.rows, plan.run);
    const int64_t tiles = div_up(div_up(args.cols, group), 1 << plan.lanes_log2);
    if (runs > 0)
        dropout_kernel<T, act, what, even, DEPTH, BLOCKS>
            <<<dim3((unsigned)tiles, (unsigned)runs), threads, 0, stream>>>(args, plan, partial);
}

template<class T, tutti_activation act, pass what>
static tutti_status run(const tutti__job *job, const tutti__dropout_args &args)
{
    using tuned = tuning<T, act, what>;
    const dropout_plan &plan = *tutti__cuda_parameters<dropout_plan>(job->plan);
    const cudaStream_t stream = tutti__cuda_stream(job->ctx);
    real_of<T> *partial = NULL;
    if (what == pass::BACKWARD && args.dbias) partial = (real_of<T> *)job->scratch;
    /* kernels that wait for every row alone do not mind whether there is a residual */
    constexpr pass either = what == pass::FORWARD ? pass::RESIDUAL : what;
    if (all_even(args))
        launch<T, act, tuned::depth == 1 ? either : what, true, tuned::depth, tuned::blocks>(
            args, plan, stream, partial);
    else
        launch<T, act, either, false, 1, 2>(args, plan, stream, partial);
    TUTTI_CUDA_LAUNCHED("dropout");
    if (what != pass::BACKWARD || !args.dbias) return TUTTI_OK;
    return column_sums_finish("dropout", stream, div_up(args.rows, plan.run), args.cols,
                              (const real_of<T> *)partial, (real_of<T> *)args.dbias,
                              args.accumulate);
}

static tutti_status forward(const tutti__job *job, const void *untyped)
{
    const tutti__dropout_args &args = *(const tutti__dropout_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "dropout"));
    return with_activation(args.dtype, args.activation.kind, [&](auto type, auto act) {
        using T = typename decltype(type)::type;
        return args.residual.data ? run<T, decltype(act)::value, pass::RESIDUAL>(job, args)
                                  : run<T, decltype(act)::value, pass::FORWARD>(job, args);
    });
}

static tutti_status backward(const tutti__job *job, const void *untyped)
{
    const tutti__dropout_args &args = *(const tutti__dropout_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "dropout"));
    return with_activation(args.dtype, args.activation.kind, [&](auto type, auto act) {
        return run<typename decltype(type)::type, decltype(act)::value, pass::BACKWARD>(job, args);
    });
}

extern "C" const tutti__op tutti__cuda_dropout = {make_plan, forward, backward};
