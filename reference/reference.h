/* What each layer should compute, once, in plain C and long double, with how far a right implementation may be from it
 * (docs/numerics.md).  Private; used by tests, tutti-validate and tutti-bench.  Shares no code with the library.
 *
 * Tensors are dense, row after row, given values already rounded to their types; NaN and infinities take the course that the
 * formulas give them.  Results are those before they are rounded to their types: a value beyond a type's greatest number
 * stands for that type's infinity. */
#ifndef TUTTI_REFERENCE_H
#define TUTTI_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/layer.h"
#include "tutti/step.h"

enum { REFERENCE_SLOTS = 3 * TUTTI_MAX_SLOTS, REFERENCE_PARAMS = 8 };

typedef struct reference_tensor {
    const double *
        given; /* what the call has: inputs, parameters, upstream gradients; NULL: absent.  Of an output that backward
                            reads: as forward stored it, and then gradients are taken from it.  Of a parameter's gradient: the
                            old one, which the new one is added to */
    double *value, *bound; /* what is wanted of a result; NULL: not wanted */
} reference_tensor;

typedef struct reference_problem {
    tutti_layer *layer; /* its kind, shapes and types; the types of gradients of bound parameters */
    const char *options; /* the string it was made from: "cols=8,log=1" */
    int64_t rows, first_row;
    tutti_step_values step; /* of kinds that read one */
    bool any_order; /* sums over rows may be a chain in any order (of several ranks); false: in
                               blocks merged pairwise, as one call forms them */
    double
        expected_roundoff; /* where results are compared not with the values here but with what others made by the same
                                 formulas: the unit roundoff of their arithmetic, for whose errors bounds leave room; else 0 */
    /* [number in the kind's table][0: value, 1: gradient] */
    reference_tensor slots[REFERENCE_SLOTS][2], params[REFERENCE_PARAMS][2];
} reference_problem;

/* The place of a tensor: "x", a gradient as "dx".  NULL: the kind of the problem's layer has none of this name. */
reference_tensor *reference_place(reference_problem *problem, const char *name);

bool reference_knows(const char *kind);
/* Fills values and bounds.  NULL, or what is wrong: no memory, a kind without formulas. */
const char *reference_compute(const reference_problem *problem);

#endif
