/* The control of a communicator: small messages in host memory, and where each rank waits. */
#ifndef TUTTI_COMM_CONTROL_H
#define TUTTI_COMM_CONTROL_H

#include "comm/wait.h"

/* How ranks exchange a few bytes of host memory and tell each other where they wait.  An all-reduce
 * cannot tell who is late, so a rank that has waited a while announces its operation point to
 * point; at the deadline it asks all ranks and names those that do not answer. */
struct tutti__control {
    /* recv [world_size * bytes] = every rank's send [bytes] */
    tutti_status (*gather)(tutti_comm *comm, const void *send, void *recv, size_t bytes,
                           const char *operation);
    tutti_status (*broadcast)(tutti_comm *comm, void *data, size_t bytes, int root,
                              const char *operation);
    /* optional: fails unless the calling thread may use it; who: for the message */
    tutti_status (*thread)(const tutti_comm *comm, const char *who);
    /* The rest but destroy is optional, all or none. */
    /* announces where this rank waits; never blocks */
    void (*announce)(const tutti__wait *wait);
    /* receives announcements and answers questions; true if any was about this communicator */
    bool (*receive)(const tutti__wait *wait);
    /* asks the other ranks to answer, which a waiting rank does at its next poll */
    void (*ask)(const tutti__wait *wait);
    /* all ranks have answered */
    bool (*answered)(const tutti_comm *comm);
    /* discards what was announced so far */
    void (*forget)(tutti_comm *comm);
    /* lists the ranks ("rank 2") that have not answered, either those known to have entered the
     * operation or the others */
    void (*silent)(const tutti__wait *wait, bool had_entered, char *text, size_t size);
    /* lists the ranks that wait in another operation ("ranks 1, 2 wait in broadcast") */
    void (*elsewhere)(const tutti__wait *wait, char *text, size_t size);
    /* tells the others that this rank gives up; may take a second */
    void (*give_up)(tutti_comm *comm, const char *reason);
    /* the first rank known to have given up, with its reason; -1: none */
    int (*gave_up)(const tutti_comm *comm, char *reason, size_t size);

    /* never waits for other ranks; after comm->dead does not communicate */
    void (*destroy)(tutti_comm *comm);
};

extern const tutti__control tutti__self_control;

#endif
