/* The run-time functions of the CUDA backend: devices, streams, events, memory; and the public
 * functions of tutti/cuda.h. */
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda.h"
#include "tutti/cuda.h"

/* Prevents allocations and queries from breaking the capture of another stream, as they would in
 * the runtime's global capture mode. */
struct relaxed_capture {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    relaxed_capture() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
    ~relaxed_capture() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
};

/* Devices */

enum { DEVICES_CACHED = 64 };

static int attribute(std::atomic<int> *cache, int device, cudaDeviceAttr which)
{
    bool cached = device >= 0 && device < DEVICES_CACHED;
    int value = cached ? cache[device].load(std::memory_order_relaxed) : 0;
    if (value > 0) return value;
    if (cudaDeviceGetAttribute(&value, which, device) != cudaSuccess) {
        (void)cudaGetLastError();
        return 1; /* the following launch reports the error */
    }
    if (cached) cache[device].store(value, std::memory_order_relaxed);
    return value;
}

int tutti__cuda_sm_count(int device)
{
    static std::atomic<int> cache[DEVICES_CACHED];
    return attribute(cache, device, cudaDevAttrMultiProcessorCount);
}

int tutti__cuda_shared_limit(int device)
{
    static std::atomic<int> cache[DEVICES_CACHED];
    return attribute(cache, device, cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

/* Its attributes show the architecture that the running code was built for. */
static __global__ void architecture_kernel() {}

bool tutti__cuda_has_clusters(int device)
{
    enum { UNKNOWN, NO, YES };
    static std::atomic<int> cache[DEVICES_CACHED], capability[DEVICES_CACHED];
    bool cached = device >= 0 && device < DEVICES_CACHED;
    int found = cached ? cache[device].load(std::memory_order_relaxed) : UNKNOWN;
    if (found != UNKNOWN) return found == YES;
    /* kernels built for an older architecture have no clusters, whatever the device */
    cudaFuncAttributes built = {};
    if (cudaSetDevice(device) != cudaSuccess ||
        cudaFuncGetAttributes(&built, architecture_kernel) != cudaSuccess) {
        (void)cudaGetLastError();
        return false; /* the following launch reports the error */
    }
    bool has = attribute(capability, device, cudaDevAttrComputeCapabilityMajor) >= 9 &&
               built.ptxVersion >= 90;
    if (cached) cache[device].store(has ? YES : NO, std::memory_order_relaxed);
    return has;
}

tutti_status tutti__cuda_device_count(int *count)
{
    *count = 0;
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
        (void)cudaGetLastError();
        *count = 0;
        return TUTTI_OK;
    }
    return tutti__cuda_status(error, "cudaGetDeviceCount");
}

void tutti__cuda_describe(char *text, size_t size)
{
    int built = CUDART_VERSION, driver = 0, count = 0;
    size_t lt = cublasLtGetVersion();
    (void)cudaDriverGetVersion(&driver);
    if (tutti__cuda_device_count(&count) != TUTTI_OK) count = 0;
    int used = snprintf(text, size, "cuda: toolkit %d.%d, ", built / 1000, built % 1000 / 10);
    if (lt > 0 && used >= 0 && (size_t)used < size)
        used += snprintf(text + used, size - used, "cuBLASLt %zu.%zu.%zu, ", lt / 10000,
                         lt / 100 % 100, lt % 100);
    else if (used >= 0 && (size_t)used < size)
        used += snprintf(text + used, size - used, "no cuBLASLt, ");
    if (driver > 0 && used >= 0 && (size_t)used < size)
        used += snprintf(text + used, size - used, "driver for %d.%d, ", driver / 1000,
                         driver % 1000 / 10);
    if (used >= 0 && (size_t)used < size && count == 0)
        (void)snprintf(text + used, size - used, driver > 0 ? "no device" : "no driver");
    for (int device = 0; device < count && used >= 0 && (size_t)used < size; device++) {
        cudaDeviceProp properties;
        if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
            (void)cudaGetLastError();
            continue;
        }
        used += snprintf(text + used, size - used, "%sdevice %d: %s (%d.%d, %.0f GiB)",
                         device ? ", " : "", device, properties.name, properties.major,
                         properties.minor, (double)properties.totalGlobalMem / (1 << 30));
    }
}

/* Streams */

tutti_status tutti__cuda_stream_create(int device, bool priority, tutti__stream *stream)
{
    TUTTI_TRY(tutti__cuda_use(device, "stream_create"));
    int least, greatest;
    TUTTI_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream_create");
    cudaStream_t made;
    TUTTI_CUDA(
        cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, priority ? greatest : least),
        "stream_create");
    *stream = made;
    return TUTTI_OK;
}

void tutti__cuda_stream_destroy(int device, tutti__stream stream)
{
    (void)cudaSetDevice(device);
    (void)cudaStreamDestroy((cudaStream_t)stream);
    (void)cudaGetLastError();
}

/* Ready, not ready (not an error), or a failure. */
static tutti_status queried(cudaError_t error, const char *what, bool *done)
{
    *done = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return TUTTI_OK;
    }
    return tutti__cuda_status(error, what);
}

tutti_status tutti__cuda_stream_query(int device, tutti__stream stream, bool *done)
{
    TUTTI_TRY(tutti__cuda_use(device, "stream_query"));
    relaxed_capture relaxed;
    return queried(cudaStreamQuery((cudaStream_t)stream), "stream_query", done);
}

tutti_status tutti__cuda_stream_synchronize(int device, tutti__stream stream)
{
    TUTTI_TRY(tutti__cuda_use(device, "stream_synchronize"));
    return tutti__cuda_status(cudaStreamSynchronize((cudaStream_t)stream), "stream_synchronize");
}

tutti_status tutti__cuda_stream_capturing(int device, tutti__stream stream, bool *capturing)
{
    TUTTI_TRY(tutti__cuda_use(device, "stream_capturing"));
    cudaStreamCaptureStatus status;
    TUTTI_CUDA(cudaStreamIsCapturing((cudaStream_t)stream, &status), "stream_capturing");
    *capturing = status != cudaStreamCaptureStatusNone;
    return TUTTI_OK;
}

/* Events */

tutti_status tutti__cuda_event_create(int device, bool timing, tutti__event *event)
{
    TUTTI_TRY(tutti__cuda_use(device, "event_create"));
    cudaEvent_t made;
    TUTTI_CUDA(cudaEventCreateWithFlags(&made, timing ? cudaEventDefault : cudaEventDisableTiming),
               "event_create");
    *event = made;
    return TUTTI_OK;
}

void tutti__cuda_event_destroy(int device, tutti__event event)
{
    (void)cudaSetDevice(device);
    (void)cudaEventDestroy((cudaEvent_t)event);
    (void)cudaGetLastError();
}

tutti_status tutti__cuda_event_record(int device, tutti__event event, tutti__stream stream)
{
    TUTTI_TRY(tutti__cuda_use(device, "event_record"));
    return tutti__cuda_status(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream),
                              "event_record");
}

tutti_status tutti__cuda_event_query(int device, tutti__event event, bool *done)
{
    TUTTI_TRY(tutti__cuda_use(device, "event_query"));
    relaxed_capture relaxed;
    return queried(cudaEventQuery((cudaEvent_t)event), "event_query", done);
}

tutti_status tutti__cuda_event_elapsed(int device, tutti__event begin, tutti__event end, double *ms)
{
    TUTTI_TRY(tutti__cuda_use(device, "event_elapsed"));
    float elapsed;
    TUTTI_CUDA(cudaEventElapsedTime(&elapsed, (cudaEvent_t)begin, (cudaEvent_t)end),
               "event_elapsed");
    *ms = elapsed;
    return TUTTI_OK;
}

tutti_status tutti__cuda_stream_wait_event(int device, tutti__stream stream, tutti__event event)
{
    TUTTI_TRY(tutti__cuda_use(device, "stream_wait_event"));
    return tutti__cuda_status(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0),
                              "stream_wait_event");
}

/* A context's own */

static void own_free(void *data)
{
    tutti__cuda_own *own = (tutti__cuda_own *)data;
    if (own->products) own->products_free(own->products);
    tutti__cuda_tuned_free(own->tuned);
    if (own->beside) (void)cudaStreamDestroy(own->beside);
    if (own->parted) (void)cudaEventDestroy(own->parted);
    if (own->joined) (void)cudaEventDestroy(own->joined);
    (void)cudaGetLastError();
    free(own);
}

tutti_status tutti__cuda_own_get(tutti_context *ctx, tutti__cuda_own **own)
{
    if (!ctx->backend_data) {
        ctx->backend_data = calloc(1, sizeof **own);
        if (!ctx->backend_data) return tutti__fail(TUTTI_ERR_MEMORY, "context: no memory");
        ctx->backend_data_free = own_free;
    }
    *own = (tutti__cuda_own *)ctx->backend_data;
    return TUTTI_OK;
}

tutti_status tutti__cuda_beside_open(tutti_context *ctx)
{
    tutti__cuda_own *own = NULL;
    TUTTI_TRY(tutti__cuda_use(ctx->device, "beside"));
    TUTTI_TRY(tutti__cuda_own_get(ctx, &own));
    relaxed_capture relaxed;
    for (cudaEvent_t *event : {&own->parted, &own->joined})
        if (!*event) TUTTI_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "beside");
    if (!own->beside)
        TUTTI_CUDA(cudaStreamCreateWithFlags(&own->beside, cudaStreamNonBlocking), "beside");
    return TUTTI_OK;
}

tutti_status tutti__cuda_beside_part(tutti_context *ctx, cudaStream_t *beside)
{
    const tutti__cuda_own *own = (tutti__cuda_own *)ctx->backend_data;
    TUTTI_CUDA(cudaEventRecord(own->parted, tutti__cuda_stream(ctx)), "beside");
    TUTTI_CUDA(cudaStreamWaitEvent(own->beside, own->parted, 0), "beside");
    *beside = own->beside;
    return TUTTI_OK;
}

tutti_status tutti__cuda_beside_join(tutti_context *ctx)
{
    const tutti__cuda_own *own = (tutti__cuda_own *)ctx->backend_data;
    TUTTI_CUDA(cudaEventRecord(own->joined, own->beside), "beside");
    TUTTI_CUDA(cudaStreamWaitEvent(tutti__cuda_stream(ctx), own->joined, 0), "beside");
    return TUTTI_OK;
}

/* Memory */

static tutti_status out_of_memory(const char *what, size_t bytes, cudaError_t error)
{
    if (error != cudaErrorMemoryAllocation) return tutti__cuda_status(error, what);
    (void)cudaGetLastError();
    return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory for %zu bytes", what, bytes);
}

tutti_status tutti__cuda_alloc(int device, size_t bytes, void **data)
{
    *data = NULL;
    TUTTI_TRY(tutti__cuda_use(device, "alloc"));
    relaxed_capture relaxed;
    cudaError_t error = cudaMalloc(data, bytes);
    return error == cudaSuccess ? TUTTI_OK : out_of_memory("alloc", bytes, error);
}

void tutti__cuda_free(int device, void *data)
{
    (void)cudaSetDevice(device);
    relaxed_capture relaxed;
    (void)cudaFree(data);
    (void)cudaGetLastError();
}

tutti_status tutti__cuda_host_alloc(int device, size_t bytes, void **data)
{
    *data = NULL;
    TUTTI_TRY(tutti__cuda_use(device, "host_alloc"));
    relaxed_capture relaxed;
    cudaError_t error = cudaHostAlloc(data, bytes, cudaHostAllocPortable);
    return error == cudaSuccess ? TUTTI_OK : out_of_memory("host_alloc", bytes, error);
}

void tutti__cuda_host_free(int device, void *data)
{
    (void)cudaSetDevice(device);
    relaxed_capture relaxed;
    (void)cudaFreeHost(data);
    (void)cudaGetLastError();
}

/* From pageable memory the runtime stages before it returns; to pageable memory it returns when the
 * copy is complete. */
tutti_status tutti__cuda_copy(int device, tutti__stream stream, void *dst, const void *src,
                              size_t bytes)
{
    TUTTI_TRY(tutti__cuda_use(device, "copy"));
    return tutti__cuda_status(
        cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, (cudaStream_t)stream), "copy");
}

tutti_status tutti__cuda_is_pageable(int device, const void *data, bool *pageable)
{
    TUTTI_TRY(tutti__cuda_use(device, "copy"));
    cudaPointerAttributes attributes;
    *pageable = true;
    if (cudaPointerGetAttributes(&attributes, data) == cudaSuccess)
        *pageable = attributes.type == cudaMemoryTypeUnregistered;
    else
        (void)cudaGetLastError();
    return TUTTI_OK;
}

tutti_status tutti__cuda_zero(int device, tutti__stream stream, void *data, size_t bytes)
{
    TUTTI_TRY(tutti__cuda_use(device, "zero"));
    return tutti__cuda_status(cudaMemsetAsync(data, 0, bytes, (cudaStream_t)stream), "zero");
}

/* tutti/cuda.h */

tutti_status tutti_context_create_on_stream(int device, cudaStream_t stream, tutti_context **ctx)
{
    TUTTI_REQUIRE(ctx, "context_create_on_stream: ctx is NULL");
    return tutti__context_make(&tutti__cuda_backend, device, 0, true, stream, ctx);
}

cudaStream_t tutti_context_stream(const tutti_context *ctx)
{
    return ctx && ctx->backend->kind == TUTTI_BACKEND_CUDA ? tutti__cuda_stream(ctx) : NULL;
}
