/* Files that a program writes beside its lines.  A file may be a pipe, >(jq .) say: it is opened
 * without waiting for a reader, and one that reads too slowly is waited for as long as
 * app_wait_writable does. */
#ifndef TUTTI_APPS_OUTPUT_H
#define TUTTI_APPS_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct app_output app_output;

/* Says at the start what would only be found out at the end: APP_FAILED if the file cannot be
 * written.  Leaves a file as it is, and none behind.  A pipe is opened here once and for all, as
 * its reader would take a close for the end.  A NULL path is none: *output is NULL then. */
int app_output_open(const char *path, app_output **output);

/* Opens a file, empty or to append to it, after the end of its last line.  Once. */
int app_output_begin(app_output *output, bool append);

/* To write to.  A pipe's line is complete or, if nobody takes it, missing. */
FILE *app_output_stream(app_output *output);
/* The same for another process, which may be made to wait. */
int app_output_file(app_output *output);

/* What was written has left the program: APP_FAILED if it could not. */
int app_output_flush(app_output *output);
/* Its reader has gone, or has taken nothing for too long: that is no reason to end a run. */
bool app_output_lost(const app_output *output);

/* Flushes and closes; clears the pointer.  NULL is allowed. */
int app_output_close(app_output **output);

#endif
