/* AdamW [Loshchilov & Hutter 2019], element by element; see adamw.h. */
#include "adamw.h"

#include "spread.h"

typedef struct moment {
    real value, error; /* before it is stored */
} moment;

/* beta old + (1 - beta) fresh, whose relative error is `relative` */
static moment moving(double beta, double old, real fresh, real u, real relative)
{
    const real kept = beta * (real)old, added = (1 - (real)beta) * fresh;
    return (moment){kept + added,
                    spread_most(spread_add(spread_whole(2 * u * kept),
                                           spread_whole((2 * u + relative) * added)))};
}

static real stored(const reference_adamw *a, real error, real value)
{
    return spread_stored(spread_single(error + spread_roundoff(a->dtype) * (fabsl(value) + error)),
                         value, a->dtype, a->dtype);
}

/* The error of 1 - beta^t, which is computed in f64 whatever the type, by cancellation. */
static real correction_error(real correction, real u)
{
    return SPREAD_FUNCTION * spread_roundoff(TUTTI_F64) / correction + u;
}

/* The root halves v's relative error; where v is tiny the root's error is that of v itself. */
static real root_error(real root, real v_error, real correction)
{
    const real whole = sqrtl(v_error / correction);
    return root > 0 ? fminl(v_error / (2 * root * correction), whole) : whole;
}

reference_adamw_state reference_adamw_update(const reference_adamw *a,
                                             const reference_adamw_state *before, double grad,
                                             reference_adamw_state *bound)
{
    const real u = spread_roundoff(a->dtype), tiny = spread_tiny(a->dtype);
    const real correction1 = 1 - powl(a->beta1, (real)a->t);
    const real correction2 = 1 - powl(a->beta2, (real)a->t);
    const real g = (real)grad * a->factor;
    /* of the factor and its product */
    const real relative =
        spread_most(spread_add(spread_whole(3 * u), spread_whole(a->factor_error)));
    const moment m = moving(a->beta1, before->m, g, u, relative);
    const moment v = moving(a->beta2, before->v, g * g, u, u + 2 * relative);
    const real m_error = stored(a, m.error + tiny, m.value);
    const real v_error = stored(a, v.error + tiny, v.value);
    const real root = sqrtl(v.value / correction2), denominator = root + a->eps;
    const real ratio = m.value / correction1 / denominator;
    spread error = spread_whole(m_error / (correction1 * denominator));
    error = spread_add(error,
                       spread_whole(ratio * root_error(root, v_error, correction2) / denominator));
    error = spread_add(error, spread_whole((correction_error(correction1, u) +
                                            correction_error(correction2, u) / 2) *
                                           ratio));
    error = spread_add(error, spread_whole((SPREAD_FUNCTION + 2) * u * ratio));
    const real decay = (real)a->weight_decay * before->master;
    const real change = (real)a->learning_rate * (ratio + decay), master = before->master - change;
    error = spread_whole(a->learning_rate * spread_most(error));
    error = spread_add(error, spread_whole(a->learning_rate * 2 * u * decay));
    error = spread_add(error, spread_whole(3 * u * change));
    *bound = (reference_adamw_state){(double)stored(a, spread_most(error), master), (double)m_error,
                                     (double)v_error};
    return (reference_adamw_state){(double)master, (double)m.value, (double)v.value};
}
