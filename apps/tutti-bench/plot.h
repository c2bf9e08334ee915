/* --plot: GB/s over columns: for each layer, pass and variant a line through the best at each
 * number of columns, and the copy as the roof. */
#ifndef TUTTI_BENCH_PLOT_H
#define TUTTI_BENCH_PLOT_H

#include <stdio.h>

#include "layers.h"

typedef struct bench_plot bench_plot;

/* APP_FAILED if there is no memory. */
int bench_plot_create(bench_plot **plot);
void bench_plot_destroy(bench_plot **plot);

/* Keeps a result that was compared with a copy and whose shape was asked for. */
int bench_plot_add(bench_plot *plot, const bench_result *result);

/* Writes an SVG; write errors are left to whoever closes the file.  APP_FAILED if no result was
 * kept. */
int bench_plot_write(const bench_plot *plot, const bench_machine *machine, FILE *file);

#endif
