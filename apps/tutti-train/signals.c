/* Signals that ask the run to stop. */
#include "signals.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/exit_code.h"

static volatile sig_atomic_t seen, at_once, heeded;
static struct timespec seen_at;
static char left_over[PATH_MAX];
static volatile sig_atomic_t has_left_over;

/* A launcher may pass on a signal that this process had from its sender too: that is one request. */
static const double same_request_seconds = 0.1;

static _Noreturn void leave(const char *text)
{
    const ssize_t ignored = heeded ? 0 : write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
    if (has_left_over) unlink(left_over);
    _exit(APP_PREEMPTED);
}

static void on_signal(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!seen) {
        seen_at = now;
        seen = number;
        if (at_once) leave("tutti-train: stopped by a signal: left at once\n");
        return;
    }
    const double seconds =
        (double)(now.tv_sec - seen_at.tv_sec) + 1e-9 * (double)(now.tv_nsec - seen_at.tv_nsec);
    if (seconds < same_request_seconds) return;
    leave(at_once ? "tutti-train: a second signal: left at once\n"
                  : "tutti-train: a second signal: left at once, nothing was saved\n");
}

void signals_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    /* one at a time */
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGUSR1);
    /* a file that grows past the limit is an error of its write, like a full disk */
    signal(SIGXFSZ, SIG_IGN);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
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

void signals_heeded(void)
{
    heeded = 1;
}

int signals_seen(void)
{
    return seen;
}
