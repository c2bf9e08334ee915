/* Signals and standard files. */
#ifndef TUTTI_APPS_SIGNALS_H
#define TUTTI_APPS_SIGNALS_H

#include <stdbool.h>

/* The first call of main.  A closed standard file is opened on /dev/null, so that no file opened
 * later gets its number.  SIGTERM, SIGINT and SIGUSR1 are noted from now on; a second one leaves at
 * once with APP_PREEMPTED, and nothing is saved.  SIGABRT leaves with APP_FAILED.  SIGXFSZ is
 * ignored. */
void signals_install(void);

/* Whether the program has files to write: then it continues without its lines when their reader
 * goes away.  Otherwise SIGPIPE ends it, as usual. */
void signals_keep_files(bool keeps);

/* There is nothing to finish or to save: from now on the first signal leaves at once too. */
void signals_leave_at_once(void);

/* Leaving at once, also by SIGABRT or SIGPIPE, removes this file from now on; NULL: none. */
void signals_remove(const char *name);

/* The program has stopped in order: a further signal, which mpirun sends to the ranks that leave
 * last, prints nothing. */
void signals_handled(void);

/* The signal that was noted, or 0. */
int signals_seen(void);

/* APP_PREEMPTED, "stopped by SIG… before `what`", if one was noted; APP_OK otherwise. */
int signals_check(const char *what);

#endif
