/* Body of rope.c, for one REAL. */

/* The cosines and sines of a row; backward turns the other way. */
TUTTI__INLINE void OF(turns_of)(const rope_task *t, int64_t position, REAL *restrict cosine,
                                REAL *restrict sine)
{
    const REAL sign = t->backward ? -1 : 1;
    for (int64_t i = 0; i < t->args->pairs; i++) {
        OF(tutti__rope_turn)
        (tutti__rope_angle_of(t->frequencies[i], position), &cosine[i], &sine[i]);
        sine[i] *= sign;
    }
}

TUTTI__INLINE void OF(rotate)(REAL *restrict a, REAL *restrict b, int64_t step, int64_t pairs,
                              const REAL *restrict cosine, const REAL *restrict sine)
{
    for (int64_t i = 0; i < pairs; i++) {
        const REAL x = a[i * step], y = b[i * step];
        a[i * step] = x * cosine[i] - y * sine[i];
        b[i * step] = y * cosine[i] + x * sine[i];
    }
}

TUTTI__VECTORISED
static void OF(rope_rows)(void *data, int64_t begin, int64_t end, int thread)
{
    const rope_task *t = data;
    const tutti__rope_args *args = t->args;
    const int64_t cols = args->cols, pairs = args->pairs;
    REAL *row = (REAL *)(t->rows + (size_t)thread * (t->row_bytes + 2 * t->turn_bytes));
    REAL *cosine = (REAL *)((char *)row + t->row_bytes);
    REAL *sine = (REAL *)((char *)cosine + t->turn_bytes);
    for (int64_t r = begin; r < end; r++) {
        const int64_t position = tutti__rope_position(args, r);
        if (position < 0) {
            for (int64_t j = 0; j < cols; j++) row[j] = (REAL)NAN;
        } else {
            OF(tutti__load)(row, tutti__row(t->from, r), args->dtype, cols);
            OF(turns_of)(t, position, cosine, sine);
            for (REAL *head = row; head < row + cols; head += args->head_size)
                if (args->interleaved)
                    OF(rotate)(head, head + 1, 2, pairs, cosine, sine);
                else
                    OF(rotate)(head, head + pairs, 1, pairs, cosine, sine);
        }
        OF(tutti__store)(tutti__row(t->to, r), args->dtype, row, cols);
    }
}
