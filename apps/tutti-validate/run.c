/* Runs a case, or some of its rows, on this rank; run.h. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"

enum { PIECES_MAX = 2 };

typedef struct run {
    validator *v;
    const subject *s;
    const run_plan *plan;
    int pieces; /* calls */
    /* on the device; NULL: not in the calls */
    char *value[SLOTS_MAX], *grad[SLOTS_MAX], *param[PARAMS_MAX], *param_grad[PARAMS_MAX];
    void *saved[PIECES_MAX];
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

/* Fills with NaN, so that an element not written cannot look like a result of an earlier run. */
static int poison(run *r, char *device, size_t bytes)
{
    void *host = malloc(bytes + 1);
    if (!host) return app_fail(APP_FAILED, "no memory for %zu bytes", bytes);
    memset(host, 0xff, bytes);
    const int code = app_check(tutti_copy(r->v->ctx, device, host, bytes));
    free(host);
    return code;
}

/* Allocates a tensor; an input of the case is read from the source, anything else filled with
 * NaN. */
static int put(run *r, const tutti_case_tensor *tensor, size_t bytes, char **data)
{
    APP_CHECK(tutti_alloc(r->v->ctx, bytes, (void **)data));
    if (r->plan->probe) return APP_OK;
    return tensor && !subject_is_result(tensor) ? fill(r, tensor, *data) : poison(r, *data, bytes);
}

/* Allocates `places` copies of a slot's value or gradient. */
static int put_slot(run *r, const subject_slot *slot, const tutti_case_tensor *tensor, int places,
                    char **data)
{
    const size_t rows = slot->shape.flags & TUTTI_SLOT_SUM ? 1 : (size_t)r->plan->count;
    const size_t own = rows * (size_t)slot->shape.cols * tutti_dtype_size(slot->shape.dtype);
    return put(r, tensor, (tensor ? bytes_of(r, tensor) : own) * (size_t)places, data);
}

static int put_params(run *r)
{
    const subject *s = r->s;
    for (int i = 0; i < s->param_count; i++) {
        const tutti_case_tensor *param = s->param[i], *grad = s->grad[i];
        tutti_param *bound = tutti_layer_param(s->layer, i);
        APP_TRY(put(r, param, bytes_of(r, param), &r->param[i]));
        if (grad) APP_TRY(put(r, grad, bytes_of(r, grad), &r->param_grad[i]));
        /* in the layer's shape: the case's may have more dimensions */
        tutti_tensor value = bound->value, gradient = bound->value;
        value.data = r->param[i];
        gradient.data = r->param_grad[i];
        if (grad) gradient.dtype = grad->dtype;
        if (tutti_param_bind(bound, &value, grad ? &gradient : NULL) != TUTTI_OK)
            return subject_fail(s, "%s/d%s: %s", tutti_case_part_name(TUTTI_CASE_EXPECTED_GRAD),
                                bound->name, tutti_last_error());
    }
    return APP_OK;
}

static int prepare(run *r)
{
    for (int i = 0; i < r->s->type->slot_count; i++) {
        const subject_slot *slot = &r->s->slots[i];
        /* each call writes its own sum */
        const int places = slot->shape.flags & TUTTI_SLOT_SUM ? r->pieces : 1;
        if (slot->asked) APP_TRY(put_slot(r, slot, slot->value, places, &r->value[i]));
        if (slot->grad_asked) APP_TRY(put_slot(r, slot, slot->grad, 1, &r->grad[i]));
    }
    return put_params(r);
}

/* Rows of one call. */
typedef struct piece {
    int number;
    int64_t first, count;
} piece;

/* A call's view of a tensor: its rows, as [rows, columns], [rows, lines, columns] or [rows], or all
 * of a sum.  first: the first row, or the number of the sum. */
static tutti_tensor view(const run *r, const subject_slot *slot, const tutti_case_tensor *tensor,
                         char *data, int64_t first, int64_t count)
{
    const bool sum = slot->shape.flags & TUTTI_SLOT_SUM;
    const tutti_dtype dtype = tensor ? tensor->dtype : slot->shape.dtype;
    const int64_t row = tensor ? subject_row(r->s, tensor) : slot->shape.cols;
    if (data) data += (size_t)(first * row) * tutti_dtype_size(dtype);
    const int64_t lines = slot->shape.lines, dims[] = {count, lines, row / lines};
    if (tensor && sum) return tutti_tensor_make(data, dtype, tensor->ndim, tensor->dims);
    if (lines > 1) return tutti_tensor_make(data, dtype, 3, dims);
    return tensor && tensor->ndim == 1 ? tutti_tensor_1d(data, dtype, count)
                                       : tutti_tensor_2d(data, dtype, sum ? 1 : count, row);
}

static int call_piece(run *r, const piece *p)
{
    const subject *s = r->s;
    const int64_t first_row = s->test_case->first_row + r->plan->first + p->first;
    const size_t bytes = s->backward ? tutti_layer_saved_bytes(s->layer, p->count) : 0;
    tutti_tensor values[SLOTS_MAX], grads[SLOTS_MAX];
    tutti_call call = {.first_row = &first_row, .saved_bytes = bytes, .step = s->step};
    for (int i = 0; i < s->type->slot_count; i++) {
        const subject_slot *slot = &s->slots[i];
        const bool input = slot->role == TUTTI_SLOT_IN, sum = slot->shape.flags & TUTTI_SLOT_SUM;
        const int at = slot->shape.index;
        values[i] = view(r, slot, slot->value, r->value[i], sum ? p->number : p->first, p->count);
        grads[i] = view(r, slot, slot->grad, r->grad[i], sum ? 0 : p->first, p->count);
        if (slot->asked && input) call.in[at] = &values[i];
        if (slot->asked && !input) call.out[at] = &values[i];
        if (slot->grad_asked && input) call.din[at] = &grads[i];
        if (slot->grad_asked && !input) call.upstream[at] = &grads[i];
    }
    APP_CHECK(tutti_alloc(r->v->ctx, bytes, &r->saved[p->number]));
    call.saved = r->saved[p->number];
    APP_CHECK(tutti_layer_plan(s->layer, r->v->ctx, &call));
    APP_CHECK(tutti_layer_forward(s->layer, r->v->ctx, &call));
    if (!s->backward) return APP_OK;
    for (int i = 0; i < s->type->slot_count; i++)
        if (s->slots[i].replaces >= 0) call.in[s->slots[i].replaces] = &values[i];
    call.flags = p->number > 0 ? TUTTI_GRAD_ACCUMULATE : 0;
    return app_check(tutti_layer_backward(s->layer, r->v->ctx, &call));
}

static int compute(run *r)
{
    const int64_t count = r->plan->count, cut = r->plan->cut;
    r->pieces = cut > 0 && cut < count ? 2 : 1;
    APP_TRY(prepare(r));
    const piece whole = {0, 0, count}, head = {0, 0, cut}, rest = {1, cut, count - cut};
    APP_TRY(call_piece(r, r->pieces == 1 ? &whole : &head));
    if (r->pieces == 2) APP_TRY(call_piece(r, &rest));
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

/* Adds the sums over rows of all calls. */
static int fetch_sum(run *r, const tutti_case_tensor *tensor, const char *data, void *sum)
{
    const int64_t count = subject_row(r->s, tensor);
    const size_t bytes = bytes_of(r, tensor);
    char *host = malloc((size_t)r->pieces * bytes + 1);
    double *parts = calloc((size_t)(2 * count) + 1, sizeof *parts), *part = parts + count;
    int code = host && parts ? APP_OK : app_fail(APP_FAILED, "no memory for %s", tensor->name);
    if (code == APP_OK)
        code = app_check(tutti_copy(r->v->ctx, host, data, (size_t)r->pieces * bytes));
    if (code == APP_OK) code = app_check(tutti_context_synchronize(r->v->ctx));
    for (int p = 0; code == APP_OK && p < r->pieces; p++) {
        code = app_check(
            tutti_convert(part, TUTTI_F64, host + (size_t)p * bytes, tensor->dtype, count));
        for (int64_t i = 0; i < count; i++) parts[i] += part[i];
    }
    if (code == APP_OK)
        code = app_check(tutti_convert(sum, tensor->dtype, parts, TUTTI_F64, count));
    free(host);
    free(parts);
    return code;
}

/* A result's memory on the device. */
static const char *place_of(const run *r, const tutti_case_tensor *tensor)
{
    for (int i = 0; i < r->s->type->slot_count; i++) {
        if (tensor == r->s->slots[i].value) return r->value[i];
        if (tensor == r->s->slots[i].grad) return r->grad[i];
    }
    int param = 0;
    while (tensor != r->s->grad[param]) param++;
    return r->param_grad[param];
}

static int fetch(run *r, void **results)
{
    const tutti_case *test_case = r->s->test_case;
    for (int i = 0; i < test_case->tensor_count; i++) {
        const tutti_case_tensor *tensor = &test_case->tensors[i];
        if (!subject_is_result(tensor)) continue;
        const size_t bytes = bytes_of(r, tensor);
        const char *data = place_of(r, tensor);
        results[i] = calloc(1, bytes + 1);
        if (!results[i]) return app_fail(APP_FAILED, "no memory for %s", tensor->name);
        if (subject_is_sum(r->s, tensor))
            APP_TRY(fetch_sum(r, tensor, data, results[i]));
        else
            APP_CHECK(tutti_copy(r->v->ctx, results[i], data, bytes));
    }
    return app_check(tutti_context_check(r->v->ctx));
}

static void release(run *r)
{
    for (int i = 0; i < SLOTS_MAX; i++) {
        tutti_free(r->v->ctx, (void **)&r->value[i]);
        tutti_free(r->v->ctx, (void **)&r->grad[i]);
    }
    for (int i = 0; i < PARAMS_MAX; i++) {
        tutti_free(r->v->ctx, (void **)&r->param[i]);
        tutti_free(r->v->ctx, (void **)&r->param_grad[i]);
    }
    for (int i = 0; i < PIECES_MAX; i++) tutti_free(r->v->ctx, &r->saved[i]);
}

static int add_sums(run *r, void **results)
{
    const tutti_case *test_case = r->s->test_case;
    for (int i = 0; i < test_case->tensor_count; i++) {
        const tutti_case_tensor *tensor = &test_case->tensors[i];
        if (subject_is_sum(r->s, tensor))
            APP_CHECK(tutti_comm_all_reduce(r->v->group->control, r->v->group->host, results[i],
                                            results[i], subject_row(r->s, tensor), tensor->dtype,
                                            TUTTI_SUM));
    }
    return APP_OK;
}

int run_case(validator *v, const subject *s, const run_plan *plan, void **results)
{
    run r = {.v = v, .s = s, .plan = plan};
    int code = compute(&r);
    if (plan->exchange) code = app_group_agree(v->group, subject_explain(s, code));
    if (plan->exchange && code == APP_OK) code = exchange(&r);
    if (code == APP_OK && results) code = fetch(&r, results);
    if (plan->exchange) code = app_group_agree(v->group, code);
    if (plan->exchange && code == APP_OK) code = add_sums(&r, results);
    release(&r);
    return code;
}

void run_free(const subject *s, void **results)
{
    for (int i = 0; i < s->test_case->tensor_count; i++) {
        free(results[i]);
        results[i] = NULL;
    }
}
