/* Reductions over a row that is parked in shared memory (parked.cuh), with one barrier a block and
 * one a cluster. */
#ifndef TUTTI_KERNELS_CUDA_PARKED_TEAM_CUH
#define TUTTI_KERNELS_CUDA_PARKED_TEAM_CUH

#include "kernels/cuda/cluster.cuh"

enum { PARKED_THREADS = 512, PARKED_WARPS = PARKED_THREADS / 32 }; /* of a block, at most */

/* The blocks of a cluster send each other VALUES floats. */
template<int VALUES>
struct parked_exchange {
    struct alignas(4 * VALUES) part {
        float values[VALUES];
    };
    part warps[PARKED_WARPS], blocks[ROW_CLUSTER_MAX];
    uint64_t arrived;
};

/* Reduces values over a row.  Op: identity(values), and lanes(values, count), which reduces them
 * over groups of `count` lanes. */
template<class Op, int VALUES, bool CLUSTER>
struct parked_team {
    using exchange = parked_exchange<VALUES>;
    exchange &shared;
    int cluster, rank;

    __device__ __forceinline__ parked_team(exchange &space, int cluster_size)
        : shared(space), cluster(cluster_size), rank(CLUSTER ? cluster_join(&shared.arrived, 1) : 0)
    {
    }

    /* Called once, by all threads. */
    __device__ __forceinline__ void reduce(const Op &op, float (&values)[VALUES])
    {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
        op.lanes(values, 32);
        if (!CLUSTER && warps == 1) {
            __syncwarp();
            return;
        }
        if (lane == 0) put(shared.warps[warp], values);
        __syncthreads();
        int width = warps > 8 ? 16 : warps > 4 ? 8 : warps > 2 ? 4 : warps;
        get(op, values, shared.warps, warps, width);
        if constexpr (CLUSTER) {
            /* bytes may arrive before */
            if (threadIdx.x == 0)
                barrier_expect(shared_address(&shared.arrived), cluster * VALUES * 4);
            cluster_is_there();
            if (warp == 0) send(values);
            cluster_await(shared_address(&shared.arrived), 0);
            get(op, values, shared.blocks, cluster, ROW_CLUSTER_MAX);
        }
    }

    /* Whether the thread is in the row's last warp. */
    __device__ __forceinline__ bool ends() const
    {
        return rank == (CLUSTER ? cluster : 1) - 1 && threadIdx.x / 32 == blockDim.x / 32 - 1;
    }

    /* Any number of times after reduce, by all threads: slower, for what is rare. */
    __device__ __forceinline__ void reduce_again(const Op &op, float (&values)[VALUES])
    {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
        op.lanes(values, 32);
        meet(); /* what was there has been read */
        if (lane == 0) put(shared.warps[warp], values);
        __syncthreads();
        get(op, values, shared.warps, warps, PARKED_WARPS);
        if constexpr (CLUSTER) {
#ifdef TUTTI_ROW_CLUSTERS
            if (warp == 0 && lane < cluster) {
#pragma unroll
                for (int n = 0; n < VALUES; n++)
                    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(
                                     there(&shared.blocks[rank].values[n], lane)),
                                 "f"(values[n])
                                 : "memory");
            }
#endif
            meet();
            get(op, values, shared.blocks, cluster, ROW_CLUSTER_MAX);
        }
    }

  private:
    static __device__ __forceinline__ void meet()
    {
        if constexpr (!CLUSTER) {
            __syncthreads();
            return;
        }
#ifdef TUTTI_ROW_CLUSTERS
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
    }
    static __device__ __forceinline__ void put(typename exchange::part &to,
                                               const float (&values)[VALUES])
    {
#pragma unroll
        for (int n = 0; n < VALUES; n++) to.values[n] = values[n];
    }
    static __device__ __forceinline__ void get(const Op &op, float (&values)[VALUES],
                                               const typename exchange::part *parts, int count,
                                               int width)
    {
        int i = threadIdx.x & (width - 1);
        op.identity(values);
        if (i < count) {
            typename exchange::part mine = parts[i];
#pragma unroll
            for (int n = 0; n < VALUES; n++) values[n] = mine.values[n];
        }
        op.lanes(values, width);
    }

    /* Called by one warp, whose lanes all have the block's values: one lane a block of the
     * cluster. */
    __device__ __forceinline__ void send(const float (&values)[VALUES])
    {
#ifdef TUTTI_ROW_CLUSTERS
        int lane = threadIdx.x % 32;
        if (lane >= cluster) return;
        uint32_t slot = there(&shared.blocks[rank], lane), arrived = there(&shared.arrived, lane);
        static_assert(VALUES == 1 || VALUES == 2 || VALUES == 4, "no such store");
        if constexpr (VALUES == 1)
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, "
                         "[%2];" ::"r"(slot),
                         "f"(values[0]), "r"(arrived)
                         : "memory");
        else if constexpr (VALUES == 2)
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], "
                         "{%1, %2}, [%3];" ::"r"(slot),
                         "f"(values[0]), "f"(values[1]), "r"(arrived)
                         : "memory");
        else
            asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], "
                         "{%1, %2, %3, %4}, [%5];" ::"r"(slot),
                         "f"(values[0]), "f"(values[1]), "f"(values[2 % VALUES]),
                         "f"(values[3 % VALUES]), "r"(arrived)
                         : "memory");
#endif
    }
    static __device__ __forceinline__ uint32_t there(const void *mine, int block)
    {
        return address_in(shared_address(mine), block);
    }
};

#endif
