/* The command line of tutti-bench. */
#include "options.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/usage.h"

enum {
    OPTION_REPEATS = 256,
    OPTION_JSON,
    OPTION_DEVICE,
    OPTION_COMPARE,
    OPTION_FAIL_OVER,
    OPTION_PLAIN
};

static const struct argp_option arguments[] = {
    {"backend", 'b', "auto|host|cuda", 0, "Where to run (default auto)", 0},
    {"device", OPTION_DEVICE, "N", 0, "CUDA device (default 0)", 0},
    {"dtype", 'd', "TYPE", 0, "f64, f32, f16 or bf16 (default bf16 on a GPU, f32 on the host)", 0},
    {"shape", 's', "LIST", 0,
     "Shapes such as 32768x4096,8192x16384: rows, then the sizes that a layer wants (below); each "
     "layer takes those with as many numbers as it wants, without any some of its own",
     0},
    {"repeats", OPTION_REPEATS, "N", 0, "Runs of which the median is taken (default 30)", 0},
    {"json", OPTION_JSON, "FILE", 0, "Write the results to FILE as well", 0},
    {"compare", OPTION_COMPARE, "FILE", 0,
     "Show what an earlier --json FILE of the same device has beside each figure", 0},
    {"fail-over", OPTION_FAIL_OVER, "PERCENT", 0,
     "With --compare: exit with 1 if a time or the host cost of a call is longer by more", 0},
    {"plain", OPTION_PLAIN, NULL, 0,
     "Take every layer as one of which only its table is known: one shape, no variants, and the "
     "same layer in f64 on the host says what is right",
     0},
    {NULL, 'h', NULL, 0, "The same as --help", -1},
    {0},
};

static const char description[] =
    "Times forward and backward of the layers and checks what they computed.\v"
    "LAYER is one of the following, of shapes as beside it; without one, all of them.\n\n%s\n"
    "A layer is compared with a copy that reads and writes as many bytes, or with the bare matrix "
    "products that it is made of. On a GPU every time is that of a captured graph with 256 MiB "
    "overwritten before.\n\n"
    "\"call us\" is the host's time in a call, from its begin to its return; on the host, where "
    "the work is in it, that of a call of one row, which has rows of its own.\n\n"
    "Exit code: 0 if every result was right, 1 if one was wrong or slower than --fail-over allows, "
    "2 if the run failed, 64 for a "
    "wrong command line, 75 stopped by SIGTERM, SIGINT or SIGUSR1.";

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "tutti-bench %s\n%s\n", tutti_version(), tutti_build_info());
}

static int parse_int(const char *text, long least, long most, struct argp_state *state,
                     const char *what)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < least || value > most)
        app_usage_error(state, "%s is %s, want %ld to %ld", what, text, least, most);
    return (int)value;
}

/* "5" or "5%" */
static double parse_percent(const char *text, struct argp_state *state)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || strcmp(*end == '%' ? end + 1 : end, "") != 0 ||
        !(value >= 0 && value <= 1000))
        app_usage_error(state, "fail-over is %s, want 0%% to 1000%%", text);
    return value;
}

static bool fits_any(int ndim)
{
    const char *names[BENCH_DIMS_MAX];
    for (int kind = 0; kind < tutti_layer_type_count(); kind++)
        if (1 + bench_shape_options(tutti_layer_type_get(kind), names) == ndim) return true;
    return false;
}

static void parse_shapes(char *list, bench_options *options, struct argp_state *state)
{
    char *rest = NULL;
    for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        bench_shape shape = {0};
        char *at = word;
        for (;;) {
            char *end;
            long long value = strtoll(at, &end, 10);
            if (end == at || value < 1 || value > INT32_MAX || shape.ndim == BENCH_DIMS_MAX ||
                (*end && *end != 'x'))
                app_usage_error(state, "shape is %s, want one of --help's, as 32768x4096", word);
            shape.dims[shape.ndim++] = value;
            if (!*end) break;
            at = end + 1;
        }
        if (!fits_any(shape.ndim))
            app_usage_error(state, "shape is %s, but no layer takes %d numbers", word, shape.ndim);
        if (options->shape_count == BENCH_SHAPES_MAX)
            app_usage_error(state, "more than %d shapes", BENCH_SHAPES_MAX);
        options->shapes[options->shape_count++] = shape;
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

/* "none|relu|gelu" has "relu". */
static bool is_one_of(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (; words; words = strchr(words, '|') ? strchr(words, '|') + 1 : NULL)
        if (strcspn(words, "|") == length && strncmp(words, word, length) == 0) return true;
    return false;
}

static void parse_variants(int kind, const char *list, bench_options *options,
                           struct argp_state *state)
{
    const tutti_layer_option *option = variant_of(kind);
    char word[32];
    if (strlen(list) >= BENCH_VARIANTS_MAX) app_usage_error(state, "%s is too long", option->name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        if (!is_one_of(option->type, word))
            app_usage_error(state, "%s is %s, want %s", option->name, word, option->type);
    }
    options->variants[kind] = list;
}

static void parse_layer(const char *name, bench_options *options, struct argp_state *state)
{
    int kind = 0;
    while (kind < tutti_layer_type_count() && strcmp(name, tutti_layer_type_get(kind)->name) != 0)
        kind++;
    if (kind == tutti_layer_type_count()) app_usage_error(state, "there is no layer %s", name);
    options->layers |= UINT64_C(1) << kind;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    bench_options *options = state->input;
    tutti_dtype dtype;
    switch (key) {
    case 'b':
        if (strcmp(arg, "auto") == 0)
            options->backend = TUTTI_BACKEND_AUTO;
        else if (strcmp(arg, "host") == 0)
            options->backend = TUTTI_BACKEND_HOST;
        else if (strcmp(arg, "cuda") == 0)
            options->backend = TUTTI_BACKEND_CUDA;
        else
            app_usage_error(state, "backend is %s, want auto, host or cuda", arg);
        break;
    case OPTION_DEVICE:
        options->device = parse_int(arg, 0, 1023, state, "device");
        break;
    case 'd':
        if (tutti_dtype_parse(arg, &dtype) != TUTTI_OK || dtype == TUTTI_I32 || dtype == TUTTI_U8)
            app_usage_error(state, "dtype is %s, want f64, f32, f16 or bf16", arg);
        options->dtype = dtype;
        break;
    case 's':
        parse_shapes(arg, options, state);
        break;
    case OPTION_REPEATS:
        options->repeats = parse_int(arg, 1, 100000, state, "repeats");
        break;
    case OPTION_JSON:
        if (!*arg) app_usage_error(state, "--json is empty, want a file's name");
        options->json = arg;
        break;
    case OPTION_COMPARE:
        if (!*arg) app_usage_error(state, "--compare is empty, want a file's name");
        options->compare = arg;
        break;
    case OPTION_FAIL_OVER:
        options->fail_over = parse_percent(arg, state);
        break;
    case OPTION_PLAIN:
        options->plain = true;
        break;
    case 'h':
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        break;
    case ARGP_KEY_ARG:
        parse_layer(arg, options, state);
        break;
    case ARGP_KEY_END:
        if (options->fail_over >= 0 && !options->compare)
            app_usage_error(state, "--fail-over wants --compare FILE");
        break;
    default:
        for (int kind = 0; kind < tutti_layer_type_count(); kind++)
            if (variant_of(kind) && key == own_of(kind)->key) {
                parse_variants(kind, arg, options, state);
                return 0;
            }
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* "  softmax     rows x cols": a line a kind. */
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

void bench_options_parse(int argc, char **argv, bench_options *options)
{
    static char layers[4096], doc[sizeof layers + sizeof description], of[BENCH_KINDS_MAX][256];
    static struct argp_option all[sizeof arguments / sizeof arguments[0] + BENCH_KINDS_MAX];
    const struct argp argp = {
        .options = all, .parser = parse, .args_doc = "[LAYER...]", .doc = doc};
    int count = 0;
    for (int kind = 0; kind < tutti_layer_type_count(); kind++) {
        const tutti_layer_option *option = variant_of(kind);
        if (!option) continue;
        const bench_layer *own = own_of(kind);
        snprintf(of[kind], sizeof of[kind], "Of %s: %s (default %s)",
                 tutti_layer_type_get(kind)->name, option->type, own->variants);
        all[count++] = (struct argp_option){option->name, own->key, "LIST", 0, of[kind], 0};
    }
    memcpy(all + count, arguments, sizeof arguments);
    list_layers(layers, sizeof layers);
    snprintf(doc, sizeof doc, description, layers);
    *options = (bench_options){.repeats = 30, .fail_over = -1};
    argp_err_exit_status = APP_USAGE;
    argp_program_version_hook = print_version;
    argp_parse(&argp, argc, argv, 0, NULL, options);
}
