/* What each layer should compute, in plain C and long double, and how far a correct implementation
 * may be from it (docs/numerics.md).  Private; used by tests, tutti-validate and tutti-bench.
 * Shares no code with the library.
 *
 * Tensors are dense, row after row; given values are already rounded to their types; NaN and
 * infinities propagate as the formulas say.  Results are not yet rounded to their types: a value
 * beyond a type's largest number stands for infinity. */
#ifndef TUTTI_REFERENCE_H
#define TUTTI_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/layer.h"
#include "tutti/step.h"

enum { REFERENCE_SLOTS = 3 * TUTTI_MAX_SLOTS, REFERENCE_PARAMS = 8 };

/* given: the call's inputs, parameters and upstream gradients; NULL: absent.
 *   Of an output that backward reads: as forward stored it; gradients are then taken from it.
 *   Of a parameter's gradient: the old one, which the new one is added to.
 * value, bound: the result and its bound; NULL: not wanted. */
typedef struct reference_tensor {
    const double *given;
    double *value, *bound;
} reference_tensor;

/* layer: its kind, shapes and types, and the types of gradients of bound parameters.
 * options: the string that it was made from, "cols=8,log=1".
 * step: of kinds that read one; all 0: none.
 * any_order: bounds are for sums over rows in any order (of several ranks), and leave more room
 *   elsewhere; false: for what one call of this library does.
 * expected_roundoff: if results are compared with values that others computed by the same formulas,
 *   the unit roundoff of their arithmetic, which is added to the bounds.
 * slots, params: [number in the kind's table][0: value, 1: gradient]. */
typedef struct reference_problem {
    tutti_layer *layer;
    const char *options;
    int64_t rows, first_row;
    tutti_step_values step;
    bool any_order;
    double expected_roundoff;
    reference_tensor slots[REFERENCE_SLOTS][2], params[REFERENCE_PARAMS][2];
} reference_problem;

/* The tensor with this name: "x", a gradient as "dx".  NULL if the layer's kind has none. */
reference_tensor *reference_place(reference_problem *problem, const char *name);

bool reference_knows(const char *kind);
/* Fills values and bounds.  NULL, or an error message: no memory, a kind without formulas. */
const char *reference_compute(const reference_problem *problem);

#endif
