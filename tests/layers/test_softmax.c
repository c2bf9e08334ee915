/* Tests of softmax and log-softmax. */
#include <math.h>
#include <string.h>

#include "matrix.h"

/* Slots of the table, as bits of what a call lacks. */
enum { LENGTHS = 1 << 1, BIAS = 1 << 2 };

/* Not for long rows or f32 with a bias, whose errors may exceed 16 ulp, nor f64, finer than the
 * rounding of the reference's results. */
static bool sharp(const trial *t, const trial_tensor *result)
{
    const tutti_dtype dtype = result->at->buffer.dtype;
    return !result->gradient && t->shapes[result->index].cols <= 512 &&
           !strstr(t->c.options, "scale") && dtype != TUTTI_F64 &&
           (dtype != TUTTI_F32 || (t->c.absent & BIAS));
}

static const matrix_kind softmax = {
    .trial = {.name = "softmax", .deviation = 2, .first_row = 4, .sharp = sharp},
    .variants = {"", "log=1", "scale=-1.5", "log=1,scale=0.125", "causal_period=7,scale=0.7",
                 "log=1,causal_period=7", "scale=3", "log=1,scale=0", "scale=0.1"},
    .common = 2,
};

/* Each type, softmax and log-softmax, and one more number. */
#define EACH(type, log, i, count)         \
    for (int type = 0; type < 4; type++)  \
        for (int log = 0; log < 2; log++) \
            for (int i = 0; i < (count); i++)

static trial_desc usual(int type, int log, int64_t rows, int64_t cols, double scale, int64_t period)
{
    trial_desc c = trial_usual(
        &softmax.trial, rows, "cols=%lld,dtype=%s,log=%d,scale=%.17g,causal_period=%lld",
        (long long)cols, tutti_dtype_name(float_dtypes[type]), log, scale, (long long)period);
    c.absent = LENGTHS | BIAS;
    c.absent_grads = BIAS;
    return c;
}

/* The host runs the same loops whatever a row's length: of the long ones one in n. */
static bool left_to_gpus(int64_t cols, int turn, int n)
{
    return harness_backend() == TUTTI_BACKEND_HOST && !harness_quick() && cols > 5000 && turn % n;
}

/* A case whose x and dy are modified after drawing. */
static void check_changed(const trial_desc *c, void (*change)(trial *t, double *x, double *dy))
{
    trial t;
    if (!trial_open(&t, harness_context(), c)) return;
    operand *x = trial_find(&t, "x");
    change(&t, x->values, trial_find(&t, "dy")->values);
    for (int64_t i = 0; i < x->count; i++)
        x->values[i] = harness_round(x->buffer.dtype, x->values[i]);
    trial_put(&t);
    if (trial_run(&t)) trial_check(&t);
    trial_close(&t);
}

static int64_t count_of(const trial *t)
{
    return t->c.rows * t->shapes[0].cols;
}

/* A row with one visible column: y is 1, or 0 for log-softmax, and dx 0, whatever x and scale
 * are. */
static void test_one_column(void)
{
    static const double scales[] = {1, 3, 0.3, -0.7, 1e-3, -7.7, 0};
    static const int64_t cols[] = {1, 130, 5000, 40000};
    EACH(type, log, i, HARNESS_COUNT(scales) * HARNESS_COUNT(cols))
    {
        if (harness_quick() && cols[i % 4] > 130) continue;
        trial_kind far = softmax.trial;
        far.deviation = 200;
        trial_desc c = usual(type, log, 3, cols[i % 4], scales[i / 4], 1);
        c.kind = &far;
        trial t;
        if (!trial_open(&t, harness_context(), &c) || !trial_run(&t)) return;
        trial_get(&t, false);
        trial_get(&t, true);
        const double *y = trial_find(&t, "y")->values, *dx = trial_find(&t, "dx")->values;
        for (int64_t j = 0; j < count_of(&t); j++) {
            double want = j % cols[i % 4] == 0 ? !log : log ? -INFINITY : 0;
            if (!CHECK(y[j] == want && dx[j] == 0,
                       "element %lld: y is %.17g, want %g; dx is %g, want 0", (long long)j, y[j],
                       want, dx[j]))
                break;
        }
        trial_close(&t);
    }
}

static void move_far(trial *t, double *x, double *dy)
{
    (void)dy;
    for (int64_t j = 0; j < count_of(t); j++) x[j] += 3000;
}

/* An offset common to all elements costs no accuracy. */
static void test_far_from_zero(void)
{
    static const double scales[] = {0.3, -0.7, 5};
    static const int64_t cols[] = {20, 1000, 40000};
    EACH(type, log, i, harness_quick() ? 1 : 3)
    {
        const trial_desc c = usual(type, log, 3, cols[i], scales[i], 0);
        check_changed(&c, move_far);
    }
}

static void make_largest(trial *t, double *x, double *dy)
{
    (void)dy;
    const tutti_dtype dtype = t->shapes[0].dtype;
    const double largest = dtype == TUTTI_F64 ? 1.5e308 : dtype == TUTTI_F16 ? 6e4 : 3e38;
    for (int64_t j = 0; j < count_of(t); j++) x[j] = largest * ((double)(j % 5) / 2 - 1);
}

/* x's differences and its products with scale may overflow the type. */
static void test_range(void)
{
    static const double scales[] = {1e-38, 1e-308, 1e-4, 1e-38};
    static const int64_t cols[] = {3, 1000, 40000};
    EACH(type, log, i, 4 * (harness_quick() ? 1 : 3))
    {
        if (i > 7 && (i & 3) != type) continue;
        const double scale = i & 2 ? 1e30 : scales[type]; /* else all exponents are moderate */
        const trial_desc c = usual(type, log, 2, cols[i / 4], i & 1 ? -scale : scale, 0);
        check_changed(&c, make_largest);
    }
}

/* A scale of 0 makes rows uniform, whatever finite numbers they hold. */
static void test_scale_of_zero(void)
{
    static const int64_t cols[] = {20, 1000, 5000, 5001};
    EACH(type, log, i, HARNESS_COUNT(cols))
    {
        const trial_desc c = usual(type, log, 2, cols[i], 0, 0);
        check_changed(&c, make_largest);
    }
}

/* Row i of the global batch sees columns 0 to i mod period. */
static void test_causal_mask(void)
{
    static const int64_t shapes[][4] = {
        /* rows, cols, period, first_row */
        {12, 12, 12, 0},       {12, 12, 12, 5},
        {20, 9, 7, 3},         {7, 5, 16, 0},
        {40, 33, 33, 4},       {64, 130, 64, 9},
        {3, 4100, 5000, 4500}, {5, 40, 40, INT64_C(1) << 40},
        {9, 5001, 5001, 1019}, {3, 40003, 50000, 12345},
    };
    EACH(type, log, i, HARNESS_COUNT(shapes))
    {
        if (harness_quick() && i != 2 && i != 6) continue;
        trial_desc c = usual(type, log, shapes[i][0], shapes[i][1], i & 1 ? 0.25 : 1, shapes[i][2]);
        c.first_row = shapes[i][3];
        trial_case(&c);
    }
}

/* Rows that a GPU gives to clusters, with and without edges, and as long as the layer takes. */
static void test_long_rows(void)
{
    static const int64_t cols[] = {131072, 262139, 1 << 20};
    EACH(type, log, i, harness_quick() ? 1 : HARNESS_COUNT(cols))
    {
        if (left_to_gpus(cols[i], type + log + i, HARNESS_COUNT(cols))) continue;
        const trial_desc c = usual(type, log, 2, cols[i], log ? 0.7 : 1, 0);
        trial_case(&c);
    }
}

/* Rows of doubles: as many columns as a GPU gives to lanes, to blocks and to clusters, and more. */
static void test_rows_of_doubles(void)
{
    static const int64_t cols[] = {32, 33, 256, 257, 8192, 8195, 16383, 16385, 65536, 65537};
    for (int log = 0; log < 2; log++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            if (left_to_gpus(cols[i], log + i, 2) || (harness_quick() && i % 4)) continue;
            trial_desc c = usual(1 /* f64 */, log, 3, cols[i], 0.7, i % 2 ? 0 : cols[i] + 1);
            c.first_row = cols[i] - 2;
            trial_case(&c);
        }
}

/* Tensors that no cache keeps, which the host stores past them. */
static void test_larger_than_caches(void)
{
    trial_desc c = usual(1 /* f64 */, 0, 4200, 1027, 1, 0);
    c.place = (layout){.pad = 2, .misaligned = 1};
    trial_case(&c);
}

static void hide_specials(trial *t, double *x, double *dy)
{
    for (int64_t k = 0; k < count_of(t); k++) {
        if (k % 10 <= k / 10) continue;
        x[k] = k & 1 ? NAN : INFINITY;
        dy[k] = k & 1 ? NAN : -INFINITY;
    }
}

/* Values that the mask hides have no effect. */
static void test_hidden_values(void)
{
    EACH(type, log, i, 1)
    {
        trial_desc c = usual(type, log, 10, 10, 1, 10);
        c.first_row = i;
        check_changed(&c, hide_specials);
    }
}

/* Rows of y may lie in the gaps between x's, but must not overlap them. */
static void test_slices(void)
{
    enum { ROWS = 3, COLS = 4, STRIDE = 10 };
    tutti_context *ctx = harness_context();
    tutti_softmax_desc desc = TUTTI_SOFTMAX_DESC_INIT;
    desc.cols = COLS;
    tutti_layer *layer = NULL;
    void *data = NULL;
    CHECK_OK(tutti_softmax_create(ctx, &desc, &layer));
    CHECK_OK(tutti_alloc(ctx, 2 * ROWS * STRIDE * sizeof(float), &data));
    CHECK_OK(tutti_zero(ctx, data, 2 * ROWS * STRIDE * sizeof(float)));
    for (int shift = 1; shift < STRIDE; shift++)
        for (int swapped = 0; swapped < 2; swapped++) {
            harness_where("shift %d swapped %d", shift, swapped);
            tutti_tensor low = tutti_tensor_2d(data, TUTTI_F32, ROWS, COLS);
            tutti_tensor high = tutti_tensor_2d((float *)data + shift, TUTTI_F32, ROWS, COLS);
            low.strides[0] = high.strides[0] = STRIDE;
            tutti_call call = {.in = {swapped ? &high : &low}, .out = {swapped ? &low : &high}};
            if (shift >= COLS && shift + COLS <= STRIDE)
                CHECK_OK(tutti_layer_forward(layer, ctx, &call));
            else
                CHECK_FAILS(TUTTI_ERR_ARG, "share memory", tutti_layer_forward(layer, ctx, &call));
        }
    harness_where(NULL);
    CHECK_OK(tutti_free(ctx, &data));
    tutti_layer_destroy(&layer);
}

/* A row is NaN if scale x is NaN or +inf in it, or -inf in all of it; a single -inf adds
 * nothing. */
static void check_special_rows(const trial_desc *c, int64_t n, bool log, double scale)
{
    trial t;
    if (!trial_open(&t, harness_context(), c)) return;
    double *x = trial_find(&t, "x")->values, *dy = trial_find(&t, "dy")->values;
    x[n / 2] = NAN;
    x[2 * n - 1] = INFINITY;
    x[2 * n] = -INFINITY;
    for (int64_t j = 0; j < n; j++) x[3 * n + j] = -INFINITY;
    for (int64_t j = 0; j < n / 2; j++) x[4 * n + j] = -INFINITY;
    dy[5 * n + n / 3] = NAN;
    trial_put(&t);
    if (trial_run(&t)) trial_check(&t);
    const double none = log ? -INFINITY : 0, *y = trial_find(&t, "y")->values;
    CHECK(isnan(y[0]) && isnan(y[3 * n]), "the rows with NaN and -inf alone are not NaN");
    if (scale < 0)
        CHECK(y[2 * n - 1] == none && !isnan(y[n]), "y of +inf is %g", y[2 * n - 1]);
    else
        CHECK(isnan(y[n]), "the row with +inf is not NaN");
    if (scale > 0)
        CHECK(y[2 * n] == none && !isnan(y[3 * n - 1]), "y of -inf is %g", y[2 * n]);
    else
        CHECK(isnan(y[2 * n]) && isnan(y[3 * n - 1]), "the row with -inf is not NaN");
    trial_close(&t);
}

static void test_special_rows(void)
{
    static const double scales[] = {1, 0.3, -2, 0};
    static const int64_t cols[] = {9, 300, 1027, 5000, 5001, 40000};
    EACH(type, log, i, 4 * (harness_quick() ? 2 : HARNESS_COUNT(cols)))
    {
        if (cols[i / 4] > 5001 && i % 4 != type) continue;
        const trial_desc c = usual(type, log, 6, cols[i / 4], scales[i % 4], 0);
        check_special_rows(&c, cols[i / 4], log, scales[i % 4]);
    }
}

/* Values whose exponentials alone would overflow or underflow. */
static void test_extreme_values(void)
{
    EACH(type, log, i, 2)
    {
        trial_kind wide = softmax.trial;
        wide.deviation = i ? 15000 : 200;
        trial_desc c = usual(type, log, 4, 301, 1, 0);
        c.kind = &wide;
        trial_case(&c);
    }
}

/* Lengths of every size, with and without a causal mask: what is beyond them has no effect, and a
 * row without a visible column is 0, or -inf for log-softmax, with gradients of 0. */
static void check_lengths(const trial_desc *c, bool log)
{
    trial t;
    if (!trial_open(&t, harness_context(), c)) return;
    const int64_t n = t.shapes[0].cols;
    double *x = trial_find(&t, "x")->values, *dy = trial_find(&t, "dy")->values;
    double *lengths = trial_find(&t, "lengths")->values;
    double *bias = c->absent & BIAS ? NULL : trial_find(&t, "bias")->values;
    for (int64_t i = 0; i < c->rows; i++) {
        lengths[i] = (double)(i == 0 ? 0 : i == 1 ? n : (i * 7919) % (n + 1));
        for (int64_t j = (int64_t)lengths[i]; j < n; j++) {
            x[i * n + j] = j & 1 ? NAN : INFINITY;
            dy[i * n + j] = j & 1 ? -INFINITY : NAN;
            if (bias) bias[i * n + j] = NAN;
        }
    }
    trial_put(&t);
    if (trial_run(&t)) trial_check(&t);
    const double *y = trial_find(&t, "y")->values, *dx = trial_find(&t, "dx")->values;
    for (int64_t j = 0; j < n; j++)
        if (!CHECK(y[j] == (log ? -INFINITY : 0) && dx[j] == 0,
                   "a row of length 0 has y %g and dx %g in column %lld", y[j], dx[j],
                   (long long)j))
            break;
    trial_close(&t);
}

static void test_lengths(void)
{
    static const int64_t cols[] = {1, 9, 300, 5000, 40000, 300000};
    EACH(type, log, i, 2 * (harness_quick() ? 3 : HARNESS_COUNT(cols)))
    {
        const int64_t n = cols[i / 2];
        if (left_to_gpus(n, type / 2 + log + i, 2)) continue;
        trial_desc c = usual(type, log, n > 5000 ? 3 : 12, n, 0.7, i % 2 ? 5 : 0);
        c.absent = type % 2 ? BIAS : 0;
        check_lengths(&c, log);
        c.absent_grads = 0;
        check_lengths(&c, log);
    }
}

/* A bias of -inf beyond a length hides the same columns, to the bit. */
static void test_bias_hides(void)
{
    static const int64_t cols[] = {9, 300, 5000, 40000};
    EACH(type, log, i, harness_quick() ? 2 : HARNESS_COUNT(cols))
    {
        const int64_t n = cols[i];
        trial_desc c = usual(type, log, 3, n, 0.5, 0);
        c.absent = 0;
        c.forward_only = true;
        trial hidden, t;
        if (!trial_open(&t, harness_context(), &c)) return;
        c.absent = LENGTHS;
        if (!trial_open(&hidden, harness_context(), &c)) return;
        double *lengths = trial_find(&t, "lengths")->values;
        for (int64_t row = 0; row < 3; row++) {
            lengths[row] = (double)(1 + (row * 7919) % n);
            for (int64_t j = (int64_t)lengths[row]; j < n; j++)
                trial_find(&hidden, "bias")->values[row * n + j] = -INFINITY;
        }
        trial_put(&t);
        trial_put(&hidden);
        if (trial_run(&t) && trial_run(&hidden)) {
            trial_check(&hidden);
            check_same_bits(t.ctx, "y", trial_find(&t, "y"), trial_find(&hidden, "y"));
        }
        trial_close(&hidden);
        trial_close(&t);
    }
}

/* A bias that repeats in memory gives the bits of one that is written out: [2, 3, 4, n] of which
 * one block of 4, of 12 or of 1 row is there. */
static void check_repeats(const trial_desc *c, int64_t period)
{
    trial whole, t;
    if (!trial_open(&whole, harness_context(), c)) return;
    if (!trial_open(&t, harness_context(), c)) return;
    const int64_t n = t.shapes[0].cols;
    operand *all = trial_find(&whole, "bias"), *one = trial_find(&t, "bias");
    tutti_tensor *view = &one->tensor;
    const int64_t pitch = view->strides[0];
    for (int64_t i = period * n; i < all->count; i++) all->values[i] = all->values[i - period * n];
    trial_put(&whole);
    /* the rows behind the block are not read */
    for (int64_t i = period * n; i < one->count; i++) one->values[i] = NAN;
    trial_put(&t);
    view->ndim = 4;
    memcpy(view->dims, (int64_t[]){2, 3, 4, n}, sizeof view->dims);
    memcpy(view->strides, (int64_t[]){0, period == 12 ? 4 * pitch : 0, period == 1 ? 0 : pitch, 1},
           sizeof view->strides);
    if (trial_run(&whole) && trial_run(&t)) {
        trial_check(&whole);
        trial_same_bits(&whole, &t);
    }
    trial_close(&t);
    trial_close(&whole);
}

static void test_repeated_bias(void)
{
    static const int64_t cols[] = {9, 300, 5000, 40000}, periods[] = {4, 12, 1};
    EACH(type, log, i, 3 * (harness_quick() ? 2 : HARNESS_COUNT(cols)))
    {
        if (left_to_gpus(cols[i / 3], type + log + i, 3)) continue;
        trial_desc c = usual(type, log, 24, cols[i / 3], 0.5, 0);
        c.absent = type % 2 ? LENGTHS : 0;
        c.absent_grads = log ? BIAS : 0;
        c.place.pad = i % 2 ? 3 : 0;
        check_repeats(&c, periods[i % 3]);
    }
}

/* Only leading dimensions may repeat, and only the bias. */
static void test_refused_repeats(void)
{
    trial_desc c = usual(0, 0, 24, 9, 1, 0);
    c.absent = LENGTHS;
    trial t;
    if (!trial_open(&t, harness_context(), &c)) return;
    static const char *const names[] = {"bias", "x", "y"};
    for (int i = 0; i < HARNESS_COUNT(names); i++) {
        tutti_tensor *view = &trial_find(&t, names[i])->tensor, old = *view;
        view->ndim = 3;
        memcpy(view->dims, (int64_t[]){2, 12, 9}, 3 * sizeof *view->dims);
        memcpy(view->strides, (int64_t[]){i ? 0 : 108, i ? 9 : 0, 1}, 3 * sizeof *view->strides);
        CHECK_FAILS(TUTTI_ERR_ARG, names[i], tutti_layer_forward(t.layer, t.ctx, &t.call));
        *view = old;
    }
    tutti_tensor *bias = &trial_find(&t, "bias")->tensor;
    bias->ndim = 3;
    memcpy(bias->dims, (int64_t[]){3, 12, 9}, 3 * sizeof *bias->dims);
    memcpy(bias->strides, (int64_t[]){0, 9, 1}, 3 * sizeof *bias->strides);
    CHECK_FAILS(TUTTI_ERR_ARG, "36 rows, want 24", tutti_layer_forward(t.layer, t.ctx, &t.call));
    bias->dims[0] = INT64_MAX / 4;
    CHECK_FAILS(TUTTI_ERR_ARG, "2^59", tutti_layer_forward(t.layer, t.ctx, &t.call));
    trial_close(&t);
}

int main(int argc, char **argv)
{
    static const harness_test own[] = {
        {"one column", test_one_column},
        {"far from zero", test_far_from_zero},
        {"range of x and scale", test_range},
        {"a scale of 0", test_scale_of_zero},
        {"causal mask", test_causal_mask},
        {"long rows", test_long_rows},
        {"rows of doubles", test_rows_of_doubles},
        {"larger than caches", test_larger_than_caches},
        {"hidden values", test_hidden_values},
        {"slices of one tensor", test_slices},
        {"NaN and infinities in rows", test_special_rows},
        {"extreme values", test_extreme_values},
        {"lengths", test_lengths},
        {"a bias that hides columns", test_bias_hides},
        {"a bias that repeats", test_repeated_bias},
        {"repeats that are refused", test_refused_repeats},
    };
    return matrix_main(argc, argv, &softmax, own, HARNESS_COUNT(own));
}
