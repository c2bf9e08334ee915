/* Cases made of a checkpoint's layers; trained.h. */
#include "trained.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"

enum { WEIGHTS_MAX = 2, TENSORS_MAX = 10, WEIGHT_NAME_MAX = 32 };

typedef struct weight {
    char name[WEIGHT_NAME_MAX]; /* in the layer: "gamma" */
    tutti_param param;          /* its name: in the checkpoint */
    double *values;             /* in host memory, of all ranks alike */
} weight;

typedef struct layer {
    const trained *owner;
    char prefix[TUTTI_NAME_MAX];
    int weight_count;
    weight weights[WEIGHTS_MAX];
    tutti_case which;
    tutti_case_tensor tensors[TENSORS_MAX];
    int64_t vocab; /* of an embedding */
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
        t->code = app_fail(APP_FAILED, "%s: model/%.100s is no layer's parameter",
                           t->options->checkpoint, name);
        return;
    }
    snprintf(prefix, sizeof prefix, "%.*s", (int)(slash - name), name);
    layer *l = layer_of(t, prefix);
    if (!l || l->weight_count == WEIGHTS_MAX) {
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

/* Making a case of a layer */

static const weight *weight_of(const layer *l, const char *name, int ndim)
{
    for (int i = 0; i < l->weight_count; i++)
        if (strcmp(l->weights[i].name, name) == 0 && l->weights[i].param.value.ndim == ndim)
            return &l->weights[i];
    return NULL;
}

static void add_tensor(layer *l, tutti_case_part part, const char *name, tutti_dtype dtype,
                       int ndim, const int64_t *dims)
{
    tutti_case_tensor *tensor = &l->tensors[l->which.tensor_count++];
    tensor->part = part;
    snprintf(tensor->name, sizeof tensor->name, "%.32s", name);
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    memcpy(tensor->dims, dims, (size_t)ndim * sizeof *dims);
}

static void add_rows(layer *l, tutti_case_part part, const char *name, tutti_dtype dtype,
                     int64_t cols)
{
    add_tensor(l, part, name, dtype, 2, (const int64_t[]){l->which.rows, cols});
}

static void add_weights(layer *l)
{
    for (int i = 0; i < l->weight_count; i++) {
        const tutti_tensor *value = &l->weights[i].param.value;
        char grad[WEIGHT_NAME_MAX + 1];
        snprintf(grad, sizeof grad, "d%s", l->weights[i].name);
        add_tensor(l, TUTTI_CASE_PARAMS, l->weights[i].name, value->dtype, value->ndim,
                   value->dims);
        add_tensor(l, TUTTI_CASE_EXPECTED_GRAD, grad, value->dtype, value->ndim, value->dims);
    }
}

static void make_norm(layer *l, const weight *gamma)
{
    const int64_t cols = gamma->param.value.dims[0];
    const tutti_dtype dtype = gamma->param.value.dtype;
    const char *type = tutti_dtype_name(dtype);
    strcpy(l->which.layer, l->weight_count == 2 ? "layernorm" : "rmsnorm");
    snprintf(l->which.options, sizeof l->which.options,
             "cols=%lld,x_dtype=%s,param_dtype=%s,y_dtype=%s", (long long)cols, type, type, type);
    add_rows(l, TUTTI_CASE_INPUTS, "x", dtype, cols);
    add_rows(l, TUTTI_CASE_UPSTREAM, "dy", dtype, cols);
    add_rows(l, TUTTI_CASE_EXPECTED, "y", dtype, cols);
    add_rows(l, TUTTI_CASE_EXPECTED_GRAD, "dx", dtype, cols);
}

static void make_linear(layer *l, const weight *weight)
{
    const int64_t *dims = weight->param.value.dims;
    const tutti_dtype dtype = weight->param.value.dtype;
    strcpy(l->which.layer, "linear");
    snprintf(l->which.options, sizeof l->which.options, "in=%lld,out=%lld,dtype=%s,no_bias=%d",
             (long long)dims[1], (long long)dims[0], tutti_dtype_name(dtype), l->weight_count == 2);
    add_rows(l, TUTTI_CASE_INPUTS, "x", dtype, dims[1]);
    add_rows(l, TUTTI_CASE_UPSTREAM, "dy", dtype, dims[0]);
    add_rows(l, TUTTI_CASE_EXPECTED, "y", dtype, dims[0]);
    add_rows(l, TUTTI_CASE_EXPECTED_GRAD, "dx", dtype, dims[1]);
}

static void make_embedding(layer *l, const weight *weight)
{
    const int64_t *dims = weight->param.value.dims;
    const tutti_dtype dtype = weight->param.value.dtype;
    strcpy(l->which.layer, "embedding");
    snprintf(l->which.options, sizeof l->which.options, "vocab=%lld,cols=%lld,dtype=%s",
             (long long)dims[0], (long long)dims[1], tutti_dtype_name(dtype));
    l->vocab = dims[0];
    add_tensor(l, TUTTI_CASE_INPUTS, "tokens", TUTTI_I32, 1, (const int64_t[]){l->which.rows});
    add_rows(l, TUTTI_CASE_UPSTREAM, "dy", dtype, dims[1]);
    add_rows(l, TUTTI_CASE_EXPECTED, "y", dtype, dims[1]);
}

static int make_case(trained *t, layer *l)
{
    const weight *gamma = weight_of(l, "gamma", 1), *matrix = weight_of(l, "weight", 2);
    l->owner = t;
    l->which.tensors = l->tensors;
    l->which.rows = t->options->rows;
    l->which.loss_weight = l->which.loss_scale = 1;
    if (strlen(l->prefix) >= sizeof l->which.name)
        return app_fail(APP_FAILED, "%s: the name model/%s is longer than %zu",
                        t->options->checkpoint, l->prefix, sizeof l->which.name - 1);
    for (size_t i = 0; l->prefix[i]; i++)
        l->which.name[i] = l->prefix[i] == '/' ? '.' : l->prefix[i];
    const bool alone = l->weight_count == 1;
    if (gamma && (alone || weight_of(l, "beta", 1)))
        make_norm(l, gamma);
    else if (matrix && alone && strstr(l->prefix, "embedding"))
        make_embedding(l, matrix);
    else if (matrix && (alone || weight_of(l, "bias", 1)))
        make_linear(l, matrix);
    else
        return app_fail(APP_FAILED,
                        "%s: model/%s: its parameters are those of no kind of layer that "
                        "tutti-validate makes of a checkpoint",
                        t->options->checkpoint, l->prefix);
    add_weights(l);
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
    if (t->count == 0)
        return app_fail(APP_FAILED, "%s: there is no layer in model", options->checkpoint);
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
    return &t->layers[index].which;
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

/* splitmix64 [Steele et al. 2014], of tensor and element: rows can be had in any order. */
static uint64_t draw(const layer *l, const char *name, int64_t element)
{
    uint64_t z = (uint64_t)l->owner->options->seed * 0x9e3779b97f4a7c15u + (uint64_t)element;
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
            ((int32_t *)data)[i] = (int32_t)(random % (uint64_t)l->vocab);
            continue;
        }
        /* of deviation 1, and a number of f32 */
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
