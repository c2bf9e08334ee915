/* The run's checkpoint.  The file says what the run is (config/…), so that a run that differs is refused
 * before it is built, and where it is (state/…, history).  One list of all that is in it serves the whole run, which owns
 * the file for as long: two runs that save to one file would each undo what the other has saved. */
#include "checkpoint.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "common/signals.h"
#include "faults.h"

/* What the run is, as the file has it. */
typedef struct config {
    char task[32], data[128], norm[16], activation[16], dtype[8];
    int64_t width, depth, embedding, context, batch, leaves, seed, epochs, warmup;
    double lr, weight_decay, clip;
} config;

struct run_file {
    tutti_checkpoint *list;
    config config;
    run_state state;
    int64_t samples_seen;
};

/* Each value, and what becomes of a run whose own is another. */
typedef struct field {
    const char *name, *option;
    enum { TEXT, INT, WARMUP, SEED, REAL } kind;
    size_t at, size;
    enum {
        FIXED,   /* it is refused */
        ALLOWED, /* it is told */
        LENGTH   /* it is told what that means */
    } change;
} field;

#define AT(member) offsetof(config, member), sizeof((config *)0)->member

static const field fields[] = {
    {"config/task", "--task", TEXT, AT(task), FIXED},
    {"config/data", "data", TEXT, AT(data), FIXED},
    {"config/width", "--width", INT, AT(width), FIXED},
    {"config/depth", "--depth", INT, AT(depth), FIXED},
    {"config/embedding", "--embedding", INT, AT(embedding), FIXED},
    {"config/context", "--context", INT, AT(context), FIXED},
    {"config/norm", "--norm", TEXT, AT(norm), FIXED},
    {"config/activation", "--activation", TEXT, AT(activation), FIXED},
    {"config/dtype", "--dtype", TEXT, AT(dtype), FIXED},
    {"config/batch", "--batch", INT, AT(batch), FIXED},
    {"config/leaves", "--reproducible", INT, AT(leaves), ALLOWED},
    {"config/seed", "--seed", SEED, AT(seed), FIXED},
    {"config/epochs", "--epochs", INT, AT(epochs), LENGTH},
    {"config/warmup", "--warmup", WARMUP, AT(warmup), ALLOWED},
    {"config/lr", "--lr", REAL, AT(lr), ALLOWED},
    {"config/weight_decay", "--weight-decay", REAL, AT(weight_decay), ALLOWED},
    {"config/clip", "--clip", REAL, AT(clip), ALLOWED},
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static config config_of(const trainer *t)
{
    const train_options *o = t->options;
    config made = {
        .width = o->width,
        .depth = o->depth,
        .embedding = o->embedding,
        .context = o->context,
        .batch = o->batch,
        .leaves = o->leaves,
        .seed = (int64_t)o->seed,
        .epochs = o->epochs,
        .warmup = o->warmup,
        .lr = o->lr,
        .weight_decay = o->weight_decay,
        .clip = o->clip,
    };
    snprintf(made.task, sizeof made.task, "%s", o->task->name);
    snprintf(made.data, sizeof made.data, "%s", t->task->data_name);
    snprintf(made.norm, sizeof made.norm, "%s", o->norm);
    snprintf(made.activation, sizeof made.activation, "%s", train_activation_name(o->activation));
    snprintf(made.dtype, sizeof made.dtype, "%s", tutti_dtype_name(o->dtype));
    return made;
}

static int list_config(tutti_checkpoint *list, config *config)
{
    for (int i = 0; i < FIELDS; i++) {
        const field *f = &fields[i];
        void *at = (char *)config + f->at;
        if (f->kind == TEXT)
            APP_CHECK(tutti_checkpoint_add_text(list, f->name, at, f->size));
        else if (f->kind == REAL)
            APP_CHECK(tutti_checkpoint_add_real(list, f->name, at));
        else
            APP_CHECK(tutti_checkpoint_add_int(list, f->name, at));
    }
    return APP_OK;
}

static int list_state(tutti_checkpoint *list, run_file *file, history *history)
{
    run_state *state = &file->state;
    APP_CHECK(tutti_checkpoint_add_int(list, "state/step", &state->step));
    APP_CHECK(tutti_checkpoint_add_int(list, "state/epoch", &state->epoch));
    APP_CHECK(tutti_checkpoint_add_int(list, "state/epoch_step", &state->epoch_step));
    APP_CHECK(tutti_checkpoint_add_int(list, "state/evaluated", &state->evaluated));
    APP_CHECK(tutti_checkpoint_add_int(list, "state/samples_seen", &file->samples_seen));
    APP_CHECK(tutti_checkpoint_add_int(list, "state/skipped", &state->skipped));
    APP_CHECK(tutti_checkpoint_add_real(list, "state/loss_scale", &state->scale.value));
    APP_CHECK(tutti_checkpoint_add_int(list, "state/loss_scale_good", &state->scale.good));
    return app_check(tutti_checkpoint_add_table(list, "history", history->values, HISTORY_COLS,
                                                HISTORY_ROWS, &history->rows));
}

/* The values by name; the tensors follow once there are any. */
static int create_list(trainer *t)
{
    t->file = calloc(1, sizeof *t->file);
    if (!t->file) return app_fail(APP_FAILED, "no memory for the checkpoint's list");
    APP_CHECK(tutti_checkpoint_create(t->ctx, t->comm, &t->file->list));
    APP_TRY(list_config(t->file->list, &t->file->config));
    return list_state(t->file->list, t->file, &t->history);
}

static int list_tensors(tutti_checkpoint *list, trainer *t)
{
    APP_CHECK(tutti_checkpoint_add_params(list, t->params));
    tutti_state_tensor state;
    for (int i = 0; i < tutti_adamw_state_count(t->adamw); i++) {
        APP_CHECK(tutti_adamw_state_get(t->adamw, i, &state));
        APP_CHECK(tutti_checkpoint_add_state(list, t->params, &state));
    }
    return APP_OK;
}

static void print_value(const field *f, const config *config, char *text, size_t size)
{
    const void *at = (const char *)config + f->at;
    if (f->kind == TEXT)
        snprintf(text, size, "%s", (const char *)at);
    else if (f->kind == REAL)
        snprintf(text, size, "%g", *(const double *)at);
    else if (f->kind == WARMUP && *(const int64_t *)at < 0)
        snprintf(text, size, "a tenth of the run");
    else if (f->kind == SEED)
        snprintf(text, size, "%llu", (unsigned long long)*(const int64_t *)at);
    else
        snprintf(text, size, "%lld", (long long)*(const int64_t *)at);
}

static bool same_value(const field *f, const config *a, const config *b)
{
    const char *x = (const char *)a + f->at, *y = (const char *)b + f->at;
    return f->kind == TEXT ? strcmp(x, y) == 0 : memcmp(x, y, f->size) == 0;
}

/* Refuses what would be another run; says what else is different. */
static int compare(const trainer *t, const config *file)
{
    const config mine = config_of(t);
    char was[128], is[128];
    for (int i = 0; i < FIELDS; i++) {
        const field *f = &fields[i];
        if (same_value(f, file, &mine)) continue;
        print_value(f, file, was, sizeof was);
        print_value(f, &mine, is, sizeof is);
        if (f->change == FIXED)
            return app_fail(APP_USAGE, "%s: its run has %s '%s', this one '%s'",
                            t->options->checkpoint, f->option, was, is);
        if (f->change == ALLOWED && !t->options->evaluate)
            app_say("resume: %s was %s and is now %s", f->option, was, is);
    }
    if (file->epochs != mine.epochs && !t->options->evaluate)
        app_say("resume: the run was %lld epochs long and is now %lld: the learning rate follows "
                "the new length from here on",
                (long long)file->epochs, (long long)mine.epochs);
    return APP_OK;
}

/* A state that no run of this length comes to, from a damaged or a foreign file. */
static int check_state(const trainer *t, const run_state *s)
{
    const bool fresh = s->step == 0 && s->epoch == 0 && s->epoch_step == 0;
    const bool within = s->step > 0 && s->epoch > 0 && s->epoch_step > 0 &&
                        s->epoch_step <= t->steps && s->epoch - 1 <= s->step / t->steps &&
                        s->step == (s->epoch - 1) * t->steps + s->epoch_step;
    if (!(fresh || within) || s->evaluated < 0 || s->evaluated > s->epoch || s->skipped < 0 ||
        !(s->scale.value > 0.0) || !isfinite(s->scale.value) || s->scale.good < 0)
        return app_fail(APP_FAILED,
                        "%s: step %lld, epoch %lld, step %lld of it: no run with %lld steps an "
                        "epoch is there",
                        t->options->checkpoint, (long long)s->step, (long long)s->epoch,
                        (long long)s->epoch_step, (long long)t->steps);
    if (s->step > t->total && !t->options->evaluate)
        return app_fail(APP_USAGE,
                        "--epochs is %lld, which is %lld steps, but the run in %s has made %lld",
                        (long long)t->options->epochs, (long long)t->total, t->options->checkpoint,
                        (long long)s->step);
    return APP_OK;
}

/* Rank 0 looks at what there is at FILE. */
static int look(const trainer *t)
{
    const char *path = t->options->checkpoint;
    struct stat there;
    const bool found = stat(path, &there) == 0;
    if ((found && !S_ISREG(there.st_mode)) || path[strlen(path) - 1] == '/')
        return app_fail(APP_FAILED, "%s: is not a regular file", path);
    return APP_OK;
}

/* The file is this run's, and can be saved as the list is now: better known now than after hours.  Collective. */
static int own(trainer *t)
{
    const train_options *o = t->options;
    char lock[PATH_MAX];
    if (o->evaluate) return APP_OK;
    APP_TRY(app_group_agree(
        t->group, app_check(tutti_checkpoint_own(t->file->list, o->checkpoint, (int)o->keep))));
    snprintf(lock, sizeof lock, "%s.lck", o->checkpoint);
    if (t->group->rank == 0) signals_remove(lock);
    return APP_OK;
}

/* Rank 0 decides whether to go on from FILE, which nobody else writes by now. */
static bool decide(const trainer *t)
{
    const train_options *o = t->options;
    struct stat there;
    const bool found = stat(o->checkpoint, &there) == 0, absent = !found && errno == ENOENT;
    if (found && !o->resume)
        app_warn("%s is there and will be replaced; --resume goes on from it", o->checkpoint);
    return o->resume && !(absent && o->resume == TRAIN_RESUME_AUTO && !o->evaluate);
}

/* What the run in FILE is, and where, while this one can still be refused.  Collective. */
static int look_inside(trainer *t)
{
    run_file *file = t->file;
    APP_TRY(app_group_agree(t->group,
                            app_check(tutti_checkpoint_load(file->list, t->options->checkpoint,
                                                            TUTTI_CHECKPOINT_VALUES))));
    int code = compare(t, &file->config);
    if (code == APP_OK) code = check_state(t, &file->state);
    return app_group_agree(t->group, code);
}

int checkpoint_open(trainer *t)
{
    app_group *group = t->group;
    int32_t resume = 0;
    if (!t->options->checkpoint) return APP_OK;
    int code = create_list(t);
    if (code == APP_OK && group->rank == 0) code = look(t);
    APP_TRY(app_group_agree(group, code));
    APP_TRY(own(t));
    if (group->rank == 0) resume = decide(t);
    APP_TRY(app_group_agree(group, app_check(tutti_comm_broadcast(group->control, group->host,
                                                                  &resume, 1, TUTTI_I32, 0))));
    t->resumed = resume;
    return t->resumed ? look_inside(t) : APP_OK;
}

int checkpoint_load(trainer *t)
{
    run_file *file = t->file;
    if (!file) return APP_OK;
    APP_TRY(app_group_agree(t->group, list_tensors(file->list, t)));
    APP_TRY(own(t)); /* with the tensors it may be too large */
    if (!t->resumed) return APP_OK;
    int code = app_check(tutti_checkpoint_load(file->list, t->options->checkpoint, 0));
    /* one that is only evaluated may have been replaced since it was looked at */
    if (code == APP_OK) code = check_state(t, &file->state);
    if (code == APP_OK) t->state = file->state;
    return app_group_agree(t->group, code);
}

int checkpoint_save(trainer *t)
{
    run_file *file = t->file;
    if (!file || !t->changed) return APP_OK;
    const double begin = app_now();
    file->config = config_of(t);
    file->state = t->state;
    file->samples_seen = t->state.step * t->options->batch;
    APP_TRY(app_group_agree(t->group, FAULT_HERE("save", t->group->rank)));
    APP_TRY(app_group_agree(t->group,
                            app_check(tutti_checkpoint_save(file->list, t->options->checkpoint,
                                                            (int)t->options->keep))));
    t->changed = false;
    return app_group_agree(t->group, log_saved(t, app_now() - begin));
}

void checkpoint_close(trainer *t)
{
    signals_remove(NULL);
    if (t->file) tutti_checkpoint_destroy(&t->file->list);
    free(t->file);
    t->file = NULL;
}
