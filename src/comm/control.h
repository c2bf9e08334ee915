/* The control of a communicator: a few bytes of host memory over the ranks, and who waits where. */
#ifndef TUTTI_COMM_CONTROL_H
#define TUTTI_COMM_CONTROL_H

#include "comm/wait.h"

/* How ranks exchange a few bytes of host memory, and how they tell each other where they wait.  An
 * all-reduce cannot tell who is late: so whoever has waited a while announces point to point in
 * which operation it is; at the deadline all are asked, and those that do not answer are named. */
struct tutti__control {
    /* recv [world_size * bytes] = everybody's send [bytes] */
    tutti_status (*gather)(tutti_comm *comm, const void *send, void *recv, size_t bytes,
                           const char *operation);
    tutti_status (*broadcast)(tutti_comm *comm, void *data, size_t bytes, int root,
                              const char *operation);
    /* optional: the calling thread may use it; who: for the message */
    tutti_status (*thread)(const tutti_comm *comm, const char *who);
    /* optional, all or none: */
    /* says once where this rank waits; never blocks */
    void (*announce)(const tutti__wait *wait);
    /* takes in what others said, and answers who asks; true if it was about this communicator */
    bool (*hear)(const tutti__wait *wait);
    /* asks the others for a sign of life, which those who wait give as soon as they hear of it */
    void (*ask)(const tutti__wait *wait);
    /* all have given one */
    bool (*answered)(const tutti_comm *comm);
    /* what was said before does not count any more */
    void (*forget)(tutti_comm *comm);
    /* writes the ranks ("rank 2") that have given none, and of which it is known, or is not, that
     * they had entered the operation */
    void (*silent)(const tutti__wait *wait, bool had_entered, char *text, size_t size);
    /* writes the ranks that wait somewhere else, and where ("ranks 1, 2 wait in broadcast") */
    void (*elsewhere)(const tutti__wait *wait, char *text, size_t size);
    /* tells the others that this rank goes no further; may take a second */
    void (*give_up)(tutti_comm *comm, const char *reason);
    /* the rank that has been heard to, with its reason; -1: none */
    int (*gave_up)(const tutti_comm *comm, char *reason, size_t size);

    /* never waits for other ranks; after comm->dead does not communicate */
    void (*destroy)(tutti_comm *comm);
};

extern const tutti__control tutti__self_control;

#endif
