/* Tuning of products: the ways of a shape are timed on operands of its own, each run after a write
 * of more than the second-level cache holds, as in a training step operands come from memory.  The
 * time of a way is the median of a few runs, with the passes before and after the product.
 *
 * What is remembered is a way's number and its mark, not an algorithm: who is given choices asks
 * cuBLASLt for the same list and compares, so bytes of another process never reach cuBLASLt. */
#include "kernels/cuda/tune.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/product.h"

/* All that the speed of a product depends on.  Both structs have no padding: they are compared and
 * sent as bytes. */
struct tuned_key {
    int64_t m, n, k, batch;
    int64_t strides[3], apart[3], outer[3]; /* apart: along batch[1]; outer: along batch[0] */
    int32_t dtype, c_dtype, activation;
    uint8_t transposed_a, transposed_b, tf32, extra; /* extra: 1 with bias, 2 with A's sums */
};
struct tuned_entry {
    tuned_key key;
    uint64_t mark;
    int64_t way;
};
static_assert(sizeof(tuned_key) == 120 && sizeof(tuned_entry) == 136, "no padding");

struct tutti__cuda_tuned {
    int64_t count, room;
    tuned_entry *entries;
};

/* What tutti_context_tuning_get gives: this, then the entries. */
struct tuned_header {
    char magic[8];
    uint64_t sum; /* of all that follows */
    uint64_t version, count;
    uint64_t cublas;
    int32_t major, minor, multiprocessors, padding;
    char device[256];
};

constexpr char tuned_magic[8] = {'T', 'u', 't', 't', 'i', 'T', 'u', 'n'};
constexpr uint64_t tuned_version = 3; /* of these structs and the numbers of the ways */
constexpr int64_t count_most = 1 << 24;
constexpr size_t flushed_bytes = (size_t)256 << 20;
constexpr int runs = 5;
constexpr double gain = 0.99; /* a way must be so much faster than an earlier one: noise is not */

void tutti__cuda_tuned_free(tutti__cuda_tuned *tuned)
{
    if (tuned) free(tuned->entries);
    free(tuned);
}

static tuned_key key_of(const tutti__gemm *g)
{
    return {g->m,
            g->n,
            g->k,
            g->batch[1],
            {g->a.in.stride, g->b.in.stride, g->c.stride},
            {g->a.apart[1], g->b.apart[1], g->c_apart[1]},
            {g->a.apart[0], g->b.apart[0], g->c_apart[0]},
            (int32_t)g->a.in.dtype,
            (int32_t)g->c.dtype,
            (int32_t)g->activation.kind,
            g->a.transposed,
            g->b.transposed,
            g->tf32,
            (uint8_t)(g->bias     ? 1
                      : g->a_sums ? 2
                                  : 0)};
}

static const tuned_entry *find(const tutti__cuda_tuned *tuned, const tuned_key &key)
{
    for (int64_t i = 0; tuned && i < tuned->count; i++)
        if (memcmp(&tuned->entries[i].key, &key, sizeof key) == 0) return &tuned->entries[i];
    return NULL;
}

static tutti_status remember(tutti__cuda_own *own, const char *name, const tuned_entry &entry)
{
    if (!own->tuned) own->tuned = (tutti__cuda_tuned *)calloc(1, sizeof *own->tuned);
    tutti__cuda_tuned *t = own->tuned;
    if (t && t->count == t->room) {
        const int64_t room = t->room ? 2 * t->room : 64;
        void *moved = realloc(t->entries, (size_t)room * sizeof *t->entries);
        if (moved) {
            t->entries = (tuned_entry *)moved;
            t->room = room;
        }
    }
    if (!t || t->count == t->room)
        return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory for a measured choice", name);
    t->entries[t->count++] = entry;
    return TUTTI_OK;
}

/* Measuring */

/* Numbers between -1 and 1 without a pattern: a product of zeros takes less power, and so less
 * time. */
template<class T>
__global__ void fill_kernel(T *to, int64_t count)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        uint32_t bits = (uint32_t)i * 2654435769u;
        bits = (bits ^ bits >> 15) * 2246822519u;
        to[i] = narrow<T>::of((float)(int32_t)(bits ^ bits >> 13) * 0x1p-31f);
    }
}

/* Operands of a product, events, and what is written before each run. */
struct trial {
    tutti_context *ctx;
    const char *name;
    tutti__gemm gemm;
    char *data = NULL;
    size_t bytes = flushed_bytes; /* of data, which begins with what is written */
    cudaEvent_t begin = NULL, end = NULL;

    trial(tutti_context *on, const tutti__gemm *of) : ctx(on), name(of->name), gemm(*of) {}
    ~trial()
    {
        if (data) ctx->backend->run.free(ctx->device, data);
        if (begin) (void)cudaEventDestroy(begin);
        if (end) (void)cudaEventDestroy(end);
    }

    size_t place(size_t size)
    {
        const size_t at = bytes;
        bytes += (size + 255) / 256 * 256;
        return at;
    }
    tutti_status fill(size_t at, size_t size, tutti_dtype dtype)
    {
        return tutti__cuda_dispatch(dtype, [&](auto type) {
            using T = typename decltype(type)::type;
            if (size < sizeof(T)) return TUTTI_OK;
            fill_kernel<T><<<1024, 256, 0, tutti__cuda_stream(ctx)>>>((T *)(data + at),
                                                                      (int64_t)(size / sizeof(T)));
            return tutti__cuda_status(cudaGetLastError(), name);
        });
    }

    tutti_status open();
    tutti_status time(tutti__cuda_ways *ways, double limit, double *ms);
};

/* Bytes from the first to the last element of a batch's matrices. */
static size_t extent(const tutti__matrix &matrix, int64_t rows, int64_t cols, int64_t batch,
                     int64_t apart)
{
    const int64_t elements = (rows - 1) * matrix.stride + cols + (batch - 1) * apart;
    return (size_t)elements * tutti_dtype_size(matrix.dtype);
}

tutti_status trial::open()
{
    tutti__gemm *g = &gemm;
    const tutti_dtype dtype = g->a.in.dtype;
    const bool ta = g->a.transposed, tb = g->b.transposed;
    g->batch[0] = 1;
    g->beta = 0;
    const size_t a_bytes =
        extent(g->a.in, ta ? g->k : g->m, ta ? g->m : g->k, g->batch[1], g->a.apart[1]);
    const size_t b_bytes =
        extent(g->b.in, tb ? g->n : g->k, tb ? g->k : g->n, g->batch[1], g->b.apart[1]);
    const size_t c_bytes = extent(g->c, g->m, g->n, g->batch[1], g->c_apart[1]);
    const size_t bias_bytes = g->bias ? (size_t)g->n * tutti_dtype_size(g->c.dtype) : 0;
    const bool keeps_z = tutti__activation_wants_z(g->activation.kind);
    const size_t a = place(a_bytes), b = place(b_bytes), c = place(c_bytes),
                 bias = place(bias_bytes);
    const size_t z =
        place(keeps_z ? (size_t)g->m * (size_t)g->n * tutti_dtype_size(g->c.dtype) : 0);
    const size_t runs = (size_t)g->m / TUTTI__CUDA_PRODUCT_RUN + 1; /* and a row of their sums */
    const size_t sums = place(g->a_sums ? (runs + 1) * (size_t)g->k * sizeof(float) : 0);
    TUTTI_TRY(ctx->backend->run.alloc(ctx->device, bytes, (void **)&data));
    g->a.in.data = data + a;
    g->b.in.data = data + b;
    g->c.data = data + c;
    if (g->bias) g->bias = data + bias;
    g->z = keeps_z ? data + z : NULL;
    if (g->a_sums) g->a_sums = (float *)(data + sums);
    TUTTI_CUDA(cudaEventCreate(&begin), name);
    TUTTI_CUDA(cudaEventCreate(&end), name);
    TUTTI_TRY(fill(a, a_bytes, dtype));
    TUTTI_TRY(fill(b, b_bytes, dtype));
    return fill(bias, bias_bytes, g->c.dtype);
}

/* The prepared way's time; infinite if it does not run, and that of one run if it takes longer than
 * the limit. */
tutti_status trial::time(tutti__cuda_ways *ways, double limit, double *ms)
{
    cudaStream_t stream = tutti__cuda_stream(ctx);
    double times[runs] = {};
    int made = 0;
    *ms = INFINITY;
    if (ways->run(&gemm) != TUTTI_OK) return TUTTI_OK;
    while (made < runs && (made == 0 || times[0] < limit)) {
        /* takes so long that all of the run is enqueued when it begins */
        TUTTI_CUDA(cudaMemsetAsync(data, 0, flushed_bytes, stream), name);
        TUTTI_CUDA(cudaEventRecord(begin, stream), name);
        TUTTI_TRY(ways->run(&gemm));
        TUTTI_CUDA(cudaEventRecord(end, stream), name);
        TUTTI_CUDA(cudaEventSynchronize(end), name);
        float elapsed;
        TUTTI_CUDA(cudaEventElapsedTime(&elapsed, begin, end), name);
        times[made++] = elapsed;
    }
    std::sort(times, times + made);
    *ms = times[made / 2];
    return TUTTI_OK;
}

/* Prepares the fastest way, a way of the same speed as an earlier one not counting. */
static tutti_status measure(tutti_context *ctx, const tutti__gemm *gemm, tutti__cuda_ways *ways,
                            int64_t *fastest)
{
    TUTTI_TRY(tutti_context_synchronize(ctx)); /* with a deadline, unlike what follows */
    trial t(ctx, gemm);
    TUTTI_TRY(t.open());
    double usual = INFINITY, best = INFINITY;
    int tried = 0;
    bool there, good;
    for (int way = 0; way < ways->count; way++) {
        double ms;
        TUTTI_TRY(ways->prepare(way, &there));
        if (!there) continue;
        TUTTI_TRY(t.time(ways, 1.5 * best, &ms));
        tried++;
        if (way == 0) usual = ms;
        if (way > 0 && !(ms < gain * best)) continue;
        TUTTI_TRY(ways->check(way, &good));
        if (!good) continue;
        best = ms;
        *fastest = way;
    }
    tutti__log(TUTTI_LOG_INFO,
               "%s: measured %d ways to compute [%lld, %lld, %lld] %s: %.1f us, %.1f without",
               gemm->name, tried, (long long)gemm->m, (long long)gemm->k, (long long)gemm->n,
               tutti_dtype_name(gemm->a.in.dtype), best * 1e3, usual * 1e3);
    return ways->prepare((int)*fastest, &there);
}

tutti_status tutti__cuda_tune(tutti_context *ctx, const tutti__gemm *gemm, tutti__cuda_ways *ways)
{
    tutti__cuda_own *own = NULL;
    TUTTI_TRY(tutti__cuda_own_get(ctx, &own));
    const tuned_key key = key_of(gemm);
    const tuned_entry *known = find(own->tuned, key);
    if (!known && !ctx->tunes) return TUTTI_OK;
    if (!known) {
        int64_t way = 0;
        TUTTI_TRY(measure(ctx, gemm, ways, &way));
        TUTTI_TRY(remember(own, gemm->name, {key, ways->mark(), way}));
        known = find(own->tuned, key);
    }
    bool there = false, good = false;
    if (known->way >= 0 && known->way < ways->count)
        TUTTI_TRY(ways->prepare((int)known->way, &there));
    if (there) TUTTI_TRY(ways->check((int)known->way, &good));
    if (!good || ways->mark() != known->mark)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s: what was chosen for the product [%lld, %lld, %lld] elsewhere does "
                           "not exist here",
                           gemm->name, (long long)gemm->m, (long long)gemm->k, (long long)gemm->n);
    ways->take();
    return TUTTI_OK;
}

/* Choices as bytes */

static tutti_status header_of(const tutti_context *ctx, const tuned_entry *entries, uint64_t count,
                              tuned_header *to)
{
    cudaDeviceProp properties;
    TUTTI_CUDA(cudaGetDeviceProperties(&properties, ctx->device), "context_tuning");
    *to = {};
    memcpy(to->magic, tuned_magic, sizeof to->magic);
    to->version = tuned_version;
    to->count = count;
    to->cublas = cublasLtGetVersion();
    to->major = properties.major;
    to->minor = properties.minor;
    to->multiprocessors = properties.multiProcessorCount;
    memcpy(to->device, properties.name, std::min(sizeof to->device, sizeof properties.name));
    const size_t covered = offsetof(tuned_header, version);
    const uint64_t sum =
        tutti__hash(TUTTI__HASH_START, (const char *)to + covered, sizeof *to - covered);
    to->sum = tutti__hash(sum, entries, count * sizeof *entries);
    return TUTTI_OK;
}

tutti_status tutti__cuda_tuning_get(tutti_context *ctx, void *data, size_t capacity, size_t *bytes)
{
    const tutti__cuda_own *own = (const tutti__cuda_own *)ctx->backend_data;
    const tutti__cuda_tuned *tuned = own ? own->tuned : NULL;
    *bytes = 0;
    if (!tuned || tuned->count == 0) return TUTTI_OK;
    const size_t of_entries = (size_t)tuned->count * sizeof *tuned->entries;
    *bytes = sizeof(tuned_header) + of_entries;
    if (capacity < *bytes) return TUTTI_OK;
    tuned_header header;
    TUTTI_TRY(header_of(ctx, tuned->entries, (uint64_t)tuned->count, &header));
    memcpy(data, &header, sizeof header);
    memcpy((char *)data + sizeof header, tuned->entries, of_entries);
    return TUTTI_OK;
}

/* Fails unless the bytes are choices that were made for this device and library. */
static tutti_status check_header(const tutti_context *ctx, const tuned_header &given, size_t bytes,
                                 const tuned_entry *entries)
{
    tuned_header own = {};
    const bool whole = memcmp(given.magic, tuned_magic, sizeof given.magic) == 0 &&
                       given.version == tuned_version && given.count <= count_most &&
                       bytes == sizeof given + given.count * sizeof *entries;
    if (whole) TUTTI_TRY(header_of(ctx, entries, given.count, &own));
    const size_t covered = offsetof(tuned_header, version);
    const bool same = whole && memcmp(&given, &own, sizeof own) == 0;
    if (same) return TUTTI_OK;
    uint64_t sum =
        tutti__hash(TUTTI__HASH_START, (const char *)&given + covered, sizeof given - covered);
    if (whole) sum = tutti__hash(sum, entries, given.count * sizeof *entries);
    if (!whole || sum != given.sum)
        return tutti__fail(TUTTI_ERR_DATA,
                           "context_tuning_set: these %zu bytes are damaged, or not from "
                           "context_tuning_get",
                           bytes);
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "context_tuning_set: the choices are for %.*s with cuBLASLt %llu, here is "
                       "%s with cuBLASLt %llu",
                       (int)sizeof given.device, given.device, (unsigned long long)given.cublas,
                       own.device, (unsigned long long)own.cublas);
}

tutti_status tutti__cuda_tuning_set(tutti_context *ctx, const void *data, size_t bytes)
{
    TUTTI_TRY(tutti__cuda_use(ctx->device, "context_tuning_set"));
    tutti__cuda_own *own = NULL;
    TUTTI_TRY(tutti__cuda_own_get(ctx, &own));
    tutti__cuda_tuned *made = NULL;
    if (bytes > 0) {
        tuned_header header = {};
        const size_t of_entries = bytes > sizeof header ? bytes - sizeof header : 0;
        made = (tutti__cuda_tuned *)calloc(1, sizeof *made);
        if (made) made->entries = (tuned_entry *)malloc(of_entries + 1);
        tutti_status status = TUTTI_OK;
        if (!made || !made->entries)
            status =
                tutti__fail(TUTTI_ERR_MEMORY, "context_tuning_set: no memory for %zu bytes", bytes);
        if (status == TUTTI_OK) {
            memcpy(&header, data, std::min(bytes, sizeof header));
            if (of_entries > 0)
                memcpy(made->entries, (const char *)data + sizeof header, of_entries);
            status = check_header(ctx, header, bytes, made->entries);
        }
        if (status != TUTTI_OK) {
            tutti__cuda_tuned_free(made);
            return status;
        }
        made->count = made->room = (int64_t)header.count;
    }
    tutti__cuda_tuned_free(own->tuned);
    own->tuned = made;
    return TUTTI_OK;
}
