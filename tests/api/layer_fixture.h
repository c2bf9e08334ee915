/* What the bad-input tests of the layers share: a layer with everything that a call of it needs,
 * and the checks that are alike for every tensor, call and descriptor. */
#ifndef TESTS_API_LAYER_FIXTURE_H
#define TESTS_API_LAYER_FIXTURE_H

#include "bad_input.h"

enum { ROWS = 3, COLS = 6, OUT = 4, OPERANDS = 8 };

/* An attempt takes all its arguments from `fix`; a test changes one of them, calls and puts it
 * back. */
typedef tutti_status attempt_fn(void);
typedef struct layer_fixture {
    tutti_context *ctx;
    const char *name;
    tutti_layer *layer;
    harness_buffer buffers[OPERANDS];
    tutti_tensor tensors[OPERANDS];
    int count; /* of the operands */
    harness_buffer params[2], grads[2], saved;
    tutti_call call;
} layer_fixture;
extern layer_fixture fix;

/* A layer and a call that it accepts, if its parameters are bound. */
void open_norm(bool centered, bool bound);
void open_softmax(void);
void open_linear(tutti_activation activation, bool bound);
void open_cross_entropy(void);
void open_embedding(bool bound);
/* Also checks that nothing was written. */
void close_layer(void);
void check_untouched(void);

/* The generic calls. */
tutti_status forward(void);
tutti_status backward(void);

/* What a slot may be, or is. */
enum {
    OPTIONAL = 1,  /* may be NULL */
    VECTOR = 2,    /* has no columns */
    SETS_ROWS = 4, /* the others are measured by it */
    IN_PLACE = 8   /* may share all its memory with the other tensor */
};

/* Every way in which the tensor of this slot can be wrong. */
void check_slot(const char *slot, const tutti_tensor **place, int kind, attempt_fn *attempt);
/* Two tensors of a call that may not share memory, or only exactly. */
void check_overlap(const char *slot, const tutti_tensor **place, const tutti_tensor *other,
                   int kind, attempt_fn *attempt);
/* What is common to all calls: no layer and no context, another device's step, all of them. */
void check_owners(attempt_fn *attempt);
void check_foreign_step(attempt_fn *attempt);
void check_call(attempt_fn *attempt);
/* The backward of a layer whose first parameter has a gradient of another type than the
 * arithmetic's, or than the other parameter's. */
void check_gradient_type(void);

/* The attempt is refused with this word after one change of `fix`. */
#define CHECK_WITH(change, word, attempt)            \
    do {                                             \
        const layer_fixture before = fix;            \
        change;                                      \
        harness_where("%s", #change);                \
        CHECK_FAILS(TUTTI_ERR_ARG, word, attempt()); \
        harness_where(NULL);                         \
        fix = before;                                \
    } while (0)

/* A layer of this kind is not created without each argument; `good` is a descriptor. */
#define CHECK_CREATE(kind, good)                                                      \
    do {                                                                              \
        tutti_context *ctx = harness_context();                                       \
        tutti_layer *layer = UNTOUCHED(tutti_layer);                                  \
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "ctx",                              \
                            tutti_##kind##_create(NULL, &good, &layer));              \
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, "desc",                             \
                            tutti_##kind##_create(ctx, NULL, &layer));                \
        CHECK_FAILS(TUTTI_ERR_ARG, "layer", tutti_##kind##_create(ctx, &good, NULL)); \
    } while (0)

/* Nor from a good descriptor with one change, "cols = 0" say; the message has this word. */
#define CHECK_DESC(kind, good, change, word)                                                       \
    do {                                                                                           \
        tutti_context *ctx = harness_context();                                                    \
        tutti_layer *layer = UNTOUCHED(tutti_layer);                                               \
        tutti_##kind##_desc bad = good;                                                            \
        bad.change;                                                                                \
        harness_where("%s", #change);                                                              \
        CHECK_FAILS_KEEPING(layer, TUTTI_ERR_ARG, word, tutti_##kind##_create(ctx, &bad, &layer)); \
        harness_where(NULL);                                                                       \
    } while (0)

#endif
