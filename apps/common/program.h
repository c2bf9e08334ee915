/* What the programs' mains have in common. */
#ifndef TUTTI_APPS_PROGRAM_H
#define TUTTI_APPS_PROGRAM_H

#include "common/group.h"
#include "common/options.h"

/* Reads the command line, starts the ranks, runs the command or says what --help, --usage or
 * --version ask for, and leaves with all ranks: the code that main returns.  signals_watch comes
 * before. */
int app_main(const app_command *command, int argc, char **argv);

#endif
