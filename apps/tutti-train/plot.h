/* --plot: loss and accuracy over the steps, drawn by gnuplot. */
#ifndef TUTTI_TRAIN_PLOT_H
#define TUTTI_TRAIN_PLOT_H

#include "history.h"

/* Whether plot_draw will have what it needs: gnuplot, and a file that can be written.  For the
 * start of a run, so that its end brings no surprise. */
int plot_check(const char *path);

/* Writes an SVG.  name: of the data evaluated, "test".  Waits for gnuplot. */
int plot_draw(const char *path, const history *history, const char *name);

#endif
