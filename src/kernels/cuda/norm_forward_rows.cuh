/* LayerNorm and RMSNorm, forward: rows in registers and in shared memory.  Sums, and kernels. */
#ifndef TUTTI_KERNELS_CUDA_NORM_FORWARD_ROWS_CUH
#define TUTTI_KERNELS_CUDA_NORM_FORWARD_ROWS_CUH

#include "kernels/cuda/norm_forward.cuh"
#include "kernels/cuda/rows.cuh"

/* Sums over a vector's columns: a thread adds those of its vectors, so that there is no single
 * chain of additions.  Fused operations are explicit, so that a row has the same bits in each
 * kernel that may get it. */
template<class T>
__device__ __forceinline__ float sum_of(const uint4 &raw)
{
    constexpr int N = vector16<T>::N;
    float v[N], part = 0;
    vector16<T>::unpack(raw, v);
#pragma unroll
    for (int i = 0; i < N; i++) part += v[i];
    return part;
}

/* Of (x - mean)^2, and if wanted of x - mean, over the first `left` columns; WHOLE: these are all
 * or none. */
template<class T, bool WHOLE>
__device__ __forceinline__ float squares_of(const uint4 &raw, int left, float mean,
                                            float *moved = nullptr)
{
    constexpr int N = vector16<T>::N;
    float v[N], part = 0, part_moved = 0;
    vector16<T>::unpack(raw, v);
    auto add = [&](int i) {
        float centred = v[i] - mean;
        part = fmaf(centred, centred, part);
        if (moved) part_moved += centred;
    };
    if constexpr (WHOLE) {
#pragma unroll
        for (int i = 0; i < N; i++) add(i);
        part = left > 0 ? part : 0;
        part_moved = left > 0 ? part_moved : 0;
    } else
        for_elements<N>(left, add);
    if (moved) *moved += part_moved;
    return part;
}

/* Both sums at once about a pivot near the mean: then mean = pivot + moved / count, and the squares
 * about it are those about the pivot less moved^2 / count [Chan, Golub & LeVeque 1983].  Where that
 * takes away more than FAR times what it leaves, the pivot was too far off for its rounding. */
enum { FAR = 4 };

/* Whether the values of all of a group of lanes are >= 0 (up), or all <= 0.  If a row's first
 * columns are of both signs, its mean is no more than a few deviations, and sums about 0 give it
 * with less rounding than those about a pivot that is off by as much: a type of 16 bits does not
 * show that. */
static __device__ __forceinline__ bool is_one_sign(bool up, bool down, int lanes)
{
    const unsigned group = (0xffffffffu >> (32 - lanes)) << (threadIdx.x % 32 / lanes * lanes);
    const unsigned ups = __ballot_sync(0xffffffffu, up), downs = __ballot_sync(0xffffffffu, down);
    return (ups & group) == group || (downs & group) == group;
}
template<class T>
static __device__ __forceinline__ bool is_one_sign(const uint4 &raw, int lanes)
{
    float v[vector16<T>::N];
    vector16<T>::unpack(raw, v);
    bool up = true, down = true;
    for (float value : v) up = up && value >= 0, down = down && value <= 0;
    return is_one_sign(up, down, lanes);
}

static __device__ __forceinline__ bool move_to_mean(float pivot, float moved, float share,
                                                    float &mean, float &squares)
{
    const float shift = __fmul_rn(moved, share), less = __fmul_rn(shift, moved);
    mean = __fadd_rn(pivot, shift);
    squares = __fsub_rn(squares, less);
    return !(less <= FAR * squares);
}

/* Makes the compiler recompute what follows from these (columns, and whether they are in the row)
 * instead of keeping it in scarce registers. */
static __device__ __forceinline__ void forget(row_place &place, int &cols)
{
    asm volatile("" : "+r"(cols), "+r"(place.first), "+r"(place.step));
}

/* The first blocks ask for gamma and beta, of so many columns, before they ask for their rows; when
 * these have come, the second level of the caches has those, too. */
enum { PREFETCH_BLOCKS = 16 };
static __device__ __forceinline__ void prefetch_params(const tutti__norm_args &args, int col,
                                                       int count)
{
#ifdef TUTTI_ROW_CLUSTERS
    if (threadIdx.x != 0 || blockIdx.x >= PREFETCH_BLOCKS) return;
    const int size = args.param_dtype == TUTTI_F32 ? 4 : 2;
    const int bytes = min(count, (int)args.cols - col) * size / 16 * 16;
    if (bytes <= 0) return;
    auto ask = [&](const void *param) {
        const char *at = (const char *)param + (int64_t)col * size;
        if (param)
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at - skew_of(at)),
                         "r"(bytes)
                         : "memory");
    };
    ask(args.gamma);
    ask(args.beta);
#endif
}

/* Whether the row is delicate.  sums(mean, &moved) are a thread's sums as in squares_of; far: the
 * sums need it anyway. */
template<class Team, class Sums>
__device__ __forceinline__ bool correct_delicate(Team &team, float inverse_cols, bool far,
                                                 float &mean, float &squares, Sums &&sums)
{
    const bool delicate = far || is_delicate(mean, squares * inverse_cols);
    if (!team.any(delicate)) return false;
#pragma unroll 1
    for (int pass = 0; pass < DELICATE_PASSES; pass++) {
        float both[2] = {0, 0};
        both[0] = sums(mean, &both[1]);
        team.reduce(both);
        if (!delicate) continue; /* a neighbour in the warp is */
        squares = both[0];
        correct_mean(mean, squares, both[1], __fmul_rn(both[1], inverse_cols));
    }
    return delicate;
}

static __device__ __forceinline__ float rstd_of(float squares, const norm_forward_even &even)
{
    return isfinite(squares) ? rsqrtf(fmaf(squares, even.inverse_cols, even.eps)) : CUDART_NAN_F;
}

/* A value's n is (v - mean) rstd; where the mean is not much larger than the deviations, rounding
 * mean rstd once does not matter to a type of 16 bits. */
struct row_statistics {
    float mean, rstd;
    bool delicate;
};

/* From a row's sums of squares and, if CENTERED, of x, about the pivot. */
template<bool CENTERED, int VALUES, class Team, class Sums>
__device__ __forceinline__ row_statistics statistics_from(Team &team, const float (&both)[VALUES],
                                                          float pivot,
                                                          const norm_forward_even &even,
                                                          Sums &&sums)
{
    float mean = 0, squares = both[0];
    bool delicate = false;
    if constexpr (CENTERED) {
        const bool far = move_to_mean(pivot, both[1], even.inverse_cols, mean, squares);
        delicate = correct_delicate(team, even.inverse_cols, far, mean, squares, sums);
    }
    return {mean, rstd_of(squares, even), delicate};
}

/* A vector's gamma and beta; each is code of its own, without branches.  Zero-centred: gamma + 1.
 */
struct no_scale {
    static constexpr bool EXACT = false, SHIFTED = false;
    template<int N>
    static __device__ __forceinline__ void load(const tutti__norm_args &, const norm_forward_even &,
                                                int, int, float (&gamma)[N], float (&beta)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++) gamma[i] = 1, beta[i] = 0;
    }
    template<class T, int QUARTER, int N>
    static __device__ __forceinline__ void load_ahead(const tutti__norm_args &args,
                                                      const norm_forward_even &even, int col,
                                                      unsigned, float (&gamma)[N], float (&beta)[N])
    {
        load(args, even, col, N, gamma, beta);
    }
    static __device__ __forceinline__ void load_one(const tutti__norm_args &args, int col,
                                                    float (&gamma)[1], float (&beta)[1])
    {
        load(args, {}, col, 1, gamma, beta);
    }
};
/* TAIL: the row's last vector may go beyond it. */
template<class P, bool BETA, bool ZERO_CENTERED, bool TAIL>
struct scale_of {
    static constexpr bool EXACT = false, SHIFTED = true;
    template<int N>
    static __device__ __forceinline__ void load(const tutti__norm_args &args,
                                                const norm_forward_even &, int col, int left,
                                                float (&gamma)[N], float (&beta)[N])
    {
        const int at = left > 0 ? col : 0;
        load_wide(gamma, (const P *)args.gamma + at, left);
#pragma unroll
        for (int i = 0; i < N; i++) beta[i] = 0;
        if (BETA) load_wide(beta, (const P *)args.beta + at, left);
        if constexpr (ZERO_CENTERED)
#pragma unroll
            for (int i = 0; i < N; i++) gamma[i] += 1;
    }
    /* From `ahead` bytes of T, 0 to 15, behind the vector of column `col` on; there is another
     * vector.  QUARTER: ahead / 4, or below 0. */
    template<class T, int QUARTER, int N>
    static __device__ __forceinline__ void
    load_ahead(const tutti__norm_args &args, const norm_forward_even &, int col, unsigned ahead,
               float (&gamma)[N], float (&beta)[N])
    {
        shift_wide<T, QUARTER>(gamma, (const P *)args.gamma + col, ahead);
#pragma unroll
        for (int i = 0; i < N; i++) beta[i] = 0;
        if (BETA) shift_wide<T, QUARTER>(beta, (const P *)args.beta + col, ahead);
        if constexpr (ZERO_CENTERED)
#pragma unroll
            for (int i = 0; i < N; i++) gamma[i] += 1;
    }
    /* Of a single column; below 0: any values. */
    static __device__ __forceinline__ void load_one(const tutti__norm_args &args, int col,
                                                    float (&gamma)[1], float (&beta)[1])
    {
        gamma[0] =
            widen<float>(((const P *)args.gamma)[max(col, 0)]) + (ZERO_CENTERED ? 1.0f : 0.0f);
        beta[0] = BETA ? widen<float>(((const P *)args.beta)[max(col, 0)]) : 0;
    }
    /* N elements of a type, 16-byte aligned if as many bytes.  By an intrinsic: the compiler splits
     * a plain load that is only unpacked into its elements. */
    template<int N>
    static __device__ __forceinline__ void load_wide(float (&values)[N], const P *at, int left)
    {
        if (TAIL && left < N)
            load_elements(values, at, left, false);
        else if constexpr (N == vector16<P>::N)
            vector16<P>::unpack(__ldg((const uint4 *)at), values);
        else
            load_elements(values, at, N, true);
    }
    template<class T, int QUARTER, int N>
    static __device__ __forceinline__ void shift_wide(float (&values)[N], const P *at,
                                                      unsigned ahead)
    {
        const uint4 *words = (const uint4 *)at;
        if constexpr (sizeof(P) == sizeof(T)) {
            const uint4 a = __ldg(words), b = __ldg(words + 1);
            if constexpr (QUARTER < 0)
                vector16<P>::unpack(bytes_from(a, b, ahead), values);
            else
                vector16<P>::unpack(bytes_of<P, QUARTER>(a, b, ahead), values);
        } else { /* floats, twice the bytes */
            words += ahead / 8;
            const uint4 a = __ldg(words), b = __ldg(words + 1), c = __ldg(words + 2);
            constexpr int PAIR = QUARTER < 0 ? 0 : QUARTER % 2 * 8;
            const unsigned rest = QUARTER < 0 ? ahead % 8 * 2 : PAIR + ahead % 4 * 2;
            const uint4 parts[2] = {bytes_from(a, b, rest), bytes_from(b, c, rest)};
            memcpy(values, parts, sizeof values);
        }
    }
};
/* Of any type, not aligned, or absent.  EXACT_ROW: of a delicate row. */
template<bool EXACT_ROW>
struct any_scale {
    static constexpr bool EXACT = EXACT_ROW, SHIFTED = false;
    template<int N>
    static __device__ __forceinline__ void load(const tutti__norm_args &args,
                                                const norm_forward_even &even, int col, int left,
                                                float (&gamma)[N], float (&beta)[N])
    {
        no_scale::load(args, even, col, left, gamma, beta);
        if (!args.gamma || left <= 0) return;
        load_param(gamma, args.gamma, args.param_dtype, col, left, even.gamma);
        if (args.zero_centered) {
#pragma unroll
            for (int i = 0; i < N; i++) gamma[i] += 1;
        }
        if (args.beta) load_param(beta, args.beta, args.param_dtype, col, left, even.beta);
    }
    template<class T, int QUARTER, int N>
    static __device__ __forceinline__ void
    load_ahead(const tutti__norm_args &args, norm_forward_even even, int col, unsigned ahead,
               float (&gamma)[N], float (&beta)[N])
    {
        even.gamma = even.beta = false;
        load(args, even, col + (int)(ahead / sizeof(T)), N, gamma, beta);
    }
    static __device__ __forceinline__ void load_one(const tutti__norm_args &args, int col,
                                                    float (&gamma)[1], float (&beta)[1])
    {
        load(args, {}, col, col >= 0, gamma, beta);
    }
};

/* Calls f with the one that fits.  WHOLE: all vectors are whole, and gamma and beta, of x's type or
 * float, are aligned. */
template<class T, bool CENTERED, bool WHOLE, class F>
__device__ __forceinline__ void with_scale(const tutti__norm_args &args,
                                           const norm_forward_even &even,
                                           const row_statistics &found, F &&f)
{
    constexpr bool TAIL = !WHOLE, OTHERWISE = CENTERED && sizeof(T) < 4;
    auto of_type = [&](auto type) {
        using P = typename decltype(type)::type;
        if constexpr (CENTERED)
            if (args.beta)
                return args.zero_centered ? f(scale_of<P, true, true, TAIL>())
                                          : f(scale_of<P, true, false, TAIL>());
        return args.zero_centered ? f(scale_of<P, false, true, TAIL>())
                                  : f(scale_of<P, false, false, TAIL>());
    };
    if (OTHERWISE && found.delicate)
        f(any_scale<OTHERWISE>());
    else if (!args.gamma)
        f(no_scale());
    else if (TAIL && !even.params)
        f(any_scale<false>());
    else if (sizeof(T) == 4 || args.param_dtype == TUTTI_F32)
        of_type(tutti__type<float>{});
    else
        of_type(tutti__type<T>{});
}

template<class T, bool CENTERED, bool EXACT>
__device__ __forceinline__ float scaled(float value, const row_statistics &row, float gamma,
                                        float beta)
{
    if constexpr (!CENTERED)
        value *= row.rstd;
    else if constexpr (sizeof(T) == 4 || EXACT)
        value = (value - row.mean) * row.rstd;
    else
        value = fmaf(value, row.rstd, -row.mean * row.rstd);
    return fmaf(value, gamma, beta);
}
template<class T, bool CENTERED, bool EXACT>
__device__ __forceinline__ uint4 scaled(const uint4 &raw, const row_statistics &row,
                                        const float (&gamma)[vector16<T>::N],
                                        const float (&beta)[vector16<T>::N])
{
    float v[vector16<T>::N];
    vector16<T>::unpack(raw, v);
#pragma unroll
    for (int i = 0; i < vector16<T>::N; i++)
        v[i] = scaled<T, CENTERED, EXACT>(v[i], row, gamma[i], beta[i]);
    return vector16<T>::pack(v);
}

template<class T>
__device__ __forceinline__ uint4 sum_of_both(const uint4 &x, const uint4 &residual)
{
    float a[vector16<T>::N], b[vector16<T>::N];
    vector16<T>::unpack(x, a);
    vector16<T>::unpack(residual, b);
#pragma unroll
    for (int i = 0; i < vector16<T>::N; i++) a[i] += b[i];
    return vector16<T>::pack(a);
}

/* saved, of a row. */
template<bool CENTERED>
__device__ __forceinline__ void save(const tutti__norm_args &args, int64_t row,
                                     const row_statistics &found)
{
    if (!args.rstd) return;
    ((float *)args.rstd)[row] = found.rstd;
    if (CENTERED) ((float *)args.mean)[row] = found.mean;
}

/* The same of all rows of a block, by all its threads; leads: has those of row `which`.  A store of
 * a row or two takes the memory as long as one of a whole line: 2 to 4 % where rows are short. */
template<bool CENTERED, int THREADS>
__device__ __forceinline__ void save_together(const tutti__norm_args &args,
                                              const row_statistics &found, bool leads, int which,
                                              int rows)
{
    __shared__ float kept[CENTERED ? 2 : 1][THREADS];
    if (!args.rstd) return;
    if (leads) {
        kept[0][which] = found.rstd;
        if constexpr (CENTERED) kept[1][which] = found.mean;
    }
    __syncthreads();
    const int mine = threadIdx.x;
    const int64_t row = (int64_t)blockIdx.x * rows + mine;
    if (mine >= rows || row >= args.rows) return;
    ((float *)args.rstd)[row] = kept[0][mine];
    if constexpr (CENTERED) ((float *)args.mean)[row] = kept[1][mine];
}

#endif
