/* Activations and their derivatives by rows; include/tutti/activation.h has the mathematics. */
#include "kernels/host/activation.h"

/* erfc of a float, free of branches and calls: P(t) exp(-a^2) for a = |x|, t = 1 / (1 + 0.4 a),
 * with P interpolating erfc(a) exp(a^2) at the Chebyshev nodes of 0 <= a <= 10.2 (relative error
 * 1e-8). */
TUTTI__INLINE float erfc_of_f32(float x)
{
    float a = fabsf(x);
    a = a > 11.0f ? 11.0f : a; /* erfc is 0 from here on */
    const float t = 1 / (1 + 0.4f * a) - 0.59842521f;
    float p = -0.0418803417f;
    p = p * t + 0.0183374226f;
    p = p * t + 0.0953631369f;
    p = p * t - 0.0479301094f;
    p = p * t - 0.225908433f;
    p = p * t + 0.00892013515f;
    p = p * t + 0.673787342f;
    p = p * t + 1.26056735f;
    p = p * t + 1.34029497f;
    p = p * t + 0.973229266f;
    p = p * t + 0.29475152f;
    /* a * a as square + rest, because exp would amplify its rounding error */
    const float square = a * a, high = tutti__float_of_bits(tutti__bits_of_float(a) & 0xfffff000u);
    const float low = a - high, lost = (high * high - square) + (a + high) * low;
    const float tail = p * tutti__exp_f32(-square) * (1 - lost);
    return x < 0 ? 2 - tail : tail;
}

/* Beyond this a logistic function is exp(a), computed as exp(a + from) exp(-from), which stays
 * accurate where exp(a) is subnormal. */
#define far_from_f32 64
#define far_from_f64 512
#define far_factor_f32 1.60381089054863785298e-28f
#define far_factor_f64 4.37749103705305145412e-223

#define root_f32 sqrtf
#define root_f64 sqrt
#define erfc_of_f64 erfc
#define BODY "kernels/host/activation_rows.h"
#include "kernels/host/each_real.h"
