/* A command's rows: a table, --json and --compare. */
#ifndef TUTTI_BENCH_RESULTS_H
#define TUTTI_BENCH_RESULTS_H

#include "common/group.h"
#include "common/json.h"
#include "common/output.h"
#include "compare.h"
#include "options.h"

typedef struct bench_results {
    const bench_options *options;
    const bench_machine *machine;
    app_output *output;
    app_json json;
    bench_earlier *earlier;
    int count, wrong, slower;
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
