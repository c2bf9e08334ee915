/* Rounding errors that do not know of each other, after docs/numerics.md: the sum of their worst cases, the sum of the squares
 * of many, and the sum of few larger ones, which count in full. */
#ifndef TUTTI_VALIDATE_SPREAD_H
#define TUTTI_VALIDATE_SPREAD_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "tutti/tensor.h"

typedef struct spread {
    double total, squares, few;
} spread;

/* What a square root, an exponential, a logarithm or the like may be wrong by, in roundoffs. */
#define SPREAD_FUNCTION 4

static inline spread spread_add(spread a, spread b)
{
    return (spread){a.total + b.total, a.squares + b.squares, a.few + b.few};
}

/* count roundings of this size. */
static inline spread spread_of(double worst, int count)
{
    worst = fabs(worst);
    return (spread){count * worst, count * worst * worst, 0};
}

/* One larger error. */
static inline spread spread_single(double worst)
{
    return (spread){fabs(worst), 0, fabs(worst)};
}

/* Of a value that is multiplied by an exact factor. */
static inline spread spread_times(spread a, double factor)
{
    factor = fabs(factor);
    return (spread){factor * a.total, factor * factor * a.squares, factor * a.few};
}

/* As a part of a sum over many such values. */
static inline spread spread_part(spread a)
{
    return (spread){a.total, a.squares + a.few * a.few, 0};
}

static inline double spread_most(spread a)
{
    return fmin(a.total, a.few + 4 * sqrt(a.squares));
}

/* The terms of a sum, which is exact to a rounding: what its additions round off is in rest.  References are made of it. */
typedef struct moments {
    double count, magnitude, squares, total, rest;
} moments;

static inline void moments_add(moments *m, double term)
{
    const double total = m->total + term, part = total - m->total;
    m->rest += (m->total - (total - part)) + (term - part);
    m->total = total;
    m->count++;
    m->magnitude += fabs(term);
    m->squares += term * term;
}

static inline double moments_total(const moments *m)
{
    return isfinite(m->total) ? m->total + m->rest : m->total;
}

static inline double spread_depth(double count)
{
    return count <= 8 ? fmax(count - 1, 0) : 7 + log2(count / 8);
}

/* Adding them up in blocks that are merged pairwise. */
static inline spread spread_tree(double u, const moments *m)
{
    const double depth = spread_depth(m->count);
    return (spread){depth * u * m->magnitude,
                    m->count > 1 ? u * u * (2 * m->total * m->total + depth * m->squares) : 0, 0};
}

/* Adding them up one after the other, in any order.  The squares of the partial sums add up to n (S^2 / 3 + Q / 6) on average; but
 * they are those of one random path, which may stray: what exceeds `most` falls as exp(-2.2 * 4) then, not as a normal
 * deviate's tail.  Six times the path's part makes it exp(-2.2 * 4 * sqrt(6)), one element in 10^9. */
static inline spread spread_chain(double u, const moments *m)
{
    if (m->count <= 1) return (spread){0, 0, 0};
    const double squares = m->count * (m->total * m->total / 3 + m->squares);
    return (spread){(m->count - 1) * u * m->magnitude, u * u * squares, 0};
}

static inline double spread_roundoff(tutti_dtype dtype)
{
    return dtype == TUTTI_F64   ? 0x1p-53
           : dtype == TUTTI_F32 ? 0x1p-24
           : dtype == TUTTI_F16 ? 0x1p-11
                                : 0x1p-8;
}

/* The least positive number of a type. */
static inline double spread_least(tutti_dtype dtype)
{
    return dtype == TUTTI_F64   ? 0x1p-1074
           : dtype == TUTTI_F32 ? 0x1p-149
           : dtype == TUTTI_F16 ? 0x1p-24
                                : 0x1p-133;
}

/* The greatest number of the arithmetic. */
static inline double spread_huge(tutti_dtype computed)
{
    return computed == TUTTI_F64 ? DBL_MAX : FLT_MAX;
}

/* Where the normal numbers of the arithmetic end. */
static inline double spread_tiny(tutti_dtype computed)
{
    return computed == TUTTI_F64 ? 0x1p-1022 : 0x1p-126;
}

/* The bound of a result that was computed in one type and is stored in another; its reference is of f64. */
static inline double spread_stored(spread a, double value, tutti_dtype dtype, tutti_dtype computed)
{
    const double error = spread_most(a);
    const double roundoff = 0x1p-53 + (dtype == computed ? 0 : spread_roundoff(dtype));
    return error + roundoff * (fabs(value) + error) + spread_least(dtype) / 2;
}

#endif
