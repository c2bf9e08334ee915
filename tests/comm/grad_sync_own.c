/* The exchange of lists of the caller's parameters: neighbours, types, layouts that differ, bf16 on
 * the wire, frozen ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grad_sync.h"

/* Bound parameters: ascending and descending neighbours, another type, a shared gradient. */
typedef struct listed {
    tutti_param params[6];
    const tutti_param *list[6];
    void *memory;
    int64_t count; /* floats */
} listed;

static void listed_make(tutti_context *ctx, listed *l)
{
    /* in floats: two ascending, two descending, one f64, one that shares the second's gradient */
    static const int64_t offset[] = {0, 700, 4000, 2001, 5000, 700};
    static const int64_t size[] = {700, 1301, 900, 1999, 33, 1301};
    *l = (listed){.count = 6000};
    CHECK_OK(tutti_alloc(ctx, (size_t)l->count * sizeof(float), &l->memory));
    for (int i = 0; i < 6; i++) {
        tutti_param *p = &l->params[i];
        tutti_dtype dtype = i == 4 ? TUTTI_F64 : TUTTI_F32;
        snprintf(p->name, sizeof p->name, "p%d", i);
        p->grad = tutti_tensor_1d((float *)l->memory + offset[i], dtype, size[i]);
        p->value = p->grad;
        l->list[i] = p;
    }
}

void listed_parameters(tutti_context *ctx, tutti_comm *comm)
{
    listed l;
    listed_make(ctx, &l);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = 2048;
    desc.last_range_bytes = 1024;
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create_list(ctx, comm, l.list, 6, &desc, &sync));
    float *values = harness_calloc((size_t)l.count, sizeof *values);
    double ranks = rig_size();
    for (int step = 0; step < 2 && sync; step++) {
        for (int64_t i = 0; i < l.count; i++)
            values[i] = (float)((i * 13 + step) % 101 + rig_rank());
        for (int i = 0; i < 33; i++) ((double *)(values + 5000))[i] = i + rig_rank();
        CHECK_OK(tutti_copy(ctx, l.memory, values, (size_t)l.count * sizeof *values));
        for (int i = 0; i < 5; i++) CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, l.list[i]));
        CHECK_FAILS(TUTTI_ERR_STATE, "'p1'", tutti_grad_sync_ready_param(sync, ctx, l.list[1]));
        CHECK_FAILS(TUTTI_ERR_STATE, "'p5'", tutti_grad_sync_finish(sync, ctx));
        CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, l.list[5]));
        CHECK_OK(tutti_grad_sync_finish(sync, ctx));
        CHECK_OK(tutti_copy(ctx, values, l.memory, (size_t)l.count * sizeof *values));
        CHECK_OK(tutti_context_synchronize(ctx));
        double extra = ranks * (ranks - 1) / 2;
        for (int64_t i = 0; i < l.count; i++) {
            bool f64 = i >= 5000 && i < 5066, summed = i < 4900;
            double want = (double)((i * 13 + step) % 101);
            want = summed ? want * ranks + extra : want + rig_rank();
            if (!f64 && values[i] != want) {
                CHECK(false, "element %lld is %g, want %g", (long long)i, values[i], want);
                break;
            }
        }
        for (int i = 0; i < 33; i++) {
            double got;
            memcpy(&got, values + 5000 + 2 * i, sizeof got);
            CHECK(got == i * ranks + extra, "f64 element %d is %g", i, got);
        }
    }
    free(values);
    tutti_grad_sync_destroy(&sync);
    CHECK_OK(tutti_free(ctx, &l.memory));
}

/* Neighbours in opposite order on every second rank: ranges must still hold the same gradients. */
void layouts(tutti_context *ctx, tutti_comm *comm)
{
    enum { COUNT = 3000 };
    float *memory = NULL, *values = harness_calloc(2 * COUNT, sizeof *values);
    CHECK_OK(tutti_alloc(ctx, 2 * COUNT * sizeof *memory, (void **)&memory));
    tutti_param params[2] = {{.name = "first"}, {.name = "second"}};
    const tutti_param *list[2] = {&params[0], &params[1]};
    int at[2] = {0, COUNT};
    if (rig_rank() % 2) at[0] = COUNT, at[1] = 0;
    for (int p = 0; p < 2; p++) {
        params[p].value = params[p].grad = tutti_tensor_1d(memory + at[p], TUTTI_F32, COUNT);
        for (int i = 0; i < COUNT; i++) values[at[p] + i] = (float)(p * 10000 + i);
    }
    CHECK_OK(tutti_copy(ctx, memory, values, 2 * COUNT * sizeof *values));
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    desc.range_bytes = desc.last_range_bytes = 4096;
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create_list(ctx, comm, list, 2, &desc, &sync));
    for (int p = 0; p < 2; p++) CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, list[p]));
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    CHECK_OK(tutti_copy(ctx, values, memory, 2 * COUNT * sizeof *values));
    CHECK_OK(tutti_context_synchronize(ctx));
    int wrong = 0;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < COUNT; i++)
            wrong += values[at[p] + i] != (float)(rig_size() * (p * 10000 + i));
    CHECK(wrong == 0, "%d of %d sums are wrong", wrong, 2 * COUNT);
    tutti_grad_sync_destroy(&sync);
    CHECK_OK(tutti_free(ctx, (void **)&memory));
    free(values);
}

/* Differences between ranks are found before anything is summed. */
void differences(tutti_context *ctx, tutti_comm *comm)
{
    int last = rig_size() - 1;
    bool odd = rig_rank() == last;
    char name[32];
    snprintf(name, sizeof name, "rank %d", last);
    listed l;
    listed_make(ctx, &l);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    tutti_grad_sync *sync = NULL;
    if (odd) desc.range_bytes = 1 << 20;
    CHECK_FAILS(TUTTI_ERR_COMM, "range_bytes",
                tutti_grad_sync_create_list(ctx, comm, l.list, 6, &desc, &sync));
    CHECK_FAILS(TUTTI_ERR_COMM, name,
                tutti_grad_sync_create_list(ctx, comm, l.list, odd ? 3 : 4, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_COMM, "p3",
                tutti_grad_sync_create_list(ctx, comm, l.list, odd ? 3 : 4, NULL, &sync));
    if (odd) l.params[2].grad.dims[0] = 899;
    CHECK_FAILS(TUTTI_ERR_COMM, "p2",
                tutti_grad_sync_create_list(ctx, comm, l.list, 6, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_COMM, "[899]",
                tutti_grad_sync_create_list(ctx, comm, l.list, 6, NULL, &sync));
    if (odd) l.params[2].grad.dims[0] = 900;
    const tutti_dtype dtype = l.params[3].value.dtype;
    if (odd) l.params[3].value.dtype = TUTTI_F16;
    CHECK_FAILS(TUTTI_ERR_COMM, "p3",
                tutti_grad_sync_create_list(ctx, comm, l.list, 6, NULL, &sync));
    l.params[3].value.dtype = dtype;
    /* an error of one rank is reported on all, with its number */
    CHECK_FAILS(TUTTI_ERR_ARG, name,
                tutti_grad_sync_create_list(ctx, comm, odd ? NULL : l.list, 6, NULL, &sync));

    CHECK_OK(tutti_comm_barrier(comm, ctx)); /* the communicator still works */
    CHECK_OK(tutti_free(ctx, &l.memory));
}

enum { WIRED = 4 };
static const int64_t wired[WIRED] = {700, 90001, 3, 20011};

/* Numbers of many magnitudes, some of which bf16 cannot hold. */
static void part_of(int rank, int p, float *values)
{
    harness_rng rng = {(uint64_t)(rank * WIRED + p + 1) * UINT64_C(0x9e3779b97f4a7c15)};
    for (int64_t i = 0; i < wired[p]; i++)
        values[i] =
            (float)(harness_uniform(&rng, -1, 1) * (double)(1 << harness_random(&rng) % 12));
}

static float to_bf16(float value)
{
    return (float)harness_round(TUTTI_BF16, value);
}

/* Each rank's part rounded, added in f32 in rank order, and rounded; one rank's own stays. */
static float *narrow_sum(int p)
{
    const int n = rig_size();
    float *sum = harness_calloc((size_t)wired[p], sizeof *sum);
    float *part = harness_calloc((size_t)wired[p], sizeof *part);
    for (int rank = 0; rank < n; rank++) {
        part_of(rank, p, part);
        for (int64_t i = 0; i < wired[p]; i++)
            sum[i] = rank == 0 ? n == 1 ? part[i] : to_bf16(part[i]) : sum[i] + to_bf16(part[i]);
    }
    for (int64_t i = 0; i < wired[p] && n > 1; i++) sum[i] = to_bf16(sum[i]);
    free(part);
    return sum;
}

static void narrow_step(tutti_context *ctx, tutti_grad_sync *sync, tutti_param own[WIRED])
{
    for (int p = WIRED - 1; p >= 0; p--) {
        float *values = harness_calloc((size_t)wired[p], sizeof *values);
        part_of(rig_rank(), p, values);
        CHECK_OK(tutti_copy(ctx, own[p].grad.data, values, (size_t)wired[p] * sizeof *values));
        CHECK_OK(tutti_context_synchronize(ctx));
        CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &own[p]));
        free(values);
    }
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    for (int p = 0; p < WIRED; p++) {
        const size_t bytes = (size_t)wired[p] * sizeof(float);
        float *got = harness_calloc(bytes, 1), *want = narrow_sum(p);
        CHECK_OK(tutti_copy(ctx, got, own[p].grad.data, bytes));
        CHECK_OK(tutti_context_synchronize(ctx));
        CHECK(memcmp(got, want, bytes) == 0, "p%d: %.9g …, want %.9g …", p, got[0], want[0]);
        free(want);
        free(got);
    }
}

/* Ranges that are sent whole, that are sliced, and that are shorter than there are ranks. */
void narrow(tutti_context *ctx, tutti_comm *comm)
{
    static const size_t sizes[] = {(size_t)32 << 20, 1024};
    tutti_param own[WIRED] = {{.lr_scale = 1}};
    const tutti_param *list[WIRED];
    int64_t bytes = 0;
    for (int p = 0; p < WIRED; p++) {
        void *memory = NULL;
        snprintf(own[p].name, sizeof own[p].name, "p%d", p);
        CHECK_OK(tutti_alloc(ctx, (size_t)wired[p] * sizeof(float), &memory));
        own[p].value = own[p].grad = tutti_tensor_1d(memory, TUTTI_F32, wired[p]);
        list[p] = &own[p];
        bytes += wired[p] * 2;
    }
    for (int i = 0; i < HARNESS_COUNT(sizes); i++) {
        tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
        tutti_grad_sync_info info = {0};
        tutti_grad_sync *sync = NULL;
        desc.wire = TUTTI_BF16;
        desc.range_bytes = desc.last_range_bytes = sizes[i];
        harness_where("ranges of %zu bytes", sizes[i]);
        CHECK_OK(tutti_grad_sync_create_list(ctx, comm, list, WIRED, &desc, &sync));
        for (int step = 0; sync && step < 2; step++) narrow_step(ctx, sync, own);
        CHECK_OK(tutti_grad_sync_get_info(sync, &info));
        const int64_t n = rig_size(), ring = 2 * 2 * bytes / n * (n - 1);
        CHECK(i > 0 || info.bytes_sent <= ring + ring / 10 + 8192 * n,
              "%lld bytes were sent, a ring sends %lld of bf16", (long long)info.bytes_sent,
              (long long)ring);
        tutti_grad_sync_destroy(&sync);
    }
    harness_where(NULL);
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    tutti_grad_sync *sync = NULL;
    desc.wire = rig_rank() == rig_size() - 1 ? TUTTI_BF16 : 0;
    if (rig_size() > 1)
        CHECK_FAILS(TUTTI_ERR_COMM, "wire",
                    tutti_grad_sync_create_list(ctx, comm, list, WIRED, &desc, &sync));
    desc.wire = TUTTI_BF16;
    own[1].value = own[1].grad = tutti_tensor_1d(own[1].grad.data, TUTTI_F64, wired[1] / 2);
    CHECK_FAILS(TUTTI_ERR_ARG, "gradients are f64",
                tutti_grad_sync_create_list(ctx, comm, list, WIRED, &desc, &sync));
    for (int p = 0; p < WIRED; p++) CHECK_OK(tutti_free(ctx, &own[p].grad.data));
}

/* Of three parameters one is frozen, or none (-1). */
static tutti_params *with_frozen(tutti_context *ctx, tutti_param own[3], int frozen)
{
    tutti_params *params = NULL;
    CHECK_OK(tutti_params_create(ctx, NULL, &params));
    for (int i = 0; i < 3; i++) {
        own[i] = (tutti_param){.lr_scale = 1, .init = TUTTI_INIT_UNIFORM, .init_bound = 1};
        snprintf(own[i].name, sizeof own[i].name, "p%d", i);
        own[i].value = tutti_tensor_1d(NULL, TUTTI_F32, 200);
        CHECK_OK(tutti_params_add_param(params, &own[i]));
    }
    if (frozen >= 0) CHECK_OK(tutti_params_freeze(params, &own[frozen]));
    CHECK_OK(tutti_params_build(params, ctx));
    CHECK_OK(tutti_params_init(params, ctx, 1));
    return params;
}

/* The others are summed; the replicas of all are compared; ranks must freeze the same. */
void frozen(tutti_context *ctx, tutti_comm *comm)
{
    tutti_param own[3];
    tutti_params *params = with_frozen(ctx, own, 1);
    tutti_grad_sync *sync = NULL;
    CHECK_OK(tutti_grad_sync_create(ctx, comm, params, NULL, &sync));
    const float mine = (float)(1 + rig_rank());
    const int n = rig_size();
    for (int i = 0; i < 3; i += 2) CHECK_OK(tutti_copy(ctx, own[i].grad.data, &mine, sizeof mine));
    CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &own[2]));
    CHECK_FAILS(TUTTI_ERR_ARG, "p1", tutti_grad_sync_ready_param(sync, ctx, &own[1]));
    CHECK_OK(tutti_grad_sync_ready_param(sync, ctx, &own[0]));
    CHECK_OK(tutti_grad_sync_finish(sync, ctx));
    for (int i = 0; i < 3; i += 2) {
        float sum = 0;
        CHECK_OK(tutti_copy(ctx, &sum, own[i].grad.data, sizeof sum));
        CHECK_OK(tutti_context_synchronize(ctx));
        CHECK(sum == (float)(n * (n + 1) / 2), "p%d's sum is %g", i, sum);
    }
    CHECK_OK(tutti_comm_check_params(comm, ctx, params, NULL, 0));
    if (n > 1) {
        if (rig_rank() == n - 1) CHECK_OK(tutti_copy(ctx, own[1].master.data, &mine, sizeof mine));
        CHECK_FAILS(TUTTI_ERR_DATA, "p1", tutti_comm_check_params(comm, ctx, params, NULL, 0));
    }
    CHECK_OK(tutti_comm_broadcast_params(comm, ctx, params));
    CHECK_OK(tutti_comm_check_params(comm, ctx, params, NULL, 0));
    tutti_grad_sync_destroy(&sync);
    tutti_params_destroy(&params);
    if (n == 1) return;
    /* p0 is the last in the layout either way */
    params = with_frozen(ctx, own, rig_rank() == n - 1 ? 0 : -1);
    CHECK_FAILS(TUTTI_ERR_COMM, "p0", tutti_grad_sync_create(ctx, comm, params, NULL, &sync));
    CHECK_FAILS(TUTTI_ERR_COMM, "frozen", tutti_comm_check_params(comm, ctx, params, NULL, 0));
    tutti_params_destroy(&params);
}
