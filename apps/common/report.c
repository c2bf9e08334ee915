/* A program's output. */
#include "common/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/signals.h"

static const char *program = "tutti";
static int this_rank, ranks = 1;

static char failure[APP_MESSAGE_MAX];
static bool failure_is_comm;

static double patience = 60.0;
static bool stderr_stuck;  /* its reader has stopped reading: nothing more is written */
static bool lines_missing; /* on standard output, though its reader has not gone */

static void from_library(void *user, tutti_log_level level, const char *message)
{
    (void)user;
    (void)level;
    app_complain("%s", message);
}

void app_report_start(const char *name, int rank, int world_size)
{
    program = name;
    this_rank = rank;
    ranks = world_size;
    /* a rank's stdout is a pipe, and its lines must survive the rank being killed */
    setvbuf(stdout, NULL, _IOLBF, 0);
    tutti_set_log(from_library, NULL, TUTTI_LOG_WARN);
}

void app_set_patience(double seconds)
{
    patience = seconds;
}

double app_patience(void)
{
    return patience;
}

bool app_wait_writable(int file)
{
    /* after a signal, a slow reader still gets a second */
    const double after_signal = 1.0, slice = 0.1;
    double end = app_now() + patience;
    for (bool hurried = false;;) {
        const double now = app_now();
        if (!hurried && signals_seen()) {
            hurried = true;
            if (end > now + after_signal) end = now + after_signal;
        }
        const double left = end - now < slice ? end - now : slice;
        struct pollfd wait = {.fd = file, .events = POLLOUT};
        const int ready = poll(&wait, 1, left > 0.0 ? (int)(1e3 * left) + 1 : 0);
        if (ready > 0 || (ready < 0 && errno != EINTR)) return true; /* the write reports errors */
        if (left <= 0.0) return false;
    }
}

/* Stops writing to standard output. */
static void give_up_lines(const char *why)
{
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDOUT_FILENO);
    if (nothing >= 0) close(nothing);
    app_warn("standard output: its reader %s: no more lines are written", why);
}

/* Writes a text to standard output, in pieces that fit a pipe that is ready.  Not by stdio, which
 * ignores an error and continues. */
static void put(const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        if (!app_wait_writable(STDOUT_FILENO)) {
            lines_missing = true;
            give_up_lines("has stopped reading");
            return;
        }
        const ssize_t written = write(STDOUT_FILENO, text, left < PIPE_BUF ? left : PIPE_BUF);
        if (written > 0) {
            text += written;
            left -= (size_t)written;
        } else if (errno == EPIPE) {
            give_up_lines("has gone");
            return;
        } else if (errno != EINTR && errno != EAGAIN) {
            lines_missing = true;
            return;
        }
    }
}

static void print(bool is_line, const char *format, va_list args)
{
    char *text = NULL, *line = NULL;
    if (vasprintf(&text, format, args) < 0) text = NULL;
    if (text && is_line && asprintf(&line, "%s\n", tutti_text_clean(text)) < 0) line = NULL;
    const char *all = is_line ? line : text;
    if (all)
        put(all);
    else
        lines_missing = true;
    free(text);
    free(line);
}

void app_say(const char *format, ...)
{
    if (this_rank != 0) return;
    va_list args;
    va_start(args, format);
    print(true, format, args);
    va_end(args);
}

void app_say_lines(const char *text)
{
    for (;; text++) {
        const size_t length = strcspn(text, "\n");
        app_say("%.*s", (int)length, text);
        text += length;
        if (!*text) return;
    }
}

void app_draw(const char *format, ...)
{
    if (this_rank != 0) return;
    va_list args;
    va_start(args, format);
    print(false, format, args);
    va_end(args);
}

int app_said(void)
{
    if (fflush(stdout) != 0 || ferror(stdout) || lines_missing)
        return app_fail(APP_FAILED, "standard output cannot be written");
    return APP_OK;
}

/* One write a line, so that the lines of several ranks do not mix. */
static void to_stderr(const char *prefix, const char *format, va_list args)
{
    char text[APP_MESSAGE_MAX];
    if (!stderr_stuck) stderr_stuck = !app_wait_writable(STDERR_FILENO);
    if (stderr_stuck) return;
    vsnprintf(text, sizeof text, format, args);
    fprintf(stderr, "%s: %s%s\n", program, prefix, tutti_text_clean(text));
    fflush(stderr);
}

void app_warn(const char *format, ...)
{
    if (this_rank != 0) return;
    va_list args;
    va_start(args, format);
    to_stderr("", format, args);
    va_end(args);
}

void app_complain(const char *format, ...)
{
    char prefix[32] = "";
    if (ranks > 1) snprintf(prefix, sizeof prefix, "rank %d: ", this_rank);
    va_list args;
    va_start(args, format);
    to_stderr(prefix, format, args);
    va_end(args);
}

int app_fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(failure, sizeof failure, format, args);
    va_end(args);
    tutti_text_clean(failure);
    failure_is_comm = false;
    return code;
}

int app_check(tutti_status status)
{
    if (status == TUTTI_OK) return APP_OK;
    const char *message = tutti_last_error();
    app_fail(APP_FAILED, "%s", message[0] ? message : tutti_status_string(status));
    failure_is_comm = status == TUTTI_ERR_COMM;
    return APP_FAILED;
}

const char *app_failure(void)
{
    return failure;
}

bool app_failure_is_comm(void)
{
    return failure_is_comm;
}

double app_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
