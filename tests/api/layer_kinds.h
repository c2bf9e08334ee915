/* The kinds of layer for the tests of the interface: the library's list, and their public
 * functions.  Slots and options are read from the library's tables. */
#ifndef TESTS_API_LAYER_KINDS_H
#define TESTS_API_LAYER_KINDS_H

#include "harness.h"
#include "ops/ops.h"

/* The public functions of a kind, with untyped descriptors and calls. */
typedef tutti_status typed_call_fn(tutti_layer *layer, tutti_context *ctx, const void *call);
typedef struct layer_kind {
    const char *name;
    size_t desc_size, call_size;
    void (*put_init)(void *desc);    /* TUTTI_X_DESC_INIT */
    void (*put_default)(void *desc); /* tutti_x_desc_default() */
    tutti_status (*create)(tutti_context *ctx, const void *desc, tutti_layer **layer);
    typed_call_fn *plan, *forward, *backward; /* backward NULL: there is none */
} layer_kind;
extern const layer_kind layer_kinds[];
extern const int layer_kind_count;

const layer_kind *find_kind(const char *name);

/* The options that a kind is tested with, by number, NULL past the last: the plain layer; as many
 * non-default options as go together: numbers alone, then flags, too, from the first option on and
 * from the last on; each further word of a choice. */
const char *kind_options(const layer_kind *kind, int number);

/* A kind's own call from the general one: the tensors of the table's slots in the common order of
 * inputs, outputs, their gradients and the inputs' gradients, then what all calls have.  The caller
 * frees it. */
void *typed_call(const layer_kind *kind, const tutti_call *call);

#endif
