/* Bounds of LayerNorm and RMSNorm, row by row. */
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "common/exit_code.h"
#include "spread.h"

/* A sum over rows with the errors of its terms. */
typedef struct total {
    moments terms;
    spread errors;
} total;

typedef struct norm {
    const bounds_work *w;
    const double *gamma, *beta;
    int64_t cols;
    double eps, zero, u;
    int centered; /* 1: LayerNorm */
    tutti_dtype x_dtype, y_dtype;
    double *x, *n, *g;     /* of the row */
    total *dgamma, *dbeta; /* of the columns */
    double mean, rstd;     /* of the row */
    spread mean_error;     /* absolute */
    spread rstd_error;     /* relative */
} norm;

static double factor(const norm *k, int64_t j)
{
    return k->gamma ? k->gamma[j] + k->zero : 1;
}

static void take_row(norm *k, const double *x, const double *residual)
{
    memcpy(k->x, x, (size_t)k->cols * sizeof *x);
    if (!residual) return;
    uint64_t narrow;
    for (int64_t j = 0; j < k->cols; j++) { /* the sum as it is stored */
        k->x[j] += residual[j];
        tutti_convert(&narrow, k->x_dtype, &k->x[j], TUTTI_F64, 1);
        tutti_convert(&k->x[j], TUTTI_F64, &narrow, k->x_dtype, 1);
    }
}

static void statistics(norm *k)
{
    const double u = k->u, cols = (double)k->cols;
    moments x = {0}, squares = {0};
    for (int64_t j = 0; j < k->cols; j++) moments_add(&x, k->x[j]);
    k->mean = k->centered ? moments_total(&x) / cols : 0;
    k->mean_error = (spread){0, 0, 0};
    if (k->centered && k->cols > 1)
        k->mean_error =
            spread_add(spread_times(spread_tree(u, &x), 1 / cols), spread_of(u * k->mean, 2));
    spread error = {0, 0, 0};
    for (int64_t j = 0; j < k->cols; j++) {
        const double square = (k->x[j] - k->mean) * (k->x[j] - k->mean);
        moments_add(&squares, square);
        error = spread_add(error, spread_of(u * square, 1));
        if (k->centered) error = spread_add(error, spread_of(2 * u * square, 1));
    }
    const double total = moments_total(&squares), variance = total / cols + k->eps;
    const double most = spread_most(k->mean_error);
    error = spread_times(spread_add(error, spread_tree(u, &squares)), 1 / cols);
    error = spread_add(error, spread_of(u * variance, 2));
    error = spread_add(error, spread_of(most * most, 1));
    const double huge = spread_huge(k->w->computed);
    k->rstd = total <= huge && fabs(k->mean) * cols <= huge ? 1 / sqrt(variance) : NAN;
    k->rstd_error = spread_add(spread_times(error, 0.5 / variance), spread_of(u, 1));
    k->rstd_error = spread_add(k->rstd_error, spread_single(SPREAD_FUNCTION * u));
    for (int64_t j = 0; j < k->cols; j++) k->n[j] = (k->x[j] - k->mean) * k->rstd;
}

/* first: of the row's elements. */
static void forward(const norm *k, bounds_place place, int64_t first)
{
    for (int64_t j = 0; j < k->cols; j++) {
        const double product = k->n[j] * factor(k, j);
        const double value = product + (k->beta ? k->beta[j] : 0);
        spread error = spread_add(spread_times(k->mean_error, k->rstd * factor(k, j)),
                                  spread_times(k->rstd_error, product));
        error = spread_add(error, spread_of(k->u * product, 2 + k->centered + (k->zero != 0)));
        if (k->beta) error = spread_add(error, spread_of(k->u * value, 1));
        bounds_set(place, first + j, spread_stored(error, value, k->y_dtype, k->w->computed),
                   value);
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

/* n with all that went into it. */
static spread error_of_n(const norm *k, int64_t j)
{
    spread error = spread_add(own_of_n(k, j), spread_times(k->mean_error, k->rstd));
    return spread_add(error, spread_times(k->rstd_error, k->n[j]));
}

static void parameters(const norm *k, const double *dy)
{
    for (int64_t j = 0; j < k->cols; j++) {
        spread error = spread_add(error_of_n(k, j), spread_of(k->u * k->n[j], 1));
        moments_add(&k->dgamma[j].terms, dy[j] * k->n[j]);
        k->dgamma[j].errors =
            spread_add(k->dgamma[j].errors, spread_part(spread_times(error, dy[j])));
        moments_add(&k->dbeta[j].terms, dy[j]);
    }
}

/* The two means of backward. */
typedef struct means {
    double g, gn;
    spread g_error, gn_error;
} means;

static means means_of(const norm *k)
{
    const double u = k->u, cols = (double)k->cols;
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
        m.g_error = spread_times(spread_add(g_own, spread_tree(u, &g)), 1 / cols);
        m.g_error = spread_add(m.g_error, spread_of(u * m.g, 2));
    }
    m.gn = moments_total(&gn) / cols;
    m.gn_error = spread_times(spread_add(gn_own, spread_tree(u, &gn)), 1 / cols);
    m.gn_error = spread_add(m.gn_error, spread_of(u * m.gn, 2));
    m.gn_error = spread_add(m.gn_error, spread_times(k->mean_error, k->rstd * m.g));
    m.gn_error = spread_add(m.gn_error, spread_times(k->rstd_error, m.gn));
    return m;
}

static void backward(const norm *k, const double *dsum, bounds_place place, int64_t first)
{
    const double u = k->u;
    const means m = means_of(k);
    for (int64_t j = 0; place.bound && j < k->cols; j++) {
        const double inner = k->rstd * (k->g[j] - m.g - k->n[j] * m.gn);
        const double value = inner + (dsum ? dsum[j] : 0);
        spread error = spread_add(own_of_g(k, j), m.g_error);
        error = spread_add(error, spread_times(m.gn_error, k->n[j]));
        error = spread_add(error, spread_times(error_of_n(k, j), m.gn));
        error = spread_add(spread_times(error, k->rstd), spread_times(k->rstd_error, inner));
        error = spread_add(error, spread_of(u * k->rstd * k->n[j] * m.gn, 1));
        error = spread_add(error, spread_of(u * k->rstd * (k->g[j] - m.g), 1));
        error = spread_add(error, spread_of(u * inner, 2));
        if (dsum) error = spread_add(error, spread_of(u * value, 1));
        bounds_set(place, first + j, spread_stored(error, value, k->x_dtype, k->w->computed),
                   value);
    }
}

static const double *row_of(const double *values, int64_t i, int64_t cols)
{
    return values ? values + i * cols : NULL;
}

static void all_rows(norm *k)
{
    const bounds_work *w = k->w;
    const double *x = bounds_values(w, TUTTI_CASE_INPUTS, "x");
    const double *residual = bounds_values(w, TUTTI_CASE_INPUTS, "residual");
    const double *dy = bounds_values(w, TUTTI_CASE_UPSTREAM, "dy");
    const double *dsum = bounds_values(w, TUTTI_CASE_UPSTREAM, "dsum");
    const bounds_place y = bounds_place_of(w, TUTTI_CASE_EXPECTED, "y");
    const bounds_place dx = bounds_place_of(w, TUTTI_CASE_EXPECTED_GRAD, "dx");
    for (int64_t i = 0; i < w->rows; i++) {
        take_row(k, row_of(x, i, k->cols), row_of(residual, i, k->cols));
        statistics(k);
        if (y.bound) forward(k, y, i * k->cols);
        if (!dy) continue;
        parameters(k, row_of(dy, i, k->cols));
        for (int64_t j = 0; j < k->cols; j++) k->g[j] = dy[i * k->cols + j] * factor(k, j);
        backward(k, row_of(dsum, i, k->cols), dx, i * k->cols);
    }
}

static void totals(const norm *k, const char *name, const total *sums)
{
    const bounds_place place = bounds_place_of(k->w, TUTTI_CASE_EXPECTED_GRAD, name);
    const tutti_dtype dtype = bounds_dtype(k->w, TUTTI_CASE_EXPECTED_GRAD, name, k->w->computed);
    for (int64_t j = 0; place.bound && j < k->cols; j++) {
        const spread error = spread_add(sums[j].errors, spread_chain(k->u, &sums[j].terms));
        const double value = moments_total(&sums[j].terms);
        bounds_set(place, j, spread_stored(error, value, dtype, k->w->computed), value);
    }
}

static int bounds_norm(const bounds_work *w)
{
    norm k = {.w = w, .u = w->u, .cols = (int64_t)bounds_option(w, "cols")};
    k.centered = strcmp(w->s->which->layer, "layernorm") == 0;
    k.eps = bounds_option(w, "eps");
    k.zero = bounds_option(w, "zero_centered");
    k.gamma = bounds_values(w, TUTTI_CASE_PARAMS, "gamma");
    k.beta = bounds_values(w, TUTTI_CASE_PARAMS, "beta");
    if (!k.gamma) k.zero = 0;
    k.x_dtype = bounds_dtype(w, TUTTI_CASE_INPUTS, "x", TUTTI_F32);
    k.y_dtype = bounds_dtype(w, TUTTI_CASE_EXPECTED, "y", k.x_dtype);
    double *row = calloc((size_t)k.cols * 3, sizeof *row);
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
    return row && sums ? APP_OK : app_fail(APP_FAILED, "no memory for bounds");
}

const layer_kind layernorm_kind = {.name = "layernorm", .bounds = bounds_norm};
const layer_kind rmsnorm_kind = {.name = "rmsnorm", .bounds = bounds_norm};
