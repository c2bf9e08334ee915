/* One rank stops (SIGSTOP) at a chosen point; the others print when and with what status they
 * returned, and leave by MPI_Abort(…, 2).  At other points it does not stop, but calls another verb
 * or uses another count than the others; or some ranks come late, have gone on, or wait with
 * another communicator.  Started by test_stop.
 *
 * usage: stop_rank host|cuda mpi|nccl|hop|copy|spread POINT SECONDS
 * POINT  setup verb exchange launches agree barrier destroy mixed counts
 *        late middle midway apart
 *        exchange, launches and gives_up_exchange over nccl, with its own sums, or over hop, with
 *        sums in one hop
 *        shard_exchange shard_update shard_gather shard_launches gives_up_shard: with a sharded
 *        store, over nccl with copy engines as copy; over spread the store is not sharded
 *        gives_up_verb gives_up_exchange: the last rank aborts the communicator
 *        gives_up_agree, gives_up_gather, gives_up_barrier: it has no memory for that */
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "deadline.h"
#include "tutti/tutti.h"

enum { SETUP_SECONDS = 30, PARAMS = 4, COUNT = 5000, LAUNCHES = 20000 };

static int rank, size;
static const char *point;
static double start; /* of the wait that does not end */

static bool chosen(const char *here)
{
    return strcmp(here, point) == 0;
}

/* True at the chosen point on the rank that acts differently from the others. */
static bool differs_at(const char *here)
{
    if (!chosen(here)) return false;
    start = MPI_Wtime();
    return rank == size - 1;
}

/* Stops the last rank at the chosen point. */
static void at(const char *here)
{
    if (differs_at(here)) raise(SIGSTOP);
}

static void nap(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (seconds > 0) nanosleep(&time, NULL);
}

/* At the chosen point the last rank aborts the communicator with a reason. */
static bool gives_up_at(const char *here, tutti_comm *comm, tutti_status *status)
{
    if (!differs_at(here)) return false;
    nap(0.5); /* the others wait */
    start = MPI_Wtime();
    *status = tutti_comm_abort(comm, "the disk is full");
    printf("rank %d: gave up, %s\n", rank, tutti_status_string(*status));
    *status = tutti_comm_agree(comm, *status); /* dead */
    return true;
}

#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__
/* Allocations of this thread until one fails; 0: none does. */
static _Thread_local int until_none;

void *__libc_calloc(size_t count, size_t size);
void *calloc(size_t count, size_t size)
{
    return until_none > 0 && --until_none == 0 ? NULL : __libc_calloc(count, size);
}

/* At the chosen point the last rank has no memory for what is its number'th allocation from now
 * on. */
static void no_memory_at(const char *here, int number)
{
    if (!differs_at(here)) return;
    nap(0.5); /* the others wait */
    start = MPI_Wtime();
    until_none = number;
}
#else
static void no_memory_at(const char *here, int number)
{
    (void)here, (void)number;
}
#endif

static void stop_later(int signal_number)
{
    (void)signal_number;
    raise(SIGSTOP);
}

static tutti_status sum_of_one(tutti_comm *comm, tutti_context *ctx)
{
    static float *value;
    tutti_status status = value ? TUTTI_OK : tutti_alloc(ctx, sizeof *value, (void **)&value);
    if (status == TUTTI_OK) status = tutti_zero(ctx, value, sizeof *value);
    if (status == TUTTI_OK)
        status = tutti_comm_all_reduce(comm, ctx, value, value, 1, TUTTI_F32, TUTTI_SUM);
    return status == TUTTI_OK ? tutti_context_synchronize(ctx) : status;
}

/* Ranks 3 and above stop; ranks 1 and 2 arrive a few milliseconds before rank 0's deadline. */
static tutti_status late(tutti_comm *comm, tutti_context *ctx, double timeout)
{
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (rank > 2) raise(SIGSTOP);
    if (rank > 0) nap(timeout - 2e-3 * rank);
    return sum_of_one(comm, ctx);
}

/* Rank 1 stops.  After rank 0's broadcast some ranks are in the next operation, while others still
 * wait for rank 1. */
static tutti_status middle(tutti_comm *comm, tutti_context *ctx, void *data)
{
    start = MPI_Wtime();
    if (rank == 1) raise(SIGSTOP);
    tutti_status status = tutti_comm_broadcast(comm, ctx, data, COUNT, TUTTI_F32, 0);
    return status == TUTTI_OK ? tutti_comm_barrier(comm, ctx) : status;
}

/* Rank 0 stops while it waits for the last rank, after announcing it; the last rank's message is
 * too long to be sent without rank 0. */
static tutti_status midway(tutti_comm *comm, tutti_context *ctx, float *data, double timeout)
{
    enum { BLOCK = COUNT / 2 };
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    signal(SIGALRM, stop_later);
    if (rank == 0) alarm(timeout > 2 ? (unsigned)(timeout / 2) : 1);
    if (rank == size - 1) nap(timeout * 0.75);
    tutti_status status =
        tutti_comm_all_to_all(comm, ctx, data, data + 2 * COUNT, BLOCK, TUTTI_F32);
    return status == TUTTI_OK ? tutti_comm_barrier(comm, ctx) : status;
}

/* The last rank stops; rank 0 waits with one communicator, the others with another. */
static tutti_status apart(tutti_comm *comm, tutti_comm *other, tutti_context *ctx)
{
    start = MPI_Wtime();
    if (rank == size - 1) raise(SIGSTOP);
    return tutti_comm_barrier(rank == 0 ? comm : other, ctx);
}

static const char *name_of(tutti_status status)
{
    return status == TUTTI_ERR_COMM ? "TUTTI_ERR_COMM" : tutti_status_string(status);
}

static void leave(tutti_status status)
{
    printf("rank %d: back after %.2f s: %s: %s\n", rank, MPI_Wtime() - start, name_of(status),
           status == TUTTI_OK ? "" : tutti_last_error());
    fflush(stdout);
}

static tutti_status launch_on(tutti_context *ctx, float *data)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < LAUNCHES && status == TUTTI_OK; i++)
        status = tutti_zero(ctx, data, sizeof *data);
    return status;
}

/* One step of the exchange; the chosen point lies between the first and the second gradient. */
static tutti_status step(tutti_grad_sync *sync, tutti_comm *comm, tutti_context *ctx,
                         tutti_param *params, bool stops)
{
    for (int i = 0; i < PARAMS; i++) {
        tutti_status status;
        if (i == 1 && stops) {
            at("exchange");
            at("launches");
            if (gives_up_at("gives_up_exchange", comm, &status)) return status;
        }
        status = tutti_grad_sync_ready_param(sync, ctx, &params[i]);
        if (status != TUTTI_OK) return status;
    }
    tutti_status status = tutti_grad_sync_finish(sync, ctx);
    /* far more than CUDA queues: a launch waits for room, and the library does not poll there */
    if (status == TUTTI_OK && stops && chosen("launches"))
        status = launch_on(ctx, params[0].grad.data);
    return status == TUTTI_OK ? tutti_context_synchronize(ctx) : status;
}

/* Of the store. */
static tutti_grad_sync *store_sync;
static tutti_adamw *adamw;
static tutti_step_block *block;

/* A step of a sharded store, then another one with a point in it. */
static tutti_status shard_step(tutti_grad_sync *sync, tutti_comm *comm, tutti_context *ctx,
                               tutti_params *store, bool stops)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < tutti_params_count(store) && status == TUTTI_OK; i++) {
        if (i == 1 && stops) {
            at("shard_exchange");
            at("shard_launches");
            if (gives_up_at("gives_up_shard", comm, &status)) return status;
        }
        status = tutti_grad_sync_ready_param(sync, ctx, tutti_params_get(store, i));
    }
    if (status == TUTTI_OK) status = tutti_grad_sync_finish(sync, ctx);
    if (status == TUTTI_OK && stops && chosen("shard_launches"))
        status = launch_on(ctx, tutti_params_get(store, 0)->grad.data);
    if (stops) at("shard_update"); /* the others are in the sum of the gradients' squares */
    if (status == TUTTI_OK) status = tutti_adamw_update(adamw, ctx, block);
    if (stops) at("shard_gather");
    if (status == TUTTI_OK) status = tutti_params_refresh(store, ctx);
    return status == TUTTI_OK ? tutti_context_synchronize(ctx) : status;
}

static tutti_engine engine, list_engine; /* of the store; of the other exchange */
static bool spread;                      /* the store is not sharded */

/* Of sums in one hop: whether there are, or why not. */
static void say(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    if (list_engine == TUTTI_ENGINE_AUTO && strstr(message, "small sums")) puts(message);
}

static tutti_status sharded(tutti_context *ctx, tutti_comm *comm, double timeout)
{
    tutti_grad_sync_desc options = TUTTI_GRAD_SYNC_DESC_INIT;
    options.engine = engine;
    options.exclusive = !spread; /* by copy engines an update leaves values on their way */
    static tutti_param params[PARAMS];
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    tutti_params *store = NULL;
    const tutti_step_values values = {.step = 1, .loss_weight = 1, .learning_rate = 0.1};
    if (spread) { /* a range for each parameter, in slices */
        options.range_bytes = options.last_range_bytes = 10 * COUNT * sizeof(float);
    } else {
        desc.shards = size;
        desc.shard = rank;
        desc.range_bytes = 1;
    }
    tutti_status status = tutti_params_create(ctx, &desc, &store);
    for (int i = 0; i < PARAMS && status == TUTTI_OK; i++) {
        snprintf(params[i].name, sizeof params[i].name, "p%d", i);
        params[i].value = tutti_tensor_1d(NULL, TUTTI_BF16, 10 * COUNT);
        status = tutti_params_add_param(store, &params[i]);
    }
    if (status == TUTTI_OK) status = tutti_params_build(store, ctx);
    if (status == TUTTI_OK)
        status = tutti_grad_sync_create(ctx, comm, store, &options, &store_sync);
    if (status == TUTTI_OK) status = tutti_adamw_create(ctx, store, NULL, &adamw);
    if (status == TUTTI_OK) status = tutti_step_block_create(ctx, &block);
    if (status == TUTTI_OK) status = tutti_step_block_set(block, ctx, &values);
    for (int stops = 0; stops < 2 && status == TUTTI_OK; stops++) {
        if (stops) set_deadline(comm, timeout);
        status = shard_step(store_sync, comm, ctx, store, stops);
    }
    return status;
}

/* Runs everything up to the point; returns the status of the call that could not succeed. */
static tutti_status run(tutti_context *ctx, tutti_transport transport, double timeout,
                        tutti_comm **comm, tutti_grad_sync **sync)
{
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = transport;
    desc.timeout =
        chosen("setup") ? timeout : SETUP_SECONDS; /* a busy machine takes long to connect */
    at("setup");
    tutti_status status = tutti_comm_create(ctx, &desc, comm);
    if (status != TUTTI_OK) return status;

    static tutti_param params[PARAMS];
    const tutti_param *list[PARAMS];
    float *grads;
    status = tutti_alloc(ctx, PARAMS * COUNT * sizeof *grads, (void **)&grads);
    if (status == TUTTI_OK) status = tutti_zero(ctx, grads, PARAMS * COUNT * sizeof *grads);
    for (int i = 0; i < PARAMS; i++) {
        snprintf(params[i].name, sizeof params[i].name, "p%d", i);
        params[i].grad = tutti_tensor_1d(grads + i * COUNT, TUTTI_F32, COUNT);
        params[i].value = params[i].grad;
        list[i] = &params[i];
    }
    tutti_grad_sync_desc exchange = TUTTI_GRAD_SYNC_DESC_INIT;
    exchange.range_bytes = exchange.last_range_bytes = COUNT * sizeof *grads;
    exchange.engine = list_engine;
    if (status == TUTTI_OK)
        status = tutti_grad_sync_create_list(ctx, *comm, list, PARAMS, &exchange, sync);
    if (status == TUTTI_OK)
        status = step(*sync, *comm, ctx, params, false); /* all is well so far */
    if (status == TUTTI_OK)
        status = tutti_comm_all_reduce(*comm, ctx, grads, grads, COUNT, TUTTI_F32, TUTTI_SUM);
    if (status == TUTTI_OK) status = tutti_comm_barrier(*comm, ctx);
    if (status != TUTTI_OK) return status;

    tutti_comm *other = NULL;
    if (strstr(point, "shard")) return sharded(ctx, *comm, timeout);
    set_deadline(*comm, desc.timeout = timeout);
    if (chosen("late")) return late(*comm, ctx, timeout);
    if (chosen("middle")) return middle(*comm, ctx, grads);
    if (chosen("midway")) return midway(*comm, ctx, grads, timeout);
    if (chosen("apart")) {
        status = tutti_comm_create(ctx, &desc, &other);
        return status == TUTTI_OK ? apart(*comm, other, ctx) : status;
    }
    if (differs_at("mixed")) return tutti_comm_broadcast(*comm, ctx, grads, 8, TUTTI_F32, 0);
    if (!strcmp(point, "mixed"))
        return tutti_comm_all_reduce(*comm, ctx, grads, grads, 8, TUTTI_F32, TUTTI_SUM);
    int count = differs_at("counts") ? 4 : 8;
    if (!strcmp(point, "counts"))
        return tutti_comm_all_reduce(*comm, ctx, grads, grads, count, TUTTI_F32, TUTTI_SUM);

    at("verb");
    if (gives_up_at("gives_up_verb", *comm, &status)) return status;
    status = tutti_comm_all_reduce(*comm, ctx, grads, grads, COUNT, TUTTI_F32, TUTTI_SUM);
    if (status == TUTTI_OK) status = tutti_context_synchronize(ctx);
    if (status == TUTTI_OK) status = step(*sync, *comm, ctx, params, true);
    if (status != TUTTI_OK) return status;
    at("agree");
    no_memory_at("gives_up_agree", 1);
    no_memory_at("gives_up_gather", 2);
    status = tutti_comm_agree(*comm, TUTTI_OK);
    if (status != TUTTI_OK) return status;
    at("barrier");
    no_memory_at("gives_up_barrier", 1);
    status = tutti_comm_barrier(*comm, ctx);
    if (status != TUTTI_OK) return status;
    at("destroy");
    return TUTTI_OK;
}

int main(int argc, char **argv)
{
    int provided, local;
    MPI_Comm node;
    if (argc != 5) return 64;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    point = argv[3];
    bool cuda = strcmp(argv[1], "cuda") == 0;
    spread = strcmp(argv[2], "spread") == 0;
    const bool copies = spread || strcmp(argv[2], "copy") == 0;
    const bool hops = strcmp(argv[2], "hop") == 0;
    tutti_transport transport =
        strcmp(argv[2], "mpi") == 0 ? TUTTI_TRANSPORT_MPI : TUTTI_TRANSPORT_NCCL;
    engine = copies ? TUTTI_ENGINE_COPY : TUTTI_ENGINE_TRANSPORT;
    list_engine = hops ? TUTTI_ENGINE_AUTO : TUTTI_ENGINE_TRANSPORT;
    tutti_set_log(say, NULL, TUTTI_LOG_INFO);
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = cuda ? TUTTI_BACKEND_CUDA : TUTTI_BACKEND_HOST;
    int devices = 1;
    tutti_context *ctx = NULL;
    tutti_comm *comm = NULL;
    tutti_grad_sync *sync = NULL;
    tutti_status status = tutti_device_count(desc.backend, &devices);
    if (devices > 0) desc.device = local % devices;
    if (status == TUTTI_OK) status = tutti_context_create(&desc, &ctx);
    start = MPI_Wtime();
    if (status == TUTTI_OK) status = run(ctx, transport, atof(argv[4]), &comm, &sync);
    leave(status);

    /* a dead communicator fails at once, and destroying it does not wait either */
    start = MPI_Wtime();
    if (comm && status != TUTTI_OK) {
        tutti_status again = tutti_comm_barrier(comm, ctx);
        printf("rank %d: barrier after %.2f s: %s\n", rank, MPI_Wtime() - start, name_of(again));
    }
    start = MPI_Wtime();
    if (status == TUTTI_ERR_COMM && store_sync && !cuda) {
        tutti_status again = tutti_adamw_update(adamw, ctx, block);
        printf("rank %d: update after %.2f s: %s: %s\n", rank, MPI_Wtime() - start, name_of(again),
               tutti_last_error());
    }
    start = MPI_Wtime();
    tutti_grad_sync_destroy(&store_sync);
    tutti_grad_sync_destroy(&sync);
    tutti_comm_destroy(&comm);
    if (status == TUTTI_ERR_COMM && !tutti_comm_lost()) printf("rank %d: forgotten\n", rank);
    printf("rank %d: destroyed after %.2f s\n", rank, MPI_Wtime() - start);
    fflush(stdout);
    /* let the others print, too: the last may return a whole deadline later */
    sleep(strncmp(point, "gives_up", 8) ? (unsigned)atof(argv[4]) + 2 : 2);
    MPI_Abort(MPI_COMM_WORLD, 2);
}
