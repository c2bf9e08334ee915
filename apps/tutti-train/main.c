/* tutti-train: trains a model with Tutti's layers, on one or several ranks. */
#include <stdio.h>

#include "common/exit_code.h"
#include "common/files.h"
#include "common/program.h"
#include "common/report.h"
#include "common/signals.h"
#include "faults.h"
#include "options.h"
#include "task.h"
#include "train.h"

/* The files that a save creates or replaces. */
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

/* Checks that no file has two purposes.  For rank 0, which writes them. */
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

int train_main(void *options, app_group *group)
{
    const train_options *o = options;
    trainer trainer;
    APP_TRY(app_group_agree(group, group->rank == 0 ? check_files(o) : APP_OK));
    const bool saves = o->checkpoint && !o->evaluate;
    signals_keep_files(!o->dry_run && (saves || o->losses || o->log_json || o->plot));
    int code = trainer_create(&trainer, o, group);
    if (code == APP_OK) trainer_describe(&trainer);
    if (code == APP_OK && o->dry_run)
        app_say("dry run: nothing was trained");
    else if (code == APP_OK)
        code = o->evaluate ? train_evaluate(&trainer) : train_run(&trainer);
    code = app_group_agree(group, code);
    trainer_destroy(&trainer);
    return code;
}

int main(int argc, char **argv)
{
    signals_install(); /* a launcher may send one as early as this */
    (void)FAULT_HERE("start", app_launcher_rank());
    const int code = app_main(&train_command, argc, argv);
    (void)FAULT_HERE("left", app_launcher_rank());
    return code;
}
