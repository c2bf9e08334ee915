/* Bodies of activation.c, for one REAL. */

/* Below -bound smooth activations are -0, beyond ±bound their derivatives are 0 or 1: avoids Inf
 * times 0.  Keeps NaN. */
TUTTI__INLINE REAL OF(above)(REAL z, REAL bound)
{
    return z < bound ? bound : z;
}
TUTTI__INLINE REAL OF(within)(REAL z, REAL bound)
{
    return OF(above)(z > bound ? bound : z, -bound);
}

/* z / (1 + exp(-a)): silu for a = z, and gelu, as 1 + tanh(u) = 2 / (1 + exp(-2u)). */
TUTTI__INLINE REAL OF(gated)(REAL z, REAL a)
{
    const bool far = a < -OF(far_from);
    const REAL e = OF(tutti__exp)(far ? a + OF(far_from) : -a);
    return far ? z * e * OF(far_factor) : z / (1 + e);
}

/* Its derivative, da being that of a. */
TUTTI__INLINE REAL OF(gated_slope)(REAL z, REAL a, REAL da)
{
    const bool far = a < -OF(far_from);
    const REAL e = OF(tutti__exp)(far ? a + OF(far_from) : -a), gate = 1 / (1 + e);
    return far ? (1 + z * da) * e * OF(far_factor) : gate + z * da * gate * (1 - gate);
}

/* gelu's a, 2u */
TUTTI__INLINE REAL OF(gelu_exponent)(REAL z)
{
    return 2 * ((REAL)0.79788456080286535588 * (z + (REAL)0.044715 * z * z * z));
}

TUTTI__VECTORISED
void OF(tutti__activate)(REAL *row, tutti__activation activation, int64_t count)
{
    const REAL slope = (REAL)activation.slope, beta = (REAL)activation.smelu_beta;
    const REAL scale = (REAL)activation.star_scale, bias = (REAL)activation.star_bias;
    switch (activation.kind) {
    case TUTTI_ACT_NONE:
    case TUTTI_ACT_ZERO:
        break;
    case TUTTI_ACT_RELU: /* comparisons are written so that NaN is kept */
        for (int64_t j = 0; j < count; j++) row[j] = row[j] <= 0 ? 0 : row[j];
        break;
    case TUTTI_ACT_LEAKY_RELU:
        for (int64_t j = 0; j < count; j++) row[j] = row[j] > 0 ? row[j] : slope * row[j];
        break;
    case TUTTI_ACT_SQUARED_RELU:
        for (int64_t j = 0; j < count; j++) {
            REAL z = row[j] < 0 ? 0 : row[j];
            row[j] = z * z;
        }
        break;
    case TUTTI_ACT_GELU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(above)(row[j], -30);
            row[j] = OF(gated)(z, OF(gelu_exponent)(z));
        }
        break;
    case TUTTI_ACT_GELU_ERF:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(above)(row[j], -40);
            row[j] = z * (REAL)0.5 * OF(erfc_of)(z * (REAL)-0.70710678118654752440);
        }
        break;
    case TUTTI_ACT_SILU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(above)(row[j], -800);
            row[j] = OF(gated)(z, z);
        }
        break;
    case TUTTI_ACT_SMELU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = row[j], t = z + beta, middle = t * (t * ((REAL)0.25 / beta));
            const REAL right = z >= beta ? z : middle;
            row[j] = z <= -beta ? 0 : right;
        }
        break;
    case TUTTI_ACT_STAR_RELU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = row[j] < 0 ? 0 : row[j];
            row[j] = scale * z * z + bias;
        }
        break;
    }
}

TUTTI__VECTORISED
void OF(tutti__activate_backward)(REAL *restrict d, const REAL *restrict v, tutti__slope_from from,
                                  tutti__activation activation, int64_t count)
{
    const REAL slope = (REAL)activation.slope, beta = (REAL)activation.smelu_beta;
    const REAL scale = (REAL)activation.star_scale;
    switch (activation.kind) {
    case TUTTI_ACT_NONE:
    case TUTTI_ACT_ZERO:
        break;
    case TUTTI_ACT_RELU:
        for (int64_t j = 0; j < count; j++) {
            REAL slope_here = v[j] > 0 ? 1 : 0;
            d[j] *= v[j] != v[j] ? v[j] : slope_here;
        }
        break;
    case TUTTI_ACT_LEAKY_RELU:
        for (int64_t j = 0; j < count; j++) {
            REAL slope_here = v[j] > 0 ? 1 : slope;
            d[j] *= v[j] != v[j] ? v[j] : slope_here;
        }
        break;
    case TUTTI_ACT_SQUARED_RELU:
        if (from == TUTTI__FROM_Y)
            for (int64_t j = 0; j < count; j++) d[j] *= 2 * OF(root)(v[j]);
        else
            for (int64_t j = 0; j < count; j++) d[j] *= 2 * (v[j] < 0 ? 0 : v[j]);
        break;
    case TUTTI_ACT_GELU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(within)(v[j], 30);
            const REAL du = (REAL)0.79788456080286535588 * (1 + (REAL)(3 * 0.044715) * z * z);
            d[j] *= OF(gated_slope)(z, OF(gelu_exponent)(z), 2 * du);
        }
        break;
    case TUTTI_ACT_GELU_ERF:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(within)(v[j], 40);
            const REAL density = (REAL)0.39894228040143267794 * OF(tutti__exp)(z * z * (REAL)-0.5);
            d[j] *= (REAL)0.5 * OF(erfc_of)(z * (REAL)-0.70710678118654752440) + z * density;
        }
        break;
    case TUTTI_ACT_SILU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = OF(within)(v[j], 800);
            d[j] *= OF(gated_slope)(z, z, 1);
        }
        break;
    case TUTTI_ACT_SMELU:
        for (int64_t j = 0; j < count; j++) {
            const REAL z = v[j], middle = (z + beta) * ((REAL)0.5 / beta);
            const REAL right = z >= beta ? 1 : middle;
            d[j] *= z <= -beta ? 0 : right;
        }
        break;
    case TUTTI_ACT_STAR_RELU:
        for (int64_t j = 0; j < count; j++) d[j] *= 2 * (scale * (v[j] < 0 ? 0 : v[j]));
        break;
    }
}
