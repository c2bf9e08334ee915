/* Learning rate and loss scale. */
#include "schedule.h"

#include <math.h>

double schedule_lr(int64_t step, int64_t warmup, int64_t total, double peak)
{
    if (step <= warmup) return peak * (double)step / (double)warmup;
    const double progress = (double)(step - 1 - warmup) / (double)(total - warmup);
    return peak * 0.5 * (1.0 + cos(3.14159265358979323846 * progress));
}

bool loss_scale_adapt(loss_scale *scale, bool skipped)
{
    const double least = 0x1p-24, most = 0x1p60;
    if (skipped) {
        scale->value *= 0.5;
        scale->good = 0;
        return scale->value >= least;
    }
    if (++scale->good >= LOSS_SCALE_GROWTH && scale->value < most) {
        scale->value *= 2.0;
        scale->good = 0;
    }
    return true;
}
