/* tutti-validate: checks the layers against reference cases, on one or several ranks. */
#include "common/exit_code.h"
#include "common/files.h"
#include "common/program.h"
#include "common/signals.h"
#include "validate.h"

/* Checks that no file has two purposes.  For rank 0, which writes them. */
static int check_files(const validate_options *o)
{
    app_files *files = app_files_create();
    for (int i = 0; i < o->common.arg_count; i++) app_files_reads(files, o->common.args[i]);
    app_files_reads(files, o->checkpoint);
    app_files_writes(files, "--json", o->json, "");
    app_files_writes(files, "--junit", o->junit, "");
    app_files_writes(files, "--emit", o->emit, "");
    app_files_writes(files, "--emit", o->emit, ".tmp");
    app_files_writes(files, "--record", o->record, "");
    app_files_writes(files, "--record", o->record, ".tmp");
    return app_files_check(files);
}

int validate_main(void *options, app_group *group)
{
    const validate_options *o = options;
    APP_TRY(app_group_agree(group, group->rank == 0 ? check_files(o) : APP_OK));
    signals_keep_files(o->json || o->junit || o->emit || o->record);
    return validate(o, group);
}

int main(int argc, char **argv)
{
    signals_install();
    return app_main(&validate_command, argc, argv);
}
