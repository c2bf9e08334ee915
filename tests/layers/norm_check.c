/* Tests of LayerNorm and RMSNorm: the matrix, and rows whose statistics are hard. */
#include "norm_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

enum { X, RESIDUAL, Y, SUM }; /* slots */

/* Where the sums are short; f64 is finer than the rounding of the reference's results. */
static bool sharp(const trial *t, const trial_tensor *result)
{
    const int64_t cols = t->shapes[X].cols;
    return !result->gradient && t->c.rows > 0 && cols >= 64 && cols <= 1024 &&
           result->at->buffer.dtype != TUTTI_F64;
}

/* Includes whole vectors, for which a backend may have a special kernel if rows are aligned, and
 * enough work for several threads. */
static const matrix_shape some[] = {{4, "cols=5"},     {37, "cols=64"},  {4, "cols=257"},
                                    {19, "cols=768"},  {9, "cols=700"},  {5, "cols=1027"},
                                    {5, "cols=1024"},  {3, "cols=5000"}, {403, "cols=50"},
                                    {2, "cols=20000"}, {0, NULL}};
enum { F32, F64, F16, BF16, TYPES = 6 };
static matrix_kind norm = {
    .trial = {.sharp = sharp},
    .flags = MATRIX_WIDE_GRADS | MATRIX_OUTPUTS_ALONE,
    .pairings = 28,
    .types = {"x_dtype=f32,param_dtype=f32", "x_dtype=f64,param_dtype=f64",
              "x_dtype=f16,param_dtype=f16", "x_dtype=bf16,param_dtype=bf16",
              "x_dtype=f16,param_dtype=f32", "x_dtype=bf16,param_dtype=f32"},
    .some = some,
};
static bool centered; /* LayerNorm */

/* A case whose inputs are made from what was drawn, without a residual. */
static trial_desc made(int type, int64_t rows, int64_t cols, void (*draw)(trial *t))
{
    static trial_kind special;
    special = norm.trial;
    special.draw = draw;
    trial_desc c = trial_usual(&special, rows, "cols=%lld,%s", (long long)cols, norm.types[type]);
    c.absent = 1u << RESIDUAL | 1u << SUM;
    c.absent_grads = 1u << SUM;
    return c;
}

static int64_t cols_of(const trial *t)
{
    return t->shapes[X].cols;
}

static void round_all(operand *o)
{
    for (int64_t i = 0; i < o->count; i++)
        o->values[i] = harness_round(o->buffer.dtype, o->values[i]);
}

static void make_equal(trial *t)
{
    operand *dy = &t->slots[Y][1];
    for (int64_t i = 0; i < dy->count; i++) dy->values[i] = harness_round(TUTTI_F32, 0.7);
}

/* With equal terms a chain of additions drifts; docs/numerics.md's bound is for terms in random
 * order, but must hold here too. */
static void test_equal_rows(void)
{
    enum { ROWS = 1000000, COLS = 2 };
    if (!centered) {
        harness_skip("RMSNorm has no beta");
        return;
    }
    trial_desc c = made(F32, ROWS, COLS, make_equal);
    c.absent_grads |= 1u << X;
    trial t;
    if (!trial_open(&t, harness_context(), &c)) return;
    trial_run(&t);
    trial_get(&t, true);
    const double want = ROWS * t.slots[Y][1].values[0], *dbeta = trial_find(&t, "dbeta")->values;
    const double bound = 4 * harness_roundoff(TUTTI_F32) * want * sqrt(ROWS / 3.0);
    for (int j = 0; j < COLS; j++)
        CHECK(fabs(dbeta[j] - want) <= bound, "dbeta[%d] is %.9g, want %.9g within %.2g", j,
              dbeta[j], want, bound);
    trial_close(&t);
}

/* Rows of equal values */

/* Values whose sum, or its division by the columns, rounds: a fraction, subnormal and large ones.
 * The last two are the largest whose sum over a row is finite in the type. */
static double constant_of(tutti_dtype dtype, int i)
{
    static const double values[] = {0,     1,     -2.5,  0.1,     1.0 / 3,   12345.678,
                                    -1e-5, 3e-39, 1e-30, 1e8 / 3, -1e18 / 7, 1e30 / 3};
    if (i >= HARNESS_COUNT(values)) return harness_huge(dtype) / (i % 2 ? 1 << 20 : -(1 << 20));
    return fabs(values[i]) <= harness_huge(dtype) ? harness_round(dtype, values[i]) : -7;
}
enum { CONSTANTS = 14 };

static void make_constant(trial *t)
{
    operand *x = &t->slots[X][0], *residual = &t->slots[RESIDUAL][0];
    for (int64_t i = 0; i < x->count; i++) {
        x->values[i] = constant_of(x->buffer.dtype, (int)(i / cols_of(t)));
        if (!residual->values) continue;
        residual->values[i] = harness_round(x->buffer.dtype, 0.5 * x->values[i]);
        x->values[i] -= residual->values[i];
    }
}

/* LayerNorm gives the results of rows of zeros: y is beta, and gamma's gradient is 0. */
static void check_like_zeros(const trial_desc *c)
{
    trial t;
    expected constants[TRIAL_TENSORS];
    if (!trial_open(&t, harness_context(), c)) return;
    trial_run(&t);
    for (int backward = 0; backward < 2; backward++) trial_get(&t, backward);
    const operand *y = &t.slots[Y][0];
    const double *beta = trial_find(&t, "beta")->values;
    for (int64_t i = 0; i < y->count; i++)
        if (!CHECK(y->values[i] == harness_round(y->buffer.dtype, beta[i % cols_of(&t)]),
                   "y is %g in row %lld, not beta", y->values[i], (long long)(i / cols_of(&t))))
            break;
    for (int i = 0; i < t.result_count; i++) {
        const operand *result = t.results[i].at;
        constants[i] = expected_make(result->count); /* with bounds of 0 */
        memcpy(constants[i].want, result->values, (size_t)result->count * sizeof(double));
    }
    for (int64_t i = 0; i < 2 * t.slots[X][0].count; i++)
        if (t.slots[i & 1][0].values) t.slots[i & 1][0].values[i / 2] = 0; /* x, the residual */
    trial_put(&t);
    trial_run(&t);
    for (int backward = 0; backward < 2; backward++) trial_get(&t, backward);
    if (cols_of(&t) < 10000) trial_check(&t); /* the shapes' long rows are checked elsewhere */
    for (int i = 0; i < t.result_count; i++) {
        if (t.results[i].at != &t.slots[SUM][0])
            check_expected(t.results[i].name, t.results[i].at, &constants[i], false);
        expected_free(&constants[i]);
    }
    trial_close(&t);
}

/* The variance is 0, and rstd depends on eps alone. */
static void test_rows_of_one_value(void)
{
    /* for each way in which a GPU divides a row, and one column more than a thread's share */
    static const int64_t cols[] = {1,     3,     100,   1000,   1027,  8192,
                                   12000, 30001, 65537, 131080, 262147};
    for (int type = 0; type < TYPES; type++)
        for (int i = 0; i < (harness_quick() ? 3 : HARNESS_COUNT(cols)); i++) {
            if (cols[i] > (centered ? 10000 : 1000) && (!centered || i % 3 != type % 3)) continue;
            trial_desc c = made(type, CONSTANTS, cols[i], make_constant);
            if ((i + type) & 1) c.absent = 0;
            if (centered)
                check_like_zeros(&c);
            else
                trial_case(&c);
        }
}

/* Overflow */

static tutti_dtype computed(const trial *t)
{
    return t->shapes[X].dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
}

static void make_overflow(trial *t)
{
    operand *x = &t->slots[X][0];
    const int64_t n = cols_of(t);
    const double limit = sqrt(harness_huge(computed(t))), even = limit / sqrt((double)n);
    for (int64_t j = 0; j < n; j++) {
        const double sign = j % 2 ? -1 : 1;
        double *v = x->values + j;
        v[n] = 1.1 * sign * even;               /* only their sum */
        v[2 * n] = 0.9 * sign * even;           /* just below */
        v[3 * n] *= 1e-3 * even;                /* far below, except one: */
        v[5 * n] = j % 3 ? sign * 1e30 : 1e-30; /* some far above */
    }
    x->values[3 * n + n / 2] = -1.2 * limit;
    round_all(x);
}

/* Rows whose sum of squares overflows the arithmetic are NaN on every backend; others are not, nor
 * are neighbouring rows. */
static void check_overflow(const trial_desc *c)
{
    trial t;
    if (!trial_open(&t, harness_context(), c)) return;
    if (trial_run(&t)) trial_check(&t);
    for (int row = 0; row < c->rows && cols_of(&t) > 1; row++) {
        const double y = t.slots[Y][0].values[row * cols_of(&t)];
        const bool overflows = row == 1 || row == 3 || (row == 5 && computed(&t) == TUTTI_F32);
        CHECK(isnan(y) == overflows, "row %d begins with %g", row, y);
    }
    trial_close(&t);
}

static void test_overflow(void)
{
    static const int64_t cols[] = {1, 9, 300, 1024, 5000, 20000, 70000, 150000};
    for (int type = 0; type < TYPES; type++)
        for (int i = 0; i < (harness_quick() ? 3 : HARNESS_COUNT(cols)); i++) {
            const bool main_types = type == F32 || strstr(norm.types[type], "param_dtype=bf16");
            if (cols[i] > 20000 && !main_types) continue;
            if (strstr(norm.types[type], "x_dtype=f16")) continue; /* its squares do not overflow */
            const trial_desc c = made(type, 6, cols[i], make_overflow);
            check_overflow(&c);
        }
}

/* Statistics */

static void move_far(trial *t)
{
    operand *x = &t->slots[X][0];
    for (int64_t i = 0; i < x->count; i++) x->values[i] += 1000;
    round_all(x);
}

/* A mean a thousand times the deviation: E[x^2] - E[x]^2 would lose all digits of f32. */
static void test_large_mean(void)
{
    static const int64_t cols[] = {64, 1000, 8192, 40000};
    for (int type = 0; type < TYPES; type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(cols)); i++) {
            trial_desc c = made(type, 3, cols[i], move_far);
            trial_kind blunt = *c.kind;
            blunt.sharp = NULL;
            c.kind = &blunt;
            trial_case(&c);
        }
}

/* The values of a row. */
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
enum { ROWS = HARNESS_COUNT(kinds_of_row) };

static void make_kinds_of_row(trial *t)
{
    operand *x = &t->slots[X][0];
    const tutti_dtype dtype = x->buffer.dtype;
    for (int64_t i = 0; i < x->count; i++) {
        const int row = (int)(i / cols_of(t));
        const double mean = harness_round(dtype, kinds_of_row[row].mean);
        const double step = 2 * harness_roundoff(dtype) * exp2(floor(log2(mean)));
        const double apart = i % cols_of(t) % 3 == 1 ? kinds_of_row[row].ulps * step : 0;
        x->values[i] = mean + apart + kinds_of_row[row].deviation * (x->values[i] - 0.25);
    }
    round_all(x);
}

/* Sums of up to 2^20 f64 values need more digits than a long double has on some machines: two. */
typedef struct exact_sum {
    long double high, low;
} exact_sum;

static void exact_add(exact_sum *sum, long double term)
{
    long double high = sum->high + term, part = high - sum->high;
    sum->low += (sum->high - (high - part)) + (term - part);
    sum->high = high;
}

/* Allows for rounding the mean, u |mean|, and a few u of the row's distance from its mean and of
 * rstd. */
static void check_row(tutti_dtype dtype, const double *x, int64_t cols, const double *mean,
                      double rstd)
{
    const double u = harness_roundoff(dtype), eps = centered ? 1e-5 : 1e-6;
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

/* Checks the saved mean and rstd of rows that are long, nearly cancel or nearly overflow: y and the
 * gradients cannot be more accurate than these. */
static void check_saved(int type, int64_t cols)
{
    trial_desc c = made(type, ROWS, cols, make_kinds_of_row);
    c.absent_grads = ~0u;
    trial t;
    if (!trial_open(&t, harness_context(), &c) || !trial_forward(&t)) return;
    /* mean, if there is one, then rstd, each on a 16-byte boundary: tutti__kept_bytes */
    const tutti_dtype dtype = computed(&t);
    const size_t size = tutti_dtype_size(dtype), apart = (ROWS * size + 15) / 16 * 16;
    unsigned char *bytes = harness_calloc(2, apart);
    harness_buffer_get_raw(t.ctx, &t.saved, bytes);
    for (size_t i = 0; i < ROWS; i++) {
        double mean, rstd;
        const unsigned char *at = bytes + i * size;
        CHECK_OK(tutti_convert(&mean, TUTTI_F64, at, dtype, 1));
        CHECK_OK(tutti_convert(&rstd, TUTTI_F64, centered ? at + apart : at, dtype, 1));
        harness_where("%s, a row %s", c.options, kinds_of_row[i].name);
        check_row(dtype, t.slots[X][0].values + (int64_t)i * cols, cols, centered ? &mean : NULL,
                  rstd);
    }
    free(bytes);
    trial_close(&t);
}

static void test_statistics(void)
{
    static const int64_t cols[] = {300, 16384, 100000, 200003, 1 << 20};
    for (int i = 0; i < (harness_quick() ? 2 : HARNESS_COUNT(cols)); i++)
        for (int type = F32; type <= F64; type++) check_saved(type, cols[i]);
}

/* Each worker of a backend, or team of workers, has several long rows in turn, with and without
 * what is optional. */
static void test_many_long_rows(void)
{
    static const struct {
        int type;
        int64_t rows, cols;
    } cases[] = {{BF16, 70, 65544}, {F32, 70, 32776},   {F16, 280, 16392},  {BF16, 800, 8191},
                 {F16, 1100, 3001}, {F32, 900, 3333},   {BF16, 100, 50257}, {BF16, 6701, 1027},
                 {F16, 700, 8195},  {F16, 1100, 3079},  {F32, 300, 8197},   {BF16, 50, 65541},
                 {F32, 60, 106493}, {BF16, 40, 131071}, {F32, 40, 131072},  {BF16, 32, 262144},
                 {F16, 20, 400001}};
    const bool quick = harness_quick(), gpu = harness_backend() == TUTTI_BACKEND_CUDA;
    for (int i = 0; i < HARNESS_COUNT(cases); i++) {
        /* the others are for the ways of a GPU; with quick, those that copy rows */
        const bool copies = i == 0 || i == 3 || i == 4 || i == 6 || i == 8 || i == 10;
        if (gpu ? quick && !copies : i >= (quick ? 1 : 3)) continue;
        /* on the host one case is long enough for any number of rows that a worker may have */
        const int less = gpu ? (quick && i == 0 ? 2 : 1) : i == 1 ? 1 : 10;
        const int64_t rows = cases[i].rows / less;
        trial_desc c = trial_usual(&norm.trial, rows, "cols=%lld,%s", (long long)cases[i].cols,
                                   norm.types[cases[i].type]);
        if (i >= 3 && i % 2) {
            c.absent = 1u << RESIDUAL | 1u << SUM;
            c.absent_grads = 1u << SUM;
        }
        if (i >= 3) c.place.misaligned = i % 3;
        trial_case(&c);
    }
}

/* The same bits wherever rows lie, whichever kernels a backend has for that: x and dy alike, or at
 * other bytes of a word. */
static void test_places_of_odd_rows(void)
{
    static const struct {
        int type;
        int64_t rows, cols;
    } cases[] = {{BF16, 2700, 1027}, {F16, 1100, 1543}, {F32, 1100, 1025}, {F16, 700, 3079},
                 {F16, 300, 8195},   {BF16, 50, 20003}, {F32, 40, 20003},  {BF16, 20, 140000},
                 {BF16, 5, 187393},  {F32, 3, 262145}};
    const bool gpu = harness_backend() == TUTTI_BACKEND_CUDA;
    for (int i = 0; i < HARNESS_COUNT(cases); i += harness_quick() ? 4 : 1)
        for (int residual = 0; residual < 2; residual++) {
            trial_desc c = trial_usual(&norm.trial, gpu ? cases[i].rows : 9, "cols=%lld,%s",
                                       (long long)cases[i].cols, norm.types[cases[i].type]);
            if (!residual) {
                c.absent = 1u << RESIDUAL | 1u << SUM;
                c.absent_grads = 1u << SUM;
            }
            trial alike, apart;
            if (!trial_open(&alike, harness_context(), &c)) return;
            trial_run(&alike);
            c.place = (layout){.pad = 3, .misaligned = 5, .apart = 2};
            if (trial_open(&apart, harness_context(), &c)) {
                trial_run(&apart);
                trial_same_bits(&alike, &apart);
                trial_close(&apart);
            }
            trial_close(&alike);
        }
}

/* Rows of a leaf, and of two: whatever kernels a backend has for few rows, the same results row by
 * row; the sums over rows may have other bits. */
static void check_leaf(const trial_desc *c)
{
    trial rows, leaf;
    if (!trial_open(&rows, harness_context(), c)) return;
    trial_run(&rows);
    for (int leaves = 1; leaves <= 2; leaves++) {
        const int64_t begins[] = {0, c->rows / 2};
        if (c->rows % leaves != 0 || !trial_open(&leaf, harness_context(), c)) continue;
        leaf.call.leaves = leaves;
        leaf.call.leaf_rows = begins;
        if (trial_run(&leaf)) trial_check(&leaf);
        for (int i = 0; i < rows.result_count; i++)
            if (rows.results[i].by_row)
                check_same_bits(rows.ctx, rows.results[i].name, rows.results[i].at,
                                leaf.results[i].at);
        trial_close(&leaf);
    }
    trial_close(&rows);
}

/* The kernels of a GPU for f64 and for y of another type than x, at the limits of each way to
 * divide a row: against the reference, and with the same bits where rows begin at other bytes. */
static void test_any_types(void)
{
    enum { QUICK = 5 };
    static const char *const types[] = {
        "x_dtype=f64,param_dtype=f64", "x_dtype=bf16,param_dtype=f32,y_dtype=f32",
        "x_dtype=f32,param_dtype=f16,y_dtype=f16", "x_dtype=f32,param_dtype=f64,y_dtype=f64"};
    static const struct {
        int type;
        int64_t rows, cols;
    } cases[] = {{0, 2300, 256}, {0, 650, 1026}, {1, 2200, 512}, {0, 150, 4099}, {2, 400, 2052},
                 {0, 2100, 257}, {0, 600, 1024}, {2, 30, 16388}, {0, 70, 8192},  {0, 70, 8193},
                 {0, 40, 16386}, {0, 20, 32770}, {0, 9, 65536},  {0, 3, 65537},  {1, 1100, 515},
                 {1, 9, 131072}, {2, 2, 131076}, {3, 300, 4096}, {3, 90, 4099},  {1, 150, 8192}};
    const bool gpu = harness_backend() == TUTTI_BACKEND_CUDA;
    for (int i = 0; i < (harness_quick() ? QUICK : HARNESS_COUNT(cases)); i++) {
        const int64_t rows = gpu && !harness_quick() ? cases[i].rows : 10;
        trial_desc c = trial_usual(&norm.trial, rows < cases[i].rows ? rows : cases[i].rows,
                                   "cols=%lld,%s", (long long)cases[i].cols, types[cases[i].type]);
        if (i % 3) {
            c.absent = 1u << RESIDUAL | 1u << SUM;
            c.absent_grads = 1u << SUM;
        }
        trial alike, apart;
        if (!trial_open(&alike, harness_context(), &c)) return;
        if (trial_run(&alike)) trial_check(&alike);
        c.place = (layout){.pad = 3, .misaligned = 1 + i % 3, .apart = i % 2};
        if (trial_open(&apart, harness_context(), &c)) {
            trial_run(&apart);
            trial_same_bits(&alike, &apart);
            trial_close(&apart);
        }
        trial_close(&alike);
        if (i < QUICK) check_leaf(&c);
    }
}

/* Tensors that no cache keeps, which the host stores past them; each row at another byte of a cache
 * line. */
static void test_larger_than_caches(void)
{
    for (int plain = 0; plain < (harness_quick() ? 1 : 2); plain++) {
        const int64_t rows = harness_quick() ? 40 : plain ? 6200 : 4200;
        trial_desc c = trial_usual(&norm.trial, rows, "cols=1027,%s", norm.types[F64]);
        if (plain) {
            c.absent = 1u << RESIDUAL | 1u << SUM;
            c.absent_grads = 1u << SUM;
        }
        c.place = (layout){.pad = 2, .misaligned = 1};
        trial_case(&c);
    }
}

/* dx is the gradient of both terms of the sum. */
static void test_residual(void)
{
    const trial_desc c = trial_usual(&norm.trial, 3, "cols=11,%s", norm.types[F64]);
    trial t;
    if (!trial_open(&t, harness_context(), &c)) return;
    trial_run(&t);
    trial_get(&t, true);
    trial_differences(&t, "dx as the residual's", trial_find(&t, "residual"), trial_find(&t, "dx"));
    trial_close(&t);
}

/* Both norms are one operation, and their descriptors can be equal: neither may be run as was
 * planned for the other. */
static void check_beside_other(const trial_desc *c)
{
    trial_kind another = *c->kind;
    another.name = centered ? "rmsnorm" : "layernorm";
    trial_desc other = *c;
    other.kind = &another;
    tutti_context *ctx = harness_new_context(0, 1);
    trial alone, before, after;
    if (trial_open(&alone, harness_context(), c)) {
        trial_run(&alone);
        if (trial_open(&before, ctx, &other)) {
            trial_run(&before);
            trial_close(&before);
        }
        if (trial_open(&after, ctx, c)) {
            trial_run(&after);
            CHECK_OK(tutti_context_synchronize(ctx)); /* the comparison is on the other stream */
            trial_same_bits(&alone, &after);
            trial_close(&after);
        }
        trial_close(&alone);
    }
    tutti_context_destroy(&ctx);
}

static void test_beside_other_norm(void)
{
    static const int64_t cols[] = {300, 16384};
    for (int type = 0; type < TYPES; type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            const trial_desc c = trial_usual(&norm.trial, 40, "cols=%lld,eps=1e-5,%s",
                                             (long long)cols[i], norm.types[type]);
            check_beside_other(&c);
        }
}

/* Calls of two contexts that a GPU may run at the same time: a kernel whose blocks wait for each
 * other must not wait for room that another one's blocks have. */
static void test_side_by_side(void)
{
    enum { TURNS = 30 };
    static const int64_t cols[] = {10003, 262144};
    const bool gpu = harness_backend() == TUTTI_BACKEND_CUDA;
    for (int i = 0; i < (gpu && !harness_quick() ? 2 : 1); i++) {
        const trial_desc c = trial_usual(&norm.trial, gpu ? 16 : 3, "cols=%lld,%s",
                                         (long long)cols[i], norm.types[BF16]);
        tutti_context *ctx = harness_new_context(0, 1);
        trial here, there;
        if (trial_open(&here, harness_context(), &c)) {
            if (trial_open(&there, ctx, &c)) {
                bool good = trial_forward(&here) && trial_forward(&there);
                for (int turn = 0; good && turn < TURNS; turn++)
                    good = trial_backward(&here) && trial_backward(&there);
                CHECK_OK(tutti_context_synchronize(ctx));
                trial_same_bits(&here, &there);
                trial_close(&there);
            }
            trial_close(&here);
        }
        tutti_context_destroy(&ctx);
    }
}

static void test_leaf(void)
{
    static const int64_t cols[] = {40, 1024, 512, 264, 768, 3000, 4104, 5120, 8192, 10003, 16384};
    for (int type = 0; type < TYPES; type++)
        for (int i = 0; i < (harness_quick() ? 2 : HARNESS_COUNT(cols)); i++) {
            /* a GPU's ways of long rows */
            if (cols[i] > 3000 && harness_backend() == TUTTI_BACKEND_HOST) break;
            trial_desc c =
                trial_usual(&norm.trial, 22, "cols=%lld,%s", (long long)cols[i], norm.types[type]);
            check_leaf(&c);
            c.place = (layout){.pad = 3, .misaligned = 1};
            c.absent = 1u << RESIDUAL | 1u << SUM;
            c.absent_grads = 1u << SUM;
            if (!harness_quick()) check_leaf(&c);
        }
}

int norm_main(int argc, char **argv, const char *kind, const char *const variants[])
{
    static const harness_test own[] = {
        {"equal rows", test_equal_rows},
        {"rows of one value", test_rows_of_one_value},
        {"overflow", test_overflow},
        {"large mean", test_large_mean},
        {"mean and rstd", test_statistics},
        {"many long rows", test_many_long_rows},
        {"places of odd rows", test_places_of_odd_rows},
        {"any types", test_any_types},
        {"larger than caches", test_larger_than_caches},
        {"the residual's gradient", test_residual},
        {"beside the other norm", test_beside_other_norm},
        {"side by side", test_side_by_side},
        {"rows of a leaf", test_leaf},
    };
    norm.trial.name = kind;
    for (int i = 0; variants[i]; i++) norm.variants[i] = variants[i];
    centered = strcmp(kind, "layernorm") == 0;
    return matrix_main(argc, argv, &norm, own, HARNESS_COUNT(own));
}
