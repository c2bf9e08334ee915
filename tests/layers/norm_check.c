/* Tests of LayerNorm and RMSNorm: each case makes a layer, runs forward and backward, and compares
 * all that comes out with the oracle. */
#include "norm_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

static norm_kind kind;

typedef struct norm_case {
    tutti_dtype x, param, y, grad;
    int64_t rows, cols;
    bool gamma, beta, zero_centered, residual, dsum, accumulate;
    bool no_dx, unbound_grads;
    layout place;
    double mean;
    uint64_t seed;
} norm_case;

/* A case with everything usual. */
static norm_case usual(tutti_dtype x, tutti_dtype param, tutti_dtype y, int64_t rows, int64_t cols)
{
    bool wide = x == TUTTI_F64 || param == TUTTI_F64;
    return (norm_case){.x = x,
                       .param = param,
                       .y = y,
                       .grad = wide ? TUTTI_F64 : TUTTI_F32,
                       .rows = rows,
                       .cols = cols,
                       .gamma = true,
                       .beta = kind == LAYERNORM,
                       .mean = 0.25,
                       .seed = (uint64_t)(rows * 1000003 + cols)};
}

static tutti_layer *create(tutti_context *ctx, const norm_case *c)
{
    tutti_layer *layer = NULL;
    if (kind == LAYERNORM) {
        tutti_layernorm_desc desc = TUTTI_LAYERNORM_DESC_INIT;
        desc.cols = c->cols;
        desc.x_dtype = c->x;
        desc.param_dtype = c->param;
        desc.y_dtype = c->y;
        desc.no_gamma = !c->gamma;
        desc.no_beta = !c->beta;
        desc.zero_centered = c->zero_centered;
        CHECK_OK(tutti_layernorm_create(ctx, &desc, &layer));
    } else {
        tutti_rmsnorm_desc desc = TUTTI_RMSNORM_DESC_INIT;
        desc.cols = c->cols;
        desc.x_dtype = c->x;
        desc.param_dtype = c->param;
        desc.y_dtype = c->y;
        desc.no_gamma = !c->gamma;
        desc.zero_centered = c->zero_centered;
        CHECK_OK(tutti_rmsnorm_create(ctx, &desc, &layer));
    }
    return layer;
}

norm_kind norm_tested(void)
{
    return kind;
}

static tutti_layernorm_call as_layernorm(const tutti_rmsnorm_call *c)
{
    return (tutti_layernorm_call){
        .x = c->x,
        .residual = c->residual,
        .y = c->y,
        .sum = c->sum,
        .dy = c->dy,
        .dsum = c->dsum,
        .dx = c->dx,
        .saved = c->saved,
        .saved_bytes = c->saved_bytes,
        .flags = c->flags,
    };
}

tutti_status norm_forward(tutti_layer *layer, tutti_context *ctx, const tutti_rmsnorm_call *call)
{
    if (kind == RMSNORM) return tutti_rmsnorm_forward(layer, ctx, call);
    const tutti_layernorm_call same = as_layernorm(call);
    return tutti_layernorm_forward(layer, ctx, &same);
}

static tutti_status norm_backward(tutti_layer *layer, tutti_context *ctx,
                                  const tutti_rmsnorm_call *call)
{
    if (kind == RMSNORM) return tutti_rmsnorm_backward(layer, ctx, call);
    const tutti_layernorm_call same = as_layernorm(call);
    return tutti_layernorm_backward(layer, ctx, &same);
}

/* A case's layer and tensors. */
typedef struct setting {
    tutti_layer *layer;
    operand x, residual, sum, y, dy, dsum, dx, gamma, beta, dgamma, dbeta;
    double *old_dgamma, *old_dbeta;
    harness_buffer saved;
} setting;

static void describe(const norm_case *c)
{
    harness_where("x %s param %s y %s [%lld, %lld]%s%s%s%s%s%s%s%s pad %d misaligned %d",
                  tutti_dtype_name(c->x), tutti_dtype_name(c->param), tutti_dtype_name(c->y),
                  (long long)c->rows, (long long)c->cols, c->gamma ? "" : " no gamma",
                  c->beta ? " beta" : "", c->zero_centered ? " zero_centered" : "",
                  c->residual ? " residual" : "", c->dsum ? " dsum" : "",
                  c->accumulate ? " accumulate" : "", c->no_dx ? " no dx" : "",
                  c->unbound_grads ? " no gradients" : "", c->place.pad, c->place.misaligned);
}

static double *copy_of(const double *values, int64_t count)
{
    double *copy = harness_calloc((size_t)count, sizeof *copy);
    memcpy(copy, values, (size_t)count * sizeof *copy);
    return copy;
}

static setting set_up(tutti_context *ctx, const norm_case *c)
{
    harness_rng rng = {c->seed};
    describe(c);
    layout flat = {0, c->place.misaligned};
    setting s = {.layer = create(ctx, c)};
    s.x = operand_make(ctx, &rng, c->x, c->rows, c->cols, c->place, c->mean, 1);
    if (c->residual) {
        s.residual = operand_make(ctx, &rng, c->x, c->rows, c->cols, c->place, -0.1, 0.7);
        s.sum = operand_make(ctx, &rng, c->x, c->rows, c->cols, c->place, OUTPUT);
    }
    s.y = operand_make(ctx, &rng, c->y, c->rows, c->cols, c->place, OUTPUT);
    s.dy = operand_make(ctx, &rng, c->y, c->rows, c->cols, c->place, 0.1, 1);
    if (c->dsum) s.dsum = operand_make(ctx, &rng, c->x, c->rows, c->cols, c->place, 0, 1);
    if (!c->no_dx) s.dx = operand_make(ctx, &rng, c->x, c->rows, c->cols, c->place, OUTPUT);
    /* gradients to add to have values, those to overwrite start as NaN */
    double deviation = c->accumulate ? 1 : -1;
    if (c->gamma) {
        s.gamma =
            operand_make(ctx, &rng, c->param, 1, c->cols, flat, c->zero_centered ? 0 : 1, 0.3);
        s.dgamma = operand_make(ctx, &rng, c->grad, 1, c->cols, flat, 0, deviation);
        s.old_dgamma = copy_of(s.dgamma.values, c->cols);
        bind_param(s.layer, 0, &s.gamma, c->unbound_grads ? NULL : &s.dgamma);
    }
    if (c->beta) {
        s.beta = operand_make(ctx, &rng, c->param, 1, c->cols, flat, 0, 0.5);
        s.dbeta = operand_make(ctx, &rng, c->grad, 1, c->cols, flat, 0, deviation);
        s.old_dbeta = copy_of(s.dbeta.values, c->cols);
        bind_param(s.layer, 1, &s.beta, c->unbound_grads ? NULL : &s.dbeta);
    }
    s.saved = saved_make(ctx, s.layer, c->rows);
    return s;
}

static void tear_down(tutti_context *ctx, setting *s)
{
    CHECK_OK(tutti_context_synchronize(ctx));
    tutti_layer_destroy(&s->layer);
    operand *all[] = {&s->x,  &s->residual, &s->sum,  &s->y,      &s->dy,   &s->dsum,
                      &s->dx, &s->gamma,    &s->beta, &s->dgamma, &s->dbeta};
    for (int i = 0; i < HARNESS_COUNT(all); i++) operand_free(ctx, all[i]);
    harness_buffer_free(ctx, &s->saved);
    free(s->old_dgamma);
    free(s->old_dbeta);
}

static tutti_tensor *tensor_or_null(operand *o)
{
    return o->buffer.mirror ? &o->tensor : NULL;
}

static tutti_status run_forward(tutti_context *ctx, setting *s)
{
    const tutti_rmsnorm_call call = {
        .x = &s->x.tensor,
        .residual = tensor_or_null(&s->residual),
        .y = &s->y.tensor,
        .sum = tensor_or_null(&s->sum),
        SAVED(s->saved),
    };
    return norm_forward(s->layer, ctx, &call);
}

/* what was normalised */
static operand *normalised(setting *s)
{
    return s->residual.buffer.mirror ? &s->sum : &s->x;
}

static tutti_status run_backward(tutti_context *ctx, setting *s, bool accumulate)
{
    const tutti_rmsnorm_call call = {
        .x = &normalised(s)->tensor,
        .dy = &s->dy.tensor,
        .dsum = tensor_or_null(&s->dsum),
        .dx = tensor_or_null(&s->dx),
        SAVED(s->saved),
        .flags = accumulate ? TUTTI_GRAD_ACCUMULATE : 0,
    };
    return norm_backward(s->layer, ctx, &call);
}

static oracle_norm oracle_of(const norm_case *c, const setting *s)
{
    return (oracle_norm){.rows = c->rows,
                         .cols = c->cols,
                         .centered = kind == LAYERNORM,
                         .zero_centered = c->zero_centered,
                         .eps = kind == LAYERNORM ? 1e-5 : 1e-6,
                         .x = c->x,
                         .param = c->param,
                         .y = c->y,
                         .grad = c->grad,
                         .gamma = s->gamma.values,
                         .beta = s->beta.values};
}

/* 16 ulp show where the sums are short and the data well-conditioned; for long sums the bounds
 * grow. */
static bool is_sharp(const norm_case *c)
{
    return c->cols <= 1024 && c->cols >= 64 && fabs(c->mean) < 1 && c->y != TUTTI_F64;
}

static void check_forward(tutti_context *ctx, const norm_case *c, setting *s)
{
    if (!CHECK_OK(run_forward(ctx, s))) return;
    operand_get(ctx, &s->y, "y");
    operand_check_unchanged(ctx, &s->x, "x");
    CHECK(harness_buffer_intact(ctx, &s->saved), "saved: written outside");
    if (c->residual) {
        operand_check_unchanged(ctx, &s->residual, "residual");
        operand_get(ctx, &s->sum, "sum");
        expected sum = expected_make(s->sum.count);
        for (int64_t i = 0; i < sum.count; i++) {
            sum.want[i] = s->x.values[i] + s->residual.values[i];
            /* one rounding, or two where the sum is made in f32 first */
            double u = harness_roundoff(c->x);
            if (c->x != TUTTI_F64 && c->x != TUTTI_F32) u += harness_roundoff(TUTTI_F32);
            sum.bound[i] = u * fabs(sum.want[i]) + harness_tiny(c->x) / 2;
        }
        check_expected("sum", &s->sum, &sum, c->cols > 1);
        expected_free(&sum);
    }
    oracle_norm oracle = oracle_of(c, s);
    expected y = expected_make(s->y.count);
    oracle_norm_forward(&oracle, normalised(s)->values, y.want, y.bound);
    check_expected("y", &s->y, &y, is_sharp(c));
    expected_free(&y);
}

static void check_backward(tutti_context *ctx, const norm_case *c, setting *s)
{
    if (!CHECK_OK(run_backward(ctx, s, c->accumulate))) return;
    operand_check_unchanged(ctx, &s->dy, "dy");
    if (!c->residual) operand_check_unchanged(ctx, &s->x, "x");
    if (c->dsum) operand_check_unchanged(ctx, &s->dsum, "dsum");
    expected dx = expected_make(s->dy.count), dgamma = expected_make(c->cols);
    expected dbeta = expected_make(c->cols);
    oracle_norm oracle = oracle_of(c, s);
    bool grads = c->gamma && !c->unbound_grads;
    oracle_norm_grads wanted = {.dsum = c->dsum ? s->dsum.values : NULL,
                                .old_dgamma = c->accumulate ? s->old_dgamma : NULL,
                                .old_dbeta = c->accumulate ? s->old_dbeta : NULL,
                                .dx = c->no_dx ? NULL : dx.want,
                                .dx_bound = dx.bound,
                                .dgamma = grads ? dgamma.want : NULL,
                                .dgamma_bound = dgamma.bound,
                                .dbeta = grads && c->beta ? dbeta.want : NULL,
                                .dbeta_bound = dbeta.bound};
    oracle_norm_backward(&oracle, normalised(s)->values, s->dy.values, &wanted);
    if (!c->no_dx) {
        operand_get(ctx, &s->dx, "dx");
        check_expected("dx", &s->dx, &dx, false);
    }
    if (wanted.dgamma) {
        operand_get(ctx, &s->dgamma, "dgamma");
        check_expected("dgamma", &s->dgamma, &dgamma, false);
    }
    if (wanted.dbeta) {
        operand_get(ctx, &s->dbeta, "dbeta");
        check_expected("dbeta", &s->dbeta, &dbeta, false);
    }
    if (c->unbound_grads && c->gamma)
        operand_check_unchanged(ctx, &s->dgamma, "unbound gradient of gamma");
    expected_free(&dx);
    expected_free(&dgamma);
    expected_free(&dbeta);
}

static void check_case(const norm_case *c)
{
    tutti_context *ctx = harness_context();
    setting s = set_up(ctx, c);
    if (s.layer) {
        int failures = harness_failures();
        check_forward(ctx, c, &s);
        if (harness_failures() == failures) check_backward(ctx, c, &s);
    }
    tear_down(ctx, &s);
}

/* Test functions */

static void test_pairings(void)
{
    int pairings = 0;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 2; k++) {
                tutti_dtype x = float_dtypes[i], param = float_dtypes[j], y = k ? param : x;
                if (k && x == param) continue;
                pairings++;
                static const int64_t shapes[][2] = {{3, 96}, {5, 37}, {2, 1025}, {1, 8}};
                for (int n = 0; n < (harness_quick() ? 1 : HARNESS_COUNT(shapes)); n++) {
                    norm_case c = usual(x, param, y, shapes[n][0], shapes[n][1]);
                    c.residual = n & 1;
                    c.dsum = n & 1;
                    c.accumulate = n & 2;
                    check_case(&c);
                }
            }
    CHECK(pairings == 28, "%d pairings", pairings);
}

/* the pairings that people train with, and f64 */
static const tutti_dtype common[][3] = {
    {TUTTI_F32, TUTTI_F32, TUTTI_F32},   {TUTTI_BF16, TUTTI_BF16, TUTTI_BF16},
    {TUTTI_BF16, TUTTI_F32, TUTTI_BF16}, {TUTTI_F16, TUTTI_F16, TUTTI_F16},
    {TUTTI_F16, TUTTI_F32, TUTTI_F16},   {TUTTI_F64, TUTTI_F64, TUTTI_F64},
};

static void test_options(void)
{
    for (int type = 0; type < HARNESS_COUNT(common); type++) {
        if (harness_quick() && type > 1) break;
        for (int bits = 0; bits < 256; bits++) {
            norm_case c = usual(common[type][0], common[type][1], common[type][2], 7, 65);
            c.gamma = !(bits & 1);
            c.beta = kind == LAYERNORM && c.gamma && !(bits & 2);
            c.zero_centered = bits & 4;
            c.residual = bits & 8;
            c.dsum = bits & 16;
            c.accumulate = bits & 32;
            c.no_dx = bits & 64;
            c.unbound_grads = bits & 128;
            bool pointless = (c.zero_centered && !c.gamma) || (c.dsum && c.no_dx) ||
                             (!c.gamma && (bits & 2)) || (!c.gamma && c.unbound_grads);
            if (kind == RMSNORM && (bits & 2)) pointless = true;
            if (harness_quick() && (bits & (bits - 1))) pointless = true; /* one at a time */
            if (!pointless) check_case(&c);
        }
    }
}

static void test_shapes(void)
{
    static const int64_t cols[] = {1, 2, 3, 7, 8, 15, 31, 100, 256, 513, 1023, 1024, 4097};
    static const int64_t rows[] = {1, 2, 33};
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++)
            for (int j = 0; j < HARNESS_COUNT(rows); j++) {
                if (harness_quick() && (j != 1 || i % 3)) continue;
                norm_case c =
                    usual(common[type][0], common[type][1], common[type][2], rows[j], cols[i]);
                check_case(&c);
            }
}

static void test_many_rows(void)
{
    static const int64_t shapes[][2] = {{1000, 24}, {3001, 5}, {517, 128}};
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(shapes)); i++) {
            norm_case c = usual(common[type][0], common[type][1], common[type][2], shapes[i][0],
                                shapes[i][1]);
            c.accumulate = i & 1;
            check_case(&c);
        }
}

/* What one chain of additions drifts by where all terms are equal: docs/numerics.md's bound of a chain is of terms in no
 * particular order, and this must not be beyond it either. */
static void test_equal_rows(void)
{
    enum { ROWS = 1000000, COLS = 2 };
    if (kind == RMSNORM) {
        harness_skip("RMSNorm has no beta");
        return;
    }
    tutti_context *ctx = harness_context();
    norm_case c = usual(TUTTI_F32, TUTTI_F32, TUTTI_F32, ROWS, COLS);
    c.no_dx = true;
    setting s = set_up(ctx, &c);
    const double each = harness_round(TUTTI_F32, 0.7), want = ROWS * each;
    for (int64_t i = 0; i < s.dy.count; i++) s.dy.values[i] = each;
    operand_put(ctx, &s.dy);
    CHECK_OK(run_forward(ctx, &s));
    CHECK_OK(run_backward(ctx, &s, false));
    operand_get(ctx, &s.dbeta, "dbeta");
    const double bound = 4 * harness_roundoff(TUTTI_F32) * want * sqrt(ROWS / 3.0);
    for (int j = 0; j < COLS; j++)
        CHECK(fabs(s.dbeta.values[j] - want) <= bound, "dbeta[%d] is %.9g, want %.9g within %.2g",
              j, s.dbeta.values[j], want, bound);
    tear_down(ctx, &s);
}

static void test_long_rows(void)
{
    static const int64_t cols[] = {16383, 16392, 32768, 65537, 100000, 262144, 1 << 20};
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int i = 0; i < HARNESS_COUNT(cols); i++) {
            bool very = cols[i] > 70000, main_types = type == 0 || type == 1;
            if (very && !main_types) continue;
            if (harness_quick() && (type > 0 || (i != 1 && i != 3))) continue;
            norm_case c = usual(common[type][0], common[type][1], common[type][2],
                                cols[i] > 20000 ? 2 : 3, cols[i]);
            c.residual = i & 1;
            check_case(&c);
        }
}

static void test_strides_and_alignment(void)
{
    static const layout places[] = {{3, 0}, {8, 0}, {0, 1}, {5, 1}, {1, 3}, {8, 4}, {64, 7}};
    static const int64_t cols[] = {5, 64, 257, 1024, 5000};
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int i = 0; i < HARNESS_COUNT(places); i++)
            for (int j = 0; j < HARNESS_COUNT(cols); j++) {
                if (harness_quick() && (i + j) % 4) continue;
                norm_case c = usual(common[type][0], common[type][1], common[type][2], 4, cols[j]);
                c.place = places[i];
                c.residual = i & 1;
                c.dsum = !(i & 1);
                check_case(&c);
            }
}

/* x [2, 3, 4, 5] of evenly spaced rows, gamma over the last one or two dimensions */
static void test_dimensions(void)
{
    tutti_context *ctx = harness_context();
    for (int lead = 2; lead <= 3; lead++) {
        int64_t rows = lead == 2 ? 6 : 24, cols = lead == 2 ? 20 : 5;
        norm_case c = usual(TUTTI_F32, TUTTI_F32, TUTTI_F32, rows, cols);
        c.place.pad = 3;
        setting s = set_up(ctx, &c);
        operand *all[] = {&s.x, &s.y, &s.dy, &s.dx};
        for (int i = 0; i < HARNESS_COUNT(all); i++) {
            tutti_tensor *t = &all[i]->tensor;
            int64_t stride = cols + 3;
            t->ndim = 4;
            memcpy(t->dims, (int64_t[]){2, 3, 4, 5}, sizeof t->dims);
            if (lead == 2)
                memcpy(t->strides, (int64_t[]){3 * stride, stride, 5, 1}, sizeof t->strides);
            else
                memcpy(t->strides, (int64_t[]){12 * stride, 4 * stride, stride, 1},
                       sizeof t->strides);
        }
        check_forward(ctx, &c, &s);
        check_backward(ctx, &c, &s);
        tear_down(ctx, &s);
    }
}

static void test_in_place(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < HARNESS_COUNT(common); type++) {
        norm_case c = usual(common[type][0], common[type][1], common[type][2], 3, 130);
        c.residual = c.dsum = true;
        c.place.pad = 2;
        setting s = set_up(ctx, &c), t = set_up(ctx, &c);
        CHECK_OK(run_forward(ctx, &s));
        CHECK_OK(run_backward(ctx, &s, false));

        /* without saved, and without keeping the sum: the same y */
        tutti_rmsnorm_call call = {
            .x = &t.x.tensor, .residual = &t.residual.tensor, .y = &t.y.tensor};
        CHECK_OK(norm_forward(t.layer, ctx, &call));
        check_same_bits(ctx, "y without saved and sum", &s.y, &t.y);
        /* the sum in place of the residual, then of x */
        call.sum = &t.residual.tensor;
        call.saved = t.saved.data;
        call.saved_bytes = (size_t)t.saved.cols;
        CHECK_OK(norm_forward(t.layer, ctx, &call));
        check_same_bits(ctx, "sum in place of residual", &s.sum, &t.residual);
        check_same_bits(ctx, "y", &s.y, &t.y);
        operand_put(ctx, &t.residual);
        call.sum = &t.x.tensor;
        CHECK_OK(norm_forward(t.layer, ctx, &call));
        check_same_bits(ctx, "sum in place of x", &s.sum, &t.x);
        check_same_bits(ctx, "y", &s.y, &t.y);

        /* dx in place of dsum, then of dy */
        call.dy = &t.dy.tensor;
        call.dsum = call.dx = &t.dsum.tensor;
        CHECK_OK(norm_backward(t.layer, ctx, &call));
        check_same_bits(ctx, "dx in place of dsum", &s.dx, &t.dsum);
        check_same_bits(ctx, "dgamma", &s.dgamma, &t.dgamma);
        operand_put(ctx, &t.dsum);
        call.dx = &t.dy.tensor;
        CHECK_OK(norm_backward(t.layer, ctx, &call));
        check_same_bits(ctx, "dx in place of dy", &s.dx, &t.dy);
        check_same_bits(ctx, "dgamma", &s.dgamma, &t.dgamma);
        if (c.beta) check_same_bits(ctx, "dbeta", &s.dbeta, &t.dbeta);

        /* y in place of x, without saved */
        operand_put(ctx, &t.x);
        call = (tutti_rmsnorm_call){.x = &s.x.tensor, .y = &s.y.tensor};
        CHECK_OK(norm_forward(s.layer, ctx, &call));
        call = (tutti_rmsnorm_call){.x = &t.x.tensor, .y = &t.x.tensor};
        CHECK_OK(norm_forward(t.layer, ctx, &call));
        check_same_bits(ctx, "y in place of x", &s.y, &t.x);
        tear_down(ctx, &s);
        tear_down(ctx, &t);
    }
}

static void test_no_rows(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            norm_case c = usual(common[type][0], common[type][1], common[type][2], 0, 70);
            c.accumulate = accumulate;
            c.residual = accumulate;
            check_case(&c);
            /* a view of no rows may have no memory */
            setting s = set_up(ctx, &c);
            tutti_tensor nowhere = tutti_tensor_2d(NULL, c.x, 0, c.cols);
            tutti_tensor nowhere_y = tutti_tensor_2d(NULL, c.y, 0, c.cols);
            const tutti_rmsnorm_call call = {
                .x = &nowhere,
                .y = &nowhere_y,
                .dy = &nowhere_y,
                .dx = &nowhere,
                .flags = accumulate ? TUTTI_GRAD_ACCUMULATE : 0,
            };
            CHECK_OK(norm_forward(s.layer, ctx, &call));
            CHECK_OK(norm_backward(s.layer, ctx, &call));
            operand_get(ctx, &s.dgamma, "dgamma");
            for (int64_t j = 0; j < c.cols; j++)
                if (!CHECK(s.dgamma.values[j] == (accumulate ? s.old_dgamma[j] : 0),
                           "dgamma[%lld] is %g after 0 rows", (long long)j, s.dgamma.values[j]))
                    break;
            tear_down(ctx, &s);
        }
}

static void test_nonfinite(void)
{
    tutti_context *ctx = harness_context();
    static const double specials[] = {NAN, INFINITY, -INFINITY};
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int i = 0; i < HARNESS_COUNT(specials); i++)
            for (int where = 0; where < 2; where++) { /* in x, in dy */
                norm_case c = usual(common[type][0], common[type][1], common[type][2], 4, 300);
                setting s = set_up(ctx, &c);
                operand *hit = where ? &s.dy : &s.x;
                hit->values[300 + 17] = specials[i];
                hit->values[3 * 300 + 299] = specials[i];
                operand_put(ctx, hit);
                check_forward(ctx, &c, &s);
                check_backward(ctx, &c, &s);
                tear_down(ctx, &s);
            }
}

/* Rows of one value: the variance is 0 and eps alone holds rstd. */
static void test_constant_rows(void)
{
    tutti_context *ctx = harness_context();
    for (int type = 0; type < HARNESS_COUNT(common); type++) {
        norm_case c = usual(common[type][0], common[type][1], common[type][2], 3, 200);
        setting s = set_up(ctx, &c);
        for (int64_t i = 0; i < s.x.count; i++) s.x.values[i] = i < 200 ? 0 : i < 400 ? 1 : -2.5;
        operand_put(ctx, &s.x);
        check_forward(ctx, &c, &s);
        check_backward(ctx, &c, &s);
        tear_down(ctx, &s);
    }
}

/* Values of which a sum, or its division by the columns, rounds: a fraction, subnormal and large ones.  The last two are as
 * large as the type lets rows be whose sum is a number. */
static double constant_of(tutti_dtype dtype, int i)
{
    static const double values[] = {0,     1,     -2.5,  0.1,     1.0 / 3,   12345.678,
                                    -1e-5, 3e-39, 1e-30, 1e8 / 3, -1e18 / 7, 1e30 / 3};
    if (i >= HARNESS_COUNT(values)) return harness_huge(dtype) / (i % 2 ? 1 << 20 : -(1 << 20));
    return fabs(values[i]) <= harness_huge(dtype) ? harness_round(dtype, values[i]) : -7;
}
enum { CONSTANTS = 14 };

/* LayerNorm's results are then those of a row of zeros: y is beta, and nothing goes to gamma's gradient. */
static void check_constant_rows(const norm_case *c)
{
    tutti_context *ctx = harness_context();
    setting s = set_up(ctx, c);
    for (int64_t i = 0; i < s.x.count; i++) {
        s.x.values[i] = constant_of(c->x, (int)(i / c->cols));
        if (!c->residual) continue;
        s.residual.values[i] = 0.5 * s.x.values[i];
        s.x.values[i] -= harness_round(c->x, s.residual.values[i]);
    }
    operand_put(ctx, &s.x);
    if (c->residual) operand_put(ctx, &s.residual);
    CHECK_OK(run_forward(ctx, &s));
    operand_get(ctx, &s.y, "y");
    expected beta = expected_make(s.y.count); /* with a bound of 0 */
    for (int64_t i = 0; c->beta && i < s.y.count; i++)
        beta.want[i] = harness_round(c->y, s.beta.values[i % c->cols]);
    check_expected("y", &s.y, &beta, false);
    memset(normalised(&s)->values, 0, (size_t)s.x.count * sizeof(double));
    check_backward(ctx, c, &s);
    for (int64_t j = 0; j < c->cols; j++)
        if (!CHECK(s.dgamma.values[j] == 0, "dgamma[%lld] is %g", (long long)j, s.dgamma.values[j]))
            break;
    expected_free(&beta);
    tear_down(ctx, &s);
}

static void test_rows_of_one_value(void)
{
    if (kind == RMSNORM) {
        harness_skip("RMSNorm subtracts no mean");
        return;
    }
    /* of each way in which a GPU shares out a row, and one column more than a share */
    static const int64_t cols[] = {1,     3,     100,   1000,   1027,  8192,
                                   12000, 30001, 65537, 131080, 262147};
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int i = 0; i < (harness_quick() ? 3 : HARNESS_COUNT(cols)); i++) {
            if (cols[i] > 10000 && i % 3 != type % 3) continue;
            norm_case c =
                usual(common[type][0], common[type][1], common[type][2], CONSTANTS, cols[i]);
            c.residual = (i + type) & 1;
            check_constant_rows(&c);
        }
}

/* Rows whose squares add up to more than the arithmetic holds are NaN, whatever the backend; those of less are not, nor are
 * their neighbours. */
static void test_overflow(void)
{
    tutti_context *ctx = harness_context();
    static const int64_t cols[] = {1, 9, 300, 1024, 5000, 20000, 70000, 150000};
    for (int type = 0; type < HARNESS_COUNT(common); type++) {
        const double most = harness_huge(common[type][0] == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32);
        const double limit = sqrt(most);
        if (harness_huge(common[type][0]) < limit) continue;
        for (int i = 0; i < (harness_quick() ? 3 : HARNESS_COUNT(cols)); i++) {
            if (cols[i] > 70000 && type > 1) continue;
            norm_case c = usual(common[type][0], common[type][1], common[type][2], 6, cols[i]);
            setting s = set_up(ctx, &c);
            const double even = limit / sqrt((double)cols[i]);
            for (int64_t j = 0; j < cols[i]; j++) {
                const double sign = j % 2 ? -1 : 1;
                double *x = s.x.values + j;
                x[cols[i]] = 1.1 * sign * even;               /* all of them together */
                x[2 * cols[i]] = 0.9 * sign * even;           /* not quite */
                x[3 * cols[i]] *= 1e-3 * even;                /* by far not, but one of them: */
                x[5 * cols[i]] = j % 3 ? sign * 1e30 : 1e-30; /* each by far */
            }
            s.x.values[3 * cols[i] + cols[i] / 2] = -1.2 * limit;
            operand_put(ctx, &s.x);
            for (int64_t j = 0; j < s.x.count; j++)
                s.x.values[j] = harness_round(c.x, s.x.values[j]);
            check_forward(ctx, &c, &s);
            check_backward(ctx, &c, &s);
            if (cols[i] > 1)
                for (int row = 0; row < c.rows; row++)
                    CHECK(isnan(s.y.values[row * cols[i]]) == (row == 1 || row == 3 || row == 5) ||
                              (c.x == TUTTI_F64 && row == 5),
                          "row %d begins with %g", row, s.y.values[row * cols[i]]);
            tear_down(ctx, &s);
        }
    }
}

/* A mean a thousand times the deviation: E[x^2] - E[x]^2 would lose all digits of f32. */
static void test_large_mean(void)
{
    static const int64_t cols[] = {64, 1000, 8192, 40000};
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(cols)); i++) {
            norm_case c = usual(common[type][0], common[type][1], common[type][2], 3, cols[i]);
            c.mean = 1000;
            check_case(&c);
        }
}

/* y and dx of a row have the same bits however many rows the call has, wherever they lie, and on
 * any number of threads. */
static void test_row_bits(void)
{
    tutti_context *ctx = harness_context();
    /* cols of whole vectors too, for which a backend may have a kernel of its own where rows are aligned */
    static const int64_t shapes[][2] = {{37, 64}, {9, 1027}, {7, 1024}, {11, 4096}, {5, 20000}};
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int i = 0; i < (harness_quick() ? 1 : HARNESS_COUNT(shapes)); i++) {
            norm_case c = usual(common[type][0], common[type][1], common[type][2], shapes[i][0],
                                shapes[i][1]);
            setting s = set_up(ctx, &c);
            CHECK_OK(run_forward(ctx, &s));
            CHECK_OK(run_backward(ctx, &s, false));
            for (int place = 0; place < 3; place++) {
                norm_case moved = c;
                moved.place = (layout[]){{5, 0}, {0, 1}, {3, 5}}[place];
                setting t = set_up(ctx, &moved);
                CHECK_OK(run_forward(ctx, &t));
                CHECK_OK(run_backward(ctx, &t, false));
                check_same_bits(ctx, "y", &s.y, &t.y);
                check_same_bits(ctx, "dx", &s.dx, &t.dx);
                check_same_bits(ctx, "dgamma", &s.dgamma, &t.dgamma);
                if (c.beta) check_same_bits(ctx, "dbeta", &s.dbeta, &t.dbeta);
                tear_down(ctx, &t);
            }
            norm_case alone = c;
            alone.rows = 1;
            setting t = set_up(ctx, &alone);
            for (int64_t row = 0; row < c.rows; row += 4) {
                memcpy(t.x.values, s.x.values + row * c.cols, (size_t)c.cols * sizeof(double));
                memcpy(t.dy.values, s.dy.values + row * c.cols, (size_t)c.cols * sizeof(double));
                memcpy(t.gamma.values, s.gamma.values, (size_t)c.cols * sizeof(double));
                operand_put(ctx, &t.x);
                operand_put(ctx, &t.dy);
                operand_put(ctx, &t.gamma);
                if (c.beta) {
                    memcpy(t.beta.values, s.beta.values, (size_t)c.cols * sizeof(double));
                    operand_put(ctx, &t.beta);
                }
                CHECK_OK(run_forward(ctx, &t));
                CHECK_OK(run_backward(ctx, &t, false));
                check_same_row(ctx, "y", &s.y, row, &t.y);
                check_same_row(ctx, "dx", &s.dx, row, &t.dx);
            }
            tear_down(ctx, &t);
            tear_down(ctx, &s);
        }
}

static void test_threads(void)
{
    if (harness_backend() != TUTTI_BACKEND_HOST) {
        harness_skip("only the host backend has threads");
        return;
    }
    static const int64_t shapes[][2] = {{1, 5000}, {2, 64}, {67, 131}, {400, 48}};
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
            norm_case c = usual(common[type][0], common[type][1], common[type][2], shapes[i][0],
                                shapes[i][1]);
            tutti_context *one = harness_new_context(0, 1);
            setting s = set_up(one, &c);
            CHECK_OK(run_forward(one, &s));
            CHECK_OK(run_backward(one, &s, false));
            for (int threads = 2; threads <= 3; threads++) {
                tutti_context *several = harness_new_context(0, threads);
                setting t = set_up(several, &c);
                CHECK_OK(run_forward(several, &t));
                CHECK_OK(run_backward(several, &t, false));
                check_same_bits(one, "y", &s.y, &t.y);
                check_same_bits(one, "dx", &s.dx, &t.dx);
                check_same_bits(one, "dgamma", &s.dgamma, &t.dgamma);
                if (c.beta) check_same_bits(one, "dbeta", &s.dbeta, &t.dbeta);
                tear_down(several, &t);
                tutti_context_destroy(&several);
            }
            tear_down(one, &s);
            tutti_context_destroy(&one);
        }
}

/* Gradients kept in the other of f32 and f64 than the arithmetic. */
static void test_gradient_types(void)
{
    for (int type = 0; type < HARNESS_COUNT(common); type++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            norm_case c = usual(common[type][0], common[type][1], common[type][2], 9, 77);
            if (c.grad == TUTTI_F64) continue; /* f64 arithmetic has f64 gradients */
            c.grad = TUTTI_F64;
            c.accumulate = accumulate;
            check_case(&c);
        }
}

/* Finite differences */

typedef struct difference {
    const norm_case *c;
    setting *s;
} difference;

/* sum of dy * y + dsum * sum */
static double loss(void *self)
{
    difference *d = self;
    setting *s = d->s;
    tutti_context *ctx = harness_context();
    operand_put(ctx, &s->x);
    operand_put(ctx, &s->residual);
    operand_put(ctx, &s->gamma);
    if (d->c->beta) operand_put(ctx, &s->beta);
    CHECK_OK(run_forward(ctx, s));
    operand_get(ctx, &s->y, "y");
    operand_get(ctx, &s->sum, "sum");
    double total = 0;
    for (int64_t i = 0; i < s->y.count; i++)
        total += s->dy.values[i] * s->y.values[i] + s->dsum.values[i] * s->sum.values[i];
    return total;
}

static void test_finite_differences(void)
{
    tutti_context *ctx = harness_context();
    for (int zero_centered = 0; zero_centered < 2; zero_centered++) {
        norm_case c = usual(TUTTI_F64, TUTTI_F64, TUTTI_F64, 3, 11);
        c.residual = c.dsum = true;
        c.zero_centered = zero_centered;
        setting s = set_up(ctx, &c);
        difference d = {&c, &s};
        CHECK_OK(run_forward(ctx, &s));
        CHECK_OK(run_backward(ctx, &s, false));
        operand_get(ctx, &s.dx, "dx");
        operand_get(ctx, &s.dgamma, "dgamma");
        check_gradient("dx", loss, &d, s.x.values, s.x.count, s.dx.values);
        check_gradient("dx as the residual's", loss, &d, s.residual.values, s.x.count, s.dx.values);
        check_gradient("dgamma", loss, &d, s.gamma.values, c.cols, s.dgamma.values);
        if (c.beta) {
            operand_get(ctx, &s.dbeta, "dbeta");
            check_gradient("dbeta", loss, &d, s.beta.values, c.cols, s.dbeta.values);
        }
        tear_down(ctx, &s);
    }
}

int norm_main(int argc, char **argv, norm_kind tested)
{
    static const harness_test tests[] = {
        {"all pairings of types", test_pairings},
        {"options", test_options},
        {"shapes", test_shapes},
        {"many rows", test_many_rows},
        {"equal rows", test_equal_rows},
        {"long rows", test_long_rows},
        {"strides and misaligned pointers", test_strides_and_alignment},
        {"several dimensions", test_dimensions},
        {"in place", test_in_place},
        {"no rows", test_no_rows},
        {"NaN and infinities", test_nonfinite},
        {"constant rows", test_constant_rows},
        {"rows of one value", test_rows_of_one_value},
        {"overflow", test_overflow},
        {"mean and rstd", norm_test_statistics},
        {"large mean", test_large_mean},
        {"bits of a row", test_row_bits},
        {"bits and threads", test_threads},
        {"types of gradients", test_gradient_types},
        {"finite differences", test_finite_differences},
    };
    kind = tested;
    return harness_main(argc, argv, tested == LAYERNORM ? "layernorm" : "rmsnorm", tests,
                        HARNESS_COUNT(tests));
}
