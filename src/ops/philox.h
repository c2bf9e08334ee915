/* Stateless random bits, equal on the host and on a GPU: Philox 4x32-10.  [Salmon, Moraes, Dror &
 * Shaw 2011] */
#ifndef TUTTI_OPS_PHILOX_H
#define TUTTI_OPS_PHILOX_H

#include "core/op.h"

typedef struct tutti__random {
    uint32_t word[4];
} tutti__random;

static inline TUTTI__ANYWHERE tutti__random tutti__philox_round(tutti__random c, uint32_t key0,
                                                                uint32_t key1)
{
    const uint64_t a = UINT64_C(0xd2511f53) * c.word[0], b = UINT64_C(0xcd9e8d57) * c.word[2];
    const tutti__random next = {{(uint32_t)(b >> 32) ^ c.word[1] ^ key0, (uint32_t)b,
                                 (uint32_t)(a >> 32) ^ c.word[3] ^ key1, (uint32_t)a}};
    return next;
}

/* What is added to a key after each of the 10 rounds. */
#define TUTTI__PHILOX_BUMP0 0x9e3779b9u
#define TUTTI__PHILOX_BUMP1 0xbb67ae85u

static inline TUTTI__ANYWHERE tutti__random tutti__philox(tutti__random counter, uint32_t key0,
                                                          uint32_t key1)
{
    tutti__random c = counter;
    for (int round = 0; round < 10; round++) {
        c = tutti__philox_round(c, key0, key1);
        key0 += TUTTI__PHILOX_BUMP0;
        key1 += TUTTI__PHILOX_BUMP1;
    }
    return c;
}

/* 128 bits for 8 neighbouring elements of a tensor, 16 each: element i's are the lower (i even) or
 * upper half of word[i / 2].  They depend on the seed, the layer's number (below 2^15), the step
 * modulo 2^32, and the elements' place in the global batch: row and group = column / 8, below 2^17.
 * No two of these combinations share a counter. */
static inline TUTTI__ANYWHERE tutti__random tutti__random_counter(uint32_t who, int64_t step,
                                                                  int64_t row, uint32_t group)
{
    const tutti__random counter = {
        {who << 17 | group, (uint32_t)step, (uint32_t)row, (uint32_t)(row >> 32)}};
    return counter;
}

static inline TUTTI__ANYWHERE tutti__random tutti__random_at(uint64_t seed, uint32_t who,
                                                             int64_t step, int64_t row,
                                                             uint32_t group)
{
    return tutti__philox(tutti__random_counter(who, step, row, group), (uint32_t)seed,
                         (uint32_t)(seed >> 32));
}

#endif
