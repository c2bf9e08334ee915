/* Teaches: a run saved in a checkpoint and resumed: weights, the optimizer's state and values of
 * your own, listed once for saving and loading.  A second run, created as in a new process, resumes
 * from the file in the middle of the first one and must end with the same bits.  Any number of
 * ranks can read the file.
 *
 * Build: mpicc checkpoint.c -o checkpoint $(pkg-config --cflags --libs tutti)
 * Run:   mpirun -np 2 ./checkpoint run.h5, then look at it: h5dump -H run.h5 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { ROWS = 32, IN = 8, OUT = 4, MIDDLE = 25, END = 60 };

static tutti_context *ctx;
static tutti_comm *comm;

static void check(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "%s\n", tutti_last_error());
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* A run: one layer that learns to sum its inputs in four ways, its optimizer, and how far it has
 * come. */
typedef struct run {
    tutti_layer *layer;
    tutti_params *params;
    tutti_grad_sync *sync;
    tutti_adamw *adamw;
    tutti_step_block *block;
    tutti_checkpoint *checkpoint;
    int64_t step;
    double loss;
} run;

static void run_create(run *r)
{
    memset(r, 0, sizeof *r);
    check(tutti_layer_create_by_name(ctx, "linear", "in=8,out=4,dtype=f32", &r->layer));
    check(tutti_params_create(ctx, NULL, &r->params));
    check(tutti_params_add(r->params, r->layer, "sums"));
    check(tutti_params_build(r->params, ctx));
    check(tutti_params_init(r->params, ctx, 1));
    check(tutti_grad_sync_create(ctx, comm, r->params, NULL, &r->sync));
    check(tutti_adamw_create(ctx, r->params, &(tutti_adamw_desc){.weight_decay = 0.01}, &r->adamw));
    check(tutti_step_block_create(ctx, &r->block));

    /* The contents of this run's checkpoint.  The list points to the run: saving reads from it,
     * loading writes to it. */
    tutti_state_tensor state;
    check(tutti_checkpoint_create(ctx, comm, &r->checkpoint));
    check(tutti_checkpoint_add_params(r->checkpoint, r->params));
    for (int i = 0; i < tutti_adamw_state_count(r->adamw); i++) {
        check(tutti_adamw_state_get(r->adamw, i, &state));
        check(tutti_checkpoint_add_state(r->checkpoint, r->params, &state));
    }
    check(tutti_checkpoint_add_int(r->checkpoint, "state/step", &r->step));
    check(tutti_checkpoint_add_real(r->checkpoint, "state/loss", &r->loss));
}

static void run_destroy(run *r)
{
    tutti_checkpoint_destroy(&r->checkpoint);
    tutti_step_block_destroy(&r->block);
    tutti_adamw_destroy(&r->adamw);
    tutti_grad_sync_destroy(&r->sync);
    tutti_params_destroy(&r->params);
    tutti_layer_destroy(&r->layer);
}

/* One step on this rank's rows; the batch depends on the number of the step alone, as it must in a
 * run that resumes. */
static void train_step(run *r)
{
    static float x[ROWS][IN], y[ROWS][OUT];
    const int rank = tutti_comm_rank(comm), size = tutti_comm_world_size(comm);
    const int first = ROWS * rank / size, rows = ROWS * (rank + 1) / size - first;
    tutti_tensor tx = tutti_tensor_2d(x, TUTTI_F32, rows, IN);
    tutti_tensor ty = tutti_tensor_2d(y, TUTTI_F32, rows, OUT);
    const tutti_linear_call call = {.x = &tx, .y = &ty, .dy = &ty, .sync = r->sync};
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < IN; i++)
            x[row][i] = (float)((r->step * 31 + (first + row) * 17 + i * 7) % 13) / 6.0f - 1.0f;

    r->step++;
    check(tutti_step_block_set(
        r->block, ctx,
        &(tutti_step_values){.step = r->step, .learning_rate = 0.02, .loss_weight = 1.0}));
    check(tutti_linear_forward(r->layer, ctx, &call));
    r->loss = 0.0;
    for (int row = 0; row < rows; row++)
        for (int out = 0; out < OUT; out++) { /* y becomes the gradient of the mean square */
            float difference = y[row][out];
            for (int i = out; i < IN; i++) difference -= x[row][i];
            r->loss += difference * difference / ROWS;
            y[row][out] = 2.0f * difference / ROWS;
        }
    check(tutti_comm_all_reduce(comm, ctx, &r->loss, &r->loss, 1, TUTTI_F64, TUTTI_SUM));
    check(tutti_linear_backward(r->layer, ctx, &call));
    check(tutti_grad_sync_finish(r->sync, ctx));
    check(tutti_adamw_update(r->adamw, ctx, r->block));
}

int main(int argc, char **argv)
{
    run one, other;
    tutti_tensor a, b;
    /* if standard output is closed, no file may get its descriptor: printed text would land in
     * it */
    int null = open("/dev/null", O_RDWR);
    while (null >= 0 && null <= STDERR_FILENO) null = dup(null);
    if (null >= 0) close(null);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &(int){0});
    const char *file = argc > 1 ? argv[1] : "run.h5";
    check(tutti_context_create(&(tutti_context_desc){.backend = TUTTI_BACKEND_HOST}, &ctx));
    check(tutti_comm_create(ctx, NULL, &comm));

    run_create(&one);
    while (one.step < END) {
        train_step(&one);
        if (one.step == MIDDLE) check(tutti_checkpoint_save(one.checkpoint, file, 0));
    }
    run_create(&other);
    check(tutti_checkpoint_load(other.checkpoint, file, 0));
    const int64_t resumed = other.step;
    while (other.step < END) train_step(&other);

    check(tutti_params_flat(one.params, TUTTI_PARAMS_MASTER, &a));
    check(tutti_params_flat(other.params, TUTTI_PARAMS_MASTER, &b));
    const size_t bytes = (size_t)tutti_tensor_count(&a) * sizeof(float);
    const int equal = resumed == MIDDLE && memcmp(a.data, b.data, bytes) == 0;
    if (tutti_comm_rank(comm) == 0)
        printf("resumed at step %lld, loss %.6f at the end, weights %s\n", (long long)resumed,
               other.loss, equal ? "equal to the bit" : "that differ");
    run_destroy(&one);
    run_destroy(&other);
    tutti_comm_destroy(&comm);
    tutti_context_destroy(&ctx);
    MPI_Finalize();
    return equal ? 0 : 1;
}
