/* GLU on the GPU: one pass over the elements, without scratch.
 *
 * Forward reads a and b and writes y, backward reads dy, a and b and writes da and db: 3 and 5 rows
 * cols elements.  A row is cut into packs of 16 bytes.  Neighbouring threads have neighbouring
 * packs, whatever row they are in: so short rows and halves of a wider tensor keep every lane busy,
 * and tensors without gaps are one long row.  A thread finds its first pack by a division and the
 * next ones by addition.  It reads all that a pack needs before it stores, so da and db may be what
 * they are made of.  Two more packs are on their way to shared memory meanwhile: 99 instead of 85 %
 * of a copy forward.
 * Where the rows of a tensor do not begin on 16-byte boundaries, a pack is one element and the
 * kernels take any activation, which they ask for at run time. */
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/row_ring.cuh"
#include "ops/glu.h"

constexpr int block = 256, depth = 3; /* depth: packs of a thread on their way */
/* Blocks that a multiprocessor should hold at once; without it the compiler spills to hold more. */
template<class T, bool backward>
constexpr int resident = sizeof(T) == 8 ? 2
                         : backward     ? 3
                                        : 4;

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

/* A thread's packs: whole ones come by way of a ring, those of one element are read when they are
 * used. */
template<class T, int width, int tensors>
struct packs_ahead {
    static constexpr bool whole = width == width_of<T>;
    using ring_of = word_ring<tensors, depth>;
    static constexpr int words = whole ? ring_of::words(block) : 1;
    const walk &w;
    int64_t cols;
    spot now, next; /* to be used, to be asked for */
    ring_of ring;

    __device__ __forceinline__ packs_ahead(const walk &way, int64_t count, uint4 *shared)
        : w(way), cols(count), now(first_spot(way)), next(now), ring(shared, block)
    {
    }
    /* Asks for the next pack of the tensors that are wanted, if there is one. */
    __device__ __forceinline__ void ask(const tutti__matrix *const (&m)[tensors],
                                        const bool (&wanted)[tensors])
    {
        if constexpr (!whole) return;
        if (next.row < w.rows) {
            const int64_t start = next.pack * width, left = cols - start;
            const int bytes = left < width ? (int)left * (int)sizeof(T) : 16;
#pragma unroll
            for (int t = 0; t < tensors; t++)
                if (wanted[t])
                    ring.fetch(t, (const T *)m[t]->data + next.row * m[t]->stride + start, bytes);
            advance(next, w);
        }
        ring.send();
    }
    __device__ __forceinline__ void wait() const
    {
        if constexpr (whole) ring.wait();
    }
    __device__ __forceinline__ void read(real_of<T> (&values)[width], int t,
                                         const tutti__matrix &m) const
    {
        if constexpr (whole)
            unpack<T>(ring.read(t), values);
        else
            values[0] = widen<real_of<T>>(((const T *)m.data)[now.row * m.stride + now.pack]);
    }
    __device__ __forceinline__ void release()
    {
        ring.release();
        advance(now, w);
    }
};

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
__global__ void __launch_bounds__(block, resident<T, false>)
    glu_forward_kernel(tutti__glu_args args, walk w, G gate)
{
    using ahead = packs_ahead<T, width, 2>;
    __shared__ uint4 shared[ahead::words];
    ahead packs(w, args.cols, shared);
    const tutti__matrix *const from[] = {&args.a, &args.b};
    const bool wanted[] = {true, true};
    for (int d = 1; d < depth; d++) packs.ask(from, wanted);
    while (packs.now.row < w.rows) {
        packs.ask(from, wanted);
        packs.wait();
        real_of<T> a[width], b[width];
        packs.read(a, 0, args.a);
        packs.read(b, 1, args.b);
#pragma unroll
        for (int k = 0; k < width; k++) a[k] = gate.value(a[k]) * b[k];
        put<T>(args.y, packs.now, args.cols, a);
        packs.release();
    }
}

/* da and db may each be absent. */
template<class T, int width, class G>
__global__ void __launch_bounds__(block, resident<T, true>)
    glu_backward_kernel(tutti__glu_args args, walk w, G gate)
{
    using ahead = packs_ahead<T, width, 3>;
    __shared__ uint4 shared[ahead::words];
    ahead packs(w, args.cols, shared);
    const bool with_a = args.da.data, with_b = args.db.data;
    const tutti__matrix *const from[] = {&args.dy, &args.a, &args.b};
    const bool wanted[] = {true, with_b || G::reads_a, with_a};
    for (int d = 1; d < depth; d++) packs.ask(from, wanted);
    while (packs.now.row < w.rows) {
        packs.ask(from, wanted);
        packs.wait();
        real_of<T> dy[width], a[width] = {}, b[width] = {};
        packs.read(dy, 0, args.dy);
        if (wanted[1]) packs.read(a, 1, args.a);
        if (wanted[2]) packs.read(b, 2, args.b);
#pragma unroll
        for (int k = 0; k < width; k++) {
            b[k] *= dy[k] * gate.slope(a[k]);
            a[k] = dy[k] * gate.value(a[k]);
        }
        if (with_a) put<T>(args.da, packs.now, args.cols, b);
        if (with_b) put<T>(args.db, packs.now, args.cols, a);
        packs.release();
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
