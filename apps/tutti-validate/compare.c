/* Compares results; compare.h. */
#include "compare.h"

#include <math.h>
#include <string.h>

/* Distance between neighbouring numbers of a type at a value. */
static double ulp_of(tutti_dtype dtype, double value)
{
    int digits = 53, least = -1074, exponent;
    if (dtype == TUTTI_F32) digits = 24, least = -149;
    if (dtype == TUTTI_F16) digits = 11, least = -24;
    if (dtype == TUTTI_BF16) digits = 8, least = -133;
    frexp(value, &exponent);
    return ldexp(1, exponent - digits > least && value != 0 ? exponent - digits : least);
}

bool finding_holds(const finding *f)
{
    return f->wrong == 0 && f->differing == 0;
}

/* Whether an infinity is right: a result within the bound may overflow the type. */
static bool overflows(tutti_dtype dtype, double actual, double expected, double bound)
{
    if (!isinf(actual) || !isfinite(expected) || !isfinite(bound)) return false;
    const double furthest = expected + copysign(bound, actual);
    unsigned char typed[sizeof(double)];
    double rounded = 0;
    return tutti_convert(typed, dtype, &furthest, TUTTI_F64, 1) == TUTTI_OK &&
           tutti_convert(&rounded, TUTTI_F64, typed, dtype, 1) == TUTTI_OK && rounded == actual;
}

/* 0 for equal values, also for two NaN and for infinities of one sign; infinity if otherwise one of
 * them is not finite. */
static double error_of(tutti_dtype dtype, double actual, double expected, double bound)
{
    if (actual == expected || (isnan(actual) && isnan(expected))) return 0;
    if (overflows(dtype, actual, expected, bound)) return 0;
    if (!isfinite(actual) || !isfinite(expected)) return INFINITY;
    return fabs(actual - expected);
}

/* If a bound overflowed or is NaN, only the exact value is right. */
static bool within(double error, double bound)
{
    return error == 0 || (isfinite(bound) && error <= bound);
}

static double ratio_of(double error, double bound)
{
    if (error == 0) return 0;
    return isfinite(bound) && bound > 0 ? error / bound : INFINITY;
}

static double worst(double a, double b)
{
    return a > b ? a : b;
}

static double bound_at(const part *p, int64_t i)
{
    if (p->bounds) return p->bounds[i];
    const double size = isfinite(p->expected[i]) ? fabs(p->expected[i]) : 0;
    return p->tensor->atol + p->tensor->rtol * size;
}

static void compare_expected(const part *p, int64_t i, finding *f)
{
    const double actual = p->actual[i], expected = p->expected[i];
    const double bound = bound_at(p, i);
    const double error = error_of(p->tensor->dtype, actual, expected, bound);
    const double ratio = ratio_of(error, bound);
    f->abs = worst(f->abs, error);
    if (error > 0) {
        f->rel = worst(f->rel, expected != 0 ? error / fabs(expected) : INFINITY);
        f->ulp = worst(f->ulp,
                       isfinite(expected) ? error / ulp_of(p->tensor->dtype, expected) : INFINITY);
    }
    f->wrong += !within(error, bound);
    if (ratio > f->ratio || f->index < 0) {
        f->ratio = ratio;
        f->index = (double)(p->first + i);
        f->rank = p->rank;
        f->actual = actual;
        f->expected = expected;
        f->bound = bound;
    }
}

static void compare_alone(const part *p, int64_t i, finding *f)
{
    const double actual = p->actual[i], alone = p->alone[i];
    bool same = memcmp(&actual, &alone, sizeof actual) == 0 || (isnan(actual) && isnan(alone));
    const double most = 2 * bound_at(p, i);
    if (!p->same_bits)
        same = same || within(error_of(p->tensor->dtype, actual, alone, most), most) ||
               overflows(p->tensor->dtype, alone, actual, most);
    if (same) return;
    if (f->differing++ > 0) return;
    f->differ_index = (double)(p->first + i);
    f->differ_rank = p->rank;
    f->differ_actual = actual;
    f->differ_alone = alone;
}

void compare_start(finding *f)
{
    *f = (finding){.index = -1, .differ_index = -1};
}

void compare_part(const part *p, finding *f)
{
    compare_start(f);
    f->elements = (double)p->count;
    for (int64_t i = 0; i < p->count; i++) {
        compare_expected(p, i, f);
        compare_alone(p, i, f);
    }
}

void compare_merge(finding *f, const finding *other, bool replicated)
{
    f->abs = worst(f->abs, other->abs);
    f->rel = worst(f->rel, other->rel);
    f->ulp = worst(f->ulp, other->ulp);
    f->elements = replicated ? f->elements : f->elements + other->elements;
    f->wrong = replicated ? worst(f->wrong, other->wrong) : f->wrong + other->wrong;
    if (other->index >= 0 && (other->ratio > f->ratio || f->index < 0)) {
        f->ratio = other->ratio;
        f->index = other->index;
        f->rank = other->rank;
        f->actual = other->actual;
        f->expected = other->expected;
        f->bound = other->bound;
    }
    if (other->differing > 0 && f->differing == 0) {
        f->differ_index = other->differ_index;
        f->differ_rank = other->differ_rank;
        f->differ_actual = other->differ_actual;
        f->differ_alone = other->differ_alone;
    }
    f->differing =
        replicated ? worst(f->differing, other->differing) : f->differing + other->differing;
}
