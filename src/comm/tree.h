/* What the tree's engine keeps: tree.c moves and adds, tree_open.c has the memory for it. */
#ifndef TUTTI_COMM_TREE_H
#define TUTTI_COMM_TREE_H

#include "comm/engine.h"

typedef struct tutti__tree {
    tutti__engine_table table; /* the carrier's, with the tree's own entries */
    bool apart;                /* sums over the ranks are computed in slots, not in the gradients */
    void *received;            /* roots of the other ranks, ... */
    char **places;             /* ... those of each range */
    size_t *ahead;             /* of each range: bytes of one root's slices of the ranges before */
    void **received_of;        /* copy engines: where other ranks receive, ... */
    void **gradients_of;       /* ... and their gradients, ... */
    bool shared;               /* ... if these are used for it */
    tutti__piece *pieces;      /* room for a swap's messages */
} tutti__tree;

/* Bytes of a received piece of a range. */
size_t tutti__tree_piece_bytes(const tutti__engine *engine, const tutti__engine_range *range);
/* Whether a range's pieces are received in the gradients of the one before. */
bool tutti__tree_in_gradients(const tutti__engine *engine, int range);

/* Has merge, start, arrived, add, place, room and spread. */
extern const tutti__engine_table tutti__tree_moves;

#endif
