/* Results before and after the call that is checked: NaN before it, so that what a layer leaves out
 * shows; and --inject-fault. */
#include <math.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

/* All bits of NaN are 1: it is one in every float type. */
static int fill(tutti_context *ctx, void *data, size_t bytes)
{
    unsigned char ones[4096];
    size_t filled = bytes < sizeof ones ? bytes : sizeof ones;
    if (bytes == 0) return APP_OK;
    memset(ones, 0xff, sizeof ones);
    APP_CHECK(tutti_copy(ctx, data, ones, filled));
    while (filled < bytes) {
        const size_t more = bytes - filled < filled ? bytes - filled : filled;
        APP_CHECK(tutti_copy(ctx, (char *)data + filled, data, more));
        filled += more;
    }
    return APP_OK;
}

int bench_spoil(const bench_run *run)
{
    tutti_context *ctx = run->machine->ctx;
    for (int i = 0; i < 2 * (run->slots + run->params); i++) {
        const tutti_tensor *view = &run->tensors[i].view;
        const size_t bytes = (size_t)tutti_tensor_count(view) * tutti_dtype_size(view->dtype);
        if (bench_is_result(run, i)) APP_TRY(fill(ctx, view->data, bytes));
    }
    if (run->backward) return APP_OK;
    return fill(ctx, run->call.saved, run->call.saved_bytes);
}

/* The largest result of the pass that has rows, or that is a sum over them; -1: there is none. */
static int find_result(const bench_run *run, bool sum)
{
    int found = -1;
    int64_t most = 0;
    for (int i = 0; i < 2 * (run->slots + run->params); i++) {
        const int64_t count = tutti_tensor_count(&run->tensors[i].view);
        if (!bench_is_result(run, i) || bench_has_rows(run, i) == sum || count <= most) continue;
        found = i;
        most = count;
    }
    return found;
}

/* A row between two neighbouring samples, if they have one between them. */
static int64_t inner_row(const bench_run *run)
{
    const int64_t half = bench_sampled_rows(run) / 2;
    if (half == 0) return 0;
    return (bench_sampled_row(run, half - 1) + bench_sampled_row(run, half)) / 2;
}

/* Moves it by a sixteenth of itself and of the largest of those before it: more than any rounding
 * does. */
static double altered(const double *values, int64_t count)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(values[i]));
    if (largest == 0) largest = 1;
    return values[count - 1] +
           copysign((largest + fabs(values[count - 1])) / 16, values[count - 1]);
}

static int write_altered(bench_run *run, const bench_tensor *tensor, int64_t element,
                         bench_undo *undo)
{
    unsigned char now[sizeof undo->was];
    enum { NEIGHBOURS = 64 };
    double values[NEIGHBOURS];
    const tutti_dtype dtype = tensor->view.dtype;
    tutti_context *ctx = run->machine->ctx;
    undo->size = tutti_dtype_size(dtype);
    undo->at = (char *)tensor->view.data + (size_t)element * undo->size;
    APP_CHECK(tutti_copy(ctx, undo->was, undo->at, undo->size));
    APP_CHECK(tutti_context_synchronize(ctx));
    memset(now, 0xff, sizeof now);
    if (run->fault != BENCH_FAULT_UNWRITTEN) {
        const int64_t count = element < NEIGHBOURS ? element + 1 : NEIGHBOURS;
        APP_TRY(bench_read(ctx, tensor->view.data, dtype, element + 1 - count, count, values));
        const double value = altered(values, count);
        APP_CHECK(tutti_convert(now, dtype, &value, TUTTI_F64, 1));
    }
    APP_CHECK(tutti_copy(ctx, undo->at, now, undo->size));
    return app_check(tutti_context_synchronize(ctx));
}

int bench_fault_make(bench_run *run, bench_undo *undo)
{
    *undo = (bench_undo){0};
    if (run->fault == BENCH_FAULT_NONE) return APP_OK;
    const bool inside = run->fault == BENCH_FAULT_INSIDE || run->fault == BENCH_FAULT_UNWRITTEN;
    int tensor = find_result(run, run->fault == BENCH_FAULT_SUM);
    if (tensor < 0 && run->fault != BENCH_FAULT_SUM) tensor = find_result(run, true);
    if (tensor < 0) return APP_OK;
    const bench_tensor *of = &run->tensors[tensor];
    const int64_t count = tutti_tensor_count(&of->view), width = count / run->rows;
    const int64_t inner =
        bench_has_rows(run, tensor) ? inner_row(run) * width + width / 2 : count / 2;
    return write_altered(run, of, inside ? inner : count - 1, undo);
}

int bench_fault_undo(const bench_run *run, bench_undo *undo)
{
    if (!undo->at) return APP_OK;
    APP_CHECK(tutti_copy(run->machine->ctx, undo->at, undo->was, undo->size));
    undo->at = NULL;
    return app_check(tutti_context_synchronize(run->machine->ctx));
}
