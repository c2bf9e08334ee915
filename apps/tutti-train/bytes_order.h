/* The order of an epoch's samples: a permutation of any length that needs no memory. */
#ifndef TUTTI_TRAIN_BYTES_ORDER_H
#define TUTTI_TRAIN_BYTES_ORDER_H

#include <stdint.h>

enum { BYTES_ORDER_ROUNDS = 6 };

typedef struct bytes_order {
    uint64_t count;
    int half; /* bits of each half of the numbers that are permuted */
    uint64_t keys[BYTES_ORDER_ROUNDS];
} bytes_order;

/* A permutation of 0 to count - 1, count from 1 to 2^62, by count, seed and epoch alone. */
bytes_order bytes_order_make(int64_t count, uint64_t seed, int64_t epoch);

/* The number at a place of the order. */
int64_t bytes_order_at(const bytes_order *order, int64_t place);

/* The next of a sequence of random numbers.  [Steele, Lea & Flood 2014, splitmix64] */
uint64_t bytes_random(uint64_t *state);

#endif
