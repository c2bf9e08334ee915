/* The run's losses. */
#include "history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"

int history_create(history *history)
{
    *history = (struct history){0};
    history->values = calloc(HISTORY_ROWS * HISTORY_COLS, sizeof *history->values);
    if (!history->values) return app_fail(APP_FAILED, "no memory for the history");
    return APP_OK;
}

void history_free(history *history)
{
    free(history->values);
    *history = (struct history){0};
}

/* Drops every second row; new rows stay as dense as before. */
static void thin(history *history)
{
    const int64_t kept = history->rows / 2;
    for (int64_t i = 0; i < kept; i++)
        memcpy(history->values + i * HISTORY_COLS, history->values + (2 * i + 1) * HISTORY_COLS,
               HISTORY_COLS * sizeof *history->values);
    history->rows = kept;
}

void history_step(history *history, int64_t step, double loss)
{
    if (history->rows == HISTORY_ROWS) thin(history);
    double *row = history->values + history->rows++ * HISTORY_COLS;
    row[HISTORY_STEP] = (double)step;
    row[HISTORY_LOSS] = loss;
    row[HISTORY_EVALUATED] = row[HISTORY_ACCURACY] = NAN;
}

void history_evaluation(history *history, double loss, double accuracy)
{
    if (history->rows == 0) return;
    double *row = history->values + (history->rows - 1) * HISTORY_COLS;
    row[HISTORY_EVALUATED] = loss;
    row[HISTORY_ACCURACY] = accuracy;
}
