/* The ranks of a program: how they start, agree, and leave together.
 *
 * Ranks must not part ways, neither for a fault on one of them nor at the end: the first rank
 * that exits with a code other than 0 makes mpirun kill the rest, last lines included.  So every
 * rank brings its code to app_group_agree, all go on with the worst of them, rank 0 says why,
 * and all leave by app_group_leave. A rank that cannot reach the others says so and aborts the
 * job: nobody waits for ever. */
#ifndef TUTTI_APPS_GROUP_H
#define TUTTI_APPS_GROUP_H

#include <stdbool.h>

#include "tutti/tutti.h"

typedef struct app_group {
    int rank, world_size;
    int local_rank, local_size; /* among the ranks of this machine */
    double timeout;             /* seconds that any wait may last, once MPI has started */
    bool mpi;                   /* MPI was started and must be left */
    tutti_context *host;
    tutti_comm *control; /* host memory: for agreements and small sums, beside the training's own */
} app_group;

/* This process's rank as its launcher says, before MPI is started; 0 without a launcher. */
int app_launcher_rank(void);

/* Starts MPI if a launcher started this process or need_mpi says so, and makes the control
 * communicator.  MPI's start may take 120 s, or timeout if that is longer.  A failure is final:
 * app_group_leave follows. */
int app_group_start(app_group *group, const char *program, int *argc, char ***argv, double timeout,
                    bool need_mpi);

/* Collective.  0 if all ranks bring 0; otherwise the code of the lowest rank with the worst one
 * (any failure is worse than APP_PREEMPTED), whose message becomes everybody's app_failure().
 * If this rank's failure came from a communicator, or the others do not answer, it does not
 * return; nor does it where any communicator of this process has died. */
int app_group_agree(app_group *group, int code);

/* Each value becomes the largest of all ranks'; NaN becomes infinite.  Collective. */
int app_group_largest(app_group *group, double *values, int count);

/* Collective.  Says on rank 0 why (for a code other than 0 and APP_PREEMPTED), waits until all
 * are here, leaves MPI and returns the code that main returns.  As above, it may not return. */
int app_group_leave(app_group *group, int code);

#endif
