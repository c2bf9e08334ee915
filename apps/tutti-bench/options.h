/* The commands of tutti-bench and their common options. */
#ifndef TUTTI_BENCH_OPTIONS_H
#define TUTTI_BENCH_OPTIONS_H

#include "common/options.h"

/* Options of the commands whose results are rows. */
typedef struct bench_options {
    app_common common;
    int64_t repeats;
    const char *json;
    const char *compare; /* an earlier --json */
    double limit;        /* of a time / the earlier time; 0: none */
    double share;        /* least of the bare products' time / a layer's; 0: none */
    const char *plot;
    int fault; /* bench_fault */
} bench_options;

bool bench_parse_limit(const app_option *option, void *options, const char *text,
                       char wanted[APP_WANTED_MAX]);
bool bench_parse_share(const app_option *option, void *options, const char *text,
                       char wanted[APP_WANTED_MAX]);
bool bench_parse_fault(const app_option *option, void *options, const char *text,
                       char wanted[APP_WANTED_MAX]);

#define BENCH_TABLE                                                                          \
    {"repeats",                                                                              \
     "N",                                                                                    \
     "runs of which the median is taken",                                                    \
     "30",                                                                                   \
     .kind = APP_INT,                                                                        \
     .least = 1,                                                                             \
     .most = 100000,                                                                         \
     .at = offsetof(bench_options, repeats)},                                                \
        {"json", "FILE", "write the results to FILE as well", .kind = APP_TEXT,              \
         .at = offsetof(bench_options, json)},                                               \
        {"compare", "FILE",                                                                  \
         "show the times of an earlier --json FILE of the same device beside the new ones",  \
         .kind = APP_TEXT, .at = offsetof(bench_options, compare)},                          \
    {                                                                                        \
        "fail-over", "PERCENT",                                                              \
            "with --compare: exit with 1 if a time or the host cost of a call grew by more", \
            .kind = APP_OTHER, .parse = bench_parse_limit                                    \
    }

#define BENCH_EXIT_CODES                                                                          \
    "Exit code: 0 if every result was right, 1 if one was wrong or slower than an option "        \
    "allows, 2 if the run failed, 64 for a wrong command line, 75 stopped by SIGTERM, SIGINT or " \
    "SIGUSR1."

/* "--fail-over requires --compare FILE" */
error_t bench_check_options(struct argp_state *state, void *options);

extern const app_command bench_adamw_command, bench_step_command, bench_checkpoint_command,
    bench_exchange_command;
/* The command that times the layers; its options come from their tables.  NULL if their texts are
 * longer than there is room for. */
const app_command *bench_layers_command(void);

#endif
