/* Rotary positions, forward and backward.  include/tutti/rope.h has the mathematics.
 *
 * Fewest bytes: x read once, y written once, 2 rows cols elements.  A thread has some neighbouring
 * pairs of a head, 16 bytes of each side where everything is aligned to that, otherwise one pair.
 * It computes their cosines and sines once a row, for a number of heads of that row, of which some
 * are in flight at a time, the first while it computes: 93 % of a copy, 81 without.  With a single
 * head these functions, about 60 instructions a pair, cost twice as much as the memory.
 *
 * The frequencies are arguments of the launch, so that nothing lies in memory that a captured graph
 * would have to keep; a launch has room for ROPE_PAIRS of them, and larger heads take several
 * launches. */
#include <type_traits>

#include "kernels/cuda/rows.cuh"
#include "ops/rope.h"

enum { ROPE_THREADS = 256, ROPE_BLOCKS = 3, ROPE_PAIRS = 128, ROPE_HEADS = 8 };

/* Neighbouring threads have neighbouring units of a row: all of a head, first those of pairs and
 * then those of columns that are copied, then those of the next head. */
struct rope_call {
    tutti__rope_args args;
    tutti__matrix from, to;
    int first_pair, pairs;   /* of this launch */
    int units, pair_units;   /* of a head */
    int heads, groups;       /* heads g, g + groups, g + 2 groups, … of a row are one thread's */
    tutti__finding *finding; /* NULL in all launches but the first */
    tutti__rope_frequency frequencies[ROPE_PAIRS];
};

static __device__ __forceinline__ void turn(tutti__rope_angle angle, float &cosine, float &sine)
{
    tutti__rope_turn_f32(angle, &cosine, &sine);
}
static __device__ __forceinline__ void turn(tutti__rope_angle angle, double &cosine, double &sine)
{
    tutti__rope_turn_f64(angle, &cosine, &sine);
}

/* Called by one thread a row. */
static __device__ void report_position(const rope_call &call, int64_t row)
{
    if (atomicCAS(&call.finding->code, 0, call.args.finding) != 0) return;
    call.finding->value = call.args.positions[row];
    call.finding->row = row;
    call.finding->limit = call.args.max_positions;
}

/* How a thread's pairs lie in a head. */
template<class T, bool INTERLEAVED, bool WIDE>
struct rope_unit {
    using real = typename std::conditional<sizeof(T) == 8, double, float>::type;
    static constexpr int VECTOR = WIDE ? 16 / (int)sizeof(T) : INTERLEAVED ? 2 : 1;
    static constexpr int PAIRS = INTERLEAVED ? VECTOR / 2 : VECTOR;
    static constexpr int VECTORS = INTERLEAVED ? 1 : 2;
    static constexpr int HEADS = INTERLEAVED ? 4 : 2; /* in flight */

    typename std::conditional<WIDE, uint4, T[VECTOR]>::type raw[VECTORS];

    __device__ __forceinline__ void load(const T *at, int64_t apart)
    {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            if constexpr (WIDE)
                raw[v] = *(const uint4 *)(at + v * apart);
            else {
#pragma unroll
                for (int i = 0; i < VECTOR; i++) raw[v][i] = at[v * apart + i];
            }
        }
    }
    /* angles: rotates; otherwise copies.  bad: writes NaN. */
    template<bool angles>
    __device__ __forceinline__ void write(T *at, int64_t apart, bool bad,
                                          const real (&cosine)[PAIRS], const real (&sine)[PAIRS])
    {
        real value[VECTORS][VECTOR];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            T part[VECTOR];
            memcpy(part, &raw[v], sizeof part);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) value[v][i] = widen<real>(part[i]);
        }
#pragma unroll
        for (int i = 0; angles && i < PAIRS; i++) {
            real &a = INTERLEAVED ? value[0][2 * i] : value[0][i];
            real &b = INTERLEAVED ? value[0][2 * i + 1] : value[VECTORS - 1][i];
            const real x = a, y = b;
            a = x * cosine[i] - y * sine[i];
            b = y * cosine[i] + x * sine[i];
        }
        if (bad)
#pragma unroll
            for (int v = 0; v < VECTORS; v++)
#pragma unroll
                for (int i = 0; i < VECTOR; i++) value[v][i] = (real)CUDART_NAN;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) store_elements(at + v * apart, value[v], VECTOR, WIDE);
    }
};

template<class T, bool INTERLEAVED, bool WIDE, bool backward>
__global__ void __launch_bounds__(ROPE_THREADS, bound_blocks(ROPE_BLOCKS))
    rope_kernel(const __grid_constant__ rope_call call)
{
    using unit = rope_unit<T, INTERLEAVED, WIDE>;
    using real = typename unit::real;
    constexpr int PAIRS = unit::PAIRS, HEADS = unit::HEADS;
    __shared__ tutti__rope_frequency frequencies[ROPE_PAIRS];
    const tutti__rope_args &args = call.args;
    const int item = blockIdx.y * blockDim.x + threadIdx.x;
    const int group = item / call.units, place = item % call.units;
    const bool works = group < call.groups, rotates = place < call.pair_units;
    /* what is copied is one vector of a head; in halves, two that lie next to each other */
    const int pair = (rotates ? place : 0) * PAIRS;
    const int64_t apart = rotates ? args.pairs : unit::VECTOR;
    const int64_t column = rotates
                               ? (int64_t)(call.first_pair + pair) * (INTERLEAVED ? 2 : 1)
                               : 2 * args.pairs + (int64_t)(place - call.pair_units) * 2 * PAIRS;
    const int64_t step = (int64_t)gridDim.x * blockDim.y;
    int64_t row = works ? (int64_t)blockIdx.x * blockDim.y + threadIdx.y : args.rows;
    unit next[HEADS]; /* those that are written next are on their way */
    auto load = [&](int64_t of_row, int first) {
        const T *from = (const T *)call.from.data + of_row * call.from.stride + column;
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const int head = first + h * call.groups;
            if (of_row < args.rows && head < call.heads)
                next[h].load(from + head * args.head_size, apart);
        }
    };

    load(row, group);
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < call.pairs;
         i += blockDim.x * blockDim.y)
        frequencies[i] = call.frequencies[i];
    __syncthreads();
    for (; row < args.rows; row += step) {
        const int64_t position = tutti__rope_position(&args, row);
        const bool bad = position < 0;
        if (bad && item == 0 && call.finding) report_position(call, row);
        real cosine[PAIRS], sine[PAIRS];
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            turn(tutti__rope_angle_of(frequencies[pair + i], position), cosine[i], sine[i]);
            if (backward) sine[i] = -sine[i];
        }
        T *to = (T *)call.to.data + row * call.to.stride + column;
        for (int first = group; first < call.heads;) {
            unit now[HEADS];
#pragma unroll
            for (int h = 0; h < HEADS; h++) now[h] = next[h];
            const int following = first + HEADS * call.groups;
            if (following < call.heads)
                load(row, following);
            else
                load(row + step, group);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                const int head = first + h * call.groups;
                T *at = to + head * args.head_size;
                if (head >= call.heads) continue;
                if (rotates)
                    now[h].template write<true>(at, apart, bad, cosine, sine);
                else
                    now[h].template write<false>(at, apart, bad, cosine, sine);
            }
            first = following;
        }
    }
}

/* Fewer heads a thread where there are few rows: half a GPU's threads at least. */
static int head_groups(int64_t rows, int units, int heads, int sms)
{
    int groups = heads;
    while (groups > (heads + ROPE_HEADS - 1) / ROPE_HEADS &&
           rows * units * ((groups + 1) / 2) >= (int64_t)sms * 1024)
        groups = (groups + 1) / 2;
    return groups;
}

template<class T, bool INTERLEAVED, bool WIDE, bool backward>
static tutti_status rope_launch(tutti_context *ctx, rope_call &call,
                                const tutti__rope_frequency *frequencies)
{
    constexpr int PAIRS = rope_unit<T, INTERLEAVED, WIDE>::PAIRS;
    const tutti__rope_args &args = call.args;
    const int sms = tutti__cuda_sm_count(ctx->device);
    int copied = (int)(args.head_size - 2 * args.pairs); /* of a head, in the first launch */
    for (int64_t first = 0; first < args.pairs; first += ROPE_PAIRS, copied = 0) {
        const int64_t left = args.pairs - first;
        call.first_pair = (int)first;
        call.pairs = left < ROPE_PAIRS ? (int)left : ROPE_PAIRS;
        memcpy(call.frequencies, frequencies + first, (size_t)call.pairs * sizeof *frequencies);
        call.pair_units = call.pairs / PAIRS;
        call.units = call.pair_units + copied / (2 * PAIRS);
        call.groups = head_groups(args.rows, call.units, call.heads, sms);
        const int64_t items = (int64_t)call.units * call.groups;
        const int wide = items < ROPE_THREADS ? (int)items : ROPE_THREADS;
        const dim3 block((unsigned)wide, (unsigned)(ROPE_THREADS / wide));
        const unsigned slices = (unsigned)((items + wide - 1) / wide);
        /* some rows a thread, which share the frequencies; one wave of blocks was 10 % slower */
        const int64_t full = (int64_t)sms * 32 / slices + 1;
        const int64_t blocks = (args.rows + block.y - 1) / block.y;
        const dim3 grid((unsigned)(blocks < full ? blocks : full), slices);
        rope_kernel<T, INTERLEAVED, WIDE, backward>
            <<<grid, block, 0, tutti__cuda_stream(ctx)>>>(call);
        TUTTI_CUDA_LAUNCHED("rope");
        call.finding = NULL;
    }
    return TUTTI_OK;
}

static tutti_status rope_plan(tutti_context *ctx, const void *untyped, bool backward,
                              tutti__plan *plan)
{
    (void)ctx;
    (void)backward;
    const tutti__rope_args *args = (const tutti__rope_args *)untyped;
    plan->data = tutti__rope_frequencies(args->base, args->pairs);
    plan->drop = tutti__rope_drop;
    return plan->data ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "rope: no memory");
}

/* Whether all vectors of a head begin on a 16-byte boundary and are whole. */
static bool rope_wide(const rope_call &call, int width)
{
    const tutti__rope_args &args = call.args;
    const int64_t pairs = args.interleaved ? 2 * args.pairs : args.pairs;
    const int64_t copied = args.head_size - 2 * args.pairs, unit = args.interleaved ? 1 : 2;
    return pairs % width == 0 && copied % (unit * width) == 0 && args.head_size % width == 0 &&
           row_aligned(call.from, args.rows, 16) && row_aligned(call.to, args.rows, 16);
}

template<bool backward>
static tutti_status rope_run(const tutti__job *job, const void *untyped)
{
    tutti_context *ctx = job->ctx;
    const tutti__rope_args *args = (const tutti__rope_args *)untyped;
    const tutti__rope_frequency *frequencies = (const tutti__rope_frequency *)job->plan->data;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "rope"));
    if (args->rows == 0) return TUTTI_OK;
    rope_call call = {};
    call.args = *args;
    call.from = backward ? args->dy : args->x;
    call.to = backward ? args->dx : args->y;
    call.heads = (int)(args->cols / args->head_size);
    call.finding = ctx->finding;
    return tutti__cuda_dispatch(args->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const bool wide = rope_wide(call, 16 / (int)sizeof(T));
        if (args->interleaved)
            return wide ? rope_launch<T, true, true, backward>(ctx, call, frequencies)
                        : rope_launch<T, true, false, backward>(ctx, call, frequencies);
        return wide ? rope_launch<T, false, true, backward>(ctx, call, frequencies)
                    : rope_launch<T, false, false, backward>(ctx, call, frequencies);
    });
}

extern "C" const tutti__op tutti__cuda_rope = {rope_plan, rope_run<false>, rope_run<true>};
