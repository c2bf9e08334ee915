/* The gradient exchange, seen from the caller: which parameters there are, which are ready, which step it is. */
#include "tutti/grad_sync.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/exchange.h"
#include "core/params.h"
#include "tutti/layer.h"

/* Set-up: what the caller gave */

static tutti_status desc_check(const tutti_grad_sync_desc *desc, int world_size,
                               tutti_grad_sync_desc *wanted)
{
    *wanted = (tutti_grad_sync_desc)TUTTI_GRAD_SYNC_DESC_INIT;
    if (!desc) return TUTTI_OK;
    TUTTI_REQUIRE(desc->range_bytes > 0, "grad_sync_create: range_bytes is 0, want > 0");
    TUTTI_REQUIRE(desc->last_range_bytes > 0, "grad_sync_create: last_range_bytes is 0, want > 0");
    TUTTI_REQUIRE(desc->leaves >= 0 && desc->leaves <= TUTTI_LEAVES_MAX &&
                      (desc->leaves & (desc->leaves - 1)) == 0,
                  "grad_sync_create: leaves is %d, want 0 or a power of two up to %d", desc->leaves,
                  TUTTI_LEAVES_MAX);
    TUTTI_REQUIRE(desc->leaves == 0 || desc->leaves >= world_size,
                  "grad_sync_create: leaves is %d, want at least one for each of the %d ranks",
                  desc->leaves, world_size);
    *wanted = *desc;
    return TUTTI_OK;
}

static int by_param(const void *a, const void *b)
{
    uintptr_t p = (uintptr_t)((const tutti__sync_entry *)a)->param;
    uintptr_t q = (uintptr_t)((const tutti__sync_entry *)b)->param;
    return p < q ? -1 : p > q;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t p = (uintptr_t)(*(tutti__gradient *const *)a)->data;
    uintptr_t q = (uintptr_t)(*(tutti__gradient *const *)b)->data;
    return p < q ? -1 : p > q;
}

static tutti__sync_entry *find(const tutti_grad_sync *sync, const tutti_param *param)
{
    tutti__sync_entry key = {param, 0, false};
    return sync->entry_count
               ? bsearch(&key, sync->entries, (size_t)sync->entry_count, sizeof key, by_param)
               : NULL;
}

/* Adds a parameter to the exchange; one whose gradient is there already (tied) shares it. */
static tutti_status add(tutti_grad_sync *sync, const tutti_param *param)
{
    const tutti_tensor *grad = &param->grad;
    int64_t count = tutti_tensor_count(grad);
    if (!grad->data || count <= 0)
        return tutti__fail(TUTTI_ERR_ARG, "grad_sync_create: parameter '%s' has no gradient bound",
                           param->name);
    int g = 0;
    while (g < sync->gradient_count && sync->gradients[g].data != grad->data) g++;
    if (g == sync->gradient_count)
        sync->gradients[sync->gradient_count++] =
            (tutti__gradient){param, grad->data, count, grad->dtype, 0, -1, -1};
    else if (sync->gradients[g].count != count || sync->gradients[g].dtype != grad->dtype)
        return tutti__fail(TUTTI_ERR_ARG,
                           "grad_sync_create: '%s' and '%s' have one gradient buffer but differ in "
                           "shape or type",
                           sync->gradients[g].param->name, param->name);
    sync->gradients[g].users++;
    sync->entries[sync->entry_count++] = (tutti__sync_entry){param, g, false};
    return TUTTI_OK;
}

/* No two gradients overlap, no parameter is listed twice. */
static tutti_status check_memory(const tutti_grad_sync *sync)
{
    for (int i = 1; i < sync->entry_count; i++)
        TUTTI_REQUIRE(sync->entries[i - 1].param != sync->entries[i].param,
                      "grad_sync_create: parameter '%s' is listed twice",
                      sync->entries[i].param->name);
    size_t n = (size_t)sync->gradient_count;
    tutti__gradient **sorted = malloc((n + 1) * sizeof(tutti__gradient *));
    if (!sorted) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    for (size_t i = 0; i < n; i++) sorted[i] = &sync->gradients[i];
    qsort(sorted, n, sizeof *sorted, by_address);
    tutti_status status = TUTTI_OK;
    for (size_t i = 1; i < n && status == TUTTI_OK; i++) {
        const tutti__gradient *a = sorted[i - 1], *b = sorted[i];
        if (a->data + (size_t)a->count * tutti_dtype_size(a->dtype) > b->data)
            status = tutti__fail(TUTTI_ERR_ARG,
                                 "grad_sync_create: the gradients of '%s' and '%s' overlap",
                                 a->param->name, b->param->name);
    }
    free(sorted);
    return status;
}

/* Collects parameters (of the store, or of the list); local. */
static tutti_status collect(tutti_grad_sync *sync, const tutti_params *params,
                            const tutti_param *const *list, int count)
{
    size_t room = (size_t)(params ? params->entry_count : count) + 1;
    sync->entries = calloc(room, sizeof *sync->entries);
    sync->gradients = calloc(room, sizeof *sync->gradients);
    sync->missing = calloc(room, sizeof *sync->missing);
    if (!sync->entries || !sync->gradients || !sync->missing)
        return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    /* the store's slots first: they are in the order of backward */
    for (int i = 0; params && i < params->slot_count; i++)
        TUTTI_TRY(add(sync, params->slots[i].param));
    for (int i = 0; params && i < params->entry_count; i++)
        if (params->slots[params->entries[i].slot].param != params->entries[i].param)
            TUTTI_TRY(add(sync, params->entries[i].param));
    for (int i = 0; !params && i < count; i++) TUTTI_TRY(add(sync, list[i]));
    qsort(sync->entries, (size_t)sync->entry_count, sizeof *sync->entries, by_param);
    TUTTI_TRY(check_memory(sync));
    for (int g = 0; g < sync->gradient_count; g++) {
        sync->missing[g] = sync->gradients[g].users;
        sync->bytes +=
            sync->gradients[g].count * (int64_t)tutti_dtype_size(sync->gradients[g].dtype);
    }
    sync->gap = params ? TUTTI_PARAM_ALIGN - 1 : 0; /* the store's padding is zero */
    return tutti__ranges_layout(sync->gradients, sync->gradient_count, sync->gap, &sync->layout);
}

/* Cuts the gradients into ranges, the same on all ranks: where they lie in different ways, neighbours do not share
 * ranges. */
static tutti_status cut_ranges(tutti_grad_sync *sync)
{
    int64_t gap = sync->gap;
    char ranks[160];
    int differ, first;
    TUTTI_TRY(tutti__comm_compare(sync->comm, &sync->layout, 1, "grad_sync_create", &differ, &first,
                                  ranks, sizeof ranks));
    if (differ >= 0) gap = -1;
    tutti__range *cut;
    TUTTI_TRY(tutti__ranges_cut(sync->gradients, sync->gradient_count, gap, sync->desc.range_bytes,
                                sync->desc.last_range_bytes, &cut, &sync->range_count));
    sync->ranges = calloc((size_t)sync->range_count + 1, sizeof *sync->ranges);
    sync->issued = calloc((size_t)sync->range_count + 1, sizeof *sync->issued);
    for (int r = 0; sync->ranges && r < sync->range_count; r++) {
        sync->ranges[r].at = cut[r];
        sync->ranges[r].missing = cut[r].gradients;
    }
    free(cut);
    if (!sync->ranges) sync->range_count = 0; /* there are none to close */
    if (!sync->ranges || !sync->issued)
        return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    return TUTTI_OK;
}

/* Set-up: what the others gave */

static uint64_t signature(const tutti__gradient *gradient)
{
    const tutti_param *param = gradient->param;
    uint64_t hash = tutti__hash(TUTTI__HASH_START, param->name, strlen(param->name) + 1);
    const int32_t numbers[] = {(int32_t)gradient->dtype, (int32_t)param->value.dtype,
                               gradient->users, param->grad.ndim};
    hash = tutti__hash(hash, numbers, sizeof numbers);
    return tutti__hash(hash, param->grad.dims, (size_t)param->grad.ndim * sizeof(int64_t));
}

static void describe(const tutti_grad_sync *sync, int index, char *text, size_t size)
{
    if (index >= sync->gradient_count) {
        snprintf(text, size, "none");
        return;
    }
    const tutti_param *param = sync->gradients[index].param;
    int used = snprintf(text, size, "'%s' %s, gradient %s [", param->name,
                        tutti_dtype_name(param->value.dtype),
                        tutti_dtype_name(sync->gradients[index].dtype));
    for (int d = 0; d < param->grad.ndim && (size_t)used < size; d++)
        used += snprintf(text + used, size - (size_t)used, d ? ", %lld" : "%lld",
                         (long long)param->grad.dims[d]);
    if ((size_t)used < size) snprintf(text + used, size - (size_t)used, "]");
}

/* The same options, then the same parameters in the same order on all ranks. */
static tutti_status compare_ranks(tutti_grad_sync *sync)
{
    tutti_comm *comm = sync->comm;
    char ranks[160];
    int differ, first;
    const uint64_t options[] = {(uint64_t)sync->desc.range_bytes,
                                (uint64_t)sync->desc.last_range_bytes,
                                (uint64_t)(sync->desc.check != 0), (uint64_t)sync->desc.leaves};
    static const char *const names[] = {"range_bytes", "last_range_bytes", "check", "leaves"};
    TUTTI_TRY(tutti__comm_compare(comm, options, 4, "grad_sync_create", &differ, &first, ranks,
                                  sizeof ranks));
    if (differ >= 0)
        return tutti__fail(TUTTI_ERR_COMM,
                           "grad_sync_create: %s on %s differs from rank 0's; want one value on "
                           "all ranks",
                           names[differ], ranks);

    int32_t mine = sync->gradient_count, most = 0;
    int32_t *counts = calloc((size_t)comm->world_size, sizeof *counts);
    TUTTI_TRY(tutti_comm_agree(
        comm, counts ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory")));
    tutti_status status =
        comm->control->gather(comm, &mine, counts, sizeof mine, "grad_sync_create");
    for (int r = 0; r < comm->world_size; r++)
        if (counts[r] > most) most = counts[r];
    free(counts);
    TUTTI_TRY(status);

    uint64_t *values = calloc((size_t)most + 1, sizeof *values);
    TUTTI_TRY(tutti_comm_agree(
        comm, values ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory")));
    for (int g = 0; g < mine; g++) values[g] = signature(&sync->gradients[g]);
    status = tutti__comm_compare(comm, values, most, "grad_sync_create", &differ, &first, ranks,
                                 sizeof ranks);
    free(values);
    TUTTI_TRY(status);
    if (differ < 0) return TUTTI_OK;
    char here[192] = "", there[192] = "";
    describe(sync, differ, comm->rank == first ? there : here, sizeof here);
    TUTTI_TRY(comm->control->broadcast(comm, here, sizeof here, 0, "grad_sync_create"));
    TUTTI_TRY(comm->control->broadcast(comm, there, sizeof there, first, "grad_sync_create"));
    return tutti__fail(TUTTI_ERR_COMM,
                       "grad_sync_create: parameter %d is %s on rank 0 and %s on rank %d (%s "
                       "against rank 0); every rank must list the same parameters in one order",
                       differ, here, there, first, ranks);
}

static tutti_status watch_advance(void *self, double waited)
{
    tutti_grad_sync *sync = self;
    (void)waited; /* the stream does not wait for what flies here */
    if (sync->failed || sync->comm->dead) return TUTTI_OK; /* finish tells */
    return tutti__exchange_advance(sync);
}

/* A descriptor, and a store or a list; everything that can be wrong on this rank alone. */
static tutti_status check_and_collect(tutti_grad_sync *sync, tutti_context *ctx,
                                      const tutti_params *params, const tutti_param *const *list,
                                      int count, bool from_list, const tutti_grad_sync_desc *desc)
{
    tutti_comm *comm = sync->comm;
    TUTTI_REQUIRE(ctx, "grad_sync_create: ctx is NULL");
    TUTTI_REQUIRE(comm->backend == ctx->backend && comm->device == ctx->device,
                  "grad_sync_create: the communicator is on %s device %d, the context on %s device "
                  "%d",
                  comm->backend->name, comm->device, ctx->backend->name, ctx->device);
    TUTTI_TRY(desc_check(desc, comm->world_size, &sync->desc));
    TUTTI_TRY(tutti__leaves_open(&sync->leaves, sync->desc.leaves, comm->rank, comm->world_size));
    sync->leaf = sync->leaves.first;
    if (from_list) {
        TUTTI_REQUIRE(count >= 0, "grad_sync_create: count is %d, want >= 0", count);
        TUTTI_REQUIRE(list || count == 0, "grad_sync_create: list is NULL");
        for (int i = 0; i < count; i++)
            TUTTI_REQUIRE(list[i], "grad_sync_create: list[%d] is NULL", i);
    } else {
        TUTTI_REQUIRE(params, "grad_sync_create: params is NULL");
        TUTTI_TRY(tutti__params_ready(params, ctx, "grad_sync_create"));
    }
    return collect(sync, params, list, count);
}

static tutti_status create(tutti_comm *comm, tutti_context *ctx, const tutti_params *params,
                           const tutti_param *const *list, int count, bool from_list,
                           const tutti_grad_sync_desc *desc, tutti_grad_sync **sync)
{
    TUTTI_REQUIRE(comm, "grad_sync_create: comm is NULL");
    TUTTI_TRY(tutti__comm_alive(comm, "grad_sync_create"));
    tutti_grad_sync *made = calloc(1, sizeof *made);
    tutti_status status = TUTTI_OK;
    if (!made)
        status = tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    else if (!sync)
        status = tutti__fail(TUTTI_ERR_ARG, "grad_sync_create: sync is NULL");
    else {
        made->comm = comm;
        made->backend = comm->backend;
        made->device = comm->device;
        made->watch = (tutti__watch){NULL, made, watch_advance};
        status = check_and_collect(made, ctx, params, list, count, from_list, desc);
    }
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) status = compare_ranks(made);
    if (status == TUTTI_OK) status = tutti_comm_agree(comm, cut_ranges(made));
    if (status == TUTTI_OK) status = tutti_comm_agree(comm, tutti__exchange_open(made));
    if (status == TUTTI_OK && comm->transport->link_create)
        status = comm->transport->link_create(comm, &made->link);
    if (status != TUTTI_OK) {
        if (made && made->comm) tutti_grad_sync_destroy(&made);
        free(made);
        return status;
    }
    *sync = made;
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_create(tutti_comm *comm, tutti_context *ctx, tutti_params *params,
                                    const tutti_grad_sync_desc *desc, tutti_grad_sync **sync)
{
    return create(comm, ctx, params, NULL, 0, false, desc, sync);
}

tutti_status tutti_grad_sync_create_list(tutti_comm *comm, tutti_context *ctx,
                                         const tutti_param *const *list, int count,
                                         const tutti_grad_sync_desc *desc, tutti_grad_sync **sync)
{
    return create(comm, ctx, NULL, list, count, true, desc, sync);
}

void tutti_grad_sync_destroy(tutti_grad_sync **sync)
{
    if (!sync || !*sync) return;
    tutti_grad_sync *s = *sync;
    tutti__exchange_close(s);
    free(s->entries);
    free(s->gradients);
    free(s->missing);
    free(s->ranges);
    free(s->issued);
    free(s);
    *sync = NULL;
}

/* A step */

static tutti_status fail_for_good(tutti_grad_sync *sync, tutti_status status)
{
    sync->failed = true;
    snprintf(sync->why, sizeof sync->why, "%s", tutti_last_error());
    if (sync->watched) tutti__context_unwatch(sync->watched, &sync->watch);
    sync->watched = NULL;
    return status;
}

static tutti_status usable(const tutti_grad_sync *sync, const tutti_context *ctx, const char *who)
{
    TUTTI_REQUIRE(sync, "%s: sync is NULL", who);
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", who);
    TUTTI_REQUIRE(sync->backend == ctx->backend && sync->device == ctx->device,
                  "%s: the exchange is on %s device %d, the context on %s device %d", who,
                  sync->backend->name, sync->device, ctx->backend->name, ctx->device);
    TUTTI_TRY(tutti__comm_alive(sync->comm, who));
    if (sync->failed)
        return tutti__fail(TUTTI_ERR_COMM, "%s: the exchange has failed before: %s", who,
                           sync->why);
    bool capturing;
    TUTTI_TRY(ctx->backend->run.stream_capturing(ctx->device, ctx->stream, &capturing));
    if (!capturing) return TUTTI_OK;
    if (sync->comm->transport->style == TUTTI__STYLE_HOST)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: the mpi transport works on the host and cannot be captured; take "
                           "transport nccl",
                           who);
    if (sync->desc.check || sync->desc.timeline)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: desc.%s cannot be used while the stream is being captured", who,
                           sync->desc.check ? "check" : "timeline");
    return TUTTI_OK;
}

/* Every rank sends this range next; otherwise all of them learn which do not. */
static tutti_status check_range(tutti_grad_sync *sync, int r)
{
    const tutti__range *at = &sync->ranges[r].at;
    const uint64_t values[] = {(uint64_t)sync->steps, (uint64_t)r, (uint64_t)at->count,
                               (uint64_t)at->dtype};
    char ranks[160], here[192] = "", there[192] = "";
    int differ, first;
    TUTTI_TRY(tutti__comm_compare(sync->comm, values, 4, "gradient exchange (check)", &differ,
                                  &first, ranks, sizeof ranks));
    if (differ < 0) return TUTTI_OK;
    tutti_comm *comm = sync->comm;
    snprintf(comm->rank == first ? there : here, sizeof here, "range %d (step %lld, up to '%s')", r,
             (long long)sync->steps + 1, sync->gradients[at->last_gradient].param->name);
    TUTTI_TRY(comm->control->broadcast(comm, here, sizeof here, 0, "gradient exchange (check)"));
    TUTTI_TRY(
        comm->control->broadcast(comm, there, sizeof there, first, "gradient exchange (check)"));
    return tutti__fail(TUTTI_ERR_COMM,
                       "grad_sync_ready: rank 0 sends %s and rank %d sends %s (%s against rank 0); "
                       "call ready in one order on all ranks",
                       here, first, there, ranks);
}

static tutti_status begin_step(tutti_grad_sync *sync, tutti_context *ctx)
{
    if (sync->started) return TUTTI_OK;
    TUTTI_TRY(tutti__exchange_begin(sync, ctx));
    sync->started = true;
    sync->threads = ctx->threads;
    if (sync->comm->transport->style == TUTTI__STYLE_HOST) {
        tutti__context_watch(ctx, &sync->watch);
        sync->watched = ctx;
    }
    return tutti__exchange_mark(sync, &sync->times[sync->current].start, ctx->stream);
}

static bool goes_out(const tutti__exchange_range *range)
{
    return range->missing == 0 && range->state == TUTTI__RANGE_OPEN;
}

static bool last_leaf(const tutti_grad_sync *sync)
{
    return sync->leaf == sync->leaves.first + sync->leaves.count - 1;
}

/* These parameters' gradients are complete on this rank (in this leaf); ranges that are so too go out, in their order. */
static tutti_status ready(tutti_grad_sync *sync, tutti_context *ctx,
                          tutti__sync_entry *const *entries, int count)
{
    sync->forked = false;
    tutti_status status = begin_step(sync, ctx);
    int first = sync->range_count, last = -1;
    for (int i = 0; i < count; i++) {
        const tutti__gradient *gradient = &sync->gradients[entries[i]->gradient];
        entries[i]->ready = true;
        if (--sync->missing[entries[i]->gradient] > 0) continue;
        for (int r = gradient->first_range; r <= gradient->last_range; r++)
            sync->ranges[r].missing--;
        if (gradient->first_range < first) first = gradient->first_range;
        if (gradient->last_range > last) last = gradient->last_range;
    }
    for (int r = first; r <= last && status == TUTTI_OK && sync->leaves.total; r++) {
        if (!goes_out(&sync->ranges[r])) continue;
        status = tutti__tree_merge(sync, ctx, r);
        if (!last_leaf(sync)) sync->ranges[r].state = TUTTI__RANGE_MERGED;
    }
    for (int r = first; r <= last && status == TUTTI_OK; r++)
        if (goes_out(&sync->ranges[r])) status = tutti__exchange_complete(sync, ctx, r);
    for (int r = first; r <= last && status == TUTTI_OK; r++) {
        if (!goes_out(&sync->ranges[r])) continue;
        if (sync->desc.check) status = check_range(sync, r);
        if (status == TUTTI_OK) status = tutti__exchange_issue(sync, ctx, r);
    }
    if (status == TUTTI_OK && sync->comm->transport->style == TUTTI__STYLE_HOST)
        status = tutti__exchange_advance(sync);
    return status == TUTTI_OK ? TUTTI_OK : fail_for_good(sync, status);
}

static tutti_status ready_twice(const tutti_grad_sync *sync, const tutti__sync_entry *entry,
                                const char *who)
{
    return tutti__fail(TUTTI_ERR_STATE, "%s: '%s' was ready before in this %s", who,
                       entry->param->name, sync->leaves.total ? "leaf" : "step");
}

/* Reproducible mode: ready belongs into a leaf. */
static tutti_status in_leaf(const tutti_grad_sync *sync, const char *who)
{
    if (!sync->leaves.total || sync->in_leaf) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE, "%s: no leaf has begun; call grad_sync_leaf_begin first",
                       who);
}

/* Names a parameter that is not ready, if there is one. */
static tutti_status all_ready(const tutti_grad_sync *sync, const char *who)
{
    for (int g = 0; g < sync->gradient_count; g++) {
        if (sync->missing[g] == 0) continue;
        const tutti_param *param = sync->gradients[g].param;
        for (int i = 0; i < sync->entry_count; i++)
            if (sync->entries[i].gradient == g && !sync->entries[i].ready)
                param = sync->entries[i].param;
        return tutti__fail(TUTTI_ERR_STATE, "%s: '%s' is not ready in this %s", who, param->name,
                           sync->leaves.total ? "leaf" : "step");
    }
    return TUTTI_OK;
}

/* All gradients are to come again. */
static void reopen(tutti_grad_sync *sync)
{
    for (int i = 0; i < sync->entry_count; i++) sync->entries[i].ready = false;
    for (int g = 0; g < sync->gradient_count; g++) sync->missing[g] = sync->gradients[g].users;
    for (int r = 0; r < sync->range_count; r++) {
        sync->ranges[r].missing = sync->ranges[r].at.gradients;
        sync->ranges[r].state = TUTTI__RANGE_OPEN;
    }
}

tutti_status tutti_grad_sync_ready(tutti_grad_sync *sync, tutti_context *ctx, tutti_layer *layer)
{
    static const char who[] = "grad_sync_ready";
    TUTTI_TRY(usable(sync, ctx, who));
    TUTTI_REQUIRE(layer, "%s: layer is NULL", who);
    TUTTI_TRY(in_leaf(sync, who));
    enum { BATCH = 16 };
    tutti__sync_entry *found[BATCH];
    int count = 0, params = tutti_layer_param_count(layer);
    TUTTI_ASSERT(params <= BATCH);
    for (int i = 0; i < params; i++) {
        tutti__sync_entry *entry = find(sync, tutti_layer_param(layer, i));
        if (!entry) continue; /* not trained */
        if (entry->ready) return ready_twice(sync, entry, who);
        found[count++] = entry;
    }
    TUTTI_REQUIRE(count > 0, "%s: no parameter of this layer is part of the exchange", who);
    return ready(sync, ctx, found, count);
}

tutti_status tutti_grad_sync_ready_param(tutti_grad_sync *sync, tutti_context *ctx,
                                         const tutti_param *param)
{
    static const char who[] = "grad_sync_ready_param";
    TUTTI_TRY(usable(sync, ctx, who));
    TUTTI_REQUIRE(param, "%s: param is NULL", who);
    tutti__sync_entry *entry = find(sync, param);
    TUTTI_REQUIRE(entry, "%s: '%s' is not part of the exchange", who, param->name);
    TUTTI_TRY(in_leaf(sync, who));
    if (entry->ready) return ready_twice(sync, entry, who);
    return ready(sync, ctx, &entry, 1);
}

/* Leaves */

tutti_status tutti_grad_sync_own_leaves(const tutti_grad_sync *sync, int *first, int *count)
{
    static const char who[] = "grad_sync_own_leaves";
    TUTTI_REQUIRE(sync, "%s: sync is NULL", who);
    TUTTI_REQUIRE(first && count, "%s: %s is NULL", who, first ? "count" : "first");
    if (!sync->leaves.total)
        return tutti__fail(TUTTI_ERR_STATE, "%s: desc.leaves is 0: there are none in fast mode",
                           who);
    *first = sync->leaves.first;
    *count = sync->leaves.count;
    return TUTTI_OK;
}

/* This leaf is the next one. */
static tutti_status leaf_check(const tutti_grad_sync *sync, const tutti_context *ctx, int leaf,
                               const char *who)
{
    const tutti__leaves *leaves = sync ? &sync->leaves : NULL;
    TUTTI_TRY(usable(sync, ctx, who));
    if (!leaves->total)
        return tutti__fail(TUTTI_ERR_STATE, "%s: desc.leaves is 0: there are none in fast mode",
                           who);
    if (sync->leaf == leaves->first + leaves->count)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: all leaves of this rank have ended; call grad_sync_finish", who);
    TUTTI_REQUIRE(leaf == sync->leaf,
                  "%s: leaf is %d, want %d: this rank has leaves %d to %d, one after the other",
                  who, leaf, sync->leaf, leaves->first, leaves->first + leaves->count - 1);
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_leaf_begin(tutti_grad_sync *sync, tutti_context *ctx, int leaf)
{
    static const char who[] = "grad_sync_leaf_begin";
    TUTTI_TRY(leaf_check(sync, ctx, leaf, who));
    if (sync->in_leaf)
        return tutti__fail(TUTTI_ERR_STATE, "%s: leaf %d has not ended", who, sync->leaf);
    sync->in_leaf = true;
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_leaf_end(tutti_grad_sync *sync, tutti_context *ctx, int leaf)
{
    static const char who[] = "grad_sync_leaf_end";
    TUTTI_TRY(leaf_check(sync, ctx, leaf, who));
    if (!sync->in_leaf)
        return tutti__fail(TUTTI_ERR_STATE, "%s: leaf %d has not begun", who, sync->leaf);
    TUTTI_TRY(all_ready(sync, who));
    if (!last_leaf(sync)) reopen(sync);
    sync->in_leaf = false;
    sync->leaf++;
    return TUTTI_OK;
}

/* Everything as before the first ready. */
static void next_step(tutti_grad_sync *sync)
{
    reopen(sync);
    sync->leaf = sync->leaves.first;
    sync->issued_count = sync->started_count = sync->done_count = 0;
    sync->started = false;
    if (sync->watched) tutti__context_unwatch(sync->watched, &sync->watch);
    sync->watched = NULL;
    sync->current = !sync->current;
    sync->steps++;
}

tutti_status tutti_grad_sync_finish(tutti_grad_sync *sync, tutti_context *ctx)
{
    static const char who[] = "grad_sync_finish";
    TUTTI_TRY(usable(sync, ctx, who));
    if (sync->leaf < sync->leaves.first + sync->leaves.count)
        return tutti__fail(TUTTI_ERR_STATE, "%s: leaf %d has not %s", who, sync->leaf,
                           sync->in_leaf ? "ended" : "begun");
    TUTTI_TRY(all_ready(sync, who));
    tutti_status status = begin_step(sync, ctx); /* an exchange of nothing */
    if (status == TUTTI_OK) status = tutti__exchange_finish(sync, ctx);
    if (status != TUTTI_OK) return fail_for_good(sync, status);
    next_step(sync);
    return TUTTI_OK;
}

/* What became of it */

tutti_status tutti_grad_sync_get_info(const tutti_grad_sync *sync, tutti_grad_sync_info *info)
{
    TUTTI_REQUIRE(sync, "grad_sync_get_info: sync is NULL");
    TUTTI_REQUIRE(info, "grad_sync_get_info: info is NULL");
    *info = (tutti_grad_sync_info){sync->range_count, sync->bytes, sync->wait_seconds, sync->steps,
                                   sync->bytes_sent};
    return TUTTI_OK;
}

static tutti_status since_start(const tutti_grad_sync *sync, const tutti__timeline *times,
                                const tutti__mark *mark, double *ms)
{
    if (mark->event)
        return sync->backend->run.event_elapsed(sync->device, times->start.event, mark->event, ms);
    *ms = (mark->time - times->start.time) * 1e3;
    return TUTTI_OK;
}

/* All events of a step have happened. */
static tutti_status wait_for_times(tutti_grad_sync *sync, const tutti__timeline *times)
{
    tutti__wait wait = tutti__wait_begin(sync->comm, "gradient exchange", sync->comm->sequence);
    for (int r = -1; r < sync->range_count;) {
        const tutti__mark *mark = r < 0 ? &times->finish : &times->end[r];
        bool done = true;
        if (mark->event)
            TUTTI_TRY(sync->backend->run.event_query(sync->device, mark->event, &done));
        if (done) {
            r++;
            continue;
        }
        if (sync->comm->transport->poll) TUTTI_TRY(sync->comm->transport->poll(sync->comm));
        TUTTI_TRY(tutti__wait_poll(&wait));
    }
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_get_timeline(tutti_grad_sync *sync, double *ready, double *begin,
                                          double *end, double *finish)
{
    static const char who[] = "grad_sync_get_timeline";
    TUTTI_REQUIRE(sync, "%s: sync is NULL", who);
    if (!sync->desc.timeline)
        return tutti__fail(TUTTI_ERR_STATE, "%s: desc.timeline was not set", who);
    if (sync->steps == 0)
        return tutti__fail(TUTTI_ERR_STATE, "%s: no step has been finished yet", who);
    TUTTI_TRY(tutti__comm_alive(sync->comm, who));
    const tutti__timeline *times = &sync->times[!sync->current];
    TUTTI_TRY(wait_for_times(sync, times));
    for (int r = 0; r < sync->range_count; r++) {
        if (ready) TUTTI_TRY(since_start(sync, times, &times->ready[r], &ready[r]));
        if (begin) TUTTI_TRY(since_start(sync, times, &times->begin[r], &begin[r]));
        if (end) TUTTI_TRY(since_start(sync, times, &times->end[r], &end[r]));
    }
    if (finish) TUTTI_TRY(since_start(sync, times, &times->finish, finish));
    return TUTTI_OK;
}
