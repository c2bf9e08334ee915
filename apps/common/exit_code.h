/* Exit codes that all programs share. */
#ifndef TUTTI_APPS_EXIT_CODE_H
#define TUTTI_APPS_EXIT_CODE_H

enum {
    APP_OK = 0,
    APP_MISMATCH = 1,  /* a comparison failed, or a measurement was too slow */
    APP_FAILED = 2,    /* the run could not go on */
    APP_USAGE = 64,    /* the command line is wrong */
    APP_PREEMPTED = 75 /* a signal asked the run to stop, and it did so in order */
};

#endif
