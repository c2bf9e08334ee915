/* Losses that are means over a row's elements, forward only: MSE and BCE of logits.
 * include/tutti/mse.h and bce_with_logits.h have the mathematics. */
#ifndef TUTTI_OPS_LOSS_H
#define TUTTI_OPS_LOSS_H

#include "core/op.h"
#include "tutti/step.h"

typedef enum tutti__loss_kind { TUTTI__LOSS_MSE, TUTTI__LOSS_BCE } tutti__loss_kind;

typedef struct tutti__loss_args {
    tutti__loss_kind kind;
    int64_t rows, cols;
    double each;       /* factor of an element's own derivative: 1 / cols, twice that for MSE */
    double pos_weight; /* of BCE */
    tutti__matrix x, target;
    void *loss;                    /* optional; f32 or f64 as the arithmetic */
    double *loss_sum;              /* optional */
    tutti__matrix dx;              /* optional; may be x */
    const tutti_step_values *step; /* on the device; optional */
    int32_t finding;               /* the code for findings: a row with the target's column */
} tutti__loss_args;

/* What an element's own derivative is multiplied by; read on the device. */
static inline TUTTI__ANYWHERE double tutti__loss_factor(const tutti__loss_args *args)
{
    const tutti_step_values *step = args->step;
    return step ? args->each * step->loss_weight * step->loss_scale : args->each;
}

#endif
