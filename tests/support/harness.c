/* See harness.h. */
#include "harness.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <CUnit/Basic.h>

enum { EXIT_SKIPPED = 77, MESSAGES_A_TEST = 8, TESTS_MAX = 256 };

static struct {
    tutti_backend backend;
    bool quick;
    const char *only;
    int devices;
    tutti_context *ctx;
    int rank, world_size;
    void (*max_over_ranks)(int *values, int count);
    char where[256];
    int failures; /* of the running test */
    bool skipped; /* the running test */
    char reason[512];
} state = {.backend = TUTTI_BACKEND_HOST, .world_size = 1};

tutti_backend harness_backend(void)
{
    return state.backend;
}
bool harness_quick(void)
{
    return state.quick;
}
int harness_devices(void)
{
    return state.devices;
}

void harness_set_ranks(int rank, int world_size, void (*max_over_ranks)(int *values, int count))
{
    state.rank = rank;
    state.world_size = world_size;
    state.max_over_ranks = max_over_ranks;
}

void *harness_calloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) {
        fprintf(stderr, "harness: no memory for %zu x %zu bytes\n", count, size);
        exit(1);
    }
    return memory;
}

tutti_context *harness_new_context(int device, int threads)
{
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = state.backend;
    desc.device = device;
    desc.threads = threads;
    tutti_context *ctx = NULL;
    if (tutti_context_create(&desc, &ctx) != TUTTI_OK) {
        fprintf(stderr, "harness: no context: %s\n", tutti_last_error());
        exit(1);
    }
    return ctx;
}

tutti_context *harness_context(void)
{
    if (!state.ctx) state.ctx = harness_new_context(0, 1);
    return state.ctx;
}

/* Read by AddressSanitizer if built in: a failed allocation returns NULL, as malloc does, and
 * keep_libraries.c may come first. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:verify_asan_link_order=0";
}

/* Outcomes */

void harness_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state.reason, sizeof state.reason, format, arguments);
    va_end(arguments);
    state.skipped = true;
}

void harness_where(const char *format, ...)
{
    state.where[0] = 0;
    if (!format) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state.where, sizeof state.where, format, arguments);
    va_end(arguments);
}

static void record(const char *file, int line, const char *text)
{
    /* a failure in every shape should not fill the screen */
    state.failures++;
    if (state.failures > MESSAGES_A_TEST) return;
    char message[1536];
    if (state.world_size > 1)
        snprintf(message, sizeof message, "[rank %d] %s%s%s", state.rank, state.where,
                 state.where[0] ? ": " : "", text);
    else
        snprintf(message, sizeof message, "%s%s%s", state.where, state.where[0] ? ": " : "", text);
    CU_assertImplementation(CU_FALSE, (unsigned)line, message, file, "", CU_FALSE);
    if (state.rank != 0) fprintf(stderr, "%s:%d: %s\n", file, line, message);
}

bool harness_check(bool ok, const char *file, int line, const char *format, ...)
{
    if (ok) return true;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    record(file, line, text);
    return false;
}

bool harness_check_status(tutti_status got, const char *call, const char *file, int line)
{
    return harness_check(got == TUTTI_OK, file, line, "%s: %s: %s", call, tutti_status_string(got),
                         tutti_last_error());
}

static const char unheard_of[] = "no such type as harness";

void harness_forget_error(void)
{
    tutti_dtype dtype;
    (void)tutti_dtype_parse(unheard_of, &dtype);
}

bool harness_check_failure(tutti_status wanted, const char *word, tutti_status got,
                           const char *call, const char *file, int line)
{
    const char *message = tutti_last_error();
    if (got != wanted)
        return harness_check(false, file, line, "%s: got \"%s\" (%s), want \"%s\"", call,
                             tutti_status_string(got), got == TUTTI_OK ? "" : message,
                             tutti_status_string(wanted));
    if (!message[0] || (strstr(message, unheard_of) && strcmp(word, unheard_of) != 0))
        return harness_check(false, file, line, "%s: failed without a message", call);
    return harness_check(strstr(message, word) != NULL, file, line,
                         "%s: the message \"%s\" does not name \"%s\"", call, message, word);
}

int harness_failures(void)
{
    return state.failures;
}

/* Running.  CUnit's test functions take no argument, so one trampoline counts: CUnit runs them in
 * the order in which they were added. */

static const harness_test *chosen[TESTS_MAX];
static int chosen_count, outcome[TESTS_MAX], next_test;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_next(void)
{
    int index = next_test++;
    const double begin = seconds();
    state.failures = 0;
    state.skipped = false;
    harness_where(NULL);
    chosen[index]->run();
    harness_where(NULL);
    const double took = seconds() - begin;
    if (took >= 1 && state.rank == 0) printf("%.0f s ... ", took);
    if (state.failures > MESSAGES_A_TEST)
        printf("\n    %d failures in all in this test\n", state.failures);
    if (state.skipped && state.rank == 0) printf("skipped: %s ... ", state.reason);
    if (state.skipped) outcome[index] = 1;
}

/* CUnit's failure list also has those of CU_ASSERT, which tests may use besides CHECK. */
static void collect_failures(void)
{
    for (CU_pFailureRecord record = CU_get_failure_list(); record; record = record->pNext) {
        for (int i = 0; i < chosen_count; i++)
            if (record->pTest && strcmp(record->pTest->pName, chosen[i]->name) == 0) outcome[i] = 2;
    }
}

static int finish(const char *reason)
{
    int counts[3] = {0, 0, 0};
    if (state.max_over_ranks) state.max_over_ranks(outcome, chosen_count);
    for (int i = 0; i < chosen_count; i++) counts[outcome[i]]++;
    if (state.rank == 0) {
        /* other ranks may have left a line unfinished */
        if (counts[1] == chosen_count) printf("\nskipped: %s\n", reason);
        printf("\ntests: %d passed, %d failed, %d skipped\n", counts[0], counts[2], counts[1]);
    }
    fflush(stdout);
    return counts[2] > 0 ? 1 : counts[1] == chosen_count ? EXIT_SKIPPED : 0;
}

static bool parse(int argc, char **argv)
{
    const char *quick = getenv("TUTTI_TEST_QUICK");
    state.quick = quick && strcmp(quick, "1") == 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            state.quick = true;
        else if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc &&
                 (strcmp(argv[i + 1], "host") == 0 || strcmp(argv[i + 1], "cuda") == 0))
            state.backend =
                strcmp(argv[++i], "cuda") == 0 ? TUTTI_BACKEND_CUDA : TUTTI_BACKEND_HOST;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            state.only = argv[++i];
        else {
            fprintf(stderr, "usage: %s [--backend host|cuda] [--quick] [--only TEXT]\n", argv[0]);
            return false;
        }
    }
    return true;
}

static int run_chosen(const char *suite_name)
{
    if (CU_initialize_registry() != CUE_SUCCESS) return 1;
    CU_pSuite suite = CU_add_suite(suite_name, NULL, NULL);
    for (int i = 0; suite && i < chosen_count; i++)
        if (!CU_add_test(suite, chosen[i]->name, run_next)) suite = NULL;
    if (!suite) {
        fprintf(stderr, "harness: %s\n", CU_get_error_msg());
        return 1;
    }
    CU_basic_set_mode(state.rank == 0 ? CU_BRM_VERBOSE : CU_BRM_SILENT);
    CU_basic_run_tests();
    collect_failures();
    CU_cleanup_registry();
    tutti_context_destroy(&state.ctx);
    return finish(state.reason);
}

int harness_main(int argc, char **argv, const char *suite, const harness_test *tests, int count)
{
    if (!parse(argc, argv)) return 64;
    setvbuf(stdout, NULL, _IOLBF, 0); /* show what was printed before a crash */
    for (int i = 0; i < count && chosen_count < TESTS_MAX; i++)
        if (!state.only || strstr(tests[i].name, state.only)) chosen[chosen_count++] = &tests[i];
    if (chosen_count == 0) {
        fprintf(stderr, "harness: no test is called '%s'\n", state.only ? state.only : "");
        return 1;
    }
    tutti_status status = tutti_device_count(state.backend, &state.devices);
    if (status == TUTTI_OK && state.devices > 0) return run_chosen(suite);

    const char *require = getenv("TUTTI_TEST_REQUIRE_GPU");
    bool failure = state.backend == TUTTI_BACKEND_HOST || (require && strcmp(require, "1") == 0);
    const char *reason = status == TUTTI_OK ? "no CUDA device" : tutti_last_error();
    if (failure && state.rank == 0) printf("failed: %s\n", reason);
    for (int i = 0; i < chosen_count; i++) outcome[i] = failure ? 2 : 1;
    return finish(reason);
}

/* Tensors */

void harness_put(tutti_context *ctx, const tutti_tensor *tensor, const double *values)
{
    const int64_t count = tutti_tensor_count(tensor);
    const size_t size = tutti_dtype_size(tensor->dtype);
    void *elements = harness_calloc((size_t)count, size);
    harness_encode_all(tensor->dtype, elements, values, count);
    CHECK_OK(tutti_copy(ctx, tensor->data, elements, (size_t)count * size));
    CHECK_OK(tutti_context_synchronize(ctx));
    free(elements);
}

double *harness_get(tutti_context *ctx, const tutti_tensor *tensor, double *values)
{
    const int64_t count = tutti_tensor_count(tensor);
    const size_t size = tutti_dtype_size(tensor->dtype);
    void *elements = harness_calloc((size_t)count, size);
    if (!values) values = harness_calloc((size_t)count, sizeof *values);
    CHECK_OK(tutti_copy(ctx, elements, tensor->data, (size_t)count * size));
    CHECK_OK(tutti_context_synchronize(ctx));
    harness_decode_all(tensor->dtype, values, elements, count);
    free(elements);
    return values;
}

/* Buffers */

enum { GUARD = 512, POISON = 0xff };

static size_t element_size(const harness_buffer *buffer)
{
    return tutti_dtype_size(buffer->dtype);
}

static void must(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "harness: %s\n", tutti_last_error());
    exit(1);
}

harness_buffer harness_buffer_make(tutti_context *ctx, tutti_dtype dtype, int64_t rows,
                                   int64_t cols, int64_t stride, int misaligned)
{
    harness_buffer buffer = {.dtype = dtype, .rows = rows, .cols = cols};
    buffer.stride = stride ? stride : cols;
    int64_t span = rows > 0 ? (rows - 1) * buffer.stride + cols : 0;
    buffer.offset = GUARD + (size_t)misaligned * tutti_dtype_size(dtype);
    buffer.bytes = buffer.offset + (size_t)span * tutti_dtype_size(dtype) + GUARD;
    buffer.mirror = harness_calloc(1, buffer.bytes);
    must(tutti_alloc(ctx, buffer.bytes, &buffer.base));
    buffer.data = (unsigned char *)buffer.base + buffer.offset;
    harness_buffer_poison(ctx, &buffer);
    return buffer;
}

void harness_buffer_free(tutti_context *ctx, harness_buffer *buffer)
{
    if (buffer->base) must(tutti_free(ctx, &buffer->base));
    free(buffer->mirror);
    *buffer = (harness_buffer){0};
}

void harness_buffer_poison(tutti_context *ctx, harness_buffer *buffer)
{
    memset(buffer->mirror, POISON, buffer->bytes);
    must(tutti_copy(ctx, buffer->base, buffer->mirror, buffer->bytes));
}

static unsigned char *element(const harness_buffer *buffer, unsigned char *image, int64_t row,
                              int64_t col)
{
    return image + buffer->offset + (size_t)(row * buffer->stride + col) * element_size(buffer);
}

void harness_buffer_put(tutti_context *ctx, harness_buffer *buffer, const double *values)
{
    for (int64_t row = 0; row < buffer->rows; row++)
        harness_encode_all(buffer->dtype, element(buffer, buffer->mirror, row, 0),
                           values + row * buffer->cols, buffer->cols);
    must(tutti_copy(ctx, buffer->base, buffer->mirror, buffer->bytes));
}

static unsigned char *fetch(tutti_context *ctx, const harness_buffer *buffer)
{
    unsigned char *image = harness_calloc(1, buffer->bytes);
    must(tutti_copy(ctx, image, buffer->base, buffer->bytes));
    must(tutti_context_synchronize(ctx));
    return image;
}

void harness_buffer_get(tutti_context *ctx, const harness_buffer *buffer, double *values)
{
    unsigned char *image = fetch(ctx, buffer);
    for (int64_t row = 0; row < buffer->rows; row++)
        harness_decode_all(buffer->dtype, values + row * buffer->cols,
                           element(buffer, image, row, 0), buffer->cols);
    free(image);
}

void harness_buffer_get_raw(tutti_context *ctx, const harness_buffer *buffer, void *elements)
{
    unsigned char *image = fetch(ctx, buffer);
    size_t row_bytes = (size_t)buffer->cols * element_size(buffer);
    for (int64_t row = 0; row < buffer->rows; row++)
        memcpy((unsigned char *)elements + (size_t)row * row_bytes, element(buffer, image, row, 0),
               row_bytes);
    free(image);
}

static bool all_poison(const unsigned char *from, const unsigned char *to)
{
    while (from < to)
        if (*from++ != POISON) return false;
    return true;
}

bool harness_buffer_intact(tutti_context *ctx, const harness_buffer *buffer)
{
    unsigned char *image = fetch(ctx, buffer);
    unsigned char *at = image; /* the end of the checked part */
    bool intact = true;
    for (int64_t row = 0; row < buffer->rows && intact; row++) {
        intact = all_poison(at, element(buffer, image, row, 0));
        at = element(buffer, image, row, buffer->cols);
    }
    intact = intact && all_poison(at, image + buffer->bytes);
    free(image);
    return intact;
}

bool harness_buffer_unchanged(tutti_context *ctx, const harness_buffer *buffer)
{
    unsigned char *image = fetch(ctx, buffer);
    bool same = memcmp(image, buffer->mirror, buffer->bytes) == 0;
    free(image);
    return same;
}

tutti_tensor harness_buffer_tensor(const harness_buffer *buffer)
{
    tutti_tensor tensor = tutti_tensor_2d(buffer->data, buffer->dtype, buffer->rows, buffer->cols);
    tensor.strides[0] = buffer->stride;
    return tensor;
}

/* Comparison */

bool harness_compare(const char *what, const double *got, const double *want, const double *bound,
                     int64_t count, const char *file, int line)
{
    int64_t worst = -1, wrong = 0;
    double worst_ratio = 0;
    for (int64_t i = 0; i < count; i++) {
        double ratio;
        if (isnan(want[i]) || isnan(got[i]))
            ratio = isnan(want[i]) && isnan(got[i]) ? 0 : INFINITY;
        else if (isinf(want[i]) || isinf(got[i]))
            ratio = got[i] == want[i] ? 0 : INFINITY;
        else {
            double error = fabs(got[i] - want[i]);
            ratio = error == 0 || error <= bound[i] ? 0
                    : bound[i] > 0                  ? error / bound[i]
                                                    : INFINITY;
        }
        if (ratio == 0) continue;
        wrong++;
        if (ratio > worst_ratio) {
            worst = i;
            worst_ratio = ratio;
        }
    }
    if (worst < 0) return true;
    return harness_check(false, file, line,
                         "%s: %lld of %lld elements are wrong; [%lld] is %.17g, want %.17g, "
                         "differs by %.3g where %.3g is allowed",
                         what, (long long)wrong, (long long)count, (long long)worst, got[worst],
                         want[worst], fabs(got[worst] - want[worst]), bound[worst]);
}

bool harness_waits(tutti_context *ctx, void (*call)(tutti_context *ctx, void *data), void *data)
{
    enum { TIMES = 200, TRIES = 3 };
    const size_t bytes = (size_t)1 << 29;
    void *work = NULL;
    bool waited = true;
    CHECK_OK(tutti_alloc(ctx, bytes, &work));
    for (int i = 0; work && waited && i < TRIES; i++) {
        CHECK_OK(tutti_context_synchronize(ctx));
        for (int k = 0; k < TIMES; k++) CHECK_OK(tutti_zero(ctx, work, bytes));
        const double begin = seconds();
        call(ctx, data);
        const double end = seconds();
        CHECK_OK(tutti_context_synchronize(ctx));
        waited = end - begin > seconds() - end;
    }
    CHECK_OK(tutti_free(ctx, &work));
    return waited;
}
