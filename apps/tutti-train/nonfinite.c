/* Losses and gradients that are not finite.  After the exchange all ranks have the same gradients,
 * so the rank is identified by its own loss, or else by computing its own gradients again; the
 * tensor is the first in the store's order, which is that of backward.  With --shard a rank has
 * only the sums of its slices: the first of all ranks' tensors is that of the sum. */
#include "nonfinite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"

enum { SKIPS_MOST = 100 /* in a row, before a run is given up */ };

/* printf would print some as -nan. */
static const char *word(double loss)
{
    return isnan(loss) ? "nan" : loss > 0.0 ? "inf" : "-inf";
}

static int read_result(trainer *t)
{
    APP_TRY(optimizer_norm(&t->optimizer, t->ctx, &t->grad_norm)); /* the losses were sent before */
    t->loss = 0.0;
    for (int64_t i = 0; i < t->parts; i++) t->loss += t->losses_host[i];
    t->loss /= trainer_batch_tokens(t);
    return APP_OK;
}

/* Clears *finite if elements [begin, end) of a gradient are not all finite; copies a part at a time
 * to the host. */
static int check_elements(trainer *t, const tutti_tensor *grad, int64_t begin, int64_t end,
                          bool *finite)
{
    enum { PART = 1 << 16 };
    static double values[PART], raw[PART];
    const size_t size = tutti_dtype_size(grad->dtype);
    for (int64_t i = begin; *finite && i < end; i += PART) {
        const int64_t part = end - i < PART ? end - i : PART;
        APP_CHECK(tutti_copy(t->ctx, raw, (const char *)grad->data + (size_t)i * size,
                             (size_t)part * size));
        APP_CHECK(tutti_convert(values, TUTTI_F64, raw, grad->dtype, part));
        for (int64_t j = 0; j < part; j++) *finite = *finite && isfinite(values[j]);
    }
    return APP_OK;
}

/* What this rank has of its sum. */
static int check_slices(trainer *t, const tutti_tensor *grad, bool *finite)
{
    tutti_tensor flat;
    APP_CHECK(tutti_params_flat(t->params, TUTTI_PARAMS_GRAD, &flat));
    const int64_t first = ((const char *)grad->data - (const char *)flat.data) /
                          (int64_t)tutti_dtype_size(grad->dtype);
    for (int i = 0; i < tutti_params_slice_count(t->params); i++) {
        int64_t begin, count;
        APP_CHECK(tutti_params_slice(t->params, i, &begin, &count));
        const int64_t end = begin + count - first, all = tutti_tensor_count(grad);
        APP_TRY(check_elements(t, grad, begin > first ? begin - first : 0, end < all ? end : all,
                               finite));
    }
    return APP_OK;
}

/* The number of the first tensor whose gradient, or of the sums what this rank has, is not finite;
 * -1 if there is none. */
static int find_tensor(trainer *t, bool sums, int *number)
{
    bool finite = true;
    *number = -1;
    for (int i = 0; finite && i < tutti_params_count(t->params); i++) {
        const tutti_tensor *grad = &tutti_params_get(t->params, i)->grad;
        APP_TRY(sums ? check_slices(t, grad, &finite)
                     : check_elements(t, grad, 0, tutti_tensor_count(grad), &finite));
        if (!finite) *number = i;
    }
    return APP_OK;
}

static const char *name_of(const trainer *t, int number)
{
    return number < 0 ? "none" : tutti_params_get(t->params, number)->name;
}

/* Computes this rank's own gradients of a skipped step of the epoch again, overwriting the sums. */
static int own_gradients(trainer *t, int64_t step)
{
    const task_class *class = t->task->class;
    if (t->begun) APP_TRY(trainer_set_values(t, t->state.step - (t->state.epoch_step - step)));
    t->loaded = t->begun = false; /* what is loaded here takes the place of the next step's rows */
    for (int64_t m = t->part, parts; m < t->part + t->part_count; m += parts) {
        const unsigned flags = m == t->part ? 0 : TUTTI_GRAD_ACCUMULATE;
        parts = trainer_pass(t, m);
        APP_TRY(trainer_load(t, step, m));
        APP_TRY(class->forward(t->task, parts * t->rows, t->step));
        APP_TRY(class->backward(t->task, parts * t->rows, APP_OK, flags, NULL));
    }
    return APP_OK;
}

/* The first rank whose own gradients are not all finite, and its first such tensor; -1: only the
 * sum is not finite.  Collective. */
static int find_origin(trainer *t, int64_t step, int *rank, int *number)
{
    double *all = t->laps.gathered;
    int mine = -1;
    int code = own_gradients(t, step);
    if (code == APP_OK) code = find_tensor(t, false, &mine);
    const double told = mine;
    APP_CHECK(tutti_comm_all_gather(t->group->control, t->group->host, &told, all, 1, TUTTI_F64));
    *rank = -1;
    for (int r = t->group->world_size - 1; r >= 0; r--)
        if (all[r] >= 0.0) {
            *rank = r;
            *number = (int)all[r];
        }
    return code;
}

/* The first rank whose loss is not finite, and that loss; -1 if there is none. */
static int name_rank(trainer *t, int *rank, double *loss)
{
    double *all = t->laps.gathered;
    *rank = -1;
    *loss = t->loss;
    APP_CHECK(
        tutti_comm_all_gather(t->group->control, t->group->host, &t->loss, all, 1, TUTTI_F64));
    for (int r = t->group->world_size - 1; r >= 0; r--)
        if (!isfinite(all[r])) {
            *rank = r;
            *loss = all[r];
        }
    return APP_OK;
}

/* A loss that is not finite though the gradients are: only this rank knows, and the update was
 * made. */
static int report_loss(trainer *t, int64_t step)
{
    char what[160];
    snprintf(what, sizeof what,
             "step %lld/%lld of epoch %lld/%lld: the loss is %s on rank %d, but all gradients are "
             "finite",
             (long long)step, (long long)t->steps, (long long)t->state.epoch,
             (long long)t->options->epochs, word(t->loss), t->group->rank);
    if (t->options->nonfinite == TRAIN_NONFINITE_STOP) return app_fail(APP_FAILED, "%s", what);
    app_complain("%s: the update was made", what);
    return APP_OK;
}

/* f16, and the losses are finite: every rank sees the same sums, so all skip and halve together. */
static int report_overflow(trainer *t, int64_t step)
{
    char why[128];
    const double before = t->state.scale.value;
    const bool usable = loss_scale_adapt(&t->state.scale, true);
    snprintf(why, sizeof why, "the gradients overflow; loss scale %g -> %g", before,
             t->state.scale.value);
    const log_place place = trainer_place(t);
    APP_TRY(log_skipped(&t->log, &place, step, why));
    if (usable) return APP_OK;
    return app_fail(APP_FAILED,
                    "the gradients of step %lld of epoch %lld are not finite at any loss scale; "
                    "try a lower --lr",
                    (long long)step, (long long)t->state.epoch);
}

/* The first tensor whose sum is not finite, on rank 0, which reports it.  Collective. */
static int find_summed(trainer *t, int *number)
{
    double *all = t->laps.gathered;
    int code = t->options->shard || t->group->rank == 0 ? find_tensor(t, true, number) : APP_OK;
    if (!t->options->shard) return code;
    const double mine = *number;
    APP_CHECK(tutti_comm_all_gather(t->group->control, t->group->host, &mine, all, 1, TUTTI_F64));
    for (int r = 0; r < t->group->world_size; r++)
        if (all[r] >= 0.0 && (*number < 0 || all[r] < *number)) *number = (int)all[r];
    return code;
}

/* Collective. */
static int report_gradient(trainer *t, int64_t step, int rank, double loss)
{
    char what[256], where[48] = "in the sum over the ranks";
    int number = -1, origin;
    APP_TRY(find_summed(t, &number));
    if (rank >= 0) {
        snprintf(what, sizeof what,
                 "the loss is %s on rank %d; the first gradient that is not finite is %s",
                 word(loss), rank, name_of(t, number));
    } else {
        APP_TRY(find_origin(t, step, &origin, &number));
        if (origin >= 0) snprintf(where, sizeof where, "on rank %d", origin);
        snprintf(what, sizeof what,
                 "the loss is finite on every rank, but not all gradients are; the first is %s, %s",
                 name_of(t, number), where);
    }
    const log_place place = trainer_place(t);
    if (t->options->nonfinite == TRAIN_NONFINITE_SKIP) {
        APP_TRY(log_skipped(&t->log, &place, step, what));
        if (++t->skips < SKIPS_MOST) return APP_OK;
        return app_fail(APP_FAILED,
                        "%d steps in a row were skipped: the model does not train any more; try a "
                        "lower --lr, from an older file",
                        SKIPS_MOST);
    }
    return app_fail(APP_FAILED,
                    "step %lld/%lld of epoch %lld/%lld: %s; try a lower --lr, or --on-nonfinite "
                    "skip",
                    (long long)step, (long long)t->steps, (long long)t->state.epoch,
                    (long long)t->options->epochs, what);
}

int nonfinite_check(trainer *t)
{
    if (!t->unchecked) return APP_OK;
    const bool f16 = t->options->dtype == TUTTI_F16;
    const int64_t step = t->unchecked;
    t->unchecked = 0;
    APP_TRY(read_result(t));
    if (isfinite(t->grad_norm)) {
        t->skips = 0;
        if (f16) loss_scale_adapt(&t->state.scale, false);
        return isfinite(t->loss) ? APP_OK : report_loss(t, step);
    }
    int rank;
    double loss;
    t->state.skipped++;
    APP_TRY(name_rank(t, &rank, &loss));
    if (f16 && rank < 0) return report_overflow(t, step);
    return report_gradient(t, step, rank, loss);
}
