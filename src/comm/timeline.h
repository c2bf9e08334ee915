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
/* The events of a dead communicator are not destroyed: they may never complete. */
void tutti__timeline_close(tutti__timeline **closing);
/* Marks a moment on a stream.  times NULL: does nothing.  range: 0 for a moment of the step. */
tutti_status tutti__timeline_mark(tutti__timeline *times, tutti__moment moment, int range,
                                  tutti__stream stream);
/* The same moment of several ranges. */
tutti_status tutti__timeline_mark_ranges(tutti__timeline *times, tutti__moment moment, int first,
                                         int last, tutti__stream stream);
/* Ends the step; the next one's marks are separate. */
void tutti__timeline_next(tutti__timeline *times);
/* Waits for the last finished step; as tutti_grad_sync_get_timeline. */
tutti_status tutti__timeline_read(tutti__timeline *times, double *ready, double *begin, double *end,
                                  double *finish);

#endif
