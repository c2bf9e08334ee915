/* GLU on the GPU: one pass over the elements, without scratch.
 *
 * Forward reads a and b and writes y, backward reads dy, a and b and writes da and db: 3 and 5 rows
 * cols elements.  A row is cut into packs of 16 bytes.  Neighbouring threads have neighbouring
 * packs, whatever row they are in: so short rows and halves of a wider tensor keep every lane busy,
 * and tensors without gaps are one long row.  A thread finds its first pack by a division and the
 * next ones by addition.  It loads all that a pack needs before it stores, so da and db may be what
 * they are made of; 32 to 48 bytes in flight a thread are enough where 1024 threads are resident.
 * Where the rows of a tensor do not begin on 16-byte boundaries, a pack is one element and the
 * kernels take any activation, which they ask for at run time. */
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/rows.cuh"
#include "ops/glu.h"

constexpr int block = 256;
/* Blocks that a multiprocessor should hold at once; without it the compiler spills to hold more. */
template<class T>
constexpr int resident = sizeof(T) == 8 ? 2 : 4;

/* How threads walk over the packs of all rows. */
struct walk {
    int64_t rows, packs;           /* packs: of a row */
    int64_t step_rows, step_packs; /* from a thread's pack to its next one */
};

struct spot {
    int64_t row, pack;
};

__device__ __forceinline__ spot first_spot(const walk &w)
{
    const uint64_t index = uint64_t(blockIdx.x) * block + threadIdx.x, packs = uint64_t(w.packs);
    /* a division of 64 bits costs several times as much */
    const uint64_t row = (index | packs) >> 32 ? index / packs : uint32_t(index) / uint32_t(packs);
    return {int64_t(row), int64_t(index - row * packs)};
}

__device__ __forceinline__ void advance(spot &at, const walk &w)
{
    at.row += w.step_rows;
    at.pack += w.step_packs;
    if (at.pack >= w.packs) {
        at.pack -= w.packs;
        at.row++;
    }
}

/* The elements of a pack that are beyond the row's end read as 0. */
template<class T, int width>
__device__ __forceinline__ void take(real_of<T> (&values)[width], const tutti__matrix &from,
                                     const spot &at, int64_t cols)
{
    const int64_t first = at.pack * width, left = cols - first;
    load_elements(values, (const T *)from.data + at.row * from.stride + first,
                  left < width ? int(left) : width, true);
}

template<class T, int width>
__device__ __forceinline__ void put(const tutti__matrix &to, const spot &at, int64_t cols,
                                    const real_of<T> (&values)[width])
{
    const int64_t first = at.pack * width, left = cols - first;
    T *data = (T *)to.data + at.row * to.stride + first;
    if constexpr (width == width_of<T>)
        if (left >= width) {
            store_pack(data, values);
            return;
        }
#pragma unroll
    for (int k = 0; k < width; k++)
        if (k < left) data[k] = narrow<T>::of(values[k]);
}

/* An activation that is known at compile time, or only at run time. */
template<class T, tutti_activation act>
struct known {
    typedef real_of<T> real;
    static constexpr bool reads_a = act != TUTTI_ACT_NONE; /* for da */
    activation_constants<real> constants;
    __device__ __forceinline__ real value(real z) const { return activate<T, act>(z, constants); }
    __device__ __forceinline__ real slope(real z) const { return slope_at<T, act>(z, constants); }
};
template<class T>
struct unknown {
    typedef real_of<T> real;
    static constexpr bool reads_a = true;
    activation_constants<real> constants;
    tutti_activation act;
    __device__ real value(real z) const
    {
#define VALUE(name, text, from) \
    if (act == TUTTI_ACT_##name) return activate<T, TUTTI_ACT_##name>(z, constants);
        TUTTI_ACTIVATION_LIST(VALUE)
#undef VALUE
        return z;
    }
    __device__ real slope(real z) const
    {
#define SLOPE(name, text, from) \
    if (act == TUTTI_ACT_##name) return slope_at<T, TUTTI_ACT_##name>(z, constants);
        TUTTI_ACTIVATION_LIST(SLOPE)
#undef SLOPE
        return 1;
    }
};

template<class T, int width, class G>
__global__ void __launch_bounds__(block, resident<T>)
    glu_forward_kernel(tutti__glu_args args, walk w, G gate)
{
    for (spot at = first_spot(w); at.row < w.rows; advance(at, w)) {
        real_of<T> a[width], b[width];
        take<T>(a, args.a, at, args.cols);
        take<T>(b, args.b, at, args.cols);
#pragma unroll
        for (int k = 0; k < width; k++) a[k] = gate.value(a[k]) * b[k];
        put<T>(args.y, at, args.cols, a);
    }
}

/* da and db may each be absent. */
template<class T, int width, class G>
__global__ void __launch_bounds__(block, resident<T>)
    glu_backward_kernel(tutti__glu_args args, walk w, G gate)
{
    const bool with_a = args.da.data, with_b = args.db.data;
    for (spot at = first_spot(w); at.row < w.rows; advance(at, w)) {
        real_of<T> dy[width], a[width] = {}, b[width] = {};
        take<T>(dy, args.dy, at, args.cols);
        if (with_b || G::reads_a) take<T>(a, args.a, at, args.cols);
        if (with_a) {
            take<T>(b, args.b, at, args.cols);
#pragma unroll
            for (int k = 0; k < width; k++) b[k] *= dy[k] * gate.slope(a[k]);
            put<T>(args.da, at, args.cols, b);
        }
        if (with_b) {
#pragma unroll
            for (int k = 0; k < width; k++) dy[k] *= gate.value(a[k]);
            put<T>(args.db, at, args.cols, dy);
        }
    }
}

/* The walk for packs of this width, and its blocks: four packs a thread where that leaves enough
 * blocks for the device. */
static walk walk_for(const tutti__glu_args &args, int width, int device, unsigned *blocks)
{
    walk w = {args.rows, (args.cols + width - 1) / width, 0, 0};
    const int64_t all = (w.rows * w.packs + block - 1) / block;
    const int64_t enough = 8 * (int64_t)tutti__cuda_sm_count(device), most = INT64_C(1) << 30;
    int64_t count = (all + 3) / 4;
    if (count < enough) count = all < enough ? all : enough;
    if (count > most) count = most;
    w.step_rows = count * block / w.packs;
    w.step_packs = count * block % w.packs;
    *blocks = (unsigned)count;
    return w;
}

template<bool backward, class T, int width, class G>
static auto kernel_of(const G &)
{
    return backward ? glu_backward_kernel<T, width, G> : glu_forward_kernel<T, width, G>;
}

/* Loads the kernels, which is not allowed during a capture. */
static tutti_status glu_plan(tutti_context *ctx, const void *untyped, bool backward,
                             tutti__plan *plan)
{
    (void)plan;
    const tutti__glu_args &args = *(const tutti__glu_args *)untyped;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "glu_plan"));
    return with_activation(args.dtype, args.activation.kind, [&](auto type, auto act) {
        using T = typename decltype(type)::type;
        const activation_constants<real_of<T>> constants(args.activation);
        const known<T, decltype(act)::value> gate = {constants};
        const unknown<T> any = {constants, args.activation.kind};
        constexpr int width = width_of<T>;
        cudaFuncAttributes attributes;
        TUTTI_CUDA(cudaFuncGetAttributes(&attributes, backward ? kernel_of<true, T, width>(gate)
                                                               : kernel_of<false, T, width>(gate)),
                   "glu_plan");
        TUTTI_CUDA(cudaFuncGetAttributes(&attributes, backward ? kernel_of<true, T, 1>(any)
                                                               : kernel_of<false, T, 1>(any)),
                   "glu_plan");
        return TUTTI_OK;
    });
}

template<bool backward>
static tutti_status glu_run(const tutti__job *job, const void *untyped)
{
    tutti__glu_args args = *(const tutti__glu_args *)untyped;
    if (args.rows == 0) return TUTTI_OK;
    if (backward && !args.da.data && !args.db.data) return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_use(job->ctx->device, "glu"));
    const cudaStream_t stream = tutti__cuda_stream(job->ctx);
    const tutti__matrix *present[] = {&args.a,  backward ? NULL : &args.y,
                                      &args.b,  backward ? &args.dy : NULL,
                                      &args.da, &args.db};
    bool dense = true, wide = true;
    for (const tutti__matrix *m : present)
        if (m && m->data) dense = dense && m->stride == args.cols;
    if (dense) {
        args.cols *= args.rows;
        args.rows = 1;
    }
    for (const tutti__matrix *m : present)
        if (m && m->data) wide = wide && row_aligned(*m, args.rows, 16);
    auto launch = [&](auto type, auto width, auto gate) {
        using T = typename decltype(type)::type;
        constexpr int n = decltype(width)::value;
        unsigned blocks;
        const walk w = walk_for(args, n, job->ctx->device, &blocks);
        auto kernel = kernel_of<backward, T, n>(gate);
        kernel<<<blocks, block, 0, stream>>>(args, w, gate);
        return tutti__cuda_status(cudaGetLastError(), "glu");
    };
    if (!wide)
        return tutti__cuda_dispatch(args.dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            const activation_constants<real_of<T>> constants(args.activation);
            return launch(type, std::integral_constant<int, 1>{},
                          unknown<T>{constants, args.activation.kind});
        });
    return with_activation(args.dtype, args.activation.kind, [&](auto type, auto act) {
        using T = typename decltype(type)::type;
        const activation_constants<real_of<T>> constants(args.activation);
        return launch(type, std::integral_constant<int, width_of<T>>{},
                      known<T, decltype(act)::value>{constants});
    });
}

extern "C" const tutti__op tutti__cuda_glu = {glu_plan, glu_run<false>, glu_run<true>};
