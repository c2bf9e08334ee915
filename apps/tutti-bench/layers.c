/* Times the layers, forward and backward: the command line and the selection. */
#include "layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "common/signals.h"
#include "results.h"

enum { BENCH_SHAPES_MAX = 32, BENCH_KINDS_MAX = 32, BENCH_VARIANTS_MAX = 256 };

typedef struct layers_options {
    bench_options bench;
    uint64_t layers; /* bit i: time the i-th kind; 0: all */
    bool plain;      /* ignore the kinds' own files */
    int64_t device;
    tutti_dtype dtype; /* 0: bf16 on a GPU, f32 on the host */
    int shape_count;
    bench_shape shapes[BENCH_SHAPES_MAX];  /* none: the layers' own */
    const char *variants[BENCH_KINDS_MAX]; /* "none,gelu"; NULL: the layer's own */
} layers_options;

/* The command line */

static bool fits_any(int ndim)
{
    const char *names[BENCH_DIMS_MAX];
    for (int kind = 0; kind < tutti_layer_type_count(); kind++)
        if (1 + bench_shape_options(tutti_layer_type_get(kind), names) == ndim) return true;
    return false;
}

static bool parse_shapes(const app_option *option, void *given, const char *text,
                         char wanted[APP_WANTED_MAX])
{
    layers_options *options = given;
    (void)option;
    snprintf(wanted, APP_WANTED_MAX, "at most %d of --help's, as 32768x4096", BENCH_SHAPES_MAX);
    for (const char *at = text;;) {
        bench_shape shape = {0};
        char *end;
        for (;; at = end + 1) {
            const long long value = strtoll(at, &end, 10);
            if (end == at || value < 1 || value > INT32_MAX || shape.ndim == BENCH_DIMS_MAX)
                return false;
            shape.dims[shape.ndim++] = value;
            if (*end != 'x') break;
        }
        if ((*end && *end != ',') || options->shape_count == BENCH_SHAPES_MAX) return false;
        if (!fits_any(shape.ndim)) {
            snprintf(wanted, APP_WANTED_MAX, "as many numbers as a layer takes, not %d",
                     shape.ndim);
            return false;
        }
        options->shapes[options->shape_count++] = shape;
        if (!*end) return true;
        at = end + 1;
    }
}

static const bench_layer *own_of(int kind)
{
    return bench_layer_find(tutti_layer_type_get(kind)->name);
}

/* The option of which a kind has variants; NULL if it has none. */
static const tutti_layer_option *variant_of(int kind)
{
    const tutti_layer_type *type = tutti_layer_type_get(kind);
    const char *name = own_of(kind)->variant;
    for (int i = 0; name && i < type->option_count; i++)
        if (strcmp(type->options[i].name, name) == 0) return &type->options[i];
    return NULL;
}

/* Whether both kinds have variants of one option, which the command line then has once. */
static bool share_variant(int kind, int other)
{
    const tutti_layer_option *a = variant_of(kind), *b = variant_of(other);
    return a && b && strcmp(a->name, b->name) == 0 && strcmp(a->type, b->type) == 0;
}

/* "none|relu|gelu" has "relu", "real" any number. */
static bool is_one_of(const char *words, const char *word)
{
    const size_t length = strlen(word);
    char *end;
    if (strcmp(words, "real") == 0) return strtod(word, &end) >= 0 && end != word && *end == 0;
    for (; words; words = strchr(words, '|') ? strchr(words, '|') + 1 : NULL)
        if (strcspn(words, "|") == length && strncmp(words, word, length) == 0) return true;
    return false;
}

/* The option's mark is a kind that has it. */
static bool parse_variants(const app_option *option, void *given, const char *text,
                           char wanted[APP_WANTED_MAX])
{
    const char *words = variant_of(option->mark)->type;
    char word[32];
    snprintf(wanted, APP_WANTED_MAX, "%s", words);
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        if (!is_one_of(words, word)) return false;
    }
    for (int kind = 0; kind < tutti_layer_type_count(); kind++)
        if (share_variant(kind, option->mark)) ((layers_options *)given)->variants[kind] = text;
    return strlen(text) < BENCH_VARIANTS_MAX;
}

static error_t check(struct argp_state *state, void *given)
{
    layers_options *options = given;
    for (int i = 0; i < options->bench.common.arg_count; i++) {
        const char *name = options->bench.common.args[i];
        int kind = 0;
        while (kind < tutti_layer_type_count() &&
               strcmp(name, tutti_layer_type_get(kind)->name) != 0)
            kind++;
        if (kind == tutti_layer_type_count())
            return app_usage_error(state, "there is no layer %s", name);
        options->layers |= UINT64_C(1) << kind;
    }
    return bench_check_options(state, &options->bench);
}

static const char *const dtypes[] = {"f64", "f32", "f16", "bf16", NULL};

static const app_option table[] = {
    {"backend", "NAME", "auto, host or cuda", "auto", .letter = 'b', .kind = APP_WORD,
     .at = offsetof(app_common, backend), .words = app_backends},
    {"device", "N", "CUDA device", "0", .kind = APP_INT, .at = offsetof(layers_options, device),
     .most = 1023},
    {"dtype", "TYPE", "f64, f32, f16 or bf16", .unset = "bf16 on a GPU, f32 on the host",
     .letter = 'd', .kind = APP_DTYPE, .at = offsetof(layers_options, dtype), .words = dtypes},
    {"shape", "LIST",
     "shapes such as 32768x4096,8192x16384: rows, then the layer's sizes (below); each layer takes "
     "the shapes with as many numbers as it has; by default, each layer has shapes of its own",
     .letter = 's', .kind = APP_OTHER, .parse = parse_shapes},
    {"plain",
     .help = "treat every layer as one of which only its table is known: one shape, no variants, "
             "checked against the same layer in f64 on the host",
     .at = offsetof(layers_options, plain)},
    {"least-share", "PERCENT",
     "exit with 1 if a layer has less than this share of the speed of its bare products",
     .kind = APP_OTHER, .parse = bench_parse_share},
    BENCH_TABLE,
};
enum { TABLE = sizeof table / sizeof table[0] };

static const char description[] =
    "Times forward and backward of the layers and checks what they computed.  tutti-bench step, "
    "exchange and checkpoint time what several ranks cost; each has a --help of its own.\v"
    "LAYER is one of the following, with its shape beside it; by default, all of them.\n\n%s\n"
    "A layer is compared with a copy that reads and writes as many bytes, or with the bare matrix "
    "products that it is made of. On a GPU, a time is that of a captured graph, with 256 MiB "
    "overwritten before it.\n\n"
    "\"call us\" is the host's time in a call. On the host, where a call includes the work, it is "
    "the time of a call of one row, which has its own line in the table.\n\n" BENCH_EXIT_CODES;

/* One line a kind: "  softmax     rows x cols". */
static void list_layers(char *text, size_t size)
{
    for (int kind = 0; kind < tutti_layer_type_count(); kind++) {
        const tutti_layer_type *type = tutti_layer_type_get(kind);
        const char *names[BENCH_DIMS_MAX];
        const int count = bench_shape_options(type, names);
        size_t used = strlen(text);
        used += (size_t)snprintf(text + used, size - used, "  %-24s rows", type->name);
        for (int i = 0; i < count && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, " x %s", names[i]);
        if (used < size) snprintf(text + used, size - used, "\n");
    }
}

/* What is timed */

static void report(void *user, const bench_result *r)
{
    double rate = r->amount / r->seconds;
    double percent = r->reference > 0 ? 100 * r->reference / r->seconds : 0;
    /* a GPU's products in TFLOP/s, a laptop's in GFLOP/s */
    double unit = r->product && rate > 1e12 ? 1e-12 : 1e-9;
    const char *unit_name = !r->product ? "GB/s" : unit < 1e-10 ? "TFLOP/s" : "GFLOP/s";
    char reference[32] = "-", share[32] = "-", call[32] = "-", row[256];
    if (r->call_seconds > 0) snprintf(call, sizeof call, "%.2f", r->call_seconds * 1e6);
    if (r->reference > 0) {
        snprintf(reference, sizeof reference, "%.1f", r->amount / r->reference * unit);
        snprintf(share, sizeof share, "%.1f %%", percent);
    }
    snprintf(row, sizeof row, "%-15s %-10s %-13s %-17s %-5s %11.1f %9.1f %-8s %9s %9s %9s",
             r->layer, r->pass, r->variant, r->shape, tutti_dtype_name(r->dtype), r->seconds * 1e6,
             rate * unit, unit_name, reference, share, call);
    bench_results_add(user, r, row);
}

/* For a kind that has no shapes of its own. */
static bench_shape make_shape(int ndim, int64_t rows, int64_t size)
{
    bench_shape shape = {ndim, {rows}};
    for (int i = 1; i < ndim; i++) shape.dims[i] = size;
    return shape;
}

/* One shape of a layer, in all variants. */
static int run_shape(bench_machine *machine, const layers_options *options, int kind,
                     const bench_layer *own, tutti_dtype dtype, const bench_shape *shape,
                     bench_results *to)
{
    bench_run run = {.machine = machine,
                     .type = tutti_layer_type_get(kind),
                     .own = own,
                     .variant = "",
                     .shape = *shape,
                     .dtype = dtype,
                     .rounded = dtype};
    char variants[BENCH_VARIANTS_MAX], *rest = NULL;
    APP_TRY(signals_check("the next shape"));
    for (int i = 0; own->named && own->named[i][0]; i++) {
        run.variant = own->named[i][0];
        run.more = own->named[i][1];
        APP_TRY(bench_layer_run(&run, report, to));
    }
    if (own->named) return APP_OK;
    if (!own->variant) return bench_layer_run(&run, report, to);
    snprintf(variants, sizeof variants, "%s",
             options->variants[kind] ? options->variants[kind] : own->variants);
    for (char *word = strtok_r(variants, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        run.variant = word;
        APP_TRY(bench_layer_run(&run, report, to));
    }
    return APP_OK;
}

static int run_layer(bench_machine *machine, const layers_options *options, int kind,
                     tutti_dtype dtype, bench_results *to)
{
    const bool gpu = tutti_context_backend(machine->ctx) == TUTTI_BACKEND_CUDA;
    const tutti_layer_type *type = tutti_layer_type_get(kind);
    const bench_layer *own = options->plain ? &bench_layer_plain : bench_layer_find(type->name);
    const char *names[BENCH_DIMS_MAX];
    const int ndim = 1 + bench_shape_options(type, names);
    const bench_shape *shapes = options->shape_count ? options->shapes : gpu ? own->gpu : own->host;
    /* rows of several dimensions are large, and the work with them more than that */
    const bench_shape any = make_shape(ndim, gpu ? 8192 : 1024, ndim > 3 ? 32 : gpu ? 1024 : 256);
    const bench_shape one_row = make_shape(ndim, 1, 8);
    int count = options->shape_count ? options->shape_count : BENCH_DEFAULT_SHAPES;
    if (shapes->ndim == 0) {
        shapes = &any;
        count = 1;
    }
    for (int i = 0; i < count; i++)
        if (shapes[i].ndim == ndim)
            APP_TRY(run_shape(machine, options, kind, own, dtype, &shapes[i], to));
    return gpu ? APP_OK : run_shape(machine, options, kind, own, dtype, &one_row, to);
}

static int time_all(bench_machine *machine, const layers_options *options, bench_results *to)
{
    char head[160];
    const bool gpu = tutti_context_backend(machine->ctx) == TUTTI_BACKEND_CUDA;
    const tutti_dtype dtype = options->dtype ? options->dtype : gpu ? TUTTI_BF16 : TUTTI_F32;
    snprintf(head, sizeof head, "%-15s %-10s %-13s %-17s %-5s %11s %9s %-8s %9s %9s %9s", "layer",
             "pass", "variant", "shape", "type", "time us", "rate", "unit", "reference", "share",
             "call us");
    APP_TRY(bench_results_begin(to, machine, head));
    for (int kind = 0; kind < tutti_layer_type_count(); kind++)
        if (!options->layers || (options->layers >> kind & 1))
            APP_TRY(run_layer(machine, options, kind, dtype, to));
    if (to->count == 0)
        return app_fail(APP_USAGE, "no shape of --shape fits a layer that was asked for");
    return APP_OK;
}

static int run(void *given, app_group *group)
{
    const layers_options *options = given;
    const bench_options *o = &options->bench;
    bench_results results;
    bench_machine machine = {0};
    if (group->world_size > 1)
        return app_fail(APP_USAGE, "layers are timed on one rank, but there are %d",
                        group->world_size);
    int code = bench_results_open(&results, o, group);
    if (code == APP_OK)
        code = bench_open(o->common.backend, (int)options->device, (int)o->repeats, &machine);
    if (code == APP_OK) code = time_all(&machine, options, &results);
    code = bench_results_end(&results, code);
    bench_close(&machine);
    return code;
}

/* The command-line option for the variants of a kind and of the kinds that share them: its help,
 * and what it is by default.  False if an earlier kind has it. */
static bool variants_option(int kind, char help[512], char unset[256])
{
    const tutti_layer_option *option = variant_of(kind);
    if (!option) return false;
    for (int i = 0; i < kind; i++)
        if (share_variant(i, kind)) return false;
    size_t used = (size_t)snprintf(help, 512, "of"), had = 0;
    for (int i = kind; i < tutti_layer_type_count(); i++) {
        if (!share_variant(i, kind)) continue;
        const char *name = tutti_layer_type_get(i)->name;
        used += (size_t)snprintf(help + used, 512 - used, "%s %s", i > kind ? "," : "", name);
        had += (size_t)snprintf(unset + had, 256 - had, "%s%s of %s", had ? "; " : "",
                                own_of(i)->variants, name);
        if (used >= 512 || had >= 256) abort(); /* the tables are the program's own */
    }
    snprintf(help + used, 512 - used, ": %s", option->type);
    return true;
}

const app_command *bench_layers_command(void)
{
    static char layers[4096], doc[sizeof layers + sizeof description];
    static char help[BENCH_KINDS_MAX][512], unset[BENCH_KINDS_MAX][256];
    static app_option all[TABLE + BENCH_KINDS_MAX];
    static app_command command = {.program = "tutti-bench",
                                  .args_doc = "[LAYER...]",
                                  .doc = doc,
                                  .options = all,
                                  .size = sizeof(layers_options),
                                  .check = check,
                                  .run = run};
    int count = 0;
    for (int kind = 0; kind < tutti_layer_type_count(); kind++) {
        if (!variants_option(kind, help[kind], unset[kind])) continue;
        all[count++] = (app_option){variant_of(kind)->name,
                                    "LIST",
                                    help[kind],
                                    .unset = unset[kind],
                                    .letter = own_of(kind)->key,
                                    .kind = APP_OTHER,
                                    .parse = parse_variants,
                                    .mark = kind};
    }
    memcpy(all + count, table, sizeof table);
    command.count = count + TABLE;
    list_layers(layers, sizeof layers);
    snprintf(doc, sizeof doc, description, layers);
    return &command;
}
