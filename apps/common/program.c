/* The programs' common main. */
#include "common/program.h"

#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "common/signals.h"

static int run(const app_command *command, void *options, app_group *group)
{
    const app_common *asked = options;
    if (asked->help || asked->usage) {
        signals_leave_at_once();
        if (group->rank == 0) app_options_help(command, !asked->help);
    } else if (asked->version) {
        app_say("%s %s", command->program, tutti_version());
        app_say_lines(tutti_build_info());
    } else {
        return command->run(options, group);
    }
    return APP_OK;
}

static int run_together(const app_command *command, void *options, app_group *group, int code)
{
    code = app_group_agree(group, code);
    if (code == APP_OK) code = run(command, options, group);
    if (code == APP_OK) code = app_said();
    code = app_group_agree(group, code);
    if (code == APP_PREEMPTED) {
        signals_handled();
        app_say("%s", app_failure());
    }
    return code;
}

int app_main(const app_command *command, int argc, char **argv)
{
    app_group group;
    app_common *options = malloc(command->size);
    if (!options) {
        app_complain("no memory for the options");
        return APP_FAILED;
    }
    const bool speaks = app_launcher_rank() == 0;
    int code = app_options_parse(command, options, argc, argv, !speaks);
    /* argp has already printed rank 0's error */
    if (code != APP_OK && speaks) app_fail(code, "%s", "");
    const bool need_mpi =
        options->transport == TUTTI_TRANSPORT_MPI || options->transport == TUTTI_TRANSPORT_NCCL;
    const int start =
        app_group_start(&group, command->program, &argc, &argv, options->timeout, need_mpi);
    code = start == APP_OK ? run_together(command, options, &group, code) : start;
    free(options);
    return app_group_leave(&group, code);
}
