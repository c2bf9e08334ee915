/* Backward in two stages: where an exchange begins, gradients of parameters are complete when it is
 * told so, those of inputs come after; with the bits of a backward in one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ready.h"
#include "rig.h"

enum { LEAVES_MOST = 9, GRADS = 4, ROWS = 32 * LEAVES_MOST };

typedef struct shape {
    const char *kind;
    tutti_dtype dtype;
    tutti_activation activation;
    bool bias, dx, accumulate, wide; /* wide: gradients are f64 anyway */
    bool begins, pairs;              /* what the exchange says, and wants */
    int leaves;
    int64_t rows, in, out;
} shape;

/* A layer with its tensors in device memory, and what backward gives. */
typedef struct subject {
    tutti_context *ctx;
    const shape *s;
    tutti_layer *layer;
    tutti_tensor x, h, y, dy, dx;
    void *saved, *values[GRADS], *grads[GRADS];
    tutti_dtype real; /* of gradients */
    size_t grad_bytes[GRADS], dx_bytes, saved_bytes;
    int count;
} subject;

/* An exchange that looks at what it is told of. */
typedef struct observer {
    tutti__ready_sink sink; /* first */
    subject *of;
    int readies, added, paired;
    bool dx_left;                            /* at ready dx, of the last leaves, was as before */
    bool more;                               /* as ready was told */
    unsigned char *seen[GRADS];              /* gradients then */
    unsigned char *leaf[GRADS][LEAVES_MOST]; /* or of the leaves; of a pair's second: NULL */
} observer;

static unsigned char *fetch(tutti_context *ctx, const void *data, size_t bytes)
{
    unsigned char *copy = harness_calloc(bytes + 1, 1);
    CHECK_OK(tutti_copy(ctx, copy, data, bytes));
    CHECK_OK(tutti_context_synchronize(ctx));
    return copy;
}

static tutti_tensor matrix(tutti_context *ctx, harness_rng *rng, tutti_dtype dtype, int64_t rows,
                           int64_t cols)
{
    void *data = NULL;
    double *values = harness_calloc((size_t)(rows * cols), sizeof *values);
    CHECK_OK(tutti_alloc(ctx, (size_t)(rows * cols) * tutti_dtype_size(dtype), &data));
    const tutti_tensor tensor = tutti_tensor_2d(data, dtype, rows, cols);
    harness_fill(rng, values, rows * cols, dtype, 0, 1);
    harness_put(ctx, &tensor, values);
    free(values);
    return tensor;
}

static void fill_grads(const subject *l)
{
    harness_rng rng = {3};
    for (int i = 0; i < l->count; i++) {
        tutti_tensor grad = tutti_layer_param(l->layer, i)->grad;
        double *values = harness_calloc((size_t)tutti_tensor_count(&grad), sizeof *values);
        harness_fill(&rng, values, tutti_tensor_count(&grad), grad.dtype, 0, 1);
        harness_put(l->ctx, &grad, values);
        free(values);
    }
}

static void bind(subject *l, harness_rng *rng)
{
    const tutti_dtype real = l->s->wide || l->s->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
    l->real = real;
    l->count = tutti_layer_param_count(l->layer);
    for (int i = 0; i < l->count; i++) {
        tutti_param *param = tutti_layer_param(l->layer, i);
        const int64_t elements = tutti_tensor_count(&param->value);
        tutti_tensor value = param->value, grad = param->value;
        l->values[i] = matrix(l->ctx, rng, l->s->dtype, 1, elements).data;
        l->grad_bytes[i] = (size_t)elements * tutti_dtype_size(real);
        CHECK_OK(tutti_alloc(l->ctx, l->grad_bytes[i], &l->grads[i]));
        value.data = l->values[i];
        grad.data = l->grads[i];
        grad.dtype = real;
        CHECK_OK(tutti_param_bind(param, &value, &grad));
    }
}

static bool is_norm(const shape *s)
{
    return strstr(s->kind, "norm");
}

static void create(subject *l, const shape *s, tutti_context *ctx)
{
    harness_rng rng = {1};
    *l = (subject){.ctx = ctx, .s = s};
    if (is_norm(s)) {
        char options[128];
        const char *type = tutti_dtype_name(s->dtype);
        snprintf(options, sizeof options, "cols=%lld,x_dtype=%s,param_dtype=%s,y_dtype=%s",
                 (long long)s->in, type, type, type);
        CHECK_OK(tutti_layer_create_by_name(ctx, s->kind, options, &l->layer));
    } else if (strcmp(s->kind, "mlp") == 0) {
        tutti_mlp_desc desc = TUTTI_MLP_DESC_INIT;
        desc.in = s->in;
        desc.hidden = 2 * s->in;
        desc.out = s->out;
        desc.dtype = s->dtype;
        desc.activation = s->activation;
        desc.no_bias = !s->bias;
        CHECK_OK(tutti_mlp_create(ctx, &desc, &l->layer));
        l->h = matrix(ctx, &rng, s->dtype, s->rows, 2 * s->in);
    } else {
        tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
        desc.in = s->in;
        desc.out = s->out;
        desc.dtype = s->dtype;
        desc.activation = s->activation;
        desc.no_bias = !s->bias;
        CHECK_OK(tutti_linear_create(ctx, &desc, &l->layer));
    }
    bind(l, &rng);
    l->x = matrix(ctx, &rng, s->dtype, s->rows, s->in);
    l->y = matrix(ctx, &rng, s->dtype, s->rows, s->out);
    l->dy = matrix(ctx, &rng, s->dtype, s->rows, s->out);
    l->dx = matrix(ctx, &rng, s->dtype, s->rows, s->in);
    l->dx_bytes = (size_t)(s->rows * s->in) * tutti_dtype_size(s->dtype);
    l->saved_bytes = tutti_layer_saved_bytes(l->layer, s->rows);
    CHECK_OK(tutti_alloc(ctx, l->saved_bytes, &l->saved));
}

static void drop(subject *l)
{
    void *const data[] = {l->x.data, l->h.data, l->y.data, l->dy.data, l->dx.data, l->saved};
    for (int i = 0; i < HARNESS_COUNT(data); i++) {
        void *freed = data[i];
        CHECK_OK(tutti_free(l->ctx, &freed));
    }
    for (int i = 0; i < l->count; i++) {
        CHECK_OK(tutti_free(l->ctx, &l->values[i]));
        CHECK_OK(tutti_free(l->ctx, &l->grads[i]));
    }
    tutti_layer_destroy(&l->layer);
}

/* Forward of all rows, or backward of these, with gradients and dx from the same start. */
static void call(subject *l, bool backward, int64_t first, int64_t rows, int leaves,
                 tutti_grad_sync *sync)
{
    const shape *s = l->s;
    tutti_tensor t[] = {l->x, l->h, l->y, l->dy, l->dx};
    int64_t leaf_rows[LEAVES_MOST];
    for (int i = 0; i < HARNESS_COUNT(t) && backward; i++) {
        if (!t[i].data) continue;
        t[i].dims[0] = rows;
        t[i].data =
            (char *)t[i].data + (size_t)(first * t[i].strides[0]) * tutti_dtype_size(t[i].dtype);
    }
    for (int i = 0; i < leaves; i++) leaf_rows[i] = rows / leaves * i;
    tutti_call c = {.in = {&t[0]},
                    .out = {&t[2], l->h.data ? &t[1] : NULL},
                    .saved = !l->saved_bytes ? NULL
                             : is_norm(s)    ? l->saved
                                             : (char *)l->saved +
                                                l->saved_bytes / (size_t)s->rows * (size_t)first,
                    .saved_bytes = l->saved_bytes,
                    .leaves = leaves,
                    .leaf_rows = leaf_rows};
    /* what a norm saves of some rows is not a part of what it saves of all */
    if (!backward || is_norm(s)) CHECK_OK(tutti_layer_forward(l->layer, l->ctx, &c));
    if (!backward) return;
    fill_grads(l);
    CHECK_OK(tutti_zero(l->ctx, l->dx.data, l->dx_bytes));
    c.upstream[0] = &t[3];
    if (s->dx) c.din[0] = &t[4];
    c.flags = s->accumulate ? TUTTI_GRAD_ACCUMULATE : 0;
    c.sync = sync;
    CHECK_OK(tutti_layer_backward(l->layer, l->ctx, &c));
}

static tutti_status observe_may_begin(const tutti__ready_sink *self, const tutti_context *ctx,
                                      tutti_layer *layer, bool accumulate)
{
    (void)ctx;
    const observer *o = (const observer *)self;
    CHECK(layer == o->of->layer && accumulate == o->of->s->accumulate, "another call begins");
    return TUTTI_OK;
}

static tutti_status observe_ready(tutti__ready_sink *self, tutti_context *ctx, tutti_layer *layer,
                                  bool more)
{
    observer *o = (observer *)self;
    unsigned char *dx = fetch(ctx, o->of->dx.data, o->of->dx_bytes);
    CHECK(layer == o->of->layer, "another layer is ready");
    o->readies++;
    o->more = more;
    o->dx_left = true;
    /* eight leaves at most are computed at once, and the last ones in stages */
    const size_t leaves = (size_t)o->of->s->leaves, most = LEAVES_MOST;
    size_t i = leaves == most ? o->of->dx_bytes / most * (most - 1) : 0;
    for (; i < o->of->dx_bytes; i++) o->dx_left &= dx[i] == 0;
    free(dx);
    for (int k = 0; k < o->of->count; k++)
        o->seen[k] = fetch(ctx, o->of->grads[k], o->of->grad_bytes[k]);
    return TUTTI_OK;
}

static bool observe_begins(const tutti__ready_sink *self, tutti_layer *layer)
{
    (void)layer;
    return ((const observer *)self)->of->s->begins;
}

static bool observe_adds(const tutti__ready_sink *self, int leaves)
{
    (void)self;
    return leaves > 1;
}

static tutti_status observe_where(const tutti__ready_sink *self, const tutti_context *ctx,
                                  const tutti_param *param, int leaves, tutti__leaf_grads *grads)
{
    (void)ctx, (void)param, (void)leaves;
    *grads = (tutti__leaf_grads){.span = 1, .pairs = ((const observer *)self)->of->s->pairs};
    return TUTTI_OK;
}

static tutti_status observe_leaves(tutti__ready_sink *self, tutti_context *ctx,
                                   const tutti_param *param, int first, int count,
                                   const tutti__leaf_grads *grads)
{
    observer *o = (observer *)self;
    CHECK(o->readies == 0, "leaves are added after ready");
    for (int i = 0; i < o->of->count; i++)
        for (int k = 0; k < count && param == tutti_layer_param(o->of->layer, i);
             k += grads->span) {
            const size_t at = (size_t)(k / grads->span) * grads->apart;
            o->leaf[i][first + k] = fetch(ctx, grads->data + at, o->of->grad_bytes[i]);
            o->added += grads->span;
            o->paired += grads->span == 2;
        }
    return TUTTI_OK;
}

static tutti_status observe_lose(tutti__ready_sink *self, tutti_status status)
{
    (void)self;
    return status;
}

/* On a GPU a product for dx may sum for db: then it comes first. */
static bool is_early(const shape *s)
{
    const bool sums = s->bias && s->activation == TUTTI_ACT_NONE &&
                      harness_backend() == TUTTI_BACKEND_CUDA && strcmp(s->kind, "linear") == 0;
    return s->begins && s->dx && !sums && !is_norm(s);
}

static void check_same(const char *what, const void *got, const void *want, size_t bytes)
{
    CHECK(got && memcmp(got, want, bytes) == 0, "%s has other bits", what);
}

static void add(tutti_dtype real, void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; real == TUTTI_F64 && i < bytes / sizeof(double); i++)
        ((double *)to)[i] += ((const double *)from)[i];
    for (size_t i = 0; real == TUTTI_F32 && i < bytes / sizeof(float); i++)
        ((float *)to)[i] += ((const float *)from)[i];
}

/* Gradients of leaves are those of calls of one, and those of pairs their sums. */
static void check_leaves(subject *l, const observer *o)
{
    const int leaves = l->s->leaves;
    const int64_t rows = l->s->rows / leaves;
    const bool pairs = l->s->pairs && harness_backend() == TUTTI_BACKEND_CUDA;
    unsigned char *sum[GRADS] = {NULL};
    int first[GRADS] = {0};
    CHECK(o->added == l->count * leaves, "%d leaves' gradients are added", o->added);
    CHECK(o->paired == (pairs ? l->count * (leaves / 2) : 0), "%d gradients are of pairs",
          o->paired);
    for (int leaf = 0; leaf < leaves; leaf++) {
        call(l, true, leaf * rows, rows, 1, NULL);
        for (int i = 0; i < l->count; i++) {
            unsigned char *want = fetch(l->ctx, l->grads[i], l->grad_bytes[i]);
            if (o->leaf[i][leaf]) {
                free(sum[i]);
                sum[i] = want;
                first[i] = leaf;
            } else {
                add(l->real, sum[i], want, l->grad_bytes[i]);
                free(want);
            }
            if (leaf + 1 == leaves || o->leaf[i][leaf + 1])
                check_same("a leaf's gradient, or a pair's,", o->leaf[i][first[i]], sum[i],
                           l->grad_bytes[i]);
        }
    }
    for (int i = 0; i < GRADS; i++) free(sum[i]);
}

static void check_shape(const shape *s)
{
    subject l;
    unsigned char *want[GRADS], *want_dx;
    create(&l, s, rig_context());
    if (harness_failures()) return;
    harness_where("%s %s activation %d bias %d dx %d accumulate %d begins %d pairs %d leaves %d",
                  s->kind, tutti_dtype_name(s->dtype), (int)s->activation, s->bias, s->dx,
                  s->accumulate, s->begins, s->pairs, s->leaves);
    observer o = {.sink = {observe_may_begin, observe_ready, observe_begins, observe_adds,
                           observe_where, observe_leaves, observe_lose},
                  .of = &l};
    call(&l, false, 0, s->rows, s->leaves, NULL);
    call(&l, true, 0, s->rows, s->leaves, NULL);
    want_dx = fetch(l.ctx, l.dx.data, l.dx_bytes);
    for (int i = 0; i < l.count; i++) want[i] = fetch(l.ctx, l.grads[i], l.grad_bytes[i]);

    call(&l, true, 0, s->rows, s->leaves, (tutti_grad_sync *)&o.sink);
    unsigned char *dx = fetch(l.ctx, l.dx.data, l.dx_bytes);
    CHECK(o.readies == 1, "ready %d times, want once", o.readies);
    check_same("dx", dx, want_dx, l.dx_bytes);
    if (is_early(s)) CHECK(o.dx_left && o.more, "dx is computed before ready, or ready not told");
    if (!s->begins) CHECK(!o.more, "ready is told that more follows, but nothing does");
    if (!s->begins && s->dx) CHECK(!o.dx_left, "dx is not computed before ready");
    for (int i = 0; i < l.count && s->leaves < 2; i++)
        check_same(tutti_layer_param(l.layer, i)->name, o.seen[i], want[i], l.grad_bytes[i]);
    if (s->leaves > 1) check_leaves(&l, &o);

    for (int i = 0; i < l.count; i++) {
        free(want[i]);
        free(o.seen[i]);
        for (int k = 0; k < LEAVES_MOST; k++) free(o.leaf[i][k]);
    }
    free(want_dx);
    free(dx);
    drop(&l);
    harness_where(NULL);
}

static void check_kind(const char *kind)
{
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16};
    static const tutti_activation activations[] = {TUTTI_ACT_NONE, TUTTI_ACT_RELU, TUTTI_ACT_GELU};
    static const int leaves[] = {0, 1, LEAVES_MOST};
    for (int i = 0; i < HARNESS_COUNT(dtypes) * HARNESS_COUNT(activations); i++)
        for (int bits = 0; bits < 32; bits++)
            for (int k = 0; k < HARNESS_COUNT(leaves) && !harness_failures(); k++) {
                if (bits & 16 && leaves[k] < 2) continue;
                const shape s = {.kind = kind,
                                 .dtype = dtypes[i % 2],
                                 .activation = activations[i / 2],
                                 .bias = bits & 1,
                                 .dx = bits & 2,
                                 .accumulate = bits & 4,
                                 .begins = bits & 8,
                                 .pairs = bits & 16,
                                 .leaves = leaves[k],
                                 .rows = leaves[k] < 2 ? 100 : ROWS,
                                 .in = 40,
                                 .out = 24};
                if ((s.begins || s.dx) && (!s.accumulate || s.leaves < 2)) check_shape(&s);
            }
}

/* By each of the norms' kernels, and of those that add their partial rows. */
static void pairs_of_norms(void)
{
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F64, TUTTI_F32};
    static const int cols[] = {24, 1030, 4096, 12288, 32768};
    for (int i = 0; i < HARNESS_COUNT(cols) * HARNESS_COUNT(dtypes) * 2; i++) {
        const int type = i / 2 % HARNESS_COUNT(dtypes);
        if (harness_failures()) break;
        check_shape(&(shape){.kind = i % 2 ? "layernorm" : "rmsnorm",
                             .dtype = dtypes[type],
                             .wide = type == 3,
                             .dx = true,
                             .pairs = true,
                             .leaves = LEAVES_MOST,
                             .rows = 3 * LEAVES_MOST,
                             .in = cols[i / 2 / HARNESS_COUNT(dtypes)],
                             .out = cols[i / 2 / HARNESS_COUNT(dtypes)]});
    }
}

static void stages_of_linear(void)
{
    check_kind("linear");
}

static void stages_of_mlp(void)
{
    check_kind("mlp");
}

/* Where our own products run on a GPU. */
static void large_stages(void)
{
    for (int bits = 0; bits < 32 && !harness_failures(); bits++)
        if (bits & 8 || !(bits & 16))
            check_shape(&(shape){.kind = bits & 1 ? "mlp" : "linear",
                                 .dtype = TUTTI_BF16,
                                 .activation = bits & 2 ? TUTTI_ACT_GELU : TUTTI_ACT_NONE,
                                 .bias = bits & 4,
                                 .dx = true,
                                 .begins = true,
                                 .pairs = bits & 16,
                                 .leaves = bits & 8 ? 2 : 0,
                                 .rows = 4096,
                                 .in = 1024,
                                 .out = 1024});
}

/* A step of two layers. */
enum { STEP_ROWS = 64, WIDTH = 32 };
typedef struct step {
    tutti_context *ctx;
    tutti_layer *layers[2];
    tutti_params *params;
    tutti_tensor tensors[2][5]; /* x, y, dy, dx */
    void *saved[2];
} step;

static void open_step(step *s, tutti_context *ctx)
{
    harness_rng rng = {(uint64_t)(5 + rig_rank())};
    *s = (step){.ctx = ctx};
    CHECK_OK(tutti_params_create(ctx, NULL, &s->params));
    for (int i = 0; i < 2; i++) {
        tutti_linear_desc desc = TUTTI_LINEAR_DESC_INIT;
        desc.in = desc.out = WIDTH;
        desc.activation = TUTTI_ACT_GELU;
        CHECK_OK(tutti_linear_create(ctx, &desc, &s->layers[i]));
        CHECK_OK(tutti_params_add(s->params, s->layers[i], i ? "b" : "a"));
        for (int t = 0; t < 4; t++)
            s->tensors[i][t] = matrix(ctx, &rng, TUTTI_F32, STEP_ROWS, WIDTH);
        CHECK_OK(tutti_alloc(ctx, tutti_layer_saved_bytes(s->layers[i], STEP_ROWS), &s->saved[i]));
    }
    CHECK_OK(tutti_params_build(s->params, ctx));
    CHECK_OK(tutti_params_init(s->params, ctx, 7));
}

static void close_step(step *s)
{
    for (int i = 0; i < 2; i++) {
        for (int t = 0; t < 4; t++) CHECK_OK(tutti_free(s->ctx, &s->tensors[i][t].data));
        CHECK_OK(tutti_free(s->ctx, &s->saved[i]));
    }
    tutti_params_destroy(&s->params);
    for (int i = 0; i < 2; i++) tutti_layer_destroy(&s->layers[i]);
}

static void back(const step *s, int i, tutti_grad_sync *sync)
{
    tutti_tensor t[4];
    memcpy(t, s->tensors[i], sizeof t);
    const tutti_linear_call c = {.x = &t[0],
                                 .y = &t[1],
                                 .saved = s->saved[i],
                                 .saved_bytes = tutti_layer_saved_bytes(s->layers[i], STEP_ROWS)};
    CHECK_OK(tutti_linear_forward(s->layers[i], s->ctx, &c));
    tutti_linear_call backward = c;
    backward.dy = &t[2];
    backward.dx = &t[3];
    backward.sync = sync;
    CHECK_OK(tutti_linear_backward(s->layers[i], s->ctx, &backward));
}

static void check_begins(tutti_grad_sync *sync, tutti_layer *layer, bool want, const char *when)
{
    const tutti__ready_sink *sink = (const tutti__ready_sink *)sync;
    CHECK(sink->begins(sink, layer) == want, "%s: an exchange %s", when,
          want ? "does not begin" : "begins");
}

/* The sums of a step, which the caller frees.  named: calls name the exchange; otherwise both
 * layers are declared ready after both, in the other order. */
static unsigned char *sums_of_step(step *s, tutti_comm *comm, size_t range_bytes, bool exclusive,
                                   bool named, size_t *bytes)
{
    const tutti_grad_sync_desc desc = {.size = sizeof desc,
                                       .range_bytes = range_bytes,
                                       .last_range_bytes = range_bytes,
                                       .exclusive = exclusive};
    const bool early = exclusive && tutti_comm_transport(comm) != TUTTI_TRANSPORT_SELF;
    const bool apart = range_bytes == 1;
    tutti_grad_sync *sync = NULL;
    if (!CHECK_OK(tutti_grad_sync_create(s->ctx, comm, s->params, &desc, &sync))) return NULL;
    tutti_context *other_ctx = harness_new_context(tutti_context_device(s->ctx), 1);
    check_begins(sync, s->layers[1], early && apart, "at first");
    back(s, 1, named ? sync : NULL);
    check_begins(sync, s->layers[0], early && (apart || named), "then");
    back(s, 0, named ? sync : NULL);
    if (!named) {
        CHECK_OK(tutti_grad_sync_ready(sync, s->ctx, s->layers[0]));
        CHECK_OK(tutti_grad_sync_ready(sync, s->ctx, s->layers[1]));
    }
    const tutti_param *weight = tutti_layer_param(s->layers[0], 0);
    if (exclusive) {
        CHECK_FAILS(TUTTI_ERR_ARG, "another context",
                    tutti_grad_sync_wait(sync, other_ctx, weight));
        CHECK_FAILS(TUTTI_ERR_ARG, "another context", tutti_grad_sync_finish(sync, other_ctx));
    }
    CHECK_OK(tutti_grad_sync_finish(sync, s->ctx));
    const tutti_param *other = tutti_layer_param(s->layers[1], 0);
    *bytes = 2 * WIDTH * WIDTH * sizeof(float);
    unsigned char *sums = harness_calloc(*bytes, 1);
    CHECK_OK(tutti_copy(s->ctx, sums, weight->grad.data, *bytes / 2));
    CHECK_OK(tutti_copy(s->ctx, sums + *bytes / 2, other->grad.data, *bytes / 2));
    CHECK_OK(tutti_context_synchronize(s->ctx));
    tutti_grad_sync_destroy(&sync);
    tutti_context_destroy(&other_ctx);
    return sums;
}

static void steps(tutti_context *ctx, tutti_comm *comm)
{
    step s;
    open_step(&s, ctx);
    for (int i = 0; i < 2 && !harness_failures(); i++) {
        const size_t range_bytes = i ? 1 : (size_t)1 << 20; /* a range of each gradient, or one */
        size_t bytes = 0;
        unsigned char *early = sums_of_step(&s, comm, range_bytes, true, true, &bytes);
        unsigned char *shared = sums_of_step(&s, comm, range_bytes, false, true, &bytes);
        unsigned char *later = sums_of_step(&s, comm, range_bytes, true, false, &bytes);
        if (early && shared) check_same("an early sum", early, shared, bytes);
        if (early && later) check_same("a later sum", later, early, bytes);
        free(early);
        free(shared);
        free(later);
    }
    close_step(&s);
}

RIG_OVER(steps)

static const rig_test tests[] = {
    {"stages of linear", stages_of_linear, 1, 1, false},
    {"stages of mlp", stages_of_mlp, 1, 1, false},
    {"large stages", large_stages, 1, 1, true},
    {"pairs of norms", pairs_of_norms, 1, 1, false},
    RIG_ROWS("steps", steps, 1, 0),
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "early", tests, HARNESS_COUNT(tests));
}
