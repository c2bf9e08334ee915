/* Mean and rstd of rows that are long, that all but cancel, or that all but overflow: of what forward saves, as y and the
 * gradients cannot be nearer than these. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "common.h"
#include "norm_check.h"

/* What a row is made of. */
static const struct {
    const char *name;
    double mean, deviation;
    double ulps; /* or: only the mean, and this many ulp of it more in every third column */
} kinds_of_row[] = {
    {"random", 0.25, 1, 0},
    {"of one sign", 40, 4, 0},
    {"far from 0", 3000, 1, 0},
    {"one ulp apart", 1.0 / 3, 0, 1},
    {"three ulp apart", 1e6 / 7, 0, 3},
};

/* Sums of up to 2^20 f64 values want more digits than a long double has everywhere: two of them. */
typedef struct exact_sum {
    long double high, low;
} exact_sum;

static void exact_add(exact_sum *sum, long double term)
{
    long double high = sum->high + term, part = high - sum->high;
    sum->low += (sum->high - (high - part)) + (term - part);
    sum->high = high;
}

static void fill_row(harness_rng *rng, int which, tutti_dtype dtype, double *x, int64_t cols)
{
    const double mean = harness_round(dtype, kinds_of_row[which].mean);
    const double step = 2 * harness_roundoff(dtype) * exp2(floor(log2(mean)));
    harness_fill(rng, x, cols, dtype, mean, kinds_of_row[which].deviation);
    if (kinds_of_row[which].ulps == 0) return;
    for (int64_t j = 0; j < cols; j++)
        x[j] = mean + (j % 3 == 1 ? kinds_of_row[which].ulps * step : 0);
}

/* Rounding the mean, u |mean|; then few u, of the row's distance from its mean and of rstd. */
static void check_row(tutti_dtype dtype, const double *x, int64_t cols, const double *mean,
                      double rstd)
{
    const double u = harness_roundoff(dtype), eps = norm_tested() == LAYERNORM ? 1e-5 : 1e-6;
    exact_sum sum = {0}, distance = {0}, squares = {0};
    long double want = 0;
    for (int64_t j = 0; mean && j < cols; j++) exact_add(&sum, x[j]);
    if (mean) want = (sum.high + sum.low) / (long double)cols;
    for (int64_t j = 0; j < cols; j++) {
        const long double centred = x[j] - want;
        exact_add(&distance, fabsl(centred));
        exact_add(&squares, centred * centred);
    }
    const double away = (double)(distance.high / (long double)cols);
    const long double variance = (squares.high + squares.low) / (long double)cols;
    if (mean)
        CHECK(fabs((double)(*mean - want)) <= 1.01 * u * fabs((double)want) + 2 * u * away,
              "mean is %.17g, want %.17g: %.2f u of it off", *mean, (double)want,
              fabs((double)(*mean - want)) / u / fabs((double)want));
    const long double right = 1 / sqrtl(variance + (long double)eps);
    CHECK(fabs((double)(rstd - right)) <= 8 * u * (double)right,
          "rstd is %.17g, want %.17g: %.1f u of it off", rstd, (double)right,
          fabs((double)(rstd - right)) / u / (double)right);
}

static tutti_layer *create(tutti_context *ctx, tutti_dtype dtype, int64_t cols)
{
    tutti_layer *layer = NULL;
    if (norm_tested() == LAYERNORM) {
        tutti_layernorm_desc desc = TUTTI_LAYERNORM_DESC_INIT;
        desc.cols = cols;
        desc.x_dtype = desc.param_dtype = desc.y_dtype = dtype;
        desc.no_gamma = desc.no_beta = 1;
        CHECK_OK(tutti_layernorm_create(ctx, &desc, &layer));
    } else {
        tutti_rmsnorm_desc desc = TUTTI_RMSNORM_DESC_INIT;
        desc.cols = cols;
        desc.x_dtype = desc.param_dtype = desc.y_dtype = dtype;
        desc.no_gamma = 1;
        CHECK_OK(tutti_rmsnorm_create(ctx, &desc, &layer));
    }
    return layer;
}

static void check_rows(tutti_dtype dtype, int64_t cols)
{
    enum { ROWS = HARNESS_COUNT(kinds_of_row) };
    tutti_context *ctx = harness_context();
    harness_rng rng = {(uint64_t)cols};
    tutti_layer *layer = create(ctx, dtype, cols);
    if (!layer) return;
    operand x = operand_make(ctx, &rng, dtype, ROWS, cols, (layout){0, 0}, 0, 1);
    operand y = operand_make(ctx, &rng, dtype, ROWS, cols, (layout){0, 0}, OUTPUT);
    for (int i = 0; i < ROWS; i++) fill_row(&rng, i, dtype, x.values + i * cols, cols);
    operand_put(ctx, &x);
    harness_buffer saved = saved_make(ctx, layer, ROWS);
    const tutti_rmsnorm_call call = {.x = &x.tensor, .y = &y.tensor, SAVED(saved)};
    if (CHECK_OK(norm_forward(layer, ctx, &call))) {
        /* mean, if there is one, then rstd, each on a 16-byte boundary: src/layers/norm.c */
        const size_t size = tutti_dtype_size(dtype), apart = (ROWS * size + 15) / 16 * 16;
        unsigned char *bytes = harness_calloc(2, apart);
        harness_buffer_get_raw(ctx, &saved, bytes);
        const unsigned char *rstd = norm_tested() == LAYERNORM ? bytes + apart : bytes;
        for (int i = 0; i < ROWS; i++) {
            double mean, factor;
            CHECK_OK(tutti_convert(&mean, TUTTI_F64, bytes + (size_t)i * size, dtype, 1));
            CHECK_OK(tutti_convert(&factor, TUTTI_F64, rstd + (size_t)i * size, dtype, 1));
            harness_where("%s, %lld columns, a row %s", tutti_dtype_name(dtype), (long long)cols,
                          kinds_of_row[i].name);
            check_row(dtype, x.values + i * cols, cols, norm_tested() == LAYERNORM ? &mean : NULL,
                      factor);
        }
        free(bytes);
    }
    tutti_layer_destroy(&layer);
    operand_free(ctx, &x);
    operand_free(ctx, &y);
    harness_buffer_free(ctx, &saved);
}

void norm_test_statistics(void)
{
    static const int64_t cols[] = {300, 16384, 100000, 200003, 1 << 20};
    for (int i = 0; i < (harness_quick() ? 2 : HARNESS_COUNT(cols)); i++) {
        check_rows(TUTTI_F32, cols[i]);
        check_rows(TUTTI_F64, cols[i]);
    }
}
