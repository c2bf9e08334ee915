/* A parameter store's internals. */
#ifndef TUTTI_CORE_PARAMS_H
#define TUTTI_CORE_PARAMS_H

#include <limits.h>

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

/* Elements of the flat buffers that follow each other. */
typedef struct tutti__span {
    int64_t first, count;
} tutti__span;

/* Squares of gradients are added in runs of as many elements of the flat buffer, and slices of a
 * sharded store consist of whole runs: so the bits of a norm do not depend on the sharding. */
#define TUTTI__NORM_RUN 16384

/* The slice of a range that a rank of a sharded store updates: whole runs, but at the range's
 * end. */
tutti__span tutti__shard_slice(const tutti__span *range, int shard, int shards);

/* Ranges, or slices, of so many elements at most are small beside the first one. */
static inline int64_t tutti__shard_small(int64_t first)
{
    return first / 8;
}

/* A part of the gradients that this rank updates. */
typedef struct tutti__slice {
    tutti__span span; /* begins with a run */
    int64_t local;    /* where it begins in the optimizer's state */
    void *master;
} tutti__slice;

/* Where other ranks have the values of a sharded store, in memory of the device that a kernel of
 * this rank may write to.  By rank, the pointers in device memory, too: rounded values; and the
 * first of those that are masters. */
typedef struct tutti__shard_replicas {
    void *const *rounded, *const *masters;
    int rank, world;
    int64_t most; /* elements of slices whose values an update writes there */
    /* NULL, or an event behind an update's last slices, of which there are so many and which it
     * then writes first. */
    void *early;
    int early_slices;
    /* Not 0 once the communicator is dead, when what an update reads may be anything, so that it
     * must change nothing. */
    const uint32_t *dead;
} tutti__shard_replicas;

/* What a sharded store's exchange does for it; all of it is collective. */
typedef struct tutti__shard_link {
    /* `to` = the sum of all ranks' `from`, which may be the same, each element being 0 on all ranks
     * but one.  In stream order. */
    tutti_status (*sum)(struct tutti__shard_link *self, tutti_context *ctx, const double *from,
                        double *to, int64_t count);
    /* Those of the gradients' runs, as an operation would find them, 0 for those of others, after
     * finish in its stream order.  NULL, or returns it: an operation has to. */
    const double *(*squares)(const struct tutti__shard_link *self);
    /* Begins, and ends, what sends each rank's slices of the values to all ranks: in between only
     * those slices, and what is frozen, are read and written.  met: since it last read values, ctx
     * has had a sum.  written: an update has written slices to the replicas, where there are any.
     * In stream order. */
    tutti_status (*begin)(struct tutti__shard_link *self, tutti_context *ctx, bool met);
    tutti_status (*gather)(struct tutti__shard_link *self, tutti_context *ctx, bool written);
    const tutti__shard_replicas *replicas; /* or NULL */
    /* Values may be on their way when gather has ended.  Makes ctx wait for those that a layer's
     * values_group says, or, TUTTI__VALUES_ALL, until nothing is read or written any more.  NULL:
     * they never are. */
    tutti_status (*await)(struct tutti__shard_link *self, tutti_context *ctx, int group);
} tutti__shard_link;
#define TUTTI__VALUES_ALL INT_MAX

/* An exchange of a store, in a list of them. */
typedef struct tutti__store_exchange {
    struct tutti__store_exchange *next;
    /* Why its communicator is dead, or NULL. */
    const char *(*dead)(const struct tutti__store_exchange *self);
} tutti__store_exchange;

struct tutti_params {
    tutti__holders holders;
    const tutti__backend *backend;
    int device;
    tutti_params_desc desc;
    tutti__params_entry *entries;
    int entry_count, entry_room;
    bool built;
    tutti_params *next_built; /* of all that are built and not destroyed */
    /* after build */
    tutti__slot *slots;            /* in layout order */
    int slot_count, trained_slots; /* those that are trained come first */
    /* elements of each flat buffer; of the gradients, which frozen slots have none of; and of these
     * those, which come first, whose values have another type than their masters: multiples of
     * TUTTI_PARAM_ALIGN, rounded of a run too if others follow */
    int64_t count, trained, rounded;
    void *master, *grad, *working; /* working NULL: every value has the masters' type */
    tutti_dtype working_dtype;
    /* Kept by the exchanges of this store, read by its optimizers: with an exchange, an update
     * wants sums. */
    tutti__store_exchange *exchanges;
    bool summed; /* by a finish, since when no gradient was ready and no update was made */
    /* What this rank updates: all that is trained, or its slices, in order; and the elements of
     * them all. */
    tutti__slice *own;
    int own_count;
    int64_t kept;
    /* sharded: the ranges of the gradients, and the exchange */
    tutti__span *ranges;
    int range_count;
    tutti__shard_link *link;
    /* Sharded, and some values are rounded: of their masters the buffer has only those of `own`,
     * as many as this, and then all others. */
    bool parted;
    int64_t kept_masters;
};

/* shard.c: sets ranges, own and kept of a store whose slots are laid out. */
tutti_status tutti__shard_lay_out(tutti_params *params);
/* Sets the masters of `own`, once there is a buffer. */
void tutti__shard_bind(tutti_params *params);
/* tutti_params_refresh of a store that has parts of the masters. */
tutti_status tutti__shard_refresh(tutti_params *params, tutti_context *ctx);
/* The masters from an element of the flat layout on; NULL if they are in parts. */
void *tutti__masters_at(const tutti_params *params, int64_t element);
/* Elements of the buffer of masters. */
int64_t tutti__masters_count(const tutti_params *params);
/* The exchange of a sharded store, NULL where one rank has it all; TUTTI_ERR_STATE if it has none
 * yet. */
tutti_status tutti__params_link(const tutti_params *params, tutti__shard_link **link,
                                const char *function);

/* Makes later work on ctx wait for values of a sharded store that are on their way, to a group. */
static inline tutti_status tutti__values_await(const tutti_params *params, tutti_context *ctx,
                                               int group)
{
    tutti__shard_link *link = params->link;
    return link && link->await ? link->await(link, ctx, group) : TUTTI_OK;
}

/* A name in a store: one that fits into a checkpoint, as model/<name> and
 * optimizer/<name>/<state>. */
#define TUTTI__NAME_PARTS_MAX 14
/* Parts of a path: letters, digits and ._- in parts split by /, none of which is made of dots
 * alone; 0 if it is no such path. */
int tutti__path_parts(const char *name);
/* One is the other or a folder above it. */
bool tutti__paths_collide(const char *a, const char *b);

/* noun: "prefix" or "name".  more: parts that will be appended. */
tutti_status tutti__name_check(const char *name, int more, const char *noun, const char *function);
/* A parameter's name is not empty, and a 0 ends it.  These checks: function is for the message. */
tutti_status tutti__own_name_check(const tutti_param *param, const char *function);
/* Dimensions of a value: more than 0, and elements that can be counted. */
tutti_status tutti__shape_check(const tutti_tensor *value, const char *name, const char *function);
/* The fields that say its first values. */
tutti_status tutti__init_check(const tutti_param *param, const char *name, const char *function);
/* The factors on an optimizer's values.  place: what the message begins with, as in "sgd: w: ". */
tutti_status tutti__factors_check(const tutti_param *param, const char *place);
/* The first values of a master of this name, f32 or f64, in host memory. */
void tutti__param_fill(const tutti_param *param, const char *name, uint64_t seed, tutti_dtype dtype,
                       void *host);

/* A parameter is bound, its tensors are as tutti_param_bind and _bind_master leave them, and *name
 * is one as in a store, or NULL and becomes the parameter's own.  function: for the message. */
tutti_status tutti__param_check(const tutti_param *param, const char **name, const char *function);

/* A whole tensor of state fits the store, if it says that it is laid out like it. */
tutti_status tutti__state_check(const tutti_params *params, const tutti_state_tensor *state,
                                const char *function);

/* The index of a parameter's entry; -1 if it is not in the store. */
int tutti__params_entry_of(const tutti_params *params, const tutti_param *param);

/* stores.c: a store is added when it is built, and removed, if it was, before it is destroyed. */
void tutti__stores_add(tutti_params *params);
void tutti__stores_remove(const tutti_params *params);
/* TUTTI_ERR_STATE for a parameter of a built store, whose memory is the store's. */
tutti_status tutti__param_unstored(const tutti_param *param, const char *function);

/* Gives up a hold (tutti__hold). */
void tutti__params_release(tutti_params *params);

/* TUTTI_ERR_STATE before build and after destroy, TUTTI_ERR_ARG for a context on another device.
 * function: for the message. */
tutti_status tutti__params_ready(const tutti_params *params, const tutti_context *ctx,
                                 const char *function);

#endif
