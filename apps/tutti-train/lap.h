/* What steps cost, from one line about a step to the next. */
#ifndef TUTTI_TRAIN_LAP_H
#define TUTTI_TRAIN_LAP_H

#include "common/group.h"

/* The lap is one interval of this rank's clock, at whose beginning and end no step is under way on
 * the device either; what was no step's (a save) moves its beginning on.  Times are in seconds. */
typedef struct laps {
    double begin;
    int64_t steps;
    double waited; /* of it, for the sums of its steps' gradients */
    double agreed; /* and in the agreements after them */
    int64_t rows;  /* that this rank has computed */
    int64_t sent;  /* the exchange's own count when the lap began */

    /* of all laps, mean over the ranks */
    double stepping, waiting; /* in steps; of that, for the exchange */
    double *gathered;         /* [world_size][LAP_PARTS] */
    double *range_ends;       /* [ranges of the exchange], ms: room for a timeline */
} laps;

/* What ranks tell each other for a line: their part of the mean loss; of each step of the lap, the
 * milliseconds in which it waited for others and those in which it did not, the rows computed and
 * the bytes of gradients sent. */
enum { LAP_LOSS, LAP_OWN, LAP_WAITING, LAP_ROWS, LAP_SENT, LAP_PARTS };

/* What a line is made of. */
typedef struct lap {
    double loss, ms;
    double fastest_ms, slowest_ms; /* of the ranks, without waiting */
    const double *ranks;           /* [world_size][LAP_PARTS] */
} lap;

/* On failure laps_free cleans up. */
int laps_create(laps *laps, const app_group *group);
void laps_free(laps *laps);
/* Forgets the time since the last line: it was not spent in steps. */
int laps_begin(laps *laps, const tutti_grad_sync *sync);
/* Adds how long the exchange of the step just looked at, which is over, has made this rank wait. */
int laps_waited(laps *laps, tutti_grad_sync *sync);
/* Brings the ranks' parts together.  on_host: the steps are computed there.  loss: this rank's
 * part.  Collective. */
int laps_gather(laps *laps, const app_group *group, const tutti_grad_sync *sync, bool on_host,
                double loss, lap *lap);

#endif
