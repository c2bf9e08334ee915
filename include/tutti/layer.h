/* What all layers share: the call, the verbs, creation by name. */
#ifndef TUTTI_LAYER_H
#define TUTTI_LAYER_H

#include "tutti/param.h"

TUTTI_BEGIN

/* A layer belongs to a device and a backend, not to a stream: every call names a context there. */

#define TUTTI_MAX_SLOTS 4

enum {
    /* backward adds to the parameters' gradients instead of overwriting them */
    TUTTI_GRAD_ACCUMULATE = 1
};

/* One call of forward or backward.  Each layer's header says what the slots hold; an absent tensor is
 * NULL, and one in a slot that the layer does not have is an error.  Tensors in `in` and `upstream` are never written. */
typedef struct tutti_call {
    const tutti_tensor *in[TUTTI_MAX_SLOTS];       /* inputs */
    const tutti_tensor *out[TUTTI_MAX_SLOTS];      /* forward writes, some backwards read */
    const tutti_tensor *upstream[TUTTI_MAX_SLOTS]; /* gradients of the outputs, for backward */
    const tutti_tensor
        *din[TUTTI_MAX_SLOTS]; /* gradients of the inputs: overwritten; NULL: not wanted */
    void *
        saved; /* tutti_layer_saved_bytes(layer, rows) on the device, 16-byte aligned: forward writes, backward
                          reads; NULL in a forward without backward */
    int64_t first_row; /* number of the first row in the global batch, for masks: 0 to 2^59 */
    unsigned flags;
    const tutti_step *step; /* where a layer's header asks for it */
} tutti_call;
#define TUTTI_CALL_INIT                \
    {                                  \
        {0}, {0}, {0}, {0}, 0, 0, 0, 0 \
    }

/* Does every search and allocation for calls with this many rows (0 to 2^39), forward and backward.  A call of an
 * unplanned shape plans itself, but returns TUTTI_ERR_STATE while the stream is being captured. */
TUTTI_API tutti_status tutti_layer_plan(tutti_layer *layer, tutti_context *ctx, int64_t rows);

/* Asynchronous on the context's stream, no allocation and no synchronisation once planned.  Not
 * collective.  TUTTI_ERR_ARG, with nothing written, if a shape, type, stride or pointer is not what the
 * layer's header asks for or the context is on another device; TUTTI_ERR_STATE if a parameter is unbound. */
TUTTI_API tutti_status tutti_layer_forward(tutti_layer *layer, tutti_context *ctx,
                                           const tutti_call *call);
TUTTI_API tutti_status tutti_layer_backward(tutti_layer *layer, tutti_context *ctx,
                                            const tutti_call *call);

/* Bytes of `saved` for this many rows; 0 for NULL or rows < 0. */
TUTTI_API size_t tutti_layer_saved_bytes(const tutti_layer *layer, int64_t rows);

/* The layer's parameters, in the order of its header.  0 and NULL for bad arguments. */
TUTTI_API int tutti_layer_param_count(const tutti_layer *layer);
TUTTI_API tutti_param *tutti_layer_param(tutti_layer *layer, int index);

/* NULL is allowed.  Work that uses the layer must be done. */
TUTTI_API void tutti_layer_destroy(tutti_layer **layer);

/* What kinds of layer there are, for programs that create them by name. */
typedef struct tutti_layer_option {
    const char *name; /* as in the descriptor */
    const char
        *type; /* "int", "real", "bool", "dtype", or the words of a choice: "none|relu|gelu" */
    const char *default_value; /* NULL: must be given */
} tutti_layer_option;
typedef struct tutti_layer_type {
    const char *name; /* "rmsnorm" */
    int option_count;
    const tutti_layer_option *options;
    /* names of the slots; NULL past the last */
    const char *in[TUTTI_MAX_SLOTS], *out[TUTTI_MAX_SLOTS];
} tutti_layer_type;
/* The index-th kind, from 0; NULL past the last. */
TUTTI_API const tutti_layer_type *tutti_layer_type_get(int index);
/* The kind of a layer; NULL for NULL. */
TUTTI_API const tutti_layer_type *tutti_layer_type_of(const tutti_layer *layer);

/* Creates a layer from its kind's name and options written "cols=4096,eps=1e-6,param_dtype=bf16".
 * options NULL or "" means the defaults.  TUTTI_ERR_ARG for an unknown kind, an unknown, repeated or
 * missing option, or a value that does not parse; then as the kind's own create. */
TUTTI_API tutti_status tutti_layer_create_by_name(tutti_context *ctx, const char *name,
                                                  const char *options, tutti_layer **layer);

TUTTI_END
#endif
