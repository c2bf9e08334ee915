/* A hash of device memory that does not depend on the order of adding. */
#ifndef TUTTI_OPS_HASH_H
#define TUTTI_OPS_HASH_H

#include "core/op.h"

/* Word i of a hash: SplitMix64's mixing of the word and its place. [Steele, Lea & Flood 2014] */
static inline TUTTI__ANYWHERE uint64_t tutti__mix(uint32_t word, int64_t i)
{
    uint64_t z = word + (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
