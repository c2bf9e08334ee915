/* Body of embedding.c's backward, for one REAL. */

/* Merges a complete block, number `block` of its token's, with the waiting sums of equal size and
 * lets the result wait; the last block is merged with all, which gives the token's sum. */
TUTTI__INLINE void OF(merge_block)(REAL *restrict sum, REAL *waiting, int64_t stride, int32_t block,
                                   bool last, int64_t width)
{
    for (; block > 0 && (last || block & 1); block >>= 1, waiting += stride) {
        if (!(block & 1)) continue;
        for (int64_t j = 0; j < width; j++) sum[j] += waiting[j];
    }
    if (!last) memcpy(waiting, sum, (size_t)width * sizeof *sum);
}

TUTTI__VECTORISED
static void OF(add_pieces)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const embedding_task *t = data;
    const tutti__embedding_args *args = t->args;
    const int64_t rows = args->rows, cols = args->cols;
    const int64_t size = (int64_t)tutti_dtype_size(args->dtype), step = args->dy.stride * size;
    const int32_t *tokens = args->tokens, *places = t->places, *counts = t->counts;
    const uint32_t vocab = (uint32_t)args->vocab, mask = t->bands - 1;
    const bool widens = size != sizeof(REAL), accumulate = args->accumulate;
    REAL wide[SLAB];
    for (int64_t piece = begin; piece < end; piece++) {
        const uint32_t band = (uint32_t)(piece / t->slabs);
        const int64_t from = piece % t->slabs * SLAB;
        const int64_t width = cols - from < SLAB ? cols - from : SLAB;
        const char *upstream = (const char *)args->dy.data + from * size;
        for (int64_t row = 0; row < rows; row++) {
            const uint32_t token = (uint32_t)tokens[row];
            if ((token & mask) != band || token >= vocab) continue;
            const REAL *dy = (const REAL *)(upstream + row * step);
            if (widens) {
                OF(tutti__load)(wide, dy, args->dtype, width);
                dy = wide;
            }
            const int32_t place = places[row], count = counts[token];
            const bool apart = accumulate && count > 1; /* from dE */
            const bool first = place % BLOCK == 0, last = place == count - 1;
            REAL *restrict dweight = (REAL *)args->dweight + token * cols + from;
            REAL *sums = NULL, *restrict sum = dweight;
            if (apart || count > BLOCK) sums = (REAL *)t->sums + t->begins[token] * cols + from;
            if (apart) sum = sums;
            if (first && (place > 0 || apart))
                for (int64_t j = 0; j < width; j++) sum[j] = 0 + dy[j];
            else
                for (int64_t j = 0; j < width; j++) sum[j] += dy[j];
            if (count > BLOCK && (last || place % BLOCK == BLOCK - 1)) {
                REAL *waiting = apart ? sums + cols : sums;
                OF(merge_block)(sum, waiting, cols, place / BLOCK, last, width);
            }
            if (apart && last)
                for (int64_t j = 0; j < width; j++) dweight[j] += sum[j];
        }
    }
}
