/* Lines about the run and, on a terminal, a bar under them.  Rank 0 only; nothing elsewhere. */
#ifndef TUTTI_TRAIN_PROGRESS_H
#define TUTTI_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

typedef struct progress {
    train_progress kind;
    bool root;
    double drawn; /* when the bar was last drawn */
} progress;

/* A line about a step; --progress=none leaves these out. */
void progress_step(progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A line that is always printed. */
void progress_line(progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Redraws the bar, at most ten times a second. */
void progress_bar(progress *progress, int64_t done, int64_t total);
/* Erases the bar, so that the next line starts on its own. */
void progress_end(const progress *progress);

#endif
