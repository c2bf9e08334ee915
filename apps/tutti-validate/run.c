/* Running a case, or some of its rows, on this rank; run.h. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"

enum { PLACES_MAX = 64, PIECES_MAX = 2 };

/* A tensor on the device. */
typedef struct place {
    const tutti_case_tensor *tensor;
    char *data;
} place;

typedef struct run {
    validator *v;
    const subject *s;
    const run_plan *plan;
    place places[PLACES_MAX];
    int place_count;
    void *saved[PIECES_MAX];
    double *sums; /* one a piece, on the device */
} run;

int64_t run_share(int64_t rows, int rank, int world_size)
{
    const int64_t parts = (int64_t)world_size * (world_size + 1) / 2;
    const int64_t before = (int64_t)rank * (rank + 1) / 2;
    return rows / parts * before + rows % parts * before / parts;
}

static size_t bytes_of(const run *r, const tutti_case_tensor *tensor)
{
    return (size_t)subject_row(r->s, tensor) *
           (subject_has_rows(r->s, tensor) ? (size_t)r->plan->count : 1) *
           tutti_dtype_size(tensor->dtype);
}

static place *find(run *r, const tutti_case_tensor *tensor)
{
    for (int i = 0; i < r->place_count; i++)
        if (r->places[i].tensor == tensor) return &r->places[i];
    return NULL;
}

static int fill(run *r, const tutti_case_tensor *tensor, char *device)
{
    const size_t bytes = bytes_of(r, tensor);
    const bool rows = subject_has_rows(r->s, tensor);
    void *host = bytes > 0 ? malloc(bytes) : NULL;
    if (bytes > 0 && !host) return app_fail(APP_FAILED, "no memory for %s", tensor->name);
    int code = r->s->source->read(r->s->source->self, tensor, rows ? r->plan->first : 0,
                                  rows ? r->plan->count : tensor->dims[0], tensor->dtype, host);
    if (code == APP_OK) code = app_check(tutti_copy(r->v->ctx, device, host, bytes));
    free(host);
    return code;
}

/* NaN everywhere: what is not written must not look like an earlier run's results. */
static int poison(run *r, char *device, size_t bytes)
{
    void *host = malloc(bytes + 1);
    if (!host) return app_fail(APP_FAILED, "no memory for %zu bytes", bytes);
    memset(host, 0xff, bytes);
    const int code = app_check(tutti_copy(r->v->ctx, device, host, bytes));
    free(host);
    return code;
}

/* A place on the device, filled from the source if it is no result. */
static int put(run *r, const tutti_case_tensor *tensor, bool filled)
{
    if (!tensor || find(r, tensor)) return APP_OK;
    if (r->place_count == PLACES_MAX) return app_fail(APP_FAILED, "too many tensors");
    place *at = &r->places[r->place_count++];
    *at = (place){.tensor = tensor};
    APP_CHECK(tutti_alloc(r->v->ctx, bytes_of(r, tensor), (void **)&at->data));
    if (r->plan->probe) return APP_OK;
    return filled ? fill(r, tensor, at->data) : poison(r, at->data, bytes_of(r, tensor));
}

static int bind_params(run *r)
{
    for (int i = 0; i < r->s->param_count; i++) {
        const tutti_case_tensor *param = r->s->param[i], *grad = r->s->grad[i];
        APP_TRY(put(r, param, true));
        APP_TRY(put(r, grad, false));
        tutti_tensor value =
            tutti_tensor_make(find(r, param)->data, param->dtype, param->ndim, param->dims);
        tutti_tensor gradient;
        if (grad)
            gradient = tutti_tensor_make(find(r, grad)->data, grad->dtype, grad->ndim, grad->dims);
        APP_CHECK(
            tutti_param_bind(tutti_layer_param(r->s->layer, i), &value, grad ? &gradient : NULL));
    }
    return APP_OK;
}

static int prepare(run *r)
{
    const subject *s = r->s;
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++) {
        APP_TRY(put(r, s->in[i], true));
        APP_TRY(put(r, s->upstream[i], true));
        APP_TRY(put(r, s->din[i], false));
    }
    APP_CHECK(tutti_alloc(r->v->ctx, PIECES_MAX * sizeof(double), (void **)&r->sums));
    return bind_params(r);
}

/* Rows of a tensor, as [rows, columns] or [rows]. */
static const tutti_tensor *view(const run *r, const tutti_case_tensor *tensor, char *data,
                                int64_t first, int64_t count, tutti_tensor *made)
{
    const int64_t row = subject_row(r->s, tensor);
    data = data ? data + (size_t)(first * row) * tutti_dtype_size(tensor->dtype) : NULL;
    *made = tensor->ndim == 1 ? tutti_tensor_1d(data, tensor->dtype, count)
                              : tutti_tensor_2d(data, tensor->dtype, count, row);
    return made;
}

/* The tensors of one call. */
typedef struct views {
    tutti_tensor in[TUTTI_MAX_SLOTS], out[TUTTI_MAX_SLOTS], upstream[TUTTI_MAX_SLOTS],
        din[TUTTI_MAX_SLOTS];
    place own[TUTTI_MAX_SLOTS]; /* outputs that nobody expects */
} views;

/* Places of outputs: those that are expected are results, the others only pass through. */
static int put_outputs(run *r, views *w)
{
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++) {
        const tutti_case_tensor *tensor = r->s->out[i];
        if (!tensor || subject_is_result(tensor)) {
            APP_TRY(put(r, tensor, false));
            continue;
        }
        w->own[i].tensor = tensor;
        APP_CHECK(tutti_alloc(r->v->ctx, bytes_of(r, tensor), (void **)&w->own[i].data));
    }
    return APP_OK;
}

static char *output_data(run *r, const views *w, int slot)
{
    const tutti_case_tensor *tensor = r->s->out[slot];
    return subject_is_result(tensor) ? find(r, tensor)->data : w->own[slot].data;
}

static int call_piece(run *r, views *w, int piece, int64_t first, int64_t count)
{
    const subject *s = r->s;
    tutti_call call = TUTTI_CALL_INIT;
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++) {
        if (s->in[i])
            call.in[i] = view(r, s->in[i], find(r, s->in[i])->data, first, count, &w->in[i]);
        if (s->out[i])
            call.out[i] = view(r, s->out[i], output_data(r, w, i), first, count, &w->out[i]);
        if (s->upstream[i])
            call.upstream[i] = view(r, s->upstream[i], find(r, s->upstream[i])->data, first, count,
                                    &w->upstream[i]);
        if (s->din[i])
            call.din[i] = view(r, s->din[i], find(r, s->din[i])->data, first, count, &w->din[i]);
    }
    if (s->sum_slot >= 0 && s->out[s->sum_slot]) {
        w->out[s->sum_slot] = tutti_tensor_1d(r->sums + piece, s->out[s->sum_slot]->dtype, 1);
        call.out[s->sum_slot] = &w->out[s->sum_slot];
    }
    APP_CHECK(tutti_alloc(r->v->ctx, tutti_layer_saved_bytes(s->layer, count), &r->saved[piece]));
    call.saved = s->backward ? r->saved[piece] : NULL;
    call.first_row = s->which->first_row + r->plan->first + first;
    call.step = s->step;
    APP_CHECK(tutti_layer_plan(s->layer, r->v->ctx, count));
    APP_CHECK(tutti_layer_forward(s->layer, r->v->ctx, &call));
    if (!s->backward) return APP_OK;
    if (s->kept_slot >= 0) call.in[0] = call.out[s->kept_slot];
    call.flags = piece > 0 ? TUTTI_GRAD_ACCUMULATE : 0;
    return app_check(tutti_layer_backward(s->layer, r->v->ctx, &call));
}

static int compute(run *r, views *w)
{
    const int64_t count = r->plan->count, cut = r->plan->cut;
    APP_TRY(prepare(r));
    APP_TRY(put_outputs(r, w));
    APP_CHECK(tutti_zero(r->v->ctx, r->sums, PIECES_MAX * sizeof(double)));
    if (cut > 0 && cut < count) {
        APP_TRY(call_piece(r, w, 0, 0, cut));
        APP_TRY(call_piece(r, w, 1, cut, count - cut));
    } else
        APP_TRY(call_piece(r, w, 0, 0, count));
    return app_check(tutti_context_check(r->v->ctx));
}

/* Sums the gradients of the parameters over the ranks. */
static int exchange(run *r)
{
    const subject *s = r->s;
    const tutti_param *list[PARAMS_MAX];
    int count = 0;
    for (int i = s->param_count - 1; i >= 0; i--)
        if (s->grad[i]) list[count++] = tutti_layer_param(s->layer, i);
    if (count == 0) return APP_OK;
    tutti_grad_sync *sync = NULL;
    APP_CHECK(tutti_grad_sync_create_list(r->v->ctx, r->v->comm, list, count, NULL, &sync));
    int code = APP_OK;
    for (int i = 0; i < count && code == APP_OK; i++)
        code = app_check(tutti_grad_sync_ready_param(sync, r->v->ctx, list[i]));
    if (code == APP_OK) code = app_check(tutti_grad_sync_finish(sync, r->v->ctx));
    if (code == APP_OK) code = app_check(tutti_context_synchronize(r->v->ctx));
    tutti_grad_sync_destroy(&sync);
    return code;
}

/* The sum over rows, of all pieces and, with exchange, all ranks. */
static int fetch_sum(run *r, double *sum)
{
    double pieces[PIECES_MAX];
    APP_CHECK(tutti_copy(r->v->ctx, pieces, r->sums, sizeof pieces));
    APP_CHECK(tutti_context_synchronize(r->v->ctx));
    *sum = pieces[0] + pieces[1];
    return APP_OK;
}

static int fetch(run *r, void **results)
{
    const tutti_case *which = r->s->which;
    for (int i = 0; i < which->tensor_count; i++) {
        const tutti_case_tensor *tensor = &which->tensors[i];
        if (!subject_is_result(tensor)) continue;
        const size_t bytes = bytes_of(r, tensor);
        results[i] = calloc(1, bytes + 1);
        if (!results[i]) return app_fail(APP_FAILED, "no memory for %s", tensor->name);
        if (r->s->sum_slot >= 0 && tensor == r->s->out[r->s->sum_slot])
            APP_TRY(fetch_sum(r, results[i]));
        else
            APP_CHECK(tutti_copy(r->v->ctx, results[i], find(r, tensor)->data, bytes));
    }
    return app_check(tutti_context_check(r->v->ctx));
}

static void release(run *r, views *w)
{
    for (int i = 0; i < r->place_count; i++) tutti_free(r->v->ctx, (void **)&r->places[i].data);
    for (int i = 0; i < TUTTI_MAX_SLOTS; i++) tutti_free(r->v->ctx, (void **)&w->own[i].data);
    for (int i = 0; i < PIECES_MAX; i++) tutti_free(r->v->ctx, &r->saved[i]);
    tutti_free(r->v->ctx, (void **)&r->sums);
}

static int add_sums(run *r, void **results)
{
    const tutti_case *which = r->s->which;
    for (int i = 0; i < which->tensor_count; i++)
        if (r->s->sum_slot >= 0 && &which->tensors[i] == r->s->out[r->s->sum_slot])
            return app_check(tutti_comm_all_reduce(r->v->group->control, r->v->group->host,
                                                   results[i], results[i], 1, TUTTI_F64,
                                                   TUTTI_SUM));
    return APP_OK;
}

int run_case(validator *v, const subject *s, const run_plan *plan, void **results)
{
    run r = {.v = v, .s = s, .plan = plan};
    views w = {.own = {{0}}};
    int code = compute(&r, &w);
    if (plan->exchange) code = app_group_agree(v->group, subject_explain(s, code));
    if (plan->exchange && code == APP_OK) code = exchange(&r);
    if (code == APP_OK && results) code = fetch(&r, results);
    if (plan->exchange) code = app_group_agree(v->group, code);
    if (plan->exchange && code == APP_OK) code = add_sums(&r, results);
    release(&r, &w);
    return code;
}

void run_free(const subject *s, void **results)
{
    for (int i = 0; i < s->which->tensor_count; i++) {
        free(results[i]);
        results[i] = NULL;
    }
}
