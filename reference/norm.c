/* LayerNorm and RMSNorm, row by row. */
#include <stdlib.h>
#include <string.h>

#include "kind.h"

/* A sum over rows with the errors of its terms. */
typedef struct total {
    moments terms;
    spread errors;
} total;

typedef struct norm {
    const reference_work *w;
    const double *gamma, *beta;
    int64_t cols;
    real eps, zero, u;
    bool centered; /* LayerNorm */
    tutti_dtype x_dtype, y_dtype;
    real *x, *n, *g;       /* of the row */
    total *dgamma, *dbeta; /* of the columns */
    real mean, rstd;       /* of the row */
    spread mean_error;     /* absolute */
    spread rstd_error;     /* relative */
} norm;

static real factor(const norm *k, int64_t j)
{
    return k->gamma ? k->gamma[j] + k->zero : 1;
}

/* The sum as it is stored, if there is a residual. */
static void take_row(norm *k, const double *x, const double *residual)
{
    for (int64_t j = 0; j < k->cols; j++)
        k->x[j] = residual ? reference_round(k->x_dtype, (real)x[j] + residual[j]) : x[j];
}

/* Error of a mean computed in one pass, or corrected by the mean of the deviations from it. */
static spread mean_error(const norm *k, const moments *x)
{
    const real u = k->u, cols = (real)k->cols;
    if (k->w->problem->any_order)
        return spread_add(spread_times(reference_along_row(k->w, x), 1 / cols),
                          spread_of(u * k->mean, 2));
    moments deviations = {0};
    for (int64_t j = 0; j < k->cols; j++) moments_add(&deviations, fabsl(k->x[j] - k->mean));
    const real worst = (spread_depth(cols) + 3) * u * moments_total(&deviations) / cols;
    return spread_add(spread_whole(worst), spread_of(u * k->mean, 1));
}

static void statistics(norm *k)
{
    const real u = k->u, cols = (real)k->cols, huge = spread_greatest(k->w->computed);
    moments x = {0}, squares = {0};
    for (int64_t j = 0; j < k->cols; j++) moments_add(&x, k->x[j]);
    const real sum = k->centered ? moments_total(&x) : 0;
    k->mean = sum / cols;
    k->mean_error = k->centered && k->cols > 1 ? mean_error(k, &x) : (spread){0, 0, 0};
    spread error = {0, 0, 0};
    for (int64_t j = 0; j < k->cols; j++) {
        const real square = (k->x[j] - k->mean) * (k->x[j] - k->mean);
        moments_add(&squares, square);
        error = spread_add(error, spread_of(u * square, 1));
        if (k->centered) error = spread_add(error, spread_of(2 * u * square, 1));
    }
    const real total = moments_total(&squares), variance = total / cols + k->eps;
    const real most = spread_most(k->mean_error);
    error = spread_times(spread_add(error, reference_along_row(k->w, &squares)), 1 / cols);
    error = spread_add(error, spread_of(u * variance, 2));
    error = spread_add(error, spread_of(most * most, 1));
    k->rstd = total <= huge && fabsl(sum) <= huge ? 1 / sqrtl(variance) : NAN;
    k->rstd_error = spread_add(spread_times(error, 0.5L / variance), spread_of(u, 1));
    k->rstd_error = spread_add(k->rstd_error, spread_single(SPREAD_FUNCTION * u));
    for (int64_t j = 0; j < k->cols; j++) k->n[j] = (k->x[j] - k->mean) * k->rstd;
}

/* Rows whose rstd is NaN, which is not worth the arithmetic: on NaN it takes a hundred times as
 * long. */
static bool is_nan(const norm *k, reference_tensor t, int64_t first)
{
    for (int64_t j = 0; isnan(k->rstd) && j < k->cols; j++) reference_set(t, first + j, 0, NAN);
    return isnan(k->rstd);
}

/* first: of the row's elements. */
static void forward(const norm *k, reference_tensor y, int64_t first)
{
    if (is_nan(k, y, first)) return;
    for (int64_t j = 0; j < k->cols; j++) {
        const real product = k->n[j] * factor(k, j);
        const real value = product + (k->beta ? k->beta[j] : 0);
        spread error = spread_add(spread_times(k->mean_error, k->rstd * factor(k, j)),
                                  spread_times(k->rstd_error, product));
        error = spread_add(error, spread_of(k->u * product, 2 + k->centered + (k->zero != 0)));
        if (k->beta) error = spread_add(error, spread_of(k->u * value, 1));
        reference_set(y, first + j, reference_stored(k->w, error, value, k->y_dtype), value);
    }
}

static spread own_of_n(const norm *k, int64_t j)
{
    return spread_of(k->u * k->n[j], 1 + k->centered);
}

static spread own_of_g(const norm *k, int64_t j)
{
    return spread_of(k->u * k->g[j], (k->gamma != NULL) + (k->zero != 0));
}

/* Error of n from all its sources. */
static spread error_of_n(const norm *k, int64_t j)
{
    spread error = spread_add(own_of_n(k, j), spread_times(k->mean_error, k->rstd));
    return spread_add(error, spread_times(k->rstd_error, k->n[j]));
}

static void parameters(const norm *k, const double *dy)
{
    for (int64_t j = 0; j < k->cols; j++) {
        moments_add(&k->dbeta[j].terms, dy[j]);
        if (isnan(k->rstd)) k->dgamma[j].terms.total = NAN;
        if (isnan(k->dgamma[j].terms.total)) continue;
        const spread error = spread_add(error_of_n(k, j), spread_of(k->u * k->n[j], 1));
        moments_add(&k->dgamma[j].terms, dy[j] * k->n[j]);
        k->dgamma[j].errors =
            spread_add(k->dgamma[j].errors, spread_part(spread_times(error, dy[j])));
    }
}

/* The two means of backward. */
typedef struct means {
    real g, gn;
    spread g_error, gn_error;
} means;

static means means_of(const norm *k)
{
    const real u = k->u, cols = (real)k->cols;
    means m = {0};
    moments g = {0}, gn = {0};
    spread g_own = {0}, gn_own = {0};
    for (int64_t j = 0; j < k->cols; j++) {
        moments_add(&g, k->g[j]);
        moments_add(&gn, k->g[j] * k->n[j]);
        g_own = spread_add(g_own, spread_part(own_of_g(k, j)));
        spread own = spread_add(spread_times(own_of_g(k, j), k->n[j]),
                                spread_times(own_of_n(k, j), k->g[j]));
        own = spread_add(own, spread_of(u * k->g[j] * k->n[j], 1));
        gn_own = spread_add(gn_own, spread_part(own));
    }
    if (k->centered) {
        m.g = moments_total(&g) / cols;
        m.g_error = spread_times(spread_add(g_own, reference_along_row(k->w, &g)), 1 / cols);
        m.g_error = spread_add(m.g_error, spread_of(u * m.g, 2));
    }
    m.gn = moments_total(&gn) / cols;
    m.gn_error = spread_times(spread_add(gn_own, reference_along_row(k->w, &gn)), 1 / cols);
    m.gn_error = spread_add(m.gn_error, spread_of(u * m.gn, 2));
    m.gn_error = spread_add(m.gn_error, spread_times(k->mean_error, k->rstd * m.g));
    m.gn_error = spread_add(m.gn_error, spread_times(k->rstd_error, m.gn));
    return m;
}

static void backward(const norm *k, const double *dsum, reference_tensor dx, int64_t first)
{
    if (is_nan(k, dx, first)) return;
    const real u = k->u;
    const means m = means_of(k);
    for (int64_t j = 0; j < k->cols; j++) {
        const real inner = k->rstd * (k->g[j] - m.g - k->n[j] * m.gn);
        const real value = inner + (dsum ? dsum[j] : 0);
        if (isnan(value)) { /* as in is_nan */
            reference_set(dx, first + j, 0, NAN);
            continue;
        }
        spread error = spread_add(own_of_g(k, j), m.g_error);
        error = spread_add(error, spread_times(m.gn_error, k->n[j]));
        error = spread_add(error, spread_times(error_of_n(k, j), m.gn));
        error = spread_add(spread_times(error, k->rstd), spread_times(k->rstd_error, inner));
        error = spread_add(error, spread_of(u * k->rstd * k->n[j] * m.gn, 1));
        error = spread_add(error, spread_of(u * k->rstd * (k->g[j] - m.g), 1));
        error = spread_add(error, spread_of(u * inner, 2));
        if (dsum) error = spread_add(error, spread_of(u * value, 1));
        reference_set(dx, first + j, reference_stored(k->w, error, value, k->x_dtype), value);
    }
}

static const double *row_of(const double *values, int64_t i, int64_t cols)
{
    return values ? values + i * cols : NULL;
}

static void all_rows(norm *k)
{
    const reference_work *w = k->w;
    const double *x = reference_given(w, "x"), *residual = reference_given(w, "residual");
    const double *dy = reference_given(w, "dy"), *dsum = reference_given(w, "dsum");
    const reference_tensor y = reference_find(w, "y"), dx = reference_find(w, "dx");
    const reference_tensor sum = reference_find(w, "sum");
    for (int64_t i = 0; i < w->rows; i++) {
        const int64_t first = i * k->cols;
        take_row(k, row_of(x, i, k->cols), row_of(residual, i, k->cols));
        for (int64_t j = 0; j < k->cols; j++) reference_set(sum, first + j, 0, k->x[j]);
        statistics(k);
        if (reference_wants(y)) forward(k, y, first);
        if (!dy) continue;
        parameters(k, row_of(dy, i, k->cols));
        for (int64_t j = 0; j < k->cols; j++) k->g[j] = dy[first + j] * factor(k, j);
        if (reference_wants(dx)) backward(k, row_of(dsum, i, k->cols), dx, first);
    }
}

static void totals(const norm *k, const char *name, const total *sums)
{
    const reference_tensor place = reference_find(k->w, name);
    const tutti_dtype dtype = reference_dtype(k->w, name);
    for (int64_t j = 0; reference_wants(place) && j < k->cols; j++)
        reference_set_sum(k->w, place, j,
                          spread_add(sums[j].errors, reference_adding(k->w, &sums[j].terms)),
                          &sums[j].terms, dtype);
}

static const char *compute(const reference_work *w)
{
    norm k = {.w = w, .u = w->u, .cols = (int64_t)reference_option(w, "cols")};
    k.centered = strcmp(w->type->name, "layernorm") == 0;
    k.eps = reference_option(w, "eps");
    k.gamma = reference_given(w, "gamma");
    k.beta = reference_given(w, "beta");
    k.zero = k.gamma ? reference_option(w, "zero_centered") : 0;
    k.x_dtype = reference_dtype(w, "x");
    k.y_dtype = reference_dtype(w, "y");
    real *row = calloc((size_t)k.cols * 3, sizeof *row);
    total *sums = calloc((size_t)k.cols * 2, sizeof *sums);
    if (row && sums) {
        k.x = row, k.n = row + k.cols, k.g = k.n + k.cols;
        k.dgamma = sums, k.dbeta = sums + k.cols;
        all_rows(&k);
        totals(&k, "dgamma", k.dgamma);
        totals(&k, "dbeta", k.dbeta);
    }
    free(row);
    free(sums);
    return row && sums ? NULL : REFERENCE_NO_MEMORY;
}

const reference_kind reference_layernorm = {.name = "layernorm", .compute = compute};
const reference_kind reference_rmsnorm = {.name = "rmsnorm", .compute = compute};
