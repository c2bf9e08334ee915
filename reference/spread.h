/* Independent rounding errors, as in docs/numerics.md: the sum of their worst cases, the sum of
 * squares of the many, and the sum of the few larger ones, which count in full. */
#ifndef TUTTI_REFERENCE_SPREAD_H
#define TUTTI_REFERENCE_SPREAD_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "tutti/tensor.h"

/* Wide enough that squares of f64 errors neither overflow nor underflow. */
typedef long double real;

typedef struct spread {
    real total, squares, few;
} spread;

/* The error of a square root, an exponential, a logarithm and the like, in roundoffs. */
#define SPREAD_FUNCTION 4

static inline spread spread_add(spread a, spread b)
{
    return (spread){a.total + b.total, a.squares + b.squares, a.few + b.few};
}

/* count roundings of this size. */
static inline spread spread_of(real worst, int count)
{
    worst = fabsl(worst);
    return (spread){count * worst, count * worst * worst, 0};
}

/* One larger error. */
static inline spread spread_single(real worst)
{
    return (spread){fabsl(worst), 0, fabsl(worst)};
}

/* A whole computation as one error, independent of other sources: the root of its sum of
 * squares. */
static inline spread spread_whole(real worst)
{
    return (spread){fabsl(worst), worst * worst / 16, 0};
}

/* Error of a value multiplied by an exact factor. */
static inline spread spread_times(spread a, real factor)
{
    factor = fabsl(factor);
    return (spread){factor * a.total, factor * factor * a.squares, factor * a.few};
}

/* As a part of a sum over many such values. */
static inline spread spread_part(spread a)
{
    return (spread){a.total, a.squares + a.few * a.few, 0};
}

static inline real spread_most(spread a)
{
    return fminl(a.total, a.few + 4 * sqrtl(a.squares));
}

/* The terms of a reference's sum, which is exact to one rounding: rest has the rounding errors of
 * its additions. */
typedef struct moments {
    real count, magnitude, squares, total, rest;
} moments;

static inline void moments_add(moments *m, real term)
{
    const real total = m->total + term;
    if (isfinite(total)) { /* otherwise rest is not used, and arithmetic on NaN is slow */
        const real part = total - m->total;
        m->rest += (m->total - (total - part)) + (term - part);
    }
    m->total = total;
    m->count++;
    m->magnitude += fabsl(term);
    m->squares += term * term;
}

static inline real moments_total(const moments *m)
{
    return isfinite(m->total) ? m->total + m->rest : m->total;
}

static inline real spread_depth(real count)
{
    return count <= 8 ? fmaxl(count - 1, 0) : 7 + log2l(count / 8);
}

/* Error of adding them in blocks that are merged pairwise. */
static inline spread spread_tree(real u, const moments *m)
{
    const real depth = spread_depth(m->count);
    return (spread){depth * u * m->magnitude,
                    m->count > 1 ? u * u * (2 * m->total * m->total + depth * m->squares) : 0, 0};
}

/* Error of adding them one after the other, in any order.  The squares of the partial sums add up
 * to n (S^2 / 3 + Q / 6) on average, but one random path may be far from it: what exceeds `most`
 * then falls as exp(-2.2 * 4), not as a normal deviate's tail.  Six times the path's part makes it
 * exp(-2.2 * 4 * sqrt(6)), one element in 10^9. */
static inline spread spread_chain(real u, const moments *m)
{
    if (m->count <= 1) return (spread){0, 0, 0};
    const real squares = m->count * (m->total * m->total / 3 + m->squares);
    return (spread){(m->count - 1) * u * m->magnitude, u * u * squares, 0};
}

/* Error of adding them in blocks of up to some hundred that are merged pairwise, as one call of
 * this library adds rows: no worse than a chain of terms in random order, and no worse than pairs
 * otherwise.  The latter is one error, independent of other sources'. */
static inline spread spread_blocks(real u, const moments *m)
{
    const real worst = spread_depth(m->count) * u * m->magnitude;
    const spread chain = spread_chain(u, m);
    return spread_most(chain) < worst ? chain : spread_whole(worst);
}

static inline real spread_roundoff(tutti_dtype dtype)
{
    return dtype == TUTTI_F64   ? 0x1p-53
           : dtype == TUTTI_F32 ? 0x1p-24
           : dtype == TUTTI_F16 ? 0x1p-11
                                : 0x1p-8;
}

/* The smallest positive number of a type. */
static inline real spread_least(tutti_dtype dtype)
{
    return dtype == TUTTI_F64   ? 0x1p-1074
           : dtype == TUTTI_F32 ? 0x1p-149
           : dtype == TUTTI_F16 ? 0x1p-24
                                : 0x1p-133;
}

/* The largest number of a type. */
static inline real spread_greatest(tutti_dtype dtype)
{
    return dtype == TUTTI_F64   ? (real)DBL_MAX
           : dtype == TUTTI_F32 ? (real)FLT_MAX
           : dtype == TUTTI_F16 ? 65504
                                : 0x1.fep127L;
}

/* The smallest normal number of the arithmetic. */
static inline real spread_tiny(tutti_dtype computed)
{
    return computed == TUTTI_F64 ? 0x1p-1022 : 0x1p-126;
}

/* The bound of a result that was computed in one type and is stored in another; its reference is
 * stored in f64. */
static inline real spread_stored(spread a, real value, tutti_dtype dtype, tutti_dtype computed)
{
    const real error = spread_most(a);
    const real roundoff = 0x1p-53 + (dtype == computed ? 0 : spread_roundoff(dtype));
    return error + roundoff * (fabsl(value) + error) + spread_least(dtype) / 2;
}

#endif
