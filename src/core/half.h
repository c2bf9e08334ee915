/* Conversions between float and the 16-bit types, one value at a time, round to nearest even.
 * Written with integer arithmetic only, so that the compiler can vectorise loops over them. */
#ifndef TUTTI_CORE_HALF_H
#define TUTTI_CORE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tutti__bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float tutti__float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float tutti__bf16_to_float(uint16_t h)
{
    return tutti__float_of_bits((uint32_t)h << 16);
}

static inline uint16_t tutti__float_to_bf16(float value)
{
    uint32_t bits = tutti__bits_of_float(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t nan = (bits >> 16) | 0x40u; /* quiet, with sign and payload kept */
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float tutti__f16_to_float(uint16_t h)
{
    /* shift exponent and mantissa into place, then rescale: exact also for subnormals */
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    float scaled = tutti__float_of_bits(magnitude) * tutti__float_of_bits(0x77800000u); /* 2^112 */
    uint32_t bits = tutti__bits_of_float(scaled);
    uint32_t special = magnitude | 0x7f800000u; /* Inf and NaN */
    return tutti__float_of_bits(sign | ((h & 0x7c00u) == 0x7c00u ? special : bits));
}

static inline uint16_t tutti__float_to_f16(float value)
{
    uint32_t bits = tutti__bits_of_float(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    /* normal results: rebias, round to nearest even on the 13 dropped bits */
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    /* subnormal results: adding 0.5 aligns the mantissa so that the hardware rounds it */
    uint32_t subnormal = tutti__bits_of_float(tutti__float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result; /* overflow, Inf */
    result = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : result; /* NaN */
    return (uint16_t)(sign | result);
}

#endif
