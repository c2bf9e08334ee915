/* LayerNorm and RMSNorm, backward: what both kinds of kernels use. */
#ifndef TUTTI_KERNELS_CUDA_NORM_BACKWARD_CUH
#define TUTTI_KERNELS_CUDA_NORM_BACKWARD_CUH

#include "kernels/cuda/norm.cuh"

/* How a call is run, which depends on shape, types and device, never on pointers or on which
 * gradients are wanted. */
struct backward_plan {
    enum { WARP, BLOCK, CLUSTER, GRID, KEPT, SLICED } kind;
    int elements;                /* a thread has of a row */
    int lanes, threads, cluster; /* a block's threads for a row, all; a row's blocks */
    int blocks, piece;           /* grid: a row's blocks, and a block's vectors of it */
    bool crowded;                /* block: more threads than usual, of fewer registers each */
    int tail;                    /* block: last columns that are no whole vector, a lane's each */
    int resident;                /* thread blocks a multiprocessor has at a time */
    int slices;                  /* sliced: blocks side by side */
    int64_t partials;            /* rows of partial sums: blocks, or clusters, or chunks of rows */
    bool wide;                   /* f64 */
    bool few;      /* few rows: columns are summed without partial rows (norm_backward_few.cu) */
    int64_t pitch; /* of a partial row */
    size_t sums_bytes, bytes;
};

/* Partial row p of dgamma is row 2p, that of dbeta row 2p + 1. */
template<class A>
struct backward_scratch {
    A *partial, *sums;
    int64_t pitch;
    __host__ __device__ __forceinline__ A *row(int64_t partial_row, int which) const
    {
        return partial + (partial_row * 2 + which) * pitch;
    }
};

struct norm_backward_even {
    bool x, dy, dsum, dx, gamma;
    float inverse_cols;

    /* of all rows: whole vectors of `width` elements */
    bool is_whole(const tutti__norm_args *args, int width) const
    {
        return x && dy && dsum && dx && args->cols % width == 0;
    }
};

static inline norm_backward_even find_even(const tutti__norm_args *args, int width)
{
    int64_t rows = args->rows;
    return {row_even(args->x, rows, width),
            row_even(args->dy, rows, width),
            row_even(args->dsum, rows, width),
            row_even(args->dx, rows, width),
            row_param_even(args->gamma, args->param_dtype, width),
            (float)(1.0 / (double)args->cols)};
}

/* The most threads that a row has in a block. */
constexpr int MORE_THREADS = 512;
enum { WARP_THREADS = 256 };
/* A block's threads at most; narrow: a 16-bit type; whole: vectors; crowded: of fewer registers
 * each. */
__host__ __device__ constexpr int threads_of(bool warp, int elements, bool narrow, bool whole,
                                             bool crowded)
{
    return warp                                   ? WARP_THREADS
           : elements == 8 && (narrow || crowded) ? 768
           : narrow && (!whole || crowded) ? 640 /* two rows of up to 5120 columns at a time */
                                           : MORE_THREADS;
}
enum { ODD_GROUPS = 10 }; /* rows that a block has at a time, at most, if they begin anywhere */
enum { NORM_CLUSTER_MAX = 16 };

/* Stages of the ring and bytes of shared memory. */
struct backward_ring {
    int depth, bytes;
};
backward_ring backward_ring_for(const tutti_context *ctx, const tutti__norm_args *args,
                                const backward_plan &plan, bool skewed);

/* norm_backward_skewed.cu: whether it takes a block's rows, which begin at any byte; dx, and the
 * partial rows, with the bits of norm_backward.cu. */
bool tutti__cuda_norm_has_skewed(const tutti_context *ctx, const tutti__norm_args *args,
                                 const backward_plan &plan);
tutti_status tutti__cuda_norm_backward_skewed(tutti_context *ctx, const tutti__norm_args *args,
                                              const backward_plan &plan,
                                              const backward_scratch<float> &scratch);

/* norm_backward_grid.cu: dx, and the partial rows.  The plan becomes one, with as many partial rows
 * as the device has room for at a time, if a row has room on it.  scratch.sums has so many bytes,
 * which hold no number from first_tag to first_tag + args->rows. */
void tutti__cuda_norm_grid_plan(const tutti_context *ctx, const tutti__norm_args *args,
                                backward_plan *plan);
size_t tutti__cuda_norm_grid_bytes(const backward_plan &plan);
tutti_status tutti__cuda_norm_backward_grid(tutti_context *ctx, const tutti__norm_args *args,
                                            const backward_plan &plan,
                                            const backward_scratch<float> &scratch,
                                            uint32_t first_tag);

/* norm_backward_cluster.cu: dx, and the partial rows. */
tutti_status tutti__cuda_norm_backward_cluster(tutti_context *ctx, const tutti__norm_args *args,
                                               const backward_plan &plan,
                                               const backward_scratch<float> &scratch);

/* Blocks of the largest clusters that the device can hold; 1: none. */
tutti_status tutti__cuda_norm_cluster_max(int device, int *most);

/* norm_backward_kept.cu, in f32 or f64 (A): dx, and the partial rows, of all leaves.  VECS: of a
 * thread, of a row; SMALL: a block's threads, if a row needs no more. */
enum { KEPT_VECS = 4, KEPT_BACKWARD_THREADS = 512, KEPT_SMALL = 128 };
/* Bytes of a block's shared memory: for the sums of a row's warps, and in all.  element: of the
 * arithmetic; column: of a row's tensors. */
__host__ __device__ constexpr int kept_places(int element, int values, int cluster, int threads)
{
    return (16 + 2 * values * (cluster + threads / 32) * element + 127) / 128 * 128;
}
constexpr int kept_bytes(const backward_plan &plan, int element, int values, int column, int depth)
{
    const int columns = plan.threads * KEPT_VECS * (16 / element);
    return columns * (element + depth * column) +
           kept_places(element, values, plan.cluster, plan.threads);
}
template<class A>
tutti_status tutti__cuda_norm_backward_kept(tutti_context *ctx, const tutti__norm_args *args,
                                            const backward_plan &plan,
                                            const backward_scratch<A> &scratch);

/* norm_backward_sliced.cu: the same, of one leaf. */
template<class A>
tutti_status tutti__cuda_norm_backward_sliced(tutti_context *ctx, const tutti__norm_args *args,
                                              const backward_plan &plan,
                                              const backward_scratch<A> &scratch);

/* norm_backward_few.cu: dx and the parameters' gradients. */
tutti_status tutti__cuda_norm_backward_few(tutti_context *ctx, const tutti__norm_args *args,
                                           const backward_plan &plan);

enum { BACKWARD_ANY_WIDTH = 8, BACKWARD_ANY_THREADS = 256 };

#endif
