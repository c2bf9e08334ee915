/* What the files of the matrix share. */
#ifndef TESTS_LAYERS_MATRIX_PARTS_H
#define TESTS_LAYERS_MATRIX_PARTS_H

#include "matrix.h"

enum { MATRIX_SMALL = 8192 }; /* elements, up to which a shape runs with every variant */

extern const matrix_kind *matrix_tested;
extern const tutti_layer_type *matrix_type; /* its table */

const matrix_shape *matrix_some(void);
const char *matrix_small(void);
const char *const *matrix_types(void);
int matrix_count(const char *const *list);
/* The approximate number of elements of a shape's tensors. */
double matrix_work(const matrix_shape *shape);
/* How many of matrix_some() are of moderate size, from the first on. */
int matrix_moderate(void);
/* Does a shape run with this variant? */
bool matrix_meets(const matrix_shape *shape, int variant, int turn);
/* The first option from this one on that is a type; NULL if there is none. */
const tutti_layer_option *matrix_next_type(const tutti_layer_option *option);
trial_desc matrix_case(int64_t rows, const char *sizes, const char *types, const char *variant);
/* Skips all but one of n when time is short. */
bool matrix_left_out(int turn, int n);
/* Slots of optional inputs and of what depends on them. */
unsigned matrix_optional(void);

void matrix_test_optional_tensors(void);
void matrix_test_in_place(void);
void matrix_test_no_rows(void);
void matrix_test_nonfinite(void);
void matrix_test_bad_indices(void);
void matrix_test_row_bits(void);
void matrix_test_repeated(void);
void matrix_test_finite_differences(void);
void matrix_test_step_factors(void);
void matrix_test_tf32(void);

#endif
