/* The command line of tutti-bench. */
#include "options.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/usage.h"

const char *const bench_layer_names[BENCH_LAYERS] = {"layernorm",     "rmsnorm", "softmax",
                                                     "cross_entropy", "linear",  "embedding"};
static const char *const activations[BENCH_ACTIVATIONS_MAX] = {
    "none", "relu", "leaky_relu", "gelu", "gelu_erf", "squared_relu", "silu"};

enum { OPTION_REPEATS = 256, OPTION_JSON, OPTION_DEVICE, OPTION_COMPARE, OPTION_FAIL_OVER };

static const struct argp_option arguments[] = {
    {"backend", 'b', "auto|host|cuda", 0, "Where to run (default auto)", 0},
    {"device", OPTION_DEVICE, "N", 0, "CUDA device (default 0)", 0},
    {"dtype", 'd', "TYPE", 0, "f64, f32, f16 or bf16 (default bf16 on a GPU, f32 on the host)", 0},
    {"shape", 's', "LIST", 0,
     "Shapes such as 32768x4096,8192x16384 (rows x columns) and, for linear, 8192x1024x4096 (rows "
     "x in x out), for embedding 32768x50257x1024 (rows x vocabulary x columns); without it some "
     "of each layer's own",
     0},
    {"activation", 'a', "LIST", 0,
     "Of linear: none, relu, leaky_relu, gelu, gelu_erf, squared_relu, silu (default none,gelu)",
     0},
    {"repeats", OPTION_REPEATS, "N", 0, "Runs of which the median is taken (default 30)", 0},
    {"json", OPTION_JSON, "FILE", 0, "Write the results to FILE as well", 0},
    {"compare", OPTION_COMPARE, "FILE", 0,
     "Show what an earlier --json FILE of the same device has beside each figure", 0},
    {"fail-over", OPTION_FAIL_OVER, "PERCENT", 0,
     "With --compare: exit with 1 if a time or the host cost of a call is longer by more", 0},
    {NULL, 'h', NULL, 0, "The same as --help", -1},
    {0},
};

static const char description[] =
    "Times forward and backward of the layers and checks what they computed.\v"
    "LAYER is layernorm, rmsnorm, softmax, cross_entropy, linear or embedding; without one, all "
    "of them.\n\n"
    "A row-wise layer or embedding is compared with a copy that reads and writes as many bytes, "
    "linear with the bare matrix products. On a GPU every time is that of a captured graph with "
    "256 MiB "
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

static void parse_shapes(char *list, bench_options *options, struct argp_state *state)
{
    char *rest = NULL;
    for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        bench_shape shape = {0};
        char *at = word;
        for (;;) {
            char *end;
            long long value = strtoll(at, &end, 10);
            if (end == at || value < 1 || value > INT32_MAX || shape.ndim == 3 ||
                (*end && *end != 'x'))
                app_usage_error(state,
                                "shape is %s, want ROWSxCOLUMNS, ROWSxINxOUT or ROWSxVOCABxCOLUMNS",
                                word);
            shape.dims[shape.ndim++] = value;
            if (!*end) break;
            at = end + 1;
        }
        if (shape.ndim < 2)
            app_usage_error(
                state, "shape is %s, want ROWSxCOLUMNS, ROWSxINxOUT or ROWSxVOCABxCOLUMNS", word);
        if (options->shape_count == BENCH_SHAPES_MAX)
            app_usage_error(state, "more than %d shapes", BENCH_SHAPES_MAX);
        options->shapes[options->shape_count++] = shape;
    }
}

static void parse_activations(char *list, bench_options *options, struct argp_state *state)
{
    char *rest = NULL;
    options->activation_count = 0;
    for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int i = 0;
        while (i < BENCH_ACTIVATIONS_MAX && strcmp(word, activations[i]) != 0) i++;
        if (i == BENCH_ACTIVATIONS_MAX)
            app_usage_error(state, "activation is %s, want one of --help's", word);
        if (options->activation_count == BENCH_ACTIVATIONS_MAX)
            app_usage_error(state, "more than %d activations", BENCH_ACTIVATIONS_MAX);
        options->activations[options->activation_count++] = activations[i];
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    bench_options *options = state->input;
    tutti_dtype dtype;
    int layer = 0;
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
        options->dtype = (int)dtype;
        break;
    case 's':
        parse_shapes(arg, options, state);
        break;
    case 'a':
        parse_activations(arg, options, state);
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
    case 'h':
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        break;
    case ARGP_KEY_ARG:
        while (layer < BENCH_LAYERS && strcmp(arg, bench_layer_names[layer]) != 0) layer++;
        if (layer == BENCH_LAYERS) app_usage_error(state, "there is no layer %s", arg);
        options->layers[layer] = 1;
        break;
    case ARGP_KEY_END:
        if (options->fail_over >= 0 && !options->compare)
            app_usage_error(state, "--fail-over wants --compare FILE");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

void bench_options_parse(int argc, char **argv, bench_options *options)
{
    static const struct argp argp = {
        .options = arguments, .parser = parse, .args_doc = "[LAYER...]", .doc = description};
    *options = (bench_options){.dtype = -1,
                               .repeats = 30,
                               .fail_over = -1,
                               .activation_count = 2,
                               .activations = {"none", "gelu"}};
    argp_err_exit_status = APP_USAGE;
    argp_program_version_hook = print_version;
    argp_parse(&argp, argc, argv, 0, NULL, options);
    int any = 0;
    for (int i = 0; i < BENCH_LAYERS; i++) any |= options->layers[i];
    for (int i = 0; i < BENCH_LAYERS && !any; i++) options->layers[i] = 1;
}
