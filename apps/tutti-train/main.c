/* tutti-train: trains a model with Tutti's layers, on one or several ranks. */
#include <stdio.h>

#include "common/exit_code.h"
#include "common/files.h"
#include "common/group.h"
#include "common/report.h"
#include "common/signals.h"
#include "faults.h"
#include "options.h"
#include "task.h"
#include "train.h"

static void print_version(void)
{
    app_say("tutti-train %s", tutti_version());
    app_say_lines(tutti_build_info());
}

/* All that a save makes or replaces. */
static void list_checkpoint(const train_options *o, app_files *files)
{
    app_files_writes(files, "--checkpoint", o->checkpoint, "");
    app_files_writes(files, "--checkpoint", o->checkpoint, ".tmp");
    app_files_writes(files, "--checkpoint", o->checkpoint, ".lck");
    for (int older = 1; older <= o->keep; older++) {
        char ending[16];
        snprintf(ending, sizeof ending, ".%d", older);
        app_files_writes(files, "--checkpoint", o->checkpoint, ending);
    }
}

/* Rank 0 writes the files, so it looks whether one of them has a second purpose. */
static int check_files(const train_options *o)
{
    app_files *files = app_files_create();
    o->task->list_files(o, files);
    app_files_writes(files, "--losses", o->losses, "");
    app_files_writes(files, "--log-json", o->log_json, "");
    app_files_writes(files, "--plot", o->plot, "");
    if (o->evaluate)
        app_files_reads(files, o->checkpoint);
    else
        list_checkpoint(o, files);
    return app_files_check(files);
}

/* All that happens between start and leave; the code that the ranks agreed on. */
static int run(const train_options *options, app_group *group)
{
    trainer trainer;
    APP_TRY(app_group_agree(group, group->rank == 0 ? check_files(options) : APP_OK));
    const bool saves = options->checkpoint && !options->evaluate;
    signals_keep_files(!options->dry_run &&
                       (saves || options->losses || options->log_json || options->plot));
    int code = trainer_create(&trainer, options, group);
    if (code == APP_OK) trainer_describe(&trainer);
    if (code == APP_OK && options->dry_run)
        app_say("dry run: nothing was trained");
    else if (code == APP_OK)
        code = options->evaluate ? train_evaluate(&trainer) : train_run(&trainer);
    code = app_group_agree(group, code);
    trainer_destroy(&trainer);
    return code;
}

int main(int argc, char **argv)
{
    train_options options;
    app_group group;
    signals_watch(); /* a launcher may send one as early as this */
    (void)FAULT_HERE("start", app_launcher_rank());
    const bool speaks = app_launcher_rank() == 0;
    int code = train_options_parse(&options, argc, argv, !speaks);
    /* argp has said on rank 0 what is wrong there */
    if (code != APP_OK && speaks) app_fail(code, "%s", "");

    const bool need_mpi =
        options.transport == TUTTI_TRANSPORT_MPI || options.transport == TUTTI_TRANSPORT_NCCL;
    const int start =
        app_group_start(&group, "tutti-train", &argc, &argv, options.timeout, need_mpi);
    if (start != APP_OK) return app_group_leave(&group, start);

    code = app_group_agree(&group, code);
    if (code == APP_OK && (options.help || options.usage)) {
        signals_leave_at_once();
        if (group.rank == 0) train_options_help(!options.help);
    } else if (code == APP_OK && options.version) {
        print_version();
    } else if (code == APP_OK) {
        code = run(&options, &group);
    }
    if (code == APP_OK) code = app_said();
    code = app_group_agree(&group, code);
    if (code == APP_PREEMPTED) {
        signals_heeded();
        app_say("%s", app_failure());
    }
    code = app_group_leave(&group, code);
    (void)FAULT_HERE("left", group.rank);
    return code;
}
