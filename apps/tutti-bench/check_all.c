/* Checks every element of every result against the run's twin: the same layer in f64 on the host,
 * with all its cores.
 *
 * reference/ takes about 0.3 us of a core for an element, or 40 s for 32768 x 4096, and for matrix
 * products far more; the twin takes about 10 ns, and the rest of this file as much.  Its code has
 * nothing in common with a GPU's kernels (linear.c has how that is where products are the GPU's).
 * With the host's f32 kernels it shares the source, so a wrong formula there shows in the rows that
 * reference/ computes, and an element that is wrong or left out in one row, here.
 *
 * The twin has a block of rows at a time, as the memory for all of them, eight bytes an element,
 * would take longer to get than to compute; gradients of parameters are added up over the blocks.
 *
 * What an element may be off is taken from the part of its tensor that was compared with
 * reference/: the rounding to the tensor's type, plus the largest of the other errors allowed
 * there.  Rows in which an element is further off are not yet wrong, as another row may allow more;
 * reference/ judges them.  In sums over rows and matrix products, which it cannot judge row by row,
 * an element may be off by four times that. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"
#include "reference/spread.h"

enum { SLAB = 1 << 22, CHUNK = 1 << 12, UNJUDGED = 4 };

/* Of a part of the run's tensor with the twin's. */
typedef struct comparison {
    tutti_dtype dtype;
    const char *got; /* typed, in host memory */
    const char *want;
    tutti_dtype want_dtype;
    int64_t count;
    double roundoff, slack; /* an element may be off by roundoff * its value + slack */
    bool *suspects;         /* of the rows, from that on in which the part begins; NULL: none */
    int64_t begun, width;   /* elements of that row that precede the part; of a row */
    double error, allowed;  /* of the element that is the furthest off, suspects apart */
} comparison;

static bool convert(double *values, const char *data, tutti_dtype dtype, int64_t first,
                    int64_t count)
{
    return tutti_convert(values, TUTTI_F64, data + (size_t)first * tutti_dtype_size(dtype), dtype,
                         count) == TUTTI_OK;
}

static double largest_of(const tutti_tensor *tensor)
{
    double largest = 0;
    const int64_t count = tutti_tensor_count(tensor);
#pragma omp parallel for schedule(static) reduction(max : largest)
    for (int64_t at = 0; at < count; at += CHUNK) {
        double values[CHUNK];
        const int64_t part = count - at < CHUNK ? count - at : CHUNK;
        if (!convert(values, tensor->data, tensor->dtype, at, part)) continue;
        for (int64_t i = 0; i < part; i++) largest = fmax(largest, fabs(values[i]));
    }
    return largest > 0 ? largest : 1;
}

/* False if the elements cannot be converted. */
static bool compare_chunk(comparison *c, int64_t first, int64_t count)
{
    double got[CHUNK], want[CHUNK], error = 0, allowed = 1;
    if (!convert(got, c->got, c->dtype, first, count)) return false;
    if (!convert(want, c->want, c->want_dtype, first, count)) return false;
    for (int64_t i = 0; i < count; i++) {
        const double off = fabs(got[i] - want[i]), may = c->roundoff * fabs(want[i]) + c->slack;
        if (got[i] == want[i] || off * allowed <= error * may) continue;
        if (c->suspects && !(off <= may)) {
            bool *const suspect = &c->suspects[(c->begun + first + i) / c->width];
#pragma omp atomic write
            *suspect = true;
            continue;
        }
        error = isnan(off) ? INFINITY : off;
        allowed = may;
    }
#pragma omp critical(tutti_bench_compare)
    if (error * c->allowed > c->error * allowed) {
        c->error = error;
        c->allowed = allowed;
    }
    return true;
}

static bool compare_chunks(comparison *c)
{
    bool good = true;
#pragma omp parallel for schedule(static) reduction(&& : good)
    for (int64_t at = 0; at < c->count; at += CHUNK)
        good = compare_chunk(c, at, c->count - at < CHUNK ? c->count - at : CHUNK) && good;
    return good;
}

/* The check of a pass. */
typedef struct check {
    bench_run *run;
    bench_result *result;
    bool *suspects; /* NULL: reference/ cannot judge any row */
    char *slab;     /* host memory for results; NULL on the host */
} check;

/* The type as which a result is rounded where none of it was compared with reference/.  Sums are
 * rounded as their type is, also where the tensor is wider: the sum of losses is f64.  But
 * gradients of parameters are as coarse as what a kind may keep for them in the run's type, even
 * where it keeps nothing: it rounds dz where it would keep z. */
static tutti_dtype rounded_as(const bench_run *run, int number)
{
    if (bench_has_rows(run, number)) return run->dtype;
    for (int i = 0; number / 2 >= run->slots && i < run->type->slot_count; i++) {
        tutti_slot_shape shape;
        if (run->type->slots[i].role != TUTTI_SLOT_KEPT ||
            tutti_layer_slot_shape(run->layer, i, &shape) != TUTTI_OK)
            continue;
        if (shape.dtype == run->dtype) return run->dtype;
    }
    return bench_run_sums(run);
}

/* What an element of a result may be off. */
static void allow(const check *k, int number, double largest, comparison *c)
{
    const bench_run *run = k->run;
    const bench_tensor *tensor = &run->tensors[number];
    const bool sum = !bench_has_rows(run, number);
    const double otherwise = bench_tolerance(rounded_as(run, number)) * largest;
    const bool judged = k->suspects && !sum && tensor->bounded;
    c->roundoff = tensor->bounded ? (double)spread_roundoff(tensor->view.dtype) : 0;
    c->slack = tensor->bounded ? (judged ? 1 : UNJUDGED) * tensor->slack : otherwise;
    c->suspects = judged ? k->suspects : NULL;
}

/* Compares the twin's tensor with as many elements of the run's, from row `row` on. */
static int compare_tensor(const check *k, int number, int64_t row)
{
    bench_run *run = k->run;
    tutti_context *ctx = run->machine->ctx;
    const tutti_tensor *view = &run->tensors[number].view, *twin = &run->twin->tensors[number].view;
    const int64_t count = tutti_tensor_count(twin);
    const int64_t width =
        bench_has_rows(run, number) ? tutti_tensor_count(view) / run->rows : count;
    const size_t size = tutti_dtype_size(view->dtype), want_size = tutti_dtype_size(twin->dtype);
    const double largest = largest_of(twin);
    for (int64_t at = 0; at < count; at += SLAB) {
        comparison c = {.dtype = view->dtype,
                        .got = (const char *)view->data + (size_t)(row * width + at) * size,
                        .want = (const char *)twin->data + (size_t)at * want_size,
                        .want_dtype = twin->dtype,
                        .count = count - at < SLAB ? count - at : SLAB,
                        .width = width,
                        .begun = at % width,
                        .allowed = 1};
        allow(k, number, largest, &c);
        if (c.suspects) c.suspects += row + at / width;
        if (k->slab) APP_CHECK(tutti_copy(ctx, k->slab, c.got, (size_t)c.count * size));
        APP_CHECK(tutti_context_synchronize(ctx));
        if (k->slab) c.got = k->slab;
        if (!compare_chunks(&c))
            return app_fail(APP_FAILED, "%s: results cannot be converted", run->type->name);
        if (c.error > 0) bench_keep(k->result, c.error / largest, c.allowed / largest);
    }
    k->result->elements += count;
    return APP_OK;
}

/* Outputs that are sums over rows, over the blocks so far: the twin overwrites its own. */
static int add_up(const bench_run *run, double **totals)
{
    for (int i = 0; i < run->slots; i++) {
        const tutti_tensor *twin = &run->twin->tensors[2 * i].view;
        if (!bench_is_result(run, 2 * i) || bench_has_rows(run, 2 * i)) continue;
        const int64_t count = tutti_tensor_count(twin);
        if (twin->dtype != TUTTI_F64)
            return app_fail(APP_FAILED, "%s has a sum over rows that is not f64", run->type->name);
        if (!totals[i]) totals[i] = calloc((size_t)count, sizeof *totals[i]);
        if (!totals[i]) return app_fail(APP_FAILED, "no memory for the check");
        for (int64_t j = 0; j < count; j++) totals[i][j] += ((const double *)twin->data)[j];
    }
    return APP_OK;
}

static int compare_blocks(const check *k, double **totals)
{
    bench_run *run = k->run;
    const int64_t rows = run->twin->rows;
    const int count = 2 * (run->slots + run->params);
    for (int64_t row = 0; row < run->rows; row += rows) {
        APP_TRY(bench_twin_compute(run, row, run->rows - row < rows ? run->rows - row : rows));
        APP_TRY(add_up(run, totals));
        for (int i = 0; i < count; i++)
            if (bench_is_result(run, i) && bench_has_rows(run, i))
                APP_TRY(compare_tensor(k, i, row));
    }
    for (int i = 0; i < count; i++) {
        const tutti_tensor *twin = &run->twin->tensors[i].view;
        if (!bench_is_result(run, i) || bench_has_rows(run, i)) continue;
        if (i / 2 < run->slots)
            memcpy(twin->data, totals[i / 2], (size_t)tutti_tensor_count(twin) * sizeof(double));
        APP_TRY(compare_tensor(k, i, 0));
    }
    return APP_OK;
}

int bench_check_all(bench_run *run, bench_result *result, bool *suspects)
{
    enum { WIDEST = 8 }; /* bytes of an element */
    double *totals[TUTTI_MAX_SLOTS * 3] = {NULL};
    check k = {run, result, suspects, NULL};
    int code = run->twin ? APP_OK : bench_twin_make(run);
    if (tutti_context_backend(run->machine->ctx) != TUTTI_BACKEND_HOST) {
        k.slab = malloc((size_t)SLAB * WIDEST);
        if (!k.slab) code = app_fail(APP_FAILED, "no memory for the check");
    }
    if (code == APP_OK) code = compare_blocks(&k, totals);
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) free(totals[i]);
    free(k.slab);
    return code;
}
