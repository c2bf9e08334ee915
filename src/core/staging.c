/* See staging.h. */
#include "core/staging.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4, LEAST = 1 << 16 };

typedef struct slot {
    void *data;
    size_t bytes;
    tutti__event copied;
    bool used; /* since `copied` was waited for */
} slot;

struct tutti__staging {
    slot slots[SLOTS];
    unsigned next;
};

static tutti_status make_room(const tutti_context *ctx, slot *s, size_t bytes)
{
    const tutti__runtime *run = &ctx->backend->run;
    if (!s->copied) TUTTI_TRY(run->event_create(ctx->device, false, &s->copied));
    if (s->bytes >= bytes) return TUTTI_OK;
    if (s->data) run->host_free(ctx->device, s->data);
    s->data = NULL;
    s->bytes = 0;
    size_t room = LEAST;
    while (room < bytes) room *= 2;
    TUTTI_TRY(run->host_alloc(ctx->device, room, &s->data));
    s->bytes = room;
    return TUTTI_OK;
}

tutti_status tutti__staged_copy(tutti_context *ctx, void *dst, const void *src, size_t bytes)
{
    const tutti__runtime *run = &ctx->backend->run;
    if (!ctx->staging) ctx->staging = calloc(1, sizeof *ctx->staging);
    if (!ctx->staging) return tutti__fail(TUTTI_ERR_MEMORY, "copy: no memory");
    slot *s = &ctx->staging->slots[ctx->staging->next++ % SLOTS];
    if (s->used) TUTTI_TRY(tutti__context_wait(ctx, s->copied));
    s->used = false;
    tutti_status status = make_room(ctx, s, bytes);
    if (status == TUTTI_ERR_MEMORY) { /* no page-locked memory is to be had */
        if (ctx->progress) TUTTI_TRY(tutti_context_synchronize(ctx));
        return run->copy(ctx->device, ctx->stream, dst, src, bytes);
    }
    if (status != TUTTI_OK) return status;
    memcpy(s->data, src, bytes);
    TUTTI_TRY(run->copy(ctx->device, ctx->stream, dst, s->data, bytes));
    status = run->event_record(ctx->device, s->copied, ctx->stream);
    s->used = status == TUTTI_OK;
    if (!s->used) (void)tutti_context_synchronize(ctx);
    return status;
}

void tutti__staging_drop(tutti_context *ctx, bool idle)
{
    const tutti__runtime *run = &ctx->backend->run;
    for (int i = 0; ctx->staging && idle && i < SLOTS; i++) {
        const slot *s = &ctx->staging->slots[i];
        if (s->data) run->host_free(ctx->device, s->data);
        if (s->copied) run->event_destroy(ctx->device, s->copied);
    }
    free(ctx->staging);
    ctx->staging = NULL;
}
