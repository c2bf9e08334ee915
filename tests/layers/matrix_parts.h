/* What the files of the matrix share. */
#ifndef TESTS_LAYERS_MATRIX_PARTS_H
#define TESTS_LAYERS_MATRIX_PARTS_H

#include "matrix.h"

/* The kind that is tested, and its table. */
extern const matrix_kind *matrix_tested;
extern const tutti_layer_type *matrix_type;

/* Up to a NULL. */
const matrix_shape *matrix_some(void);
const char *matrix_small(void);
const char *const *matrix_types(void);
int matrix_variants(void);
/* How many elements a shape has that all sizes count in: products of a linear layer, say. */
double matrix_work(const matrix_shape *shape);
enum { MATRIX_SMALL = 8192, MATRIX_LONG = 140000 };
/* Small shapes meet every variant, large ones the common ones, which take turns at the longest;
 * all take turns where none is common. */
bool matrix_meets(const matrix_shape *shape, int variant, int turn);
/* One of n where time is short. */
bool matrix_left_out(int turn, int n);
/* A case of the kind; types and variant as text. */
trial_desc matrix_case(int64_t rows, const char *sizes, const char *types, const char *variant);
/* The next option of a type from this one on; NULL: there is none. */
const tutti_layer_option *matrix_next_type(const tutti_layer_option *option);

void matrix_test_optional_tensors(void);
void matrix_test_in_place(void);
void matrix_test_no_rows(void);
void matrix_test_nonfinite(void);
void matrix_test_row_bits(void);
void matrix_test_repeated(void);
void matrix_test_finite_differences(void);

#endif
