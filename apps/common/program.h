/* The programs' common main. */
#ifndef TUTTI_APPS_PROGRAM_H
#define TUTTI_APPS_PROGRAM_H

#include "common/group.h"
#include "common/options.h"

/* Parses the command line, starts the ranks, runs the command or prints what --help, --usage or
 * --version ask for, and leaves with all ranks.  Returns main's exit code.  Call signals_install
 * first. */
int app_main(const app_command *command, int argc, char **argv);

#endif
