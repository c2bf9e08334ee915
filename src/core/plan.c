/* A context's plans: made once per shape, and the least recently used dropped when there are too
 * many. */
#include <stdlib.h>
#include <string.h>

#include "core/context.h"

enum {
    BUCKETS = 256,
    PLANS_MAX = 1024 /* reached by a program with ever new numbers of rows */
};

typedef struct planned {
    struct planned *next; /* in its bucket */
    tutti__plan_key key;  /* settings: the copy below */
    char settings[TUTTI__SETTINGS_MAX];
    tutti__plan plan;
    uint64_t used;
} planned;

struct tutti__plans {
    planned *buckets[BUCKETS];
    int count;
    uint64_t now; /* incremented by every use */
};

uint64_t tutti__settings_hash(const void *settings, size_t bytes)
{
    TUTTI_ASSERT(bytes <= TUTTI__SETTINGS_MAX);
    return tutti__hash(TUTTI__HASH_START, settings, bytes);
}

static unsigned bucket_of(const tutti__plan_key *key)
{
    const uint64_t shape = (uint64_t)key->rows * 64 + key->alignment * 2 + key->backward;
    const uint64_t hash = (key->settings_hash ^ shape) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    return (unsigned)(hash % BUCKETS);
}

static bool same(const tutti__plan_key *a, const tutti__plan_key *b)
{
    return a->op == b->op && a->kind == b->kind && a->rows == b->rows && a->leaves == b->leaves &&
           a->alignment == b->alignment && a->backward == b->backward &&
           a->settings_hash == b->settings_hash && a->settings_bytes == b->settings_bytes &&
           (a->settings_bytes == 0 || memcmp(a->settings, b->settings, a->settings_bytes) == 0);
}

static void drop(planned *entry)
{
    if (entry->plan.drop) entry->plan.drop(entry->plan.data);
    free(entry);
}

static void drop_oldest(struct tutti__plans *plans)
{
    planned **oldest = NULL;
    for (int i = 0; i < BUCKETS; i++)
        for (planned **at = &plans->buckets[i]; *at; at = &(*at)->next)
            if (!oldest || (*at)->used < (*oldest)->used) oldest = at;
    planned *entry = *oldest;
    *oldest = entry->next;
    drop(entry);
    plans->count--;
}

void tutti__plans_drop(tutti_context *ctx)
{
    if (!ctx->plans) return;
    for (int i = 0; i < BUCKETS; i++)
        for (planned *entry = ctx->plans->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            drop(entry);
        }
    free(ctx->plans);
    ctx->plans = NULL;
}

static tutti_status make(tutti_context *ctx, const tutti__plan_key *key, const void *args,
                         planned **made)
{
    planned *entry = calloc(1, sizeof *entry);
    if (!entry) return tutti__fail(TUTTI_ERR_MEMORY, "context: no memory for a plan");
    entry->key = *key;
    if (key->settings_bytes > 0) memcpy(entry->settings, key->settings, key->settings_bytes);
    entry->key.settings = entry->settings;
    const tutti_status status =
        key->op->plan ? key->op->plan(ctx, args, key->backward, &entry->plan) : TUTTI_OK;
    if (status != TUTTI_OK)
        drop(entry);
    else
        *made = entry;
    return status;
}

tutti_status tutti__plan_get(tutti_context *ctx, const tutti__plan_key *key, const void *args,
                             const tutti__plan **plan)
{
    if (!ctx->plans) {
        ctx->plans = calloc(1, sizeof *ctx->plans);
        if (!ctx->plans) return tutti__fail(TUTTI_ERR_MEMORY, "context: no memory for plans");
    }
    struct tutti__plans *plans = ctx->plans;
    planned **bucket = &plans->buckets[bucket_of(key)], *entry = *bucket;
    while (entry && !same(&entry->key, key)) entry = entry->next;
    if (!entry) {
        TUTTI_TRY(make(ctx, key, args, &entry));
        if (plans->count == PLANS_MAX) drop_oldest(plans);
        entry->next = *bucket;
        *bucket = entry;
        plans->count++;
    }
    entry->used = ++plans->now;
    *plan = &entry->plan;
    return TUTTI_OK;
}

tutti_status tutti__op_plan(tutti_context *ctx, const tutti__plan_key *key, const void *args)
{
    const tutti__plan *plan;
    void *scratch;
    TUTTI_TRY(tutti__plan_get(ctx, key, args, &plan));
    return tutti__scratch(ctx, plan->scratch, &scratch);
}

static tutti_status run(tutti_context *ctx, const tutti__plan_key *key, const void *args,
                        tutti__job *job)
{
    TUTTI_TRY(tutti__plan_get(ctx, key, args, &job->plan));
    TUTTI_TRY(tutti__scratch(ctx, job->plan->scratch, &job->scratch));
    return (key->backward ? key->op->backward : key->op->forward)(job, args);
}

tutti_status tutti__op_run(tutti_context *ctx, const tutti__plan_key *key, const void *args)
{
    tutti__job job = {.ctx = ctx};
    return run(ctx, key, args, &job);
}

tutti_status tutti__op_begin(tutti_context *ctx, const tutti__plan_key *key, const void *args,
                             tutti__job *rest)
{
    *rest = (tutti__job){.ctx = ctx, .stage = TUTTI__STAGE_FIRST};
    TUTTI_TRY(run(ctx, key, args, rest));
    rest->stage = TUTTI__STAGE_REST;
    return TUTTI_OK;
}
