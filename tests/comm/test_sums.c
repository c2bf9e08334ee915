/* The sums that exchanges are made of, of inputs in order and as a tree, with the bits of a plain
 * loop; on a GPU with the squares of their runs, and several sums beside each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/params.h"
#include "harness.h"
#include "ops/tree_sum.h"

enum { INPUTS = 8, NEAR = 3 };

/* Elements; of the squares' runs and less, one block's and many's. */
static const int64_t counts[] = {
    40 * TUTTI__NORM_RUN,       128, TUTTI__NORM_RUN, 2 * TUTTI__NORM_RUN - 128,
    15 * TUTTI__NORM_RUN + 256, 1024};
static const unsigned char in_order[INPUTS] = {0, 1, 1, 1, 1, 1, 1, 1};
static const unsigned char as_tree[INPUTS] = {0, 1, 0, 2, 0, 1, 0, 3};

typedef struct sums {
    tutti_context *ctx;
    tutti_dtype dtype;
    size_t size;
    int64_t all; /* elements of an input of every sum, one sum after another */
    bool squared;
    char *values[INPUTS], *got; /* on the host: what is added, [all] each */
    void *in[INPUTS];           /* on the device; the sums take the place of input NEAR */
    double *squares;
} sums;

/* Where a sum begins, each with room for its runs. */
static int64_t place(int sum)
{
    int64_t at = 0;
    for (int i = 0; i < sum; i++)
        at += (counts[i] + TUTTI__NORM_RUN - 1) / TUTTI__NORM_RUN * TUTTI__NORM_RUN;
    return at;
}

static void open_sums(sums *s, tutti_dtype dtype, bool squared)
{
    harness_rng rng = {11};
    *s = (sums){.ctx = harness_context(),
                .dtype = dtype,
                .size = tutti_dtype_size(dtype),
                .all = place(HARNESS_COUNT(counts)),
                .squared = squared};
    s->got = harness_calloc((size_t)s->all, s->size);
    for (int k = 0; k < INPUTS; k++) {
        s->values[k] = harness_calloc((size_t)s->all, s->size);
        for (int64_t i = 0; i < s->all; i++) {
            const double value =
                harness_uniform(&rng, -1, 1) * (double)(1 << harness_random(&rng) % 12);
            if (dtype == TUTTI_F64)
                ((double *)(void *)s->values[k])[i] = value;
            else
                ((float *)(void *)s->values[k])[i] = (float)value;
        }
        CHECK_OK(tutti_alloc(s->ctx, (size_t)s->all * s->size, &s->in[k]));
    }
    CHECK_OK(tutti_alloc(s->ctx, (size_t)(s->all / TUTTI__NORM_RUN) * sizeof *s->squares,
                         (void **)&s->squares));
}

static void close_sums(sums *s)
{
    for (int k = 0; k < INPUTS; k++) {
        free(s->values[k]);
        tutti_free(s->ctx, &s->in[k]);
    }
    free(s->got);
    tutti_free(s->ctx, (void **)&s->squares);
}

static void enqueue(const sums *s, int sum, const unsigned char *pops, bool beside)
{
    const int64_t first = place(sum);
    tutti__tree_sum_args args = {.count = counts[sum],
                                 .dtype = s->dtype,
                                 .dst = (char *)s->in[NEAR] + (size_t)first * s->size,
                                 .inputs = INPUTS,
                                 .threads = 1,
                                 .squares =
                                     s->squared ? s->squares + first / TUTTI__NORM_RUN : NULL,
                                 .beside = beside};
    for (int k = 0; k < INPUTS; k++) {
        args.in[k] = (const char *)s->in[k] + (size_t)first * s->size;
        args.pops[k] = pops[k];
    }
    CHECK_OK(s->ctx->backend->op.tree_sum(s->ctx->device, s->ctx->stream, &args));
}

#define WANTED(real)                                                                         \
    static real wanted_##real(const sums *s, const unsigned char *pops, int64_t i)           \
    {                                                                                        \
        real stack[INPUTS];                                                                  \
        int depth = 0;                                                                       \
        for (int k = 0; k < INPUTS; k++) {                                                   \
            stack[depth++] = ((const real *)(const void *)s->values[k])[i];                  \
            for (int p = 0; p < pops[k]; p++, depth--) stack[depth - 2] += stack[depth - 1]; \
        }                                                                                    \
        return stack[0];                                                                     \
    }
WANTED(float)
WANTED(double)

static void check_sum(const sums *s, int sum, const unsigned char *pops, const double *squares)
{
    const int64_t first = place(sum);
    int64_t wrong = 0;
    double square = 0;
    for (int64_t i = 0; i < counts[sum]; i++) {
        double value;
        if (s->dtype == TUTTI_F64) {
            value = wanted_double(s, pops, first + i);
            wrong += memcmp(&value, s->got + (size_t)(first + i) * s->size, sizeof value) != 0;
        } else {
            const float want = wanted_float(s, pops, first + i);
            wrong += memcmp(&want, s->got + (size_t)(first + i) * s->size, sizeof want) != 0;
            value = (double)want;
        }
        square += value * value;
        if ((i + 1) % TUTTI__NORM_RUN && i + 1 < counts[sum]) continue;
        const double got = squares[(first + i) / TUTTI__NORM_RUN];
        CHECK(!s->squared || fabs(got - square) <= 1e-12 * square,
              "sum %d, run %lld: squares are %.17g, want %.17g", sum,
              (long long)(i / TUTTI__NORM_RUN), got, square);
        square = 0;
    }
    CHECK(wrong == 0, "sum %d: %lld of %lld elements have other bits", sum, (long long)wrong,
          (long long)counts[sum]);
}

/* All sums, from `start` on, those behind the first beside the one before or not; the copies that
 * follow them follow all. */
static void check_order(sums *s, const unsigned char *pops, int start, bool beside)
{
    const size_t bytes = (size_t)s->all * s->size;
    const size_t runs = (size_t)(s->all / TUTTI__NORM_RUN);
    double *squares = harness_calloc(runs, sizeof *squares);
    harness_where("%s %s, from sum %d%s", tutti_dtype_name(s->dtype),
                  pops == as_tree ? "tree" : "in order", start, beside ? ", beside" : "");
    CHECK_OK(tutti_zero(s->ctx, s->squares, runs * sizeof *squares));
    for (int k = 0; k < INPUTS; k++) CHECK_OK(tutti_copy(s->ctx, s->in[k], s->values[k], bytes));
    for (int i = 0; i < HARNESS_COUNT(counts); i++)
        enqueue(s, (start + i) % HARNESS_COUNT(counts), pops, beside && i > 0);
    CHECK_OK(tutti_copy(s->ctx, s->got, s->in[NEAR], bytes));
    CHECK_OK(tutti_copy(s->ctx, squares, s->squares, runs * sizeof *squares));
    CHECK_OK(tutti_context_synchronize(s->ctx));
    for (int i = 0; i < HARNESS_COUNT(counts); i++) check_sum(s, i, pops, squares);
    free(squares);
    harness_where(NULL);
}

static void orders(void)
{
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_F64};
    const bool gpu = harness_backend() == TUTTI_BACKEND_CUDA;
    for (int d = 0; d < HARNESS_COUNT(dtypes); d++)
        for (int squared = 0; squared <= gpu; squared++) {
            sums s;
            open_sums(&s, dtypes[d], squared);
            for (int start = 0; start < HARNESS_COUNT(counts) && !harness_failures(); start++)
                for (int way = 0; way < 4; way++)
                    check_order(&s, way % 2 ? as_tree : in_order, start, way / 2);
            close_sums(&s);
        }
}

static const harness_test tests[] = {{"orders", orders}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "sums", tests, HARNESS_COUNT(tests));
}
