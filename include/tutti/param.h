/* Parameters, and the flat store that holds a model's parameters. */
#ifndef TUTTI_PARAM_H
#define TUTTI_PARAM_H

#include "tutti/step.h"

TUTTI_BEGIN

typedef struct tutti_layer tutti_layer;
typedef struct tutti_grad_sync tutti_grad_sync; /* tutti/grad_sync.h */

#define TUTTI_NAME_MAX 96 /* bytes of a name, including its terminating 0 */

/* A parameter's initial values (tutti_params_init, tutti_param_init). */
typedef enum tutti_init {
    TUTTI_INIT_ZERO,
    TUTTI_INIT_ONE,
    TUTTI_INIT_UNIFORM /* uniform in ±init_bound */
} tutti_init;

/* One parameter.  value is what the layer reads, master what the optimizer updates (the same memory
 * where both have one type), grad what backward writes.  grad is f32, or f64 where the layer
 * computes in f64.  A layer publishes its parameters but does not own their memory: the caller
 * binds memory of its own (tutti_param_bind) or hands the layer to a store.  weight_decay and
 * lr_scale, finite and >= 0, multiply the optimizer's values; a layer sets them to 1, except
 * weight_decay of biases and norm parameters, which is 0. */
typedef struct tutti_param {
    char name[TUTTI_NAME_MAX]; /* "gamma"; in a store "block0.norm/gamma" */
    tutti_tensor value, master, grad;
    double weight_decay, lr_scale;
    tutti_init init;
    double init_bound;
} tutti_param;

/* Gives a parameter the caller's memory.  value: the parameter's shape and type, contiguous, on the
 * layer's device; it is also the master.  grad: the same shape, f32 or f64 as above, or NULL for a
 * parameter that is not trained (backward then skips it).  The memory must outlive the layer's
 * calls.  TUTTI_ERR_STATE for a parameter of a built store, whose memory it has; where its fields
 * were set to other memory, so are the layer's calls. */
TUTTI_API tutti_status tutti_param_bind(tutti_param *param, const tutti_tensor *value,
                                        const tutti_tensor *grad);
/* Gives a bound parameter whose value is f16 or bf16 a separate master: the value's shape, f32,
 * contiguous, on the same device, not overlapping the value.  Must be called again after each
 * tutti_param_bind.  TUTTI_ERR_STATE for a parameter that is not bound, or in a built store. */
TUTTI_API tutti_status tutti_param_bind_master(tutti_param *param, const tutti_tensor *master);

/* Fills a bound parameter as its init says, from seed and name: the master, and a separate value,
 * get the numbers that tutti_params_init gives to a parameter of that name in a store
 * ("block0.norm/gamma"), rounded to the value's type where the value is its own master.  name: as
 * in a store; NULL: the parameter's own.  ctx: on the memory's device.  Waits for the stream.
 * TUTTI_ERR_STATE for a parameter that is not bound. */
TUTTI_API tutti_status tutti_param_init(const tutti_param *param, tutti_context *ctx,
                                        const char *name, uint64_t seed);

/* A store: flat buffers of masters, of gradients and, where the layers read another type than the
 * masters', of working values.  All three have the same layout, in the order in which backward
 * finishes the parameters: last added first.  Those whose values are their own masters come after
 * those that have working values, and those that are frozen, which have no gradients, after all
 * others.  Each parameter starts at a multiple of TUTTI_PARAM_ALIGN elements; the padding between
 * them is zero, and stays so while all updates are finite. */
typedef struct tutti_params tutti_params;
#define TUTTI_PARAM_ALIGN 128

/* Allocates a store's gradients, for a communicator that wants them in memory of its own.  alloc
 * returns memory on the context's device, at least 256-byte aligned. */
typedef struct tutti_allocator {
    tutti_status (*alloc)(void *self, size_t bytes, void **data);
    tutti_status (*free)(void *self, void *data);
    void *self;
    /* optional, both or neither: add and drop a reference to self */
    void (*hold)(void *self);
    void (*release)(void *self);
} tutti_allocator;

typedef struct tutti_params_desc {
    size_t size;
    /* of masters and gradients: f64 for layers of f64 parameters, otherwise f32 */
    tutti_dtype master_dtype;
    tutti_allocator gradient_memory; /* all NULL: the context's; or tutti_comm_allocator() */
    /* Sharded (ZeRO-1) if shards > 0: one of as many stores, this one number `shard`, one a rank of
     * the exchange, whose numbers these must be. */
    int shards, shard;
    size_t range_bytes; /* sharded: of its exchange's ranges; 0: an eighth of all, 32 to 128 MiB */
} tutti_params_desc;
#define TUTTI_PARAMS_DESC_INIT TUTTI_DESC_INIT(tutti_params_desc)
TUTTI_API tutti_params_desc tutti_params_desc_default(void);

/* Sharded stores [Rajbhandari et al. 2020, ZeRO].  Every rank has all values and gradients, but of
 * what is trained only its slices of the masters, where the values have another type, and of the
 * optimizer's state.  The gradients are cut into ranges of about range_bytes, and each range into
 * equal slices, one a rank (the last ones may be shorter, or empty).  In a step
 *
 *     the exchange leaves the sums of a rank's slices (tutti_params_slice) in its gradients, of
 *     which the rest is undefined
 *     an optimizer updates those slices, and sends the new values to all ranks
 *
 * so a rank's masters and state take 1 / shards of the memory, and an update 1 / shards of the
 * work.  (Values that are their own masters are whole on every rank.)  The numbers are those of a
 * store that is not sharded: the sums are taken in rank order, or in the order of the tree with
 * leaves.  master.data of a parameter whose masters are in slices is NULL.  Where shards > 1, what
 * needs the other ranks (refresh of working values, an update, loading) is collective, and
 * TUTTI_ERR_STATE without an exchange. */

/* An empty store on the context's device.  desc NULL means the defaults. */
TUTTI_API tutti_status tutti_params_create(tutti_context *ctx, const tutti_params_desc *desc,
                                           tutti_params **params);
/* Unbinds the store's layers, whose calls are then TUTTI_ERR_STATE, and whose parameters have the
 * names that they had before, so that another store can have them.  Optimizers, exchanges and
 * checkpoints of the store keep its memory alive and can only be destroyed afterwards.  NULL is
 * allowed. */
TUTTI_API void tutti_params_destroy(tutti_params **params);

/* Adds a layer's parameters as prefix/name.  Names must be valid in a checkpoint: letters, digits
 * and ._- in at most 14 parts separated by /, no part of dots alone, and no name that is a folder
 * of another ("a" beside "a/b").  Add layers in the order of forward.  The store keeps the layer
 * alive.  Memory that the layer was bound to is not copied, nor used once the store is built.
 * TUTTI_ERR_STATE after tutti_params_build, and for a layer that another store has; TUTTI_ERR_ARG
 * for an invalid prefix, a name that is taken, an f64 parameter in a store of f32 masters or the
 * reverse, or a second working type. */
TUTTI_API tutti_status tutti_params_add(tutti_params *params, tutti_layer *layer,
                                        const char *prefix);
/* The same for one parameter of the caller's, as of a layer of its own (examples/own_layer.c),
 * which must outlive the store.  Its name, its value's shape and type (value.data is ignored),
 * factors and init are read; tutti_params_build sets its tensors.
 *
 * Such a layer reads value and writes all of grad, then tutti_grad_sync_ready_param.  In a sharded
 * store that is the same, as value and grad are whole on every rank, but
 * - after finish only this rank's slices of grad (tutti_params_slice) are sums, and the rest is
 *   undefined;
 * - it must not read master, which has no data where the value is f16 or bf16: value is that,
 *   rounded;
 * - with an exclusive exchange it calls tutti_params_settle before it reads value, since new values
 *   may be on their way, which only the library's layers wait for by themselves. */
TUTTI_API tutti_status tutti_params_add_param(tutti_params *params, tutti_param *param);

/* Makes param share other's slot (tied weights): equal shapes and types, both in the store.  Both
 * layers then read one value and add to one gradient, which is complete when the backward of both
 * is done: the backward that runs second must accumulate (flags TUTTI_GRAD_ACCUMULATE; without it
 * TUTTI_ERR_STATE, where it names an exchange).  A checkpoint has the slot under other's name.
 * Before build. */
TUTTI_API tutti_status tutti_params_tie(tutti_params *params, tutti_param *param,
                                        tutti_param *other);

/* Freezes a parameter, and those that are tied to it: it is initialised, saved and loaded like the
 * others, but not trained.  It gets no gradient (grad.data is NULL after build: backward skips it),
 * no part in an exchange, and no optimizer's state.  Before build. */
TUTTI_API tutti_status tutti_params_freeze(tutti_params *params, tutti_param *param);

/* Allocates the buffers, all zero, and binds every parameter to its place. */
TUTTI_API tutti_status tutti_params_build(tutti_params *params, tutti_context *ctx);

/* Fills the masters from seed, as each parameter's init says (the same numbers on every backend,
 * for every order of adding: they depend on seed, name and element), and the values, which are
 * these numbers, rounded.  Waits for the stream.  Not collective, also for a sharded store: a rank
 * fills its slices of the masters and all values, before there is an exchange or after, and all
 * ranks give the same seed. */
TUTTI_API tutti_status tutti_params_init(tutti_params *params, tutti_context *ctx, uint64_t seed);
/* Rewrites the working values from the masters.  Collective for a sharded store: each rank sends
 * the values of its slices to all. */
TUTTI_API tutti_status tutti_params_refresh(tutti_params *params, tutti_context *ctx);
/* Makes later work on ctx wait until all values of the last update are on this rank: with an
 * exchange whose desc.exclusive is set they may still be on their way (tutti/grad_sync.h), which
 * calls of layers of the store and functions that are given it wait for by themselves.  Wanted
 * before anything else reads or writes its values or masters, before a stream is captured, and
 * before a graph is launched behind an update that is not captured. */
TUTTI_API tutti_status tutti_params_settle(tutti_params *params, tutti_context *ctx);
/* Sets all gradients to zero. */
TUTTI_API tutti_status tutti_params_zero_grad(tutti_params *params, tutti_context *ctx);

/* Parameters in the store, in layout order; a tied parameter is counted once.  0 and NULL for
 * invalid arguments. */
TUTTI_API int tutti_params_count(const tutti_params *params);
TUTTI_API const tutti_param *tutti_params_get(const tutti_params *params, int index);
/* The parameter of a name ("block0.norm/gamma"), tied or not, before and after build; NULL if there
 * is none, or for invalid arguments.  Its factors may be changed until an optimizer is created,
 * which reads and checks them then, once: with the names of its members a group of parameters gets
 * a learning rate or a weight decay of its own.  Parameters that are tied have the factors of the
 * one that the others were tied to. */
TUTTI_API tutti_param *tutti_params_find(const tutti_params *params, const char *name);

/* A tensor of an optimizer's state, on the device.  It has either the layout of the store's
 * gradients, in which each trained parameter has its part (of a sharded store this rank's slices of
 * it, one after the other), or one of its own, the same on all ranks. */
typedef struct tutti_state_tensor {
    const char *name;    /* "m" */
    tutti_tensor tensor; /* [elements of the gradients that this rank updates] if like_store */
    int like_store;
} tutti_state_tensor;

typedef enum tutti_params_buffer {
    TUTTI_PARAMS_MASTER,
    TUTTI_PARAMS_GRAD,
    /* data is NULL if all values have the masters' type; if only some do, their elements here are
     * neither read nor updated */
    TUTTI_PARAMS_WORKING
} tutti_params_buffer;
/* A flat buffer as a one-dimensional view.  TUTTI_ERR_STATE before build. */
TUTTI_API tutti_status tutti_params_flat(const tutti_params *params, tutti_params_buffer buffer,
                                         tutti_tensor *flat);

/* Elements of the flat gradients whose sums this rank has after an exchange, and which it updates:
 * one slice with all of them, or those of a sharded store, in order.  The count is 0 for invalid
 * arguments and before build, when a slice is TUTTI_ERR_STATE; TUTTI_ERR_ARG for another index. */
TUTTI_API int tutti_params_slice_count(const tutti_params *params);
TUTTI_API tutti_status tutti_params_slice(const tutti_params *params, int index, int64_t *first,
                                          int64_t *count);

TUTTI_END
#endif
