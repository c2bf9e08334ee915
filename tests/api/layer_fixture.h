/* What the tests of the layers' interface share: a layer of any kind with everything that its calls
 * need, made from the library's table of the kind. */
#ifndef TESTS_API_LAYER_FIXTURE_H
#define TESTS_API_LAYER_FIXTURE_H

#include "layer_kinds.h"

enum { SLOTS = 8, PARAMS = 4 };

typedef struct layer_fixture {
    tutti_context *ctx;
    const layer_kind *kind;
    const tutti_layer_type *type;
    tutti_layer *layer;
    int64_t rows, first_row;
    tutti_slot_shape shapes[SLOTS];
    harness_buffer buffers[SLOTS][2]; /* a slot's value and its gradient */
    tutti_tensor tensors[SLOTS][2];
    harness_buffer params[PARAMS], grads[PARAMS], saved;
    tutti_step_block *step; /* for kinds that read one */
    tutti_call call;        /* has all tensors of both directions, no leaves */
} layer_fixture;

/* A layer and a call that it accepts, if its parameters are bound.  Tensors hold NaN. */
void open_layer(layer_fixture *fix, tutti_context *ctx, const char *kind, const char *options,
                int64_t rows, bool bound);
/* The same for an existing layer, which the fixture takes over. */
void open_made(layer_fixture *fix, tutti_context *ctx, tutti_layer *layer, int64_t rows,
               bool bound);
void close_layer(layer_fixture *fix);

/* True if the slot has such a tensor; `saved` slots have none. */
bool slot_has(const layer_fixture *fix, int slot, bool gradient);
/* Puts a tensor, or NULL, in its place in the call. */
void slot_put(layer_fixture *fix, int slot, bool gradient, tutti_tensor *tensor);
/* "x" or "dx"; valid until the call after the next. */
const char *slot_name(const layer_fixture *fix, int slot, bool gradient);
/* True if forward, or backward, writes or reads the tensor. */
bool slot_written(const layer_fixture *fix, int slot, bool gradient, bool backward);
bool slot_read(const layer_fixture *fix, int slot, bool gradient, bool backward);
/* The tensor's tutti_last_error_place. */
tutti_call_place slot_place(const layer_fixture *fix, int slot, bool gradient);

/* Fills what the layer reads, and the gradients that it may add to. */
void fill_all(layer_fixture *f, uint64_t seed);
/* Forward, then backward if there is one, with outputs that replace inputs aliased to them. */
void run_both(layer_fixture *f);
/* Compares memory of two layers, bit for bit; what: for the message. */
void check_same(const char *what, const layer_fixture *a, const harness_buffer *one,
                const layer_fixture *b, const harness_buffer *other);
/* Compares all that two layers wrote. */
void check_same_results(const layer_fixture *a, const layer_fixture *b, bool sums);

/* Calls check with every kind, its options and types. */
void for_all(void (*check)(const layer_kind *kind, const char *options));

#endif
