/* LayerNorm and RMSNorm, backward: how the blocks of a cluster add up a row's sums, and are
 * launched. */
#ifndef TUTTI_KERNELS_CUDA_NORM_BACKWARD_CLUSTER_CUH
#define TUTTI_KERNELS_CUDA_NORM_BACKWARD_CLUSTER_CUH

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/norm_backward_rows.cuh"

/* The sums of a cluster's warps, VALUES floats each, which every warp sends to every block.  Four
 * places are enough: a warp sends those of row r + 4 after it has received those of row r + 2,
 * which every other one sent after it had received those of row r. */
template<int VALUES>
struct cluster_sums {
    enum { PLACES = 4 };
    float warps[PLACES][NORM_CLUSTER_MAX * MORE_THREADS / 32][VALUES];
    uint64_t arrived[PLACES];
};

/* OTHERS: warps of a block that have no part of a row, its last ones. */
template<int VALUES, bool PIECES, int OTHERS = 0>
struct cluster_team {
    using sums = cluster_sums<VALUES>;
    sums &shared;
    int cluster, rank;

    __device__ __forceinline__ cluster_team(sums &space, int size)
        : shared(space), cluster(size), rank(cluster_join(shared.arrived, sums::PLACES))
    {
    }
    /* Before the first row: the other blocks are there. */
    __device__ __forceinline__ void begin() const { cluster_is_there(); }

    /* This thread's sums of the row of a turn. */
    __device__ __forceinline__ void send(int turn, float (&values)[VALUES]) const
    {
#ifdef TUTTI_ROW_CLUSTERS
        const int place = turn % sums::PLACES, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int warps = (int)blockDim.x / 32 - OTHERS;
        const float mine = sum_lanes(values, 32);
        const uint32_t arrived = shared_address(&shared.arrived[place]);
        if (threadIdx.x == 0) barrier_expect(arrived, cluster * warps * VALUES * 4);
        if (lane >= cluster * VALUES) return;
        const int to = lane / VALUES;
        const float *part = &shared.warps[place][rank * warps + warp][lane % VALUES];
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, "
                     "[%2];" ::"r"(address_in(shared_address(part), to)),
                     "f"(mine), "r"(address_in(arrived, to))
                     : "memory");
#endif
    }

    /* The sums of all threads of the cluster: the same bits in each. */
    __device__ __forceinline__ void receive(int turn, float (&values)[VALUES]) const
    {
        const int place = turn % sums::PLACES, lane = threadIdx.x % 32;
        cluster_await(shared_address(&shared.arrived[place]), turn / sums::PLACES % 2);
        const float *parts = shared.warps[place][0];
        const int count = cluster * VALUES * ((int)blockDim.x / 32 - OTHERS);
        float part = lane < count ? parts[lane] : 0;
        if constexpr (PIECES) {
#pragma unroll 1
            for (int first = lane + 32; first < count + lane; first += 4 * 32) {
                float more[4]; /* on their way together */
#pragma unroll
                for (int i = 0; i < 4; i++)
                    more[i] = first + 32 * i < count ? parts[first + 32 * i] : 0;
#pragma unroll
                for (int i = 0; i < 4; i++) part += more[i];
            }
        } else
            for (int i = lane + 32; i < count; i += 32) part += parts[i];
        share_sums(values, part, 32 / VALUES);
    }
};

/* Host side */

template<class... P, class... Q>
static inline tutti_status cluster_launch(const tutti_context *ctx, void (*kernel)(P...),
                                          const backward_plan &plan, int threads, int bytes,
                                          Q &&...args)
{
    /* always the same values: contexts of other threads launch it */
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    tutti__cuda_shared_limit(ctx->device) - RING_SPARE),
               "norm_backward");
    TUTTI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
               "norm_backward");
    return row_launch("norm_backward", kernel, (unsigned)(plan.partials * plan.cluster), threads,
                      plan.cluster, (size_t)bytes, tutti__cuda_stream(ctx),
                      std::forward<Q>(args)...);
}

#endif
