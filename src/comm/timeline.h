/* When things happen in a step of an exchange: events on a device, the clock on the host. */
#ifndef TUTTI_COMM_TIMELINE_H
#define TUTTI_COMM_TIMELINE_H

#include "comm/comm.h"

typedef enum tutti__moment {
    TUTTI__MOMENT_START,  /* of the step */
    TUTTI__MOMENT_FINISH, /* is called */
    TUTTI__MOMENT_READY,  /* of each range: backward has completed it, ... */
    TUTTI__MOMENT_BEGIN,  /* ... and its exchange */
    TUTTI__MOMENT_END
} tutti__moment;

typedef struct tutti__timeline tutti__timeline;

tutti_status tutti__timeline_open(tutti_comm *comm, int ranges, tutti__timeline **opened);
/* Of a dead communicator's events nothing is known: they stay. */
void tutti__timeline_close(tutti__timeline **closing);
/* Now, on a stream.  times NULL: nothing.  range: 0 where the moment is the step's. */
tutti_status tutti__timeline_mark(tutti__timeline *times, tutti__moment moment, int range,
                                  tutti__stream stream);
/* The step's end: the next one is marked apart from it. */
void tutti__timeline_next(tutti__timeline *times);
/* Waits for the last finished step; as tutti_grad_sync_get_timeline. */
tutti_status tutti__timeline_read(tutti__timeline *times, double *ready, double *begin, double *end,
                                  double *finish);

#endif
