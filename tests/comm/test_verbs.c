/* Every verb x operator x type x count, in place or not, against sums of small integers that every type holds exactly. */
#include <stdlib.h>
#include <string.h>

#include "rig.h"

static const tutti_dtype dtypes[] = {TUTTI_F32,  TUTTI_F64, TUTTI_F16,
                                     TUTTI_BF16, TUTTI_I32, TUTTI_U8};
static const tutti_op ops[] = {TUTTI_SUM, TUTTI_MIN, TUTTI_MAX};
static const int64_t counts[] = {0, 1, 3, 17, 1000, 4099};

/* Element i of rank r, in block b of what is scattered. */
static double element(int r, int64_t b, int64_t i)
{
    return (double)((i * 7 + r * 5 + b * 3) % 13);
}

static double reduced(int64_t b, int64_t i, tutti_op op)
{
    double result = element(0, b, i);
    for (int r = 1; r < rig_size(); r++) {
        double value = element(r, b, i);
        if (op == TUTTI_SUM)
            result += value;
        else if (op == TUTTI_MIN ? value < result : value > result)
            result = value;
    }
    return result;
}

/* Room for `blocks` blocks of count, filled by this rank's elements. */
static harness_buffer filled(tutti_context *ctx, tutti_dtype dtype, int blocks, int64_t count,
                             int misaligned)
{
    harness_buffer buffer = harness_buffer_make(ctx, dtype, 1, blocks * count, 0, misaligned);
    double *values = harness_calloc((size_t)(blocks * count), sizeof *values);
    for (int b = 0; b < blocks; b++)
        for (int64_t i = 0; i < count; i++) values[b * count + i] = element(rig_rank(), b, i);
    harness_buffer_put(ctx, &buffer, values);
    free(values);
    return buffer;
}

/* recv holds want, guards are whole, and send, if another buffer, is as it was. */
static void verify(tutti_context *ctx, harness_buffer *send, harness_buffer *recv,
                   const double *want)
{
    CHECK_OK(tutti_context_synchronize(ctx));
    int64_t n = recv->cols;
    double *got = harness_calloc((size_t)n, sizeof *got);
    double *bound = harness_calloc((size_t)n, sizeof *bound);
    harness_buffer_get(ctx, recv, got);
    CHECK_CLOSE("recv", got, want, bound, n);
    CHECK(harness_buffer_intact(ctx, recv), "recv was written beyond its end");
    if (send != recv) CHECK(harness_buffer_unchanged(ctx, send), "send was written");
    free(bound);
    free(got);
}

static void all_reduce(tutti_comm *comm, tutti_context *ctx, tutti_dtype dtype, int64_t count,
                       tutti_op op, bool in_place)
{
    harness_buffer send = filled(ctx, dtype, 1, count, 1);
    harness_buffer other = harness_buffer_make(ctx, dtype, 1, count, 0, 0);
    harness_buffer *recv = in_place ? &send : &other;
    double *want = harness_calloc((size_t)count, sizeof *want);
    for (int64_t i = 0; i < count; i++) want[i] = reduced(0, i, op);
    CHECK_OK(tutti_comm_all_reduce(comm, ctx, send.data, recv->data, count, dtype, op));
    verify(ctx, &send, recv, want);
    free(want);
    harness_buffer_free(ctx, &send);
    harness_buffer_free(ctx, &other);
}

static void reduce_scatter(tutti_comm *comm, tutti_context *ctx, tutti_dtype dtype, int64_t count,
                           tutti_op op)
{
    harness_buffer send = filled(ctx, dtype, rig_size(), count, 0);
    harness_buffer recv = harness_buffer_make(ctx, dtype, 1, count, 0, 1);
    double *want = harness_calloc((size_t)count, sizeof *want);
    for (int64_t i = 0; i < count; i++) want[i] = reduced(rig_rank(), i, op);
    CHECK_OK(tutti_comm_reduce_scatter(comm, ctx, send.data, recv.data, count, dtype, op));
    verify(ctx, &send, &recv, want);
    free(want);
    harness_buffer_free(ctx, &send);
    harness_buffer_free(ctx, &recv);
}

static void broadcast(tutti_comm *comm, tutti_context *ctx, tutti_dtype dtype, int64_t count,
                      int root)
{
    harness_buffer data = filled(ctx, dtype, 1, count, 1);
    double *want = harness_calloc((size_t)count, sizeof *want);
    for (int64_t i = 0; i < count; i++) want[i] = element(root, 0, i);
    CHECK_OK(tutti_comm_broadcast(comm, ctx, data.data, count, dtype, root));
    verify(ctx, &data, &data, want);
    free(want);
    harness_buffer_free(ctx, &data);
}

static void all_gather(tutti_comm *comm, tutti_context *ctx, tutti_dtype dtype, int64_t count,
                       bool in_place)
{
    int n = rig_size();
    harness_buffer send = filled(ctx, dtype, 1, count, 1);
    harness_buffer recv = harness_buffer_make(ctx, dtype, 1, n * count, 0, 0);
    double *want = harness_calloc((size_t)(n * count), sizeof *want);
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < count; i++) want[r * count + i] = element(r, 0, i);
    char *place = (char *)recv.data + (size_t)(rig_rank() * count) * tutti_dtype_size(dtype);
    if (in_place)
        CHECK_OK(tutti_copy(ctx, place, send.data, (size_t)count * tutti_dtype_size(dtype)));
    CHECK_OK(
        tutti_comm_all_gather(comm, ctx, in_place ? place : send.data, recv.data, count, dtype));
    verify(ctx, &send, &recv, want);
    free(want);
    harness_buffer_free(ctx, &send);
    harness_buffer_free(ctx, &recv);
}

static void all_to_all(tutti_comm *comm, tutti_context *ctx, tutti_dtype dtype, int64_t count)
{
    int n = rig_size();
    harness_buffer send = filled(ctx, dtype, n, count, 1);
    harness_buffer recv = harness_buffer_make(ctx, dtype, 1, n * count, 0, 0);
    double *want = harness_calloc((size_t)(n * count), sizeof *want);
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < count; i++) want[r * count + i] = element(r, rig_rank(), i);
    CHECK_OK(tutti_comm_all_to_all(comm, ctx, send.data, recv.data, count, dtype));
    verify(ctx, &send, &recv, want);
    free(want);
    harness_buffer_free(ctx, &send);
    harness_buffer_free(ctx, &recv);
}

static void all_verbs(tutti_comm *comm, tutti_context *ctx, tutti_dtype dtype, int64_t count)
{
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        harness_where("%s count %lld op %d", tutti_dtype_name(dtype), (long long)count, ops[o]);
        all_reduce(comm, ctx, dtype, count, ops[o], false);
        all_reduce(comm, ctx, dtype, count, ops[o], true);
        reduce_scatter(comm, ctx, dtype, count, ops[o]);
    }
    harness_where("%s count %lld", tutti_dtype_name(dtype), (long long)count);
    for (int root = 0; root < rig_size(); root++) broadcast(comm, ctx, dtype, count, root);
    all_gather(comm, ctx, dtype, count, false);
    all_gather(comm, ctx, dtype, count, true);
    all_to_all(comm, ctx, dtype, count);
    harness_where(NULL);
}

static void verbs(tutti_context *ctx, tutti_comm *comm)
{
    CHECK(tutti_comm_rank(comm) == rig_rank(), "rank %d", tutti_comm_rank(comm));
    CHECK(tutti_comm_world_size(comm) == rig_size(), "size %d", tutti_comm_world_size(comm));
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            all_verbs(comm, ctx, dtypes[d], counts[c]);
}

/* 16-bit sums of two ranks: exact in f32, rounded once. */
static void rounding(tutti_context *ctx, tutti_comm *comm)
{
    enum { N = 1001 };
    double mine[N], other[N], want[N], bound[N];
    for (int d = 0; d < 2; d++) {
        tutti_dtype dtype = d ? TUTTI_BF16 : TUTTI_F16;
        harness_rng rngs[2] = {{1}, {2}};
        harness_fill(&rngs[rig_rank()], mine, N, dtype, 0, 1);
        harness_fill(&rngs[1 - rig_rank()], other, N, dtype, 0, 1);
        for (int i = 0; i < N; i++) {
            want[i] = harness_round(dtype, mine[i] + other[i]);
            bound[i] = 0;
        }
        harness_buffer data = harness_buffer_make(ctx, dtype, 1, N, 0, 0);
        harness_buffer_put(ctx, &data, mine);
        CHECK_OK(tutti_comm_all_reduce(comm, ctx, data.data, data.data, N, dtype, TUTTI_SUM));
        CHECK_OK(tutti_context_synchronize(ctx));
        harness_buffer_get(ctx, &data, mine);
        CHECK_CLOSE(tutti_dtype_name(dtype), mine, want, bound, N);
        harness_buffer_free(ctx, &data);
    }
}

RIG_OVER(verbs)
RIG_OVER(rounding)

static const rig_test tests[] = {
    RIG_ROWS("verbs", verbs, 1, 0),
    RIG_ROWS("16-bit sums", rounding, 2, 2),
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "comm verbs", tests, HARNESS_COUNT(tests));
}
