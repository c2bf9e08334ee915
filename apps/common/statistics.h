/* Statistics of repeated measurements. */
#ifndef TUTTI_APPS_STATISTICS_H
#define TUTTI_APPS_STATISTICS_H

/* Sorts the values and returns the median; for an even count the larger of the middle two.
 * count > 0. */
double app_median(double *values, int count);

/* The value of sorted ones that `share` of them, 0 to 1, are below: nearest rank.  count > 0. */
double app_quantile(const double *sorted, int count, double share);

#endif
