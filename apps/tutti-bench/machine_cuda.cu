/* Timing on a GPU: graph replays with a cold cache, copies, bare matrix products. */
#include <algorithm>
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

#include "kernels/cuda/cublaslt.h"
#include "machine.h"
#include "tutti/cuda.h"

/* common/report.h is C */
extern "C" {
#include "common/exit_code.h"
#include "common/report.h"
}

#define TRY_CUDA(call)                                                                \
    do {                                                                              \
        cudaError_t error_ = (call);                                                  \
        if (error_ != cudaSuccess)                                                    \
            return app_fail(APP_FAILED, "%s: %s", #call, cudaGetErrorString(error_)); \
    } while (0)
#define TRY_CUBLAS(call)                                                                    \
    do {                                                                                    \
        cublasStatus_t status_ = (call);                                                    \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                               \
            return app_fail(APP_FAILED, "%s: %s", #call, cublasLtGetStatusString(status_)); \
    } while (0)

constexpr size_t flushed_bytes = (size_t)256 << 20, workspace_bytes = (size_t)32 << 20;
constexpr int warm_up = 3;

struct gpu {
    cudaStream_t stream;
    void *flushed; /* overwritten before each run, to flush the cache */
    void *workspace;
    cublasLtHandle_t cublas;
};

static gpu *gpu_of(const bench_machine *machine)
{
    return (gpu *)machine->cuda;
}

/* Device memory, freed at the end of the scope. */
struct buffer {
    void *data = NULL;
    ~buffer() { (void)cudaFree(data); }
};

int bench_cuda_open(int device, bench_machine *machine)
{
    gpu *made = new gpu();
    machine->cuda = made;
    machine->backend = "cuda";
    TRY_CUDA(cudaSetDevice(device));
    cudaDeviceProp properties;
    TRY_CUDA(cudaGetDeviceProperties(&properties, device));
    snprintf(machine->device, sizeof machine->device, "%s", properties.name);
    TRY_CUDA(cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking));
    TRY_CUDA(cudaMalloc(&made->flushed, flushed_bytes));
    TRY_CUDA(cudaMalloc(&made->workspace, workspace_bytes));
    TRY_CUBLAS(cublasLtCreate(&made->cublas));
    return app_check(tutti_context_create_on_stream(device, made->stream, &machine->ctx));
}

void bench_cuda_close(bench_machine *machine)
{
    gpu *g = gpu_of(machine);
    tutti_context_destroy(&machine->ctx);
    if (g->cublas) (void)cublasLtDestroy(g->cublas);
    (void)cudaFree(g->workspace);
    (void)cudaFree(g->flushed);
    if (g->stream) (void)cudaStreamDestroy(g->stream);
    delete g;
    machine->cuda = NULL;
}

/* Work as a graph */
struct bench_graph {
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    ~bench_graph()
    {
        if (executable) (void)cudaGraphExecDestroy(executable);
        if (graph) (void)cudaGraphDestroy(graph);
    }
};

static int capture(cudaStream_t stream, bench_work work, void *self, bench_graph *to)
{
    to->stream = stream;
    TRY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    int code = work(self);
    cudaError_t error = cudaStreamEndCapture(stream, &to->graph);
    APP_TRY(code);
    TRY_CUDA(error);
    TRY_CUDA(cudaGraphInstantiate(&to->executable, to->graph, 0));
    return APP_OK;
}

int bench_graph_open(tutti_context *ctx, bench_work work, void *self, bench_graph **graph)
{
    if (!tutti_context_stream(ctx)) return app_fail(APP_FAILED, "graphs need a GPU");
    *graph = new bench_graph();
    const int code = capture(tutti_context_stream(ctx), work, self, *graph);
    if (code != APP_OK) bench_graph_close(graph);
    return code;
}

int bench_graph_replay(const bench_graph *graph)
{
    TRY_CUDA(cudaGraphLaunch(graph->executable, graph->stream));
    return APP_OK;
}

void bench_graph_close(bench_graph **graph)
{
    delete *graph;
    *graph = NULL;
}

/* The same, and the events around a replay. */
struct timed_work : bench_graph {
    cudaEvent_t begin = NULL, end = NULL;
    std::vector<double> seconds;
    ~timed_work()
    {
        if (begin) (void)cudaEventDestroy(begin);
        if (end) (void)cudaEventDestroy(end);
    }
    bench_times times() { return bench_times_of(seconds.data(), (int)seconds.size()); }
};

static int capture_timed(bench_machine *machine, bench_work work, void *self, timed_work *to)
{
    TRY_CUDA(cudaEventCreate(&to->begin));
    TRY_CUDA(cudaEventCreate(&to->end));
    return capture(gpu_of(machine)->stream, work, self, to);
}

static int replay_in_turn(bench_machine *machine, timed_work *works, int count)
{
    gpu *g = gpu_of(machine);
    for (int i = 0; i < warm_up + machine->repeats; i++)
        for (timed_work *w = works; w < works + count; w++) {
            TRY_CUDA(cudaMemsetAsync(g->flushed, i, flushed_bytes, g->stream));
            TRY_CUDA(cudaEventRecord(w->begin, g->stream));
            TRY_CUDA(cudaGraphLaunch(w->executable, g->stream));
            TRY_CUDA(cudaEventRecord(w->end, g->stream));
            TRY_CUDA(cudaStreamSynchronize(g->stream));
            float ms;
            TRY_CUDA(cudaEventElapsedTime(&ms, w->begin, w->end));
            if (i >= warm_up) w->seconds.push_back(ms * 1e-3);
        }
    return APP_OK;
}

int bench_cuda_replays(bench_machine *machine, bench_work work, bench_work before, void *self,
                       double *seconds)
{
    gpu *g = gpu_of(machine);
    timed_work w;
    APP_TRY(capture_timed(machine, work, self, &w));
    for (int i = 0; i < warm_up + machine->repeats; i++) {
        APP_TRY(before(self));
        TRY_CUDA(cudaEventRecord(w.begin, g->stream));
        TRY_CUDA(cudaGraphLaunch(w.executable, g->stream));
        TRY_CUDA(cudaEventRecord(w.end, g->stream));
        APP_CHECK(tutti_context_synchronize(machine->ctx));
        float ms;
        TRY_CUDA(cudaEventElapsedTime(&ms, w.begin, w.end));
        if (i >= warm_up) w.seconds.push_back(ms * 1e-3);
    }
    *seconds = w.times().median;
    return APP_OK;
}

/* Copies */

constexpr int copy_threads = 256, copy_vectors = 4;

__global__ void __launch_bounds__(copy_threads)
    copy_kernel(const uint4 *from, uint4 *to, size_t count)
{
    size_t first = (size_t)blockIdx.x * copy_threads * copy_vectors + threadIdx.x;
    uint4 value[copy_vectors];
#pragma unroll
    for (int i = 0; i < copy_vectors; i++)
        if (first + i * copy_threads < count) value[i] = from[first + i * copy_threads];
#pragma unroll
    for (int i = 0; i < copy_vectors; i++)
        if (first + i * copy_threads < count) to[first + i * copy_threads] = value[i];
}

struct copy_work {
    cudaStream_t stream;
    const void *from;
    void *to;
    size_t bytes;
};

static int run_memcpy(void *self)
{
    copy_work *c = (copy_work *)self;
    TRY_CUDA(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, c->stream));
    return APP_OK;
}

static int run_copy_kernel(void *self)
{
    copy_work *c = (copy_work *)self;
    size_t count = c->bytes / sizeof(uint4), block = copy_threads * copy_vectors;
    copy_kernel<<<(unsigned)((count + block - 1) / block), copy_threads, 0, c->stream>>>(
        (const uint4 *)c->from, (uint4 *)c->to, count);
    TRY_CUDA(cudaGetLastError());
    return APP_OK;
}

static int time_with_copy(bench_machine *machine, timed_work *works, size_t bytes,
                          double *reference_seconds)
{
    gpu *g = gpu_of(machine);
    size_t half = (bytes / 2 + 15) / 16 * 16;
    buffer from, to;
    TRY_CUDA(cudaMalloc(&from.data, half));
    TRY_CUDA(cudaMalloc(&to.data, half));
    TRY_CUDA(cudaMemsetAsync(from.data, 0x5a, half, g->stream));
    copy_work c = {g->stream, from.data, to.data, half};
    APP_TRY(capture_timed(machine, run_memcpy, &c, &works[1]));
    APP_TRY(capture_timed(machine, run_copy_kernel, &c, &works[2]));
    APP_TRY(replay_in_turn(machine, works, 3));
    *reference_seconds = std::min(works[1].times().median, works[2].times().median);
    return APP_OK;
}

/* Products, in cuBLASLt's column-major view: C^T = op(B)^T op(A)^T, its first factor is B */

struct product {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    const void *from_a, *from_b;
    void *to;
};

struct product_work {
    gpu *g;
    bool f64;
    int count;
    product products[BENCH_PRODUCTS];
};

/* A batch of matrices [rows, cols], whose elements are of a type. */
static int lay_out(cudaDataType type, int64_t batch, int64_t rows, int64_t cols,
                   cublasLtMatrixLayoutOpaque_t *to)
{
    int32_t count = (int32_t)batch;
    int64_t apart = rows * cols;
    TRY_CUBLAS(cublasLtMatrixLayoutInit(to, type, cols, rows, cols));
    if (batch == 1) return APP_OK;
    TRY_CUBLAS(cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                sizeof count));
    TRY_CUBLAS(cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &apart, sizeof apart));
    return APP_OK;
}

static int prepare(gpu *g, tutti_dtype dtype, const bench_product *of, product *p)
{
    cudaDataType type = dtype == TUTTI_F64   ? CUDA_R_64F
                        : dtype == TUTTI_F32 ? CUDA_R_32F
                        : dtype == TUTTI_F16 ? CUDA_R_16F
                                             : CUDA_R_16BF;
    cudaDataType scale = dtype == TUTTI_F64 ? CUDA_R_64F : CUDA_R_32F;
    TRY_CUBLAS(cublasLtMatmulDescInit(
        &p->op, dtype == TUTTI_F64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, scale));
    cublasOperation_t a = of->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = of->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&p->op, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    TRY_CUBLAS(cublasLtMatmulDescSetAttribute(&p->op, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    const int64_t m = of->m, n = of->n, k = of->k;
    const bool ta = of->transpose_a, tb = of->transpose_b;
    APP_TRY(lay_out(type, of->batch, tb ? n : k, tb ? k : n, &p->a));
    APP_TRY(lay_out(type, of->batch, ta ? k : m, ta ? m : k, &p->b));
    APP_TRY(lay_out(of->sums ? scale : type, of->batch, m, n, &p->d));
    cublasLtMatmulPreferenceOpaque_t preference;
    TRY_CUBLAS(cublasLtMatmulPreferenceInit(&preference));
    TRY_CUBLAS(cublasLtMatmulPreferenceSetAttribute(&preference,
                                                    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &workspace_bytes, sizeof workspace_bytes));
    cublasLtMatmulHeuristicResult_t result;
    int found;
    TRY_CUBLAS(cublasLtMatmulAlgoGetHeuristic(g->cublas, &p->op, &p->a, &p->b, &p->d, &p->d,
                                              &preference, 1, &result, &found));
    if (found == 0) return app_fail(APP_FAILED, "cuBLASLt has no algorithm for the bare product");
    p->algorithm = result.algo;
    return APP_OK;
}

static int enqueue(gpu *g, product *p, bool f64, double beta)
{
    const double one = 1;
    const float one_f = 1, beta_f = (float)beta;
    TRY_CUBLAS(cublasLtMatmul(g->cublas, &p->op, f64 ? (const void *)&one : &one_f, p->from_a,
                              &p->a, p->from_b, &p->b, f64 ? (const void *)&beta : &beta_f, p->to,
                              &p->d, p->to, &p->d, &p->algorithm, g->workspace, workspace_bytes,
                              g->stream));
    return APP_OK;
}

static int run_products(void *self)
{
    product_work *w = (product_work *)self;
    for (int i = 0; i < w->count; i++) APP_TRY(enqueue(w->g, &w->products[i], w->f64, 0));
    return APP_OK;
}

/* Device memory that begins as a matrix in host memory, unless that is NULL. */
static int put_matrix(gpu *g, const double *from, size_t bytes, buffer *to)
{
    TRY_CUDA(cudaMalloc(&to->data, bytes));
    if (from) TRY_CUDA(cudaMemcpyAsync(to->data, from, bytes, cudaMemcpyHostToDevice, g->stream));
    return APP_OK;
}

int bench_multiply(bench_machine *machine, const bench_product *of, bool add, const double *a,
                   const double *b, double *c)
{
    gpu *g = gpu_of(machine);
    const size_t size = (size_t)of->batch * sizeof(double);
    const size_t m = (size_t)of->m, n = (size_t)of->n, k = (size_t)of->k;
    buffer of_a, of_b, of_c;
    product p = {};
    APP_TRY(put_matrix(g, a, m * k * size, &of_a));
    APP_TRY(put_matrix(g, b, k * n * size, &of_b));
    APP_TRY(put_matrix(g, add ? c : NULL, m * n * size, &of_c));
    APP_TRY(prepare(g, TUTTI_F64, of, &p));
    p.from_a = of_b.data, p.from_b = of_a.data, p.to = of_c.data;
    APP_TRY(enqueue(g, &p, true, add));
    TRY_CUDA(cudaMemcpyAsync(c, of_c.data, m * n * size, cudaMemcpyDeviceToHost, g->stream));
    TRY_CUDA(cudaStreamSynchronize(g->stream));
    return APP_OK;
}

/* Varied finite values, as products run faster on zeros. */
__global__ void fill_kernel(uint8_t *data, size_t bytes, int size, bool f32, bool f64)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < bytes / size; i += stride) {
        uint32_t h = (uint32_t)i * 2654435761u;
        h = (h ^ h >> 15) * 2246822519u;
        h = (h ^ h >> 13) * 3266489917u;
        float value = (float)(h >> 8) * (2.0f / 16777216.0f) - 1.0f;
        if (f64)
            ((double *)data)[i] = value;
        else if (f32)
            ((float *)data)[i] = value;
        else /* bf16 in [-1, 1]; read as f16, finite and at most 1.9 */
            ((uint16_t *)data)[i] = (uint16_t)(__float_as_uint(value) >> 16);
    }
}

/* Memory for an operand, if it has none yet. */
static int put_operand(gpu *g, tutti_dtype dtype, int64_t count, buffer *to)
{
    const size_t size = tutti_dtype_size(dtype), bytes = (size_t)count * size;
    if (to->data) return APP_OK;
    TRY_CUDA(cudaMalloc(&to->data, bytes));
    fill_kernel<<<1024, 256, 0, g->stream>>>((uint8_t *)to->data, bytes, (int)size,
                                             dtype == TUTTI_F32, dtype == TUTTI_F64);
    TRY_CUDA(cudaGetLastError());
    return APP_OK;
}

static int time_with_products(bench_machine *machine, timed_work *works,
                              const bench_reference *reference, double *reference_seconds)
{
    gpu *g = gpu_of(machine);
    const tutti_dtype dtype = reference->dtype, sums = dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    buffer operands[BENCH_OPERANDS];
    product_work work = {};
    work.g = g;
    work.f64 = dtype == TUTTI_F64;
    work.count = reference->product_count;
    for (int i = 0; i < work.count; i++) {
        const bench_product *of = &reference->products[i];
        product *p = &work.products[i];
        APP_TRY(put_operand(g, dtype, of->batch * of->m * of->k, &operands[of->a]));
        APP_TRY(put_operand(g, dtype, of->batch * of->k * of->n, &operands[of->b]));
        APP_TRY(
            put_operand(g, of->sums ? sums : dtype, of->batch * of->m * of->n, &operands[of->c]));
        APP_TRY(prepare(g, dtype, of, p));
        p->from_a = operands[of->b].data, p->from_b = operands[of->a].data;
        p->to = operands[of->c].data;
    }
    APP_TRY(capture_timed(machine, run_products, &work, &works[1]));
    APP_TRY(replay_in_turn(machine, works, 2));
    *reference_seconds = works[1].times().median;
    return APP_OK;
}

int bench_cuda_time(bench_machine *machine, bench_work work, void *self,
                    const bench_reference *reference, bench_times *times, double *reference_seconds)
{
    timed_work works[3];
    APP_TRY(capture_timed(machine, work, self, &works[0]));
    if (reference->product_count > 0)
        APP_TRY(time_with_products(machine, works, reference, reference_seconds));
    else
        APP_TRY(time_with_copy(machine, works, reference->bytes, reference_seconds));
    *times = works[0].times();
    return APP_OK;
}
