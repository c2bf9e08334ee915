/* tutti-bench checkpoint: a store of f32 masters with AdamW's m and v, saved and loaded by all
 * ranks, compared with a plain write with fsync and a plain read of as many bytes by one process,
 * in turns.
 *
 * FILE and FILE.plain are created, and removed at the end: neither may exist before.  Each round
 * writes new files, so that freeing old ones is not measured, and reads from the disk: the file's
 * pages are dropped from the cache first, where the file system allows it.  Loaded data are
 * compared with what was saved. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/device.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "common/signals.h"
#include "common/statistics.h"
#include "options.h"

enum { PARAMS = 24, PIECE = 8 << 20 };

typedef struct checkpoint_options {
    app_common common;
    const char *path;
    int64_t bytes, rounds;
} checkpoint_options;

typedef struct bench {
    const checkpoint_options *options;
    app_group *group;
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_params *params;
    tutti_param param[PARAMS];
    tutti_tensor tensors[3]; /* masters, m, v: flat */
    tutti_checkpoint *list;
    size_t bytes; /* of each of the three */
    char *host;   /* their contents, one after the other */
    char *piece;  /* for comparing */
    char *back;   /* what was read from the plain file, on rank 0 */
    char plain[PATH_MAX];
} bench;

static int fail(const char *what)
{
    return app_fail(APP_FAILED, "%s: %s", what, strerror(errno));
}

/* The state */

static int build(bench *b)
{
    int64_t count = b->options->bytes / 12 / PARAMS;
    APP_CHECK(tutti_params_create(b->ctx, NULL, &b->params));
    for (int i = 0; i < PARAMS; i++) {
        tutti_param *param = &b->param[i];
        snprintf(param->name, sizeof param->name, "block%d/weight", i);
        /* not a multiple of anything */
        param->value = tutti_tensor_1d(NULL, TUTTI_F32, count > 64 ? count - i : count);
        param->weight_decay = param->lr_scale = 1;
        APP_CHECK(tutti_params_add_param(b->params, param));
    }
    APP_CHECK(tutti_params_build(b->params, b->ctx));
    APP_CHECK(tutti_params_flat(b->params, TUTTI_PARAMS_MASTER, &b->tensors[0]));
    b->bytes = (size_t)b->tensors[0].dims[0] * sizeof(float);
    APP_CHECK(tutti_checkpoint_create(b->ctx, b->comm, &b->list));
    APP_CHECK(tutti_checkpoint_add_params(b->list, b->params));
    for (int i = 1; i < 3; i++) {
        void *data;
        APP_CHECK(tutti_alloc(b->ctx, b->bytes, &data));
        b->tensors[i] = tutti_tensor_1d(data, TUTTI_F32, b->tensors[0].dims[0]);
        const tutti_state_tensor state = {i == 1 ? "m" : "v", b->tensors[i], 1};
        APP_CHECK(tutti_checkpoint_add_state(b->list, b->params, &state));
    }
    return APP_OK;
}

/* Random in the parameters, zero between them. */
static int fill(bench *b)
{
    b->host = calloc(3, b->bytes);
    b->piece = malloc(PIECE);
    b->back = malloc(b->group->rank == 0 ? 3 * b->bytes : 1);
    if (!b->host || !b->piece || !b->back) return app_fail(APP_FAILED, "no memory for the data");
    /* touch its pages: a tensor's are mapped too */
    memset(b->back, 1, b->group->rank == 0 ? 3 * b->bytes : 1);
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
    return APP_OK;
}

static int put(bench *b)
{
    for (int t = 0; t < 3; t++)
        APP_CHECK(tutti_copy(b->ctx, b->tensors[t].data, b->host + (size_t)t * b->bytes, b->bytes));
    return app_check(tutti_context_synchronize(b->ctx));
}

static int forget(bench *b)
{
    for (int t = 0; t < 3; t++) APP_CHECK(tutti_zero(b->ctx, b->tensors[t].data, b->bytes));
    return app_check(tutti_context_synchronize(b->ctx));
}

static int compare(bench *b)
{
    bool same = true;
    for (int t = 0; t < 3; t++)
        for (size_t at = 0; at < b->bytes; at += PIECE) {
            size_t part = b->bytes - at < PIECE ? b->bytes - at : PIECE;
            APP_CHECK(tutti_copy(b->ctx, b->piece, (char *)b->tensors[t].data + at, part));
            APP_CHECK(tutti_context_synchronize(b->ctx));
            same = same && memcmp(b->piece, b->host + (size_t)t * b->bytes + at, part) == 0;
        }
    return same ? APP_OK : app_fail(APP_MISMATCH, "the loaded data differ from what was saved");
}

/* Files: on rank 0. */

static int drop_from_cache(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0) return fail(path);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return APP_OK;
}

/* Moves all data to or from a file that is open. */
static int transfer(const bench *b, int fd, bool writes)
{
    for (size_t at = 0; at < 3 * b->bytes;) {
        size_t part = 3 * b->bytes - at < PIECE ? 3 * b->bytes - at : PIECE;
        ssize_t done = writes ? write(fd, b->host + at, part) : read(fd, b->back + at, part);
        if (done <= 0) return fail(b->plain);
        at += (size_t)done;
    }
    return !writes || fsync(fd) == 0 ? APP_OK : fail(b->plain);
}

static int time_plain(const bench *b, bool writes, double *seconds)
{
    double begin = app_now();
    int fd = open(b->plain, writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0666);
    if (fd < 0) return fail(b->plain);
    int code = transfer(b, fd, writes);
    if (close(fd) != 0 && code == APP_OK) code = fail(b->plain);
    *seconds = app_now() - begin;
    return code;
}

/* Measuring */

enum { SAVE, WRITE, LOAD, READ, KINDS };

static int plain(bench *b, double *seconds)
{
    if (b->group->rank != 0) return APP_OK;
    unlink(b->plain);
    sync(); /* what freeing an old file costs the disk is not measured */
    APP_TRY(time_plain(b, true, &seconds[WRITE]));
    APP_TRY(drop_from_cache(b->plain));
    return time_plain(b, false, &seconds[READ]);
}

static int save(bench *b, double *seconds)
{
    const double begin = app_now();
    APP_CHECK(tutti_checkpoint_save(b->list, b->options->path, 0));
    APP_CHECK(tutti_comm_barrier(b->group->control, b->group->host));
    *seconds = app_now() - begin;
    return APP_OK;
}

static int load(bench *b, double *seconds)
{
    const double begin = app_now();
    APP_CHECK(tutti_checkpoint_load(b->list, b->options->path, 0));
    APP_CHECK(tutti_comm_barrier(b->group->control, b->group->host));
    *seconds = app_now() - begin;
    return APP_OK;
}

static int checkpoint(bench *b, double *seconds)
{
    app_group *group = b->group;
    const bool root = group->rank == 0;
    if (root) {
        unlink(b->options->path);
        sync();
    }
    APP_TRY(app_group_agree(group, put(b)));
    APP_TRY(app_group_agree(group, save(b, &seconds[SAVE])));
    int code = forget(b);
    if (code == APP_OK && root) code = drop_from_cache(b->options->path);
    APP_TRY(app_group_agree(group, code));
    return app_group_agree(group, load(b, &seconds[LOAD]));
}

static void say_line(const bench *b, const char *name, const double *seconds)
{
    double gigabytes = 3e-9 * (double)b->bytes;
    app_say("%6s  %6.2f  %6.2f  %5.0f %%    %6.2f  %6.2f  %5.0f %%", name,
            gigabytes / seconds[SAVE], gigabytes / seconds[WRITE],
            100 * seconds[WRITE] / seconds[SAVE], gigabytes / seconds[LOAD],
            gigabytes / seconds[READ], 100 * seconds[READ] / seconds[LOAD]);
}

/* In alternating order, as a disk may be fast only for a while. */
static int measure(bench *b, int round, double *seconds)
{
    app_group *group = b->group;
    if (round % 2) APP_TRY(app_group_agree(group, plain(b, seconds)));
    APP_TRY(checkpoint(b, seconds));
    if (round % 2 == 0) APP_TRY(app_group_agree(group, plain(b, seconds)));
    return app_group_agree(group, compare(b));
}

static int measure_all(bench *b)
{
    const int rounds = (int)b->options->rounds;
    double *all = calloc((size_t)rounds * KINDS, sizeof *all), medians[KINDS];
    if (!all) return app_fail(APP_FAILED, "no memory for the times");
    app_say("%.2f GB of masters, m and v on the %s, %d ranks, to %s", 3e-9 * (double)b->bytes,
            tutti_context_backend(b->ctx) == TUTTI_BACKEND_CUDA ? "GPU" : "host",
            b->group->world_size, b->options->path);
    app_say(" round    save   plain   share      load   plain   share   (GB/s)");
    int code = APP_OK;
    for (int i = 0; i < rounds && code == APP_OK; i++) {
        double seconds[KINDS] = {0};
        char name[16];
        code = measure(b, i, seconds);
        for (int k = 0; k < KINDS; k++) all[k * rounds + i] = seconds[k];
        snprintf(name, sizeof name, "%d", i + 1);
        if (code == APP_OK) say_line(b, name, seconds);
    }
    for (int k = 0; k < KINDS; k++) medians[k] = app_median(all + k * rounds, rounds);
    free(all);
    if (code == APP_OK) say_line(b, "median", medians);
    if (code == APP_OK) app_say("loaded data: equal to what was saved");
    return code;
}

/* What is removed at the end must be this program's own. */
static int refuse_existing(const char *path)
{
    struct stat there;
    if (lstat(path, &there) != 0) return APP_OK;
    return app_fail(APP_USAGE, "%s exists and would be removed", path);
}

static int time_checkpoints(bench *b)
{
    const checkpoint_options *o = b->options;
    app_group *group = b->group;
    APP_TRY(app_group_agree(group, app_device_open(group, o->common.backend, 0, &b->ctx)));
    APP_TRY(
        app_group_agree(group, app_device_connect(group, b->ctx, o->common.transport, &b->comm)));
    int code = build(b);
    if (code == APP_OK) code = fill(b);
    APP_TRY(app_group_agree(group, code));
    return measure_all(b);
}

static void release(bench *b)
{
    tutti_checkpoint_destroy(&b->list);
    for (int t = 1; t < 3 && b->ctx; t++) (void)tutti_free(b->ctx, &b->tensors[t].data);
    tutti_params_destroy(&b->params);
    tutti_comm_destroy(&b->comm);
    tutti_context_destroy(&b->ctx);
    free(b->host);
    free(b->piece);
    free(b->back);
}

static int run(void *given, app_group *group)
{
    const checkpoint_options *o = given;
    bench b = {.options = o, .group = group};
    signals_leave_at_once();
    snprintf(b.plain, sizeof b.plain, "%s.plain", o->path);
    int code = group->rank == 0 ? refuse_existing(o->path) : APP_OK;
    if (code == APP_OK && group->rank == 0) code = refuse_existing(b.plain);
    APP_TRY(app_group_agree(group, code));
    code = time_checkpoints(&b);
    if (group->rank == 0) {
        unlink(o->path);
        unlink(b.plain);
    }
    release(&b);
    return code;
}

static error_t check(struct argp_state *state, void *options)
{
    const checkpoint_options *o = options;
    const app_common *asked = &o->common;
    if (!o->path && !asked->help && !asked->usage && !asked->version)
        return app_usage_error(state, "--path FILE is missing");
    return 0;
}

static const app_option table[] = {
    {"path", "FILE",
     "where to save; FILE and FILE.plain must not exist, and are removed at the end",
     .kind = APP_TEXT, .at = offsetof(checkpoint_options, path)},
    {"bytes", "N", "of masters, m and v together", "1000000000", .kind = APP_INT,
     .at = offsetof(checkpoint_options, bytes), .least = 12 * PARAMS, .most = 1e15},
    {"rounds", "N", "of which the median is taken", "5", .kind = APP_INT,
     .at = offsetof(checkpoint_options, rounds), .least = 1, .most = 100000},
};

const app_command bench_checkpoint_command = {
    .program = "tutti-bench checkpoint",
    .doc = "Times saving and loading a checkpoint on all ranks, compared with a plain write, with "
           "fsync, and a plain read of as many bytes by one process, and checks that the loaded "
           "data are what was saved.\v"
           "Exit code: 0 good, 1 loaded data differ, 2 the run failed, 64 wrong command line, 75 "
           "stopped by SIGTERM, SIGINT or SIGUSR1.",
    .options = table,
    .count = sizeof table / sizeof table[0],
    .ranks = 1,
    .size = sizeof(checkpoint_options),
    .check = check,
    .run = run};
