/* Rotary positions.  Angles are products of two words of real, whose reduction is left to sinl and
 * cosl: the error of far ones is that of the library's alone. */
#include <stdlib.h>

#include "kind.h"

typedef struct two_words {
    real high, low;
} two_words;

static two_words two_product(two_words a, two_words b)
{
    const real high = a.high * b.high;
    const real low = fmal(a.high, b.high, -high) + (a.high * b.low + a.low * b.high);
    const real sum = high + low;
    return (two_words){sum, low - (sum - high)};
}

/* base^(-i/pairs), as powers of the first, which a step of Newton's makes exact to two words. */
static void take_frequencies(two_words *frequency, int64_t pairs, real base)
{
    two_words ratio = {powl(base, -1 / (real)pairs), 0}, power = {1, 0};
    for (int64_t i = 0; i < pairs; i++) power = two_product(power, ratio);
    power = two_product(power, (two_words){base, 0});
    ratio.low = -ratio.high * ((power.high - 1) + power.low) / (real)pairs;
    frequency[0] = (two_words){1, 0};
    for (int64_t i = 1; i < pairs; i++) frequency[i] = two_product(frequency[i - 1], ratio);
}

/* Of one row and pair. */
typedef struct turn {
    real cosine, sine;
    real error; /* of the angle */
} turn;

/* The library's angle is off by 2^-64 turns, the frequency's error, and the roundings of the rest
 * beyond quarter turns: as a float, of 2 pi as a float, of their product. */
static turn turn_of(const reference_work *w, two_words frequency, real position)
{
    if (position == 0) return (turn){1, 0, 0};
    const real angle = position * frequency.high;
    const real rest = fmal(position, frequency.high, -angle) + position * frequency.low;
    const real c = cosl(angle), s = sinl(angle);
    const turn t = {c * cosl(rest) - s * sinl(rest), s * cosl(rest) + c * sinl(rest), 0};
    const real quarter = asinl(fminl(fabsl(t.cosine), fabsl(t.sine)));
    return (turn){t.cosine, t.sine, 3 * w->u * quarter + 0x1p-61L + 0x1p-91L * position};
}

/* x cosine - y sine; other is x sine + y cosine, by which an error of the angle changes it. */
static void set_rotated(const reference_work *w, reference_tensor to, int64_t at, real x, real y,
                        turn t, tutti_dtype dtype)
{
    const real kept = x * t.cosine, taken = y * t.sine, value = kept - taken;
    const real other = x * t.sine + y * t.cosine;
    spread error = {0, 0, 0};
    if (t.sine != 0) {
        error = spread_add(spread_single(SPREAD_FUNCTION * w->u * kept),
                           spread_single(SPREAD_FUNCTION * w->u * taken));
        error = spread_add(error, spread_single(t.error * other));
        error = spread_add(error, spread_of(w->u * kept, 1));
        error = spread_add(error, spread_of(w->u * taken, 1));
        error = spread_add(error, spread_of(w->u * value, 1));
        error = spread_add(error, spread_of(spread_tiny(w->computed), 1));
    }
    reference_set(to, at, reference_stored(w, error, value, dtype), value);
}

typedef struct rope {
    int64_t cols, head, pairs, step, apart; /* a pair is at i step and i step + apart */
    const two_words *frequency;
    tutti_dtype dtype;
} rope;

static void one_row(const rope *k, const reference_work *w, const double *x, reference_tensor to,
                    int64_t row, real position, int sign)
{
    const int64_t first = row * k->cols;
    for (int64_t j = 0; j < k->cols; j++) /* those that are not rotated stay */
        reference_set(to, first + j, 0, position < 0 ? NAN : x[first + j]);
    for (int64_t i = 0; i < k->pairs && position >= 0; i++) {
        turn t = turn_of(w, k->frequency[i], position);
        t.sine *= sign;
        for (int64_t a = first + i * k->step; a < first + k->cols; a += k->head) {
            const int64_t b = a + k->apart;
            turn back = t;
            back.sine = -t.sine;
            set_rotated(w, to, a, x[a], x[b], t, k->dtype);
            set_rotated(w, to, b, x[b], x[a], back, k->dtype);
        }
    }
}

static real position_of(const reference_work *w, const double *positions, int64_t row)
{
    const int64_t period = (int64_t)reference_option(w, "period");
    const int64_t number = w->problem->first_row + row;
    if (!positions) return (real)(period > 0 ? number % period : number);
    return positions[row] < reference_option(w, "max_positions") ? positions[row] : -1;
}

static const char *compute(const reference_work *w)
{
    const reference_tensor y = reference_find(w, "y"), dx = reference_find(w, "dx");
    const double *x = reference_given(w, "x"), *dy = reference_given(w, "dy");
    const double *positions = reference_given(w, "positions");
    const int64_t head = (int64_t)reference_option(w, "head_size");
    const int64_t rotated = (int64_t)reference_option(w, "rotated");
    const bool interleaved = reference_option_is(w, "pairing", "interleaved");
    rope k = {.cols = (int64_t)reference_option(w, "cols"),
              .head = head,
              .pairs = (rotated > 0 ? rotated : head) / 2,
              .dtype = reference_dtype(w, "x")};
    k.step = interleaved ? 2 : 1;
    k.apart = interleaved ? 1 : k.pairs;
    two_words *frequency = malloc((size_t)k.pairs * sizeof *frequency);
    if (!frequency) return REFERENCE_NO_MEMORY;
    take_frequencies(frequency, k.pairs, reference_option(w, "base"));
    k.frequency = frequency;
    for (int64_t i = 0; i < w->rows; i++) {
        const real position = position_of(w, positions, i);
        if (x && reference_wants(y)) one_row(&k, w, x, y, i, position, 1);
        if (dy && reference_wants(dx)) one_row(&k, w, dy, dx, i, position, -1);
    }
    free(frequency);
    return NULL;
}

const reference_kind reference_rope = {.name = "rope", .compute = compute};
