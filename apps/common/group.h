/* The ranks of a program: how they start, agree, and leave together.
 *
 * Ranks must not diverge, neither on an error of one of them nor at the end: the first rank that
 * exits with a code other than 0 makes mpirun kill the rest, and their last lines are lost.  So
 * every rank passes its code to app_group_agree, all continue with the worst of them, rank 0 prints
 * the reason, and all leave by app_group_leave.  A rank that cannot reach the others says so and
 * aborts the job: no rank waits for ever. */
#ifndef TUTTI_APPS_GROUP_H
#define TUTTI_APPS_GROUP_H

#include <stdbool.h>

#include "tutti/tutti.h"

typedef struct app_group {
    int rank, world_size;
    int local_rank, local_size; /* among the ranks of this machine */
    double timeout;             /* longest wait, in seconds, once MPI has started */
    bool mpi;                   /* MPI was started and must be left */
    tutti_context *host;
    tutti_comm *control; /* for agreements and small sums in host memory */
} app_group;

/* This process's rank according to its launcher, before MPI is started; 0 without a launcher. */
int app_launcher_rank(void);

/* Starts MPI if a launcher started this process or need_mpi is set, and creates the control
 * communicator.  MPI's start may take 120 s, or timeout if that is longer.  After a failure, call
 * app_group_leave. */
int app_group_start(app_group *group, const char *program, int *argc, char ***argv, double timeout,
                    bool need_mpi);

/* Collective.  0 if all ranks pass 0; otherwise the code of the lowest rank with the worst one (any
 * failure is worse than APP_PREEMPTED), whose message becomes app_failure() of all ranks.  Does not
 * return if this rank's failure came from a communicator, if any communicator of this process is
 * lost, or if the others do not answer. */
int app_group_agree(app_group *group, int code);

/* Each value becomes the largest of all ranks'; NaN becomes infinite.  Collective. */
int app_group_largest(app_group *group, double *values, int count);

/* Collective.  Prints the failure on rank 0 (for a code other than 0 and APP_PREEMPTED), waits for
 * all ranks, finalizes MPI and returns the code for main.  As above, it may not return. */
int app_group_leave(app_group *group, int code);

#endif
