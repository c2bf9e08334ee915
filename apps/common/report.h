/* A program's output: lines for the user, warnings, and the failure on its way to main. */
#ifndef TUTTI_APPS_REPORT_H
#define TUTTI_APPS_REPORT_H

#include <stdbool.h>

#include "tutti/tutti.h"

#define APP_MESSAGE_MAX 1024

/* Names the program and this rank; routes the library's warnings to stderr. */
void app_report_start(const char *program, int rank, int world_size);

/* How long the program waits for a reader of its output, in seconds; 60 by default. */
void app_set_patience(double seconds);
double app_patience(void);

/* Waits until a pipe or a terminal is writable.  false: it was not for app_patience() seconds, or
 * for a second after a signal (signals_seen). */
bool app_wait_writable(int file);

/* All lines are cleaned (tutti_text_clean), as names and texts in them may come from anywhere. */

/* One line on rank 0's stdout, flushed.  Nothing on the other ranks.  When the reader has gone or
 * stopped reading, the lines stop, with a warning. */
void app_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A text of several lines; app_say cleans line breaks away. */
void app_say_lines(const char *text);
/* As app_say, but neither cleaned nor a whole line: for drawing on a terminal. */
void app_draw(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* APP_FAILED if some output was not written, unless its reader has gone. */
int app_said(void);

/* One line on rank 0's stderr, after the program's name. */
void app_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same on this rank's stderr, for what only this rank knows. */
void app_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A failure is an exit code, passed up to main, and a message kept here, written where the error
 * arises.  Both functions return the code. */
int app_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The library's own message, with the code APP_FAILED; 0 for TUTTI_OK. */
int app_check(tutti_status status);

/* The last failure's message. */
const char *app_failure(void);
/* A communicator reported the last failure: the other ranks may be out of reach. */
bool app_failure_is_comm(void);

/* Passes a failure on. */
#define APP_TRY(call)                 \
    do {                              \
        int code_ = (call);           \
        if (code_ != 0) return code_; \
    } while (0)
/* The same for a call of the library. */
#define APP_CHECK(call) APP_TRY(app_check(call))

/* Monotonic clock, in seconds. */
double app_now(void);

#endif
