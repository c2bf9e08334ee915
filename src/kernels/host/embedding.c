/* Embedding: copies rows from a table and sums their gradients; include/tutti/embedding.h has the
 * mathematics.
 *
 * Backward sums the rows of a token in blocks and merges these like the digits of a binary counter;
 * each row's number among its token's rows is counted first.  The work is divided into pieces of
 * the table, by columns and by tokens.  A piece reads all tokens and adds its own rows in their
 * order, so no two threads write one element and results do not depend on the pieces. */
#include <string.h>

#include "kernels/host/host.h"
#include "ops/embedding.h"

/* A piece's columns: enough that reading the tokens costs little next to adding. */
#define SLAB 256
/* With more bands of tokens than this, pieces would mostly read tokens. */
#define MOST_BANDS 16
/* Rows of a token that are added one after the other. */
#define BLOCK 64

typedef struct embedding_task {
    const tutti__embedding_args *args;
    int32_t *places; /* [rows]: each row's number among its token's rows, from 0 */
    int32_t *counts; /* [vocab]: rows of each token */
    /* [vocab]: where a token's sums begin in `sums`: with accumulate first the current block
     * (otherwise it is in dE), then those of 1, 2, 4, … blocks that wait for an equal one.  Tokens
     * that need no sums have none. */
    int32_t *begins;
    char *sums; /* rows of REALs */
    int64_t slabs;
    uint32_t bands; /* a power of two: a token's band is its low bits */
} embedding_task;

static inline bool in_table(const tutti__embedding_args *args, int32_t token)
{
    return token >= 0 && token < args->vocab;
}

static void report_bad_token(tutti_context *ctx, const tutti__embedding_args *args)
{
    int64_t row = 0;
    while (row < args->rows && in_table(args, args->tokens[row])) row++;
    if (row < args->rows) tutti__host_find(ctx, args->finding, args->tokens[row], row, args->vocab);
}

static void copy_rows(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const tutti__embedding_args *args = data;
    const size_t bytes = (size_t)args->cols * tutti_dtype_size(args->dtype);
    for (int64_t row = begin; row < end; row++) {
        const int32_t token = args->tokens[row];
        void *y = tutti__row(&args->y, row);
        if (in_table(args, token))
            memcpy(y, tutti__at(args->weight, args->dtype, token * args->cols), bytes);
        else
            memset(y, 0xff, bytes); /* a NaN in every type */
    }
}

static tutti_status forward(const tutti__job *job, const void *untyped)
{
    const tutti__embedding_args *args = untyped;
    report_bad_token(job->ctx, args);
    tutti__parallel(job->ctx, args->rows,
                    20 + 0.1 * (double)args->cols * (double)tutti_dtype_size(args->dtype),
                    copy_rows, (void *)args);
    return TUTTI_OK;
}

#define BODY "kernels/host/embedding_rows.h"
#include "kernels/host/each_real.h"

static void zero_rows(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const tutti__embedding_args *args = data;
    const tutti_dtype sums = tutti__accumulate_dtype(args->dtype, args->dtype);
    memset(tutti__at(args->dweight, sums, begin * args->cols), 0,
           (size_t)((end - begin) * args->cols) * tutti_dtype_size(sums));
}

/* A row of sums for every second row of dy and for every block: a token that needs sums has at
 * least two rows, and at most one waiting sum per block before its last. */
static size_t lay_out_scratch(const tutti__embedding_args *args, char *data, embedding_task *task)
{
    const size_t size = tutti_dtype_size(tutti__accumulate_dtype(args->dtype, args->dtype));
    const size_t place = tutti__room(args->rows, sizeof(int32_t));
    const size_t table = tutti__room(args->vocab, sizeof(int32_t));
    const size_t sums = tutti__room((args->rows / 2 + args->rows / BLOCK) * args->cols, size);
    *task = (embedding_task){.args = args};
    if (data) {
        task->places = (int32_t *)data;
        task->counts = (int32_t *)(data + place);
        task->begins = (int32_t *)(data + place + table);
        task->sums = data + place + 2 * table;
    }
    return place + 2 * table + sums;
}

static tutti_status plan(tutti_context *ctx, const void *args, bool backward, tutti__plan *plan)
{
    (void)ctx;
    embedding_task task;
    if (backward) plan->scratch = lay_out_scratch(args, NULL, &task);
    return TUTTI_OK;
}

/* Counts the rows of each token and lays out their sums. */
static void lay_out(const embedding_task *task)
{
    const tutti__embedding_args *args = task->args;
    const int32_t first =
        args->accumulate ? 1 : BLOCK; /* a token with a row of this number needs sums */
    int32_t *needy = (int32_t *)task->sums, count = 0, next = 0; /* sums is unused until now */
    memset(task->counts, 0, (size_t)args->vocab * sizeof *task->counts);
    for (int64_t row = 0; row < args->rows; row++) {
        const int32_t token = args->tokens[row];
        if (!in_table(args, token)) continue;
        const int32_t place = task->counts[token]++;
        task->places[row] = place;
        if (place == first) needy[count++] = token;
    }
    for (int32_t i = 0; i < count; i++) {
        task->begins[needy[i]] = next;
        next += args->accumulate;
        for (int32_t blocks = (task->counts[needy[i]] - 1) / BLOCK; blocks > 0; blocks /= 2) next++;
    }
}

static tutti_status backward(const tutti__job *job, const void *untyped)
{
    tutti_context *ctx = job->ctx;
    const tutti__embedding_args *args = untyped;
    const bool wide = args->dtype == TUTTI_F64;
    report_bad_token(ctx, args);
    if (!args->accumulate)
        tutti__parallel(ctx, args->vocab, (wide ? 0.8 : 0.4) * (double)args->cols, zero_rows,
                        (void *)args);
    embedding_task task;
    lay_out_scratch(args, job->scratch, &task);
    lay_out(&task);
    task.slabs = (args->cols + SLAB - 1) / SLAB;
    task.bands = 1;
    const int64_t pieces = ctx->threads > 1 ? 4 * (int64_t)ctx->threads : 1;
    while (task.slabs * task.bands < pieces && task.bands < MOST_BANDS) task.bands *= 2;
    const double width = (double)(args->cols < SLAB ? args->cols : SLAB);
    const double cost = 1 + (10 + (wide ? 0.6 : 0.3) * width) / task.bands;
    tutti__parallel(ctx, task.slabs * task.bands, (double)args->rows * cost,
                    wide ? add_pieces_f64 : add_pieces_f32, &task);
    return TUTTI_OK;
}

const tutti__op tutti__host_embedding = {plan, forward, backward};
