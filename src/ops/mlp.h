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

/* What a plan keeps: those of the calls, the last one, up's forward, if backward recomputes. */
enum { TUTTI__MLP_UP, TUTTI__MLP_DOWN, TUTTI__MLP_AGAIN, TUTTI__MLP_CALLS };
typedef struct tutti__mlp_plans {
    tutti__plan of[TUTTI__MLP_CALLS];
    /* NULL, or set by a backend that computes dz = (dy W2) act'(z) and partial sums for db1 at
     * once, where operands allow that: writes dz to args->up.dy, and the sums, if db1 is wanted, to
     * args->up.dbias_partial, which is `partial` bytes into the scratch. */
    bool (*forms_dz)(const tutti__mlp_args *args);
    tutti_status (*form_dz)(tutti_context *ctx, const void *args);
    size_t partial;
} tutti__mlp_plans;

#ifdef __cplusplus
extern "C" {
#endif

/* The operation made of the backend's FusedLinear; the plan's data is a tutti__mlp_plans. */
tutti_status tutti__mlp_plan(tutti_context *ctx, const void *args, bool backward,
                             tutti__plan *plan);
tutti_status tutti__mlp_forward(const tutti__job *job, const void *args);
tutti_status tutti__mlp_backward(const tutti__job *job, const void *args);

#ifdef __cplusplus
}
#endif
#endif
