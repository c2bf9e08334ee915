/* Sharded stores: after every update each rank has the values, and of its slices the state, that
 * one store has which is given the sums, to the bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard.h"

tutti_engine shard_engine = TUTTI_ENGINE_TRANSPORT;

enum { MIDDLE = 3, FROZEN = 4, TIED = 6, STEPS = 3, LEAVES = 8 };
/* some shorter than a slice, some longer than a range; the last but one shares the third's slot */
static const int64_t sizes[PARAMS] = {700, 90001, 3000, 150000, 5000, 1, 3000, 40000};

const types shard_types[SHARD_TYPES] = {{"f32", TUTTI_F32, TUTTI_F32, TUTTI_F32, false},
                                        {"f64", TUTTI_F64, TUTTI_F64, TUTTI_F64, true},
                                        {"f16", TUTTI_F32, TUTTI_F16, TUTTI_F16, false},
                                        {"bf16 and f32", TUTTI_F32, TUTTI_F32, TUTTI_BF16, false},
                                        {"bf16, sgd", TUTTI_F32, TUTTI_BF16, TUTTI_BF16, true}};

model shard_make(tutti_context *ctx, const tutti_params_desc *desc)
{
    model m = {.ctx = ctx};
    CHECK_OK(tutti_params_create(ctx, desc, &m.store));
    return m;
}

void shard_build(model *m, const types *types)
{
    for (int p = 0; p < PARAMS; p++) {
        tutti_param *param = &m->params[p];
        *param = (tutti_param){.weight_decay = p % 2,
                               .lr_scale = 1 + p,
                               .init = TUTTI_INIT_UNIFORM,
                               .init_bound = 0.5};
        snprintf(param->name, sizeof param->name, "p%d", p);
        param->value = tutti_tensor_1d(NULL,
                                       p == TIED ? types->even
                                       : p % 2   ? types->odd
                                                 : types->even,
                                       sizes[p]);
        CHECK_OK(tutti_params_add_param(m->store, param));
    }
    CHECK_OK(tutti_params_tie(m->store, &m->params[TIED], &m->params[2]));
    CHECK_OK(tutti_params_freeze(m->store, &m->params[FROZEN]));
    CHECK_OK(tutti_params_build(m->store, m->ctx));
    CHECK_OK(tutti_params_init(m->store, m->ctx, 7));
    tutti_adamw_desc desc = TUTTI_ADAMW_DESC_INIT;
    desc.weight_decay = 0.1;
    desc.clip_norm = 0.7;
    desc.skip_nonfinite = 1;
    if (!types->sgd) CHECK_OK(tutti_adamw_create(m->ctx, m->store, &desc, &m->adamw));
    tutti_sgd_desc plain = TUTTI_SGD_DESC_INIT;
    plain.momentum = 0.9;
    plain.clip_norm = 0.7;
    if (types->sgd) CHECK_OK(tutti_sgd_create(m->ctx, m->store, &plain, &m->sgd));
    CHECK_OK(tutti_step_block_create(m->ctx, &m->step));
}

void shard_drop(model *m)
{
    tutti_adamw_destroy(&m->adamw);
    tutti_sgd_destroy(&m->sgd);
    tutti_step_block_destroy(&m->step);
    tutti_params_destroy(&m->store);
}

tutti_params_desc shard_desc(const types *types, int shards, int shard, size_t range_bytes)
{
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.master_dtype = types->master;
    desc.shards = shards;
    desc.shard = shard;
    desc.range_bytes = range_bytes;
    return desc;
}

/* Gradients */

/* Numbers of many magnitudes, so that almost every order of summation gives different bits. */
static double *part_of(int step, int part, int p, bool f32)
{
    double *values = harness_calloc((size_t)sizes[p], sizeof *values);
    harness_rng rng = {(uint64_t)((step * 64 + part) * PARAMS + p + 1) *
                       UINT64_C(0x9e3779b97f4a7c15)};
    for (int64_t i = 0; i < sizes[p]; i++) {
        const double scale = 1 << harness_random(&rng) % 12;
        values[i] = harness_uniform(&rng, -1, 1) * scale;
        if (f32) values[i] = (double)(float)values[i];
    }
    return values;
}

static void add(double *sum, const double *more, int64_t count, bool f32)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] = f32 ? (double)((float)sum[i] + (float)more[i]) : sum[i] + more[i];
}

/* The sum of parts [first, end): as a tree, or one after the other. */
static double *sum_of(int step, int first, int end, int p, bool f32, bool tree)
{
    if (end - first == 1) return part_of(step, first, p, f32);
    const int middle = tree ? (first + end) / 2 : end - 1;
    double *left = sum_of(step, first, middle, p, f32, tree);
    double *right = sum_of(step, middle, end, p, f32, tree);
    add(left, right, sizes[p], f32);
    free(right);
    return left;
}

static void round_all(double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) values[i] = harness_round(TUTTI_BF16, values[i]);
}

/* The sum as it is where bf16 travels: each rank's part rounded, and the sum. */
static double *narrow_sum(int step, int p)
{
    double *sum = part_of(step, 0, p, true);
    if (rig_size() == 1) return sum;
    round_all(sum, sizes[p]);
    for (int rank = 1; rank < rig_size(); rank++) {
        double *part = part_of(step, rank, p, true);
        round_all(part, sizes[p]);
        add(sum, part, sizes[p], true);
        free(part);
    }
    round_all(sum, sizes[p]);
    return sum;
}

/* The bytes of elements [first, first + count). */
static char *bytes_of(tutti_context *ctx, const tutti_tensor *tensor, int64_t first, int64_t count)
{
    const size_t size = tutti_dtype_size(tensor->dtype);
    char *raw = harness_calloc((size_t)count + 1, size);
    CHECK_OK(tutti_copy(ctx, raw, (const char *)tensor->data + (size_t)first * size,
                        (size_t)count * size));
    CHECK_OK(tutti_context_synchronize(ctx));
    return raw;
}

static bool trained(int p)
{
    return p != FROZEN && p != TIED;
}

/* This rank's part of the gradients of all parameters; part: rank or leaf. */
static void backward(model *m, tutti_grad_sync *sync, int step, int part)
{
    const bool f32 = m->params[0].grad.dtype == TUTTI_F32;
    for (int p = PARAMS - 1; p >= 0; p--) {
        if (trained(p)) {
            double *values = part_of(step, part, p, f32);
            harness_put(m->ctx, &m->params[p].grad, values);
            free(values);
        }
        if (p != FROZEN) CHECK_OK(tutti_grad_sync_ready_param(sync, m->ctx, &m->params[p]));
    }
}

void shard_set_step(model *m, int step)
{
    const tutti_step_values values = {
        .step = step + 1, .loss_weight = 1, .learning_rate = 0.01, .loss_scale = 4};
    CHECK_OK(tutti_step_block_set(m->step, m->ctx, &values));
}

static void update(model *m)
{
    CHECK_OK(m->sgd ? tutti_sgd_update(m->sgd, m->ctx, m->step)
                    : tutti_adamw_update(m->adamw, m->ctx, m->step));
}

static int state_count(const model *m)
{
    return m->sgd ? tutti_sgd_state_count(m->sgd) : tutti_adamw_state_count(m->adamw);
}

static tutti_state_tensor state_of(const model *m, int index)
{
    tutti_state_tensor state = {.name = ""};
    CHECK_OK(m->sgd ? tutti_sgd_state_get(m->sgd, index, &state)
                    : tutti_adamw_state_get(m->adamw, index, &state));
    return state;
}

static double norm_of(const model *m)
{
    tutti_adamw_stats stats = {0};
    tutti_sgd_stats plain = {0};
    CHECK_OK(m->sgd ? tutti_sgd_get_stats(m->sgd, m->ctx, &plain)
                    : tutti_adamw_get_stats(m->adamw, m->ctx, &stats));
    return m->sgd ? plain.grad_norm : stats.grad_norm;
}

/* How parts of gradients are added; NARROW: in rank order, in bf16 on their way. */
typedef enum order { RANK_ORDER, LEAF_ORDER, NARROW, ORDERS } order;
static const char *const order_names[] = {"in rank order", "leaves", "bf16 on the wire"};

static void update_sharded(model *m, tutti_grad_sync *sync, int step, bool leaves)
{
    int first = rig_rank(), count = 1;
    if (leaves) CHECK_OK(tutti_grad_sync_own_leaves(sync, &first, &count));
    for (int part = first; part < first + count; part++) {
        if (leaves) CHECK_OK(tutti_grad_sync_leaves_begin(sync, m->ctx, part, 1));
        backward(m, sync, step, part);
        if (leaves) CHECK_OK(tutti_grad_sync_leaves_end(sync, m->ctx));
    }
    CHECK_OK(tutti_grad_sync_finish(sync, m->ctx));
    shard_set_step(m, step);
    update(m);
}

static void update_alone(model *m, int step, order order)
{
    const bool f32 = m->params[0].grad.dtype == TUTTI_F32;
    const int parts = order == LEAF_ORDER ? LEAVES : rig_size();
    for (int p = 0; p < PARAMS; p++) {
        if (!trained(p)) continue;
        double *values = order == NARROW ? narrow_sum(step, p)
                                         : sum_of(step, 0, parts, p, f32, order == LEAF_ORDER);
        harness_put(m->ctx, &m->params[p].grad, values);
        free(values);
    }
    shard_set_step(m, step);
    update(m);
}

/* Comparing */

static void same_values(const model *a, const model *b)
{
    for (int p = 0; p < PARAMS; p++) {
        const size_t bytes = (size_t)sizes[p] * tutti_dtype_size(a->params[p].value.dtype);
        char *got = bytes_of(a->ctx, &a->params[p].value, 0, sizes[p]);
        char *want = bytes_of(b->ctx, &b->params[p].value, 0, sizes[p]);
        CHECK(memcmp(got, want, bytes) == 0, "the values of p%d are not those of one store", p);
        free(got);
        free(want);
    }
}

static void same_slice(tutti_context *ctx, const char *what, const tutti_tensor *own, int64_t at,
                       const tutti_tensor *whole, const tutti__span *span)
{
    char *got = bytes_of(ctx, own, at, span->count);
    char *want = bytes_of(ctx, whole, span->first, span->count);
    CHECK(memcmp(got, want, (size_t)span->count * tutti_dtype_size(own->dtype)) == 0,
          "elements %lld to %lld of %s are not those of one store", (long long)span->first,
          (long long)(span->first + span->count - 1), what);
    free(got);
    free(want);
}

/* The slices of a, and all of b. */
static void same_masters(const model *a, const model *b)
{
    tutti_tensor masters;
    CHECK_OK(tutti_params_flat(b->store, TUTTI_PARAMS_MASTER, &masters));
    for (int i = 0; i < a->store->own_count; i++) {
        const tutti__slice *own = &a->store->own[i];
        const tutti_tensor mine = tutti_tensor_1d(own->master, masters.dtype, own->span.count);
        same_slice(a->ctx, "the masters", &mine, 0, &masters, &own->span);
    }
}

static void same_state(const model *a, const model *b)
{
    for (int i = 0; i < a->store->own_count; i++) {
        const tutti__slice *own = &a->store->own[i];
        for (int s = 0; s < state_count(a) - 1; s++) {
            const tutti_state_tensor got = state_of(a, s), want = state_of(b, s);
            same_slice(a->ctx, got.name, &got.tensor, own->local, &want.tensor, &own->span);
        }
    }
    same_masters(a, b);
    CHECK(norm_of(a) == norm_of(b), "the norm is %.17g, want %.17g", norm_of(a), norm_of(b));
}

/* The ranges follow each other, and no rank has much more than its share. */
static void check_slices(const tutti_params *store)
{
    int64_t end = 0;
    for (int r = 0; r < store->range_count; r++) {
        CHECK(store->ranges[r].first == end && end % TUTTI__NORM_RUN == 0,
              "range %d begins at %lld, want %lld", r, (long long)store->ranges[r].first,
              (long long)end);
        end += store->ranges[r].count;
    }
    CHECK(tutti_params_slice_count(store) == store->own_count, "%d slices, want %d",
          tutti_params_slice_count(store), store->own_count);
    for (int i = 0; i < store->own_count; i++) {
        int64_t first = -1, count = -1;
        CHECK_OK(tutti_params_slice(store, i, &first, &count));
        CHECK(first == store->own[i].span.first && count == store->own[i].span.count,
              "slice %d is %lld from %lld on", i, (long long)count, (long long)first);
    }
    CHECK(end == store->trained, "the ranges end at %lld, want %lld", (long long)end,
          (long long)store->trained);
    CHECK(store->kept <= store->trained / rig_size() + store->range_count * TUTTI__NORM_RUN,
          "this rank keeps %lld of %lld elements", (long long)store->kept,
          (long long)store->trained);
}

static void check_engine(const tutti_grad_sync *sync)
{
    tutti_grad_sync_info info = {.engine = TUTTI_ENGINE_AUTO};
    CHECK_OK(tutti_grad_sync_get_info(sync, &info));
    CHECK(info.engine == shard_engine, "engine %d, want %d", (int)info.engine, (int)shard_engine);
}

/* Each range's sum ends after its exchange has begun, also where several sums are one kernel. */
static void check_times(tutti_grad_sync *sync, int ranges)
{
    double *ready = harness_calloc((size_t)ranges, sizeof *ready);
    double *begin = harness_calloc((size_t)ranges, sizeof *begin);
    double *end = harness_calloc((size_t)ranges, sizeof *end);
    CHECK_OK(tutti_grad_sync_get_timeline(sync, ready, begin, end, NULL));
    for (int r = 0; r < ranges && !harness_failures(); r++)
        CHECK(ready[r] <= begin[r] && begin[r] <= end[r], "range %d: ready %g, begin %g, end %g", r,
              ready[r], begin[r], end[r]);
    free(end);
    free(begin);
    free(ready);
}

/* Initialising needs no exchange, where rewriting the values from masters in slices does. */
static void check_first_values(const model *sharded, const model *alone)
{
    same_values(sharded, alone);
    same_masters(sharded, alone);
    if (sharded->store->parted && rig_size() > 1)
        CHECK_FAILS(TUTTI_ERR_STATE, "params_refresh: the store is one of",
                    tutti_params_refresh(sharded->store, sharded->ctx));
    else
        CHECK_OK(tutti_params_refresh(sharded->store, sharded->ctx));
}

static void one_case(tutti_context *ctx, tutti_comm *comm, const types *types, size_t range_bytes,
                     order order)
{
    const bool leaves = order == LEAF_ORDER;
    harness_where("%s, ranges of %zu bytes, %s", types->name, range_bytes, order_names[order]);
    const tutti_params_desc whole = shard_desc(types, 0, 0, 0);
    const tutti_params_desc part = shard_desc(types, rig_size(), rig_rank(), range_bytes);
    model alone = shard_make(ctx, &whole), sharded = shard_make(ctx, &part);
    shard_build(&alone, types);
    shard_build(&sharded, types);
    check_first_values(&sharded, &alone);
    check_slices(sharded.store);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.leaves = leaves ? LEAVES : 0;
    desc.wire = order == NARROW ? TUTTI_BF16 : 0;
    desc.engine = shard_engine;
    desc.timeline = 1;
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, sharded.store, &desc, &sync));
    check_engine(sync);
    CHECK_OK(tutti_comm_broadcast_params(comm, ctx, sharded.store));
    for (int step = 0; sync && step < STEPS; step++) {
        update_sharded(&sharded, sync, step, leaves);
        update_alone(&alone, step, order);
        same_values(&sharded, &alone);
        same_state(&sharded, &alone);
        check_times(sync, sharded.store->range_count);
    }
    tutti_state_tensor state[3];
    const int states = state_count(&sharded);
    for (int i = 0; i < states; i++) state[i] = state_of(&sharded, i);
    CHECK_OK(tutti_comm_check_params(comm, ctx, sharded.store, state, states));
    tutti_grad_sync_destroy(&sync);
    shard_drop(&sharded);
    shard_drop(&alone);
    harness_where(NULL);
}

static void updates(tutti_context *ctx, tutti_comm *comm)
{
    for (int i = 0; i < SHARD_TYPES; i++)
        for (int order = 0; order < ORDERS; order++) {
            if (order == NARROW && shard_types[i].master == TUTTI_F64) continue;
            one_case(ctx, comm, &shard_types[i], 1, order);
            one_case(ctx, comm, &shard_types[i], 0, order);
        }
}
RIG_OVER(updates)

/* A step */

void shard_open_pair(tutti_context *ctx, tutti_comm *comm, pair *pair)
{
    const types *types = &shard_types[3];
    const tutti_params_desc desc = shard_desc(types, rig_size(), rig_rank(), 1);
    pair->model = shard_make(ctx, &desc);
    pair->sync = NULL;
    shard_build(&pair->model, types);
    tutti_grad_sync_desc options = TUTTI_GRAD_SYNC_DESC_INIT;
    options.engine = shard_engine;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, pair->model.store, &options, &pair->sync));
}

void shard_close_pair(pair *pair)
{
    tutti_grad_sync_destroy(&pair->sync);
    shard_drop(&pair->model);
}

/* A gradient that is not finite on one rank makes all ranks skip the step. */
static void skips(tutti_context *ctx, tutti_comm *comm)
{
    pair p;
    shard_open_pair(ctx, comm, &p);
    model *m = &p.model;
    char *before = bytes_of(ctx, &m->params[1].value, 0, sizes[1]);
    backward(m, p.sync, 0, rig_rank());
    CHECK_OK(tutti_grad_sync_finish(p.sync, ctx));
    if (m->store->own_count > 0 && rig_rank() == rig_size() - 1) {
        const double nan[1] = {NAN};
        tutti_tensor grad;
        CHECK_OK(tutti_params_flat(m->store, TUTTI_PARAMS_GRAD, &grad));
        const tutti_tensor one =
            tutti_tensor_1d((float *)grad.data + m->store->own[0].span.first, TUTTI_F32, 1);
        harness_put(ctx, &one, nan);
    }
    shard_set_step(m, 0);
    CHECK_OK(tutti_adamw_update(m->adamw, ctx, m->step));
    tutti_adamw_stats stats;
    CHECK_OK(tutti_adamw_get_stats(m->adamw, ctx, &stats));
    CHECK(stats.skipped && stats.updates == 0 && isnan(stats.grad_norm),
          "%lld updates, the norm is %g", (long long)stats.updates, stats.grad_norm);
    char *after = bytes_of(ctx, &m->params[1].value, 0, sizes[1]);
    CHECK(memcmp(before, after, (size_t)sizes[1] * 2) == 0, "the values have changed");
    free(before);
    free(after);
    shard_close_pair(&p);
}
RIG_OVER(skips)

/* A sum that is waited for before others are ready is the one that finish leaves. */
static void early(tutti_context *ctx, tutti_comm *comm)
{
    pair p;
    shard_open_pair(ctx, comm, &p);
    model *m = &p.model;
    const tutti_tensor *grad = &m->params[PARAMS - 1].grad;
    tutti_context *other = harness_new_context(tutti_context_device(ctx), 1);
    for (int step = 0; step < 3; step++) {
        char *seen = NULL;
        for (int i = PARAMS - 1; i >= 0; i--) {
            if (trained(i)) {
                double *values = part_of(step, rig_rank(), i, true);
                harness_put(ctx, &m->params[i].grad, values);
                free(values);
            }
            if (i != FROZEN) CHECK_OK(tutti_grad_sync_ready_param(p.sync, ctx, &m->params[i]));
            if (i != 2) continue; /* all that share a range with the last one are ready */
            CHECK_OK(tutti_grad_sync_wait(p.sync, other, &m->params[PARAMS - 1]));
            seen = bytes_of(other, grad, 0, sizes[PARAMS - 1]);
        }
        CHECK_OK(tutti_grad_sync_finish(p.sync, ctx));
        char *left = bytes_of(ctx, grad, 0, sizes[PARAMS - 1]);
        CHECK(memcmp(seen, left, (size_t)sizes[PARAMS - 1] * sizeof(float)) == 0,
              "step %d: the sum has changed", step);
        free(seen);
        free(left);
        /* one amid those whose sums end together */
        CHECK_OK(tutti_grad_sync_wait(p.sync, other, &m->params[MIDDLE]));
        seen = bytes_of(other, &m->params[MIDDLE].grad, 0, sizes[MIDDLE]);
        left = bytes_of(ctx, &m->params[MIDDLE].grad, 0, sizes[MIDDLE]);
        CHECK(memcmp(seen, left, (size_t)sizes[MIDDLE] * sizeof(float)) == 0,
              "step %d: not awaited", step);
        free(seen);
        free(left);
    }
    tutti_context_destroy(&other);
    shard_close_pair(&p);
}
RIG_OVER(early)

RIG_OVER(shard_diverged)
RIG_OVER(shard_held)
RIG_OVER(shard_in_turn)
RIG_OVER(shard_refused)
RIG_OVER(shard_engines)
RIG_OVER(shard_beside)
RIG_OVER(shard_own)

#ifdef RIG_WITH_MPI
/* Skips the test, with the reason, if copy engines cannot be used. */
static bool can_copy(tutti_context *ctx, tutti_comm *comm)
{
    const tutti_params_desc desc = shard_desc(&shard_types[0], rig_size(), rig_rank(), 0);
    tutti_grad_sync_desc options = TUTTI_GRAD_SYNC_DESC_INIT;
    tutti_grad_sync *sync = NULL;
    model m = shard_make(ctx, &desc);
    shard_build(&m, &shard_types[0]);
    options.engine = TUTTI_ENGINE_COPY;
    const tutti_status status = tutti_grad_sync_create(ctx, comm, m.store, &options, &sync);
    if (status == TUTTI_ERR_UNSUPPORTED)
        harness_skip("%s", tutti_last_error());
    else
        CHECK_OK(status);
    tutti_grad_sync_destroy(&sync);
    shard_drop(&m);
    return status == TUTTI_OK;
}

/* What rank 0 is told: the sum of a norm goes in one hop, and values not by the update. */
static bool in_one_hop, by_transport;

static void record(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    in_one_hop |= strstr(message, "small sums of an exchange in one hop") != NULL;
    by_transport |= strstr(message, "values go by the transport") != NULL;
}

static void over_copies(void (*test)(tutti_context *ctx, tutti_comm *comm))
{
    tutti_context *ctx = rig_context();
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_NCCL);
    if (!comm) return;
    if (can_copy(ctx, comm)) {
        shard_engine = TUTTI_ENGINE_COPY;
        in_one_hop = by_transport = false;
        tutti_set_log(record, NULL, TUTTI_LOG_INFO);
        test(ctx, comm);
        tutti_set_log(NULL, NULL, TUTTI_LOG_WARN);
        shard_engine = TUTTI_ENGINE_TRANSPORT;
        CHECK(rig_worst(in_one_hop), "the norm's sum does not go in one hop");
        CHECK(!rig_worst(by_transport), "an update does not write values to the other ranks");
    }
    tutti_comm_destroy(&comm);
}

#define BY_COPIES(test)             \
    static void test##_copies(void) \
    {                               \
        over_copies(test);          \
    }
BY_COPIES(updates)
BY_COPIES(skips)
BY_COPIES(shard_diverged)
BY_COPIES(early)
BY_COPIES(shard_held)
BY_COPIES(shard_in_turn)
BY_COPIES(shard_beside)
BY_COPIES(shard_own)
#endif

static const rig_test tests[] = {
    RIG_ROWS("updates", updates, 1, 0),
    RIG_ROWS("skips", skips, 1, 0),
    RIG_ROWS("diverged", shard_diverged, 2, 0),
    RIG_ROWS("early", early, 1, 0),
    RIG_ROWS("held", shard_held, 2, 0),
    RIG_ROWS("ranges in turn", shard_in_turn, 1, 0),
    RIG_ROWS("refused", shard_refused, 1, 0),
    RIG_ROWS("engines", shard_engines, 1, 0),
    RIG_ROWS("values beside forward", shard_beside, 1, 0),
    RIG_ROWS("a layer of the caller's own", shard_own, 1, 0),
#ifdef RIG_WITH_MPI
    {"updates by copy engines", updates_copies, 2, 0, true},
    {"skips by copy engines", skips_copies, 2, 0, true},
    {"diverged by copy engines", shard_diverged_copies, 2, 0, true},
    {"early by copy engines", early_copies, 2, 0, true},
    {"held by copy engines", shard_held_copies, 2, 0, true},
    {"ranges in turn by copy engines", shard_in_turn_copies, 2, 0, true},
    {"values beside forward by copy engines", shard_beside_copies, 2, 0, true},
    {"a layer of the caller's own by copy engines", shard_own_copies, 2, 0, true},
#endif
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "shard", tests, HARNESS_COUNT(tests));
}
