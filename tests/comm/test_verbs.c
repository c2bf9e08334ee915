/* Every verb x operator x type x count, in place or not, against sums of small integers that every
 * type holds exactly. */
#include <stdlib.h>
#include <string.h>

#include "rig.h"

static const tutti_dtype dtypes[] = {TUTTI_F32,  TUTTI_F64, TUTTI_F16,
                                     TUTTI_BF16, TUTTI_I32, TUTTI_U8};
static const tutti_op ops[] = {TUTTI_SUM, TUTTI_MIN, TUTTI_MAX};
static const int64_t counts[] = {0, 1, 3, 17, 1000, 4099};

/* Element i of rank r, in block b of a scattered buffer. */
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

/* recv holds the result, guards are intact, and send, if another buffer, is unchanged. */
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

typedef enum verb { ALL_REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER, ALL_TO_ALL } verb;

/* The result on this rank, in block b. */
static double wanted(verb v, int64_t b, int64_t i, tutti_op op, int root)
{
    switch (v) {
    case ALL_REDUCE:
        return reduced(0, i, op);
    case REDUCE_SCATTER:
        return reduced(rig_rank(), i, op);
    case BROADCAST:
        return element(root, 0, i);
    case ALL_GATHER:
        return element((int)b, 0, i);
    case ALL_TO_ALL:
        break;
    }
    return element((int)b, rig_rank(), i);
}

static void one_verb(tutti_comm *comm, tutti_context *ctx, verb v, tutti_dtype dtype, int64_t count,
                     tutti_op op, int root, bool in_place)
{
    const int sends = v == REDUCE_SCATTER || v == ALL_TO_ALL ? rig_size() : 1;
    const int64_t blocks = v == ALL_GATHER || v == ALL_TO_ALL ? rig_size() : 1;
    harness_buffer from = filled(ctx, dtype, sends, count, v != REDUCE_SCATTER);
    harness_buffer to = harness_buffer_make(ctx, dtype, 1, blocks * count, 0, v == REDUCE_SCATTER);
    harness_buffer *recv = in_place && v != ALL_GATHER ? &from : &to;
    double *want = harness_calloc((size_t)(blocks * count), sizeof *want);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = 0; i < count; i++) want[b * count + i] = wanted(v, b, i, op, root);
    void *send = from.data;
    if (v == ALL_GATHER && in_place) {
        const size_t bytes = (size_t)count * tutti_dtype_size(dtype);
        send = (char *)to.data + (size_t)rig_rank() * bytes;
        CHECK_OK(tutti_copy(ctx, send, from.data, bytes));
    }
    tutti_status status =
        v == ALL_REDUCE ? tutti_comm_all_reduce(comm, ctx, send, recv->data, count, dtype, op)
        : v == REDUCE_SCATTER
            ? tutti_comm_reduce_scatter(comm, ctx, send, recv->data, count, dtype, op)
        : v == BROADCAST  ? tutti_comm_broadcast(comm, ctx, recv->data, count, dtype, root)
        : v == ALL_GATHER ? tutti_comm_all_gather(comm, ctx, send, recv->data, count, dtype)
                          : tutti_comm_all_to_all(comm, ctx, send, recv->data, count, dtype);
    CHECK_OK(status);
    verify(ctx, &from, recv, want);
    free(want);
    harness_buffer_free(ctx, &from);
    harness_buffer_free(ctx, &to);
}

static void all_verbs(tutti_comm *comm, tutti_context *ctx, tutti_dtype dtype, int64_t count)
{
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        harness_where("%s count %lld op %d", tutti_dtype_name(dtype), (long long)count, ops[o]);
        one_verb(comm, ctx, ALL_REDUCE, dtype, count, ops[o], 0, false);
        one_verb(comm, ctx, ALL_REDUCE, dtype, count, ops[o], 0, true);
        one_verb(comm, ctx, REDUCE_SCATTER, dtype, count, ops[o], 0, false);
    }
    harness_where("%s count %lld", tutti_dtype_name(dtype), (long long)count);
    for (int root = 0; root < rig_size(); root++)
        one_verb(comm, ctx, BROADCAST, dtype, count, TUTTI_SUM, root, true);
    one_verb(comm, ctx, ALL_GATHER, dtype, count, TUTTI_SUM, 0, false);
    one_verb(comm, ctx, ALL_GATHER, dtype, count, TUTTI_SUM, 0, true);
    one_verb(comm, ctx, ALL_TO_ALL, dtype, count, TUTTI_SUM, 0, false);
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

/* What ranks agree on twice names its rank once. */
static void agreement(tutti_context *ctx, tutti_comm *comm)
{
    (void)ctx;
    const int last = rig_size() - 1;
    tutti_status status = rig_rank() == last ? tutti_alloc(NULL, 1, NULL) : TUTTI_OK;
    for (int i = 0; i < 2; i++) {
        status = tutti_comm_agree(comm, status);
        CHECK(status == TUTTI_ERR_ARG, "agreed on %d", (int)status);
    }
    const char *named = strstr(tutti_last_error(), "rank ");
    CHECK(rig_size() == 1 || (named && !strstr(named + 1, "rank ")), "message: %s",
          tutti_last_error());
}

RIG_OVER(verbs)
RIG_OVER(agreement)
RIG_OVER(rounding)

static const rig_test tests[] = {
    RIG_ROWS("verbs", verbs, 1, 0),
    RIG_ROWS("16-bit sums", rounding, 2, 2),
    RIG_ROWS("agreement", agreement, 1, 0),
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "comm verbs", tests, HARNESS_COUNT(tests));
}
