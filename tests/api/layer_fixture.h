/* What the tests of the layers' interface share: a layer of any kind with everything that a call of
 * it needs, made from the library's table of the kind. */
#ifndef TESTS_API_LAYER_FIXTURE_H
#define TESTS_API_LAYER_FIXTURE_H

#include "layer_kinds.h"

enum { SLOTS = 8, PARAMS = 2 };

typedef struct layer_fixture {
    tutti_context *ctx;
    const layer_kind *kind;
    const tutti_layer_type *type;
    tutti_layer *layer;
    int64_t rows, first_row;
    tutti_slot_shape shapes[SLOTS];
    harness_buffer buffers[SLOTS][2]; /* of a slot's value and its gradient */
    tutti_tensor tensors[SLOTS][2];
    harness_buffer params[PARAMS], grads[PARAMS], saved;
    tutti_step_block *step; /* of the kinds that read one */
    tutti_call call;        /* with every tensor, of both directions; without leaves */
} layer_fixture;

/* A layer and a call that it accepts, if its parameters are bound.  Tensors hold NaN. */
void open_layer(layer_fixture *fix, tutti_context *ctx, const char *kind, const char *options,
                int64_t rows, bool bound);
/* The same for a layer that is there, which the fixture takes. */
void open_made(layer_fixture *fix, tutti_context *ctx, tutti_layer *layer, int64_t rows,
               bool bound);
void close_layer(layer_fixture *fix);

/* Has the slot a tensor of this sort?  What is kept has none. */
bool slot_has(const layer_fixture *fix, int slot, bool gradient);
/* Puts a tensor, or NULL, in its place in the call. */
void slot_put(layer_fixture *fix, int slot, bool gradient, tutti_tensor *tensor);
/* "x" or "dx"; valid until the call after the next. */
const char *slot_name(const layer_fixture *fix, int slot, bool gradient);
/* Is it written, is it read by forward, or by backward? */
bool slot_written(const layer_fixture *fix, int slot, bool gradient, bool backward);
bool slot_read(const layer_fixture *fix, int slot, bool gradient, bool backward);
/* Where tutti_last_error_place says it is. */
tutti_call_place slot_place(const layer_fixture *fix, int slot, bool gradient);

#endif
