/* Statistics of repeated measurements. */
#include "common/statistics.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double app_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

double app_quantile(const double *sorted, int count, double share)
{
    return sorted[(int)lrint(share * (count - 1))];
}
