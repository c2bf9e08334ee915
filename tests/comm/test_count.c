/* The loss weight from the labels that count on all ranks: counted on the device, summed over the
 * ranks, set in the step block. */
#include <math.h>
#include <stdlib.h>

#include "tutti/cross_entropy.h"

#include "rig.h"

enum { COLS = 7, CALLS = 3, IGNORED = -100 };

typedef struct counting {
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_layer *loss;
    tutti_step_block *step;
    harness_buffer count;
} counting;

static bool open_counting(counting *c, tutti_context *ctx, tutti_comm *comm)
{
    tutti_cross_entropy_desc desc = TUTTI_CROSS_ENTROPY_DESC_INIT;
    const tutti_step_values values = {.step = 1, .loss_weight = 3, .loss_scale = 8};
    desc.cols = COLS;
    desc.ignore_label = IGNORED;
    *c = (counting){.ctx = ctx, .comm = comm};
    c->count = harness_buffer_make(ctx, TUTTI_F64, 1, 1, 0, 0);
    return CHECK_OK(tutti_cross_entropy_create(ctx, &desc, &c->loss)) &&
           CHECK_OK(tutti_step_block_create(ctx, &c->step)) &&
           CHECK_OK(tutti_step_block_set(c->step, ctx, &values));
}

static void close_counting(counting *c)
{
    CHECK_OK(tutti_context_synchronize(c->ctx));
    harness_buffer_free(c->ctx, &c->count);
    tutti_step_block_destroy(&c->step);
    tutti_layer_destroy(&c->loss);
}

/* A rank's rows in a call: none in some, more than a thread each in others. */
static int64_t rows_of(int rank, int call)
{
    return rank == 1 && call != 1 ? 0 : call == 2 ? 5003 + rank : 13 + 9 * rank + 5 * call;
}

/* Ignored, out of range on either side, or a class. */
static double label_of(int rank, int call, int64_t i)
{
    static const double other[] = {IGNORED, -1, COLS, INT32_MIN, INT32_MAX};
    const int64_t at = i * 7 + rank * 3 + call;
    return at % 4 == 0 ? other[at / 4 % HARNESS_COUNT(other)] : (double)(at % COLS);
}

static double counted(int rank, int call)
{
    double count = 0;
    for (int64_t i = 0; i < rows_of(rank, call); i++) {
        const double label = label_of(rank, call, i);
        count += label >= 0 && label < COLS;
    }
    return count;
}

static harness_buffer labels_of(tutti_context *ctx, int call, bool ignored)
{
    const int64_t rows = rows_of(rig_rank(), call);
    harness_buffer buffer = harness_buffer_make(ctx, TUTTI_I32, 1, rows, 0, call == 1);
    double *values = harness_calloc((size_t)rows + 1, sizeof *values);
    for (int64_t i = 0; i < rows; i++)
        values[i] = ignored ? IGNORED : label_of(rig_rank(), call, i);
    harness_buffer_put(ctx, &buffer, values);
    free(values);
    return buffer;
}

static double value_of(const counting *c)
{
    double value;
    CHECK_OK(tutti_context_synchronize(c->ctx));
    harness_buffer_get(c->ctx, (harness_buffer *)&c->count, &value);
    return value;
}

/* Counts the labels of all calls, and makes the loss weight of them. */
static void weigh(counting *c, bool ignored)
{
    tutti_tensor count = tutti_tensor_1d(c->count.data, TUTTI_F64, 1);
    double mine = 0;
    for (int call = 0; call < CALLS; call++) {
        harness_buffer labels = labels_of(c->ctx, call, ignored);
        const tutti_tensor list =
            tutti_tensor_1d(labels.data, TUTTI_I32, rows_of(rig_rank(), call));
        CHECK_OK(tutti_cross_entropy_count(c->loss, c->ctx, &list, &count,
                                           call > 0 ? TUTTI_GRAD_ACCUMULATE : 0));
        mine += ignored ? 0 : counted(rig_rank(), call);
        const double got = value_of(c);
        CHECK(got == mine, "%g labels up to call %d, want %g", got, call, mine);
        harness_buffer_free(c->ctx, &labels);
    }
    CHECK_OK(
        tutti_comm_all_reduce(c->comm, c->ctx, count.data, count.data, 1, TUTTI_F64, TUTTI_SUM));
    CHECK_OK(tutti_step_block_weigh(c->step, c->ctx, &count));
}

/* The gradients of one row's logits, in which the loss weight shows. */
static void gradients(const counting *c, double got[COLS])
{
    harness_buffer logits = harness_buffer_make(c->ctx, TUTTI_F32, 1, COLS, 0, 0);
    harness_buffer label = harness_buffer_make(c->ctx, TUTTI_I32, 1, 1, 0, 0);
    harness_buffer_put(c->ctx, &logits, (double[]){0.5, -1, 2, 0.25, 1, 0, -3});
    harness_buffer_put(c->ctx, &label, (double[]){4});
    tutti_tensor x = harness_buffer_tensor(&logits);
    const tutti_tensor l = tutti_tensor_1d(label.data, TUTTI_I32, 1);
    const tutti_cross_entropy_call call = {
        .logits = &x, .labels = &l, .dlogits = &x, .step = c->step};
    CHECK_OK(tutti_cross_entropy_forward(c->loss, c->ctx, &call));
    CHECK_OK(tutti_context_synchronize(c->ctx));
    harness_buffer_get(c->ctx, &logits, got);
    harness_buffer_free(c->ctx, &logits);
    harness_buffer_free(c->ctx, &label);
}

/* The loss's gradients have the bits of a weight that the host sets. */
static void weights(tutti_context *ctx, tutti_comm *comm)
{
    counting c;
    if (!open_counting(&c, ctx, comm)) return;
    double all = 0, got[COLS], want[COLS];
    for (int rank = 0; rank < rig_size(); rank++)
        for (int call = 0; call < CALLS; call++) all += counted(rank, call);
    weigh(&c, false);
    const double count = value_of(&c);
    CHECK(count == all && all > 0, "%g labels on all ranks, want %g", count, all);
    gradients(&c, got);
    const tutti_step_values values = {.step = 1, .loss_weight = 1 / all, .loss_scale = 8};
    CHECK_OK(tutti_step_block_set(c.step, ctx, &values));
    gradients(&c, want);
    for (int i = 0; i < COLS; i++)
        CHECK(got[i] == want[i] && got[i] != 0, "gradient %d is %.17g, want %.17g", i, got[i],
              want[i]);
    close_counting(&c);
}

/* No label counts on any rank: gradients are 0, not infinite. */
static void no_labels(tutti_context *ctx, tutti_comm *comm)
{
    counting c;
    if (!open_counting(&c, ctx, comm)) return;
    double got[COLS];
    weigh(&c, true);
    gradients(&c, got);
    for (int i = 0; i < COLS; i++) CHECK(got[i] == 0, "gradient %d is %g, want 0", i, got[i]);
    close_counting(&c);
}

/* What is no count is seen in the gradients. */
static void no_count(tutti_context *ctx, tutti_comm *comm)
{
    static const double counts[] = {-3, NAN, -INFINITY};
    counting c;
    if (!open_counting(&c, ctx, comm)) return;
    const tutti_tensor count = tutti_tensor_1d(c.count.data, TUTTI_F64, 1);
    double got[COLS];
    for (int k = 0; k < HARNESS_COUNT(counts); k++) {
        harness_buffer_put(ctx, &c.count, &counts[k]);
        CHECK_OK(tutti_step_block_weigh(c.step, ctx, &count));
        gradients(&c, got);
        for (int i = 0; i < COLS; i++)
            CHECK(isnan(got[i]), "count %g: gradient %d is %g, want NaN", counts[k], i, got[i]);
    }
    close_counting(&c);
}

RIG_OVER(weights)
RIG_OVER(no_labels)
RIG_OVER(no_count)

static const rig_test tests[] = {
    RIG_ROWS("the weight of all ranks' labels", weights, 1, 0),
    RIG_ROWS("no label counts", no_labels, 1, 0),
    RIG_ROWS("no count", no_count, 1, 0),
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "comm count", tests, HARNESS_COUNT(tests));
}
