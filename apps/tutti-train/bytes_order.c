/* A Feistel network permutes the numbers of 2 half bits, at most 4 count of them; it is applied
 * until the image is below count, at most 4 times on average.  That ends, since the cycle returns
 * to the place itself, and permutes the numbers below count.
 * [Luby & Rackoff 1988; Black & Rogaway 2002, cycle-walking cipher] */
#include "bytes_order.h"

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t bytes_random(uint64_t *state)
{
    return mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

bytes_order bytes_order_make(int64_t count, uint64_t seed, int64_t epoch)
{
    bytes_order order = {.count = (uint64_t)count, .half = 1};
    while (UINT64_C(1) << 2 * order.half < order.count) order.half++;
    uint64_t state = seed;
    state = bytes_random(&state) ^ (uint64_t)epoch;
    for (int i = 0; i < BYTES_ORDER_ROUNDS; i++) order.keys[i] = bytes_random(&state);
    return order;
}

static uint64_t permute(const bytes_order *order, uint64_t number)
{
    const uint64_t mask = (UINT64_C(1) << order->half) - 1;
    uint64_t left = number >> order->half, right = number & mask;
    for (int i = 0; i < BYTES_ORDER_ROUNDS; i++) {
        const uint64_t next = left ^ (mix(right ^ order->keys[i]) & mask);
        left = right;
        right = next;
    }
    return left << order->half | right;
}

int64_t bytes_order_at(const bytes_order *order, int64_t place)
{
    uint64_t number = (uint64_t)place;
    do number = permute(order, number);
    while (number >= order->count);
    return (int64_t)number;
}
