/* A parameter store's internals. */
#ifndef TUTTI_CORE_PARAMS_H
#define TUTTI_CORE_PARAMS_H

#include "core/context.h"
#include "tutti/param.h"

/* A place in the flat buffers.  Tied parameters share one. */
typedef struct tutti__slot {
    tutti_param *param;    /* the one that gives the slot its name, factors and init */
    int64_t offset, count; /* elements */
    int users;             /* parameters that share it */
} tutti__slot;

/* A parameter that was added, in the order of adding. */
typedef struct tutti__params_entry {
    tutti_param *param;
    tutti_layer *layer; /* held; NULL for a parameter of the caller's own */
    int tied_to;        /* entry whose slot it shares; itself if none */
    bool frozen;
    int slot; /* after build */
} tutti__params_entry;

struct tutti_params {
    tutti__holders holders;
    const tutti__backend *backend;
    int device;
    tutti_params_desc desc;
    tutti__params_entry *entries;
    int entry_count, entry_room;
    bool built;
    /* after build */
    tutti__slot *slots;            /* in layout order */
    int slot_count, trained_slots; /* those that are trained come first */
    /* elements of each flat buffer, and of the gradients, which frozen slots have none of:
     * multiples of TUTTI_PARAM_ALIGN */
    int64_t count, trained;
    void *master, *grad, *working; /* working NULL: every value has the masters' type */
    tutti_dtype working_dtype;
    /* Kept by the exchanges of this store, read by its optimizers: with an exchange, an update
     * wants sums. */
    int exchanges;
    bool summed; /* by a finish, since when no gradient was ready and no update was made */
};

/* A name in a store: one that fits into a checkpoint, as model/<name> and
 * optimizer/<name>/<state>. */
#define TUTTI__NAME_PARTS_MAX 14
/* Parts of a path: letters, digits and ._- in parts split by /, none of which is made of dots
 * alone; 0 if it is no such path. */
int tutti__path_parts(const char *name);
/* One is the other or a folder above it. */
bool tutti__paths_collide(const char *a, const char *b);

/* A parameter is bound, its tensors are as tutti_param_bind and _bind_master leave them, and *name
 * is one as in a store, or NULL and becomes the parameter's own.  function: for the message. */
tutti_status tutti__param_check(const tutti_param *param, const char **name, const char *function);

/* The slot of a parameter in the store; −1 if it is not there or the store is not built. */
int tutti__params_slot_of(const tutti_params *params, const tutti_param *param);

/* A whole tensor of state fits the store, if it says that it is laid out like it. */
tutti_status tutti__state_check(const tutti_params *params, const tutti_state_tensor *state,
                                const char *function);

/* Gives up a hold (tutti__hold). */
void tutti__params_release(tutti_params *params);

/* TUTTI_ERR_STATE before build and after destroy, TUTTI_ERR_ARG for a context on another device.
 * function: for the message. */
tutti_status tutti__params_ready(const tutti_params *params, const tutti_context *ctx,
                                 const char *function);

#endif
