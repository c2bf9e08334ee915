/* The run's checkpoint.  The file holds the run's configuration (config/…), so that a different run
 * is refused before its model is built, and its progress (state/…, history).  The run owns the file
 * from begin to end: two runs that save to one file would overwrite each other's work. */
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

/* A value of the configuration as it is saved. */
typedef union saved {
    int64_t whole;
    double real;
    char text[128];
} saved;

struct run_file {
    tutti_checkpoint *list;
    saved config[APP_OPTIONS_MAX]; /* of the options that have a key */
    bool listed[APP_OPTIONS_MAX];  /* of those that a file may lack */
    run_state state;
    int64_t samples_seen;
};

enum value_type { WHOLE, REAL, TEXT };

static enum value_type type_of(const app_option *option)
{
    return option->kind == APP_INT || option->kind == APP_UNSIGNED    ? WHOLE
           : option->kind == APP_REAL || option->kind == APP_POSITIVE ? REAL
                                                                      : TEXT;
}

/* For --data, the sizes of the data, not the folder. */
static saved value_of(const trainer *t, const app_option *option)
{
    const void *at = (const char *)t->options + option->at;
    saved made = {0};
    if (type_of(option) != TEXT)
        memcpy(&made, at, sizeof(int64_t));
    else if (strcmp(option->name, "data") == 0)
        snprintf(made.text, sizeof made.text, "%s", t->task->data_name);
    else
        app_option_print(option, at, made.text, sizeof made.text);
    return made;
}

static int list_value(tutti_checkpoint *list, const app_option *option, saved *value)
{
    if (type_of(option) == TEXT)
        return app_check(
            tutti_checkpoint_add_text(list, option->key, value->text, sizeof value->text));
    if (type_of(option) == REAL)
        return app_check(tutti_checkpoint_add_real(list, option->key, &value->real));
    return app_check(tutti_checkpoint_add_int(list, option->key, &value->whole));
}

static int list_config(tutti_checkpoint *list, saved *config)
{
    for (int i = 0; i < train_command.count; i++) {
        const app_option *option = &train_command.options[i];
        if (option->key && !(option->mark & TRAIN_UNLESS_0))
            APP_TRY(list_value(list, option, &config[i]));
    }
    return APP_OK;
}

/* Whether FILE has a value.  Collective: all ranks learn the same. */
static int find_value(const trainer *t, const app_option *option, bool *found)
{
    tutti_checkpoint *probe = NULL;
    saved value;
    int code = app_check(tutti_checkpoint_create(t->ctx, t->comm, &probe));
    if (code == APP_OK) code = list_value(probe, option, &value);
    code = app_group_agree(t->group, code);
    /* whatever else is wrong with the file shows when the whole of it is read */
    if (code == APP_OK)
        *found =
            tutti_checkpoint_load(probe, t->options->checkpoint,
                                  TUTTI_CHECKPOINT_VALUES | TUTTI_CHECKPOINT_SUBSET) == TUTTI_OK;
    tutti_checkpoint_destroy(&probe);
    return code;
}

/* The first word's number is 0. */
static bool is_zero(const trainer *t, const app_option *option)
{
    if (option->kind != APP_WORD) return value_of(t, option).whole == 0;
    return strcmp(value_of(t, option).text, option->words[0]) == 0;
}

/* Lists the options that a file may lack: before FILE is read those that it has, or if there is
 * none to read, those that are not 0; afterwards those that are not 0 and not listed yet. */
static int list_optional(trainer *t, bool reads)
{
    run_file *file = t->file;
    for (int i = 0; i < train_command.count; i++) {
        const app_option *option = &train_command.options[i];
        if (!(option->mark & TRAIN_UNLESS_0) || file->listed[i]) continue;
        file->listed[i] = !is_zero(t, option);
        if (reads) APP_TRY(find_value(t, option, &file->listed[i]));
        if (file->listed[i])
            APP_TRY(list_value(file->list, option, &file->config[i]));
        else if (option->kind == APP_WORD)
            snprintf(file->config[i].text, sizeof file->config[i].text, "%s", option->words[0]);
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

/* Lists the values; the tensors are added once they exist. */
static int create_list(trainer *t)
{
    t->file = calloc(1, sizeof *t->file);
    if (!t->file) return app_fail(APP_FAILED, "no memory for the checkpoint's list");
    APP_CHECK(tutti_checkpoint_create(t->ctx, t->comm, &t->file->list));
    APP_TRY(list_config(t->file->list, t->file->config));
    return list_state(t->file->list, t->file, &t->history);
}

static int list_tensors(tutti_checkpoint *list, trainer *t)
{
    APP_CHECK(tutti_checkpoint_add_params(list, t->params));
    tutti_state_tensor states[OPTIMIZER_STATES_MAX];
    int count;
    APP_TRY(optimizer_states(&t->optimizer, states, &count));
    for (int i = 0; i < count; i++)
        APP_CHECK(tutti_checkpoint_add_state(list, t->params, &states[i]));
    return APP_OK;
}

static void print_value(const app_option *option, const saved *value, char *text, size_t size)
{
    if (type_of(option) == TEXT)
        snprintf(text, size, "%s", value->text);
    else
        app_option_print(option, value, text, size);
}

/* Refuses to resume a different run; prints the differences that are allowed. */
static int compare(const trainer *t, const saved *file)
{
    char was[128], is[128], name[64];
    for (int i = 0; i < train_command.count; i++) {
        const app_option *option = &train_command.options[i];
        if (!option->key) continue;
        const saved mine = value_of(t, option);
        if (type_of(option) == TEXT ? strcmp(file[i].text, mine.text) == 0
                                    : file[i].whole == mine.whole)
            continue;
        print_value(option, &file[i], was, sizeof was);
        print_value(option, &mine, is, sizeof is);
        snprintf(name, sizeof name, "%s%s", strcmp(option->name, "data") == 0 ? "" : "--",
                 option->name);
        const int change = option->mark & TRAIN_SAVED;
        if (change == TRAIN_FIXED)
            return app_fail(APP_USAGE, "%s was saved with %s %s; this run uses %s",
                            t->options->checkpoint, name, was, is);
        if (t->options->evaluate) continue;
        if (change == TRAIN_REPORTED) app_say("resume: %s was %s and is now %s", name, was, is);
        if (change == TRAIN_LENGTH)
            app_say("resume: the run was %s epochs long and is now %s: the learning rate follows "
                    "the new length from here on",
                    was, is);
    }
    return APP_OK;
}

/* Refuses a state that this run cannot reach, from a damaged or a foreign file. */
static int check_state(const trainer *t, const run_state *s)
{
    const bool fresh = s->step == 0 && s->epoch == 0 && s->epoch_step == 0;
    const bool within = s->step > 0 && s->epoch > 0 && s->epoch_step > 0 &&
                        s->epoch_step <= t->steps && s->epoch - 1 <= s->step / t->steps &&
                        s->step == (s->epoch - 1) * t->steps + s->epoch_step;
    if (!(fresh || within) || s->evaluated < 0 || s->evaluated > s->epoch || s->skipped < 0 ||
        !(s->scale.value > 0.0) || !isfinite(s->scale.value) || s->scale.good < 0)
        return app_fail(APP_FAILED,
                        "%s: step %lld, epoch %lld, step %lld of it: impossible in a run with "
                        "%lld steps an epoch",
                        t->options->checkpoint, (long long)s->step, (long long)s->epoch,
                        (long long)s->epoch_step, (long long)t->steps);
    if (s->step > t->total && !t->options->evaluate)
        return app_fail(APP_USAGE,
                        "--epochs is %lld, which is %lld steps, but the run in %s has made %lld",
                        (long long)t->options->epochs, (long long)t->total, t->options->checkpoint,
                        (long long)s->step);
    return APP_OK;
}

/* FILE must be a regular file or not exist.  For rank 0. */
static int check_path(const trainer *t)
{
    const char *path = t->options->checkpoint;
    struct stat there;
    const bool found = stat(path, &there) == 0;
    if ((found && !S_ISREG(there.st_mode)) || path[strlen(path) - 1] == '/')
        return app_fail(APP_FAILED, "%s: is not a regular file", path);
    return APP_OK;
}

/* Makes the file this run's own and checks that the list can be saved, before hours of training.
 * Collective. */
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

/* Whether to resume from FILE, which no other run writes by now.  For rank 0. */
static bool decide_resume(const trainer *t)
{
    const train_options *o = t->options;
    struct stat there;
    const bool found = stat(o->checkpoint, &there) == 0, absent = !found && errno == ENOENT;
    if (found && !o->resume)
        app_warn("%s exists and will be replaced; --resume continues from it", o->checkpoint);
    return o->resume && !(absent && o->resume == TRAIN_RESUME_AUTO && !o->evaluate);
}

/* Reads the values of FILE and refuses a run that does not match.  Collective. */
static int load_values(trainer *t)
{
    run_file *file = t->file;
    APP_TRY(app_group_agree(t->group,
                            app_check(tutti_checkpoint_load(file->list, t->options->checkpoint,
                                                            TUTTI_CHECKPOINT_VALUES))));
    int code = compare(t, file->config);
    if (code == APP_OK) code = check_state(t, &file->state);
    return app_group_agree(t->group, code);
}

int checkpoint_open(trainer *t)
{
    app_group *group = t->group;
    int32_t resume = 0;
    if (!t->options->checkpoint) return APP_OK;
    int code = create_list(t);
    if (code == APP_OK && group->rank == 0) code = check_path(t);
    APP_TRY(app_group_agree(group, code));
    APP_TRY(own(t));
    if (group->rank == 0) resume = decide_resume(t);
    APP_TRY(app_group_agree(group, app_check(tutti_comm_broadcast(group->control, group->host,
                                                                  &resume, 1, TUTTI_I32, 0))));
    t->resumed = resume;
    APP_TRY(app_group_agree(group, list_optional(t, t->resumed)));
    return t->resumed ? load_values(t) : APP_OK;
}

int checkpoint_load(trainer *t)
{
    run_file *file = t->file;
    if (!file) return APP_OK;
    APP_TRY(app_group_agree(t->group, list_tensors(file->list, t)));
    APP_TRY(own(t)); /* again: with the tensors the file may be too large */
    if (!t->resumed) return APP_OK;
    int code = app_check(tutti_checkpoint_load(file->list, t->options->checkpoint, 0));
    /* with --evaluate, a training run may have replaced the file since checkpoint_open */
    if (code == APP_OK) code = check_state(t, &file->state);
    if (code == APP_OK) t->state = file->state;
    if (code == APP_OK) code = list_optional(t, false);
    return app_group_agree(t->group, code);
}

int checkpoint_save(trainer *t)
{
    run_file *file = t->file;
    if (!file || !t->changed) return APP_OK;
    const double begin = app_now();
    for (int i = 0; i < train_command.count; i++)
        if (train_command.options[i].key) file->config[i] = value_of(t, &train_command.options[i]);
    file->state = t->state;
    file->samples_seen = t->state.step * t->options->batch;
    APP_TRY(app_group_agree(t->group, FAULT_HERE("save", t->group->rank)));
    APP_TRY(app_group_agree(t->group,
                            app_check(tutti_checkpoint_save(file->list, t->options->checkpoint,
                                                            (int)t->options->keep))));
    t->changed = false;
    const log_place place = trainer_place(t);
    return app_group_agree(t->group, log_saved(&t->log, &place, app_now() - begin));
}

void checkpoint_close(trainer *t)
{
    signals_remove(NULL);
    if (t->file) tutti_checkpoint_destroy(&t->file->list);
    free(t->file);
    t->file = NULL;
}
