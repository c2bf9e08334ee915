/* The kinds of layer as the tests of the interface see them: a line each.  What a call of a kind looks like they learn from
 * the library's tables. */
#ifndef TESTS_API_LAYER_KINDS_H
#define TESTS_API_LAYER_KINDS_H

#include "harness.h"

/* BOTH or FORWARD (there is no backward), then the options that each check is made with. */
#define LAYER_KINDS(BOTH, FORWARD)                                                         \
    BOTH(layernorm, "cols=6", "cols=6,no_gamma=1,no_beta=1")                               \
    BOTH(rmsnorm, "cols=6,zero_centered=1", "cols=6,no_gamma=1")                           \
    BOTH(softmax, "cols=6", "cols=6,log=1,causal_period=4")                                \
    BOTH(linear, "in=6,out=4", "in=6,out=4,activation=relu", "in=6,out=4,activation=silu") \
    FORWARD(cross_entropy, "cols=6")                                                       \
    BOTH(embedding, "vocab=4,cols=6")                                                      \
    BOTH(dropout, "cols=6,activation=gelu,no_bias=1", "cols=6,activation=relu,p=0.5")

/* The public functions of a kind, with descriptors and calls of no type. */
typedef tutti_status typed_call_fn(tutti_layer *layer, tutti_context *ctx, const void *call);
typedef struct layer_kind {
    const char *name;
    const char *options[4]; /* up to a NULL */
    size_t desc_size, call_size;
    void (*put_init)(void *desc);    /* TUTTI_X_DESC_INIT */
    void (*put_default)(void *desc); /* tutti_x_desc_default() */
    tutti_status (*create)(tutti_context *ctx, const void *desc, tutti_layer **layer);
    typed_call_fn *plan, *forward, *backward; /* backward NULL: there is none */
} layer_kind;
extern const layer_kind layer_kinds[];
extern const int layer_kind_count;

const layer_kind *find_kind(const char *name);

/* A kind's own call from the general one: the tensors of the table's slots in the one order that all have, inputs, outputs,
 * their gradients, the inputs' gradients; then what all calls have.  The caller frees it. */
void *typed_call(const layer_kind *kind, const tutti_call *call);

#endif
