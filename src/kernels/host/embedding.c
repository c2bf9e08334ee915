/* Embedding: rows copied from a table, and their gradients added up in it; include/tutti/embedding.h has the
 * mathematics.
 *
 * Backward sorts the rows by token, stably.  The sorted list is cut into pieces, by columns and by position; a piece adds
 * up the runs of one token that begin in it, each in an order that its length decides, so no two threads write one place
 * and the cut does not show. */
#include <string.h>

#include "kernels/host/host.h"

/* A piece's columns: what a run's partial sums take stays in cache. */
#define SLAB 256
/* Rows of a run that are added one after the other; these blocks are merged pairwise. */
#define BLOCK 64
/* Partial sums that wait for their like: of 1, 2, 4, … up to 2^31 / BLOCK blocks, and one under way. */
#define WAITING 27
/* Bits of a token that one pass of the sort looks at. */
#define DIGIT 11

typedef struct embedding_task {
    const tutti__embedding_args *args;
    const int32_t *rows; /* [count], those with a token in the table, by token and in their order */
    int64_t count, slabs, bands;
} embedding_task;

static inline bool in_table(const tutti__embedding_args *args, int32_t token)
{
    return token >= 0 && token < args->vocab;
}

static void report_bad_token(tutti_context *ctx, const tutti__embedding_args *args)
{
    int64_t row = 0;
    while (row < args->rows && in_table(args, args->tokens[row])) row++;
    if (row < args->rows && ctx->finding->code == TUTTI__FINDING_NONE)
        *ctx->finding = (tutti__finding){
            .code = TUTTI__FINDING_TOKEN,
            .value = args->tokens[row],
            .row = row,
            .limit = args->vocab,
        };
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

tutti_status tutti__host_embedding_forward(tutti_context *ctx, const tutti__embedding_args *args)
{
    report_bad_token(ctx, args);
    tutti__parallel(ctx, args->rows,
                    20 + 0.1 * (double)args->cols * (double)tutti_dtype_size(args->dtype),
                    copy_rows, (void *)args);
    return TUTTI_OK;
}

#define REAL float
#define OF(name) name##_f32
#include "kernels/host/embedding_rows.h"
#define REAL double
#define OF(name) name##_f64
#include "kernels/host/embedding_rows.h"

static void zero_rows(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const tutti__embedding_args *args = data;
    const tutti_dtype sums = tutti__accumulate_dtype(args->dtype, args->dtype);
    memset(tutti__at(args->dweight, sums, begin * args->cols), 0,
           (size_t)((end - begin) * args->cols) * tutti_dtype_size(sums));
}

static tutti_status list_room(tutti_context *ctx, const tutti__embedding_args *args,
                              int32_t *lists[2])
{
    const size_t bytes = tutti__room(args->rows, sizeof(int32_t));
    TUTTI_TRY(tutti__scratch(ctx, 2 * bytes, (void **)&lists[0]));
    lists[1] = (int32_t *)((char *)lists[0] + bytes);
    return TUTTI_OK;
}

tutti_status tutti__host_embedding_plan(tutti_context *ctx, const tutti__embedding_args *args)
{
    int32_t *lists[2];
    return list_room(ctx, args, lists);
}

/* One stable pass of a radix sort, by DIGIT bits of the tokens. */
static void sort_pass(const int32_t *tokens, const int32_t *from, int32_t *to, int64_t count,
                      int shift)
{
    const uint32_t mask = (1u << DIGIT) - 1;
    int32_t next[1 << DIGIT] = {0};
    for (int64_t i = 0; i < count; i++) next[(uint32_t)tokens[from[i]] >> shift & mask]++;
    for (int32_t digit = 0, begin = 0; digit < 1 << DIGIT; digit++) {
        const int32_t here = next[digit];
        next[digit] = begin;
        begin += here;
    }
    for (int64_t i = 0; i < count; i++)
        to[next[(uint32_t)tokens[from[i]] >> shift & mask]++] = from[i];
}

/* Makes the task's list of rows, in either of the lists. */
static void sort_rows(embedding_task *task, int32_t *lists[2])
{
    const tutti__embedding_args *args = task->args;
    int32_t *rows = lists[0], *other = lists[1];
    for (int64_t row = 0; row < args->rows; row++)
        if (in_table(args, args->tokens[row])) rows[task->count++] = (int32_t)row;
    for (int shift = 0; (args->vocab - 1) >> shift > 0; shift += DIGIT) {
        sort_pass(args->tokens, rows, other, task->count, shift);
        int32_t *const sorted = other;
        other = rows;
        rows = sorted;
    }
    task->rows = rows;
}

tutti_status tutti__host_embedding_backward(tutti_context *ctx, const tutti__embedding_args *args)
{
    const bool wide = args->dtype == TUTTI_F64;
    report_bad_token(ctx, args);
    if (!args->accumulate)
        tutti__parallel(ctx, args->vocab, (wide ? 0.8 : 0.4) * (double)args->cols, zero_rows,
                        (void *)args);
    embedding_task task = {.args = args, .slabs = (args->cols + SLAB - 1) / SLAB};
    int32_t *lists[2];
    TUTTI_TRY(list_room(ctx, args, lists));
    sort_rows(&task, lists);
    const int64_t pieces = ctx->threads > 1 ? 8 * (int64_t)ctx->threads : 1;
    task.bands = (pieces + task.slabs - 1) / task.slabs;
    const double width = (double)(args->cols < SLAB ? args->cols : SLAB);
    const double cost = 10 + (wide ? 0.6 : 0.3) * width;
    tutti__parallel(ctx, task.slabs * task.bands, (double)task.count * cost / (double)task.bands,
                    wide ? add_pieces_f64 : add_pieces_f32, &task);
    return TUTTI_OK;
}
