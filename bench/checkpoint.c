/* What a checkpoint costs: a store of f32 masters with AdamW's m and v, saved and loaded by all ranks, beside a plain write
 * with fsync and a plain read of as many bytes by one process, in turns.
 *
 *     tutti-run -np 4 bench-checkpoint --path FILE [--bytes N] [--rounds N] [--backend host|cuda]
 *
 * FILE and FILE.plain are made, and removed at the end: neither may be there before.  What is written is new in every round (no old file has to be
 * freed meanwhile), and reads come from the disk: the file's pages are dropped from the cache before, where the file system
 * lets them.  Loaded data are compared with what was saved.  Prints a line a round and the medians on rank 0; exit code 1 if
 * the data differ, 2 if something else fails, 64 for a bad command line. */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/signals.h"
#include "tutti/tutti.h"

#define TRY(call)                           \
    do {                                    \
        if ((call) != TUTTI_OK) die(#call); \
    } while (0)

enum { PARAMS = 24, PIECE = 8 << 20 };

static void die(const char *what)
{
    fprintf(stderr, "bench-checkpoint: %s: %s\n", what, tutti_last_error());
    MPI_Abort(MPI_COMM_WORLD, APP_FAILED);
}

static void die_of_system(const char *what)
{
    fprintf(stderr, "bench-checkpoint: %s: %s\n", what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, APP_FAILED);
}

typedef struct options {
    const char *path;
    int64_t bytes;
    int rounds;
    tutti_backend backend;
} options;

typedef struct bench {
    options options;
    int rank, world;
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_params *params;
    tutti_param param[PARAMS];
    tutti_tensor tensors[3]; /* masters, m, v: flat */
    tutti_checkpoint *list;
    size_t bytes; /* of each of the three */
    char *host;   /* what they hold, one behind the other */
    char *piece;  /* for comparing */
    char plain[4096];
} bench;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The state */

static void build(bench *b)
{
    int64_t count = b->options.bytes / 12 / PARAMS;
    TRY(tutti_params_create(b->ctx, NULL, &b->params));
    for (int i = 0; i < PARAMS; i++) {
        tutti_param *param = &b->param[i];
        snprintf(param->name, sizeof param->name, "block%d/weight", i);
        /* not a multiple of anything */
        param->value = tutti_tensor_1d(NULL, TUTTI_F32, count > 64 ? count - i : count);
        param->weight_decay = param->lr_scale = 1;
        TRY(tutti_params_add_param(b->params, param));
    }
    TRY(tutti_params_build(b->params, b->ctx));
    TRY(tutti_params_flat(b->params, TUTTI_PARAMS_MASTER, &b->tensors[0]));
    b->bytes = (size_t)b->tensors[0].dims[0] * sizeof(float);
    TRY(tutti_checkpoint_create(b->ctx, b->comm, &b->list));
    TRY(tutti_checkpoint_add_params(b->list, b->params));
    for (int i = 1; i < 3; i++) {
        void *data;
        TRY(tutti_alloc(b->ctx, b->bytes, &data));
        b->tensors[i] = tutti_tensor_1d(data, TUTTI_F32, b->tensors[0].dims[0]);
        const tutti_state_tensor state = {i == 1 ? "m" : "v", b->tensors[i], 1, 0};
        TRY(tutti_checkpoint_add_state(b->list, b->params, &state));
    }
}

/* Random where a parameter is, zero between. */
static void fill(bench *b)
{
    b->host = calloc(3, b->bytes);
    b->piece = malloc(PIECE);
    if (!b->host || !b->piece) die_of_system("calloc");
    uint64_t state = 1;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < PARAMS; i++) {
            const tutti_tensor *master = &b->param[i].master;
            size_t at = (size_t)((char *)master->data - (char *)b->tensors[0].data);
            float *to = (float *)(b->host + (size_t)t * b->bytes + at);
            for (int64_t k = 0; k < master->dims[0]; k++) {
                state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                to[k] = (float)(int32_t)(state >> 32) * 0x1p-31f;
            }
        }
}

static void put(bench *b)
{
    for (int t = 0; t < 3; t++)
        TRY(tutti_copy(b->ctx, b->tensors[t].data, b->host + (size_t)t * b->bytes, b->bytes));
    TRY(tutti_context_synchronize(b->ctx));
}

static void forget(bench *b)
{
    for (int t = 0; t < 3; t++) TRY(tutti_zero(b->ctx, b->tensors[t].data, b->bytes));
    TRY(tutti_context_synchronize(b->ctx));
}

static bool is_back(bench *b)
{
    int same = 1;
    for (int t = 0; t < 3; t++)
        for (size_t at = 0; at < b->bytes; at += PIECE) {
            size_t part = b->bytes - at < PIECE ? b->bytes - at : PIECE;
            TRY(tutti_copy(b->ctx, b->piece, (char *)b->tensors[t].data + at, part));
            TRY(tutti_context_synchronize(b->ctx));
            same = same && memcmp(b->piece, b->host + (size_t)t * b->bytes + at, part) == 0;
        }
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return same;
}

/* Files */

static void drop_from_cache(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0) die_of_system(path);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static double plain_write(const bench *b)
{
    unlink(b->plain);
    sync(); /* what freeing an old file costs the disk is not measured */
    double begin = now();
    int fd = open(b->plain, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) die_of_system(b->plain);
    for (size_t at = 0; at < 3 * b->bytes;) {
        size_t part = 3 * b->bytes - at < PIECE ? 3 * b->bytes - at : PIECE;
        ssize_t done = write(fd, b->host + at, part);
        if (done <= 0) die_of_system(b->plain);
        at += (size_t)done;
    }
    if (fsync(fd) != 0 || close(fd) != 0) die_of_system(b->plain);
    return now() - begin;
}

static double plain_read(const bench *b, char *to)
{
    drop_from_cache(b->plain);
    double begin = now();
    int fd = open(b->plain, O_RDONLY);
    if (fd < 0) die_of_system(b->plain);
    for (size_t at = 0; at < 3 * b->bytes;) {
        size_t part = 3 * b->bytes - at < PIECE ? 3 * b->bytes - at : PIECE;
        ssize_t done = read(fd, to + at, part);
        if (done <= 0) die_of_system(b->plain);
        at += (size_t)done;
    }
    close(fd);
    return now() - begin;
}

/* Measuring */

enum { SAVE, WRITE, LOAD, READ, KINDS };

static void measure_plain(bench *b, double *seconds, char *to)
{
    if (b->rank == 0) {
        seconds[WRITE] = plain_write(b);
        seconds[READ] = plain_read(b, to);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void measure_checkpoint(bench *b, double *seconds)
{
    const char *path = b->options.path;
    put(b);
    if (b->rank == 0) {
        unlink(path);
        sync();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now();
    TRY(tutti_checkpoint_save(b->list, path, 0));
    MPI_Barrier(MPI_COMM_WORLD);
    seconds[SAVE] = now() - begin;
    forget(b);
    if (b->rank == 0) drop_from_cache(path);
    MPI_Barrier(MPI_COMM_WORLD);
    begin = now();
    TRY(tutti_checkpoint_load(b->list, path, 0));
    MPI_Barrier(MPI_COMM_WORLD);
    seconds[LOAD] = now() - begin;
}

static void print_line(const bench *b, const char *name, const double *seconds)
{
    double gigabytes = 3e-9 * (double)b->bytes;
    printf("%6s  %6.2f  %6.2f  %5.0f %%    %6.2f  %6.2f  %5.0f %%\n", name,
           gigabytes / seconds[SAVE], gigabytes / seconds[WRITE],
           100 * seconds[WRITE] / seconds[SAVE], gigabytes / seconds[LOAD],
           gigabytes / seconds[READ], 100 * seconds[READ] / seconds[LOAD]);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool run(bench *b)
{
    int rounds = b->options.rounds;
    double *all = calloc((size_t)rounds * KINDS, sizeof *all), medians[KINDS];
    char *to = malloc(b->rank == 0 ? 3 * b->bytes : 1);
    if (!all || !to) die_of_system("malloc");
    memset(to, 1, b->rank == 0 ? 3 * b->bytes : 1); /* its pages are there, as a tensor's are */
    if (b->rank == 0)
        printf("%.2f GB of masters, m and v on the %s, np %d, by %s\n"
               " round    save   plain   share      load   plain   share   (GB/s)\n",
               3e-9 * (double)b->bytes,
               tutti_context_backend(b->ctx) == TUTTI_BACKEND_CUDA ? "GPU" : "host", b->world,
               b->options.path);
    bool good = true;
    for (int i = 0; i < rounds; i++) {
        double seconds[KINDS] = {0};
        char name[16];
        /* in turns: a disk may be fast for a while only */
        if (i % 2) measure_plain(b, seconds, to);
        measure_checkpoint(b, seconds);
        if (i % 2 == 0) measure_plain(b, seconds, to);
        good = is_back(b) && good;
        for (int k = 0; k < KINDS; k++) all[k * rounds + i] = seconds[k];
        snprintf(name, sizeof name, "%d", i + 1);
        if (b->rank == 0) print_line(b, name, seconds);
    }
    for (int k = 0; k < KINDS; k++) {
        qsort(all + k * rounds, (size_t)rounds, sizeof *all, ascending);
        medians[k] = all[k * rounds + rounds / 2];
    }
    if (b->rank == 0) {
        print_line(b, "median", medians);
        printf("loaded data: %s\n", good ? "equal to what was saved" : "WRONG");
    }
    free(all);
    free(to);
    return good;
}

static void usage(void)
{
    fprintf(stderr, "usage: bench-checkpoint --path FILE [--bytes N] [--rounds N] "
                    "[--backend host|cuda|auto]\n");
    MPI_Abort(MPI_COMM_WORLD, APP_USAGE);
}

static options parse(int argc, char **argv)
{
    options o = {NULL, 1000000000, 5, TUTTI_BACKEND_AUTO};
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--path") == 0)
            o.path = value;
        else if (strcmp(argv[i], "--bytes") == 0)
            o.bytes = strtoll(value, NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0)
            o.rounds = atoi(value);
        else if (strcmp(argv[i], "--backend") == 0)
            o.backend = strcmp(value, "host") == 0   ? TUTTI_BACKEND_HOST
                        : strcmp(value, "cuda") == 0 ? TUTTI_BACKEND_CUDA
                                                     : TUTTI_BACKEND_AUTO;
        else
            usage();
    }
    if (!o.path || strlen(o.path) > 4000 || o.bytes < 12 * PARAMS || o.rounds < 1) usage();
    return o;
}

/* What is removed at the end must be this program's own. */
static void refuse_existing(const char *path)
{
    struct stat there;
    if (lstat(path, &there) != 0) return;
    fprintf(stderr, "bench-checkpoint: %s is there, and would be removed\n", path);
    MPI_Abort(MPI_COMM_WORLD, APP_USAGE);
}

int main(int argc, char **argv)
{
    int level, local = 0, devices = 0;
    bench b = {.rank = 0};
    signals_watch();
    signals_leave_at_once();
    signals_heeded(); /* mpirun sends one to the ranks that are left when one aborts */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.world);
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, b.rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    b.options = parse(argc, argv);
    snprintf(b.plain, sizeof b.plain, "%s.plain", b.options.path);
    if (b.rank == 0) {
        refuse_existing(b.options.path);
        refuse_existing(b.plain);
    }

    TRY(tutti_device_count(b.options.backend, &devices));
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = b.options.backend;
    desc.device = devices > 0 ? local % devices : 0;
    TRY(tutti_context_create(&desc, &b.ctx));
    TRY(tutti_comm_create(b.ctx, NULL, &b.comm));
    build(&b);
    fill(&b);
    bool good = run(&b);
    if (b.rank == 0) {
        unlink(b.options.path);
        unlink(b.plain);
    }
    fflush(stdout);
    TRY(tutti_comm_barrier(b.comm, b.ctx));
    tutti_checkpoint_destroy(&b.list);
    tutti_comm_destroy(&b.comm);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return good ? 0 : 1;
}
