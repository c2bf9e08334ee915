/* tutti-validate: checks the layers against reference cases, on one or several ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "validate.h"

static void print_version(void)
{
    app_say("tutti-validate %s", tutti_version());
    app_say_lines(tutti_build_info());
}

int main(int argc, char **argv)
{
    validate_options options;
    app_group group;
    const bool speaks = app_launcher_rank() == 0;
    app_fail(APP_USAGE, "the command line is wrong");
    int code = validate_options_parse(&options, argc, argv, !speaks);
    /* argp has said on rank 0 what is wrong there */
    if (code != APP_OK && speaks) app_fail(code, "%s", "");
    const bool need_mpi =
        options.transport == TUTTI_TRANSPORT_MPI || options.transport == TUTTI_TRANSPORT_NCCL;
    const int start =
        app_group_start(&group, "tutti-validate", &argc, &argv, options.timeout, need_mpi);
    if (start == APP_OK) {
        code = app_group_agree(&group, code);
        if (code == APP_OK && options.help) {
            if (group.rank == 0) validate_options_help();
        } else if (code == APP_OK && options.version) {
            print_version();
        } else if (code == APP_OK) {
            code = validate(&options, &group);
        }
        if ((fflush(stdout) != 0 || ferror(stdout)) && code == APP_OK)
            code = app_fail(APP_FAILED, "standard output cannot be written");
        code = app_group_agree(&group, code);
    } else
        code = start;
    free(options.files);
    return app_group_leave(&group, code);
}
