/* One set of tests for LayerNorm and RMSNorm. */
#ifndef TESTS_LAYERS_NORM_CHECK_H
#define TESTS_LAYERS_NORM_CHECK_H

/* Runs the matrix, with these variants (up to a NULL), and what is special in norms; returns the
 * exit code. */
int norm_main(int argc, char **argv, const char *kind, const char *const variants[]);

#endif
