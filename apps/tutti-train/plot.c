/* --plot: gnuplot reads a script on its standard input and writes the file on its standard output.  No
 * shell, and no text of the user's in the script. */
#include "plot.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/output.h"
#include "common/report.h"

extern char **environ;

/* Runs gnuplot with these files as standard input and output and waits for it. */
static int run_gnuplot(int input, int output, const char *argument)
{
    char *command[] = {(char *)"gnuplot", (char *)argument, NULL};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    pid_t child;
    const int error = posix_spawnp(&child, command[0], &files, NULL, command, environ);
    posix_spawn_file_actions_destroy(&files);
    if (error == ENOENT)
        return app_fail(APP_FAILED,
                        "--plot wants gnuplot, which is not on PATH; Debian's package is "
                        "gnuplot-nox");
    if (error) return app_fail(APP_FAILED, "gnuplot cannot be started: %s", strerror(error));
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return app_fail(APP_FAILED, "gnuplot is lost: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return app_fail(APP_FAILED, "gnuplot failed (%s %d)",
                        WIFEXITED(status) ? "exit code" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return APP_OK;
}

int plot_check(const char *path)
{
    APP_TRY(app_output_check(path));
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0) return app_fail(APP_FAILED, "/dev/null: %s", strerror(errno));
    const int code = run_gnuplot(nothing, nothing, "--version");
    close(nothing);
    return code;
}

/* One curve as inline data; how many points it has. */
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

int plot_draw(const char *path, const history *history, const char *name)
{
    FILE *script = tmpfile();
    if (!script) return app_fail(APP_FAILED, "no temporary file: %s", strerror(errno));
    write_script(script, history, name);
    int output = -1, code = APP_OK;
    if (fflush(script) != 0 || lseek(fileno(script), 0, SEEK_SET) != 0)
        code = app_fail(APP_FAILED, "a temporary file cannot be written: %s", strerror(errno));
    if (code == APP_OK) {
        output = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (output < 0)
            code = app_fail(APP_FAILED, "%s: cannot be written: %s", path, strerror(errno));
    }
    if (code == APP_OK) code = run_gnuplot(fileno(script), output, "-");
    if (output >= 0) close(output);
    fclose(script);
    return code;
}
