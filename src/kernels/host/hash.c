/* A hash of a buffer, for comparing replicas. */
#include <stdatomic.h>

#include "kernels/host/host.h"
#include "ops/hash.h"

typedef struct hash_task {
    const uint32_t *words;
    _Atomic uint64_t sum;
} hash_task;

TUTTI__VECTORISED
static void hash_words(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    hash_task *t = data;
    uint64_t sum = 0;
    for (int64_t i = begin; i < end; i++) sum += tutti__mix(t->words[i], i);
    t->sum += sum;
}

tutti_status tutti__host_hash(tutti_context *ctx, const uint32_t *words, int64_t count,
                              uint64_t *hash)
{
    hash_task task = {.words = words};
    tutti__parallel(ctx, count, 1, hash_words, &task);
    *hash = task.sum;
    return TUTTI_OK;
}
