/* Tests of tensor.h: types, names, conversion against a reference in double arithmetic. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static const tutti_dtype half_types[] = {TUTTI_F16, TUTTI_BF16};

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}

static bool is_nan16(tutti_dtype dtype, unsigned bits)
{
    unsigned infinity = dtype == TUTTI_F16 ? 0x7c00 : 0x7f80;
    return (bits & 0x7fff) > infinity;
}

/* All 65536 values go to every wider type exactly, and back to the same bits. */
static void test_round_trip(void)
{
    static const tutti_dtype wider[] = {TUTTI_F32, TUTTI_F64};
    uint16_t *all = harness_calloc(65536, sizeof *all), *back = harness_calloc(65536, sizeof *back);
    double *wide = harness_calloc(65536, sizeof *wide);
    for (unsigned i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (int type = 0; type < 2; type++)
        for (int to = 0; to < 2; to++) {
            tutti_dtype dtype = half_types[type];
            harness_where("%s to %s", tutti_dtype_name(dtype), tutti_dtype_name(wider[to]));
            CHECK_OK(tutti_convert(wide, wider[to], all, dtype, 65536));
            CHECK_OK(tutti_convert(back, dtype, wide, wider[to], 65536));
            for (unsigned i = 0; i < 65536; i++) {
                double got = wider[to] == TUTTI_F32 ? ((float *)wide)[i] : wide[i];
                CHECK(same(got, harness_decode(dtype, i)), "%#06x is %.17g, want %.17g", i, got,
                      harness_decode(dtype, i));
                if (is_nan16(dtype, i))
                    CHECK(is_nan16(dtype, back[i]) && (back[i] >> 15) == (i >> 15),
                          "the NaN %#06x comes back as %#06x", i, back[i]);
                else
                    CHECK(back[i] == i, "%#06x comes back as %#06x", i, back[i]);
            }
        }
    free(all);
    free(back);
    free(wide);
}

static void check_rounding(tutti_dtype dtype, const double *values, int count)
{
    uint16_t got;
    for (int i = 0; i < count; i++)
        for (int sign = 0; sign < 2; sign++) {
            double value = sign ? -values[i] : values[i];
            CHECK_OK(tutti_convert(&got, dtype, &value, TUTTI_F64, 1));
            CHECK(got == harness_encode(dtype, value), "f64 %a is %#06x, want %#06x", value, got,
                  (unsigned)harness_encode(dtype, value));
            float narrow = (float)value;
            CHECK_OK(tutti_convert(&got, dtype, &narrow, TUTTI_F32, 1));
            CHECK(got == harness_encode(dtype, narrow), "f32 %a is %#06x, want %#06x", narrow, got,
                  (unsigned)harness_encode(dtype, narrow));
        }
}

/* Between every two neighbours: the midpoint and the nearest values on either side, which show
 * double rounding. */
static void test_rounding(void)
{
    for (int type = 0; type < 2; type++) {
        tutti_dtype dtype = half_types[type];
        harness_where("%s", tutti_dtype_name(dtype));
        unsigned infinity = dtype == TUTTI_F16 ? 0x7c00 : 0x7f80;
        for (unsigned i = 0; i < infinity; i++) {
            double low = harness_decode(dtype, i);
            double high = i + 1 < infinity ? harness_decode(dtype, i + 1)
                                           : 2 * low - harness_decode(dtype, i - 1);
            double middle = low + (high - low) / 2;
            double around[] = {middle,
                               nextafter(middle, 0),
                               nextafter(middle, INFINITY),
                               (double)nextafterf((float)middle, 0),
                               (double)nextafterf((float)middle, INFINITY),
                               low + (high - low) / 4,
                               nextafter(low, INFINITY),
                               nextafter(high, 0)};
            check_rounding(dtype, around, HARNESS_COUNT(around));
        }
    }
}

static void test_extremes(void)
{
    static const double values[] = {0,        DBL_MIN,  DBL_MAX,    DBL_TRUE_MIN, FLT_MIN,
                                    FLT_MAX,  0x1p-24,  0x1p-25,    0x1p-26,      0x1p-133,
                                    0x1p-134, 0x1p-149, 65504,      65519,        65520,
                                    65536,    0x1p127,  0x1.ffp127, 0x1.fep127,   INFINITY};
    for (int type = 0; type < 2; type++)
        check_rounding(half_types[type], values, HARNESS_COUNT(values));
    /* f64 to f32, subnormals and overflow */
    for (int i = 0; i < HARNESS_COUNT(values); i++) {
        float got;
        CHECK_OK(tutti_convert(&got, TUTTI_F32, &values[i], TUTTI_F64, 1));
        CHECK(same(got, harness_round(TUTTI_F32, values[i])), "f64 %a is f32 %a", values[i], got);
    }
}

/* Random bits of f32 and f64, through the reference. */
static void test_random_values(void)
{
    enum { COUNT = 1 << 16 };
    harness_rng rng = {1};
    double *values = harness_calloc(COUNT, sizeof *values);
    uint16_t *got = harness_calloc(COUNT, sizeof *got);
    for (int i = 0; i < COUNT; i++) {
        int exponent = (int)(harness_random(&rng) % 60) - 40;
        values[i] = ldexp(harness_uniform(&rng, -2, 2), i & 1 ? exponent : exponent * 4);
    }
    for (int type = 0; type < 2; type++) {
        CHECK_OK(tutti_convert(got, half_types[type], values, TUTTI_F64, COUNT));
        for (int i = 0; i < COUNT; i++)
            CHECK(got[i] == harness_encode(half_types[type], values[i]), "%a is %#06x", values[i],
                  got[i]);
    }
    free(values);
    free(got);
}

static void test_integers(void)
{
    static const struct {
        double from, i32, u8;
    } cases[] = {
        {0, 0, 0},
        {0.5, 0, 0},
        {1.5, 2, 2},
        {2.5, 2, 2},
        {-0.5, 0, 0},
        {-1.5, -2, 0},
        {254.4, 254, 254},
        {255.5, 256, 255},
        {300, 300, 255},
        {-300, -300, 0},
        {2147483646.7, 2147483647, 255},
        {2147483648.0, 2147483647, 255},
        {1e300, 2147483647, 255},
        {-1e300, -2147483648.0, 0},
        {INFINITY, 2147483647, 255},
        {-INFINITY, -2147483648.0, 0},
        {NAN, 0, 0},
    };
    for (int i = 0; i < HARNESS_COUNT(cases); i++) {
        int32_t wide = 77;
        uint8_t narrow = 77;
        CHECK_OK(tutti_convert(&wide, TUTTI_I32, &cases[i].from, TUTTI_F64, 1));
        CHECK_OK(tutti_convert(&narrow, TUTTI_U8, &cases[i].from, TUTTI_F64, 1));
        CHECK(wide == cases[i].i32, "%g is i32 %d", cases[i].from, (int)wide);
        CHECK(narrow == cases[i].u8, "%g is u8 %d", cases[i].from, (int)narrow);
    }
    int32_t large = 16777217, back;
    double exact;
    float rounded;
    CHECK_OK(tutti_convert(&exact, TUTTI_F64, &large, TUTTI_I32, 1));
    CHECK_OK(tutti_convert(&rounded, TUTTI_F32, &large, TUTTI_I32, 1));
    CHECK_OK(tutti_convert(&back, TUTTI_I32, &exact, TUTTI_F64, 1));
    CHECK(exact == 16777217 && rounded == 16777216 && back == large, "i32 goes wrong: %g %g %d",
          exact, (double)rounded, (int)back);
    uint8_t bytes[] = {0, 1, 255};
    int32_t ints[3];
    CHECK_OK(tutti_convert(ints, TUTTI_I32, bytes, TUTTI_U8, 3));
    CHECK(ints[0] == 0 && ints[1] == 1 && ints[2] == 255, "u8 goes wrong");
}

/* In place where the sizes are equal. */
static void test_in_place(void)
{
    uint16_t values[4], want[4];
    double from[] = {1, -2.5, 1e-3, 300};
    CHECK_OK(tutti_convert(values, TUTTI_F16, from, TUTTI_F64, 4));
    for (int i = 0; i < 4; i++)
        want[i] = (uint16_t)harness_encode(TUTTI_BF16, harness_decode(TUTTI_F16, values[i]));
    CHECK_OK(tutti_convert(values, TUTTI_BF16, values, TUTTI_F16, 4));
    CHECK(memcmp(values, want, sizeof want) == 0, "f16 to bf16 in place is wrong");
    CHECK_OK(tutti_convert(values, TUTTI_BF16, values, TUTTI_BF16, 4));
    CHECK(memcmp(values, want, sizeof want) == 0, "a copy in place is wrong");
    uint16_t signalling = 0x7f81, copy; /* a copy keeps bits, even of a signalling NaN */
    CHECK_OK(tutti_convert(&copy, TUTTI_BF16, &signalling, TUTTI_BF16, 1));
    CHECK(copy == signalling, "a copy has bits %#x", copy);
}

static void test_names(void)
{
    static const struct {
        tutti_dtype dtype;
        const char *name;
        size_t size;
    } types[] = {{TUTTI_F32, "f32", 4},   {TUTTI_F64, "f64", 8}, {TUTTI_F16, "f16", 2},
                 {TUTTI_BF16, "bf16", 2}, {TUTTI_I32, "i32", 4}, {TUTTI_U8, "u8", 1}};
    for (int i = 0; i < HARNESS_COUNT(types); i++) {
        tutti_dtype dtype = (tutti_dtype)99;
        CHECK(strcmp(tutti_dtype_name(types[i].dtype), types[i].name) == 0, "%s is called %s",
              types[i].name, tutti_dtype_name(types[i].dtype));
        CHECK_OK(tutti_dtype_parse(types[i].name, &dtype));
        CHECK(dtype == types[i].dtype, "%s is parsed as %d", types[i].name, (int)dtype);
        CHECK(tutti_dtype_size(dtype) == types[i].size, "%s has %zu bytes", types[i].name,
              tutti_dtype_size(dtype));
    }
}

static void test_views(void)
{
    static const int64_t dims[] = {3, 1, 5, 2};
    tutti_tensor t = tutti_tensor_make(NULL, TUTTI_F32, 4, dims);
    CHECK(t.strides[0] == 10 && t.strides[1] == 10 && t.strides[2] == 2 && t.strides[3] == 1,
          "strides are %lld %lld %lld %lld", (long long)t.strides[0], (long long)t.strides[1],
          (long long)t.strides[2], (long long)t.strides[3]);
    CHECK(tutti_tensor_count(&t) == 30, "30 elements are %lld", (long long)tutti_tensor_count(&t));
}

int main(int argc, char **argv)
{
    static const harness_test tests[] = {
        {"every 16-bit value and back", test_round_trip},
        {"rounding between neighbours", test_rounding},
        {"extremes", test_extremes},
        {"random values", test_random_values},
        {"integers", test_integers},
        {"in place", test_in_place},
        {"names", test_names},
        {"views", test_views},
    };
    return harness_main(argc, argv, "tensor", tests, HARNESS_COUNT(tests));
}
