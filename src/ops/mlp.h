/* MLP: two FusedLinear; include/tutti/mlp.h has the mathematics. */
#ifndef TUTTI_OPS_MLP_H
#define TUTTI_OPS_MLP_H

#include "ops/linear.h"

/* up.y is h, which is down.x; up.dy and down.dx, the gradient of h, are the operation's own, with
 * recompute in backward h and z (up.saved), too. */
typedef struct tutti__mlp_args {
    tutti__linear_args up, down;
    bool recompute;
} tutti__mlp_args;

#ifdef __cplusplus
extern "C" {
#endif

/* The operation made of the backend's FusedLinear. */
tutti_status tutti__mlp_plan(tutti_context *ctx, const void *args, bool backward,
                             tutti__plan *plan);
tutti_status tutti__mlp_forward(const tutti__job *job, const void *args);
tutti_status tutti__mlp_backward(const tutti__job *job, const void *args);

#ifdef __cplusplus
}
#endif
#endif
