/* Rows of any float type, loaded into and stored from rows of floats or doubles. */
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "kernels/host/host.h"

/* double to float, rounded to odd, so that a second rounding, to 16 bits, is correct. */
TUTTI__INLINE float round_to_odd(double value)
{
    float nearest = (float)value;
    double have = fabs((double)nearest), want = fabs(value);
    uint32_t bits = tutti__bits_of_float(nearest);
    uint32_t odd = bits + (uint32_t)(want > have) - (uint32_t)(want < have);
    return tutti__float_of_bits(bits & 1u ? bits : odd);
}

TUTTI__VECTORISED
void tutti__load_f32(float *restrict row, const void *restrict src, tutti_dtype dtype,
                     int64_t count)
{
    const uint16_t *half = src;
    const double *wide = src;
    switch (dtype) {
    case TUTTI_F16:
        for (int64_t j = 0; j < count; j++) row[j] = tutti__f16_to_float(half[j]);
        break;
    case TUTTI_BF16:
        for (int64_t j = 0; j < count; j++) row[j] = tutti__bf16_to_float(half[j]);
        break;
    case TUTTI_F64:
        for (int64_t j = 0; j < count; j++) row[j] = (float)wide[j];
        break;
    default:
        memcpy(row, src, (size_t)count * sizeof *row);
    }
}

TUTTI__VECTORISED
void tutti__load_f64(double *restrict row, const void *restrict src, tutti_dtype dtype,
                     int64_t count)
{
    const uint16_t *half = src;
    const float *narrow = src;
    switch (dtype) {
    case TUTTI_F16:
        for (int64_t j = 0; j < count; j++) row[j] = tutti__f16_to_float(half[j]);
        break;
    case TUTTI_BF16:
        for (int64_t j = 0; j < count; j++) row[j] = tutti__bf16_to_float(half[j]);
        break;
    case TUTTI_F32:
        for (int64_t j = 0; j < count; j++) row[j] = narrow[j];
        break;
    default:
        memcpy(row, src, (size_t)count * sizeof *row);
    }
}

TUTTI__VECTORISED
void tutti__store_f32(void *restrict dst, tutti_dtype dtype, const float *restrict row,
                      int64_t count)
{
    uint16_t *half = dst;
    double *wide = dst;
    switch (dtype) {
    case TUTTI_F16:
        for (int64_t j = 0; j < count; j++) half[j] = tutti__float_to_f16(row[j]);
        break;
    case TUTTI_BF16:
        for (int64_t j = 0; j < count; j++) half[j] = tutti__float_to_bf16(row[j]);
        break;
    case TUTTI_F64:
        for (int64_t j = 0; j < count; j++) wide[j] = row[j];
        break;
    default:
        memcpy(dst, row, (size_t)count * sizeof *row);
    }
}

TUTTI__VECTORISED
void tutti__store_f64(void *restrict dst, tutti_dtype dtype, const double *restrict row,
                      int64_t count)
{
    uint16_t *half = dst;
    float *narrow = dst;
    switch (dtype) {
    case TUTTI_F16:
        for (int64_t j = 0; j < count; j++) half[j] = tutti__float_to_f16(round_to_odd(row[j]));
        break;
    case TUTTI_BF16:
        for (int64_t j = 0; j < count; j++) half[j] = tutti__float_to_bf16(round_to_odd(row[j]));
        break;
    case TUTTI_F32:
        for (int64_t j = 0; j < count; j++) narrow[j] = (float)row[j];
        break;
    default:
        memcpy(dst, row, (size_t)count * sizeof *row);
    }
}

TUTTI__VECTORISED
void tutti__round_f32(float *row, tutti_dtype dtype, int64_t count)
{
    if (dtype == TUTTI_F16)
        for (int64_t j = 0; j < count; j++)
            row[j] = tutti__f16_to_float(tutti__float_to_f16(row[j]));
    else if (dtype == TUTTI_BF16)
        for (int64_t j = 0; j < count; j++)
            row[j] = tutti__bf16_to_float(tutti__float_to_bf16(row[j]));
}

TUTTI__VECTORISED
void tutti__round_f64(double *row, tutti_dtype dtype, int64_t count)
{
    if (dtype == TUTTI_F16)
        for (int64_t j = 0; j < count; j++)
            row[j] = tutti__f16_to_float(tutti__float_to_f16(round_to_odd(row[j])));
    else if (dtype == TUTTI_BF16)
        for (int64_t j = 0; j < count; j++)
            row[j] = tutti__bf16_to_float(tutti__float_to_bf16(round_to_odd(row[j])));
    else if (dtype == TUTTI_F32)
        for (int64_t j = 0; j < count; j++) row[j] = (float)row[j];
}

void tutti__store_past(void *dst, const void *src, size_t bytes)
{
    char *to = dst;
    const char *from = src;
#ifdef __SSE2__
    const size_t before = -(uintptr_t)to & 15, head = before < bytes ? before : bytes;
    memcpy(to, from, head);
    to += head, from += head, bytes -= head;
    for (; bytes >= 16; to += 16, from += 16, bytes -= 16)
        _mm_stream_si128((__m128i *)(void *)to,
                         _mm_loadu_si128((const __m128i *)(const void *)from));
#endif
    memcpy(to, from, bytes);
}
