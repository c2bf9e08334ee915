/* Embedding, beside a copy of the bytes that it must move: tokens, rows read, y written; backward:
 * tokens, dy read, the whole gradient of the table written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cases.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "pattern.h"

enum { SAMPLED = 3 };

typedef struct embedding {
    bench_machine *machine;
    tutti_dtype dtype, sums;
    int64_t rows, vocab, cols;
    bench_pattern weights, gradients;
    bench_memory memory;
    tutti_layer *layer;
    void *weight, *dweight, *tokens, *y, *dy;
    int32_t *ids;
    double *buffer; /* 2 rows */
} embedding;

static int64_t sampled(int64_t count, int index)
{
    return (count - 1) * index / (SAMPLED - 1);
}

/* About as uneven as text: of 256 tokens the commonest has 16 % of the rows, of 50257 it has 3 %.
 */
static void draw_tokens(embedding *e)
{
    uint64_t state = 1;
    for (int64_t i = 0; i < e->rows; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double u = (double)(state >> 33) / 2147483648.0;
        e->ids[i] = (int32_t)(u * u * u * (double)e->vocab);
    }
}

static int check_forward(embedding *e, double *error)
{
    double *expected = e->buffer, *got = e->buffer + e->cols;
    for (int s = 0; s < SAMPLED; s++) {
        int64_t row = sampled(e->rows, s);
        bench_pattern_read(&e->weights, e->ids[row] * e->cols, e->cols, expected);
        APP_TRY(bench_read(e->machine->ctx, e->y, e->dtype, row * e->cols, e->cols, got));
        *error = fmax(*error, bench_error(got, expected, e->cols, 0));
    }
    return APP_OK;
}

/* The commonest token, and some others. */
static int check_backward(embedding *e, double *error)
{
    double *expected = e->buffer, *got = e->buffer + e->cols;
    for (int s = 0; s < SAMPLED; s++) {
        int32_t token = s == 0 ? 0 : e->ids[sampled(e->rows, s)];
        double size = 0;
        for (int64_t i = 0; i < e->cols; i++) expected[i] = 0;
        for (int64_t row = 0; row < e->rows; row++) {
            if (e->ids[row] != token) continue;
            bench_pattern_read(&e->gradients, row * e->cols, e->cols, got);
            for (int64_t i = 0; i < e->cols; i++) {
                expected[i] += got[i];
                size = fmax(size, fabs(got[i]));
            }
        }
        APP_TRY(bench_read(e->machine->ctx, e->dweight, e->sums, token * e->cols, e->cols, got));
        *error = fmax(*error, bench_error(got, expected, e->cols, size));
    }
    return APP_OK;
}

static int prepare(embedding *e)
{
    tutti_context *ctx = e->machine->ctx;
    tutti_embedding_desc desc = TUTTI_EMBEDDING_DESC_INIT;
    desc.vocab = e->vocab;
    desc.cols = e->cols;
    desc.dtype = e->dtype;
    APP_CHECK(tutti_embedding_create(ctx, &desc, &e->layer));
    APP_CHECK(tutti_layer_plan(e->layer, ctx, e->rows));
    APP_TRY(bench_pattern_make(e->dtype, 1, 0, 1.7, &e->weights));
    APP_TRY(bench_pattern_make(e->dtype, 2, 0, 1.7, &e->gradients));
    int64_t table = e->vocab * e->cols, count = e->rows * e->cols;
    APP_TRY(bench_memory_fill(&e->memory, &e->weights, table, &e->weight));
    APP_TRY(bench_memory_alloc(&e->memory, e->sums, table, &e->dweight));
    APP_TRY(bench_memory_alloc(&e->memory, TUTTI_I32, e->rows, &e->tokens));
    APP_TRY(bench_memory_alloc(&e->memory, e->dtype, count, &e->y));
    APP_TRY(bench_memory_fill(&e->memory, &e->gradients, count, &e->dy));
    tutti_tensor value = tutti_tensor_2d(e->weight, e->dtype, e->vocab, e->cols);
    tutti_tensor grad = tutti_tensor_2d(e->dweight, e->sums, e->vocab, e->cols);
    APP_CHECK(tutti_param_bind(tutti_layer_param(e->layer, 0), &value, &grad));
    e->ids = malloc((size_t)e->rows * sizeof *e->ids);
    e->buffer = malloc(2 * (size_t)e->cols * sizeof *e->buffer);
    if (!e->ids || !e->buffer) return app_fail(APP_FAILED, "no memory for the reference");
    draw_tokens(e);
    APP_CHECK(tutti_copy(ctx, e->tokens, e->ids, (size_t)e->rows * sizeof *e->ids));
    return app_check(tutti_context_synchronize(ctx));
}

static int measure(embedding *e, bench_sink sink, void *user)
{
    tutti_tensor tokens = tutti_tensor_1d(e->tokens, TUTTI_I32, e->rows);
    tutti_tensor y = tutti_tensor_2d(e->y, e->dtype, e->rows, e->cols);
    tutti_tensor dy = tutti_tensor_2d(e->dy, e->dtype, e->rows, e->cols);
    double row_bytes = (double)e->cols * (double)tutti_dtype_size(e->dtype);
    double sum_bytes = (double)e->cols * (double)tutti_dtype_size(e->sums);
    for (int backward = 0; backward < 2; backward++) {
        bench_call call = {e->machine->ctx, e->layer, TUTTI_CALL_INIT, backward};
        call.call.in[0] = &tokens;
        if (backward)
            call.call.upstream[0] = &dy;
        else
            call.call.out[0] = &y;
        bench_result result = {.layer = "embedding",
                               .dtype = e->dtype,
                               .tolerance = backward ? bench_tolerance(e->sums) : 0};
        snprintf(result.pass, sizeof result.pass, backward ? "backward" : "forward");
        snprintf(result.shape, sizeof result.shape, "%lldx%lldx%lld", (long long)e->rows,
                 (long long)e->vocab, (long long)e->cols);
        result.amount = (double)e->rows * (4 + (backward ? 1 : 2) * row_bytes) +
                        (backward ? (double)e->vocab * sum_bytes : 0);
        bench_reference copy = {.bytes = (size_t)result.amount};
        APP_TRY(bench_time(e->machine, bench_run_call, &call, &copy, &result.seconds,
                           &result.reference));
        APP_TRY(bench_time_call(e->machine, bench_run_call, &call, e->rows, &result.seconds,
                                &result.call_seconds));
        APP_CHECK(tutti_context_check(e->machine->ctx));
        APP_TRY(backward ? check_backward(e, &result.error) : check_forward(e, &result.error));
        sink(user, &result);
    }
    return APP_OK;
}

int bench_embedding(bench_machine *machine, tutti_dtype dtype, int64_t rows, int64_t vocab,
                    int64_t cols, bench_sink sink, void *user)
{
    embedding e = {.machine = machine,
                   .dtype = dtype,
                   .sums = dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32,
                   .rows = rows,
                   .vocab = vocab,
                   .cols = cols,
                   .memory = {.ctx = machine->ctx}};
    int code = prepare(&e);
    if (code == APP_OK) code = measure(&e, sink, user);
    bench_memory_free(&e.memory);
    tutti_layer_destroy(&e.layer);
    bench_pattern_free(&e.weights);
    bench_pattern_free(&e.gradients);
    free(e.ids);
    free(e.buffer);
    return code;
}
