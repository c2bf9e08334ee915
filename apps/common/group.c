/* The ranks of a program. */
#include "common/group.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef TUTTI_APPS_MPI
#include <mpi.h>
#endif

#include "common/exit_code.h"
#include "common/report.h"

/* How long a rank with a broken communicator waits for the others to leave with it. */
static const double leave_seconds = 1.0;

#ifdef TUTTI_APPS_MPI
/* How long MPI may take to start, unless group->timeout is longer: starting processes and loading
 * libraries may take longer than a wait for a silent rank should. */
static const double start_seconds = 120.0;
#endif

/* One variable may be left over in a shell, so two are required: PMIx (Open MPI, SLURM) and PMI
 * (MPICH, Intel) both set two. */
static bool launched(void)
{
    return (getenv("PMIX_NAMESPACE") && getenv("PMIX_RANK")) ||
           (getenv("PMI_RANK") && getenv("PMI_SIZE"));
}

/* The first of these variables that is set; fallback if none is, or without a launcher. */
static int launcher_number(const char *const *names, int fallback)
{
    for (; launched() && *names; names++) {
        const char *text = getenv(*names);
        if (text && *text) return atoi(text);
    }
    return fallback;
}

int app_launcher_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", NULL};
    return launcher_number(names, 0);
}

static int launcher_size(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
    return launcher_number(names, 1);
}

#ifdef TUTTI_APPS_MPI

static const char *const local_rank_names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                               "SLURM_LOCALID", NULL};
static const char *const local_size_names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                               NULL};

/* MPI_Init_thread, MPI_Finalize and MPI_Abort have no deadline: an alarm ends the process.  The
 * text is formatted in advance, as a signal handler may only write it. */
static char alarm_text[160];

static void on_alarm(int signal_number)
{
    (void)signal_number;
    ssize_t ignored = write(STDERR_FILENO, alarm_text, strlen(alarm_text));
    (void)ignored;
    _exit(APP_FAILED);
}

static void guard_begin(const app_group *group, const char *operation, double wanted)
{
    const unsigned seconds = wanted < 1.0 ? 1 : wanted < UINT_MAX ? (unsigned)(wanted + 0.5) : 0;
    snprintf(alarm_text, sizeof alarm_text,
             "%s: rank %d: %s did not return within %u s: another rank is not answering\n",
             program_invocation_short_name, group->rank, operation, seconds);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    alarm(seconds);
}

static void guard_end(void)
{
    alarm(0);
}

static int start_mpi(app_group *group, const char *program, int *argc, char ***argv)
{
    int provided = 0;
    guard_begin(group, "MPI_Init_thread", fmax(start_seconds, group->timeout));
    MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
    group->mpi = true;
    MPI_Comm_rank(MPI_COMM_WORLD, &group->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &group->world_size);
    group->local_rank = launcher_number(local_rank_names, -1);
    group->local_size = launcher_number(local_size_names, -1);
    if (group->local_rank < 0 || group->local_size < 1) {
        MPI_Comm machine;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, group->rank, MPI_INFO_NULL,
                            &machine);
        MPI_Comm_rank(machine, &group->local_rank);
        MPI_Comm_size(machine, &group->local_size);
        MPI_Comm_free(&machine);
    }
    guard_end();
    app_report_start(program, group->rank, group->world_size);
    /* the others wait while rank 0 waits for readers of its output, of which it may have several */
    if (group->world_size > 1) app_set_patience(group->timeout / 4);
    if (provided < MPI_THREAD_FUNNELED)
        return app_fail(APP_FAILED, "MPI offers thread level %d, want MPI_THREAD_FUNNELED (%d)",
                        provided, MPI_THREAD_FUNNELED);
    return APP_OK;
}

/* A barrier with a deadline; false if a rank did not arrive. */
static bool barrier_within(double seconds)
{
    MPI_Request request;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return false;
    const double end = app_now() + seconds;
    for (int done = 0; !done;) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (!done && app_now() > end) return false;
        if (!done) usleep(200);
    }
    return true;
}

static _Noreturn void abort_job(const app_group *group)
{
    fflush(NULL);
    guard_begin(group, "MPI_Abort", leave_seconds);
    MPI_Abort(MPI_COMM_WORLD, APP_FAILED);
    _exit(APP_FAILED);
}

static void leave_mpi(const app_group *group, double seconds)
{
    guard_begin(group, "MPI_Finalize", seconds);
    MPI_Finalize();
    guard_end();
}

#else

static bool barrier_within(double seconds)
{
    (void)seconds;
    return true;
}

static _Noreturn void abort_job(const app_group *group)
{
    (void)group;
    fflush(NULL);
    _exit(APP_FAILED);
}

static void leave_mpi(const app_group *group, double seconds)
{
    (void)group;
    (void)seconds;
}

#endif

/* Each rank prints what it knows and aborts the job: MPI_Finalize would wait for the missing
 * rank. */
static _Noreturn void leave_alone(const app_group *group, int code)
{
    const bool own = code != APP_OK, told = own && app_failure_is_comm();
    if (own && app_failure()[0]) app_complain("%s", app_failure());
    if (!told && tutti_comm_lost()) app_complain("%s", tutti_comm_lost());
    if (group->mpi) abort_job(group);
    exit(APP_FAILED);
}

/* Leaves after a communicator has failed.  A lost one forbids further MPI calls, as pending
 * messages would be matched with whatever is sent next.  If all ranks had the same failure (a
 * set-up that they refused together), rank 0 prints it and all leave in order. */
static _Noreturn void leave_failed(const app_group *group, int code)
{
    if (tutti_comm_lost() || !group->mpi || !barrier_within(leave_seconds))
        leave_alone(group, code);
    app_warn("%s", app_failure());
    fflush(NULL);
    if (!barrier_within(leave_seconds)) abort_job(group);
    leave_mpi(group, leave_seconds);
    exit(APP_FAILED);
}

static void leave_if_lost(const app_group *group, int code)
{
    if (tutti_comm_lost() || (code != APP_OK && app_failure_is_comm())) leave_failed(group, code);
}

int app_group_start(app_group *group, const char *program, int *argc, char ***argv, double timeout,
                    bool need_mpi)
{
    *group = (app_group){.world_size = 1, .local_size = 1, .timeout = timeout};
    app_set_patience(timeout);
    group->rank = app_launcher_rank();
    app_report_start(program, group->rank, launcher_size());
#ifdef TUTTI_APPS_MPI
    if (need_mpi || launched()) APP_TRY(start_mpi(group, program, argc, argv));
#else
    (void)argc;
    (void)argv;
    if (launcher_size() > 1)
        return app_fail(APP_FAILED,
                        "a launcher started %d ranks, but this program was built without MPI",
                        launcher_size());
    if (need_mpi)
        return app_fail(APP_FAILED,
                        "this transport needs MPI, which this program was built without");
    group->rank = 0;
#endif
    tutti_context_desc host = TUTTI_CONTEXT_DESC_INIT;
    host.backend = TUTTI_BACKEND_HOST;
    host.threads = 1;
    APP_CHECK(tutti_context_create(&host, &group->host));
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.timeout = timeout;
    int code = app_check(tutti_comm_create(group->host, &desc, &group->control));
    leave_if_lost(group, code);
    return code;
}

/* A failure as ranks send it to each other. */
typedef struct notice {
    int32_t code;
    char message[APP_MESSAGE_MAX];
} notice;

int app_group_agree(app_group *group, int code)
{
    leave_if_lost(group, code);
    if (group->world_size == 1 || !group->control) return code;

    /* the worst code first, then the lowest rank */
    enum { SPAN = 1 << 24 };
    const int32_t severity = code == APP_OK ? 0 : code == APP_PREEMPTED ? 1 : 2;
    int32_t mine = severity ? severity * SPAN + (SPAN - 1 - group->rank) : 0, worst = 0;
    if (app_check(tutti_comm_all_reduce(group->control, group->host, &mine, &worst, 1, TUTTI_I32,
                                        TUTTI_MAX)))
        leave_failed(group, APP_FAILED);
    if (worst == 0) return APP_OK;
    const int from = SPAN - 1 - worst % SPAN;

    notice said = {.code = code};
    snprintf(said.message, sizeof said.message, "%s", app_failure());
    if (app_check(
            tutti_comm_broadcast(group->control, group->host, &said, sizeof said, TUTTI_U8, from)))
        leave_failed(group, APP_FAILED);
    if (said.code == APP_PREEMPTED || from == 0) return app_fail(said.code, "%s", said.message);
    return app_fail(said.code, "rank %d: %s", from, said.message);
}

int app_group_largest(app_group *group, double *values, int count)
{
    for (int i = 0; i < count; i++)
        if (isnan(values[i])) values[i] = INFINITY;
    return app_check(tutti_comm_all_reduce(group->control, group->host, values, values, count,
                                           TUTTI_F64, TUTTI_MAX));
}

int app_group_leave(app_group *group, int code)
{
    if (tutti_comm_lost()) leave_failed(group, code);
    if (code != APP_OK && code != APP_PREEMPTED && app_failure()[0]) {
        if (group->control)
            app_warn("%s", app_failure());
        else /* no other rank knows of it */
            app_complain("%s", app_failure());
    }
    fflush(NULL);
    if (group->control && app_check(tutti_comm_barrier(group->control, group->host)))
        leave_failed(group, APP_FAILED);
    tutti_comm_destroy(&group->control);
    tutti_context_destroy(&group->host);
    if (group->mpi) leave_mpi(group, group->timeout);
    group->mpi = false;
    return code;
}
