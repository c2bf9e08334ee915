/* What each layer should compute, once, in plain C and long double, with how far a right
 * implementation may be from it (docs/numerics.md).  Private; used by tests, tutti-validate and
 * tutti-bench.  Shares no code with the library.
 *
 * Tensors are dense, row after row, given values already rounded to their types; NaN and
 * infinities take the course that the formulas give them.  Results are those before they are
 * rounded to their types: a value beyond a type's greatest number stands for that type's
 * infinity. */
#ifndef TUTTI_REFERENCE_H
#define TUTTI_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/layer.h"
#include "tutti/step.h"

enum { REFERENCE_SLOTS = 3 * TUTTI_MAX_SLOTS, REFERENCE_PARAMS = 8 };

/* given: what the call has, that is inputs, parameters, upstream gradients; NULL: absent.
 *   Of an output that backward reads: as forward stored it; gradients are then taken from it.
 *   Of a parameter's gradient: the old one, which the new one is added to.
 * value, bound: what is wanted of a result; NULL: not wanted. */
typedef struct reference_tensor {
    const double *given;
    double *value, *bound;
} reference_tensor;

/* layer: its kind, shapes and types, and the types of gradients of bound parameters.
 * options: the string that it was made from, "cols=8,log=1".
 * step: of kinds that read one; all 0: none.
 * any_order: bounds are for sums over rows in any order (of several ranks), and leave more room
 *   elsewhere; false: for what one call of this library does.
 * expected_roundoff: results are compared not with the values here but with what others made by
 *   the same formulas; the unit roundoff of their arithmetic, for which bounds leave room.
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

/* The place of a tensor: "x", a gradient as "dx".  NULL: the kind of the problem's layer has
 * none of this name. */
reference_tensor *reference_place(reference_problem *problem, const char *name);

bool reference_knows(const char *kind);
/* Fills values and bounds.  NULL, or what is wrong: no memory, a kind without formulas. */
const char *reference_compute(const reference_problem *problem);

#endif
