/* --plot: loss and accuracy over the steps, drawn by gnuplot. */
#ifndef TUTTI_TRAIN_PLOT_H
#define TUTTI_TRAIN_PLOT_H

#include "common/output.h"
#include "history.h"

/* Whether there is a gnuplot, for the start of a run, so that its end brings no surprise. */
int plot_check(void);

/* Writes an SVG.  name: of the data evaluated, "test".  Waits for gnuplot, as long as for any
 * reader; then kills it.  After a signal it has a few seconds left. */
int plot_draw(app_output *output, const history *history, const char *name);

#endif
