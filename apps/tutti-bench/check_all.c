/* Checks every element of every result against the run's twin: the same layer in f64 on the host,
 * with all its cores.
 *
 * reference/ takes about 0.3 us of a core for an element, or 40 s for 32768 x 4096, and for matrix
 * products far more; the twin takes about 10 ns, and the rest of this file as much.  Its code has
 * nothing in common with a GPU's kernels.  With the host's f32 kernels it shares the source, so a
 * wrong formula there shows in the rows that reference/ computes, and an element that is wrong or
 * left out in one row, here.
 *
 * What an element may be off is taken from the part of its tensor that was compared with
 * reference/: the rounding to the tensor's type, plus the largest of the other errors allowed
 * there.  Rows in which an element is further off are not yet wrong, as another row may allow more;
 * reference/ judges them.  In sums over rows and matrix products, which it cannot judge row by row,
 * an element may be off by four times that. */
#include <math.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"
#include "reference/spread.h"

enum { SLAB = 1 << 22, CHUNK = 1 << 12, UNJUDGED = 4 };

/* The twin */

static int twin_make(bench_run *run)
{
    const tutti_context_desc desc = {.backend = TUTTI_BACKEND_HOST};
    bench_run *twin = run->twin = calloc(1, sizeof *twin);
    if (twin) twin->machine = calloc(1, sizeof *twin->machine);
    if (!twin || !twin->machine) return app_fail(APP_FAILED, "no memory for the check");
    twin->type = run->type;
    twin->own = run->own;
    twin->variant = run->variant;
    twin->more = run->more;
    twin->shape = run->shape;
    twin->dtype = twin->param_dtype = TUTTI_F64;
    twin->rounded = run->rounded;
    twin->rounded_params = run->rounded_params;
    APP_CHECK(tutti_context_create(&desc, &twin->machine->ctx));
    APP_TRY(bench_prepare(twin));
    return bench_layer_call(twin);
}

void bench_twin_release(bench_run *run)
{
    bench_run *twin = run->twin;
    if (!twin) return;
    if (twin->machine) {
        bench_release(twin);
        tutti_context_destroy(&twin->machine->ctx);
        free(twin->machine);
    }
    free(twin);
    run->twin = NULL;
}

/* Outputs that backward reads, as the run's forward has rounded them. */
static int give_outputs(bench_run *run)
{
    for (int i = 0; i < run->slots; i++) {
        const bench_tensor *from = &run->tensors[2 * i];
        const tutti_tensor *to = &run->twin->tensors[2 * i].view;
        tutti_slot_shape shape;
        if (run->type->slots[i].role != TUTTI_SLOT_OUT || !to->data) continue;
        APP_CHECK(tutti_layer_slot_shape(run->layer, i, &shape));
        if (!(shape.flags & TUTTI_SLOT_READ) || to->dtype != TUTTI_F64) continue;
        const int64_t count = tutti_tensor_count(to);
        for (int64_t at = 0; at < count; at += SLAB)
            APP_TRY(bench_values(run, from, at, count - at < SLAB ? count - at : SLAB,
                                 (double *)to->data + at));
    }
    return APP_OK;
}

/* The comparison */

typedef struct comparison {
    const tutti_tensor *twin;
    tutti_dtype dtype;
    int64_t width;          /* elements of a row */
    double roundoff, slack; /* an element may be off by roundoff * its value + slack */
    bool *suspects;         /* of rows */
    double error, allowed;  /* of the element that is the furthest off, suspects apart */
} comparison;

/* Elements first, first + 1, … of the twin's tensor. */
static bool take_twin(const comparison *c, int64_t first, int64_t count, double *values)
{
    const char *data = c->twin->data;
    return tutti_convert(values, TUTTI_F64, data + (size_t)first * tutti_dtype_size(c->twin->dtype),
                         c->twin->dtype, count) == TUTTI_OK;
}

static double largest_of(const comparison *c, int64_t count)
{
    double largest = 0;
#pragma omp parallel for schedule(static) reduction(max : largest)
    for (int64_t at = 0; at < count; at += CHUNK) {
        double values[CHUNK];
        const int64_t part = count - at < CHUNK ? count - at : CHUNK;
        if (!take_twin(c, at, part, values)) continue;
        for (int64_t i = 0; i < part; i++) largest = fmax(largest, fabs(values[i]));
    }
    return largest > 0 ? largest : 1;
}

/* Compares up to CHUNK elements; typed: the run's.  False if they cannot be converted. */
static bool compare_chunk(comparison *c, const char *typed, int64_t first, int64_t count)
{
    double got[CHUNK], want[CHUNK], error = 0, allowed = 1;
    if (tutti_convert(got, TUTTI_F64, typed, c->dtype, count) != TUTTI_OK) return false;
    if (!take_twin(c, first, count, want)) return false;
    for (int64_t i = 0; i < count; i++) {
        const double off = fabs(got[i] - want[i]), may = c->roundoff * fabs(want[i]) + c->slack;
        if (got[i] == want[i] || off * allowed <= error * may) continue;
        if (c->suspects && !(off <= may)) {
#pragma omp atomic write
            c->suspects[(first + i) / c->width] = true;
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

/* typed: elements first, first + 1, … of the run's. */
static bool compare_slab(comparison *c, const char *typed, int64_t first, int64_t count)
{
    const size_t size = tutti_dtype_size(c->dtype);
    bool good = true;
#pragma omp parallel for schedule(static) reduction(&& : good)
    for (int64_t at = 0; at < count; at += CHUNK)
        good = compare_chunk(c, typed + (size_t)at * size, first + at,
                             count - at < CHUNK ? count - at : CHUNK) &&
               good;
    return good;
}

/* What an element of a result may be off. */
static void allow(const bench_run *run, const bench_tensor *tensor, bool sum, bool judged,
                  double largest, comparison *c)
{
    const bool known = tensor->bounded || sum;
    /* sums are rounded as their type is, also where the tensor is wider: the sum of losses is f64 */
    const double other = bench_tolerance(sum ? bench_run_sums(run) : run->dtype);
    c->roundoff = known ? (double)spread_roundoff(c->dtype) : 0;
    c->slack = tensor->bounded ? (judged ? 1 : UNJUDGED) * tensor->slack : other * largest;
}

static int compare_tensor(bench_run *run, bench_result *result, int number, bool *suspects)
{
    bench_tensor *tensor = &run->tensors[number];
    const int64_t count = tutti_tensor_count(&tensor->view);
    const size_t size = tutti_dtype_size(tensor->view.dtype);
    const bool on_host = tutti_context_backend(run->machine->ctx) == TUTTI_BACKEND_HOST;
    const bool sum = !bench_has_rows(run, number), judged = suspects && !sum && tensor->bounded;
    comparison c = {.twin = &run->twin->tensors[number].view,
                    .dtype = tensor->view.dtype,
                    .width = sum ? count : count / run->rows,
                    .suspects = judged ? suspects : NULL,
                    .allowed = 1};
    const double largest = largest_of(&c, count);
    allow(run, tensor, sum, judged, largest, &c);
    char *slab = on_host ? NULL : malloc((size_t)SLAB * size);
    if (!on_host && !slab) return app_fail(APP_FAILED, "no memory for the check");
    int code = APP_OK;
    for (int64_t at = 0; code == APP_OK && at < count; at += SLAB) {
        const int64_t part = count - at < SLAB ? count - at : SLAB;
        const char *from = (const char *)tensor->view.data + (size_t)at * size;
        if (!on_host)
            code = app_check(tutti_copy(run->machine->ctx, slab, from, (size_t)part * size));
        if (code == APP_OK) code = app_check(tutti_context_synchronize(run->machine->ctx));
        if (code == APP_OK && !compare_slab(&c, on_host ? from : slab, at, part))
            code = app_fail(APP_FAILED, "%s: results cannot be converted", run->type->name);
    }
    free(slab);
    result->elements += count;
    if (c.error > 0) bench_keep(result, c.error / largest, c.allowed / largest);
    return code;
}

int bench_check_all(bench_run *run, bench_result *result, bool *suspects)
{
    if (!run->twin) APP_TRY(twin_make(run));
    if (run->backward) {
        run->twin->backward = true;
        APP_TRY(give_outputs(run));
        APP_TRY(bench_layer_call(run->twin));
    }
    for (int i = 0; i < 2 * (run->slots + run->params); i++)
        if (bench_is_result(run, i)) APP_TRY(compare_tensor(run, result, i, suspects));
    return APP_OK;
}
