/* One rank of a save, or of a load.  Started under mpirun by test_kill and test_files, with its
 * parameters in the environment: SAVE_PATH, SAVE_SEED, SAVE_KEEP, SAVE_BIG (0 or 1); SAVE_STEP and
 * SAVE_VICTIM: at that step, named by the library's debug lines, this rank ends by SIGKILL (-1: all
 * ranks, when the first of them reaches it). */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state.h"

static int pids[64], victim;
static const char *wanted;

static void on_log(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    const char *step = strrchr(message, ':');
    if (!step || strcmp(step + 2, wanted) != 0) return;
    for (int r = 0; victim == -1 && r < rig_size(); r++)
        if (r != rig_rank()) kill(pids[r], SIGKILL);
    if (victim == -1 || victim == rig_rank()) raise(SIGKILL);
}

static state *make(void)
{
    return state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, atoi(getenv("SAVE_BIG")));
}

static void load(void)
{
    state *s = make();
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, getenv("SAVE_PATH"), 0));
    CHECK_STATE(s, atoi(getenv("SAVE_SEED")));
    state_free(&s);
}

static void save(void)
{
    int mine = (int)getpid();
    MPI_Allgather(&mine, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
    victim = atoi(getenv("SAVE_VICTIM"));
    wanted = getenv("SAVE_STEP");
    state *s = make();
    state_fill(s, (uint64_t)atoi(getenv("SAVE_SEED")));
    rig_barrier();
    tutti_set_log(on_log, NULL, TUTTI_LOG_DEBUG);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, getenv("SAVE_PATH"), atoi(getenv("SAVE_KEEP"))));
    tutti_set_log(NULL, NULL, TUTTI_LOG_DEBUG);
    state_free(&s);
}

static const rig_test tests[] = {{"save", save, 0, 0, false}, {"load", load, 0, 0, false}};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "a save or a load", tests, HARNESS_COUNT(tests));
}
