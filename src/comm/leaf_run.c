/* Runs of several leaves: backward gives each leaf's gradients, which are added without passing
 * through the parameters' gradients, but for a rank's only pair whose sum is formed there.  Those
 * of a shared gradient are kept apart until its last user has added to each: a sum over users
 * before that over leaves, as in runs of one leaf. */
#include <stdlib.h>

#include "comm/sync.h"

bool tutti__run_adds_leaves(const tutti__ready_sink *self, int leaves)
{
    const tutti_grad_sync *sync = (const tutti_grad_sync *)self;
    return sync->leaves.total && (leaves != 1 || sync->run > 1);
}

static size_t bytes_of(const tutti__gradient *gradient)
{
    return ((size_t)gradient->count * tutti__size_of(gradient->dtype) + 255) / 256 * 256;
}

tutti_status tutti__run_open(tutti_grad_sync *sync)
{
    const tutti__gradients *gradients = &sync->gradients;
    const tutti__leaves *leaves = &sync->leaves;
    tutti_comm *comm = sync->comm;
    size_t bytes = 0;
    if (!leaves->total || leaves->count == 1) return TUTTI_OK;
    for (int g = 0; g < gradients->count; g++)
        if (gradients->list[g].users > 1) bytes += bytes_of(&gradients->list[g]);
    if (bytes == 0) return TUTTI_OK;
    bytes *= (size_t)leaves->count;
    TUTTI_TRY(comm->backend->run.alloc(comm->device, bytes, &sync->shared));
    sync->engine.bytes_held += (int64_t)bytes;
    char *at = sync->shared;
    for (int g = 0; g < gradients->count; g++) {
        if (gradients->list[g].users == 1) continue;
        gradients->list[g].leaves = at;
        at += (size_t)leaves->count * bytes_of(&gradients->list[g]);
    }
    return TUTTI_OK;
}

void tutti__run_close(tutti_grad_sync *sync)
{
    if (sync->shared) sync->comm->backend->run.free(sync->comm->device, sync->shared);
}

tutti_status tutti__run_leaf_grads(const tutti__ready_sink *self, const tutti_context *ctx,
                                   const tutti_param *param, int leaves, tutti__leaf_grads *grads)
{
    static const char who[] = "grad_sync";
    const tutti_grad_sync *sync = (const tutti_grad_sync *)self;
    const tutti__sync_entry *entry = tutti__gradients_find(&sync->gradients, param);
    TUTTI_TRY(tutti__sync_usable(sync, ctx, who));
    if (sync->run == 0)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: no leaf has begun; call tutti_grad_sync_leaves_begin first", who);
    TUTTI_REQUIRE(leaves == sync->run, "%s: the call has %d leaves, want the %d that have begun",
                  who, leaves, sync->run);
    TUTTI_REQUIRE(entry, "%s: '%s' is not part of the exchange", who, param->name);
    if (entry->given)
        return tutti__fail(TUTTI_ERR_STATE, "%s: the leaves of '%s' have already been added", who,
                           param->name);
    const tutti__gradient *gradient = &sync->gradients.list[entry->gradient];
    const bool pairs = !gradient->leaves && sync->leaf % 2 == 0;
    *grads = (tutti__leaf_grads){.data = gradient->leaves,
                                 .apart = bytes_of(gradient),
                                 .span = 1,
                                 .given = gradient->given > 0,
                                 .pairs = pairs};
    /* a caller's gradients may lie where products have other algorithms, with other bits */
    if (pairs && leaves == 2 && sync->leaves.count == 2 && (uintptr_t)gradient->data % 16 == 0)
        grads->sum = gradient->data;
    return TUTTI_OK;
}

static tutti_status merge(tutti_grad_sync *sync, tutti_context *ctx,
                          const tutti__gradient *gradient, int first, int count,
                          const tutti__leaf_grads *grads)
{
    tutti__engine *engine = &sync->engine;
    const size_t size = tutti__size_of(gradient->dtype);
    const char *end = gradient->data + (size_t)gradient->count * size;
    TUTTI_TRY(tutti__sync_begin_step(sync, ctx));
    for (int r = gradient->first_range; r <= gradient->last_range; r++) {
        const tutti__range *range = &engine->ranges[r].gradient;
        const char *range_end = range->data + (size_t)range->count * size;
        const char *from = range->data > gradient->data ? range->data : gradient->data;
        const char *to = range_end < end ? range_end : end;
        if (from >= to) continue;
        const tutti__leaf_part part = {
            .first = sync->leaf + first,
            .leaves = count,
            .span = grads->span,
            .begin = (int64_t)((size_t)(from - range->data) / size),
            .count = (int64_t)((size_t)(to - from) / size),
            .data = grads->data + (from - gradient->data),
            .apart = grads->apart,
        };
        TUTTI_TRY(engine->table->merge(engine, ctx, r, &part));
    }
    return TUTTI_OK;
}

tutti_status tutti__run_add_leaves(tutti__ready_sink *self, tutti_context *ctx,
                                   const tutti_param *param, int first, int count,
                                   const tutti__leaf_grads *grads)
{
    tutti_grad_sync *sync = (tutti_grad_sync *)self;
    tutti__sync_entry *entry = tutti__gradients_find(&sync->gradients, param);
    tutti__gradient *gradient = &sync->gradients.list[entry->gradient];
    const tutti__leaf_grads kept = {
        .data = gradient->leaves, .apart = bytes_of(gradient), .span = 1};
    const bool all = first + count == sync->run;
    tutti_status status = TUTTI_OK;
    if (all) {
        entry->given = true;
        gradient->given++;
    }
    if (!gradient->leaves)
        status = merge(sync, ctx, gradient, first, count, grads);
    else if (gradient->given == gradient->users)
        status = merge(sync, ctx, gradient, 0, sync->run, &kept);
    return status == TUTTI_OK ? TUTTI_OK : tutti__sync_fail(sync, status);
}

tutti_status tutti__run_lose(tutti__ready_sink *self, tutti_status status)
{
    return tutti__sync_fail((tutti_grad_sync *)self, status);
}
