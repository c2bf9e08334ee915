/* Opening and closing a gradient exchange: which gradients there are, how they are cut into ranges, and that all ranks mean
 * the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/agree.h"
#include "comm/control.h"
#include "comm/exchange.h"
#include "comm/life.h"
#include "core/params.h"

/* What the caller gave */

tutti_grad_sync_desc tutti_grad_sync_desc_default(void)
{
    return (tutti_grad_sync_desc)TUTTI_GRAD_SYNC_DESC_INIT;
}

static tutti_status desc_check(const tutti_grad_sync_desc *given, int world_size,
                               tutti_grad_sync_desc *own)
{
    TUTTI_TRY(tutti__desc_read(own, sizeof *own, given, "grad_sync_create"));
    if (own->range_bytes == 0) own->range_bytes = (size_t)32 << 20;
    if (own->last_range_bytes == 0) own->last_range_bytes = (size_t)1 << 20;
    TUTTI_REQUIRE(own->leaves >= 0 && own->leaves <= TUTTI_LEAVES_MAX &&
                      (own->leaves & (own->leaves - 1)) == 0,
                  "grad_sync_create: leaves is %d, want 0 or a power of two up to %d", own->leaves,
                  TUTTI_LEAVES_MAX);
    TUTTI_REQUIRE(own->leaves == 0 || own->leaves >= world_size,
                  "grad_sync_create: leaves is %d, want at least one for each of the %d ranks",
                  own->leaves, world_size);
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

tutti__sync_entry *tutti__sync_find(const tutti_grad_sync *sync, const tutti_param *param)
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

/* Another one further down the list shares this one's gradient, which is complete when that one is ready. */
static bool shared_later(const tutti_param *const *list, int count, int i)
{
    for (int j = i + 1; j < count; j++)
        if (list[j]->grad.data == list[i]->grad.data) return true;
    return false;
}

/* Collects parameters (of the store, or of the list) in the order in which their gradients are complete, which is the order in
 * which they go out; local. */
static tutti_status collect(tutti_grad_sync *sync, const tutti_params *params,
                            const tutti_param *const *list, int count)
{
    size_t room = (size_t)(params ? params->entry_count : count) + 1;
    sync->entries = calloc(room, sizeof *sync->entries);
    sync->gradients = calloc(room, sizeof *sync->gradients);
    sync->missing = calloc(room, sizeof *sync->missing);
    if (!sync->entries || !sync->gradients || !sync->missing)
        return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    /* the store's slots first: a tied one has the place of the layer that was added first, and is done last */
    for (int i = 0; params && i < params->slot_count; i++)
        TUTTI_TRY(add(sync, params->slots[i].param));
    for (int i = 0; params && i < params->entry_count; i++)
        if (params->slots[params->entries[i].slot].param != params->entries[i].param)
            TUTTI_TRY(add(sync, params->entries[i].param));
    for (int late = 0; !params && late < 2; late++)
        for (int i = 0; i < count; i++)
            if (shared_later(list, count, i) == late) TUTTI_TRY(add(sync, list[i]));
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
    for (int r = 0; sync->ranges && r < sync->range_count; r++) {
        sync->ranges[r].at = cut[r];
        sync->ranges[r].missing = cut[r].gradients;
    }
    free(cut);
    if (sync->ranges) return TUTTI_OK;
    sync->range_count = 0; /* there are none to close */
    return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
}

/* What the others gave */

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
                                (uint64_t)sync->desc.last_range_bytes, (uint64_t)sync->desc.leaves};
    static const char *const names[] = {"range_bytes", "last_range_bytes", "leaves"};
    TUTTI_TRY(tutti__comm_compare(comm, options, 3, "grad_sync_create", &differ, &first, ranks,
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
    if (sync->comm->control->thread)
        TUTTI_TRY(
            sync->comm->control->thread(sync->comm, "a call on a context with sums under way"));
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

static tutti_status create(tutti_context *ctx, tutti_comm *comm, tutti_params *params,
                           const tutti_param *const *list, int count, bool from_list,
                           const tutti_grad_sync_desc *desc, tutti_grad_sync **sync)
{
    TUTTI_REQUIRE(comm, "grad_sync_create: comm is NULL");
    TUTTI_TRY(tutti__comm_open(comm, "grad_sync_create"));
    tutti_grad_sync *made = calloc(1, sizeof *made);
    tutti_status status = TUTTI_OK;
    if (!made)
        status = tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    else if (!sync)
        status = tutti__fail(TUTTI_ERR_ARG, "grad_sync_create: sync is NULL");
    else {
        made->sink.ready = tutti__sync_sink_ready;
        made->comm = comm;
        tutti__hold(&comm->holders);
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
    if (params) {
        made->params = params;
        tutti__hold(&params->holders);
        params->exchanges++;
        params->summed = false;
    }
    *sync = made;
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_create(tutti_context *ctx, tutti_comm *comm, tutti_params *params,
                                    const tutti_grad_sync_desc *desc, tutti_grad_sync **sync)
{
    return create(ctx, comm, params, NULL, 0, false, desc, sync);
}

tutti_status tutti_grad_sync_create_list(tutti_context *ctx, tutti_comm *comm,
                                         const tutti_param *const *list, int count,
                                         const tutti_grad_sync_desc *desc, tutti_grad_sync **sync)
{
    return create(ctx, comm, NULL, list, count, true, desc, sync);
}

void tutti_grad_sync_destroy(tutti_grad_sync **sync)
{
    if (!sync || !*sync) return;
    tutti_grad_sync *s = *sync;
    tutti__exchange_close(s);
    if (s->params) {
        s->params->exchanges--;
        tutti__params_release(s->params);
    }
    tutti__comm_release(s->comm);
    free(s->entries);
    free(s->gradients);
    free(s->missing);
    free(s->ranges);
    free(s);
    *sync = NULL;
}
