/* The run's losses: a table, kept in the checkpoint and drawn by --plot. */
#ifndef TUTTI_TRAIN_HISTORY_H
#define TUTTI_TRAIN_HISTORY_H

#include <stdint.h>

enum {
    HISTORY_STEP,      /* of the run */
    HISTORY_LOSS,      /* of that step's batch */
    HISTORY_EVALUATED, /* mean loss of the evaluation after that step; NaN: there was none */
    HISTORY_ACCURACY,  /* share of right predictions, 0 to 1; NaN: as above, or not counted */
    HISTORY_COLS,
    HISTORY_ROWS = 16384 /* when the table is full, every second row is dropped */
};

typedef struct history {
    double *values; /* [HISTORY_ROWS, HISTORY_COLS] */
    int64_t rows;
} history;

/* On failure history_free cleans up. */
int history_create(history *history);
void history_free(history *history);

/* Adds a row for a step that is reported. */
void history_step(history *history, int64_t step, double loss);
/* Adds the evaluation after the last row's step. */
void history_evaluation(history *history, double loss, double accuracy);

#endif
