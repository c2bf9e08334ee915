/* Signals, and what else a program prepares for before anything can go wrong. */
#ifndef TUTTI_APPS_SIGNALS_H
#define TUTTI_APPS_SIGNALS_H

#include <stdbool.h>

/* The first call of main.  What is closed of the standard three becomes /dev/null, so that no file
 * opened later gets its number and the lines said there.  SIGTERM, SIGINT and SIGUSR1 are noted
 * from now on; a second one leaves at once, with APP_PREEMPTED and nothing saved.  SIGABRT leaves
 * with APP_FAILED.  SIGXFSZ is ignored. */
void signals_watch(void);

/* Whether the program has files to write, which are worth more than its lines: then it goes on
 * without these when their reader goes away.  Otherwise it ends there, by SIGPIPE, as Unix tools
 * do. */
void signals_keep_files(bool keeps);

/* There is nothing to finish or to save any more: from now on the first one leaves at once too. */
void signals_leave_at_once(void);

/* Who leaves at once, by SIGABRT or SIGPIPE too, removes this file from now on; NULL: none. */
void signals_remove(const char *name);

/* The program has stopped in order: from now on another one says nothing.  mpirun sends one to the
 * ranks that leave last. */
void signals_heeded(void);

/* The one that was noted, or 0. */
int signals_seen(void);

/* APP_PREEMPTED, "stopped by SIG… before `what`", if one was noted; APP_OK otherwise. */
int signals_check(const char *what);

#endif
