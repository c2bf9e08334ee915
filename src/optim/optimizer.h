/* What optimizers have in common: the state, the tables of the store's parameters, a step. */
#ifndef TUTTI_OPTIM_OPTIMIZER_H
#define TUTTI_OPTIM_OPTIMIZER_H

#include <stdlib.h>

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

    /* Once its statistics have been asked for, an update sends them to the host. */
    const tutti_context *asked;  /* by way of this context; NULL: they are read when asked for */
    tutti__update_state *result; /* page-locked */
    tutti__event sent;
    bool is_sent;  /* the last update has sent them on that context */
    bool captured; /* graphs may send them, unknown to the host: they are read */
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

/* Defines tutti_X and its public functions, except create and apply. */
#define TUTTI__OPTIMIZER(name)                                                        \
    struct tutti_##name {                                                             \
        tutti__optimizer own;                                                         \
    };                                                                                \
    tutti_##name##_desc tutti_##name##_desc_default(void)                             \
    {                                                                                 \
        return (tutti_##name##_desc)TUTTI_DESC_INIT(tutti_##name##_desc);             \
    }                                                                                 \
    void tutti_##name##_destroy(tutti_##name **name)                                  \
    {                                                                                 \
        if (!name || !*name) return;                                                  \
        tutti__optimizer_close(&(*name)->own);                                        \
        free(*name);                                                                  \
        *name = NULL;                                                                 \
    }                                                                                 \
    tutti_status tutti_##name##_update(tutti_##name *name, tutti_context *ctx,        \
                                       const tutti_step_block *step)                  \
    {                                                                                 \
        TUTTI_REQUIRE(name, #name "_update: " #name " is NULL");                      \
        return tutti__optimizer_update(&name->own, ctx, step, #name "_update");       \
    }                                                                                 \
    tutti_status tutti_##name##_get_stats(tutti_##name *name, tutti_context *ctx,     \
                                          tutti_##name##_stats *stats)                \
    {                                                                                 \
        tutti__optimizer_stats read;                                                  \
        TUTTI_REQUIRE(name, #name "_get_stats: " #name " is NULL");                   \
        TUTTI_REQUIRE(stats, #name "_get_stats: stats is NULL");                      \
        TUTTI_TRY(tutti__optimizer_read(&name->own, ctx, &read, #name "_get_stats")); \
        *stats = (tutti_##name##_stats){read.grad_norm, read.updates, read.skipped};  \
        return TUTTI_OK;                                                              \
    }                                                                                 \
    int tutti_##name##_state_count(const tutti_##name *name)                          \
    {                                                                                 \
        return name ? tutti__optimizer_state_count(&name->own) : 0;                   \
    }                                                                                 \
    tutti_status tutti_##name##_state_get(const tutti_##name *name, int index,        \
                                          tutti_state_tensor *state)                  \
    {                                                                                 \
        TUTTI_REQUIRE(name, #name "_state_get: " #name " is NULL");                   \
        return tutti__optimizer_state(&name->own, index, state, #name "_state_get");  \
    }

#endif
