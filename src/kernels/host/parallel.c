/* Parallel loops, and reductions over rows whose order does not depend on the threads. */
#include <omp.h>
#include <stdatomic.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "kernels/host/host.h"

/* With fewer nanoseconds of work, waking a thread costs more than it saves. */
#define WORTH_A_THREAD 20e3
/* Pieces per thread: enough that one late thread does not delay the rest. */
#define PIECES 4

static void run_piece(tutti__work work, void *task, int64_t begin, int64_t end, int thread)
{
    work(task, begin, end, thread);
#ifdef __SSE2__
    _mm_sfence(); /* what it stored past the caches comes before what is stored from here on */
#endif
}

int tutti__threads_here(int threads)
{
    static _Atomic pid_t owner; /* the process whose threads OpenMP has */
    if (threads <= 1) return 1;
    const pid_t here = getpid();
    pid_t of = 0;
    return atomic_compare_exchange_strong(&owner, &of, here) || of == here ? threads : 1;
}

void tutti__parallel(const tutti_context *ctx, int64_t count, double cost, tutti__work work,
                     void *task)
{
    if (count <= 0) return;
    double worth = (double)count * cost / WORTH_A_THREAD;
    int threads = ctx->threads;
    if (threads > count) threads = (int)count;
    if (threads > worth) threads = (int)worth;
    threads = tutti__threads_here(threads);
    if (threads <= 1) {
        run_piece(work, task, 0, count, 0);
        return;
    }
    int64_t pieces = (int64_t)threads * PIECES < count ? (int64_t)threads * PIECES : count;
    int64_t each = count / pieces, extra = count % pieces;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t p = 0; p < pieces; p++) {
        int64_t begin = p * each + (p < extra ? p : extra);
        run_piece(work, task, begin, begin + each + (p < extra), omp_get_thread_num());
    }
}

tutti__row_blocks tutti__split_rows(int64_t rows, int64_t cols)
{
    /* at least 8 rows per block, and then at most 64 blocks, or for very long rows 4 Mi partial
     * values; but at most 512 rows, as those of a block are one chain of additions */
    int64_t most = cols > 0 ? (INT64_C(1) << 22) / cols : 64;
    most = most < 4 ? 4 : most > 64 ? 64 : most;
    int64_t each = (rows + most - 1) / most;
    each = each < 8 ? 8 : each > 512 ? 512 : each;
    return (tutti__row_blocks){(rows + each - 1) / each, each};
}

typedef struct merge_task {
    void *dst;
    tutti_dtype dst_dtype;
    bool accumulate;
    const void *partial;
    tutti_dtype real;
    int64_t blocks, stride;
} merge_task;

TUTTI__VECTORISED
static void merge_columns(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const merge_task *t = data;
    enum { WIDTH = 128 };
    for (int64_t j0 = begin; j0 < end; j0 += WIDTH) {
        double sum[WIDTH] = {0}, part[WIDTH];
        int64_t width = end - j0 < WIDTH ? end - j0 : WIDTH;
        for (int64_t b = 0; b < t->blocks; b++) {
            tutti__load_f64(part, tutti__at(t->partial, t->real, b * t->stride + j0), t->real,
                            width);
            for (int64_t j = 0; j < width; j++) sum[j] += part[j];
        }
        void *dst = tutti__at(t->dst, t->dst_dtype, j0);
        if (t->accumulate) {
            tutti__load_f64(part, dst, t->dst_dtype, width);
            for (int64_t j = 0; j < width; j++) sum[j] += part[j];
        }
        tutti__store_f64(dst, t->dst_dtype, sum, width);
    }
}

void tutti__merge_blocks(const tutti_context *ctx, void *dst, tutti_dtype dst_dtype,
                         bool accumulate, const void *partial, tutti_dtype real, int64_t blocks,
                         int64_t stride, int64_t cols)
{
    merge_task task = {dst, dst_dtype, accumulate, partial, real, blocks, stride};
    tutti__parallel(ctx, cols, 0.3 * (double)(blocks + 1), merge_columns, &task);
}
