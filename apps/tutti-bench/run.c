/* Creates, fills, times and checks one layer of one shape by its kind's table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "layers.h"

static bool of_shape(const tutti_layer_option *option)
{
    return !option->default_value && strcmp(option->type, "int") == 0;
}

/* Whether it is the type of parameters and of no tensor of a call. */
static bool of_params(const tutti_layer_type *type, const tutti_layer_option *option)
{
    bool found = false;
    for (int i = 0; i < type->param_count; i++)
        found = found || strcmp(type->params[i].dtype, option->name) == 0;
    for (int i = 0; i < type->slot_count; i++)
        if (type->slots[i].dtype && strcmp(type->slots[i].dtype, option->name) == 0) return false;
    return found && strcmp(option->type, "dtype") == 0;
}

/* Whether "a=1,b=2", or NULL, sets an option. */
static bool sets(const char *list, const char *name, size_t length)
{
    for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        if (strcspn(list, "=,") == length && strncmp(list, name, length) == 0) return true;
    return false;
}

bool bench_leaves_open(const tutti_layer_type *type, const bench_layer *own, const char *name)
{
    const size_t length = strcspn(name, "=,");
    if (sets(own->options, name, length) || sets(own->variant, name, length)) return false;
    for (int i = 0; own->named && own->named[i][0]; i++)
        if (sets(own->named[i][1], name, length)) return false;
    for (int i = 0; i < type->option_count; i++) {
        const tutti_layer_option *option = &type->options[i];
        if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
            return !of_shape(option) && strcmp(option->type, "dtype") != 0;
    }
    return false;
}

/* The words of a run's `set` that its kind takes. */
static const char *taken(const bench_run *run, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (const char *at = run->set; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (used < size && bench_leaves_open(run->type, run->own, at))
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? "," : "",
                                     (int)strcspn(at, ","), at);
    return used ? text : NULL;
}

int bench_shape_options(const tutti_layer_type *type, const char *names[BENCH_DIMS_MAX])
{
    int count = 0;
    for (int i = 0; i < type->option_count && count < BENCH_DIMS_MAX; i++)
        if (of_shape(&type->options[i])) names[count++] = type->options[i].name;
    return count;
}

tutti_dtype bench_sums(tutti_dtype dtype)
{
    return dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
}

tutti_dtype bench_run_sums(const bench_run *run)
{
    return bench_sums(run->param_dtype == TUTTI_F64 ? TUTTI_F64 : run->dtype);
}

bool bench_has_param_types(const tutti_layer_type *type)
{
    for (int i = 0; i < type->option_count; i++)
        if (of_params(type, &type->options[i])) return true;
    return false;
}

bool bench_has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        if (strcspn(list, ",") == length && strncmp(list, word, length) == 0) return true;
    return false;
}

int bench_create(bench_run *run)
{
    char *const text = run->options;
    const bool of_option = *run->variant && !run->more;
    size_t used = (size_t)snprintf(text, sizeof run->options, "%s%s%s%s",
                                   run->own->options ? run->own->options : "",
                                   of_option ? run->own->variant : "", of_option ? "=" : "",
                                   run->more ? run->more : run->variant);
    if (run->set && used < sizeof run->options)
        used += (size_t)snprintf(text + used, sizeof run->options - used, "%s%s", used ? "," : "",
                                 run->set);
    if (used >= sizeof run->options)
        return app_fail(APP_USAGE, "%s has too many options", run->type->name);
    for (int i = 0, dim = 1; i < run->type->option_count; i++) {
        const tutti_layer_option *option = &run->type->options[i];
        char value[32];
        if (of_shape(option))
            snprintf(value, sizeof value, "%lld", (long long)run->shape.dims[dim++]);
        else if (strcmp(option->type, "dtype") == 0)
            snprintf(
                value, sizeof value, "%s",
                tutti_dtype_name(of_params(run->type, option) ? run->param_dtype : run->dtype));
        else
            continue;
        used += (size_t)snprintf(text + used, sizeof run->options - used, "%s%s=%s",
                                 used ? "," : "", option->name, value);
        if (used >= sizeof run->options)
            return app_fail(APP_USAGE, "%s has too many options", run->type->name);
    }
    const tutti_status status =
        tutti_layer_create_by_name(run->machine->ctx, run->type->name, text, &run->layer);
    return status == TUTTI_ERR_ARG ? app_fail(APP_USAGE, "%s", tutti_last_error())
                                   : app_check(status);
}

/* Tensors */

static const char *name_of(const bench_run *run, int tensor)
{
    const int i = tensor / 2;
    return i < run->slots ? run->type->slots[i].name
                          : tutti_layer_param(run->layer, i - run->slots)->name;
}

bench_tensor *bench_find(const bench_run *run, const char *name)
{
    for (int i = 0; i < 2 * (run->slots + run->params); i++) {
        const char *at = i % 2 == 0 ? name : name[0] == 'd' ? name + 1 : "";
        if (run->tensors[i].view.data && strcmp(at, name_of(run, i)) == 0) return &run->tensors[i];
    }
    return NULL;
}

int bench_values(const bench_run *run, const bench_tensor *tensor, int64_t first, int64_t count,
                 double *values)
{
    if (tensor->pattern.values)
        bench_pattern_read(&tensor->pattern, first, count, values);
    else if (tensor->indices)
        for (int64_t i = 0; i < count; i++) values[i] = tensor->indices[first + i];
    else
        return bench_read(run->machine->ctx, tensor->view.data, tensor->view.dtype, first, count,
                          values);
    return APP_OK;
}

int bench_scratch(bench_run *run, int64_t count, double **values)
{
    free(run->scratch);
    *values = run->scratch = calloc((size_t)count, sizeof **values);
    return *values ? APP_OK : app_fail(APP_FAILED, "no memory for the reference");
}

int64_t bench_sampled(int64_t count, int64_t index)
{
    return (count - 1) * index / (BENCH_SAMPLES - 1);
}

/* Zeros, or offset ± scale at random. */
static int put(bench_run *run, int number, tutti_tensor shape, double offset, double scale)
{
    bench_tensor *tensor = &run->tensors[number];
    const tutti_dtype rounded = number / 2 < run->slots ? run->rounded : run->rounded_params;
    const int64_t count = tutti_tensor_count(&shape);
    tensor->view = shape;
    if (scale > 0 && !run->empty)
        APP_TRY(bench_pattern_make(shape.dtype, rounded, count, (uint64_t)number + 1, offset, scale,
                                   &tensor->pattern));
    return bench_alloc(run->machine->ctx, &tensor->pattern, shape.dtype, count, &tensor->view.data);
}

/* About as skewed as text: the commonest of 256 values has 16 % of the rows, of 50257, 3 %. */
static int draw(bench_run *run, bench_tensor *tensor, int64_t below)
{
    const int64_t count = tutti_tensor_count(&tensor->view);
    uint64_t state = 1;
    tensor->indices = malloc((size_t)count * sizeof *tensor->indices);
    if (!tensor->indices)
        return app_fail(APP_FAILED, "no memory for %lld indices", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const double u = (double)(state >> 33) / 2147483648.0;
        tensor->indices[i] = (int32_t)(u * u * u * (double)(below ? below : INT32_MAX));
    }
    APP_CHECK(tutti_copy(run->machine->ctx, tensor->view.data, tensor->indices,
                         (size_t)count * sizeof *tensor->indices));
    return app_check(tutti_context_synchronize(run->machine->ctx));
}

/* Optional inputs are left out, and the outputs that depend on them, but for those asked for. */
static bool is_given(const bench_run *run, const tutti_slot *slot)
{
    const char *owner = slot->role == TUTTI_SLOT_OUT ? slot->with : slot->name;
    return slot->role != TUTTI_SLOT_KEPT &&
           (!(slot->flags & TUTTI_SLOT_OPTIONAL) || !owner || bench_has_word(run->with, owner));
}

static int fill_slot(bench_run *run, int i)
{
    const tutti_slot *slot = &run->type->slots[i];
    const bool input = slot->role == TUTTI_SLOT_IN;
    tutti_slot_shape shape;
    if (!is_given(run, slot)) return APP_OK;
    APP_CHECK(tutti_layer_slot_shape(run->layer, i, &shape));
    const int64_t rows = shape.flags & TUTTI_SLOT_SUM ? 1 : run->rows;
    const int64_t dims[] = {rows, slot->lines ? shape.lines : shape.cols, shape.cols / shape.lines};
    const int ndim = slot->lines ? 3 : slot->cols ? 2 : 1;
    const tutti_tensor view = tutti_tensor_make(NULL, shape.dtype, ndim, dims);
    const bool index = shape.dtype == TUTTI_I32;
    bench_tensor *value = &run->tensors[2 * i], *gradient = value + 1;
    const double width = slot->most - slot->least;
    const double mean = width > 0 ? slot->least + width / 2 : run->own->about_zero ? 0 : 0.1;
    const double scale = width > 0 ? width / 2 : 1.7;
    APP_TRY(put(run, 2 * i, view, mean, input && !index ? scale : 0));
    if (input && index && !run->empty) APP_TRY(draw(run, value, shape.below));
    if (shape.flags & TUTTI_SLOT_GRAD) APP_TRY(put(run, 2 * i + 1, view, 0, input ? 0 : 1.7));
    const bool has_gradient = gradient->view.data;
    if (input) {
        run->call.in[shape.index] = &value->view;
        run->call.din[shape.index] = has_gradient ? &gradient->view : NULL;
    } else {
        run->call.out[shape.index] = &value->view;
        run->call.upstream[shape.index] = has_gradient ? &gradient->view : NULL;
    }
    return APP_OK;
}

static int fill_param(bench_run *run, int i)
{
    tutti_param *param = tutti_layer_param(run->layer, i);
    const int number = 2 * (run->slots + i);
    tutti_tensor grad = param->value;
    grad.dtype = bench_run_sums(run);
    if (param->init == TUTTI_INIT_UNIFORM) /* 1.7: so that products are about as large as x */
        APP_TRY(put(run, number, param->value, 0, 1.7 * param->init_bound));
    else
        APP_TRY(put(run, number, param->value, param->init == TUTTI_INIT_ONE ? 1 : 0, 0.5));
    APP_TRY(put(run, number + 1, grad, 0, 0));
    return app_check(
        tutti_param_bind(param, &run->tensors[number].view, &run->tensors[number + 1].view));
}

int bench_prepare(bench_run *run)
{
    tutti_context *ctx = run->machine->ctx;
    APP_TRY(bench_create(run));
    run->rows = run->shape.dims[0];
    run->slots = run->type->slot_count;
    run->params = tutti_layer_param_count(run->layer);
    run->tensors = calloc(2 * (size_t)(run->slots + run->params), sizeof *run->tensors);
    if (!run->tensors) return app_fail(APP_FAILED, "no memory for a layer's tensors");
    for (int i = 0; i < run->slots; i++) APP_TRY(fill_slot(run, i));
    for (int i = 0; i < run->params; i++) APP_TRY(fill_param(run, i));
    run->call.first_row = &run->first_row;
    run->call.saved_bytes = tutti_layer_saved_bytes(run->layer, run->rows);
    APP_CHECK(tutti_alloc(ctx, run->call.saved_bytes, &run->call.saved));
    if (run->type->flags & TUTTI_LAYER_STEP) {
        const tutti_step_values values = {.step = 1, .loss_weight = 1};
        APP_CHECK(tutti_step_block_create(ctx, &run->step));
        APP_CHECK(tutti_step_block_set(run->step, ctx, &values));
        run->call.step = run->step;
    }
    return app_check(tutti_layer_plan(run->layer, ctx, &run->call));
}

void bench_release(bench_run *run)
{
    tutti_context *ctx = run->machine->ctx;
    bench_twin_release(run);
    for (int i = 0; run->tensors && i < 2 * (run->slots + run->params); i++) {
        (void)tutti_free(ctx, &run->tensors[i].view.data);
        bench_pattern_free(&run->tensors[i].pattern);
        free(run->tensors[i].indices);
    }
    (void)tutti_free(ctx, &run->call.saved);
    tutti_step_block_destroy(&run->step);
    tutti_layer_destroy(&run->layer);
    free(run->tensors);
    free(run->scratch);
}

void bench_turn(bench_run *run, bool backward)
{
    run->backward = backward;
    for (int i = 0; i < run->slots; i++) {
        const char *replaced = run->type->slots[i].replaces;
        if (!replaced || !run->tensors[2 * i].view.data) continue;
        for (int j = 0; j < run->slots; j++) {
            tutti_slot_shape shape;
            if (strcmp(run->type->slots[j].name, replaced) == 0 &&
                tutti_layer_slot_shape(run->layer, j, &shape) == TUTTI_OK)
                run->call.in[shape.index] = &run->tensors[2 * (backward ? i : j)].view;
        }
    }
}

/* Times */

int bench_layer_call(void *self)
{
    const bench_run *run = self;
    return app_check((run->backward ? tutti_layer_backward : tutti_layer_forward)(
        run->layer, run->machine->ctx, &run->call));
}

/* The bytes a pass must read and write, in tensors of [rows, cols]: parameters and one number a row
 * are negligible. */
static double count_bytes(const bench_run *run)
{
    double bytes = 0;
    for (int i = 0; i < run->slots; i++) {
        const tutti_slot *slot = &run->type->slots[i];
        const bool kept = slot->role == TUTTI_SLOT_KEPT;
        tutti_slot_shape shape;
        if (!slot->cols || !(kept || is_given(run, slot)) ||
            tutti_layer_slot_shape(run->layer, i, &shape) != TUTTI_OK)
            continue;
        const int moved = !run->backward || kept ? 1
                                                 : ((shape.flags & TUTTI_SLOT_READ) != 0) +
                                                       ((shape.flags & TUTTI_SLOT_GRAD) != 0);
        bytes += moved * (double)(shape.flags & TUTTI_SLOT_SUM ? 1 : run->rows) *
                 (double)shape.cols * (double)tutti_dtype_size(shape.dtype);
    }
    return bytes;
}

int64_t bench_widest(const bench_run *run)
{
    int64_t widest = 1;
    for (int i = 0; i < 2 * run->slots; i++) {
        const tutti_tensor *view = &run->tensors[i].view;
        const int64_t width = tutti_tensor_count(view) / run->rows;
        if (view->data && bench_has_rows(run, i) && width > widest) widest = width;
    }
    return widest;
}

static int time_pass(bench_run *run, bench_result *result)
{
    *result = (bench_result){.layer = run->type->name,
                             .pass = run->backward                             ? "backward"
                                     : run->type->flags & TUTTI_LAYER_BACKWARD ? "forward"
                                                                               : "loss+grad",
                             .variant = run->shown,
                             .dtype = run->dtype,
                             .param_dtype = run->param_dtype,
                             .columns = bench_widest(run),
                             .product = run->own->products,
                             .added = run->added,
                             .tolerance = bench_tolerance(run->dtype),
                             .amount = count_bytes(run)};
    for (int i = 0, used = 0; i < run->shape.ndim && used < (int)sizeof result->shape; i++)
        used += snprintf(result->shape + used, sizeof result->shape - (size_t)used, "%s%lld",
                         i ? "x" : "", (long long)run->shape.dims[i]);
    bench_reference reference = {0};
    if (run->own->count) run->own->count(run, result, &reference);
    if (!result->product) reference.bytes = (size_t)result->amount;
    return bench_time(run->machine, bench_layer_call, run, &reference, &result->times,
                      &result->reference);
}

/* What is checked is one more call, into memory full of NaN. */
static int check_pass(bench_run *run, bench_result *result, bench_sink sink, void *user)
{
    APP_TRY(bench_time_call(run->machine, bench_layer_call, run, run->rows, &result->times,
                            &result->call_seconds));
    APP_TRY(bench_spoil(run));
    APP_TRY(bench_layer_call(run));
    APP_CHECK(tutti_context_check(run->machine->ctx));
    bench_undo undo;
    APP_TRY(bench_fault_make(run, &undo));
    result->faulty = undo.at;
    APP_TRY(bench_check(run, result));
    APP_TRY(bench_fault_undo(run, &undo));
    sink(user, result);
    return APP_OK;
}

/* The variant, the tensors that the kind has of those asked for, the options:
 * "gelu+residual,layer_number=3". */
static void name(bench_run *run)
{
    size_t used = (size_t)snprintf(run->shown, sizeof run->shown, "%s", run->variant);
    for (int i = 0; i < run->type->slot_count; i++) {
        const char *slot = run->type->slots[i].name;
        if (bench_has_word(run->with, slot) && used < sizeof run->shown)
            used += (size_t)snprintf(run->shown + used, sizeof run->shown - used, "%s%s",
                                     used ? "+" : "", slot);
    }
    if (run->set && used < sizeof run->shown)
        snprintf(run->shown + used, sizeof run->shown - used, "%s%s", used ? "," : "", run->set);
}

int bench_layer_try(const bench_run *plan)
{
    bench_run run = *plan;
    char set[sizeof run.options];
    run.set = taken(plan, set, sizeof set);
    const int code = bench_create(&run);
    tutti_layer_destroy(&run.layer);
    return code;
}

/* Both passes are timed first, as the thousand calls of bench_time_call heat a GPU. */
int bench_layer_run(const bench_run *plan, bench_sink sink, void *user)
{
    bench_run run = *plan;
    bench_result results[2];
    char set[sizeof run.options];
    run.set = taken(plan, set, sizeof set);
    name(&run);
    int code = bench_prepare(&run);
    const int passes = code == APP_OK && (run.type->flags & TUTTI_LAYER_BACKWARD) ? 2 : 1;
    for (int pass = 0; code == APP_OK && pass < passes; pass++) {
        bench_turn(&run, pass);
        code = time_pass(&run, &results[pass]);
    }
    for (int pass = 0; code == APP_OK && pass < passes; pass++) {
        bench_turn(&run, pass);
        code = check_pass(&run, &results[pass], sink, user);
    }
    bench_release(&run);
    return code;
}
