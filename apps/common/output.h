/* Files that a program writes besides standard output.  A file may be a pipe, such as >(jq .): it
 * is opened without waiting for a reader, and a slow reader is waited for as long as
 * app_wait_writable does. */
#ifndef TUTTI_APPS_OUTPUT_H
#define TUTTI_APPS_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct app_output app_output;

/* Checks early that the file can be written: APP_FAILED if not.  An existing file is not changed,
 * and none is left behind.  A pipe stays open, as its reader would take a close for the end.
 * *output is NULL for a NULL path. */
int app_output_open(const char *path, app_output **output);

/* Opens the file, empty or to append to it; ends an incomplete last line first.  Call it once. */
int app_output_begin(app_output *output, bool append);

/* The stream to write to.  A line reaches a pipe whole or not at all. */
FILE *app_output_stream(app_output *output);
/* The descriptor, made blocking, for another process to write to. */
int app_output_file(app_output *output);

/* Flushes what was written; APP_FAILED if that fails. */
int app_output_flush(app_output *output);
/* No more can be written, as a pipe's reader has gone or stopped reading, or a disk is full: no
 * reason to end a run. */
bool app_output_lost(const app_output *output);

/* Flushes and closes; clears the pointer.  NULL is allowed. */
int app_output_close(app_output **output);

#endif
