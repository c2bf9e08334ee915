/* Bodies of adamw.c, for one REAL. */

/* Sum of squares of each block of gradients. */
TUTTI__VECTORISED
static void OF(square_blocks)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const adamw_task *t = data;
    for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * NORM_BLOCK;
        const int64_t count =
            t->args->count - first < NORM_BLOCK ? t->args->count - first : NORM_BLOCK;
        const REAL *g = (const REAL *)t->args->grad + first;
        /* in runs, so that no chain of additions is long */
        double sum = 0;
        for (int64_t run = 0; run < count; run += TUTTI_PARAM_ALIGN) {
            double part = 0;
#pragma omp simd reduction(+ : part)
            for (int64_t i = run; i < run + TUTTI_PARAM_ALIGN; i++)
                part += (double)g[i] * (double)g[i];
            sum += part;
        }
        t->squares[block] = sum;
    }
}

/* The update, for runs of TUTTI_PARAM_ALIGN elements, each of one parameter. */
TUTTI__VECTORISED
static void OF(update_runs)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const adamw_task *t = data;
    const tutti__adamw_args *args = t->args;
    const REAL beta1 = (REAL)args->beta1, rest1 = (REAL)(1 - args->beta1);
    const REAL beta2 = (REAL)args->beta2, rest2 = (REAL)(1 - args->beta2);
    const REAL unbias1 = (REAL)(1 / t->bias1), unbias2 = (REAL)(1 / t->bias2);
    const REAL eps = (REAL)args->eps, factor = (REAL)t->factor;
    for (int64_t run = begin; run < end; run++) {
        const tutti__param_factors *f = &args->factors[args->block_param[run]];
        const REAL rate = (REAL)(t->learning_rate * f->lr_scale);
        const REAL decay = (REAL)(args->weight_decay * f->weight_decay);
        const int64_t first = run * TUTTI_PARAM_ALIGN;
        const REAL *restrict g = (const REAL *)args->grad + first;
        REAL *restrict p = (REAL *)args->master + first;
        REAL *restrict m = (REAL *)args->m + first;
        REAL *restrict v = (REAL *)args->v + first;
        for (int i = 0; i < TUTTI_PARAM_ALIGN; i++) {
            const REAL gi = g[i] * factor;
            m[i] = beta1 * m[i] + rest1 * gi;
            v[i] = beta2 * v[i] + rest2 * (gi * gi);
            const REAL step = m[i] * unbias1 / (OF(root)(v[i] * unbias2) + eps);
            p[i] -= rate * (step + decay * p[i]);
        }
        if (args->working && f->working) OF(tutti__store)
        (tutti__at(args->working, args->working_dtype, first), args->working_dtype, p,
         TUTTI_PARAM_ALIGN);
    }
}

#undef REAL
#undef OF
