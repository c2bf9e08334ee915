/* Saves that are killed at random moments and at each of their steps, on one rank or on all.
 * Whatever the moment, the file is the complete old or new one, a temporary file that is left is
 * complete or refused, and the next save works. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

/* What the library logs at debug level as each step of a save ends, and whether on all ranks. */
static const struct {
    const char *name;
    bool everywhere;
} steps[] = {
    {"begins", true},        {"owns the file", true},
    {"laid out", true},      {"made the temporary file", false},
    {"reserved", false},     {"marked", false},
    {"wrote a round", true}, {"synced the tensors", true},
    {"completed", false},    {"synced", false},
    {"rotated", false},      {"linked", false},
    {"renamed", false},      {"synced the folder", false},
};

/* Small: its twenty tensors are twenty blocks, so there are several rounds. */
static state *make(void)
{
    return state_make(TUTTI_TRANSPORT_SELF, TUTTI_F32, false);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Loads path, which must be complete, and returns which of the two seeds it has (0: neither). */
static uint64_t seed_of(state *s, const char *path, uint64_t a, uint64_t b)
{
    const char *what;
    state_fill(s, 12345);
    if (!CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0))) return 0;
    uint64_t seed = state_is(s, a, &what) ? a : state_is(s, b, &what) ? b : 0;
    CHECK(seed, "%s is of neither seed", path);
    return seed;
}

/* After a kill: the file has one of the seeds, and a temporary file is complete or refused. */
static uint64_t check_left(state *s, const char *path, uint64_t before, uint64_t after)
{
    char temporary[300];
    uint64_t seed = seed_of(s, path, before, after);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (!file_exists(temporary)) return seed;
    tutti_status status = tutti_checkpoint_load(s->checkpoint, temporary, 0);
    const char *what = "";
    if (status == TUTTI_OK)
        CHECK(state_is(s, after, &what), "a temporary file whose %s is wrong was accepted", what);
    else
        CHECK(status == TUTTI_ERR_DATA, "a temporary file: %s", tutti_last_error());
    return seed;
}

/* A child process that saves and is killed after some time, or by its own log callback. */
static const char *fatal_step;

static void on_log(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    const char *step = strrchr(message, ':');
    if (step && strcmp(step + 2, fatal_step) == 0) raise(SIGKILL);
}

static bool save_and_kill(state *s, const char *path, uint64_t seed, int keep, double seconds)
{
    pid_t child = fork();
    if (child == 0) {
        state_fill(s, seed);
        if (fatal_step) tutti_set_log(on_log, NULL, TUTTI_LOG_DEBUG);
        _exit(tutti_checkpoint_save(s->checkpoint, path, keep) == TUTTI_OK ? 0 : 1);
    }
    if (!CHECK(child > 0, "fork: %s", strerror(errno))) return false;
    if (!fatal_step) {
        struct timespec pause = {0, (long)(seconds * 1e9)};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "the save failed");
    return WIFSIGNALED(status);
}

static double seconds_of_save(state *s, const char *path)
{
    double best = 1;
    for (int i = 0; i < 5; i++) {
        double begin = now();
        CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
        if (now() - begin < best) best = now() - begin;
    }
    return best;
}

static void test_random_moments(void)
{
    enum { KILLS = 220 };
    state *s = make();
    const char *path = in_folder("random");
    state_fill(s, 1);
    double whole = seconds_of_save(s, path);
    harness_rng rng = {7};
    uint64_t seed = 1;
    int kills = 0, news = 0, left = 0;
    double longest = 1.5 * whole + 0.004; /* filling takes time, too */
    for (int i = 0; kills < KILLS && i < 20 * KILLS && harness_failures() < 5; i++) {
        uint64_t next = seed + 1;
        harness_where("kill %d", kills);
        bool killed = save_and_kill(s, path, next, 1, harness_uniform(&rng, 0, longest));
        left += file_exists(in_folder("random.tmp"));
        uint64_t found = check_left(s, path, seed, next);
        if (killed) {
            kills++;
            news += found == next;
        } else
            CHECK(found == next, "a completed save is missing");
        /* on slow machines the save would end too often or never begin */
        longest *= killed ? 1.02 : 0.9;
        seed = found ? found : seed;
        state_fill(s, seed);
    }
    harness_where(NULL);
    CHECK(kills == KILLS, "only %d of %d saves were killed", kills, KILLS);
    CHECK(left > 10, "only %d kills left a temporary file: they come too early or late", left);
    printf("%d killed: %d left the new file, %d a temporary one\n", kills, news, left);
    state_fill(s, seed + 1);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
    seed_of(s, path, seed + 1, seed + 1);
    CHECK(!file_exists(in_folder("random.tmp")), "the temporary file is still there");
    state_free(&s);
}

/* The file is the new one from the rename on, and the old one before. */
static void check_age(const char *step, uint64_t found, uint64_t before, uint64_t after)
{
    bool late = strcmp(step, "renamed") == 0 || strcmp(step, "synced the folder") == 0;
    CHECK(found == (late ? after : before), "killed when it had %s: the %s file is there", step,
          late ? "old" : "new");
}

/* Two files, so that there is something to rotate, and a state to save. */
static uint64_t prepare(state *s, const char *path)
{
    for (uint64_t seed = 1; seed <= 2; seed++) {
        state_fill(s, seed);
        CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 2));
    }
    return 2;
}

/* The older files are complete, too, and the next save cleans up. */
static void check_older(state *s, const char *path, uint64_t found)
{
    char older[300];
    snprintf(older, sizeof older, "%s.1", path);
    if (file_exists(older)) seed_of(s, older, found, found - 1);
    state_fill(s, 50);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 2));
    seed_of(s, path, 50, 50);
    seed_of(s, older, found, found);
    snprintf(older, sizeof older, "%s.2", path);
    seed_of(s, older, 1, 2);
    snprintf(older, sizeof older, "%s.tmp", path);
    CHECK(!file_exists(older), "the temporary file is still there");
}

static void test_each_step(void)
{
    state *s = make();
    const char *path = in_folder("step");
    for (int i = 0; i < HARNESS_COUNT(steps); i++) {
        harness_where("killed at '%s'", steps[i].name);
        prepare(s, path);
        fatal_step = steps[i].name;
        CHECK(save_and_kill(s, path, 3, 2, 0), "the save did not reach this step");
        fatal_step = NULL;
        uint64_t found = check_left(s, path, 2, 3);
        check_age(steps[i].name, found, 2, 3);
        check_older(s, path, found);
    }
    harness_where(NULL);
    state_free(&s);
}

#ifdef SAVE_RANK
static void kill_under_mpirun(state *s, const char *path, int step, int victim)
{
    char command[1200];
    prepare(s, path);
    snprintf(command, sizeof command,
             "SAVE_BIG=0 SAVE_PATH='%s' SAVE_SEED=3 SAVE_KEEP=2 SAVE_STEP='%s' SAVE_VICTIM=%d "
             "timeout -k 5 60 '%s' %s 2 %s '%s' --only save >/dev/null 2>&1",
             path, steps[step].name, victim, MPIEXEC, MPIEXEC_NUMPROC, MPIEXEC_FLAGS, SAVE_RANK);
    harness_where("killed at '%s', %s %d", steps[step].name, victim < 0 ? "all ranks" : "rank",
                  victim);
    int status = system(command);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 124,
          "mpirun ends with %d", WEXITSTATUS(status));
    uint64_t found = check_left(s, path, 2, 3);
    /* when another rank dies, rank 0 may get further before it notices */
    if (victim < 1) check_age(steps[step].name, found, 2, 3);
    check_older(s, path, found);
}

static void test_each_step_of_two_ranks(void)
{
    state *s = make();
    for (int i = 0; i < HARNESS_COUNT(steps); i++)
        for (int victim = -1; victim <= (steps[i].everywhere ? 1 : 0); victim++)
            kill_under_mpirun(s, in_folder("ranks"), i, victim);
    harness_where(NULL);
    state_free(&s);
}
#endif

static const rig_test tests[] = {
    {"random moments", test_random_moments, 0, 0, false},
    {"each step", test_each_step, 0, 0, false},
#ifdef SAVE_RANK
    {"each step of two ranks", test_each_step_of_two_ranks, 0, 0, false},
#endif
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "killed saves", tests, HARNESS_COUNT(tests));
}
