/* --plot: loss and accuracy over the steps, drawn by gnuplot. */
#ifndef TUTTI_TRAIN_PLOT_H
#define TUTTI_TRAIN_PLOT_H

#include "common/output.h"
#include "history.h"

/* Checks at the start of a run that gnuplot can be started. */
int plot_check(void);

/* Writes an SVG.  name: of the evaluated data, "test".  Waits for gnuplot as long as for any
 * reader, or a few seconds after a signal, then kills it. */
int plot_draw(app_output *output, const history *history, const char *name);

#endif
