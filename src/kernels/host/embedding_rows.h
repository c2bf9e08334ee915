/* Body of embedding.c's backward, for one REAL. */

/* sum = the sum of count rows of dy, in columns from … from + width, one after the other. */
TUTTI__INLINE void OF(add_rows)(REAL *restrict sum, const tutti__embedding_args *args,
                                const int32_t *rows, int64_t count, int64_t from, int64_t width)
{
    const bool widens = tutti_dtype_size(args->dtype) != sizeof(REAL);
    REAL wide[SLAB];
    memset(sum, 0, (size_t)width * sizeof *sum);
    for (int64_t i = 0; i < count; i++) {
        const REAL *dy = tutti__at(tutti__row(&args->dy, rows[i]), args->dtype, from);
        if (widens) {
            OF(tutti__load)(wide, dy, args->dtype, width);
            dy = wide;
        }
        for (int64_t j = 0; j < width; j++) sum[j] += dy[j];
    }
}

/* A run of one token: blocks of rows, merged pairwise like the digits of a binary counter. */
TUTTI__INLINE void OF(add_run)(const tutti__embedding_args *args, const int32_t *rows,
                               int64_t count, int64_t from, int64_t width)
{
    REAL waiting[WAITING][SLAB];
    int depth = 0;
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int64_t here = count - done < BLOCK ? count - done : BLOCK;
        OF(add_rows)(waiting[depth++], args, rows + done, here, from, width);
        const bool last = done + here == count;
        for (int64_t blocks = done / BLOCK + 1; depth > 1 && (last || blocks % 2 == 0);
             blocks /= 2) {
            REAL *restrict sum = waiting[depth - 2];
            const REAL *restrict more = waiting[--depth];
            for (int64_t j = 0; j < width; j++) sum[j] += more[j];
        }
    }
    REAL *restrict dweight = (REAL *)args->dweight + args->tokens[rows[0]] * args->cols + from;
    for (int64_t j = 0; j < width; j++)
        dweight[j] = args->accumulate ? dweight[j] + waiting[0][j] : waiting[0][j];
}

TUTTI__VECTORISED
static void OF(add_pieces)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const embedding_task *t = data;
    const int32_t *tokens = t->args->tokens;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t band = piece / t->slabs, from = piece % t->slabs * SLAB;
        const int64_t width = t->args->cols - from < SLAB ? t->args->cols - from : SLAB;
        const int64_t last = (band + 1) * t->count / t->bands;
        int64_t at = band * t->count / t->bands, next;
        /* a run that began before is another piece's */
        while (at > 0 && at < last && tokens[t->rows[at]] == tokens[t->rows[at - 1]]) at++;
        for (; at < last; at = next) {
            const int32_t token = tokens[t->rows[at]];
            for (next = at + 1; next < t->count && tokens[t->rows[next]] == token;) next++;
            OF(add_run)(t->args, t->rows + at, next - at, from, width);
        }
    }
}

#undef REAL
#undef OF
