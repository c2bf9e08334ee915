/* Bodies of glu.c, for one REAL. */

/* row = a piece of a matrix's row */
TUTTI__INLINE void OF(take)(REAL *row, const tutti__matrix *from, int64_t at_row, int64_t first,
                            int64_t count)
{
    OF(tutti__load)
    (row, tutti__at(tutti__row(from, at_row), from->dtype, first), from->dtype, count);
}
TUTTI__INLINE void OF(put)(const tutti__matrix *to, int64_t at_row, int64_t first, const REAL *row,
                           int64_t count)
{
    OF(tutti__store)(tutti__at(tutti__row(to, at_row), to->dtype, first), to->dtype, row, count);
}

TUTTI__VECTORISED
static void OF(glu_forward_pieces)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const glu_task *t = data;
    const tutti__glu_args *args = t->args;
    _Alignas(64) REAL gate[PIECE], b[PIECE];
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / t->pieces, first = i % t->pieces * PIECE, left = args->cols - first;
        const int64_t count = left < PIECE ? left : PIECE;
        OF(take)(gate, &args->a, row, first, count);
        OF(take)(b, &args->b, row, first, count);
        OF(tutti__activate)(gate, args->activation, count);
        for (int64_t j = 0; j < count; j++) gate[j] *= b[j];
        OF(put)(&args->y, row, first, gate, count);
    }
}

/* Everything is read before anything is written: da and db may be what they are made of. */
TUTTI__VECTORISED
static void OF(glu_backward_pieces)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const glu_task *t = data;
    const tutti__glu_args *args = t->args;
    _Alignas(64) REAL gate[PIECE], a[PIECE], b[PIECE], da[PIECE], db[PIECE];
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / t->pieces, first = i % t->pieces * PIECE, left = args->cols - first;
        const int64_t count = left < PIECE ? left : PIECE;
        OF(take)(da, &args->dy, row, first, count);
        OF(take)(a, &args->a, row, first, count);
        OF(take)(b, &args->b, row, first, count);
        for (int64_t j = 0; j < count; j++) {
            gate[j] = a[j];
            db[j] = da[j];
        }
        if (args->db.data) {
            OF(tutti__activate)(gate, args->activation, count);
            for (int64_t j = 0; j < count; j++) db[j] *= gate[j];
        }
        if (args->da.data) {
            OF(tutti__activate_backward)(da, a, TUTTI__FROM_Z, args->activation, count);
            for (int64_t j = 0; j < count; j++) da[j] *= b[j];
            OF(put)(&args->da, row, first, da, count);
        }
        if (args->db.data) OF(put)(&args->db, row, first, db, count);
    }
}
