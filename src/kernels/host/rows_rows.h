/* Bodies of rows.c, for one REAL. */

TUTTI__VECTORISED
void OF(tutti__load)(REAL *restrict row, const void *restrict src, tutti_dtype dtype, int64_t count)
{
    const uint16_t *half = src;
    const float *single = src;
    const double *wide = src;
    switch (dtype) {
    case TUTTI_F16:
        for (int64_t j = 0; j < count; j++) row[j] = tutti__f16_to_float(half[j]);
        break;
    case TUTTI_BF16:
        for (int64_t j = 0; j < count; j++) row[j] = tutti__bf16_to_float(half[j]);
        break;
    case TUTTI_F32:
        for (int64_t j = 0; j < count; j++) row[j] = single[j];
        break;
    default:
        for (int64_t j = 0; j < count; j++) row[j] = (REAL)wide[j];
    }
}

TUTTI__VECTORISED
void OF(tutti__store)(void *restrict dst, tutti_dtype dtype, const REAL *restrict row,
                      int64_t count)
{
    uint16_t *half = dst;
    float *single = dst;
    double *wide = dst;
    switch (dtype) {
    case TUTTI_F16:
        for (int64_t j = 0; j < count; j++) half[j] = tutti__float_to_f16(OF(narrow)(row[j]));
        break;
    case TUTTI_BF16:
        for (int64_t j = 0; j < count; j++) half[j] = tutti__float_to_bf16(OF(narrow)(row[j]));
        break;
    case TUTTI_F32:
        for (int64_t j = 0; j < count; j++) single[j] = (float)row[j];
        break;
    default:
        for (int64_t j = 0; j < count; j++) wide[j] = row[j];
    }
}

TUTTI__VECTORISED
void OF(tutti__round)(REAL *row, tutti_dtype dtype, int64_t count)
{
    if (dtype == TUTTI_F16)
        for (int64_t j = 0; j < count; j++)
            row[j] = tutti__f16_to_float(tutti__float_to_f16(OF(narrow)(row[j])));
    else if (dtype == TUTTI_BF16)
        for (int64_t j = 0; j < count; j++)
            row[j] = tutti__bf16_to_float(tutti__float_to_bf16(OF(narrow)(row[j])));
    else if (dtype == TUTTI_F32)
        for (int64_t j = 0; j < count; j++) row[j] = (float)row[j];
}
