/* A kernel that holds every multiprocessor, by which an exchange proves that its transfers need
 * none: blocks of all threads that there is room for, so that no other kernel's block fits beside
 * them, spin until the host tells them to stop, or their time is over. */
#include "kernels/cuda/cuda.h"

enum { HOLD_THREADS = 1024 };

static __device__ unsigned long long now_ns()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

/* running, stop: of the host */
static __global__ void __launch_bounds__(HOLD_THREADS, 2)
    hold_kernel(volatile uint32_t *running, const volatile uint32_t *stop, unsigned long long ns)
{
    if (threadIdx.x == 0) {
        running[blockIdx.x] = 1;
        __threadfence_system();
        const unsigned long long begin = now_ns();
        while (!*stop && now_ns() - begin < ns) __nanosleep(500);
        running[blockIdx.x] = 0; /* before its multiprocessor is free */
        __threadfence_system();
    }
    __syncthreads();
}

tutti_status tutti__cuda_hold(int device, tutti__stream stream, uint32_t *running, int room,
                              const uint32_t *stop, double seconds, int *blocks)
{
    TUTTI_TRY(tutti__cuda_use(device, "hold"));
    int threads = 0;
    TUTTI_CUDA(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device),
               "hold");
    *blocks = tutti__cuda_sm_count(device) * (threads / HOLD_THREADS);
    if (*blocks > room) return tutti__fail(TUTTI_ERR_UNSUPPORTED, "hold: %d blocks", *blocks);
    hold_kernel<<<*blocks, HOLD_THREADS, 0, (cudaStream_t)stream>>>(
        running, stop, (unsigned long long)(seconds * 1e9));
    TUTTI_CUDA_LAUNCHED("hold");
    return TUTTI_OK;
}
