/* Tests of the losses of rows: what a result must show, and the factors of the step. */
#include "loss_check.h"

bool loss_is_sharp(const trial *t, const trial_tensor *result)
{
    const int64_t cols = t->shapes[0].cols;
    return !(t->shapes[result->index].flags & TUTTI_SLOT_SUM) && cols >= 8 && cols <= 256 &&
           t->c.rows >= 4 && result->at->buffer.dtype != TUTTI_F64;
}

/* The last factors are those of a call without a step block. */
void loss_check_step(const trial_kind *kind)
{
    static const double factors[][2] = {{1.0 / 256, 1}, {0.01, 1024}, {3, 0.5}, {1, 1}, {1, 1}};
    for (int type = 0; type < 4; type++)
        for (int i = 0; i < HARNESS_COUNT(factors); i++) {
            trial_desc c =
                trial_usual(kind, 9, "cols=33,dtype=%s", tutti_dtype_name(float_dtypes[type]));
            c.step.loss_weight = factors[i][0];
            c.step.loss_scale = factors[i][1];
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            if (i == 4) t.call.step = NULL;
            if (trial_run(&t)) trial_check(&t);
            trial_close(&t);
        }
}
