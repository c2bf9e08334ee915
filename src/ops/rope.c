/* The frequencies of rotary positions, in 128-bit integers: those of double are right to 2^-53 of
 * themselves, which many thousand positions multiply.
 *
 * The ratio r of neighbouring frequencies is the root of r^pairs = 1 / base, by Newton's method
 * from the double one; the frequencies are its powers. */
#include "ops/rope.h"

#include <math.h>
#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;
__extension__ typedef __int128 wide_signed;

/* Numbers from 0 to 1 in units of 2^-127. */
static const wide one = (wide)1 << 127;

static wide product(wide a, wide b)
{
    const uint64_t a_low = (uint64_t)a, a_high = (uint64_t)(a >> 64);
    const uint64_t b_low = (uint64_t)b, b_high = (uint64_t)(b >> 64);
    const wide first = (wide)a_low * b_high, second = (wide)a_high * b_low;
    const wide low = (wide)a_low * b_low;
    const wide middle = (low >> 64) + (uint64_t)first + (uint64_t)second;
    const wide high = (wide)a_high * b_high + (first >> 64) + (second >> 64) + (middle >> 64);
    return high << 1 | (middle >> 63 & 1);
}

static wide power(wide a, int64_t exponent)
{
    wide result = one;
    for (; exponent > 0; exponent >>= 1, a = product(a, a))
        if (exponent & 1) result = product(result, a);
    return result;
}

/* 1 / base by long division of integers: base is digits * 2^exponent. */
static wide inverse(double base)
{
    int exponent;
    const wide digits = (wide)ldexp(frexp(base, &exponent), 53);
    exponent -= 53;
    wide quotient = one / digits, rest = one % digits;
    for (; exponent < 0; exponent++) {
        rest <<= 1;
        quotient = quotient << 1 | (rest >= digits);
        if (rest >= digits) rest -= digits;
    }
    return quotient >> exponent;
}

/* Each step squares the relative error, 2^-46 or so at first; the third removes what rounding the
 * correction to a double left. */
static wide root(double base, int64_t pairs)
{
    const wide wanted = inverse(base);
    if (pairs == 1 || base == 1) return wanted;
    wide r = (wide)ldexp(pow(base, -1.0 / (double)pairs), 127);
    for (int step = 0; step < 3; step++) {
        const wide is = power(r, pairs);
        const double off = (double)(wide_signed)(wanted - is) / (double)is / (double)pairs;
        const wide change = product(r, (wide)ldexp(fabs(off), 127));
        r = off < 0 ? r - change : r + change;
    }
    return r;
}

tutti__rope_frequency *tutti__rope_frequencies(double base, int64_t pairs)
{
    /* 1 / 2 pi in units of 2^-128 */
    const wide per_radian = (wide)UINT64_C(0x28be60db9391054a) << 64 | UINT64_C(0x7f09d5f47d4d3770);
    tutti__rope_frequency *frequencies = malloc((size_t)pairs * sizeof *frequencies);
    if (!frequencies) return NULL;
    const wide r = root(base, pairs);
    wide frequency = one;
    for (int64_t i = 0; i < pairs; i++, frequency = product(frequency, r)) {
        const wide turns = product(frequency, per_radian);
        frequencies[i] = (tutti__rope_frequency){(uint64_t)(turns >> 64), (uint64_t)turns};
    }
    return frequencies;
}

void tutti__rope_drop(void *frequencies)
{
    free(frequencies);
}
