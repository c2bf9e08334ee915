/* Rows of any float type, loaded into and stored from rows of floats or doubles. */
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "kernels/host/host.h"

/* To float.  A double is rounded to odd, so that a second rounding, to 16 bits, is correct. */
TUTTI__INLINE float narrow_f32(float value)
{
    return value;
}
TUTTI__INLINE float narrow_f64(double value)
{
    float nearest = (float)value;
    double have = fabs((double)nearest), want = fabs(value);
    uint32_t bits = tutti__bits_of_float(nearest);
    uint32_t odd = bits + (uint32_t)(want > have) - (uint32_t)(want < have);
    return tutti__float_of_bits(bits & 1u ? bits : odd);
}

#define BODY "kernels/host/rows_rows.h"
#include "kernels/host/each_real.h"

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
