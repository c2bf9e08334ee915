/* What all layers share: calls, forward and backward, kinds of layer, creation by name. */
#ifndef TUTTI_LAYER_H
#define TUTTI_LAYER_H

#include "tutti/param.h"

TUTTI_BEGIN

/* A layer belongs to a backend's device, not to a stream: every call names a context on it. */

#define TUTTI_MAX_SLOTS 4
#define TUTTI_CALL_LEAVES_MAX 256

enum {
    /* backward adds to the parameters' gradients instead of overwriting them */
    TUTTI_GRAD_ACCUMULATE = 1
};

/* What a call has besides its tensors.  Each field may be 0.
 *
 * saved      device memory, 16-byte aligned, of saved_bytes >= tutti_layer_saved_bytes(layer, rows)
 *            bytes: forward writes, backward reads; NULL in a forward without backward
 * first_row  number of the call's first row in the global batch, 0 to 2^59; required where bits
 *            depend on it (a mask)
 * leaves     0: the rows are no leaf, and their bits may depend on how many there are.  1: they are
 *            one leaf; leaf_rows is not read.  Otherwise, up to TUTTI_CALL_LEAVES_MAX: leaf i
 *            begins at row leaf_rows[i] and ends where the next one begins (the last one at the
 *            call's end); leaf_rows[0] = 0.  Every sum over rows (gradients of parameters, outputs
 *            that are sums) is then formed leaf by leaf, each as a call of that one leaf would form
 *            it, and the leaves' sums are added as a binary tree: 0 + 1, 2 + 3, then these; a last
 *            one without a neighbour waits for the next level.  So a leaf's bits depend on its rows
 *            alone, if the tensors of every leaf begin at equally aligned addresses.
 * flags      0 or TUTTI_GRAD_ACCUMULATE, which only backward reads
 * step       where a layer's header asks for it
 * sync       backward calls tutti_grad_sync_ready for this layer on it once its parameters'
 *            gradients are enqueued, to an exclusive exchange maybe before those of its inputs,
 *            beside which it then runs; NULL: the program does.  In reproducible mode the
 *            gradients of several leaves go to the exchange, not to those of the parameters
 *            (tutti/grad_sync.h) */
#define TUTTI_CALL_COMMON         \
    void *saved;                  \
    size_t saved_bytes;           \
    const int64_t *first_row;     \
    int leaves;                   \
    const int64_t *leaf_rows;     \
    unsigned flags;               \
    const tutti_step_block *step; \
    tutti_grad_sync *sync

/* One call of forward or backward.  Each layer's header documents the slots and has a struct of its
 * own that names them.  An absent tensor is NULL; a direction ignores those that it does not use,
 * so one call can serve both; a tensor in a slot that the layer does not have is an error.  Tensors
 * in `in` and `upstream` are never written, unless the caller puts a result into the same memory as
 * the layer's header allows, nor are those in `out` by backward. */
typedef struct tutti_call {
    const tutti_tensor *in[TUTTI_MAX_SLOTS];       /* inputs */
    tutti_tensor *out[TUTTI_MAX_SLOTS];            /* forward writes, some backwards read */
    const tutti_tensor *upstream[TUTTI_MAX_SLOTS]; /* gradients of the outputs, for backward */
    tutti_tensor *din[TUTTI_MAX_SLOTS]; /* gradients of the inputs: overwritten; NULL: not wanted */
    TUTTI_CALL_COMMON;
} tutti_call;

/* Does every search and allocation for calls like this one, so that they allocate nothing and may
 * be captured: backward if it has gradients of outputs, forward if it has all inputs and outputs
 * that forward needs, or no such gradients.  A plan serves calls of equal types, shapes, strides
 * and alignment; tensors' data, saved and parameters may be NULL or unbound, and are then taken as
 * 16-byte aligned.  A call that was not planned plans itself, but returns TUTTI_ERR_STATE while the
 * stream is being captured if planning needs scratch or a search.  A context keeps the last 1024
 * plans. */
TUTTI_API tutti_status tutti_layer_plan(tutti_layer *layer, tutti_context *ctx,
                                        const tutti_call *call);

/* Asynchronous on the context's stream; no allocation and no synchronisation once planned.  Not
 * collective.  TUTTI_ERR_ARG, with nothing written, if a shape, type, stride or pointer is not what
 * the layer's header asks for, if an output overlaps other memory of the call, or if the context is
 * on another device; TUTTI_ERR_STATE if a parameter is unbound. */
TUTTI_API tutti_status tutti_layer_forward(tutti_layer *layer, tutti_context *ctx,
                                           const tutti_call *call);
TUTTI_API tutti_status tutti_layer_backward(tutti_layer *layer, tutti_context *ctx,
                                            const tutti_call *call);

/* Bytes of `saved` for this many rows; 0 for NULL or rows < 0. */
TUTTI_API size_t tutti_layer_saved_bytes(const tutti_layer *layer, int64_t rows);

/* The layer's parameters, in the order of its header.  0 and NULL for bad arguments. */
TUTTI_API int tutti_layer_param_count(const tutti_layer *layer);
TUTTI_API tutti_param *tutti_layer_param(tutti_layer *layer, int index);

/* NULL is allowed.  All work that uses the layer must be complete. */
TUTTI_API void tutti_layer_destroy(tutti_layer **layer);

/* Which tensor of a call the thread's last failure (tutti_last_error) was about. */
typedef enum tutti_call_part {
    TUTTI_PART_NONE, /* none, or another function has failed since */
    TUTTI_PART_IN,
    TUTTI_PART_OUT,
    TUTTI_PART_UPSTREAM,
    TUTTI_PART_DIN,
    TUTTI_PART_SAVED,
    TUTTI_PART_PARAM,
    TUTTI_PART_PARAM_GRAD
} tutti_call_part;
typedef struct tutti_call_place {
    tutti_call_part part;
    int index; /* of the slot, or of the parameter */
} tutti_call_place;
/* As tutti_last_error, valid until the thread's next failure. */
TUTTI_API tutti_call_place tutti_last_error_place(void);

/* The kinds of layer.  Each kind's contract is a table: the library checks calls by it, and
 * programs build them from it. */

/* A field of the descriptor, with the same name in tutti_layer_create_by_name. */
typedef struct tutti_layer_option {
    const char *name;
    /* "int" (int64_t), "int32", "real" (double), "bool" (int), "dtype" (tutti_dtype: a float type),
     * or an enum's names, from 0: "none|relu|gelu" */
    const char *type;
    /* what 0 in the descriptor selects, or another dtype option; NULL: must be given */
    const char *default_value;
    size_t offset;      /* of the field in the descriptor */
    double least, most; /* of numbers; both 0: any */
} tutti_layer_option;

typedef enum tutti_slot_role {
    TUTTI_SLOT_IN,  /* in[], its gradient din[] */
    TUTTI_SLOT_OUT, /* out[], its gradient upstream[] */
    TUTTI_SLOT_KEPT /* a part of `saved`: forward writes, backward reads */
} tutti_slot_role;
enum {
    TUTTI_SLOT_OPTIONAL = 1, /* forward may do without it; then backward does, too */
    /* one row: a sum over the call's rows, to be added up over calls and ranks */
    TUTTI_SLOT_SUM = 2,
    TUTTI_SLOT_READ = 4,           /* backward reads it */
    TUTTI_SLOT_GRAD = 8,           /* has a gradient */
    TUTTI_SLOT_GRAD_OPTIONAL = 16, /* has a gradient that is optional */
    TUTTI_SLOT_UP_TO = 32,         /* may be equal to the option that bounds it, too: a length */
    /* leading dimensions may have a stride of 0: the rows behind them are then those of one block,
     * repeated.  Only inputs of kinds without sums over rows that have TUTTI_LAYER_ROWS_ALONE */
    TUTTI_SLOT_REPEATS = 64
};
/* A tensor of a call.  Slots of one role are in order: the first input is in[0], and so on.  In
 * fields that name tensors, the gradient of x is "dx". */
typedef struct tutti_slot {
    const char *name;
    tutti_slot_role role;
    unsigned flags;
    const char *cols; /* elements of a row, or of its lines: the option that sets it, NULL for 1 */
    /* for rows that are matrices: the option that sets their number of lines; NULL: one line */
    const char *lines;
    /* the option that sets it, or a type's name, or NULL for the arithmetic's: f64 if any type of
     * the layer is, otherwise f32 */
    const char *dtype;
    const char *below;     /* for i32 indices: the option that bounds them from above */
    const char *with;      /* allowed only together with this tensor */
    const char *grad_with; /* the same for its gradient */
    /* tensors whose memory it may share, row by row: "x residual".  An input among them that
     * backward reads may be shared only if nothing is saved, or if this slot replaces it */
    const char *may_be;
    const char *grad_may_be; /* the same for its gradient: "dy dsum", or an input's name */
    /* where forward had `with`, backward wants this in that input's slot, put by the caller */
    const char *replaces;
    /* for floats: values outside, and NaN, are faults in the data (tutti_context_check); both 0:
     * any */
    double least, most;
} tutti_slot;

typedef struct tutti_param_type {
    const char *name;
    const char *dims[2]; /* options; NULL after the last */
    const char *dtype;   /* an option */
    int decays;          /* the optimizer's weight decay has factor 1, otherwise 0 */
    const char *unless;  /* the bool option that leaves it out */
} tutti_param_type;

enum {
    TUTTI_LAYER_STEP = 1,      /* reads call.step, which some options require */
    TUTTI_LAYER_BACKWARD = 2,  /* has a backward */
    TUTTI_LAYER_ROWS_ALONE = 4 /* the bits of a row do not depend on how many rows a call has */
};
typedef struct tutti_layer_type {
    const char *name; /* "rmsnorm" */
    unsigned flags;
    int option_count, slot_count, param_count;
    const tutti_layer_option *options;
    const tutti_slot *slots;
    const tutti_param_type *params;
} tutti_layer_type;
/* The number of kinds. */
TUTTI_API int tutti_layer_type_count(void);
/* The index-th kind, from 0; NULL past the last. */
TUTTI_API const tutti_layer_type *tutti_layer_type_get(int index);
/* The kind with this name; NULL if there is none. */
TUTTI_API const tutti_layer_type *tutti_layer_type_find(const char *name);
/* The kind of a layer; NULL for NULL. */
TUTTI_API const tutti_layer_type *tutti_layer_type_of(const tutti_layer *layer);

/* A slot of a layer: its kind's slot with the layer's options applied. */
typedef struct tutti_slot_shape {
    int64_t cols; /* elements of a row; 0 for a kept slot that this layer does not keep */
    /* A tensor's last dimensions are [lines, cols / lines], with any stride from line to line that
     * keeps them apart.  1 unless rows are matrices; an option may exchange lines and columns. */
    int64_t lines;
    tutti_dtype dtype;
    unsigned flags; /* the slot's, with these options */
    int64_t below;  /* values are from 0 to below - 1; 0: no such limit */
    int index;      /* in in[] and din[], out[] and upstream[] */
} tutti_slot_shape;
/* slot: number in the kind's table; TUTTI_ERR_ARG if there is none. */
TUTTI_API tutti_status tutti_layer_slot_shape(const tutti_layer *layer, int slot,
                                              tutti_slot_shape *shape);

/* Creates a layer from its kind's name and options such as "cols=4096,eps=1e-6,param_dtype=bf16".
 * A bool is 0, 1, false, true, False or True.  options NULL or "" means the defaults.
 * TUTTI_ERR_ARG for an unknown kind, an unknown, repeated or missing option, or a value that does
 * not parse; otherwise the errors of the kind's own create. */
TUTTI_API tutti_status tutti_layer_create_by_name(tutti_context *ctx, const char *name,
                                                  const char *options, tutti_layer **layer);

TUTTI_END
#endif
