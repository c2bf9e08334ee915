/* Tests of contexts, the step block, the log and the table of layers. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

static void test_memory(void)
{
    tutti_context *ctx = harness_context();
    static const size_t sizes[] = {1, 255, 256, 257, 1000003};
    void *data[HARNESS_COUNT(sizes)];
    for (int i = 0; i < HARNESS_COUNT(sizes); i++) {
        CHECK_OK(tutti_alloc(ctx, sizes[i], &data[i]));
        CHECK((uintptr_t)data[i] % 256 == 0, "%zu bytes lie at %p", sizes[i], data[i]);
        CHECK_OK(tutti_zero(ctx, data[i], sizes[i]));
    }
    unsigned char from[1000], to[1000];
    for (int i = 0; i < 1000; i++) from[i] = (unsigned char)(i * 7);
    /* host to device, within the device, device to host, at odd places */
    CHECK_OK(tutti_copy(ctx, (char *)data[4] + 3, from, 1000));
    CHECK_OK(tutti_copy(ctx, (char *)data[4] + 5001, (char *)data[4] + 3, 1000));
    CHECK_OK(tutti_zero(ctx, (char *)data[4] + 5001 + 10, 5));
    CHECK_OK(tutti_copy(ctx, to, (char *)data[4] + 5001, 1000));
    CHECK_OK(tutti_context_synchronize(ctx));
    for (int i = 0; i < 1000; i++)
        CHECK(to[i] == (i >= 10 && i < 15 ? 0 : from[i]), "byte %d is %d", i, to[i]);
    /* host to host */
    memset(to, 0, sizeof to);
    CHECK_OK(tutti_copy(ctx, to, from, 1000));
    CHECK_OK(tutti_context_synchronize(ctx));
    CHECK(memcmp(from, to, 1000) == 0, "a copy on the host is wrong");
    for (int i = 0; i < HARNESS_COUNT(sizes); i++) CHECK_OK(tutti_free(ctx, &data[i]));
}

/* Pageable memory may be used again when a copy from it returns, and page-locked memory once the
 * stream is idle; copies keep the stream's order, also behind work that takes long, and in sizes
 * around those that a context stages. */
static void test_copies_in_order(void)
{
    enum { COPIES = 12, LONG = 256, SMALL = 6 };
    static const size_t sizes[] = {1, 65536, 65537, 1 << 20, 4 << 20, (4 << 20) + 1, 1000, 3 << 20};
    const size_t most = (4 << 20) + 1, busy = (size_t)64 << 20;
    tutti_context *ctx = harness_new_context(0, 1);
    const bool gpu = harness_backend() == TUTTI_BACKEND_CUDA;
    unsigned char *from = harness_calloc(most, 1), *got = harness_calloc(most, 1);
    void *work = NULL, *locked = NULL, *small = NULL, *to[COPIES] = {NULL};
    CHECK_OK(tutti_alloc(ctx, busy, &work));
    CHECK_OK(tutti_alloc_host(ctx, most, &locked));
    CHECK_OK(tutti_alloc(ctx, SMALL * 1000, &small));
    for (int i = 0; i < COPIES; i++) CHECK_OK(tutti_alloc(ctx, most, &to[i]));
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; gpu && i < LONG; i++) CHECK_OK(tutti_zero(ctx, work, busy));
        for (int i = 0; i < SMALL; i++) { /* more than are staged at a time, behind the work */
            memset(from, 0x80 + i, 1000);
            CHECK_OK(tutti_copy(ctx, (char *)small + (size_t)i * 1000, from, 1000));
        }
        for (int i = 0; i < COPIES; i++) {
            const size_t bytes = sizes[(i + turn) % HARNESS_COUNT(sizes)];
            memset(from, 16 * turn + i + 1, bytes);
            CHECK_OK(tutti_zero(ctx, to[i], bytes));
            CHECK_OK(tutti_copy(ctx, to[i], from, bytes));
            memset(from, 0xee, bytes);
        }
        for (int i = 0; i < COPIES; i++) {
            const size_t bytes = sizes[(i + turn) % HARNESS_COUNT(sizes)];
            CHECK_OK(tutti_copy(ctx, i % 2 ? locked : got, to[i], bytes));
            CHECK_OK(tutti_context_synchronize(ctx));
            const unsigned char *read = i % 2 ? locked : got;
            size_t wrong = 0;
            for (size_t j = 0; j < bytes; j++) wrong += read[j] != 16 * turn + i + 1;
            CHECK(wrong == 0, "copy %d of %zu bytes: %zu are wrong", i, bytes, wrong);
        }
        CHECK_OK(tutti_copy(ctx, got, small, SMALL * 1000));
        CHECK_OK(tutti_context_synchronize(ctx));
        for (int i = 0; i < SMALL * 1000; i++)
            CHECK(got[i] == 0x80 + i / 1000, "byte %d of the small copies is %d", i, got[i]);
        CHECK_OK(tutti_context_trim(ctx)); /* what was staged, too */
    }
    memset(locked, 0x5a, most);
    CHECK_OK(tutti_copy(ctx, to[0], locked, most));
    CHECK_OK(tutti_copy(ctx, got, to[0], most));
    CHECK_OK(tutti_context_synchronize(ctx));
    CHECK(memcmp(got, locked, most) == 0, "a copy from page-locked memory is wrong");
    for (int i = 0; i < COPIES; i++) CHECK_OK(tutti_free(ctx, &to[i]));
    CHECK_OK(tutti_free(ctx, &small));
    CHECK_OK(tutti_free(ctx, &work));
    CHECK_OK(tutti_free_host(ctx, &locked));
    free(from);
    free(got);
    tutti_context_destroy(&ctx);
}

typedef struct small_copy {
    void *to;
    unsigned char from[1000];
} small_copy;

static void copy_small(tutti_context *ctx, void *data)
{
    small_copy *copy = data;
    CHECK_OK(tutti_copy(ctx, copy->to, copy->from, sizeof copy->from));
}

/* A small copy from pageable memory returns while the stream is still at work. */
static void test_copies_wait_for_nothing(void)
{
    if (harness_backend() != TUTTI_BACKEND_CUDA || harness_quick()) {
        harness_skip("on the host all has happened when a call returns; a sanitizer may wait");
        return;
    }
    tutti_context *ctx = harness_new_context(0, 1);
    small_copy copy = {.to = NULL};
    CHECK_OK(tutti_alloc(ctx, sizeof copy.from, &copy.to));
    copy_small(ctx, &copy); /* what is staged has memory now */
    CHECK(!harness_waits(ctx, copy_small, &copy), "the copy waited for the stream");
    CHECK_OK(tutti_free(ctx, &copy.to));
    tutti_context_destroy(&ctx);
}

static void test_description(void)
{
    tutti_context *ctx = harness_context();
    CHECK(tutti_context_backend(ctx) == harness_backend(), "another backend");
    CHECK(tutti_context_device(ctx) == 0, "another device");
    int count = 0;
    CHECK_OK(tutti_device_count(TUTTI_BACKEND_HOST, &count));
    CHECK(count == 1, "the host has %d devices", count);
    tutti_context *any = NULL;
    CHECK_OK(tutti_context_create(NULL, &any));
    tutti_backend chosen = tutti_context_backend(any);
    tutti_status status = tutti_device_count(TUTTI_BACKEND_CUDA, &count);
    CHECK(chosen == (status == TUTTI_OK && count > 0 ? TUTTI_BACKEND_CUDA : TUTTI_BACKEND_HOST),
          "auto took backend %d", (int)chosen);
    tutti_context_destroy(&any);
}

/* A softmax layer's work on one context. */
typedef struct work {
    tutti_layer *layer;
    tutti_context *ctx;
    harness_buffer x, y;
    int repeats;
    tutti_status status;
} work;

enum { ROWS = 64, COLS = 500 };

static void *run_work(void *arg)
{
    work *w = arg;
    tutti_tensor x = harness_buffer_tensor(&w->x), y = harness_buffer_tensor(&w->y);
    for (int i = 0; i < w->repeats && w->status == TUTTI_OK; i++)
        w->status =
            tutti_softmax_forward(w->layer, w->ctx, &(tutti_softmax_call){.x = &x, .y = &y});
    if (w->status == TUTTI_OK) w->status = tutti_context_synchronize(w->ctx);
    return NULL;
}

/* Two contexts, each with its own stream and thread, use one layer concurrently. */
static void test_two_contexts(void)
{
    tutti_softmax_desc desc = TUTTI_SOFTMAX_DESC_INIT;
    desc.cols = COLS;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_softmax_create(harness_context(), &desc, &layer));
    work works[2];
    double *values = harness_calloc(ROWS * COLS, sizeof *values);
    for (int i = 0; i < 2; i++) {
        harness_rng rng = {(uint64_t)i};
        works[i] = (work){.layer = layer, .ctx = harness_new_context(0, 1 + i), .repeats = 20};
        works[i].x = harness_buffer_make(works[i].ctx, TUTTI_F32, ROWS, COLS, 0, 0);
        works[i].y = harness_buffer_make(works[i].ctx, TUTTI_F32, ROWS, COLS, 0, 0);
        harness_fill(&rng, values, ROWS * COLS, TUTTI_F32, 0, 1);
        harness_buffer_put(works[i].ctx, &works[i].x, values);
    }
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run_work, &works[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(works[i].status == TUTTI_OK, "context %d: %s", i,
              tutti_status_string(works[i].status));
        /* the same as alone */
        float *together = harness_calloc(ROWS * COLS, sizeof *together);
        float *alone = harness_calloc(ROWS * COLS, sizeof *alone);
        harness_buffer_get_raw(works[i].ctx, &works[i].y, together);
        harness_buffer_poison(works[i].ctx, &works[i].y);
        run_work(&works[i]);
        harness_buffer_get_raw(works[i].ctx, &works[i].y, alone);
        CHECK(memcmp(together, alone, ROWS * COLS * sizeof *alone) == 0,
              "context %d has other bits beside the other", i);
        free(together);
        free(alone);
    }
    free(values);
    for (int i = 0; i < 2; i++) {
        harness_buffer_free(works[i].ctx, &works[i].x);
        harness_buffer_free(works[i].ctx, &works[i].y);
        tutti_context_destroy(&works[i].ctx);
    }
    tutti_layer_destroy(&layer);
}

/* An error found in data belongs to the context of the call. */
/* A backward of two leaves, whose gradient is a sum of both; it needs several threads. */
static void run_leaves(tutti_context *ctx, tutti_layer *layer, float *memory)
{
    enum { IN = 128, OUT = 256 };
    tutti_tensor x = tutti_tensor_2d(memory, TUTTI_F32, 2 * ROWS, IN);
    tutti_tensor dy = tutti_tensor_2d(memory, TUTTI_F32, 2 * ROWS, OUT);
    tutti_tensor value = tutti_tensor_2d(memory, TUTTI_F32, OUT, IN), grad = value;
    grad.data = memory + OUT * IN;
    CHECK_OK(tutti_param_bind(tutti_layer_param(layer, 0), &value, &grad));
    const int64_t leaf_rows[] = {0, ROWS};
    const tutti_linear_call call = {.x = &x, .dy = &dy, .leaves = 2, .leaf_rows = leaf_rows};
    CHECK_OK(tutti_linear_backward(layer, ctx, &call));
}

/* A child process, which OpenMP's threads have not followed, computes the same. */
static void test_fork(void)
{
    enum { COUNT = 2 * 128 * 256 };
    if (harness_backend() != TUTTI_BACKEND_HOST) {
        harness_skip("a GPU's context stays behind");
        return;
    }
    tutti_context *ctx = harness_new_context(0, 4);
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_layer_create_by_name(ctx, "linear", "in=128,out=256,no_bias=1", &layer));
    float *here = harness_calloc(COUNT, sizeof *here), *there = harness_calloc(COUNT, sizeof *here);
    for (int i = 0; i < COUNT / 2; i++) here[i] = there[i] = (float)(i % 101) / 64;
    run_leaves(ctx, layer, here);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        run_leaves(ctx, layer, there);
        _exit(memcmp(here, there, COUNT * sizeof *here) == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "there is no child");
    CHECK(!WIFSIGNALED(status), "signal %d has ended the child", WTERMSIG(status));
    CHECK(status == 0, "the child has other bits");
    memset(there + COUNT / 2, 0, COUNT / 2 * sizeof *there);
    run_leaves(ctx, layer, there); /* and here all threads go on */
    CHECK(memcmp(here, there, COUNT * sizeof *here) == 0, "other bits after a fork");
    free(here);
    free(there);
    tutti_layer_destroy(&layer);
    tutti_context_destroy(&ctx);
}

static void test_findings(void)
{
    tutti_context *a = harness_context(), *b = harness_new_context(0, 1);
    tutti_cross_entropy_desc desc = TUTTI_CROSS_ENTROPY_DESC_INIT;
    desc.cols = 4;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_cross_entropy_create(a, &desc, &layer));
    harness_buffer logits = harness_buffer_make(a, TUTTI_F32, 2, 4, 0, 0);
    harness_buffer labels = harness_buffer_make(a, TUTTI_I32, 1, 2, 0, 0);
    harness_buffer loss = harness_buffer_make(a, TUTTI_F32, 1, 2, 0, 0);
    harness_buffer_put(a, &logits, (double[]){0, 1, 2, 3, 0, 0, 0, 0});
    harness_buffer_put(a, &labels, (double[]){1, 9});
    CHECK_OK(tutti_context_synchronize(a));
    tutti_tensor x = harness_buffer_tensor(&logits);
    tutti_tensor l = tutti_tensor_1d(labels.data, TUTTI_I32, 2);
    tutti_tensor out = tutti_tensor_1d(loss.data, TUTTI_F32, 2);
    const tutti_cross_entropy_call call = {.logits = &x, .labels = &l, .loss = &out};
    CHECK_OK(tutti_cross_entropy_forward(layer, b, &call));
    CHECK_OK(tutti_context_check(a));
    CHECK_OK(tutti_context_synchronize(b)); /* does not report it */
    CHECK_FAILS(TUTTI_ERR_DATA, "row 1", tutti_context_check(b));
    CHECK_OK(tutti_context_check(b));
    harness_buffer_free(a, &logits);
    harness_buffer_free(a, &labels);
    harness_buffer_free(a, &loss);
    tutti_context_destroy(&b);
    tutti_layer_destroy(&layer);
}

/* Layers and stores outlive the context that made them. */
static void test_lifetimes(void)
{
    tutti_context *first = harness_new_context(0, 1), *second = harness_new_context(0, 1);
    tutti_rmsnorm_desc desc = TUTTI_RMSNORM_DESC_INIT;
    desc.cols = 8;
    tutti_layer *layer = NULL;
    tutti_params *params = NULL;
    tutti_step_block *step = NULL;
    tutti_adamw *adamw = NULL;
    CHECK_OK(tutti_rmsnorm_create(first, &desc, &layer));
    CHECK_OK(tutti_params_create(first, NULL, &params));
    CHECK_OK(tutti_params_add(params, layer, "norm"));
    CHECK_OK(tutti_params_build(params, first));
    CHECK_OK(tutti_params_init(params, first, 1));
    CHECK_OK(tutti_adamw_create(first, params, NULL, &adamw));
    CHECK_OK(tutti_step_block_create(first, &step));
    CHECK_OK(tutti_step_block_set(step, first, &(tutti_step_values){.step = 1, .loss_weight = 1}));
    tutti_context_destroy(&first);

    harness_buffer x = harness_buffer_make(second, TUTTI_F32, 2, 8, 0, 0);
    harness_buffer y = harness_buffer_make(second, TUTTI_F32, 2, 8, 0, 0);
    double values[16];
    for (int i = 0; i < 16; i++) values[i] = i & 1 ? 2 : -2;
    harness_buffer_put(second, &x, values);
    tutti_tensor in = harness_buffer_tensor(&x), out = harness_buffer_tensor(&y);
    CHECK_OK(tutti_rmsnorm_forward(layer, second, &(tutti_rmsnorm_call){.x = &in, .y = &out}));
    harness_buffer_get(second, &y, values);
    CHECK(fabs(values[1] - 1) < 1e-6 && fabs(values[0] + 1) < 1e-6, "y is %g, %g", values[0],
          values[1]);
    CHECK_OK(tutti_params_zero_grad(params, second));
    CHECK_OK(tutti_adamw_update(adamw, second, step));
    CHECK_OK(tutti_context_synchronize(second));
    tutti_adamw_destroy(&adamw);
    tutti_params_destroy(&params);
    tutti_layer_destroy(&layer);
    harness_buffer_free(second, &x);
    harness_buffer_free(second, &y);
    tutti_context_destroy(&second);
    tutti_step_block_destroy(&step); /* after every context */
}

/* The step block is written in stream order: each call sees the values that were set before it. */
static void test_step(void)
{
    tutti_context *ctx = harness_context();
    tutti_cross_entropy_desc desc = TUTTI_CROSS_ENTROPY_DESC_INIT;
    desc.cols = 2;
    tutti_layer *layer = NULL;
    tutti_step_block *step = NULL;
    CHECK_OK(tutti_cross_entropy_create(ctx, &desc, &layer));
    CHECK_OK(tutti_step_block_create(ctx, &step));
    harness_buffer logits = harness_buffer_make(ctx, TUTTI_F32, 1, 2, 0, 0);
    harness_buffer labels = harness_buffer_make(ctx, TUTTI_I32, 1, 1, 0, 0);
    harness_buffer_put(ctx, &logits, (double[]){0, 0});
    harness_buffer_put(ctx, &labels, (double[]){0});
    tutti_tensor x = harness_buffer_tensor(&logits);
    tutti_tensor l = tutti_tensor_1d(labels.data, TUTTI_I32, 1);
    enum { TIMES = 50 };
    harness_buffer dlogits = harness_buffer_make(ctx, TUTTI_F32, TIMES, 2, 0, 0);
    for (int i = 0; i < TIMES; i++) {
        tutti_step_values values = {.step = 1, .loss_weight = 1};
        values.loss_weight = i + 1;
        values.loss_scale = i == 0 ? 0 : i & 1 ? 2 : 0.5; /* 0 is 1 */
        tutti_tensor out = tutti_tensor_2d((float *)dlogits.data + 2 * i, TUTTI_F32, 1, 2);
        CHECK_OK(tutti_step_block_set(step, ctx, &values));
        const tutti_cross_entropy_call call = {
            .logits = &x, .labels = &l, .dlogits = &out, .step = step};
        CHECK_OK(tutti_cross_entropy_forward(layer, ctx, &call));
    }
    double got[2 * TIMES];
    harness_buffer_get(ctx, &dlogits, got);
    for (int i = 0; i < TIMES; i++) {
        double want = i == 0 ? 0.5 : 0.5 * (i + 1) * (i & 1 ? 2 : 0.5);
        CHECK(fabs(got[2 * i + 1] - want) <= 1e-6 * want, "call %d had factor %g, want %g", i,
              2 * got[2 * i + 1], 2 * want);
    }
    harness_buffer_free(ctx, &logits);
    harness_buffer_free(ctx, &labels);
    harness_buffer_free(ctx, &dlogits);
    tutti_step_block_destroy(&step);
    tutti_layer_destroy(&layer);
}

/* Messages belong to the thread. */
static void *fail_elsewhere(void *arg)
{
    (void)arg;
    tutti_dtype dtype;
    (void)tutti_dtype_parse("of another thread", &dtype);
    return NULL;
}

static void test_messages(void)
{
    tutti_dtype dtype;
    CHECK_FAILS(TUTTI_ERR_ARG, "mine", tutti_dtype_parse("mine", &dtype));
    pthread_t thread;
    pthread_create(&thread, NULL, fail_elsewhere, NULL);
    pthread_join(thread, NULL);
    CHECK(strstr(tutti_last_error(), "mine"), "another thread wrote '%s' here", tutti_last_error());
    /* a message longer than any buffer is truncated */
    char name[5000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK_FAILS(TUTTI_ERR_ARG, "xxx", tutti_dtype_parse(name, &dtype));
    static const tutti_status all[] = {
#define TUTTI_X(name, text) name,
        TUTTI_STATUS_LIST(TUTTI_X)
#undef TUTTI_X
    };
    for (int i = 0; i < HARNESS_COUNT(all); i++)
        CHECK(strlen(tutti_status_string(all[i])) > 3 &&
                  strcmp(tutti_status_string(all[i]), "unknown status") != 0,
              "status %d is '%s'", i, tutti_status_string(all[i]));
}

typedef struct log_record {
    int lines;
    tutti_log_level least;
} log_record;

static void record_line(void *user, tutti_log_level level, const char *message)
{
    log_record *record = user;
    record->lines++;
    CHECK(level >= record->least, "a line of level %d came", (int)level);
    CHECK(message && message[0] && !strchr(message, '\n'), "a line is empty or several");
}

/* Log messages reach the callback at the chosen level. */
static void test_log(void)
{
    for (int level = TUTTI_LOG_DEBUG; level <= TUTTI_LOG_WARN; level++) {
        log_record record = {0, (tutti_log_level)level};
        tutti_set_log(record_line, &record, (tutti_log_level)level);
        tutti_context *ctx = harness_new_context(0, 2);
        tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
        desc.transport = TUTTI_TRANSPORT_SELF;
        tutti_comm *comm = NULL;
        CHECK_OK(tutti_comm_create(ctx, &desc, &comm));
        tutti_comm_destroy(&comm);
        tutti_context_destroy(&ctx);
        tutti_set_log(NULL, NULL, TUTTI_LOG_WARN);
    }
}

/* Layers by name: the table of options is correct. */
static void test_layer_types(void)
{
    static const struct {
        const char *name, *options;
        int params;
    } known[] = {
        {"layernorm", "cols=8", 2},
        {"layernorm", "cols=8,no_beta=1,eps=1e-3,x_dtype=bf16,param_dtype=f32,y_dtype=f32", 1},
        {"rmsnorm", "cols=8,zero_centered=1", 1},
        {"rmsnorm", "cols=8,zero_centered=True,no_gamma=False", 1},
        {"rmsnorm", "cols=8,no_gamma=true,zero_centered=false", 0},
        {"rmsnorm", "no_gamma=1, cols=8,  eps=1e-6", 0},
        {"softmax", "cols=8,log=1,scale=0.5,causal_period=4,dtype=f16", 0},
        {"linear", "in=8,out=4,activation=gelu_erf", 2},
        {"linear", "in=8,out=4,no_bias=1,activation=leaky_relu,slope=0.2,dtype=f64", 1},
        {"cross_entropy", "cols=8,ignore_label=-100", 0}};
    tutti_context *ctx = harness_context();
    for (int i = 0; i < HARNESS_COUNT(known); i++) {
        tutti_layer *layer = NULL;
        harness_where("%s %s", known[i].name, known[i].options);
        if (!CHECK_OK(tutti_layer_create_by_name(ctx, known[i].name, known[i].options, &layer)))
            continue;
        CHECK(strcmp(tutti_layer_type_of(layer)->name, known[i].name) == 0, "it is a %s",
              tutti_layer_type_of(layer)->name);
        CHECK(tutti_layer_param_count(layer) == known[i].params, "it has %d parameters",
              tutti_layer_param_count(layer));
        tutti_layer_destroy(&layer);
    }
    int kinds = 0;
    for (const tutti_layer_type *type; (type = tutti_layer_type_get(kinds)); kinds++) {
        /* every default is accepted when written out; required options are set to 8 */
        char options[512] = "";
        for (int o = 0; o < type->option_count; o++) {
            const tutti_layer_option *option = &type->options[o];
            size_t used = strlen(options);
            snprintf(options + used, sizeof options - used, "%s%s=%s", used ? "," : "",
                     option->name, option->default_value ? option->default_value : "8");
        }
        harness_where("%s %s", type->name, options);
        tutti_layer *layer = NULL;
        CHECK_OK(tutti_layer_create_by_name(ctx, type->name, options, &layer));
        CHECK(type->slot_count >= 2 && type->slots[0].name, "slots have no names");
        CHECK(tutti_layer_type_of(layer) == type, "another kind");
        tutti_layer_destroy(&layer);
        for (int other = 0; other < kinds; other++)
            CHECK(strcmp(tutti_layer_type_get(other)->name, type->name) != 0, "the name is taken");
    }
    CHECK(kinds >= 5, "%d kinds of layer", kinds);
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"memory", test_memory},
        {"copies in order", test_copies_in_order},
        {"copies wait for nothing", test_copies_wait_for_nothing},
        {"backend and device", test_description},
        {"two contexts", test_two_contexts},
        {"fork", test_fork},
        {"findings", test_findings},
        {"lifetimes", test_lifetimes},
        {"step block", test_step},
        {"messages", test_messages},
        {"log", test_log},
        {"kinds of layer", test_layer_types},
    };
    return harness_main(argc, argv, "context", tests, HARNESS_COUNT(tests));
}
