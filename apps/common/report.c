/* What a program says. */
#include "common/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/exit_code.h"

static const char *program = "tutti";
static int this_rank, ranks = 1;

static char failure[APP_MESSAGE_MAX];
static bool failure_is_comm;

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
    /* a rank's stdout is a pipe, and a line must be there when the rank is killed after it */
    setvbuf(stdout, NULL, _IOLBF, 0);
    tutti_set_log(from_library, NULL, TUTTI_LOG_WARN);
}

void app_say(const char *format, ...)
{
    if (this_rank != 0) return;
    char *text = NULL;
    va_list args;
    va_start(args, format);
    const int length = vasprintf(&text, format, args);
    va_end(args);
    puts(length < 0 ? "no memory for a line" : tutti_text_clean(text));
    if (length >= 0) free(text);
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

/* In one write, so that the lines of several ranks do not mix. */
static void to_stderr(const char *prefix, const char *format, va_list args)
{
    char text[APP_MESSAGE_MAX];
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
