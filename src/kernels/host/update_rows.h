/* Bodies of update.c, for one REAL. */

/* Sum of squares of each run of a slice's gradients. */
TUTTI__VECTORISED
static void OF(square_runs)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const squares_task *t = data;
    const tutti__span *span = &t->own->span;
    for (int64_t run = begin; run < end; run++) {
        const int64_t first = run * TUTTI__NORM_RUN;
        const int64_t count =
            span->count - first < TUTTI__NORM_RUN ? span->count - first : TUTTI__NORM_RUN;
        const REAL *g = (const REAL *)t->args->grad + span->first + first;
        /* in parts, so that no chain of additions is long */
        double sum = 0;
        for (int64_t begin_part = 0; begin_part < count; begin_part += TUTTI_PARAM_ALIGN) {
            double part = 0;
#pragma omp simd reduction(+ : part)
            for (int64_t i = begin_part; i < begin_part + TUTTI_PARAM_ALIGN; i++)
                part += (double)g[i] * (double)g[i];
            sum += part;
        }
        t->args->squares[span->first / TUTTI__NORM_RUN + run] = sum;
    }
}

/* What the updates of TUTTI_PARAM_ALIGN elements, of one parameter, have in common. */
typedef struct OF(block) {
    int64_t first; /* in the flat buffers */
    REAL rate, decay;
    bool working;
    const REAL *g;
    REAL *p, *state[2];
} OF(block);

static inline OF(block) OF(block_of)(const update_task *t, int64_t number)
{
    const tutti__update_args *args = t->args;
    const int64_t at = number * TUTTI_PARAM_ALIGN, first = t->own->span.first + at;
    const int64_t local = t->own->local + at;
    const tutti__param_factors *f = &args->factors[args->block_param[first / TUTTI_PARAM_ALIGN]];
    return (OF(block)){.first = first,
                       .rate = (REAL)(t->learning_rate * f->lr_scale),
                       .decay = (REAL)(args->weight_decay * f->weight_decay),
                       .working = args->working && f->working,
                       .g = (const REAL *)args->of.grad + first,
                       .p = (REAL *)t->own->master + at,
                       .state = {args->state[0] ? (REAL *)args->state[0] + local : NULL,
                                 args->state[1] ? (REAL *)args->state[1] + local : NULL}};
}

static inline void OF(store_block)(const tutti__update_args *args, const OF(block) * block)
{
    if (!block->working) return;
    OF(tutti__store)
    (tutti__at(args->working, args->working_dtype, block->first), args->working_dtype, block->p,
     TUTTI_PARAM_ALIGN);
}

TUTTI__VECTORISED
static void OF(adamw_runs)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const update_task *t = data;
    const tutti__update_args *args = t->args;
    const REAL beta1 = (REAL)args->beta1, rest1 = (REAL)(1 - args->beta1);
    const REAL beta2 = (REAL)args->beta2, rest2 = (REAL)(1 - args->beta2);
    const REAL unbias1 = (REAL)(1 / t->bias1), unbias2 = (REAL)(1 / t->bias2);
    const REAL eps = (REAL)args->eps, factor = (REAL)t->factor;
    for (int64_t number = begin; number < end; number++) {
        const OF(block) block = OF(block_of)(t, number);
        const REAL *restrict g = block.g;
        REAL *restrict p = block.p, *restrict m = block.state[0], *restrict v = block.state[1];
        const REAL rate = block.rate, decay = block.decay;
        for (int i = 0; i < TUTTI_PARAM_ALIGN; i++) {
            const REAL gi = g[i] * factor;
            m[i] = beta1 * m[i] + rest1 * gi;
            v[i] = beta2 * v[i] + rest2 * (gi * gi);
            const REAL step = m[i] * unbias1 / (OF(root)(v[i] * unbias2) + eps);
            p[i] -= rate * (step + decay * p[i]);
        }
        OF(store_block)(args, &block);
    }
}

TUTTI__VECTORISED
static void OF(sgd_runs)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const update_task *t = data;
    const tutti__update_args *args = t->args;
    const REAL momentum = (REAL)args->beta1, factor = (REAL)t->factor;
    for (int64_t number = begin; number < end; number++) {
        const OF(block) block = OF(block_of)(t, number);
        const REAL *restrict g = block.g;
        REAL *restrict p = block.p, *restrict velocity = block.state[0];
        const REAL rate = block.rate, decay = block.decay;
        for (int i = 0; i < TUTTI_PARAM_ALIGN && !velocity; i++)
            p[i] -= rate * (g[i] * factor + decay * p[i]);
        for (int i = 0; i < TUTTI_PARAM_ALIGN && velocity; i++) {
            const REAL gi = g[i] * factor + decay * p[i];
            velocity[i] = momentum * velocity[i] + gi;
            p[i] -= rate * (args->nesterov ? gi + momentum * velocity[i] : velocity[i]);
        }
        OF(store_block)(args, &block);
    }
}

#undef REAL
#undef OF
