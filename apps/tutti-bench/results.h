/* A command's rows: a table, --json, --compare and --plot. */
#ifndef TUTTI_BENCH_RESULTS_H
#define TUTTI_BENCH_RESULTS_H

#include "common/group.h"
#include "common/json.h"
#include "common/output.h"
#include "compare.h"
#include "options.h"
#include "plot.h"

typedef struct bench_results {
    const bench_options *options;
    const bench_machine *machine;
    app_output *output, *plot_output;
    app_json json;
    bench_earlier *earlier;
    bench_plot *plot; /* NULL: none */
    int code;         /* of what failed in bench_results_add */
    int count, wrong, slower;
    int noisy;          /* those whose times differ much */
    int faulty, missed; /* by --inject-fault; of these, taken for right */
    int shares, behind; /* those that were compared with bare products; below --least-share */
} bench_results;

/* Only rank 0 has files and prints rows.  On failure bench_results_end cleans up. */
int bench_results_open(bench_results *results, const bench_options *options,
                       const app_group *group);
/* Call it once the machine is known.  head: the table's header. */
int bench_results_begin(bench_results *results, const bench_machine *machine, const char *head);
/* row: the table's columns, without the verdict and the earlier run's times. */
void bench_results_add(bench_results *results, const bench_result *result, const char *row);
/* code: of the work so far.  APP_MISMATCH if a result was wrong or too slow. */
int bench_results_end(bench_results *results, int code);

#endif
