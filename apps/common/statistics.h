/* What repeated measurements come to. */
#ifndef TUTTI_APPS_STATISTICS_H
#define TUTTI_APPS_STATISTICS_H

/* Sorts the values, the smallest first, and returns that in the middle; of an even number the
 * larger of the two.  count > 0. */
double app_median(double *values, int count);

#endif
