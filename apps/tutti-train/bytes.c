/* The task bytes: predict the next byte of a corpus from the bytes before it.
 *
 * The last tenth of the bytes is held out.  A sample is a window of `context` bytes and the byte
 * after them, and never crosses the border: training sees no held-out byte, neither as context nor
 * as target, and evaluation no training byte. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes_model.h"
#include "bytes_order.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "corpus.h"
#include "task.h"

enum { EVALUATION_ROWS = 1024, EVALUATION_MOST = 65536 };

typedef struct bytes {
    task task;
    corpus corpus;
    int64_t test_first, test_span; /* the evaluated part: its first byte, its number of samples */
    int64_t test_rows; /* of an evaluation's calls: with leaves the same on all ranks, as the sum of
                          a call's losses depends on them */
    bytes_order order;
    bytes_model model;
    uint8_t *window;          /* [context + 1] */
    int32_t *tokens, *labels; /* a call's, on the host, shaped as in the model */
    double *logits;           /* [BYTES_VOCAB], for sampling */
} bytes;

/* Chosen with --hold-out 21358, by the loss on the last tenth of the training bytes; the held-out
 * bytes were not used.  With less weight decay the model memorises the few licences. */
static const train_default options[] = {
    {"context", "16"}, {"embedding", "16"},   {"width", "128"}, {"epochs", "4"}, {"batch", "512"},
    {"lr", "0.004"},   {"weight-decay", "1"}, {"sample", NULL}, {NULL, NULL},
};

/* The corpus in a few words. */
static void name_corpus(const train_options *o, char *text, size_t size)
{
    if (o->common.arg_count == 0)
        snprintf(text, size, "%s", CORPUS_FOLDER);
    else if (o->common.arg_count == 1)
        snprintf(text, size, "%s", o->common.args[0]);
    else
        snprintf(text, size, "%s and %d more", o->common.args[0], o->common.arg_count - 1);
}

/* Splits the bytes into training and evaluation; each must hold a window. */
static int split(bytes *b)
{
    task *task = &b->task;
    const train_options *o = task->options;
    const int64_t least = o->context + 1, held_out = b->corpus.bytes / 10;
    if (held_out < least) {
        char name[APP_MESSAGE_MAX / 2];
        name_corpus(o, name, sizeof name);
        return app_fail(APP_FAILED,
                        "%s: %lld bytes, want at least %lld: a tenth is held out, and must be "
                        "longer than the context of %lld",
                        name, (long long)b->corpus.bytes, 10 * (long long)least,
                        (long long)o->context);
    }
    const int64_t all = b->corpus.bytes - held_out, train = all - o->hold_out;
    if (train < least || (o->hold_out > 0 && o->hold_out < least))
        return app_fail(APP_USAGE, "--hold-out is %lld, want 0 or %lld to %lld bytes",
                        (long long)o->hold_out, (long long)least, (long long)(all - least));
    b->test_first = train;
    b->test_span = (o->hold_out ? o->hold_out : held_out) - o->context;
    task->train_count = train - o->context;
    task->test_count = b->test_span < EVALUATION_MOST ? b->test_span : EVALUATION_MOST;
    task->test_name = o->hold_out ? "validation" : "held-out";
    task->tokens_per_sample = 1;
    snprintf(task->data_name, sizeof task->data_name, "%lld training and %lld %s bytes",
             (long long)train, (long long)(b->test_span + o->context), task->test_name);
    return APP_OK;
}

static void list_files(const train_options *o, app_files *files)
{
    if (o->common.arg_count == 0) corpus_list_folder(CORPUS_FOLDER, files);
    for (int i = 0; i < o->common.arg_count; i++) app_files_reads(files, o->common.args[i]);
}

static int open_corpus(task *task)
{
    bytes *b = (bytes *)task;
    const train_options *o = task->options;
    APP_TRY(o->common.arg_count ? corpus_open(&b->corpus, o->common.args, o->common.arg_count)
                                : corpus_open_folder(&b->corpus, CORPUS_FOLDER));
    return split(b);
}

static int create(task *task, tutti_params *params, int64_t capacity)
{
    bytes *b = (bytes *)task;
    const int64_t context = task->options->context;
    const int64_t rows = capacity > EVALUATION_ROWS ? capacity : EVALUATION_ROWS;
    const int64_t leaves = task->options->leaves, leaf = leaves ? task->options->batch / leaves : 0;
    b->test_rows = !leaves ? rows : leaf > EVALUATION_ROWS ? leaf : EVALUATION_ROWS;
    b->window = malloc((size_t)context + 1);
    b->tokens = malloc((size_t)rows * (size_t)context * sizeof *b->tokens);
    b->labels = malloc((size_t)rows * sizeof *b->labels);
    b->logits = malloc(BYTES_VOCAB * sizeof *b->logits);
    if (!b->window || !b->tokens || !b->labels || !b->logits)
        return app_fail(APP_FAILED, "no memory for %lld rows of bytes", (long long)rows);
    APP_TRY(bytes_model_create(&b->model, task->ctx, task->options, rows, params));
    task->loss_sum = b->model.network.loss_sum;
    return APP_OK;
}

static int shuffle(task *task, int64_t epoch)
{
    ((bytes *)task)->order = bytes_order_make(task->train_count, task->options->seed, epoch);
    return APP_OK;
}

/* Copies the window that begins at byte `first` to a row of the call. */
static void set_row(bytes *b, int64_t row, int64_t first)
{
    const int64_t context = b->task.options->context;
    corpus_read(&b->corpus, first, context + 1, b->window);
    for (int64_t i = 0; i < context; i++) b->tokens[row * context + i] = b->window[i];
    b->labels[row] = b->window[context];
}

static int send_rows(bytes *b, int64_t rows)
{
    const size_t labels = (size_t)rows * sizeof *b->labels;
    APP_CHECK(tutti_copy(b->task.ctx, b->model.tokens, b->tokens,
                         (size_t)b->task.options->context * labels));
    return app_check(tutti_copy(b->task.ctx, b->model.network.labels, b->labels, labels));
}

static int load(task *task, int64_t first, int64_t rows, int leaves)
{
    bytes *b = (bytes *)task;
    b->model.network.first_row = first;
    network_cut(&b->model.network, rows, leaves);
    for (int64_t i = 0; i < rows; i++) set_row(b, i, bytes_order_at(&b->order, first + i));
    return rows ? send_rows(b, rows) : APP_OK;
}

static int forward(task *task, int64_t rows, const tutti_step_block *step)
{
    bytes *b = (bytes *)task;
    b->model.network.step = step;
    APP_TRY(network_forward(&b->model.network, rows, true));
    return network_loss(&b->model.network, rows, step);
}

static int backward(task *task, int64_t rows, int code, unsigned flags, tutti_grad_sync *sync)
{
    return network_backward(&((bytes *)task)->model.network, rows, code, flags, sync);
}

/* Evaluates samples evenly spaced over the part, if it has more than EVALUATION_MOST. */
static int evaluate(task *task, int64_t first, int64_t end, task_score *score)
{
    bytes *b = (bytes *)task;
    while (first < end) {
        const int64_t rows = end - first < b->test_rows ? end - first : b->test_rows;
        double loss;
        for (int64_t i = 0; i < rows; i++)
            set_row(b, i, b->test_first + (first + i) * b->test_span / task->test_count);
        APP_TRY(send_rows(b, rows));
        APP_TRY(network_forward(&b->model.network, rows, false));
        APP_TRY(network_loss(&b->model.network, rows, NULL));
        APP_CHECK(tutti_copy(task->ctx, &loss, b->model.network.loss_sum, sizeof loss));
        APP_CHECK(tutti_context_check(task->ctx));
        score->samples += (double)rows;
        score->loss += loss;
        first += rows;
    }
    return APP_OK;
}

static void report(const task *task, const task_score *score, char *text, size_t size)
{
    const double nats = score->loss / score->samples;
    snprintf(text, size, "%s loss %.4f nats | %.4f bits a byte", task->test_name, nats,
             nats / log(2.0));
}

/* Draws the next byte after row 0 of tokens from the model's distribution. */
static int draw(bytes *b, uint64_t *state, uint8_t *byte)
{
    const tutti_dtype dtype = b->model.network.dtype;
    double raw[BYTES_VOCAB], largest = -INFINITY, sum = 0.0;
    APP_TRY(send_rows(b, 1));
    APP_TRY(network_forward(&b->model.network, 1, false));
    APP_CHECK(tutti_copy(b->task.ctx, raw, b->model.network.logits,
                         BYTES_VOCAB * tutti_dtype_size(dtype)));
    APP_CHECK(tutti_context_check(b->task.ctx));
    APP_CHECK(tutti_convert(b->logits, TUTTI_F64, raw, dtype, BYTES_VOCAB));
    for (int k = 0; k < BYTES_VOCAB; k++) largest = fmax(largest, b->logits[k]);
    for (int k = 0; k < BYTES_VOCAB; k++) sum += b->logits[k] = exp(b->logits[k] - largest);
    if (!isfinite(sum)) return app_fail(APP_FAILED, "--sample: the model's logits are not finite");
    double left = (double)(bytes_random(state) >> 11) * 0x1p-53 * sum;
    int chosen = 0;
    while (chosen < BYTES_VOCAB - 1 && (left -= b->logits[chosen]) >= 0.0) chosen++;
    *byte = (uint8_t)chosen;
    return APP_OK;
}

/* Appends a byte, escaped as in C if it is not printable. */
static char *show(char *text, uint8_t byte)
{
    if (byte == '\n' || (byte < 0x80 && isprint(byte) && byte != '\\')) {
        *text = (char)byte;
        return text + 1;
    }
    return text + (byte == '\\' ? sprintf(text, "\\\\") : sprintf(text, "\\x%02x", byte));
}

static int sample(task *task, int64_t count)
{
    bytes *b = (bytes *)task;
    const int64_t context = b->task.options->context;
    uint64_t state = task->options->seed;
    char *text = malloc((size_t)(context > count ? context : count) * 4 + 1), *end = text;
    if (!text) return app_fail(APP_FAILED, "no memory for %lld characters", (long long)count);
    set_row(b, 0, b->test_first);
    for (int64_t i = 0; i < context; i++) end = show(end, b->window[i]);
    *end = '\0';
    app_say("sample | %lld characters that follow \"%s\"", (long long)count, text);

    int code = APP_OK;
    end = text;
    for (int64_t i = 0; i < count && code == APP_OK; i++) {
        uint8_t byte = 0;
        code = draw(b, &state, &byte);
        end = show(end, byte);
        memmove(b->tokens, b->tokens + 1, (size_t)(context - 1) * sizeof *b->tokens);
        b->tokens[context - 1] = byte;
    }
    *end = '\0';
    if (code == APP_OK) app_say_lines(text);
    free(text);
    return code;
}

static void describe(const task *task)
{
    const bytes *b = (const bytes *)task;
    const train_options *o = task->options;
    char name[APP_MESSAGE_MAX / 2];
    name_corpus(o, name, sizeof name);
    app_say("  task          bytes: %s", task->data_name);
    if (task->test_count < b->test_span)
        app_say("  evaluation    %lld of its %lld bytes, evenly spaced",
                (long long)task->test_count, (long long)b->test_span);
    app_say("  data          %s (%lld file%s, %lld bytes)", name, (long long)b->corpus.count,
            b->corpus.count == 1 ? "" : "s", (long long)b->corpus.bytes);
    bytes_model_describe(o);
}

static void close_corpus(task *task)
{
    bytes *b = (bytes *)task;
    network_free(&b->model.network);
    free(b->window);
    free(b->tokens);
    free(b->labels);
    free(b->logits);
    corpus_close(&b->corpus);
}

/* lr_width: wide models diverge at the rate of narrow ones.  At widths of 1024, 2048 and 4096 about
 * 2 / width was best of four rates, as AdamW's steps are as large whatever the gradients [Yang et
 * al. 2022, Tensor Programs V, table 3: a hidden layer's rate is in inverse proportion to its
 * inputs]. */
const task_class bytes_task = {
    .name = "bytes",
    .samples = "bytes",
    .rate = "tokens/s",
    .takes_files = true,
    .norms = bytes_model_norms,
    .options = options,
    .lr_width = 512,
    .list_files = list_files,
    .open = open_corpus,
    .create = create,
    .shuffle = shuffle,
    .load = load,
    .forward = forward,
    .backward = backward,
    .evaluate = evaluate,
    .report = report,
    .sample = sample,
    .describe = describe,
    .close = close_corpus,
    .size = sizeof(bytes),
};
