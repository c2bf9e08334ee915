/* A sum of several gradients in a fixed order. */
#ifndef TUTTI_OPS_TREE_SUM_H
#define TUTTI_OPS_TREE_SUM_H

#include "core/op.h"

/* dst = the sum of the inputs as a binary tree: after input k is pushed on a stack, its two top
 * entries are replaced by their sum pops[k] times; one is left at the end.  Elementwise, so dst may
 * be an input. */
enum { TUTTI__TREE_INPUTS_MAX = 256 };
typedef struct tutti__tree_sum_args {
    int64_t count;
    tutti_dtype dtype;              /* of the sums: f32 or f64 */
    tutti_dtype in_dtype, to_dtype; /* of all inputs, and of dst: 0, that of the sums; or bf16 */
    void *dst;
    int inputs, threads; /* threads: the host's */
    /* As many equal sums follow, on a GPU: each has dst and the inputs [near, near + near_inputs)
     * `apart` bytes further on, and the others far_apart, all multiples of 16. */
    int more, near, near_inputs;
    int64_t apart, far_apart;
    /* The same inputs and dst are of the sums' type, but are rounded to in_dtype and to_dtype. */
    bool rounds;
    /* NULL, or, on a GPU, where the squares of the sums go, of each TUTTI__NORM_RUN of them, which
     * dst begins with; those of the sums that follow lie squares_apart further on.  All of one type
     * that is not rounded, and 16-byte aligned. */
    double *squares;
    int64_t squares_apart;
    /* On a GPU: the call before, on the same stream, was such a sum, too, with which this one has
     * no memory in common; both may run at a time.  The first of them, with beside false, follows
     * something that starts nothing early: a wait, not a kernel of that kind. */
    bool beside;
    const void *in[TUTTI__TREE_INPUTS_MAX];
    unsigned char pops[TUTTI__TREE_INPUTS_MAX];
} tutti__tree_sum_args;

#endif
