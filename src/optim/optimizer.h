/* What optimizers have in common: the state, the tables of the store's parameters, a step. */
#ifndef TUTTI_OPTIM_OPTIMIZER_H
#define TUTTI_OPTIM_OPTIMIZER_H

#include "core/context.h"
#include "core/params.h"
#include "ops/update.h"

typedef struct tutti__optimizer {
    tutti_params *params;
    const tutti__backend *backend;
    int device;
    const char *const *states; /* names of args.state */
    int state_count;
    tutti__update_args args; /* of all updates; without step */
} tutti__optimizer;

typedef struct tutti__optimizer_stats {
    double grad_norm;
    int64_t updates;
    int skipped;
} tutti__optimizer_stats;

/* Checks what the descriptors have in common.  who: "adamw". */
tutti_status tutti__optimizer_check(double weight_decay, double clip_norm, const char *who);

/* Completes an optimizer whose states and args (rule, factors) are set: memory, tables, plans.
 * who: "adamw".  To be closed even if it fails. */
tutti_status tutti__optimizer_open(tutti__optimizer *own, tutti_context *ctx, tutti_params *params,
                                   const char *who);
void tutti__optimizer_close(tutti__optimizer *own);

/* who: the public function. */
tutti_status tutti__optimizer_update(tutti__optimizer *own, tutti_context *ctx,
                                     const tutti_step_block *step, const char *who);
tutti_status tutti__optimizer_read(tutti__optimizer *own, tutti_context *ctx,
                                   tutti__optimizer_stats *stats, const char *who);
/* The states, then "updates". */
int tutti__optimizer_state_count(const tutti__optimizer *own);
tutti_status tutti__optimizer_state(const tutti__optimizer *own, int index,
                                    tutti_state_tensor *state, const char *who);

#endif
