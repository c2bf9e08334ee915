/* The random bits of a mask, from the paper's definition of Philox 4x32-10.  [Salmon, Moraes, Dror
 * & Shaw 2011] */
#ifndef TUTTI_REFERENCE_PHILOX_H
#define TUTTI_REFERENCE_PHILOX_H

#include <stdint.h>

static inline void reference_philox(uint32_t word[4], uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t left = (uint64_t)word[0] * 0xD2511F53u;
        const uint64_t right = (uint64_t)word[2] * 0xCD9E8D57u;
        word[0] = (uint32_t)(right >> 32) ^ word[1] ^ (key0 + (uint32_t)round * 0x9E3779B9u);
        word[2] = (uint32_t)(left >> 32) ^ word[3] ^ (key1 + (uint32_t)round * 0xBB67AE85u);
        word[1] = (uint32_t)right;
        word[3] = (uint32_t)left;
    }
}

/* The 16 bits of an element, `row` its number in the global batch. */
static inline uint32_t reference_mask_bits(uint64_t seed, int64_t step, int64_t layer_number,
                                           int64_t row, int64_t col)
{
    uint32_t word[4] = {(uint32_t)(layer_number * 131072 + col / 8), (uint32_t)(step & 0xffffffff),
                        (uint32_t)(row & 0xffffffff), (uint32_t)(row >> 32)};
    reference_philox(word, (uint32_t)(seed & 0xffffffff), (uint32_t)(seed >> 32));
    const uint32_t pair = word[col % 8 / 2];
    return col % 2 ? pair / 65536 : pair % 65536;
}

#endif
