/* The learning rate and the loss scale of each step. */
#ifndef TUTTI_TRAIN_SCHEDULE_H
#define TUTTI_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* The learning rate of a step, from 1 to total: it rises in equal steps to `peak` during the
 * warm-up, then falls along half a cosine and would reach 0 one step after the last.
 * [Loshchilov & Hutter 2017, one cycle] */
double schedule_lr(int64_t step, int64_t warmup, int64_t total, double peak);

/* The loss scale of f16.  A power of two, so scaling is exact; every rank sees the same summed
 * gradients and so computes the same scale.   [Micikevicius et al. 2018] */
typedef struct loss_scale {
    double value;
    int64_t good; /* updates since the last change */
} loss_scale;

enum { LOSS_SCALE_GROWTH = 500 }; /* good updates after which it doubles */

/* After an update: halves if it was skipped, doubles after LOSS_SCALE_GROWTH good ones.  False if
 * the scale is so small that it cannot be the cause of the overflow. */
bool loss_scale_adapt(loss_scale *scale, bool skipped);

#endif
