/* Reproducible mode: which leaves a rank has, how they merge, and how ranges of gradients are
 * summed over the ranks in the order of a binary tree over all leaves. */
#ifndef TUTTI_COMM_LEAVES_H
#define TUTTI_COMM_LEAVES_H

#include "comm/comm.h"
#include "core/backend.h"
#include "ops/tree_sum.h"

#define TUTTI__LEAVES_LEVELS 9 /* of a tree of TUTTI_LEAVES_MAX leaves */

/* Merging a rank's leaves: a stack like a binary counter, whose entries are whole subtrees in
 * slots, slot 0 the oldest.  A leaf is computed in the gradient buffer, those of a run of several
 * (leaf_run.c) beside each other; tree.c decides whether the rank's last root goes to the gradient
 * buffer or to a slot. */
typedef struct tutti__leaf_merge {
    int depth;  /* slots in use before the leaf */
    int merges; /* of these, how many of the last are summed with the leaf's gradients */
} tutti__leaf_merge;

typedef struct tutti__leaves {
    int total;                 /* of all ranks; 0: fast mode */
    int first, count;          /* this rank's */
    int slots;                 /* that this rank needs, not counting its last root */
    int roots;                 /* subtrees of all ranks, in the order of their leaves */
    int first_root, own_roots; /* this rank's among them */
    unsigned char pops[TUTTI__TREE_INPUTS_MAX]; /* merges after each root */
    int *rank_roots; /* [world_size + 1]: where each rank's roots begin */
} tutti__leaves;

/* total: a power of two, not below world_size. */
tutti_status tutti__leaves_open(tutti__leaves *leaves, int total, int rank, int world_size);
/* No leaves (total 0): each rank has one root, its gradients, and they are added in rank order. */
tutti_status tutti__leaves_open_ranks(tutti__leaves *leaves, int rank, int world_size);
void tutti__leaves_close(tutti__leaves *leaves);

/* What happens when a leaf of this rank is complete; leaf: its number among all. */
tutti__leaf_merge tutti__leaves_merge(const tutti__leaves *leaves, int leaf);

#endif
