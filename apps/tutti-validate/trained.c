/* Makes cases of a checkpoint's layers; trained.h. */
#include "trained.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"

enum { OPTIONS_MAX = 64, TENSORS_MAX = 4 * TUTTI_MAX_SLOTS + 2 * PARAMS_MAX, WEIGHT_NAME_MAX = 32 };

typedef struct weight {
    char name[WEIGHT_NAME_MAX]; /* in the layer */
    tutti_param param;          /* its name: in the checkpoint */
    double *values;             /* in host memory, the same on all ranks */
} weight;

typedef struct layer {
    const trained *owner;
    char prefix[TUTTI_NAME_MAX];
    int weight_count;
    weight weights[PARAMS_MAX];
    tutti_case test_case;
    tutti_case_tensor tensors[TENSORS_MAX];
    int64_t below[TENSORS_MAX]; /* the upper limit of a tensor of indices */
} layer;

struct trained {
    const validate_options *options;
    layer *layers;
    int count, room;
    int code; /* of a visit that failed */
};

/* Finding layers */

static layer *layer_of(trained *t, const char *prefix)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->layers[i].prefix, prefix) == 0) return &t->layers[i];
    if (t->count == t->room) {
        const int room = 2 * t->room + 8;
        layer *larger = realloc(t->layers, (size_t)room * sizeof *larger);
        if (!larger) return NULL;
        t->layers = larger;
        t->room = room;
    }
    layer *made = &t->layers[t->count++];
    memset(made, 0, sizeof *made);
    snprintf(made->prefix, sizeof made->prefix, "%s", prefix);
    return made;
}

static void on_tensor(void *user, const char *name, const tutti_tensor *shape)
{
    trained *t = user;
    const char *slash = strrchr(name, '/');
    char prefix[TUTTI_NAME_MAX];
    if (t->code != APP_OK) return;
    if (!slash || strlen(name) >= TUTTI_NAME_MAX || strlen(slash) > WEIGHT_NAME_MAX) {
        t->code = app_fail(APP_FAILED, "%s: model/%.100s is not a layer's parameter",
                           t->options->checkpoint, name);
        return;
    }
    snprintf(prefix, sizeof prefix, "%.*s", (int)(slash - name), name);
    layer *l = layer_of(t, prefix);
    if (!l || l->weight_count == PARAMS_MAX) {
        t->code = app_fail(APP_FAILED, "%s: model/%s has more parameters than any layer",
                           t->options->checkpoint, prefix);
        return;
    }
    weight *w = &l->weights[l->weight_count++];
    snprintf(w->name, sizeof w->name, "%s", slash + 1);
    snprintf(w->param.name, sizeof w->param.name, "%s", name);
    w->param.value = *shape;
    w->param.lr_scale = 1;
}

/* Guessing a layer's kind */

/* A kind whose parameters match. */
typedef struct guess {
    const tutti_layer_type *type;
    int64_t numbers[OPTIONS_MAX]; /* one an option: its value by the parameters; 0: unknown */
    int left_out;                 /* optional parameters of the kind that the layer lacks */
} guess;

static int64_t *number_of(guess *g, const char *option)
{
    int i = 0;
    while (strcmp(g->type->options[i].name, option) != 0) i++;
    return &g->numbers[i];
}

static const weight *weight_of(const layer *l, const char *name)
{
    for (int i = 0; i < l->weight_count; i++)
        if (strcmp(l->weights[i].name, name) == 0) return &l->weights[i];
    return NULL;
}

/* Derives options from the dimensions of a parameter. */
static bool take_dims(guess *g, const tutti_param_type *param, const tutti_tensor *value)
{
    enum { DIMS = sizeof param->dims / sizeof param->dims[0] };
    int ndim = 0;
    for (; ndim < DIMS && param->dims[ndim]; ndim++) {
        int64_t *number = number_of(g, param->dims[ndim]);
        if (ndim >= value->ndim || (*number != 0 && *number != value->dims[ndim])) return false;
        *number = value->dims[ndim];
    }
    return ndim == value->ndim;
}

/* Floats can be drawn for any input, integers only if their upper limit is known. */
static bool may_be_drawn(const tutti_slot *slot)
{
    tutti_dtype dtype;
    const bool whole = slot->dtype && tutti_dtype_parse(slot->dtype, &dtype) == TUTTI_OK &&
                       (dtype == TUTTI_I32 || dtype == TUTTI_U8);
    return !whole || (dtype == TUTTI_I32 && slot->below);
}

static bool fits(const layer *l, const tutti_layer_type *type, guess *g)
{
    int taken = 0;
    *g = (guess){.type = type};
    if (type->option_count > OPTIONS_MAX) return false;
    for (int i = 0; i < type->param_count; i++) {
        const tutti_param_type *param = &type->params[i];
        const weight *w = weight_of(l, param->name);
        if (w && !take_dims(g, param, &w->param.value)) return false;
        if (!w && !param->unless) return false;
        if (!w) *number_of(g, param->unless) = 1;
        taken += w != NULL;
        g->left_out += w == NULL;
    }
    for (int i = 0; i < type->option_count; i++)
        if (!type->options[i].default_value && g->numbers[i] == 0) return false;
    for (int i = 0; i < type->slot_count; i++)
        if (type->slots[i].role == TUTTI_SLOT_IN && !may_be_drawn(&type->slots[i])) return false;
    return taken > 0 && taken == l->weight_count;
}

/* A lookup table has the same weight as a matrix product: only the layer's name tells them
 * apart. */
static bool is_looked_up(const tutti_layer_type *type)
{
    for (int i = 0; i < type->slot_count; i++)
        if (type->slots[i].role == TUTTI_SLOT_IN && type->slots[i].below) return true;
    return false;
}

/* The matching kind that leaves out fewest parameters, the first of several; type NULL: none. */
static guess guess_kind(const layer *l)
{
    guess best = {.type = NULL};
    for (int i = 0; i < tutti_layer_type_count(); i++) {
        guess g;
        const tutti_layer_type *type = tutti_layer_type_get(i);
        if (is_looked_up(type) && !strstr(l->prefix, type->name)) continue;
        if (fits(l, type, &g) && (!best.type || g.left_out < best.left_out)) best = g;
    }
    return best;
}

/* Making a case of a layer */

static void add_tensor(layer *l, tutti_case_part part, const char *name, tutti_dtype dtype,
                       int ndim, const int64_t *dims)
{
    tutti_case_tensor *tensor = &l->tensors[l->test_case.tensor_count++];
    const bool gradient = part == TUTTI_CASE_UPSTREAM || part == TUTTI_CASE_EXPECTED_GRAD;
    tensor->part = part;
    snprintf(tensor->name, sizeof tensor->name, "%s%.32s", gradient ? "d" : "", name);
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    memcpy(tensor->dims, dims, (size_t)ndim * sizeof *dims);
}

/* Types that are options, and of the arithmetic, are the masters'. */
static void add_slot(layer *l, guess *g, const tutti_slot *slot, tutti_case_part part)
{
    tutti_dtype dtype;
    if (!slot->dtype || tutti_dtype_parse(slot->dtype, &dtype) != TUTTI_OK)
        dtype = l->weights[0].param.value.dtype;
    const int64_t cols = slot->cols ? *number_of(g, slot->cols) : 1;
    const int64_t lines = slot->lines ? *number_of(g, slot->lines) : cols;
    const int64_t dims[] = {slot->flags & TUTTI_SLOT_SUM ? 1 : l->test_case.rows, lines, cols};
    if (slot->below) l->below[l->test_case.tensor_count] = *number_of(g, slot->below);
    add_tensor(l, part, slot->name, dtype, slot->lines ? 3 : slot->cols ? 2 : 1, dims);
}

/* Adds the tensors that every call of the kind requires. */
static void add_slots(layer *l, guess *g)
{
    static const tutti_case_part parts[] = {TUTTI_CASE_INPUTS, TUTTI_CASE_UPSTREAM,
                                            TUTTI_CASE_EXPECTED, TUTTI_CASE_EXPECTED_GRAD};
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        const bool input = parts[p] == TUTTI_CASE_INPUTS || parts[p] == TUTTI_CASE_EXPECTED_GRAD;
        const bool gradient = p % 2;
        for (int i = 0; i < g->type->slot_count; i++) {
            const tutti_slot *slot = &g->type->slots[i];
            if (slot->role == (input ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT) &&
                !(slot->flags & TUTTI_SLOT_OPTIONAL) &&
                (!gradient || (slot->flags & TUTTI_SLOT_GRAD)))
                add_slot(l, g, slot, parts[p]);
        }
    }
}

static void add_weights(layer *l, bool gradients)
{
    for (int i = 0; i < l->weight_count; i++) {
        const weight *w = &l->weights[i];
        const tutti_tensor *value = &w->param.value;
        add_tensor(l, TUTTI_CASE_PARAMS, w->name, value->dtype, value->ndim, value->dims);
        if (gradients)
            add_tensor(l, TUTTI_CASE_EXPECTED_GRAD, w->name, value->dtype, value->ndim,
                       value->dims);
    }
}

static void add_option(layer *l, const char *name, const char *value)
{
    char *options = l->test_case.options;
    const size_t used = strlen(options);
    snprintf(options + used, sizeof l->test_case.options - used, "%s%s=%s", used ? "," : "", name,
             value);
}

static void add_options(layer *l, const guess *g)
{
    for (int i = 0; i < g->type->option_count; i++) {
        const tutti_layer_option *option = &g->type->options[i];
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)g->numbers[i]);
        if (strcmp(option->type, "dtype") == 0)
            add_option(l, option->name, tutti_dtype_name(l->weights[0].param.value.dtype));
        else if (g->numbers[i] != 0)
            add_option(l, option->name, number);
    }
}

static int make_case(trained *t, layer *l)
{
    guess g = guess_kind(l);
    l->owner = t;
    l->test_case.tensors = l->tensors;
    l->test_case.rows = t->options->rows;
    l->test_case.loss_weight = l->test_case.loss_scale = 1;
    if (strlen(l->prefix) >= sizeof l->test_case.name)
        return app_fail(APP_FAILED, "%s: the name model/%s is longer than %zu",
                        t->options->checkpoint, l->prefix, sizeof l->test_case.name - 1);
    for (size_t i = 0; l->prefix[i]; i++)
        l->test_case.name[i] = l->prefix[i] == '/' ? '.' : l->prefix[i];
    if (!g.type)
        return app_fail(APP_FAILED,
                        "%s: model/%s: its parameters match no kind of layer that tutti-validate "
                        "can create from a checkpoint",
                        t->options->checkpoint, l->prefix);
    snprintf(l->test_case.layer, sizeof l->test_case.layer, "%s", g.type->name);
    add_options(l, &g);
    add_slots(l, &g);
    add_weights(l, g.type->flags & TUTTI_LAYER_BACKWARD);
    return APP_OK;
}

int trained_open(const validate_options *options, trained **made)
{
    trained *t = calloc(1, sizeof *t);
    if (!t) return app_fail(APP_FAILED, "no memory for the checkpoint's layers");
    t->options = options;
    *made = t;
    APP_CHECK(tutti_checkpoint_visit(options->checkpoint, on_tensor, t));
    if (t->code != APP_OK) return t->code;
    if (t->count == 0) return app_fail(APP_FAILED, "%s: model has no layers", options->checkpoint);
    for (int i = 0; i < t->count; i++) APP_TRY(make_case(t, &t->layers[i]));
    return APP_OK;
}

void trained_close(trained **t)
{
    if (!*t) return;
    for (int i = 0; i < (*t)->count; i++)
        for (int j = 0; j < (*t)->layers[i].weight_count; j++)
            free((*t)->layers[i].weights[j].values);
    free((*t)->layers);
    free(*t);
    *t = NULL;
}

int trained_count(const trained *t)
{
    return t ? t->count : 0;
}

const tutti_case *trained_case(const trained *t, int index)
{
    return &t->layers[index].test_case;
}

/* Weights */

static int fetch(validator *v, weight *w)
{
    const int64_t count = tutti_tensor_count(&w->param.master);
    const tutti_dtype dtype = w->param.master.dtype;
    const size_t bytes = (size_t)count * tutti_dtype_size(dtype);
    void *host = malloc(bytes + 1);
    w->values = malloc(((size_t)count + 1) * sizeof *w->values);
    int code = host && w->values ? APP_OK : app_fail(APP_FAILED, "no memory for %s", w->param.name);
    if (code == APP_OK) code = app_check(tutti_copy(v->ctx, host, w->param.master.data, bytes));
    if (code == APP_OK) code = app_check(tutti_context_synchronize(v->ctx));
    if (code == APP_OK) code = app_check(tutti_convert(w->values, TUTTI_F64, host, dtype, count));
    free(host);
    return code;
}

static int build_store(trained *t, validator *v, tutti_params **params)
{
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.master_dtype = t->layers[0].weights[0].param.value.dtype;
    APP_CHECK(tutti_params_create(v->ctx, &desc, params));
    for (int i = 0; i < t->count; i++)
        for (int j = 0; j < t->layers[i].weight_count; j++)
            APP_CHECK(tutti_params_add_param(*params, &t->layers[i].weights[j].param));
    return app_check(tutti_params_build(*params, v->ctx));
}

int trained_load(trained *t, validator *v)
{
    tutti_params *params = NULL;
    tutti_checkpoint *file = NULL;
    int code = app_group_agree(v->group, build_store(t, v, &params));
    if (code == APP_OK) code = app_check(tutti_checkpoint_create(v->ctx, v->comm, &file));
    if (code == APP_OK) code = app_check(tutti_checkpoint_add_params(file, params));
    if (code == APP_OK)
        code =
            app_check(tutti_checkpoint_load(file, t->options->checkpoint, TUTTI_CHECKPOINT_SUBSET));
    for (int i = 0; i < t->count; i++)
        for (int j = 0; code == APP_OK && j < t->layers[i].weight_count; j++)
            code = fetch(v, &t->layers[i].weights[j]);
    tutti_checkpoint_destroy(&file);
    tutti_params_destroy(&params);
    return app_group_agree(v->group, code);
}

/* Values */

/* splitmix64 [Steele et al. 2014] of tensor and element, so rows can be drawn in any order. */
static uint64_t draw(const layer *l, const char *name, int64_t element)
{
    uint64_t z = l->owner->options->seed * 0x9e3779b97f4a7c15u + (uint64_t)element;
    for (const char *c = l->prefix; *c; c++) z = z * 31 + (unsigned char)*c;
    for (const char *c = name; *c; c++) z = z * 31 + (unsigned char)*c;
    z *= 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int read_values(const void *self, const tutti_case_tensor *tensor, int64_t first,
                       int64_t count, tutti_dtype dtype, void *data)
{
    const layer *l = self;
    const double *weights = NULL;
    int64_t row = 1;
    for (int i = 1; i < tensor->ndim; i++) row *= tensor->dims[i];
    for (int i = 0; tensor->part == TUTTI_CASE_PARAMS && i < l->weight_count; i++)
        if (strcmp(l->weights[i].name, tensor->name) == 0) weights = l->weights[i].values;
    for (int64_t i = 0; i < count * row; i++) {
        const int64_t element = first * row + i;
        const uint64_t random = weights ? 0 : draw(l, tensor->name, element);
        if (dtype == TUTTI_I32) {
            ((int32_t *)data)[i] = (int32_t)(random % (uint64_t)l->below[tensor - l->tensors]);
            continue;
        }
        /* of standard deviation 1, and exact in f32 */
        const float uniform = (float)(sqrt(3) * (2 * (double)(random >> 11) * 0x1p-53 - 1));
        const double value = weights ? weights[element] : (double)uniform;
        APP_CHECK(tutti_convert((char *)data + (size_t)i * tutti_dtype_size(dtype), dtype, &value,
                                TUTTI_F64, 1));
    }
    return APP_OK;
}

source trained_source(const trained *t, int index)
{
    return (source){.name = t->options->checkpoint, .read = read_values, .self = &t->layers[index]};
}
