/* Exchanges of sharded stores: the memory that they hold, sums that are waited for one by one, the
 * check of values, wrong calls, and engines that cannot be used. */
#include <stdio.h>
#include <stdlib.h>

#include "shard.h"

static bool has_padding(const tutti_params *store, const tutti__span *range)
{
    const int64_t end = range->first + range->count;
    for (int i = 0; i < store->trained_slots; i++) {
        const int64_t first = store->slots[i].offset + store->slots[i].count;
        const int64_t next =
            i + 1 < store->trained_slots ? store->slots[i + 1].offset : store->trained;
        if (first < next && first < end && next > range->first) return true;
    }
    return false;
}

/* Elements of a rank's slice: equal numbers of whole runs, but at the range's end. */
static int64_t slice_of(const tutti__span *range, int rank)
{
    const int64_t runs = (range->count + TUTTI__NORM_RUN - 1) / TUTTI__NORM_RUN;
    const int64_t each = (runs + rig_size() - 1) / rig_size() * TUTTI__NORM_RUN;
    const int64_t begin = rank * each,
                  end = begin + each < range->count ? begin + each : range->count;
    return end > begin ? end - begin : 0;
}

/* By copy engines: others' parts of a slice, of the first range, of small ones and of those for
 * which the gradients of the range before have no room; and what small sums need. */
static int64_t most_received(const tutti_params *store)
{
    int64_t bytes = (int64_t)tutti__hop_inbox_bytes(rig_size());
    for (int r = 0; r < store->range_count; r++) {
        const tutti__span *range = &store->ranges[r];
        const int64_t slice = slice_of(range, 0);
        if (r == 0 || 8 * range->count <= store->ranges[0].count ||
            slice > slice_of(range - 1, rig_size() - 1) || has_padding(store, range - 1))
            bytes += (rig_size() - 1) * (slice * (int64_t)sizeof(float) + 256);
    }
    return bytes;
}

/* Memory besides the store's: in host memory what two ranges receive, by copy engines
 * most_received. */
void shard_held(tutti_context *ctx, tutti_comm *comm)
{
    pair p;
    shard_open_pair(ctx, comm, &p);
    tutti_grad_sync_info info;
    CHECK_OK(tutti_grad_sync_get_info(p.sync, &info));
    int64_t largest = 0;
    for (int r = 0; r < p.model.store->range_count; r++)
        if (p.model.store->ranges[r].count > largest) largest = p.model.store->ranges[r].count;
    if (tutti_comm_transport(comm) != TUTTI_TRANSPORT_NCCL &&
        tutti_context_backend(ctx) == TUTTI_BACKEND_HOST)
        CHECK(info.bytes_held <= 2 * largest * (int64_t)sizeof(float),
              "the exchange holds %lld bytes, a range has %lld", (long long)info.bytes_held,
              (long long)(largest * (int64_t)sizeof(float)));
    if (shard_engine == TUTTI_ENGINE_COPY)
        CHECK(info.bytes_held <= most_received(p.model.store),
              "the exchange holds %lld bytes, want at most %lld", (long long)info.bytes_held,
              (long long)most_received(p.model.store));
    CHECK(info.ranges == p.model.store->range_count && info.ranges > 2, "%d ranges", info.ranges);
    shard_close_pair(&p);
}

/* Each range's sum is waited for before the next one is ready, in which others' pieces take its
 * place. */
void shard_in_turn(tutti_context *ctx, tutti_comm *comm)
{
    enum { COUNT = 4, RUN = TUTTI__NORM_RUN };
    const int world = rig_size(), rank = rig_rank();
    const tutti_params_desc desc = shard_desc(&shard_types[0], world, rank, 1);
    tutti_grad_sync_desc options = TUTTI_GRAD_SYNC_DESC_INIT;
    tutti_context *other = harness_new_context(tutti_context_device(ctx), 1);
    tutti_grad_sync *sync = NULL;
    tutti_params *store = NULL;
    tutti_param params[COUNT];
    double *values = harness_calloc((size_t)(world * RUN), sizeof *values);
    options.engine = shard_engine;
    CHECK_OK(tutti_params_create(ctx, &desc, &store));
    for (int i = 0; i < COUNT; i++) {
        params[i] = (tutti_param){.name = {(char)('a' + i)},
                                  .value = tutti_tensor_1d(NULL, TUTTI_F32, world * RUN)};
        CHECK_OK(tutti_params_add_param(store, &params[i]));
    }
    CHECK_OK(tutti_params_build(store, ctx));
    CHECK_OK(tutti_grad_sync_create(ctx, comm, store, &options, &sync));
    CHECK(store->range_count == COUNT, "%d ranges, want one a parameter", store->range_count);
    for (int step = 0; step < 3; step++) {
        for (int i = COUNT - 1; i >= 0; i--) {
            const double part = (step + 1) * (i + 1), want = part * world * (world + 1) / 2;
            for (int k = 0; k < world * RUN; k++) values[k] = part * (rank + 1);
            harness_put(ctx, &params[i].grad, values);
            CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &params[i]));
            CHECK_OK(tutti_grad_sync_wait(sync, other, &params[i]));
            harness_get(other, &params[i].grad, values);
            int wrong = 0;
            for (int k = rank * RUN; k < (rank + 1) * RUN; k++) wrong += values[k] != want;
            CHECK(wrong == 0, "step %d: %d elements of the sum of '%s' are wrong", step, wrong,
                  params[i].name);
        }
        CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    }
    free(values);
    tutti_grad_sync_destroy(&sync);
    tutti_params_destroy(&store);
    tutti_context_destroy(&other);
}

/* Values that differ on a rank, whose masters are elsewhere, are found. */
void shard_diverged(tutti_context *ctx, tutti_comm *comm)
{
    pair p;
    shard_open_pair(ctx, comm, &p);
    model *m = &p.model;
    CHECK_OK(tutti_comm_check_params(comm, ctx, m->store, NULL, 0));
    const double other[1] = {77};
    static const int changed[] = {7, 1}; /* the first one of the layout, and another */
    for (int i = 0; i < 2; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", changed[i]);
        const tutti_tensor first = tutti_tensor_1d(m->params[changed[i]].value.data, TUTTI_BF16, 1);
        if (rig_rank() == rig_size() - 1) harness_put(ctx, &first, other);
        CHECK_FAILS(TUTTI_ERR_DATA, name, tutti_comm_check_params(comm, ctx, m->store, NULL, 0));
        /* and made equal again from the masters */
        CHECK_OK(tutti_params_refresh(m->store, ctx));
        CHECK_OK(tutti_comm_check_params(comm, ctx, m->store, NULL, 0));
    }
    shard_close_pair(&p);
}
/* Wrong calls */

void shard_refused(tutti_context *ctx, tutti_comm *comm)
{
    const types *types = &shard_types[3];
    const int world = rig_size(), rank = rig_rank();
    tutti_params_desc desc = shard_desc(types, -1, 0, 0);
    tutti_params *store = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "shards is -1", tutti_params_create(ctx, &desc, &store));
    desc = shard_desc(types, 3, 3, 0);
    CHECK_FAILS(TUTTI_ERR_ARG, "shard is 3", tutti_params_create(ctx, &desc, &store));
    desc = shard_desc(types, 0, 1, 0);
    CHECK_FAILS(TUTTI_ERR_ARG, "shard is 1", tutti_params_create(ctx, &desc, &store));
    desc = shard_desc(types, 0, 0, 4096);
    CHECK_FAILS(TUTTI_ERR_ARG, "range_bytes is 4096", tutti_params_create(ctx, &desc, &store));

    /* of other ranks than the communicator's */
    desc = shard_desc(types, world + 1, rank, 0);
    model m = shard_make(ctx, &desc);
    shard_build(&m, types);
    tutti_grad_sync *sync = NULL, *second = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "shard", tutti_grad_sync_create(ctx, comm, m.store, NULL, &sync));
    shard_set_step(&m, 0);
    CHECK_FAILS(TUTTI_ERR_STATE, "no exchange", tutti_adamw_update(m.adamw, ctx, m.step));
    CHECK_FAILS(TUTTI_ERR_STATE, "no exchange", tutti_params_refresh(m.store, ctx));
    shard_drop(&m);

    desc = shard_desc(types, world, rank, 0);
    m = shard_make(ctx, &desc);
    shard_build(&m, types);
    tutti_grad_sync_desc ranges = TUTTI_GRAD_SYNC_DESC_INIT;
    ranges.range_bytes = 1 << 20;
    CHECK_FAILS(TUTTI_ERR_ARG, "range_bytes",
                tutti_grad_sync_create(ctx, comm, m.store, &ranges, &sync));
    CHECK_OK(tutti_grad_sync_create(ctx, comm, m.store, NULL, &sync));
    if (world > 1)
        CHECK_FAILS(TUTTI_ERR_STATE, "already",
                    tutti_grad_sync_create(ctx, comm, m.store, NULL, &second));
    shard_set_step(&m, 0);
    CHECK_FAILS(TUTTI_ERR_STATE, "not summed", tutti_adamw_update(m.adamw, ctx, m.step));
    tutti_grad_sync_destroy(&sync);
    shard_drop(&m);

    /* cut differently on a rank, or not at all */
    for (int whole = 0; whole < 2 && world > 1; whole++) {
        const bool other = rank == world - 1;
        desc = shard_desc(types, other && whole ? 0 : world, other && whole ? 0 : rank,
                          other && !whole ? 1 : 0);
        m = shard_make(ctx, &desc);
        shard_build(&m, types);
        CHECK_FAILS(TUTTI_ERR_COMM, whole ? "shards" : "range_bytes",
                    tutti_grad_sync_create(ctx, comm, m.store, NULL, &sync));
        shard_drop(&m);
    }
}

/* An engine that cannot be used is refused by all ranks, with the reason, and another one works. */
void shard_engines(tutti_context *ctx, tutti_comm *comm)
{
    const types *types = &shard_types[3];
    const int world = rig_size();
    tutti_params_desc desc = shard_desc(types, world, rig_rank(), 0);
    tutti_grad_sync_desc options = TUTTI_GRAD_SYNC_DESC_INIT;
    tutti_grad_sync *sync = NULL;
    model m = shard_make(ctx, &desc);
    shard_build(&m, types);
    options.engine = (tutti_engine)(TUTTI_ENGINE_COPY + 1);
    CHECK_FAILS(TUTTI_ERR_ARG, "engine is 3",
                tutti_grad_sync_create(ctx, comm, m.store, &options, &sync));
    options.engine = TUTTI_ENGINE_COPY;
    if (world > 1 && tutti_comm_transport(comm) == TUTTI_TRANSPORT_MPI)
        CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "engine is copy",
                    tutti_grad_sync_create(ctx, comm, m.store, &options, &sync));
    if (world > 1 && rig_rank() == world - 1) options.engine = TUTTI_ENGINE_TRANSPORT;
    if (world > 1 && tutti_comm_transport(comm) == TUTTI_TRANSPORT_NCCL)
        CHECK_FAILS(TUTTI_ERR_COMM, "engine",
                    tutti_grad_sync_create(ctx, comm, m.store, &options, &sync));
    CHECK_OK(tutti_grad_sync_create(ctx, comm, m.store, NULL, &sync));
    tutti_grad_sync_destroy(&sync);
    shard_drop(&m);
    desc = shard_desc(types, 0, 0, 0);
    m = shard_make(ctx, &desc);
    shard_build(&m, types);
    options.engine = TUTTI_ENGINE_COPY;
    if (world > 1 && tutti_comm_transport(comm) != TUTTI_TRANSPORT_NCCL)
        CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "engine is copy",
                    tutti_grad_sync_create(ctx, comm, m.store, &options, &sync));
    const tutti_param *list[] = {tutti_params_get(m.store, 0)};
    if (world > 1)
        CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "a store, not a list",
                    tutti_grad_sync_create_list(ctx, comm, list, 1, &options, &sync));
    shard_drop(&m);
}
