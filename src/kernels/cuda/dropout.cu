/* BiasDropoutActivation on the GPU: one pass over the elements.
 *
 * Forward reads x (and a residual) and writes y, backward reads dy and x and writes dx: 2 (3) and 3
 * rows cols elements; the mask is computed again instead of stored, a Philox block for 8
 * neighbouring columns.  A thread has such a group of columns, whose bias and sums for dbias stay
 * in registers, of every strips-th row of its block's run of rows, a few of them at a time: their
 * loads are in flight together, and one schedule of Philox keys serves all.  Sums are added by
 * thread, by block as a tree, and over blocks by column_sums.cuh, in f32 (f64 for f64); their order
 * depends on the shape and the type.
 *
 * At the copy rate of an H200 there is time for about 27 instructions per element of a 16-bit type
 * in forward, 41 in backward; gelu takes 22 and 34, 5 of them Philox's.  Rows that are not 16-byte
 * aligned, or end within a group, are read element by element. */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/rows.cuh"
#include "ops/dropout.h"

constexpr int group = 8; /* columns whose random bits come together */

enum class pass { FORWARD, RESIDUAL, BACKWARD };

/* How the kernels of rows in whole groups, 16-byte aligned, are cut. */
template<class T, pass what>
struct tuning {
    /* that a thread takes at a time */
    static constexpr int rows = sizeof(T) > 4 || (sizeof(T) == 4 && what == pass::BACKWARD) ? 1 : 2;
    /* of a multiprocessor, at least */
    static constexpr int blocks = sizeof(T) == 2   ? what == pass::FORWARD    ? 5
                                                     : what == pass::RESIDUAL ? 4
                                                                              : 3
                                  : sizeof(T) == 4 ? 3
                                                   : 2;
};
/* About as many blocks. */
constexpr int64_t forward_grid = 4096, backward_grid = 1024;

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
    int64_t stride;

    __device__ __forceinline__ column(const tutti__matrix &m, int64_t begin, int64_t col)
        : base((char *)((T *)m.data + begin * m.stride + col)),
          stride(m.stride * int64_t(sizeof(T)))
    {
    }
    __device__ __forceinline__ T *at(int row) const
    {
        return (T *)(base + (near ? uint64_t(uint32_t(row)) * uint32_t(stride)
                                  : uint64_t(row) * uint64_t(stride)));
    }
};

/* A number that all lanes of a warp have, as one that the compiler knows to be such: the schedule
 * of keys then stays in uniform registers for all rounds of all rows. */
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

    __device__ __forceinline__ mask_bits(const tutti__dropout_args &args, uint32_t at)
        : key0(0), key1(0), limit(args.dropped << 16), counter()
    {
        drawn = args.dropped > 0 && args.dropped < 65536;
        if (args.dropped == 65536) limit = 1u << 16;
        if (!drawn) return;
        const uint64_t seed = args.step->seed;
        key0 = same_in_warp((uint32_t)seed);
        key1 = same_in_warp((uint32_t)(seed >> 32));
        counter = tutti__random_counter(args.layer_number, args.step->step, 0, at);
    }

    /* Those of rows first, first + apart, …; their rounds alternate. */
    template<int ROWS>
    __device__ __forceinline__ void draw(tutti__random (&bits)[ROWS], int64_t first,
                                         int64_t apart) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) bits[r] = tutti__random{};
        if (!drawn) return;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int64_t row = first + r * apart;
            bits[r] = counter;
            bits[r].word[2] = (uint32_t)row;
            bits[r].word[3] = (uint32_t)(row >> 32);
        }
        uint32_t a = key0, b = key1;
#pragma unroll
        for (int round = 0; round < 10; round++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) bits[r] = tutti__philox_round(bits[r], a, b);
            a += TUTTI__PHILOX_BUMP0;
            b += TUTTI__PHILOX_BUMP1;
        }
    }

    /* Half a word against dropped: the upper one decides whatever the lower one is. */
    __device__ __forceinline__ bool kept(const tutti__random &bits, int i) const
    {
        const uint32_t word = bits.word[i / 2];
        return (i % 2 ? word : word << 16) >= limit;
    }
};

/* v / p_keep; the 16-bit types multiply by `scale`, its reciprocal.  Not fused with a sum that
 * follows: dbias has the same bits whether dx is written or not. */
template<class T>
__device__ __forceinline__ real_of<T> rescaled(real_of<T> v, real_of<T> p_keep, real_of<T> scale)
{
    if constexpr (sizeof(T) == 2)
        return __fmul_rn(v, scale);
    else
        return v / p_keep;
}

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

/* even: as all_even says.  partial: backward's, NULL where dbias is not wanted. */
template<class T, tutti_activation act, pass what, bool even, int ROWS, int BLOCKS>
__global__ void __launch_bounds__(threads, BLOCKS)
    dropout_kernel(const __grid_constant__ tutti__dropout_args args, dropout_plan plan,
                   real_of<T> *partial)
{
    typedef real_of<T> real;
    constexpr bool backward = what == pass::BACKWARD;
    constexpr bool reads_x = !backward || act != TUTTI_ACT_NONE,
                   reads_other = what != pass::FORWARD;
    const int lanes = 1 << plan.lanes_log2, apart = threads >> plan.lanes_log2;
    const int strip = int(threadIdx.x) >> plan.lanes_log2;
    const int64_t at = int64_t(blockIdx.x) * lanes + (threadIdx.x & (lanes - 1));
    const int64_t col = at * group, left = args.cols - col;
    const int count = left < 0 ? 0 : left < group ? int(left) : group;
    const int64_t begin = blockIdx.y * plan.run;
    const int rows = int(begin + plan.run < args.rows ? plan.run : args.rows - begin);
    const activation_constants<real> constants(args.activation);
    const real p_keep = tutti__dropout_p_keep(&args);
    const real scale = 1 / p_keep; /* unused at p = 1 */
    const mask_bits mask(args, (uint32_t)at);
    const tutti__matrix &to = backward ? args.dx : args.y;
    const column<T, even> x(args.x, begin, col), y(to, begin, col),
        other(backward ? args.dy : args.residual, begin, col);

    real bias[group], sum[group] = {};
#pragma unroll
    for (int i = 0; i < group; i++) bias[i] = real(-0.0); /* adds nothing, to -0 either */
    if (reads_x && args.bias) load_elements(bias, (const T *)args.bias + col, count, false);

    for (int i = strip; i < rows && count > 0; i += ROWS * apart) {
        octet<T, even> from[ROWS], added[ROWS];
        tutti__random bits[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r > 0 && i + r * apart >= rows) break;
            if (reads_x) from[r].load(x.at(i + r * apart), count);
            if (reads_other) added[r].load(other.at(i + r * apart), count);
        }
        mask.draw(bits, args.first_row + begin + i, apart);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r > 0 && i + r * apart >= rows) break;
            real z[group] = {}, v[group] = {};
            if (reads_x) from[r].get(z);
            if (reads_other) added[r].get(v);
#pragma unroll
            for (int k = 0; k < group; k++) {
                real d = v[k];
                if (reads_x) z[k] += bias[k];
                if constexpr (!backward) d = activate<T, act>(z[k], constants);
                if constexpr (backward && act != TUTTI_ACT_NONE)
                    d *= slope_at<T, act>(z[k], constants);
                d = mask.kept(bits[r], k) ? rescaled<T>(d, p_keep, scale) : real(0);
                if constexpr (backward) sum[k] += d;
                v[k] = what == pass::RESIDUAL ? v[k] + d : d;
            }
            if (!backward || to.data) octet<T, even>::store(y.at(i + r * apart), v, count);
        }
    }
    if constexpr (backward)
        if (partial) add_strips(sum, lanes, col, args.cols, partial + blockIdx.y * args.cols);
}

/* rows: that a thread takes at a time.  Backward: at most chain rows a thread, until the grid is
 * full. */
static dropout_plan plan_of(const tutti__dropout_args *args, bool backward, int rows, int64_t grid)
{
    const int64_t groups = div_up(args->cols, group);
    dropout_plan plan = {0, 0};
    while (plan.lanes_log2 < 5 && 1 << plan.lanes_log2 < groups) plan.lanes_log2++;
    const int64_t apart = threads >> plan.lanes_log2, round = apart * rows;
    int64_t runs = grid / div_up(groups, 1 << plan.lanes_log2);
    const int64_t least = backward ? div_up(args->rows, chain * apart) : 1;
    if (runs < least) runs = least < 32768 ? least : 32768;
    if (runs < 1) runs = 1;
    plan.run = div_up(div_up(args->rows, runs), round) * round;
    if (plan.run == 0) plan.run = round; /* without rows */
    return plan;
}

/* For all kernels of a direction: rows in a round is a multiple of what each takes at a time. */
static tutti_status make_plan(tutti_context *ctx, const void *untyped, bool backward,
                              tutti__plan *plan)
{
    (void)ctx;
    const tutti__dropout_args *args = (const tutti__dropout_args *)untyped;
    dropout_plan *made = tutti__cuda_parameters<dropout_plan>(plan);
    *made = plan_of(args, backward, 2, backward ? backward_grid : forward_grid);
    if (backward && args->bias)
        plan->scratch = size_t(div_up(args->rows, made->run) * args->cols) *
                        (args->dtype == TUTTI_F64 ? sizeof(double) : sizeof(float));
    return TUTTI_OK;
}

/* Whether all rows of the call are whole groups, 16-byte aligned and less than 4 GiB apart. */
static bool all_even(const tutti__dropout_args &args)
{
    if (args.cols % group) return false;
    for (const tutti__matrix &m : {args.x, args.residual, args.y, args.dy, args.dx})
        if (m.data &&
            (!row_even(m, args.rows, group) || m.stride * tutti_dtype_size(m.dtype) > UINT32_MAX))
            return false;
    return true;
}

template<class T, tutti_activation act, pass what, bool even, int ROWS, int BLOCKS>
static void launch(const tutti__dropout_args &args, const dropout_plan &plan, cudaStream_t stream,
                   real_of<T> *partial)
{
    const int64_t runs = div_up(args.rows, plan.run);
    const int64_t tiles = div_up(div_up(args.cols, group), 1 << plan.lanes_log2);
    if (runs > 0)
        dropout_kernel<T, act, what, even, ROWS, BLOCKS>
            <<<dim3((unsigned)tiles, (unsigned)runs), threads, 0, stream>>>(args, plan, partial);
}

template<class T, tutti_activation act, pass what>
static tutti_status run(const tutti__job *job, const tutti__dropout_args &args)
{
    using tuned = tuning<T, what>;
    const dropout_plan &plan = *tutti__cuda_parameters<dropout_plan>(job->plan);
    const cudaStream_t stream = tutti__cuda_stream(job->ctx);
    real_of<T> *partial = NULL;
    if (what == pass::BACKWARD && args.dbias) partial = (real_of<T> *)job->scratch;
    if (all_even(args))
        launch<T, act, what, true, tuned::rows, tuned::blocks>(args, plan, stream, partial);
    else
        launch<T, act, what, false, 1, 2>(args, plan, stream, partial);
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
