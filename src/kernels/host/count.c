/* The number of labels that count, and the loss weight that it makes. */
#include <stdatomic.h>

#include "kernels/host/host.h"

typedef struct count_task {
    const int32_t *labels;
    int32_t ignored;
    int64_t below;
    _Atomic int64_t count;
} count_task;

static void count_range(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    count_task *t = data;
    int64_t count = 0;
    for (int64_t i = begin; i < end; i++)
        count += t->labels[i] != t->ignored && t->labels[i] >= 0 && t->labels[i] < t->below;
    t->count += count;
}

tutti_status tutti__host_count_labels(tutti_context *ctx, const int32_t *labels, int64_t rows,
                                      int32_t ignored, int64_t below, double *count,
                                      bool accumulate)
{
    count_task task = {.labels = labels, .ignored = ignored, .below = below};
    tutti__parallel(ctx, rows, 0.5, count_range, &task);
    *count = (accumulate ? *count : 0) + (double)task.count;
    return TUTTI_OK;
}

tutti_status tutti__host_weigh(tutti_context *ctx, const double *count, double *weight)
{
    (void)ctx;
    *weight = *count > 0 ? 1 / *count : *count == 0 ? 0 : (double)NAN;
    return TUTTI_OK;
}
