/* Signals that ask a program to stop or would end it. */
#include "common/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/report.h"

static volatile sig_atomic_t seen, at_once, handled;
static struct timespec seen_at;
static char left_over[PATH_MAX];
static volatile sig_atomic_t has_left_over;

/* A launcher may pass on a signal that its sender sent to this process too: one request. */
static const double same_request_seconds = 0.1;

static void say(const char *text)
{
    const ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void remove_left_over(void)
{
    if (has_left_over) unlink(left_over);
}

static _Noreturn void leave(int code, const char *text)
{
    if (text) say(program_invocation_short_name);
    if (text) say(text);
    remove_left_over();
    _exit(code);
}

static _Noreturn void leave_preempted(const char *text)
{
    leave(APP_PREEMPTED, handled ? NULL : text);
}

static void on_abort(int number)
{
    (void)number;
    leave(APP_FAILED, ": aborted by SIGABRT\n");
}

/* SA_RESETHAND is set, so the raised signal ends the process when this returns. */
static void on_pipe(int number)
{
    remove_left_over();
    raise(number);
}

static void on_signal(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!seen) {
        seen_at = now;
        seen = number;
        if (at_once) leave_preempted(": stopped by a signal: left at once\n");
        return;
    }
    const double seconds =
        (double)(now.tv_sec - seen_at.tv_sec) + 1e-9 * (double)(now.tv_nsec - seen_at.tv_nsec);
    if (seconds < same_request_seconds) return;
    leave_preempted(at_once ? ": a second signal: left at once\n"
                            : ": a second signal: left at once, nothing was saved\n");
}

/* A closed one's number would go to the next file opened, and lines would be written to that. */
static void fill_standard_files(void)
{
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != file)
            _exit(APP_FAILED); /* there is nowhere to report it */
}

void signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    /* one handler at a time */
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGUSR1);
    /* a file that grows past the limit is an error of its write, like a full disk */
    signal(SIGXFSZ, SIG_IGN);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = on_abort;
    sigaction(SIGABRT, &action, NULL);
    /* without SIGABRT, as Open MPI would warn at length that it has a handler */
    setenv("OMPI_MCA_opal_signal", "7,8,11", 0);
    fill_standard_files();
}

void signals_keep_files(bool keeps)
{
    struct sigaction action = {.sa_handler = keeps ? SIG_IGN : on_pipe, .sa_flags = SA_RESETHAND};
    sigaction(SIGPIPE, &action, NULL);
}

void signals_leave_at_once(void)
{
    at_once = 1;
}

void signals_remove(const char *name)
{
    has_left_over = 0;
    if (!name) return;
    snprintf(left_over, sizeof left_over, "%s", name);
    has_left_over = 1;
}

void signals_handled(void)
{
    handled = 1;
}

int signals_seen(void)
{
    return seen;
}

int signals_check(const char *what)
{
    if (!seen) return APP_OK;
    return app_fail(APP_PREEMPTED, "stopped by SIG%s before %s", sigabbrev_np(seen), what);
}
