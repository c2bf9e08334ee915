/* Teaches: a transformer out of Tutti's layers: a GPT of bytes with rotary positions, causal
 * attention, RMSNorm, SwiGLU, and one table for input and output.  The model is a list of calls:
 * forward makes them from first to last, backward from last to first.  It is trained in
 * reproducible mode: 1 to 8 ranks, on GPUs or on the CPU, leave the same file, resumed or not.
 *
 * Build: mpicc transformer.c -o transformer $(pkg-config --cflags --libs tutti) -lm
 * Run:   mpirun -np 2 ./transformer TEXT 200 run.h5, with any text, then on from there:
 *        mpirun -np 3 ./transformer TEXT 400 run.h5 --resume */
#include <math.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { VOCAB = 256, DEPTH = 2, WIDTH = 64, HEADS = 4, SIZE = WIDTH / HEADS, HIDDEN = 160 };
/* The batch is LEAVES blocks of SEQUENCES windows of the text each.  A rank computes its leaves one
 * after the other, in the same memory: that of ROWS tokens, whose sequences have ITEMS heads. */
enum { LEAVES = 8, SEQUENCES = 4, TIME = 64, ROWS = TIME * SEQUENCES, ITEMS = SEQUENCES * HEADS };
static const tutti_dtype dtype = TUTTI_F32; /* or TUTTI_BF16: the store then has masters in f32 */

/* The input of attention: rows of q, k and v of the first head, then of the next; and parts of it,
 * which are not copied. */
typedef struct heads {
    tutti_tensor *rows, *qk, *q, *k, *v;
} heads;

static tutti_context *ctx;
static tutti_params *params;
static tutti_step_block *values;
static struct {
    tutti_layer *layer;
    tutti_call call;      /* of both directions: each ignores what only the other one uses */
} model[16 * DEPTH + 16]; /* with room for more layers */
static int calls;
static tutti_tensor *tokens, *labels, *positions, leaf_loss;
/* The residual stream is branch + stream, which the next norm adds up. */
static tutti_tensor *branch, *stream;
/* Gradients, in memory that all blocks share: of the stream, of a norm's or attention's output
 * (dattended is dnormed by heads), and of what else only backward of one block needs. */
static tutti_tensor *dstream, *dnormed, *dattended, *dprobs, *dgated;
static heads dheads;
static unsigned char text[1 << 24]; /* of a longer file its beginning */
static size_t text_bytes;

static void check(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "transformer: %s\n", tutti_last_error());
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* Calls have pointers to tensors, which therefore stay where they are. */
static tutti_tensor *keep(tutti_tensor tensor)
{
    tutti_tensor *kept = malloc(sizeof *kept);
    if (!kept) MPI_Abort(MPI_COMM_WORLD, 2);
    *kept = tensor;
    return kept;
}

/* Device memory, filled with zeros. */
static tutti_tensor *create(tutti_dtype type, int64_t rows, int64_t cols)
{
    tutti_tensor tensor = tutti_tensor_2d(NULL, type, rows, cols);
    const size_t bytes = (size_t)(rows * cols) * tutti_dtype_size(type);
    check(tutti_alloc(ctx, bytes, &tensor.data));
    check(tutti_zero(ctx, tensor.data, bytes));
    return keep(tensor);
}

static tutti_tensor *rows_of(int64_t cols)
{
    return create(dtype, ROWS, cols);
}

/* Views of a tensor, from element `first` on: of cols elements in every `stride` … */
static tutti_tensor *part(const tutti_tensor *whole, int first, int cols, int stride)
{
    void *data = (char *)whole->data + (size_t)first * tutti_dtype_size(dtype);
    tutti_tensor view = tutti_tensor_2d(data, dtype, tutti_tensor_count(whole) / stride, cols);
    view.strides[0] = stride;
    return keep(view);
}

/* … and of a matrix [TIME, cols] for each head of each sequence.  Rows are by time, [TIME,
 * SEQUENCES]: so the heads of all sequences are evenly spaced, and one call of MatMul does them
 * all.  (With rows by sequence, as llm.c has them, a call does the heads of one sequence.) */
static tutti_tensor *matrices(const tutti_tensor *whole, int first, int cols, int item, int line)
{
    void *data = (char *)whole->data + (size_t)first * tutti_dtype_size(dtype);
    tutti_tensor view = tutti_tensor_make(data, dtype, 3, (int64_t[]){ITEMS, TIME, cols});
    view.strides[0] = item, view.strides[1] = line;
    return keep(view);
}

static heads heads_create(void)
{
    const int item = 3 * SIZE, line = ITEMS * item;
    heads h = {.rows = rows_of(3 * WIDTH)};
    h.qk = part(h.rows, 0, 2 * SIZE, item);
    h.q = matrices(h.rows, 0, SIZE, item, line);
    h.k = matrices(h.rows, SIZE, SIZE, item, line);
    h.v = matrices(h.rows, 2 * SIZE, SIZE, item, line);
    return h;
}

/* Adds a layer, with the options of its descriptor, to the model and, in the order of forward, to
 * the store.  The call has tensors in the order of the slots that the kind's header lists. */
static tutti_layer *add(const char *prefix, const char *name, const char *kind, tutti_call call,
                        const char *options, ...)
{
    char full[256];
    tutti_layer *layer;
    va_list list;
    va_start(list, options);
    const int length = vsnprintf(full, sizeof full, options, list);
    va_end(list);
    snprintf(full + length, sizeof full - (size_t)length, ",%s=%s",
             strstr(kind, "norm") ? "x_dtype" : "dtype", tutti_dtype_name(dtype));
    check(tutti_layer_create_by_name(ctx, kind, full, &layer));
    snprintf(full, sizeof full, "%s%s", prefix, name);
    check(tutti_params_add(params, layer, full));
    call.leaves = 1; /* its rows are one leaf */
    call.saved_bytes = tutti_layer_saved_bytes(layer, ROWS);
    check(tutti_alloc(ctx, call.saved_bytes, &call.saved));
    model[calls].layer = layer;
    model[calls++].call = call;
    return layer;
}

/* Normalises branch + stream.  That sum takes the branch's place, since backward wants it as x.
 * Its gradient, dx, is the branch's and the stream's alike: what comes through the norm, and dsum,
 * which comes past it. */
static tutti_tensor *add_norm(const char *prefix, const char *name, tutti_tensor *dsum)
{
    tutti_tensor *y = rows_of(WIDTH);
    add(prefix, name, "rmsnorm",
        (tutti_call){.in = {branch, stream},
                     .out = {y, stream ? branch : NULL},
                     .upstream = {dnormed, dsum},
                     .din = {dstream}},
        "cols=%d", WIDTH);
    return y;
}

static tutti_layer *add_linear(const char *prefix, const char *name, tutti_tensor *x,
                               tutti_tensor *y, tutti_tensor *dy, tutti_tensor *dx)
{
    return add(prefix, name, "linear",
               (tutti_call){.in = {x}, .out = {y}, .upstream = {dy}, .din = {dx}},
               "in=%d,out=%d,no_bias=1", (int)x->dims[1], (int)y->dims[1]);
}

static void add_attention(const char *p)
{
    static const int64_t first_row = 0; /* for the mask: a call begins with a sequence */
    tutti_tensor *x = add_norm(p, "norm1", dstream), *attended = rows_of(WIDTH);
    tutti_tensor *mixed = matrices(attended, 0, SIZE, SIZE, SEQUENCES * WIDTH);
    tutti_tensor *probs = matrices(rows_of(HEADS * TIME), 0, TIME, TIME * TIME, TIME);
    const heads h = heads_create(), d = dheads;
    add_linear(p, "qkv", x, h.rows, d.rows, dnormed);
    add(p, "rope", "rope",
        (tutti_call){.in = {h.qk, positions}, .out = {h.qk}, .upstream = {d.qk}, .din = {d.qk}},
        "cols=%d,head_size=%d", 2 * SIZE, SIZE);
    add(p, "scores", "matmul",
        (tutti_call){.in = {h.q, h.k}, .out = {probs}, .upstream = {dprobs}, .din = {d.q, d.k}},
        "m=%d,n=%d,k=%d,transpose_b=1", TIME, TIME, SIZE);
    tutti_call softmax = {.in = {probs}, .out = {probs}, .upstream = {dprobs}, .din = {dprobs}};
    softmax.first_row = &first_row;
    add(p, "softmax", "softmax", softmax, "cols=%d,causal_period=%d,scale=%.17g", TIME, TIME,
        1 / sqrt(SIZE));
    add(p, "mix", "matmul",
        (tutti_call){
            .in = {probs, h.v}, .out = {mixed}, .upstream = {dattended}, .din = {dprobs, d.v}},
        "m=%d,n=%d,k=%d", TIME, SIZE, TIME);
    stream = branch, branch = rows_of(WIDTH);
    add_linear(p, "proj", attended, branch, dstream, dnormed);
}

static void add_mlp(const char *p)
{
    tutti_tensor *x = add_norm(p, "norm2", dstream), *up = rows_of(2 * HIDDEN);
    tutti_tensor *a = part(up, 0, HIDDEN, 2 * HIDDEN), *b = part(up, HIDDEN, HIDDEN, 2 * HIDDEN);
    tutti_tensor *gated = rows_of(HIDDEN);
    add_linear(p, "up", x, up, up, dnormed); /* GLU's backward has put the gradient of up there */
    add(p, "glu", "glu",
        (tutti_call){.in = {a, b}, .out = {gated}, .upstream = {dgated}, .din = {a, b}}, "cols=%d",
        HIDDEN);
    stream = branch, branch = rows_of(WIDTH);
    add_linear(p, "down", gated, branch, dstream, dgated);
}

static void model_create(void)
{
    int32_t time[ROWS * HEADS];
    char prefix[24];
    dstream = rows_of(WIDTH), dnormed = rows_of(WIDTH), dgated = rows_of(HIDDEN);
    dattended = matrices(dnormed, 0, SIZE, SIZE, SEQUENCES * WIDTH);
    dprobs = matrices(rows_of(HEADS * TIME), 0, TIME, TIME * TIME, TIME);
    dheads = heads_create();
    tokens = create(TUTTI_I32, ROWS, 1), labels = create(TUTTI_I32, ROWS, 1);
    positions = create(TUTTI_I32, ROWS * HEADS, 1); /* of the rows of qk */
    for (int i = 0; i < ROWS * HEADS; i++) time[i] = i / ITEMS;
    check(tutti_copy(ctx, positions->data, time, sizeof time));

    check(tutti_params_create(ctx, NULL, &params));
    branch = rows_of(WIDTH);
    tutti_call embed = {.in = {tokens}, .out = {branch}, .upstream = {dstream}};
    embed.flags = TUTTI_GRAD_ACCUMULATE; /* the head, whose backward is first, has the same table */
    tutti_layer *table = add("", "embedding", "embedding", embed, "vocab=%d,cols=%d", VOCAB, WIDTH);
    for (int i = 0; i < DEPTH; i++) {
        snprintf(prefix, sizeof prefix, "block%d.", i);
        add_attention(prefix);
        add_mlp(prefix);
    }
    tutti_tensor *x = add_norm("", "norm", NULL), *logits = rows_of(VOCAB);
    tutti_layer *head = add_linear("", "head", x, logits, logits, dnormed);
    add("", "loss", "cross_entropy", /* logits become their gradient */
        (tutti_call){.in = {logits, labels}, .out = {NULL, &leaf_loss, logits}, .step = values},
        "cols=%d", VOCAB);
    /* the table has the head's initial values, which are small, and its name in the file */
    check(tutti_params_tie(params, tutti_layer_param(table, 0), tutti_layer_param(head, 0)));
    check(tutti_params_build(params, ctx));
    check(tutti_params_init(params, ctx, 1));
}

/* A leaf's tokens.  Its windows of the text depend on their numbers alone, so they are the same on
 * other ranks and in a resumed run. */
static void load_leaf(int64_t step, int leaf)
{
    int32_t host[2][ROWS];
    for (int s = 0; s < SEQUENCES; s++) {
        const uint64_t number = (uint64_t)((step * LEAVES + leaf) * SEQUENCES + s);
        const size_t at = (number * 0x9E3779B97F4A7C15 >> 16) % (text_bytes - TIME);
        for (int t = 0; t < TIME; t++)
            for (size_t next = 0; next < 2; next++)
                host[next][t * SEQUENCES + s] = text[at + (size_t)t + next];
    }
    check(tutti_copy(ctx, tokens->data, host[0], sizeof host[0]));
    check(tutti_copy(ctx, labels->data, host[1], sizeof host[1]));
}

int main(int argc, char **argv)
{
    int rank, gpus = 0, first, count;
    char *end = "";
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &(int){0});
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const long steps = argc > 2 ? strtol(argv[2], &end, 10) : 0;
    const int resume = argc == 5 && strcmp(argv[4], "--resume") == 0;
    if (steps < 1 || *end || argc != 4 + resume) {
        if (rank == 0)
            fprintf(stderr, "transformer: want TEXT STEPS FILE [--resume], and at least 1 step\n");
        MPI_Finalize();
        return 64;
    }
    FILE *file = fopen(argv[1], "rb");
    if (file) text_bytes = fread(text, 1, sizeof text, file), fclose(file);
    if (text_bytes <= TIME) {
        fprintf(stderr, "transformer: %s cannot be read, or is too short\n", argv[1]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }

    tutti_comm *comm;
    tutti_grad_sync *sync;
    tutti_adamw *adamw;
    tutti_checkpoint *checkpoint;
    tutti_state_tensor state;
    int64_t step = 0;
    tutti_device_count(TUTTI_BACKEND_CUDA, &gpus); /* without any, or without CUDA: on the CPU */
    check(tutti_context_create(&(tutti_context_desc){.device = gpus ? rank % gpus : 0}, &ctx));
    check(tutti_comm_create(ctx, NULL, &comm));
    check(tutti_step_block_create(ctx, &values));
    model_create();
    const tutti_grad_sync_desc reproducible = {.leaves = LEAVES};
    check(tutti_grad_sync_create(ctx, comm, params, &reproducible, &sync));
    check(tutti_grad_sync_own_leaves(sync, &first, &count));
    /* backward declares its layer's gradients ready; in the last leaf that begins their sum */
    for (int i = 0; i < calls; i++) model[i].call.sync = sync;
    const tutti_adamw_desc decay = {.weight_decay = 0.1, .clip_norm = 1};
    check(tutti_adamw_create(ctx, params, &decay, &adamw));

    check(tutti_checkpoint_create(ctx, comm, &checkpoint));
    check(tutti_checkpoint_add_params(checkpoint, params));
    for (int i = 0; i < tutti_adamw_state_count(adamw); i++) {
        check(tutti_adamw_state_get(adamw, i, &state));
        check(tutti_checkpoint_add_state(checkpoint, params, &state));
    }
    check(tutti_checkpoint_add_int(checkpoint, "state/step", &step));
    check(tutti_checkpoint_own(checkpoint, argv[3], 0)); /* fails now rather than at the end */
    if (resume) check(tutti_checkpoint_load(checkpoint, argv[3], 0));

    /* A leaf's loss has an element, 0 on other ranks: so their sum has one order, too. */
    const tutti_tensor *own = create(TUTTI_F64, LEAVES, 1), *all = create(TUTTI_F64, LEAVES, 1);
    double losses[LEAVES];
    while (step < steps) {
        step++;
        const double rate = 0.003 * fmin(1, (double)step / 20);
        /* gradients are only added: the weight makes their sum that of the mean loss */
        const tutti_step_values now = {
            .step = step, .learning_rate = rate, .loss_weight = 1.0 / (LEAVES * ROWS)};
        check(tutti_step_block_set(values, ctx, &now));
        for (int leaf = first; leaf < first + count; leaf++) {
            load_leaf(step, leaf);
            leaf_loss = tutti_tensor_1d((double *)own->data + leaf, TUTTI_F64, 1);
            check(tutti_grad_sync_leaves_begin(sync, ctx, leaf, 1));
            for (int i = 0; i < calls; i++)
                check(tutti_layer_forward(model[i].layer, ctx, &model[i].call));
            for (int i = calls - 2; i >= 0; i--) /* the loss has no backward */
                check(tutti_layer_backward(model[i].layer, ctx, &model[i].call));
            check(tutti_grad_sync_leaves_end(sync, ctx));
        }
        check(tutti_grad_sync_finish(sync, ctx)); /* gradients are the batch's, on every rank */
        check(tutti_adamw_update(adamw, ctx, values));
        if (step % 10 != 0 && step != steps) continue;
        double sum = 0;
        check(tutti_comm_all_reduce(comm, ctx, own->data, all->data, LEAVES, TUTTI_F64, TUTTI_SUM));
        check(tutti_copy(ctx, losses, all->data, sizeof losses));
        for (int leaf = 0; leaf < LEAVES; leaf++) sum += losses[leaf];
        if (rank == 0) printf("step %4lld  loss %.6f\n", (long long)step, sum / (LEAVES * ROWS));
    }
    check(tutti_checkpoint_save(checkpoint, argv[3], 0));
    tutti_checkpoint_destroy(&checkpoint);
    tutti_grad_sync_destroy(&sync);
    tutti_comm_destroy(&comm); /* the rest ends with the process */
    MPI_Finalize();
    return 0;
}
