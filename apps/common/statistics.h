/* Statistics of repeated measurements. */
#ifndef TUTTI_APPS_STATISTICS_H
#define TUTTI_APPS_STATISTICS_H

/* Sorts the values and returns the median; for an even count the larger of the middle two.
 * count > 0. */
double app_median(double *values, int count);

#endif
