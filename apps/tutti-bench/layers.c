/* Times the layers, forward and backward: the command line and the selection. */
#include "layers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "common/signals.h"
#include "products.h"
#include "results.h"
#include "shapes.h"

enum { BENCH_KINDS_MAX = 64, BENCH_VARIANTS_MAX = 256 };

typedef struct layers_options {
    bench_options bench;
    uint64_t layers; /* bit i: time the i-th kind; 0: all */
    bool plain;      /* ignore what the bench has for kinds */
    bool tune;
    int64_t device;
    tutti_dtype dtype;       /* 0: bf16 on a GPU, f32 on the host */
    tutti_dtype param_dtype; /* 0: the same */
    double least_copy;       /* GB/s; 0: the device's own, or none if any_copy */
    bool any_copy;
    bench_shapes shapes;                   /* none: the layers' own */
    const char *variants[BENCH_KINDS_MAX]; /* "none,gelu"; NULL: the layer's own */
    const char *with, *set;                /* bench_run's */
} layers_options;

/* The command line */

/* Appends to a text; false if it does not fit. */
static bool append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    const int more = vsnprintf(text + used, size - used, format, args);
    va_end(args);
    return more >= 0 && (size_t)more < size - used;
}

static bool parse_shapes(const app_option *option, void *given, const char *text,
                         char wanted[APP_WANTED_MAX])
{
    (void)option;
    return bench_shapes_parse(text, &((layers_options *)given)->shapes, wanted);
}

static bool parse_least_copy(const app_option *option, void *given, const char *text,
                             char wanted[APP_WANTED_MAX])
{
    layers_options *options = given;
    char *end;
    (void)option;
    options->least_copy = strtod(text, &end);
    options->any_copy = options->least_copy == 0;
    snprintf(wanted, APP_WANTED_MAX, "GB/s, 0 to 1e6");
    return end != text && *end == 0 && options->least_copy >= 0 && options->least_copy <= 1e6;
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

static bool is_asked(const layers_options *options, int kind)
{
    return !options->layers || (options->layers >> kind & 1);
}

static int ndim_of(int kind)
{
    const char *names[BENCH_DIMS_MAX];
    return 1 + bench_shape_options(tutti_layer_type_get(kind), names);
}

/* Whether the layer has a shape of its own or one of --shape's fits it. */
static bool has_shape(const layers_options *options, int kind)
{
    for (int i = 0; i < options->shapes.count; i++)
        if (options->shapes.list[i].ndim == ndim_of(kind)) return true;
    return options->shapes.count == 0;
}

/* Whether a layer that has a shape is compared with bare products, or with a copy. */
static bool compares(const layers_options *options, bool with_products)
{
    for (int kind = 0; kind < tutti_layer_type_count(); kind++) {
        const bool products = !options->plain && own_of(kind)->products;
        if (is_asked(options, kind) && has_shape(options, kind) && products == with_products)
            return true;
    }
    return false;
}

static bool is_optional_input(const tutti_slot *slot)
{
    return slot->role == TUTTI_SLOT_IN && (slot->flags & TUTTI_SLOT_OPTIONAL);
}

/* A word of --with or --set that no layer that is timed has, or NULL. */
static const char *unknown(const layers_options *options, const char *list, bool tensors)
{
    static char word[32];
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        bool found = false;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, tensors ? "," : "=,"), at);
        for (int kind = 0; kind < tutti_layer_type_count(); kind++) {
            const tutti_layer_type *type = tutti_layer_type_get(kind);
            if (!is_asked(options, kind)) continue;
            for (int i = 0; tensors && i < type->slot_count; i++)
                found = found || (strcmp(type->slots[i].name, word) == 0 &&
                                  is_optional_input(&type->slots[i]));
            found =
                found ||
                (!tensors &&
                 bench_leaves_open(type, options->plain ? &bench_layer_plain : own_of(kind), word));
        }
        if (!found) return word;
    }
    return NULL;
}

/* "rows x in x out"; false if it does not fit. */
static bool name_sizes(int kind, char *text, size_t size)
{
    const char *names[BENCH_DIMS_MAX];
    const int count = bench_shape_options(tutti_layer_type_get(kind), names);
    bool fits = append(text, size, "rows");
    for (int i = 0; i < count; i++) fits = fits && append(text, size, " x %s", names[i]);
    return fits;
}

/* Each shape must fit a layer, and each layer that is named must get one. */
static error_t check_shapes(struct argp_state *state, const layers_options *options)
{
    for (int i = 0; i < options->shapes.count; i++) {
        const bench_shape *shape = &options->shapes.list[i];
        bool fits = false;
        char text[128] = "";
        for (int kind = 0; kind < tutti_layer_type_count(); kind++)
            fits = fits || (is_asked(options, kind) && ndim_of(kind) == shape->ndim);
        if (fits) continue;
        for (int d = 0; d < shape->ndim; d++)
            append(text, sizeof text, "x%lld", (long long)shape->dims[d]);
        return app_usage_error(
            state, "--shape: %s fits no layer that is timed; --help has their sizes", text + 1);
    }
    for (int kind = 0; kind < tutti_layer_type_count(); kind++) {
        char sizes[128] = "";
        if (!(options->layers >> kind & 1) || has_shape(options, kind)) continue;
        name_sizes(kind, sizes, sizeof sizes);
        return app_usage_error(state, "--shape has none for %s: %s",
                               tutti_layer_type_get(kind)->name, sizes);
    }
    return 0;
}

/* The name of a command-line option for variants that no layer that is timed has; NULL: none. */
static const char *unused_variants(const layers_options *options)
{
    for (int kind = 0; kind < tutti_layer_type_count(); kind++) {
        bool used = !options->variants[kind];
        for (int i = 0; i < tutti_layer_type_count(); i++)
            used = used || (!options->plain && is_asked(options, i) && share_variant(i, kind));
        if (!used) return variant_of(kind)->name;
    }
    return NULL;
}

static error_t check_files(struct argp_state *state, const layers_options *options)
{
    const char *plot = options->bench.plot;
    const size_t length = plot ? strlen(plot) : 0;
    if (plot && (length < 5 || strcmp(plot + length - 4, ".svg") != 0))
        return app_usage_error(state, "--plot is '%s', want a name that ends in .svg", plot);
    if (plot && !compares(options, false))
        return app_usage_error(state, "--plot: no layer that is timed is compared with a copy");
    return 0;
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
    error_t error = check_shapes(state, options);
    if (error) return error;
    bool typed = !options->param_dtype;
    for (int kind = 0; kind < tutti_layer_type_count(); kind++)
        typed =
            typed || (is_asked(options, kind) && bench_has_param_types(tutti_layer_type_get(kind)));
    if (!typed)
        return app_usage_error(state, "--param-dtype: no layer that is timed has parameters of a "
                                      "type of their own");
    const char *word = unknown(options, options->with, true);
    if (word)
        return app_usage_error(state, "--with: no layer that is timed has an optional input %s",
                               word);
    word = unknown(options, options->set, false);
    if (word)
        return app_usage_error(state, "--set: no layer that is timed has an option %s that is free",
                               word);
    word = unused_variants(options);
    if (word)
        return app_usage_error(state, "--%s: no layer that is timed has variants of it", word);
    if (options->bench.share > 0 && !compares(options, true))
        return app_usage_error(
            state, "--least-share: no layer that is timed is compared with bare products");
    error = check_files(state, options);
    return error ? error : bench_check_options(state, &options->bench);
}

static const char *const dtypes[] = {"f64", "f32", "f16", "bf16", NULL};

static const app_option table[] = {
    {"backend", "NAME", "auto, host or cuda", "auto", .letter = 'b', .kind = APP_WORD,
     .at = offsetof(app_common, backend), .words = app_backends},
    {"device", "N", "CUDA device", "0", .kind = APP_INT, .at = offsetof(layers_options, device),
     .most = 1023},
    {"dtype", "TYPE", "f64, f32, f16 or bf16", .unset = "bf16 on a GPU, f32 on the host",
     .letter = 'd', .kind = APP_DTYPE, .at = offsetof(layers_options, dtype), .words = dtypes},
    {"param-dtype", "TYPE", "type of the parameters of layers that have an option for it",
     .unset = "that of --dtype", .kind = APP_DTYPE, .at = offsetof(layers_options, param_dtype),
     .words = dtypes},
    {"shape", "LIST",
     "shapes such as 32768x4096,8192x16384: rows, then the layer's sizes (below); a size may be a "
     "range: 1024..65536 doubles, 1024..65536*4 multiplies by 4, 1000..5000+500 adds 500; at most "
     "256 in all; each layer takes the shapes with as many numbers as it has, and a LAYER that is "
     "named must get one; by default, each layer has shapes of its own",
     .letter = 's', .kind = APP_OTHER, .parse = parse_shapes},
    {"with", "LIST",
     "optional tensors (in brackets below) that are given to the layers that have them, and what "
     "depends on them",
     .kind = APP_TEXT, .at = offsetof(layers_options, with)},
    {"set", "LIST", "more options, of the layers that have them: zero_centered=1,no_beta=1",
     .kind = APP_TEXT, .at = offsetof(layers_options, set)},
    {"plain",
     .help = "use nothing but each layer's table: one shape, no variants, checked against the same "
             "layer in f64 on the host",
     .at = offsetof(layers_options, plain)},
    {"tune",
     .help = "measure the algorithms for the layers' matrix products on a GPU and take the fastest "
             "(the host has nothing to measure); the bare products beside them are not tuned",
     .at = offsetof(layers_options, tune)},
    {"least-share", "PERCENT",
     "exit with 1 if a layer has less than this share of the speed of its bare products (the host "
     "has none in 16-bit types)",
     .kind = APP_OTHER, .parse = bench_parse_share},
    {"least-copy", "GBPS",
     "exit with 2, before anything is timed, if a copy of 256 MiB to as many reads and writes "
     "fewer "
     "GB/s: another program uses the machine, or it is not what it should be",
     .unset = "4000 on an H200, otherwise 0, which asks for nothing", .kind = APP_OTHER,
     .parse = parse_least_copy},
    {"plot", "FILE.svg",
     "draw GB/s over columns, for each layer a line through the best at each number of them, and "
     "the copy as the roof",
     .kind = APP_TEXT, .at = offsetof(bench_options, plot)},
    {"inject-fault", "PLACE",
     "alter one element of each pass's results before they are checked, so that the run must exit "
     "with 1: last (the last row's last column), inside (in a row in the middle), unwritten (the "
     "same, as it was before the call) or sums (of a sum over rows: a weight gradient); last if "
     "PLACE is left out",
     .kind = APP_OTHER, .optional = true, .parse = bench_parse_fault},
    BENCH_TABLE,
};
enum { TABLE = sizeof table / sizeof table[0] };

static const char description[] =
    "Times forward and backward of the layers and checks what they computed.  tutti-bench adamw "
    "times the optimizer, step, exchange and checkpoint what several ranks cost; each has a --help "
    "of its own.\v"
    "LAYER is one of the following, with its shape beside it; by default, all of them.\n\n%s\n"
    "Every element of every result is checked. A layer is compared with a copy that reads and "
    "writes as many bytes, or with the bare matrix "
    "products that it is made of (on the host OpenBLAS's, and none in 16-bit types). On a GPU, a "
    "time is that of a captured graph, with 256 MiB overwritten before it.\n\n"
    "\"call us\" is the host's time in a call. On the host, where a call includes the work, it is "
    "the time of a call of one row, which has its own line in the table.\n\n" BENCH_EXIT_CODES;

/* One line a kind: "  rope     rows x cols x head_size [positions]".  False if they do not fit. */
static bool list_layers(char *text, size_t size)
{
    bool fits = true;
    for (int kind = 0; kind < tutti_layer_type_count(); kind++) {
        const tutti_layer_type *type = tutti_layer_type_get(kind);
        fits = fits && append(text, size, "  %-24s ", type->name) && name_sizes(kind, text, size);
        for (int i = 0; i < type->slot_count; i++)
            if (is_optional_input(&type->slots[i]))
                fits = fits && append(text, size, " [%s]", type->slots[i].name);
        fits = fits && append(text, size, "\n");
    }
    return fits;
}

/* What is timed */

static void report(void *user, const bench_result *r)
{
    const double seconds = r->times.median, rate = r->amount / seconds;
    const double percent = r->reference > 0 ? 100 * r->reference / seconds : 0;
    /* a GPU's products in TFLOP/s, a laptop's in GFLOP/s */
    double unit = r->product && rate > 1e12 ? 1e-12 : 1e-9;
    const char *unit_name = !r->product ? "GB/s" : unit < 1e-10 ? "TFLOP/s" : "GFLOP/s";
    char reference[32] = "-", share[32] = "-", call[32] = "-", type[16], row[320];
    const bool alike = r->param_dtype == r->dtype;
    snprintf(type, sizeof type, "%s%s%s", tutti_dtype_name(r->dtype), alike ? "" : "/",
             alike ? "" : tutti_dtype_name(r->param_dtype));
    if (r->call_seconds > 0) snprintf(call, sizeof call, "%.2f", r->call_seconds * 1e6);
    if (r->reference > 0) {
        snprintf(reference, sizeof reference, "%.1f", r->amount / r->reference * unit);
        snprintf(share, sizeof share, "%.1f %%", percent);
    }
    snprintf(row, sizeof row,
             "%-15s %-10s %-13s %-17s %-8s %11.1f %11.1f %11.1f %9.1f %-8s %9s %9s %9s", r->layer,
             r->pass, r->variant, r->shape, type, seconds * 1e6, r->times.p10 * 1e6,
             r->times.p90 * 1e6, rate * unit, unit_name, reference, share, call);
    bench_results_add(user, r, row);
}

/* For kinds of rows and columns that have no shapes of their own, on the host and on a GPU. */
static const bench_shape rowwise[2][BENCH_DEFAULT_SHAPES] = {
    {{2, {4096, 256}}, {2, {1024, 4096}}, {2, {128, 32768}}},
    {{2, {32768, 1024}}, {2, {32768, 4096}}, {2, {8192, 16384}}}};

/* For others. */
static bench_shape make_shape(int ndim, int64_t rows, int64_t size)
{
    bench_shape shape = {ndim, {rows}};
    for (int i = 1; i < ndim; i++) shape.dims[i] = size;
    return shape;
}

/* to: NULL to see only whether the options are right. */
static int run_one(const bench_run *run, bench_results *to)
{
    return to ? bench_layer_run(run, report, to) : bench_layer_try(run);
}

static tutti_dtype dtype_of(const bench_machine *machine, const layers_options *options)
{
    return options->dtype ? options->dtype : machine->cuda ? TUTTI_BF16 : TUTTI_F32;
}

/* One shape of a layer, in all variants. */
static int run_shape(bench_machine *machine, const layers_options *options, int kind,
                     const bench_layer *own, const bench_shape *shape, bool added,
                     bench_results *to)
{
    const tutti_layer_type *type = tutti_layer_type_get(kind);
    const tutti_dtype dtype = dtype_of(machine, options);
    const bool typed = options->param_dtype && bench_has_param_types(type);
    const tutti_dtype param_dtype = typed ? options->param_dtype : dtype;
    bench_run run = {.machine = machine,
                     .type = type,
                     .own = own,
                     .variant = "",
                     .with = options->with,
                     .set = options->set,
                     .shape = *shape,
                     .dtype = dtype,
                     .param_dtype = param_dtype,
                     .rounded = dtype,
                     .rounded_params = param_dtype,
                     .fault = (bench_fault)options->bench.fault,
                     .added = added};
    char variants[BENCH_VARIANTS_MAX], *rest = NULL;
    APP_TRY(signals_check("the next shape"));
    for (int i = 0; own->named && own->named[i][0]; i++) {
        run.variant = own->named[i][0];
        run.more = own->named[i][1];
        APP_TRY(run_one(&run, to));
    }
    if (own->named) return APP_OK;
    if (!own->variant) return run_one(&run, to);
    snprintf(variants, sizeof variants, "%s",
             options->variants[kind] ? options->variants[kind] : own->variants);
    for (char *word = strtok_r(variants, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        run.variant = word;
        APP_TRY(run_one(&run, to));
    }
    return APP_OK;
}

static int run_layer(bench_machine *machine, const layers_options *options, int kind,
                     bench_results *to)
{
    const bool gpu = tutti_context_backend(machine->ctx) == TUTTI_BACKEND_CUDA;
    const tutti_layer_type *type = tutti_layer_type_get(kind);
    const bench_layer *own = options->plain ? &bench_layer_plain : bench_layer_find(type->name);
    const int ndim = ndim_of(kind);
    const bool asked = options->shapes.count > 0;
    const bench_shape *shapes = asked ? options->shapes.list : gpu ? own->gpu : own->host;
    /* rows of several dimensions are large, and the work with them more than that */
    const bench_shape any = make_shape(ndim, gpu ? 8192 : 1024, ndim > 3 ? 32 : gpu ? 1024 : 256);
    const bench_shape one_row = make_shape(ndim, 1, 8);
    int count = asked ? options->shapes.count : BENCH_DEFAULT_SHAPES;
    if (shapes->ndim == 0 && ndim == 2 && !options->plain) shapes = rowwise[gpu];
    if (shapes->ndim == 0) {
        shapes = &any;
        count = 1;
    }
    for (int i = 0; i < count; i++)
        if (shapes[i].ndim == ndim)
            APP_TRY(run_shape(machine, options, kind, own, &shapes[i], false, to));
    return gpu ? APP_OK : run_shape(machine, options, kind, own, &one_row, true, to);
}

/* Times on a machine that copies slower than it can would say nothing. */
static int check_copy(bench_machine *machine, const layers_options *options)
{
    const bool own = !options->least_copy && !options->any_copy;
    const double least = own && strstr(machine->device, "H200") ? 4000 : options->least_copy;
    double rate;
    if (!(least > 0)) return APP_OK;
    APP_TRY(bench_copy_rate(machine, &rate));
    rate *= 1e-9;
    if (rate < least)
        return app_fail(APP_FAILED, "a copy of 256 MiB has %.0f GB/s on %s (%s), want %g at least",
                        rate, machine->backend, machine->device, least);
    app_say("a copy of 256 MiB: %.0f GB/s, at least %g wanted", rate, least);
    return APP_OK;
}

static int run_layers(bench_machine *machine, const layers_options *options, bench_results *to)
{
    for (int kind = 0; kind < tutti_layer_type_count(); kind++)
        if (is_asked(options, kind)) APP_TRY(run_layer(machine, options, kind, to));
    return APP_OK;
}

static int time_all(bench_machine *machine, const layers_options *options, bench_results *to)
{
    const tutti_dtype dtype = dtype_of(machine, options);
    char head[192];
    snprintf(head, sizeof head, "%-15s %-10s %-13s %-17s %-8s %11s %11s %11s %9s %-8s %9s %9s %9s",
             "layer", "pass", "variant", "shape", "type", "time us", "p10", "p90", "rate", "unit",
             "reference", "share", "call us");
    if (options->bench.share > 0 && !machine->cuda && !bench_products_have(dtype))
        return app_fail(APP_USAGE, "--least-share: the host has no bare products in %s",
                        tutti_dtype_name(dtype));
    APP_TRY(run_layers(machine, options, NULL));
    APP_TRY(check_copy(machine, options));
    APP_TRY(bench_results_begin(to, machine, head));
    return run_layers(machine, options, to);
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
    if (code == APP_OK) code = app_check(tutti_context_tune(machine.ctx, options->tune));
    if (code == APP_OK) code = time_all(&machine, options, &results);
    code = bench_results_end(&results, code);
    bench_close(&machine);
    return code;
}

/* The texts of the command-line option for the variants of a kind and of the kinds that share
 * them. */
typedef struct variants_texts {
    char help[512], unset[256];
} variants_texts;

/* Whether an earlier kind has the option. */
static bool has_earlier(int kind)
{
    for (int i = 0; i < kind; i++)
        if (share_variant(i, kind)) return true;
    return false;
}

/* False if they do not fit. */
static bool describe_variants(int kind, variants_texts *to)
{
    bool fits = append(to->help, sizeof to->help, "of");
    for (int i = kind; i < tutti_layer_type_count(); i++) {
        if (!share_variant(i, kind)) continue;
        const char *name = tutti_layer_type_get(i)->name, *initial = own_of(i)->variants;
        fits =
            fits && append(to->help, sizeof to->help, "%s %s", i > kind ? "," : "", name) &&
            append(to->unset, sizeof to->unset, "%s%s of %s", i > kind ? "; " : "", initial, name);
    }
    return fits && append(to->help, sizeof to->help, ": %s", variant_of(kind)->type);
}

const app_command *bench_layers_command(void)
{
    static char layers[4096], doc[sizeof layers + sizeof description];
    static variants_texts texts[BENCH_KINDS_MAX];
    static app_option all[TABLE + BENCH_KINDS_MAX];
    static app_command command = {.program = "tutti-bench",
                                  .args_doc = "[LAYER...]",
                                  .doc = doc,
                                  .options = all,
                                  .size = sizeof(layers_options),
                                  .check = check,
                                  .run = run};
    int count = 0;
    if (tutti_layer_type_count() > BENCH_KINDS_MAX) return NULL;
    for (int kind = 0; kind < tutti_layer_type_count(); kind++) {
        if (!variant_of(kind) || has_earlier(kind)) continue;
        if (!describe_variants(kind, &texts[kind])) return NULL;
        all[count++] = (app_option){variant_of(kind)->name,
                                    "LIST",
                                    texts[kind].help,
                                    .unset = texts[kind].unset,
                                    .letter = own_of(kind)->key,
                                    .kind = APP_OTHER,
                                    .parse = parse_variants,
                                    .mark = kind};
    }
    memcpy(all + count, table, sizeof table);
    command.count = count + TABLE;
    if (!list_layers(layers, sizeof layers)) return NULL;
    snprintf(doc, sizeof doc, description, layers);
    return &command;
}
