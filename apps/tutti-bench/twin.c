/* The same layer as a run's, in f64 on the host, for a block of the run's rows at a time. */
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

/* Elements: of the widest tensor of a block, and of a thread's part of it.  Blocks whose products
 * are a GPU's are larger, as each takes the weights there. */
enum { BLOCK = 1 << 22, DENSE_BLOCK = 1 << 24, CHUNK = 1 << 12 };

/* Rows that the twin has at a time: about a block's elements of the widest tensor. */
static int64_t block_rows(const bench_run *run)
{
    const int64_t widest = bench_widest(run), block = bench_is_dense(run) ? DENSE_BLOCK : BLOCK;
    const int64_t rows = widest < block ? block / widest : 1;
    return rows < run->rows ? rows : run->rows;
}

int bench_twin_open(const bench_run *run, const tutti_layer_type *type, const bench_shape *shape,
                    bench_run **made)
{
    const tutti_context_desc desc = {.backend = TUTTI_BACKEND_HOST};
    bench_run *twin = *made = calloc(1, sizeof *twin);
    if (twin) twin->machine = calloc(1, sizeof *twin->machine);
    if (!twin || !twin->machine) return app_fail(APP_FAILED, "no memory for the check");
    twin->type = type;
    twin->own = run->own;
    twin->variant = run->variant;
    twin->more = run->more;
    twin->with = run->with;
    twin->set = run->set;
    twin->shape = *shape;
    twin->dtype = twin->param_dtype = TUTTI_F64;
    twin->empty = true;
    APP_CHECK(tutti_context_create(&desc, &twin->machine->ctx));
    return bench_prepare(twin);
}

int bench_twin_make(bench_run *run)
{
    bench_shape block = run->shape;
    block.dims[0] = block_rows(run);
    APP_TRY(bench_twin_open(run, run->type, &block, &run->twin));
    return bench_is_dense(run) ? bench_dense_open(run) : APP_OK;
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

/* What a tensor of the run holds, or was filled with, from element `first` on. */
static int give(const bench_run *run, const bench_tensor *from, const tutti_tensor *to,
                int64_t first)
{
    const int64_t count = tutti_tensor_count(to);
    if (from->indices) {
        memcpy(to->data, from->indices + first, (size_t)count * sizeof *from->indices);
        return APP_OK;
    }
    if (!from->pattern.values) return bench_values(run, from, first, count, to->data);
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < count; at += CHUNK)
        bench_pattern_read(&from->pattern, first + at, count - at < CHUNK ? count - at : CHUNK,
                           (double *)to->data + at);
    return APP_OK;
}

/* Inputs and gradients of outputs, and before the first block parameters. */
static int give_inputs(bench_run *run, int64_t row)
{
    for (int i = 0; i < 2 * (run->slots + run->params); i++) {
        const bench_tensor *from = &run->tensors[i];
        const bool rows = bench_has_rows(run, i);
        if (!(from->indices || from->pattern.values) || (!rows && row > 0)) continue;
        const int64_t width = rows ? tutti_tensor_count(&from->view) / run->rows : 0;
        APP_TRY(give(run, from, &run->twin->tensors[i].view, row * width));
    }
    return APP_OK;
}

/* The outputs that backward reads, as the run's forward has rounded them. */
static int give_outputs(bench_run *run, int64_t row)
{
    for (int i = 0; i < run->slots; i++) {
        const bench_tensor *from = &run->tensors[2 * i];
        const tutti_tensor *to = &run->twin->tensors[2 * i].view;
        tutti_slot_shape shape;
        if (run->type->slots[i].role != TUTTI_SLOT_OUT || !to->data) continue;
        APP_CHECK(tutti_layer_slot_shape(run->layer, i, &shape));
        if (!(shape.flags & TUTTI_SLOT_READ) || to->dtype != TUTTI_F64) continue;
        APP_TRY(give(run, from, to, row * (tutti_tensor_count(&from->view) / run->rows)));
    }
    return APP_OK;
}

/* What an output replaces in backward, such as a sum that the run has rounded: the twin takes that
 * for all but the output itself.  *changed: there is one. */
static int give_replaced(bench_run *run, int64_t row, tutti_call *call, bool *changed)
{
    for (int i = 0; i < run->slots; i++) {
        const tutti_slot *slots = run->type->slots;
        const bench_tensor *from = &run->tensors[2 * i];
        if (!slots[i].replaces || !from->view.data) continue;
        *changed = true;
        for (int j = 0; j < run->slots; j++) {
            tutti_slot_shape shape;
            APP_CHECK(tutti_layer_slot_shape(run->layer, j, &shape));
            if (strcmp(slots[j].name, slots[i].replaces) == 0)
                APP_TRY(give(run, from, &run->twin->tensors[2 * j].view,
                             row * (tutti_tensor_count(&from->view) / run->rows)));
            if (slots[i].with && strcmp(slots[j].name, slots[i].with) == 0)
                call->in[shape.index] = NULL;
            if (j == i) call->out[shape.index] = NULL;
        }
    }
    return APP_OK;
}

static int call_twin(bench_run *run)
{
    return bench_is_dense(run) ? run->own->twin_call(run) : bench_layer_call(run->twin);
}

int bench_twin_compute(bench_run *run, int64_t row, int64_t rows)
{
    bench_run *twin = run->twin;
    for (int i = 0; i < 2 * twin->slots; i++)
        if (twin->tensors[i].view.data && bench_has_rows(twin, i))
            twin->tensors[i].view.dims[0] = rows;
    twin->first_row = run->first_row + row;
    twin->call.flags = row > 0 ? TUTTI_GRAD_ACCUMULATE : 0;
    twin->backward = false;
    APP_TRY(give_inputs(run, row));
    APP_TRY(call_twin(run));
    const tutti_call call = twin->call;
    bool changed = false;
    APP_TRY(give_replaced(run, row, &twin->call, &changed));
    if (changed) APP_TRY(call_twin(run));
    twin->call = call;
    if (!run->backward) return APP_OK;
    twin->backward = true;
    APP_TRY(give_outputs(run, row));
    return call_twin(run);
}
