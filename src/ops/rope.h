/* Rotary positions; include/tutti/rope.h has the mathematics. */
#ifndef TUTTI_OPS_ROPE_H
#define TUTTI_OPS_ROPE_H

#include "core/op.h"

typedef struct tutti__rope_args {
    int64_t rows, cols, head_size, pairs; /* pairs: of a head */
    tutti_dtype dtype;
    double base;
    bool interleaved;
    int64_t first_row, period; /* period 0: none */
    const int32_t *positions;  /* optional; contiguous */
    int64_t max_positions;
    tutti__matrix x, y;   /* forward; y may be x */
    tutti__matrix dy, dx; /* backward; dx may be dy */
    int32_t finding;      /* the code for findings: a row with its position */
} tutti__rope_args;

/* A pair's frequency, base^(-i/pairs) / 2 pi, in units of 2^-128 turns a position. */
typedef struct tutti__rope_frequency {
    uint64_t high, low;
} tutti__rope_frequency;

#ifdef __cplusplus
extern "C" {
#endif
/* Of every pair, each within 2^-94 turns; the caller frees them with tutti__rope_drop.  NULL: no
 * memory. */
tutti__rope_frequency *tutti__rope_frequencies(double base, int64_t pairs);
void tutti__rope_drop(void *frequencies);
#ifdef __cplusplus
}
#endif

/* -1: out of range. */
static inline TUTTI__ANYWHERE int64_t tutti__rope_position(const tutti__rope_args *args,
                                                           int64_t row)
{
    if (args->positions) {
        const int32_t position = args->positions[row];
        return position >= 0 && position < args->max_positions ? position : -1;
    }
    const int64_t number = args->first_row + row;
    return args->period > 0 ? number % args->period : number;
}

static inline TUTTI__ANYWHERE uint64_t tutti__high_product(uint64_t a, uint64_t b)
{
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    const uint64_t low = UINT32_MAX, cross = (a >> 32) * (b & low), carry = (a & low) * (b & low);
    const uint64_t middle = (a & low) * (b >> 32) + (cross & low) + (carry >> 32);
    return (a >> 32) * (b >> 32) + (cross >> 32) + (middle >> 32);
#endif
}

/* An angle as the nearest quarter turn and the rest, in 2^-64 turns, at most an eighth. */
typedef struct tutti__rope_angle {
    unsigned quarter; /* 0 to 3 */
    int64_t rest;
} tutti__rope_angle;

/* Whole turns overflow, so that the product needs no reduction. */
static inline TUTTI__ANYWHERE tutti__rope_angle
tutti__rope_angle_of(tutti__rope_frequency frequency, int64_t position)
{
    const uint64_t eighth = UINT64_C(1) << 61, n = (uint64_t)position;
    const uint64_t turns = n * frequency.high + tutti__high_product(n, frequency.low) + eighth;
    const tutti__rope_angle angle = {
        (unsigned)(turns >> 62), (int64_t)(turns & ((UINT64_C(1) << 62) - 1)) - (int64_t)eighth};
    return angle;
}

/* Taylor's polynomials are enough up to pi/4: what they leave out is below 2^-28 for float, 2^-63
 * for double. */
static inline TUTTI__ANYWHERE void tutti__rope_turn_f32(tutti__rope_angle angle, float *cosine,
                                                        float *sine)
{
    const float a = (float)angle.rest * 3.40612158e-19f, z = a * a; /* 2 pi / 2^64 */
    float c = -1.0f / 3628800, s = 1.0f / 362880;
    c = c * z + 1.0f / 40320;
    c = c * z - 1.0f / 720;
    c = c * z + 1.0f / 24;
    c = c * z - 0.5f;
    c = c * z + 1.0f;
    s = s * z - 1.0f / 5040;
    s = s * z + 1.0f / 120;
    s = s * z - 1.0f / 6;
    s = s * z * a + a;
    const bool swap = angle.quarter & 1;
    const float x = swap ? s : c, y = swap ? c : s;
    *cosine = angle.quarter == 1 || angle.quarter == 2 ? -x : x;
    *sine = angle.quarter >= 2 ? -y : y;
}

static inline TUTTI__ANYWHERE void tutti__rope_turn_f64(tutti__rope_angle angle, double *cosine,
                                                        double *sine)
{
    const double a = (double)angle.rest * 3.4061215800865545e-19, z = a * a;
    double c = -1.0 / 6402373705728000, s = 1.0 / 355687428096000;
    c = c * z + 1.0 / 20922789888000;
    c = c * z - 1.0 / 87178291200;
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1.0;
    s = s * z - 1.0 / 1307674368000;
    s = s * z + 1.0 / 6227020800;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = s * z * a + a;
    const bool swap = angle.quarter & 1;
    const double x = swap ? s : c, y = swap ? c : s;
    *cosine = angle.quarter == 1 || angle.quarter == 2 ? -x : x;
    *sine = angle.quarter >= 2 ? -y : y;
}

#endif
