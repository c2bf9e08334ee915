/* What passes between GPUs of one host: copies, and words in memory that all of them reach, by
 * which a rank's stream tells another's that it has come so far.
 *
 * Copies have two ways.  A batch for the copy engines, one call of the host's for all destinations
 * (no faster on the device than one copy after another).  And a kernel, where multiprocessors are
 * idle and pieces small: it has all of them under way at once.
 * The same for words: a stream's own operations on them need no multiprocessor, but take 1 to 3 us
 * each; a kernel has a thread for each word.  While it waits for a late rank it runs, so a driver
 * that limits the time of kernels, as where a GPU has a display, may end it. */
#include <cudaTypedefs.h>

#include "kernels/cuda/device.cuh"

/* Copies */

static tutti_status copy_one_by_one(int device, tutti__stream stream, const tutti__copy *copies,
                                    int count)
{
    for (int i = 0; i < count; i++)
        TUTTI_TRY(tutti__cuda_copy(device, stream, copies[i].dst, copies[i].src, copies[i].bytes));
    return TUTTI_OK;
}

/* A capture has no batches, nor has CUDA's default stream. */
tutti_status tutti__cuda_copy_all(int device, tutti__stream stream, const tutti__copy *copies,
                                  int count)
{
#if CUDART_VERSION >= 13000
    bool capturing;
    TUTTI_ASSERT(count <= TUTTI__COPIES_MAX);
    TUTTI_TRY(tutti__cuda_stream_capturing(device, stream, &capturing));
    if (count > 1 && !capturing && stream && (cudaStream_t)stream != cudaStreamLegacy) {
        void *to[TUTTI__COPIES_MAX];
        const void *from[TUTTI__COPIES_MAX];
        size_t bytes[TUTTI__COPIES_MAX], first = 0;
        cudaMemcpyAttributes attributes = {};
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
        for (int i = 0; i < count; i++) {
            to[i] = copies[i].dst;
            from[i] = copies[i].src;
            bytes[i] = copies[i].bytes;
        }
        TUTTI_TRY(tutti__cuda_use(device, "copy"));
        return tutti__cuda_status(cudaMemcpyBatchAsync(to, from, bytes, (size_t)count, &attributes,
                                                       &first, 1, (cudaStream_t)stream),
                                  "copy");
    }
#endif
    return copy_one_by_one(device, stream, copies, count);
}

enum { PUSH_THREADS = 256, PUSH_EACH = 4 /* vectors of a thread at a time */ };

struct push_list {
    tutti__copy copies[TUTTI__COPIES_MAX];
};

/* A row of blocks for each copy. */
static __global__ void __launch_bounds__(PUSH_THREADS)
    push_kernel(const __grid_constant__ push_list list)
{
    const tutti__copy &copy = list.copies[blockIdx.y];
    const uint4 *from = (const uint4 *)copy.src;
    uint4 *to = (uint4 *)copy.dst;
    const size_t count = copy.bytes / sizeof *from;
    const size_t step = (size_t)gridDim.x * PUSH_THREADS * PUSH_EACH;
    size_t i = (size_t)blockIdx.x * PUSH_THREADS * PUSH_EACH + threadIdx.x;
    for (; i < count; i += step) {
        uint4 vector[PUSH_EACH];
#pragma unroll
        for (int k = 0; k < PUSH_EACH; k++)
            if (i + k * PUSH_THREADS < count) vector[k] = from[i + k * PUSH_THREADS];
#pragma unroll
        for (int k = 0; k < PUSH_EACH; k++)
            if (i + k * PUSH_THREADS < count) to[i + k * PUSH_THREADS] = vector[k];
    }
}

tutti_status tutti__cuda_push(int device, tutti__stream stream, const tutti__copy *copies,
                              int count)
{
    constexpr size_t each = PUSH_THREADS * PUSH_EACH * sizeof(uint4), most = 256;
    push_list list = {};
    size_t bytes = 0;
    TUTTI_ASSERT(count <= TUTTI__COPIES_MAX);
    TUTTI_TRY(tutti__cuda_use(device, "push"));
    for (int i = 0; i < count; i++) {
        list.copies[i] = copies[i];
        if (copies[i].bytes > bytes) bytes = copies[i].bytes;
        TUTTI_ASSERT(((uintptr_t)copies[i].dst | (uintptr_t)copies[i].src | copies[i].bytes) %
                         sizeof(uint4) ==
                     0);
    }
    if (bytes == 0) return TUTTI_OK;
    const size_t blocks = (bytes + each - 1) / each;
    push_kernel<<<dim3((unsigned)(blocks < most ? blocks : most), (unsigned)count), PUSH_THREADS, 0,
                  (cudaStream_t)stream>>>(list);
    TUTTI_CUDA_LAUNCHED("push");
    return TUTTI_OK;
}

/* Words */

/* NULL if the driver has none. */
static PFN_cuStreamWriteValue32_v11070 find_write()
{
    static const char name[] = "cuStreamWriteValue32";
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    const cudaError_t code =
        cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    const bool well = code == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return well ? (PFN_cuStreamWriteValue32_v11070)found : NULL;
}

tutti_status tutti__cuda_word_clear(int device, tutti__stream stream, uint32_t *word)
{
    TUTTI_TRY(tutti__cuda_use(device, "word_clear"));
    static const PFN_cuStreamWriteValue32_v11070 write = find_write();
    if (!write) return tutti__fail(TUTTI_ERR_UNSUPPORTED, "word_clear: not in this driver");
    const CUresult code = write((CUstream)stream, (CUdeviceptr)word, 0, 0);
    if (code == CUDA_SUCCESS) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_DEVICE, "word_clear: error %d", (int)code);
}

struct word_list {
    uint32_t *at[TUTTI__WORDS_MAX];
};

static __global__ void __launch_bounds__(TUTTI__WORDS_MAX)
    words_set_kernel(const __grid_constant__ word_list words)
{
    __threadfence_system();
    *(volatile uint32_t *)words.at[threadIdx.x] = 1;
}

static __global__ void __launch_bounds__(TUTTI__WORDS_MAX)
    words_await_kernel(const __grid_constant__ word_list words)
{
    volatile uint32_t *word = words.at[threadIdx.x];
    while (*word == 0) __nanosleep(50);
    *word = 0;
    __threadfence_system();
}

static tutti_status words(int device, tutti__stream stream, uint32_t *const *at, int count,
                          void (*kernel)(word_list), const char *what)
{
    word_list list = {};
    TUTTI_ASSERT(count > 0 && count <= TUTTI__WORDS_MAX);
    TUTTI_TRY(tutti__cuda_use(device, what));
    memcpy(list.at, at, (size_t)count * sizeof *at);
    kernel<<<1, (unsigned)count, 0, (cudaStream_t)stream>>>(list);
    TUTTI_CUDA_LAUNCHED(what);
    return TUTTI_OK;
}

tutti_status tutti__cuda_words_set(int device, tutti__stream stream, uint32_t *const *at, int count)
{
    return words(device, stream, at, count, words_set_kernel, "words_set");
}

tutti_status tutti__cuda_words_await(int device, tutti__stream stream, uint32_t *const *at,
                                     int count)
{
    return words(device, stream, at, count, words_await_kernel, "words_await");
}
