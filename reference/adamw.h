/* The result of AdamW's update of an element, and how far a correct implementation may be from
 * it. */
#ifndef TUTTI_REFERENCE_ADAMW_H
#define TUTTI_REFERENCE_ADAMW_H

#include <stdint.h>

#include "tutti/tensor.h"

typedef struct reference_adamw {
    double beta1, beta2, eps, weight_decay, learning_rate;
    double factor;       /* on gradients: clipping and 1 / loss_scale */
    double factor_error; /* relative */
    int64_t t;           /* of this update, from 1 */
    tutti_dtype dtype;
} reference_adamw;

typedef struct reference_adamw_state {
    double master, m, v;
} reference_adamw_state;

/* The state after, and its bounds. */
reference_adamw_state reference_adamw_update(const reference_adamw *adamw,
                                             const reference_adamw_state *before, double grad,
                                             reference_adamw_state *bound);

#endif
