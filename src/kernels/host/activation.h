/* Activations of rows of REALs. */
#ifndef TUTTI_KERNELS_HOST_ACTIVATION_H
#define TUTTI_KERNELS_HOST_ACTIVATION_H

#include "kernels/host/host.h"
#include "ops/activation.h"

/* row = act(row) */
void tutti__activate_f32(float *row, tutti__activation activation, int64_t count);
void tutti__activate_f64(double *row, tutti__activation activation, int64_t count);

/* What act' is computed from: z, or y = act(z) if that suffices. */
typedef enum tutti__slope_from { TUTTI__FROM_Z, TUTTI__FROM_Y } tutti__slope_from;

/* d = d act' */
void tutti__activate_backward_f32(float *restrict d, const float *restrict v,
                                  tutti__slope_from from, tutti__activation activation,
                                  int64_t count);
void tutti__activate_backward_f64(double *restrict d, const double *restrict v,
                                  tutti__slope_from from, tutti__activation activation,
                                  int64_t count);

#endif
