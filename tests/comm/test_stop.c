/* No rank hangs: one is stopped in set-up, in a verb, in the gradient exchange and at the end;
 * every other rank returns within the deadline and names it, and mpirun returns the program's 2.
 * The same if one rank calls something else than the others, or gives up, then long before the
 * deadline.  A living rank that waits anywhere is never named.  Starts stop_rank under mpirun. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "harness.h"

enum { SLACK = 5, LONG_DEADLINE = 30 };

static char output[65536]; /* of the ranks that were started last */
static int deadline;       /* theirs, in seconds */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The line of a rank that begins "rank R: what …"; NULL if there is none. */
static const char *line_of(const char *text, int rank, const char *what)
{
    char key[64];
    snprintf(key, sizeof key, "rank %d: %s after ", rank, what);
    const char *found = strstr(text, key);
    return found ? found + strlen(key) : NULL;
}

static bool says(const char *line, const char *word)
{
    size_t length = strcspn(line, "\n");
    const char *found = strstr(line, word);
    return found && found < line + length;
}

/* fails: expects the deadline's error; names: expects it to name the stopped rank. */
static void check_survivor(const char *output, int rank, int stopped, bool fails, bool names)
{
    char name[32], plain[32];
    snprintf(name, sizeof name, "heard from rank %d", stopped);
    snprintf(plain, sizeof plain, "not finished");
    const char *line = line_of(output, rank, "back");
    if (!CHECK(line != NULL, "rank %d did not come back:\n%s", rank, output)) return;
    CHECK(atof(line) <= deadline + SLACK, "rank %d came back after %.4s s", rank, line);
    if (fails) {
        CHECK(says(line, "TUTTI_ERR_COMM"), "rank %d: %.200s", rank, line);
        CHECK(says(line, plain), "rank %d: %.200s", rank, line);
        CHECK(says(line, name) == names, "rank %d: rank %d is%s named: %.200s", rank, stopped,
              names ? " not" : "", line);
    }
    const char *again = line_of(output, rank, "barrier");
    if (again)
        CHECK(atof(again) < 0.5 && says(again, "TUTTI_ERR_COMM"), "rank %d, dead: %.100s", rank,
              again);
    const char *update = line_of(output, rank, "update");
    if (update) /* whatever the step had come to, it tells of the dead rank */
        CHECK(atof(update) < 0.5 && says(update, "TUTTI_ERR_COMM") && says(update, "is dead: ") &&
                  says(update, name) == names,
              "rank %d, dead: %.300s", rank, update);
    const char *destroyed = line_of(output, rank, "destroyed");
    CHECK(destroyed && atof(destroyed) < 2, "rank %d waits in destroy: %.20s", rank,
          destroyed ? destroyed : "for ever");
}

static void run_ranks_until(const char *transport, int ranks, const char *point, int wanted)
{
    char command[1024];
    deadline = wanted;
    snprintf(command, sizeof command, "timeout -k 5 90 '%s' %s %d %s '%s' %s %s %s %d 2>&1",
             MPIEXEC, MPIEXEC_NUMPROC, ranks, MPIEXEC_FLAGS, STOP_RANK,
             harness_backend() == TUTTI_BACKEND_CUDA ? "cuda" : "host", transport, point, deadline);
    double begin = now();
    FILE *pipe = popen(command, "r");
    output[0] = 0;
    if (!CHECK(pipe != NULL, "popen fails")) return;
    size_t used = fread(output, 1, sizeof output - 1, pipe);
    output[used] = 0;
    int status = pclose(pipe);
    double seconds = now() - begin;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2, "mpirun ends with %d, want 2:\n%s",
          WIFEXITED(status) ? WEXITSTATUS(status) : -1, output);
    CHECK(seconds < 60, "the job took %.1f s", seconds); /* on a busy machine its start takes 20 */
}

static void run_ranks(const char *transport, int ranks, const char *point)
{
    run_ranks_until(transport, ranks, point, 3);
}

/* Skips the test, with the reason, where there are no copy engines, or sums in one hop, to test. */
static bool cannot(const char *text)
{
    const char *reason = strstr(text, "engine is copy, which cannot");
    if (!reason) reason = strstr(text, "small sums of an exchange by the transport");
    if (reason) harness_skip("%.200s", reason);
    return reason != NULL;
}

/* The last rank gives up: the others return at once, with its reason. */
static void give_up_for(const char *reason, const char *transport, int ranks, const char *point)
{
    harness_where("%s, %d ranks, %s", transport, ranks, point);
    run_ranks_until(transport, ranks, point, LONG_DEADLINE);
    if (cannot(output)) return;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "TUTTI_ERR_COMM: rank %d gave up: %s", ranks - 1, reason);
    for (int r = 0; r < ranks; r++) {
        const char *line = line_of(output, r, "back");
        if (!CHECK(line != NULL, "rank %d did not come back:\n%s", r, output)) continue;
        CHECK(atof(line) < 3, "rank %d came back after %.4s s", r, line);
        CHECK(says(line, r < ranks - 1 ? wanted : reason), "rank %d: %.200s", r, line);
        const char *destroyed = line_of(output, r, "destroyed");
        CHECK(destroyed && atof(destroyed) < 2, "rank %d waits in destroy", r);
    }
    harness_where(NULL);
}

static void give_up_at(const char *transport, int ranks, const char *point)
{
    give_up_for("the disk is full", transport, ranks, point);
    CHECK(cannot(output) || strstr(output, "gave up, success"), "the rank could not give up:\n%s",
          output);
}

static void stop_at(const char *transport, int ranks, const char *point)
{
    harness_where("%s, %d ranks, stopped at %s", transport, ranks, point);
    run_ranks(transport, ranks, point);
    if (cannot(output)) return;
    for (int r = 0; r < ranks - 1; r++)
        check_survivor(output, r, ranks - 1, strcmp(point, "destroy") != 0,
                       !strstr(point, "launches"));
    if (harness_backend() == TUTTI_BACKEND_HOST && strstr(point, "shard"))
        CHECK(line_of(output, 0, "update") != NULL, "there was no update:\n%s", output);
    harness_where(NULL);
}

/* No rank stops, but the last one acts differently from the others; returns the output. */
static const char *part_at(const char *point)
{
    enum { RANKS = 3 };
    run_ranks("mpi", RANKS, point);
    for (int r = 0; r < RANKS; r++) {
        const char *line = line_of(output, r, "back");
        if (!CHECK(line != NULL, "rank %d did not come back:\n%s", r, output)) continue;
        CHECK(atof(line) <= deadline + SLACK, "rank %d came back after %.4s s", r, line);
    }
    return output;
}

/* Each side reports where the other waits. */
static void another_verb(void)
{
    const char *text = part_at("mixed");
    const char *one = line_of(text, 0, "back"), *other = line_of(text, 2, "back");
    if (one) CHECK(says(one, "while rank 2 waits in broadcast"), "rank 0: %.200s", one);
    if (other) CHECK(says(other, "while ranks 0, 1 wait in all_reduce"), "rank 2: %.200s", other);
}

/* A rank that receives more than it expects gets a status: MPI does not end the process. */
static void another_count(void)
{
    const char *line = line_of(part_at("counts"), 2, "back");
    if (line) CHECK(says(line, "TUTTI_ERR_COMM: all_reduce: MPI failed"), "rank 2: %.200s", line);
}

/* Ranks `first` to `last` - 1 name exactly these ranks, followed by `more`. */
static void check_named(int first, int last, const char *named, const char *more)
{
    char wanted[96];
    snprintf(wanted, sizeof wanted, "heard from %s%s\n", named, more);
    for (int r = first; r < last; r++) {
        const char *line = line_of(output, r, "back");
        if (!CHECK(line != NULL, "rank %d did not come back:\n%s", r, output)) continue;
        const char *found = strstr(line, "heard from ");
        CHECK(found && !strncmp(found, wanted, strlen(wanted)), "rank %d: %.200s, want %s", r, line,
              wanted);
    }
    CHECK(!strstr(output, "forgotten"), "tutti_comm_lost says nothing:\n%s", output);
}

static void late(void)
{
    run_ranks("mpi", 5, "late");
    check_named(0, 3, "ranks 3, 4", "");
}

static void middle(void)
{
    run_ranks("mpi", 4, "middle");
    check_named(0, 1, "rank 1", "");
    check_named(2, 4, "rank 1", "");
}

static void midway(void)
{
    run_ranks("mpi", 3, "midway");
    check_named(1, 2, "rank 0", "");
    check_named(2, 3, "rank 0", ", which had entered it");
}

static void apart(void)
{
    run_ranks("mpi", 3, "apart");
    check_named(0, 2, "rank 2", "");
}

static void mpi_gives_up(void)
{
    give_up_at("mpi", 3, "gives_up_verb");
    give_up_at("mpi", 3, "gives_up_exchange");
}

/* For want of memory for what it is told. */
static void no_memory(void)
{
#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ /* as in stop_rank.c */
    give_up_for("agree: no memory", "mpi", 3, "gives_up_agree");
    give_up_for("agree: no memory", "mpi", 3, "gives_up_gather");
    give_up_for("barrier: no memory", "mpi", 3, "gives_up_barrier");
#else
    harness_skip("the allocator cannot be replaced here");
#endif
}

static void over_mpi(const char *point)
{
    stop_at("mpi", 3, point);
}

/* Ranks with a GPU each; 0: skipped. */
static int nccl_ranks(void)
{
    int ranks = harness_devices() < 4 ? harness_devices() : 4;
    if (harness_backend() == TUTTI_BACKEND_CUDA && ranks >= 2) return ranks;
    harness_skip("nccl wants 2 GPUs, there are %d", harness_devices());
    return 0;
}

static void on_gpus(const char *transport, const char *point)
{
    int ranks = nccl_ranks();
    if (ranks) stop_at(transport, ranks, point);
}

static void nccl_gives_up(void)
{
    int ranks = nccl_ranks();
    if (!ranks) return;
    give_up_at("nccl", ranks, "gives_up_verb");
    give_up_at("nccl", ranks, "gives_up_exchange");
}

/* The same GPUs, with sums in one hop. */
static void over_hops(const char *point)
{
    int ranks = nccl_ranks();
    if (!ranks) return;
    stop_at("hop", ranks, point);
    CHECK(strstr(output, "small sums"), "the sums do not go in one hop:\n%s", output);
}

static void hops_exchange(void)
{
    over_hops("exchange");
}

static void hops_launches(void)
{
    over_hops("launches");
}

static void hops_give_up(void)
{
    int ranks = nccl_ranks();
    if (ranks) give_up_at("hop", ranks, "gives_up_exchange");
}

/* The same GPUs, with a sharded store by copy engines, or with one that is not. */
#define COPIES(name, transport, point) \
    static void name(void)             \
    {                                  \
        on_gpus(transport, point);     \
    }

COPIES(copies_exchange, "copy", "shard_exchange")
COPIES(copies_update, "copy", "shard_update")
COPIES(copies_gather, "copy", "shard_gather")
COPIES(copies_launches, "copy", "shard_launches")
COPIES(spread_exchange, "spread", "shard_exchange")
COPIES(spread_launches, "spread", "shard_launches")

static void copies_give_up(void)
{
    int ranks = nccl_ranks();
    if (ranks) give_up_at("copy", ranks, "gives_up_shard");
}

static void spread_gives_up(void)
{
    int ranks = nccl_ranks();
    if (ranks) give_up_at("spread", ranks, "gives_up_shard");
}

#define AT(point)                  \
    static void mpi_##point(void)  \
    {                              \
        over_mpi(#point);          \
    }                              \
    static void nccl_##point(void) \
    {                              \
        on_gpus("nccl", #point);   \
    }

AT(setup)
AT(verb)
AT(exchange)
AT(agree)
AT(barrier)
AT(destroy)
AT(shard_exchange)
AT(shard_update)
AT(shard_gather)

/* Found by the watchdog, which does not know the late rank. */
static void nccl_launches(void)
{
    on_gpus("nccl", "launches");
}

#define TESTS(name, transport)                                                                     \
    {name " stopped in set-up", transport##_setup}, {name " stopped in a verb", transport##_verb}, \
        {name " stopped in the exchange", transport##_exchange},                                   \
        {name " stopped in agree", transport##_agree},                                             \
        {name " stopped in a barrier", transport##_barrier},                                       \
        {name " stopped in a sharded exchange", transport##_shard_exchange},                       \
        {name " stopped before a sharded update", transport##_shard_update},                       \
        {name " stopped before the values are gathered", transport##_shard_gather},                \
    {                                                                                              \
        name " stopped before destroy", transport##_destroy                                        \
    }

static const harness_test tests[] = {
    TESTS("mpi:", mpi),
    {"mpi: another verb on one rank", another_verb},
    {"mpi: another count on one rank", another_count},
    {"mpi: others come late", late},
    {"mpi: others have gone on", middle},
    {"mpi: stopped while it waits", midway},
    {"mpi: others wait with another communicator", apart},
    {"mpi: a rank gives up", mpi_gives_up},
    {"mpi: a rank has no memory", no_memory},
    TESTS("nccl:", nccl),
    {"nccl: stopped while the others launch on", nccl_launches},
    {"nccl: a rank gives up", nccl_gives_up},
    {"one hop: stopped in the exchange", hops_exchange},
    {"one hop: stopped while the others launch on", hops_launches},
    {"one hop: a rank gives up", hops_give_up},
    {"copy engines: stopped in a sharded exchange", copies_exchange},
    {"copy engines: stopped before a sharded update", copies_update},
    {"copy engines: stopped before the values are gathered", copies_gather},
    {"copy engines: stopped while the others launch on", copies_launches},
    {"copy engines: a rank gives up", copies_give_up},
    {"copy engines, not sharded: stopped in the exchange", spread_exchange},
    {"copy engines, not sharded: stopped while the others launch on", spread_launches},
    {"copy engines, not sharded: a rank gives up", spread_gives_up},
};
enum { OVER_MPI = 17 };

int main(int argc, char **argv)
{
    int count = HARNESS_COUNT(tests);
    /* there is no nccl on the host */
    bool cuda = false;
    for (int i = 1; i + 1 < argc; i++)
        cuda |= !strcmp(argv[i], "--backend") && !strcmp(argv[i + 1], "cuda");
    return harness_main(argc, argv, "stopped ranks", tests, cuda ? count : OVER_MPI);
}
