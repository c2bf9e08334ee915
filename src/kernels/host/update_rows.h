/* Bodies of update.c, for one REAL. */

/* The sum and the squares of a multiple of TUTTI_PARAM_ALIGN gradients, in parts, so that no chain
 * of additions is long. */
TUTTI__VECTORISED
static double OF(add_squares)(double sum, const REAL *g, int64_t count)
{
    for (int64_t begin_part = 0; begin_part < count; begin_part += TUTTI_PARAM_ALIGN) {
        double part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = begin_part; i < begin_part + TUTTI_PARAM_ALIGN; i++)
            part += (double)g[i] * (double)g[i];
        sum += part;
    }
    return sum;
}

/* Sum of squares of each run of a slice's gradients. */
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
        t->args->squares[span->first / TUTTI__NORM_RUN + run] = OF(add_squares)(0, g, count);
    }
}

/* Sum of squares of each run of a list's gradients of this type. */
static void OF(list_runs)(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const list_task *t = data;
    list_place at = list_seek(t, begin * TUTTI__NORM_RUN);
    for (int64_t run = begin; run < end; run++) {
        double sum = 0;
        for (int64_t left = TUTTI__NORM_RUN; left > 0 && at.index < t->args->count;) {
            const tutti_tensor *grad = &t->args->grads[at.index];
            const REAL *g = (const REAL *)grad->data + at.first;
            const int64_t rest = tutti_tensor_count(grad) - at.first;
            int64_t taken = (rest < left ? rest : left) / TUTTI_PARAM_ALIGN * TUTTI_PARAM_ALIGN;
            REAL block[TUTTI_PARAM_ALIGN] = {0};
            if (taken == 0) { /* the tensor's end */
                g = memcpy(block, g, (size_t)rest * sizeof *g);
                taken = TUTTI_PARAM_ALIGN;
            }
            sum = OF(add_squares)(sum, g, taken);
            left -= taken;
            at.first += taken;
            list_settle(t, &at);
        }
        t->squares[run] = sum;
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
    const tutti__param_factors *f =
        &args->factors[args->block_param ? args->block_param[first / TUTTI_PARAM_ALIGN] : 0];
    return (OF(block)){.first = first,
                       .rate = (REAL)(t->learning_rate * f->lr_scale),
                       .decay = (REAL)(args->options.weight_decay * f->weight_decay),
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
    const tutti__update_options *o = &args->options;
    const REAL beta1 = (REAL)o->beta1, rest1 = (REAL)(1 - o->beta1);
    const REAL beta2 = (REAL)o->beta2, rest2 = (REAL)(1 - o->beta2);
    const REAL unbias1 = (REAL)(1 / t->bias1), unbias2 = (REAL)(1 / t->bias2);
    const REAL eps = (REAL)o->eps, factor = (REAL)t->factor;
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
    const REAL momentum = (REAL)args->options.beta1, factor = (REAL)t->factor;
    const bool nesterov = args->options.nesterov;
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
            p[i] -= rate * (nesterov ? gi + momentum * velocity[i] : velocity[i]);
        }
        OF(store_block)(args, &block);
    }
}

/* Updates `count` elements of a list's parameter in a block of their own: its last ones, or ones
 * whose gradients have another type. */
static void OF(apply_block)(const apply_task *t, int64_t first, int64_t count)
{
    const tutti__update_args *args = t->update.args;
    const size_t bytes = (size_t)count * sizeof(REAL);
    REAL g[TUTTI_PARAM_ALIGN] = {0}, room[3][TUTTI_PARAM_ALIGN] = {{0}};
    REAL *const from[3] = {t->update.own->master, args->state[0], args->state[1]};
    OF(tutti__load)
    (g, tutti__at(args->of.grad, t->grad_dtype, first), t->grad_dtype, count);
    for (int i = 0; i < 3; i++)
        if (from[i]) memcpy(room[i], from[i] + first, bytes);
    tutti__update_args own = *args;
    own.of.grad = g;
    own.working = NULL;
    for (int i = 0; i < 2; i++) own.state[i] = from[1 + i] ? room[1 + i] : NULL;
    update_task task = t->update;
    task.args = &own;
    task.own = &(tutti__slice){.span = {.count = TUTTI_PARAM_ALIGN}, .master = room[0]};
    t->rule(&task, 0, 1, 0);
    for (int i = 0; i < 3; i++)
        if (from[i]) memcpy(from[i] + first, room[i], bytes);
    if (args->working) OF(tutti__store)
    (tutti__at(args->working, args->working_dtype, first), args->working_dtype, room[0], count);
}

/* Blocks of a list's parameter. */
static void OF(apply_blocks)(void *data, int64_t begin, int64_t end, int thread)
{
    apply_task *t = data;
    const int64_t count = t->update.own->span.count;
    const bool same = t->grad_dtype == t->update.args->of.dtype;
    const int64_t whole = same ? count / TUTTI_PARAM_ALIGN : 0;
    if (begin < whole) t->rule(&t->update, begin, end < whole ? end : whole, thread);
    for (int64_t block = begin < whole ? whole : begin; block < end; block++) {
        const int64_t first = block * TUTTI_PARAM_ALIGN, rest = count - first;
        OF(apply_block)(t, first, rest < TUTTI_PARAM_ALIGN ? rest : TUTTI_PARAM_ALIGN);
    }
}
