/* The tree over the leaves.  A node is named by its level and its number there; leaf i is node (0,
 * i), and the parent of (l, n) is (l + 1, n / 2).  A run of leaves is a list of whole subtrees,
 * whose roots are found with a stack: after each push an odd node and its left neighbour become
 * their parent. */
#include "comm/leaves.h"

#include <stdlib.h>

typedef struct node {
    int level, number;
} node;

typedef struct stack {
    node nodes[2 * TUTTI__LEAVES_LEVELS];
    int depth;
} stack;

/* Pushes a node; returns how many merges follow. */
static int push(stack *s, node top)
{
    int merges = 0;
    while (s->depth > 0 && top.number % 2 == 1 && s->nodes[s->depth - 1].level == top.level) {
        TUTTI_ASSERT(s->nodes[s->depth - 1].number == top.number - 1);
        s->depth--;
        top = (node){top.level + 1, top.number / 2};
        merges++;
    }
    s->nodes[s->depth++] = top;
    return merges;
}

static int first_leaf(int total, int rank, int world_size)
{
    return (int)((int64_t)total * rank / world_size);
}

tutti_status tutti__leaves_open(tutti__leaves *leaves, int total, int rank, int world_size)
{
    *leaves = (tutti__leaves){.total = total};
    if (total == 0) return TUTTI_OK;
    leaves->first = first_leaf(total, rank, world_size);
    leaves->count = first_leaf(total, rank + 1, world_size) - leaves->first;
    leaves->rank_roots = calloc((size_t)world_size + 1, sizeof *leaves->rank_roots);
    if (!leaves->rank_roots) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    stack all = {.depth = 0};
    for (int r = 0; r < world_size; r++) {
        stack own = {.depth = 0};
        int end = first_leaf(total, r + 1, world_size);
        for (int leaf = first_leaf(total, r, world_size); leaf < end; leaf++) {
            (void)push(&own, (node){0, leaf});
            /* all roots are in slots while the next leaf is computed; for the exchange the last
             * need not be */
            int slots = leaf + 1 < end ? own.depth : own.depth - 1;
            if (r == rank && slots > leaves->slots) leaves->slots = slots;
        }
        leaves->rank_roots[r] = leaves->roots;
        if (r == rank) {
            leaves->first_root = leaves->roots;
            leaves->own_roots = own.depth;
        }
        for (int k = 0; k < own.depth; k++)
            leaves->pops[leaves->roots++] = (unsigned char)push(&all, own.nodes[k]);
    }
    leaves->rank_roots[world_size] = leaves->roots;
    TUTTI_ASSERT(all.depth == 1);
    return TUTTI_OK;
}

tutti_status tutti__leaves_open_ranks(tutti__leaves *leaves, int rank, int world_size)
{
    *leaves = (tutti__leaves){.roots = world_size, .first_root = rank, .own_roots = 1};
    if (world_size > TUTTI__TREE_INPUTS_MAX)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "grad_sync_create: there are %d ranks, want at most %d with a sharded "
                           "store, with wire bf16, or with engine copy",
                           world_size, TUTTI__TREE_INPUTS_MAX);
    leaves->rank_roots = calloc((size_t)world_size + 1, sizeof *leaves->rank_roots);
    if (!leaves->rank_roots) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    for (int r = 0; r <= world_size; r++) leaves->rank_roots[r] = r;
    for (int r = 1; r < world_size; r++) leaves->pops[r] = 1;
    return TUTTI_OK;
}

void tutti__leaves_close(tutti__leaves *leaves)
{
    free(leaves->rank_roots);
    leaves->rank_roots = NULL;
}

tutti__leaf_merge tutti__leaves_merge(const tutti__leaves *leaves, int leaf)
{
    stack own = {.depth = 0};
    for (int i = leaves->first; i < leaf; i++) (void)push(&own, (node){0, i});
    int depth = own.depth;
    return (tutti__leaf_merge){depth, push(&own, (node){0, leaf})};
}
