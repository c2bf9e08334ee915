/* Signals that ask the run to stop. */
#ifndef TUTTI_TRAIN_SIGNALS_H
#define TUTTI_TRAIN_SIGNALS_H

/* SIGTERM, SIGINT and SIGUSR1 are noted from now on; a second one leaves at once, with
 * APP_PREEMPTED and nothing saved.  SIGXFSZ is ignored. */
void signals_watch(void);

/* There is nothing to finish or to save any more: from now on the first one leaves at once too. */
void signals_leave_at_once(void);

/* Who leaves at once removes this file from now on; NULL: none. */
void signals_remove(const char *name);

/* The run has stopped in order: from now on another one says nothing.  mpirun sends one to the ranks that leave last. */
void signals_heeded(void);

/* The one that was noted, or 0. */
int signals_seen(void);

#endif
