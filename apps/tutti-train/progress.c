/* Lines and the bar. */
#include "progress.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/report.h"

static void line(progress *progress, const char *format, va_list args)
{
    char text[APP_MESSAGE_MAX];
    vsnprintf(text, sizeof text, format, args);
    /* the line takes the bar's place, which is drawn again below it */
    if (progress->kind == TRAIN_PROGRESS_BAR) app_draw("\r\033[K");
    app_say("%s", text);
    progress->drawn = 0.0;
}

void progress_step(progress *progress, const char *format, ...)
{
    if (progress->kind == TRAIN_PROGRESS_NONE) return;
    va_list args;
    va_start(args, format);
    line(progress, format, args);
    va_end(args);
}

void progress_line(progress *progress, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    line(progress, format, args);
    va_end(args);
}

void progress_bar(progress *progress, int64_t done, int64_t total)
{
    enum { CELLS = 40 };
    if (!progress->root || progress->kind != TRAIN_PROGRESS_BAR) return;
    const double now = app_now();
    if (now - progress->drawn < 0.1) return;
    progress->drawn = now;
    char cells[CELLS + 1];
    for (int i = 0; i < CELLS; i++) cells[i] = i * total < done * CELLS ? '#' : '.';
    cells[CELLS] = '\0';
    app_draw("\r\033[K[%s] %3d %%", cells, (int)(100 * done / total));
}

void progress_end(const progress *progress)
{
    if (progress->drawn == 0.0) return; /* there is no bar */
    app_draw("\r\033[K");
}
