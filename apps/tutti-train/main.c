/* tutti-train: trains a model with Tutti's layers, on one or several ranks. */
#include <stdio.h>

#include "common/exit_code.h"
#include "common/group.h"
#include "common/report.h"
#include "faults.h"
#include "options.h"
#include "signals.h"
#include "train.h"

static void print_version(void)
{
    app_say("tutti-train %s", tutti_version());
    app_say_lines(tutti_build_info());
}

/* All that happens between start and leave; the code that the ranks agreed on. */
static int run(const train_options *options, app_group *group)
{
    trainer trainer;
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
    const bool speaks = app_launcher_rank() == 0;
    signals_watch(); /* a launcher may send one as early as this */
    (void)FAULT_HERE("start", app_launcher_rank());
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
        if (group.rank == 0) train_options_help(!options.help);
    } else if (code == APP_OK && options.version) {
        print_version();
    } else if (code == APP_OK) {
        code = run(&options, &group);
    }
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == APP_OK)
        code = app_fail(APP_FAILED, "standard output cannot be written");
    code = app_group_agree(&group, code);
    if (code == APP_PREEMPTED) {
        signals_heeded();
        app_say("%s", app_failure());
    }
    code = app_group_leave(&group, code);
    (void)FAULT_HERE("left", group.rank);
    return code;
}
