/* --plot: gnuplot reads a script from standard input and writes the file to standard output.  No
 * shell, and no text of the user's in the script. */
#include "plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "common/signals.h"

extern char **environ;

/* Starts gnuplot with these files as standard input and output, in a process group of its own. */
static int start_gnuplot(int input, int output, const char *argument, pid_t *child)
{
    char *command[] = {(char *)"gnuplot", (char *)argument, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t usual;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    const int error = posix_spawnp(child, command[0], &files, &attributes, command, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (error == ENOENT)
        return app_fail(APP_FAILED,
                        "--plot requires gnuplot, which is not on PATH; Debian's package is "
                        "gnuplot-nox");
    if (error) return app_fail(APP_FAILED, "gnuplot cannot be started: %s", strerror(error));
    return APP_OK;
}

/* Waits for it until the deadline, or a few seconds after a signal; then kills it and its
 * children. */
static int await_gnuplot(pid_t child)
{
    const double begin = app_now(), after_signal = 3.0;
    double end = begin + app_patience();
    int status = 0;
    for (bool hurried = false;;) {
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) break;
        if (ended < 0 && errno != EINTR)
            return app_fail(APP_FAILED, "gnuplot is lost: %s", strerror(errno));
        if (!hurried && signals_seen()) {
            hurried = true;
            end = fmin(end, app_now() + after_signal);
        }
        if (app_now() > end) {
            kill(-child, SIGKILL);
            while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
            APP_TRY(signals_check("gnuplot had ended"));
            return app_fail(APP_FAILED, "gnuplot did not end within %.1f s and was killed",
                            end - begin);
        }
        usleep(5000);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return app_fail(APP_FAILED, "gnuplot failed (%s %d)",
                        WIFEXITED(status) ? "exit code" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return APP_OK;
}

static int run_gnuplot(int input, int output, const char *argument)
{
    pid_t child;
    APP_TRY(start_gnuplot(input, output, argument, &child));
    return await_gnuplot(child);
}

int plot_check(void)
{
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0) return app_fail(APP_FAILED, "/dev/null: %s", strerror(errno));
    const int code = run_gnuplot(nothing, nothing, "--version");
    close(nothing);
    return code;
}

/* Writes a curve as inline data; returns its number of points. */
static int64_t write_curve(FILE *script, const history *history, const char *name, int column,
                           double scale)
{
    int64_t points = 0;
    fprintf(script, "$%s << EOD\n", name);
    for (int64_t i = 0; i < history->rows; i++) {
        const double *row = history->values + i * HISTORY_COLS;
        if (!isfinite(row[column])) continue;
        fprintf(script, "%.0f %.9g\n", row[HISTORY_STEP], scale * row[column]);
        points++;
    }
    fputs("EOD\n", script);
    return points;
}

static void write_script(FILE *script, const history *history, const char *name)
{
    const int64_t steps = write_curve(script, history, "loss", HISTORY_LOSS, 1.0);
    const int64_t scores = write_curve(script, history, "evaluated", HISTORY_EVALUATED, 1.0);
    const int64_t accuracies = write_curve(script, history, "accuracy", HISTORY_ACCURACY, 100.0);
    fputs("set terminal svg size 960,540 dynamic background rgb 'white'\n"
          "set grid\nset xrange [0:*]\nset yrange [0:*]\nset key outside below\nset xlabel "
          "'step'\nset ylabel 'loss'\n",
          script);
    if (accuracies)
        fputs("set ytics nomirror\nset y2tics\nset y2range [0:100]\nset y2label 'accuracy, %'\n",
              script);
    if (!steps) {
        fputs("set xrange [0:1]\nset yrange [0:1]\nplot NaN title 'no step yet'\n", script);
        return;
    }
    fputs("plot $loss with lines title 'training loss'", script);
    if (scores) fprintf(script, ", $evaluated with linespoints title '%s loss'", name);
    if (accuracies)
        fprintf(script, ", $accuracy axes x1y2 with linespoints title '%s accuracy'", name);
    fputs("\n", script);
}

int plot_draw(app_output *output, const history *history, const char *name)
{
    FILE *script = tmpfile();
    if (!script) return app_fail(APP_FAILED, "no temporary file: %s", strerror(errno));
    write_script(script, history, name);
    int code = APP_OK;
    if (fflush(script) != 0 || lseek(fileno(script), 0, SEEK_SET) != 0)
        code = app_fail(APP_FAILED, "a temporary file cannot be written: %s", strerror(errno));
    if (code == APP_OK) code = app_output_begin(output, false);
    if (code == APP_OK) code = run_gnuplot(fileno(script), app_output_file(output), "-");
    fclose(script);
    return code;
}
