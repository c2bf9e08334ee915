/* Number formats and random numbers for the tests.  The conversions are written from the formats'
 * definitions, in double arithmetic, so that they share nothing with the library's. */
#include "harness.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A binary format narrower than f64: p bits of precision, exponents from min to max, for values 1.m
 * x 2^e. */
typedef struct format {
    int precision, min_exponent, max_exponent, fraction_bits, bias, bits;
} format;

static const format f32 = {24, -126, 127, 23, 127, 32};
static const format f16 = {11, -14, 15, 10, 15, 16};
static const format bf16 = {8, -126, 127, 7, 127, 16};

static const format *format_of(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return &f32;
    case TUTTI_F16:
        return &f16;
    case TUTTI_BF16:
        return &bf16;
    default:
        return NULL;
    }
}

double harness_roundoff(tutti_dtype dtype)
{
    const format *f = format_of(dtype);
    return dtype == TUTTI_F64 ? DBL_EPSILON / 2 : f ? ldexp(1, -f->precision) : 0;
}

double harness_tiny(tutti_dtype dtype)
{
    const format *f = format_of(dtype);
    return dtype == TUTTI_F64 ? ldexp(1, -1074)
           : f                ? ldexp(1, f->min_exponent - f->fraction_bits)
                              : 0;
}

double harness_huge(tutti_dtype dtype)
{
    const format *f = format_of(dtype);
    return dtype == TUTTI_F64 ? DBL_MAX
           : f                ? ldexp(2 - ldexp(1, 1 - f->precision), f->max_exponent)
                              : 0;
}

static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t encode(const format *f, double value)
{
    uint64_t sign = signbit(value) ? UINT64_C(1) << (f->bits - 1) : 0;
    uint64_t infinity = (UINT64_C(1) << (f->bits - 1)) - (UINT64_C(1) << f->fraction_bits);
    if (isnan(value)) return sign | infinity | UINT64_C(1) << (f->fraction_bits - 1);
    double magnitude = fabs(value);
    if (magnitude == 0) return sign;
    if (magnitude >= power_of_two(f->max_exponent + 1)) return sign | infinity;
    uint64_t wide;
    memcpy(&wide, &magnitude, sizeof wide);
    int exponent = (int)(wide >> 52) - 1023; /* f64's own subnormals are far below every format */
    if (exponent < f->min_exponent) exponent = f->min_exponent;
    /* The value in steps of the format at this exponent.  Both factors keep the product exact;
     * adding and subtracting 2^52 rounds to an integer, halves to even. */
    volatile double shifted = magnitude * power_of_two(f->fraction_bits - exponent) + 0x1p52;
    uint64_t steps = (uint64_t)(shifted - 0x1p52);
    /* A normal number has its leading bit among the steps; it carries into the exponent by itself.
     */
    uint64_t encoded = ((uint64_t)(exponent + f->bias - 1) << f->fraction_bits) + steps;
    return sign | (encoded > infinity ? infinity : encoded);
}

static inline double decode(const format *f, uint64_t bits)
{
    uint64_t fraction = bits & ((UINT64_C(1) << f->fraction_bits) - 1);
    int field = (int)(bits >> f->fraction_bits & ((1u << (f->bits - 1 - f->fraction_bits)) - 1));
    double sign = bits >> (f->bits - 1) & 1 ? -1 : 1;
    if (field == f->max_exponent + f->bias + 1) return fraction ? NAN : sign * INFINITY;
    if (field == 0)
        return sign * (double)fraction * power_of_two(f->min_exponent - f->fraction_bits);
    return sign * (double)(fraction | UINT64_C(1) << f->fraction_bits) *
           power_of_two(field - f->bias - f->fraction_bits);
}

/* How one element is stored: by a copy of its bytes, as it may lie anywhere. */
#define STORE(type, element)                                                                   \
    for (int64_t i = 0; i < count; i++) {                                                      \
        const type stored = (type)(element);                                                   \
        memcpy((unsigned char *)elements + (size_t)i * sizeof stored, &stored, sizeof stored); \
    }
#define LOAD(type, element)                                                          \
    for (int64_t i = 0; i < count; i++) {                                            \
        type stored;                                                                 \
        memcpy(&stored, (const unsigned char *)elements + (size_t)i * sizeof stored, \
               sizeof stored);                                                       \
        values[i] = (element);                                                       \
    }

/* A loop for each type: with a choice for each element this would take most of some tests' time. */
void harness_encode_all(tutti_dtype dtype, void *elements, const double *values, int64_t count)
{
    switch (dtype) {
    case TUTTI_F64:
        STORE(double, values[i])
        break;
    case TUTTI_F32:
        STORE(float, values[i])
        break;
    case TUTTI_F16:
        STORE(uint16_t, encode(&f16, values[i]))
        break;
    case TUTTI_BF16:
        STORE(uint16_t, encode(&bf16, values[i]))
        break;
    case TUTTI_U8:
        STORE(uint8_t, (int64_t)nearbyint(values[i]))
        break;
    default:
        STORE(uint32_t, (int64_t)nearbyint(values[i]))
    }
}

void harness_decode_all(tutti_dtype dtype, double *values, const void *elements, int64_t count)
{
    switch (dtype) {
    case TUTTI_F64:
        LOAD(double, stored)
        break;
    case TUTTI_F32:
        LOAD(float, stored)
        break;
    case TUTTI_F16:
        LOAD(uint16_t, decode(&f16, stored))
        break;
    case TUTTI_BF16:
        LOAD(uint16_t, decode(&bf16, stored))
        break;
    case TUTTI_U8:
        LOAD(uint8_t, stored)
        break;
    default:
        LOAD(int32_t, stored)
    }
}

uint64_t harness_encode(tutti_dtype dtype, double value)
{
    uint64_t bits = 0;
    harness_encode_all(dtype, &bits, &value, 1);
    return bits;
}

double harness_decode(tutti_dtype dtype, uint64_t bits)
{
    double value;
    harness_decode_all(dtype, &value, &bits, 1);
    return value;
}

double harness_round(tutti_dtype dtype, double value)
{
    if (dtype == TUTTI_F64) return value;
    if (dtype == TUTTI_F32) return (float)value;
    return harness_decode(dtype, harness_encode(dtype, value));
}

/* SplitMix64 */
uint64_t harness_random(harness_rng *rng)
{
    uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

double harness_uniform(harness_rng *rng, double low, double high)
{
    return low + (high - low) * (double)(harness_random(rng) >> 11) * 0x1p-53;
}

double harness_normal(harness_rng *rng)
{
    /* the sum of four uniform numbers: near enough, cheap, bounded */
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += harness_uniform(rng, -1, 1);
    return sum * 0.8660254037844386; /* variance of the sum: 4/3 */
}

void harness_fill(harness_rng *rng, double *values, int64_t count, tutti_dtype dtype, double mean,
                  double deviation)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = harness_round(dtype, mean + deviation * harness_normal(rng));
}

bool harness_is_sharp(const double *want, const double *bound, int64_t count, tutti_dtype dtype)
{
    int64_t largest = -1;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(want[i]) && (largest < 0 || fabs(want[i]) > fabs(want[largest]))) largest = i;
    if (largest < 0 || want[largest] == 0) return true;
    int exponent;
    frexp(fabs(want[largest]), &exponent);
    double ulp = 2 * harness_roundoff(dtype) * ldexp(1, exponent - 1);
    return bound[largest] < 16 * ulp;
}
