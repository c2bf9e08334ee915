/* tutti-validate: checks the layers against reference cases, on one or several ranks. */
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/files.h"
#include "common/signals.h"
#include "validate.h"

static void print_version(void)
{
    app_say("tutti-validate %s", tutti_version());
    app_say_lines(tutti_build_info());
}

/* Rank 0 writes the files, so it looks whether one of them has a second purpose. */
static int check_files(const validate_options *o)
{
    app_files *files = app_files_create();
    for (int i = 0; i < o->file_count; i++) app_files_reads(files, o->files[i]);
    app_files_reads(files, o->checkpoint);
    app_files_writes(files, "--json", o->json, "");
    app_files_writes(files, "--junit", o->junit, "");
    app_files_writes(files, "--emit", o->emit, "");
    app_files_writes(files, "--emit", o->emit, ".tmp");
    app_files_writes(files, "--record", o->record, "");
    app_files_writes(files, "--record", o->record, ".tmp");
    return app_files_check(files);
}

static int run(const validate_options *o, app_group *group)
{
    APP_TRY(app_group_agree(group, group->rank == 0 ? check_files(o) : APP_OK));
    signals_keep_files(o->json || o->junit || o->emit || o->record);
    return validate(o, group);
}

int main(int argc, char **argv)
{
    validate_options options;
    app_group group;
    signals_watch();
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
            signals_leave_at_once();
            if (group.rank == 0) validate_options_help();
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
    } else
        code = start;
    free(options.files);
    return app_group_leave(&group, code);
}
