/* One rank of a save that is killed: at a step, which the library's debug lines name, the victims end by SIGKILL.  Started under
 * mpirun by test_kill, and told by the environment: SAVE_PATH, SAVE_SEED, SAVE_KEEP, SAVE_STEP, SAVE_VICTIM (a rank; -1: all
 * ranks, when the first of them comes to the step). */
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

static void save(void)
{
    int mine = (int)getpid();
    MPI_Allgather(&mine, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
    victim = atoi(getenv("SAVE_VICTIM"));
    wanted = getenv("SAVE_STEP");
    tutti_comm *comm = rig_comm(rig_context(), TUTTI_TRANSPORT_AUTO, 0);
    state *s = state_make(rig_context(), comm, TUTTI_F32, true);
    state_fill(s, (uint64_t)atoi(getenv("SAVE_SEED")));
    rig_barrier();
    tutti_set_log(on_log, NULL, TUTTI_LOG_DEBUG);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, getenv("SAVE_PATH"), atoi(getenv("SAVE_KEEP"))));
    tutti_set_log(NULL, NULL, TUTTI_LOG_DEBUG);
    state_free(&s);
    tutti_comm_destroy(&comm);
}

static const rig_test tests[] = {{"save", save, 0, 0, false}};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "a save that is killed", tests, HARNESS_COUNT(tests));
}
