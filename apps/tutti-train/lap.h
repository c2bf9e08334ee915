/* The time of steps: a lap goes from one reported step to the next. */
#ifndef TUTTI_TRAIN_LAP_H
#define TUTTI_TRAIN_LAP_H

#include "common/group.h"

/* A lap is an interval of this rank's clock, at whose beginning and end a step has just ended on
 * the device; time not spent in steps (a save) moves its beginning.  Times are in seconds. */
typedef struct laps {
    double begin, end;
    int64_t steps;
    double waited; /* for the sums of the steps' gradients */
    double agreed; /* in the agreements after steps */
    int64_t rows;  /* that this rank has computed */
    int64_t sent;  /* bytes_sent of the exchange when the lap began */

    /* of all laps, mean over the ranks */
    double stepping, waiting; /* in steps; of that, for the exchange */
    double *gathered;         /* [world_size][LAP_PARTS] */
    double *range_ends;       /* [ranges of the exchange], ms: room for a timeline */
} laps;

/* What ranks gather for a line: their part of the mean loss; and for each step of the lap, the
 * milliseconds spent computing and waiting, the rows computed and the bytes of gradients sent. */
enum { LAP_LOSS, LAP_OWN, LAP_WAITING, LAP_ROWS, LAP_SENT, LAP_PARTS };

/* The times that a line reports. */
typedef struct lap {
    double loss, ms;
    double fastest_ms, slowest_ms; /* of the ranks, without waiting */
    const double *ranks;           /* [world_size][LAP_PARTS] */
} lap;

/* On failure laps_free cleans up. */
int laps_create(laps *laps, const app_group *group);
void laps_free(laps *laps);
/* Begins a lap, whose first step began at `begin`: time before that was not spent in steps. */
int laps_begin(laps *laps, const tutti_grad_sync *sync, double begin);
/* Adds the time this rank waited for the last step's exchange, which has finished. */
int laps_waited(laps *laps, tutti_grad_sync *sync);
/* Gathers all ranks' parts of the lap until its end, which is set.  on_host: steps are computed on
 * the host.  loss: this rank's part.  Collective. */
int laps_gather(laps *laps, const app_group *group, const tutti_grad_sync *sync, bool on_host,
                double loss, lap *lap);

#endif
