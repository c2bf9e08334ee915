/* What bad_kinds.c runs for every kind: the checks of descriptors (bad_descs.c), of a call's
 * tensors (bad_tensors.c) and of memory that overlaps (bad_memory.c); and the call they spoil. */
#ifndef TESTS_API_BAD_KINDS_H
#define TESTS_API_BAD_KINDS_H

#include "bad_input.h"
#include "layer_fixture.h"

enum { ROWS = 3 };

typedef enum verb { PLAN, FORWARD, BACKWARD } verb;

extern struct bad_call {
    layer_fixture f;
    verb verb;
    bool typed; /* the kind's own call, not the general one */
} fix;
/* Makes the call. */
tutti_status attempt(void);

/* The last error is about this place. */
void check_place(tutti_call_place want);

/* True if the verb looks at this tensor, in any of its directions, or in one of them. */
bool looked_at(int slot, bool gradient);
bool looked_at_by(int slot, bool gradient, bool backward);

/* A kind's descriptor and the arguments of its create. */
void check_create(const layer_kind *kind);
/* Every way in which a tensor can be wrong. */
void check_tensor(int slot, bool gradient);
/* Tensors without those that they need: "sum without residual", "dsum without dx". */
void check_company(void);
/* A tensor in a slot that the kind does not have, or a gradient of a slot without one. */
void check_no_slot(void);
/* What is written must not overlap anything else. */
void check_memory(void);

#endif
