/* Body of embedding.c's backward, for one REAL. */

TUTTI__VECTORISED
static void OF(add_pieces)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const embedding_task *t = data;
    const tutti__embedding_args *args = t->args;
    const bool widens = tutti_dtype_size(args->dtype) != sizeof(REAL);
    REAL wide[SLAB];
    for (int64_t piece = begin; piece < end; piece++) {
        const uint32_t band = (uint32_t)(piece / t->slabs);
        const int64_t from = piece % t->slabs * SLAB;
        const int64_t width = args->cols - from < SLAB ? args->cols - from : SLAB;
        for (int64_t row = 0; row < args->rows; row++) {
            const int32_t token = args->tokens[row];
            if (((uint32_t)token & (t->bands - 1)) != band || !in_table(args, token)) continue;
            const REAL *dy = tutti__at(tutti__row(&args->dy, row), args->dtype, from);
            if (widens) {
                OF(tutti__load)(wide, dy, args->dtype, width);
                dy = wide;
            }
            REAL *restrict sum = (REAL *)args->dweight + token * args->cols + from;
            for (int64_t j = 0; j < width; j++) sum[j] += dy[j];
        }
    }
}

#undef REAL
#undef OF
