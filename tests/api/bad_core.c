/* Bad input for status.h, api.h, log.h, tensor.h, context.h and step.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bad_input.h"

/* api.h, status.h, log.h */

static void bad_version(void)
{
    char wanted[32];
    snprintf(wanted, sizeof wanted, "%d.%d.%d", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR,
             TUTTI_VERSION_PATCH);
    CHECK(strcmp(tutti_version(), wanted) == 0, "version is %s, want %s", tutti_version(), wanted);
}

static void bad_build_info(void)
{
    const char *info = tutti_build_info();
    CHECK(info && strstr(info, tutti_version()) && strstr(info, "host"), "build_info is '%s'",
          info ? info : "NULL");
    CHECK(strchr(info, '\n') != NULL, "build_info has one line only");
}

static void bad_status_string(void)
{
    CHECK(strcmp(tutti_status_string((tutti_status)99), "unknown status") == 0, "status 99 is %s",
          tutti_status_string((tutti_status)99));
    CHECK(strcmp(tutti_status_string((tutti_status)-1), "unknown status") == 0, "status -1 is %s",
          tutti_status_string((tutti_status)-1));
    CHECK(strcmp(tutti_status_string(TUTTI_ERR_ARG), "invalid argument") == 0, "%s",
          tutti_status_string(TUTTI_ERR_ARG));
}

static void bad_last_error(void)
{
    harness_forget_error();
    char before[256];
    snprintf(before, sizeof before, "%s", tutti_last_error());
    CHECK(before[0], "no message after a failure");
    double number = 1;
    float result;
    CHECK_OK(tutti_convert(&result, TUTTI_F32, &number, TUTTI_F64, 1));
    CHECK(strcmp(before, tutti_last_error()) == 0, "a success changed the message to '%s'",
          tutti_last_error());
    /* control sequences for terminals are removed */
    tutti_dtype dtype;
    CHECK_FAILS(TUTTI_ERR_ARG, "'?[31mf32?'", tutti_dtype_parse("\033[31mf32\n", &dtype));
}

static void bad_text_clean(void)
{
    static const struct {
        const char *given, *wanted;
    } cases[] = {
        {"", ""},
        {"plain text, \x7e", "plain text, ~"},
        {"Gr\u00fc\u00dfe \u00a0\u2026 \u03b3 \U0001d11e",
         "Gr\u00fc\u00dfe \u00a0\u2026 \u03b3 \U0001d11e"},
        {"\033[2J\r\n\t\b\x7f", "?[2J?????"},
        {"\xc2\x9b"
         "31m \x9b"
         "31m",
         "??31m ?31m"}, /* CSI in one byte, as UTF-8 and raw */
        {"\xc0\x9b \xe0\x80\x9b \xf0\x80\x80\x9b", "?? ??? ????"}, /* overlong */
        {"\xed\xa0\x80 \xf4\x90\x80\x80 \xff", "??? ???? ?"},      /* not characters */
        {"caf\xc3", "caf?"},
        {"\u202eegami.h5\u2028", "???egami.h5???"},
    };
    char text[64];
    for (int i = 0; i < HARNESS_COUNT(cases); i++) {
        snprintf(text, sizeof text, "%s", cases[i].given);
        CHECK(tutti_text_clean(text) == text && strcmp(text, cases[i].wanted) == 0,
              "case %d is '%s', want '%s'", i, text, cases[i].wanted);
    }
    CHECK(tutti_text_clean(NULL) == NULL, "NULL became something else");
}

static void count_line(void *user, tutti_log_level level, const char *message)
{
    (void)level, (void)message;
    ++*(int *)user;
}

static void bad_set_log(void)
{
    int lines = 0;
    tutti_set_log(NULL, NULL, TUTTI_LOG_DEBUG);
    tutti_set_log(count_line, &lines, (tutti_log_level)99); /* no message has such a level */
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = harness_backend();
    tutti_context *ctx = NULL;
    CHECK_OK(tutti_context_create(&desc, &ctx));
    tutti_context_destroy(&ctx);
    tutti_set_log(NULL, NULL, TUTTI_LOG_WARN);
    CHECK(lines == 0, "%d lines came at a level that does not exist", lines);
}

/* tensor.h */

static void bad_tensor_make(void)
{
    int64_t dims[5] = {2, 3, 4, 5, 6};
    tutti_tensor tensor = tutti_tensor_make(NULL, TUTTI_F32, 5, dims);
    CHECK(tutti_tensor_count(&tensor) == 0, "five dimensions count");
    tensor = tutti_tensor_make(NULL, TUTTI_F32, 0, dims);
    CHECK(tutti_tensor_count(&tensor) == 0, "no dimensions count");
    tensor = tutti_tensor_make(NULL, TUTTI_F32, -1, dims);
    CHECK(tutti_tensor_count(&tensor) == 0, "-1 dimensions count");
    tensor = tutti_tensor_make(NULL, TUTTI_F32, 2, NULL);
    CHECK(tutti_tensor_count(&tensor) == 0, "dims NULL count");
    tensor = tutti_tensor_make(dims, TUTTI_BF16, 3, dims);
    CHECK(tensor.data == dims && tensor.dtype == TUTTI_BF16 && tensor.ndim == 3 &&
              tensor.strides[0] == 12 && tensor.strides[1] == 4 && tensor.strides[2] == 1 &&
              tutti_tensor_count(&tensor) == 24,
          "a good view is wrong");
}

static void bad_tensor_1d(void)
{
    tutti_tensor tensor = tutti_tensor_1d(NULL, (tutti_dtype)99, -3);
    CHECK(tensor.ndim == 1 && tensor.dims[0] == -3 && tensor.strides[0] == 1,
          "a bad view is not what was asked for");
}

static void bad_tensor_2d(void)
{
    tutti_tensor tensor = tutti_tensor_2d(NULL, TUTTI_F32, 0, 7);
    CHECK(tensor.ndim == 2 && tensor.dims[0] == 0 && tensor.strides[0] == 7 &&
              tutti_tensor_count(&tensor) == 0,
          "a view of no rows is wrong");
}

static void bad_tensor_count(void)
{
    CHECK(tutti_tensor_count(NULL) == 0, "NULL counts");
    tutti_tensor tensor = tutti_tensor_1d(NULL, TUTTI_F32, 5);
    tensor.ndim = 77;
    CHECK(tutti_tensor_count(&tensor) == 0, "77 dimensions count");
}

static void bad_dtype_size(void)
{
    CHECK(tutti_dtype_size((tutti_dtype)99) == 0 && tutti_dtype_size((tutti_dtype)-1) == 0,
          "no type has a size");
}

static void bad_dtype_name(void)
{
    CHECK(strcmp(tutti_dtype_name((tutti_dtype)99), "unknown") == 0, "type 99 is %s",
          tutti_dtype_name((tutti_dtype)99));
    CHECK(strcmp(tutti_dtype_name((tutti_dtype)-1), "unknown") == 0, "type -1 is %s",
          tutti_dtype_name((tutti_dtype)-1));
}

static void bad_dtype_parse(void)
{
    tutti_dtype dtype = (tutti_dtype)77;
    static const char *const names[] = {"", "f31", "F32", " f32", "f32 ", "f3", "float"};
    for (int i = 0; i < HARNESS_COUNT(names); i++) {
        CHECK_FAILS(TUTTI_ERR_ARG, names[i], tutti_dtype_parse(names[i], &dtype));
        CHECK((int)dtype == 77, "dtype was written");
    }
    CHECK_FAILS(TUTTI_ERR_ARG, "name", tutti_dtype_parse(NULL, &dtype));
    CHECK_FAILS(TUTTI_ERR_ARG, "dtype", tutti_dtype_parse("f32", NULL));
}

static void bad_convert(void)
{
    float source[2] = {1, 2}, target[2] = {7, 8};
    CHECK_FAILS(TUTTI_ERR_ARG, "dst_dtype",
                tutti_convert(target, (tutti_dtype)99, source, TUTTI_F32, 2));
    CHECK_FAILS(TUTTI_ERR_ARG, "src_dtype",
                tutti_convert(target, TUTTI_F32, source, (tutti_dtype)-1, 2));
    CHECK_FAILS(TUTTI_ERR_ARG, "count", tutti_convert(target, TUTTI_F32, source, TUTTI_F32, -1));
    CHECK_FAILS(TUTTI_ERR_ARG, "dst", tutti_convert(NULL, TUTTI_F32, source, TUTTI_F32, 2));
    CHECK_FAILS(TUTTI_ERR_ARG, "src", tutti_convert(target, TUTTI_F32, NULL, TUTTI_F32, 2));
    CHECK_OK(tutti_convert(NULL, TUTTI_F32, NULL, TUTTI_F64, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "count is 9223372036854775807, more than memory can hold",
                tutti_convert(target, TUTTI_F32, source, TUTTI_F32, INT64_MAX));
    /* overlapping by one element, on either side, and in place */
    double room[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float *narrow = (float *)room;
    CHECK_FAILS(TUTTI_ERR_ARG, "dst and src overlap",
                tutti_convert(narrow, TUTTI_F32, room + 1, TUTTI_F64, 3));
    CHECK_FAILS(TUTTI_ERR_ARG, "dst and src overlap",
                tutti_convert(narrow + 5, TUTTI_F32, room, TUTTI_F64, 3));
    CHECK_FAILS(TUTTI_ERR_ARG, "dst and src overlap",
                tutti_convert(room + 2, TUTTI_F64, room, TUTTI_F64, 3));
    CHECK_FAILS(TUTTI_ERR_ARG, "dst and src overlap",
                tutti_convert(room, TUTTI_F32, room, TUTTI_F64, 3));
    CHECK(room[0] == 1 && room[2] == 3 && room[4] == 5, "a refused conversion has written");
    CHECK_OK(tutti_convert(narrow, TUTTI_F32, room + 2, TUTTI_F64, 3));
    CHECK_OK(tutti_convert(narrow + 6, TUTTI_F32, room, TUTTI_F64, 2));
    CHECK_OK(tutti_convert(room, TUTTI_F64, room, TUTTI_F64, 8));
    CHECK(target[0] == 7 && target[1] == 8, "dst was written");
}

/* context.h */

static void bad_device_count(void)
{
    int count = 77;
    CHECK_FAILS(TUTTI_ERR_ARG, "backend", tutti_device_count((tutti_backend)99, &count));
    CHECK_FAILS(TUTTI_ERR_ARG, "backend", tutti_device_count((tutti_backend)-1, &count));
    CHECK_FAILS(TUTTI_ERR_ARG, "count", tutti_device_count(TUTTI_BACKEND_HOST, NULL));
    CHECK(count == 77, "count was written");
    tutti_status status = tutti_device_count(TUTTI_BACKEND_CUDA, &count);
    CHECK(status == TUTTI_OK || (status == TUTTI_ERR_UNSUPPORTED && count == 77),
          "CUDA's devices: %s", tutti_last_error());
}

static void bad_context_create(void)
{
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = harness_backend();
    tutti_context *ctx = UNTOUCHED(tutti_context);
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_context_create(&desc, NULL));
    desc.backend = (tutti_backend)99;
    CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_ARG, "backend", tutti_context_create(&desc, &ctx));
    desc.backend = harness_backend();
    desc.device = -1;
    CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_DEVICE, "device", tutti_context_create(&desc, &ctx));
    desc.device = 1000;
    CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_DEVICE, "device", tutti_context_create(&desc, &ctx));
    desc.device = 0;
    desc.threads = -1;
    CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_ARG, "threads", tutti_context_create(&desc, &ctx));
    desc.threads = 1000000;
    CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_ARG, "threads", tutti_context_create(&desc, &ctx));
    int devices = 0;
    desc.threads = 0;
    desc.backend = TUTTI_BACKEND_CUDA;
    tutti_status status = tutti_device_count(TUTTI_BACKEND_CUDA, &devices);
    if (status == TUTTI_ERR_UNSUPPORTED)
        CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_UNSUPPORTED, "CUDA", tutti_context_create(&desc, &ctx));
    else if (devices == 0)
        CHECK_FAILS_KEEPING(ctx, TUTTI_ERR_DEVICE, "device", tutti_context_create(&desc, &ctx));
}

static void bad_context_destroy(void)
{
    tutti_context_destroy(NULL);
    tutti_context *ctx = NULL;
    tutti_context_destroy(&ctx);
    ctx = harness_new_context(0, 1);
    tutti_context_destroy(&ctx);
    CHECK(!ctx, "the pointer was not cleared");
}

static void bad_context_synchronize(void)
{
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_context_synchronize(NULL));
}

static void bad_context_check(void)
{
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_context_check(NULL));
}

static void bad_context_trim(void)
{
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_context_trim(NULL));
}

static void bad_context_tune(void)
{
    tutti_context *ctx = harness_context();
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_context_tune(NULL, 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "on is 2", tutti_context_tune(ctx, 2));
    CHECK_FAILS(TUTTI_ERR_ARG, "on is -1", tutti_context_tune(ctx, -1));
}

static void bad_context_tuning_get(void)
{
    char data[1];
    size_t bytes;
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_context_tuning_get(NULL, data, sizeof data, &bytes));
    CHECK_FAILS(TUTTI_ERR_ARG, "bytes",
                tutti_context_tuning_get(harness_context(), data, sizeof data, NULL));
}

static void bad_context_tuning_set(void)
{
    const char data[400] = "TuttiTun";
    tutti_context *ctx = harness_context();
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_context_tuning_set(NULL, data, sizeof data));
    CHECK_FAILS(TUTTI_ERR_ARG, "data", tutti_context_tuning_set(ctx, NULL, sizeof data));
    if (harness_backend() == TUTTI_BACKEND_HOST)
        CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "host",
                    tutti_context_tuning_set(ctx, data, sizeof data));
    else
        for (size_t bytes = 1; bytes <= sizeof data; bytes++)
            CHECK_FAILS(TUTTI_ERR_DATA, "damaged", tutti_context_tuning_set(ctx, data, bytes));
}

static void bad_context_backend(void)
{
    CHECK(tutti_context_backend(NULL) == TUTTI_BACKEND_AUTO, "NULL has a backend");
    CHECK(tutti_context_backend(harness_context()) == harness_backend(), "another backend");
}

static void bad_context_device(void)
{
    CHECK(tutti_context_device(NULL) == -1, "NULL has device %d", tutti_context_device(NULL));
    CHECK(tutti_context_device(harness_context()) == 0, "another device");
}

/* The device's memory, or the host's. */
typedef tutti_status alloc_function(tutti_context *ctx, size_t bytes, void **data);
typedef tutti_status free_function(tutti_context *ctx, void **data);

static void check_alloc(alloc_function *alloc, free_function *release)
{
    tutti_context *ctx = harness_context();
    void *data = UNTOUCHED(void);
    CHECK_FAILS_KEEPING(data, TUTTI_ERR_ARG, "ctx", alloc(NULL, 16, &data));
    CHECK_FAILS(TUTTI_ERR_ARG, "data", alloc(ctx, 16, NULL));
    CHECK_FAILS_KEEPING(data, TUTTI_ERR_ARG, "bytes", alloc(ctx, SIZE_MAX, &data));
    CHECK_FAILS(TUTTI_ERR_MEMORY, "bytes", alloc(ctx, (size_t)1 << 60, &data));
    data = UNTOUCHED(void);
    CHECK_OK(alloc(ctx, 0, &data));
    CHECK(!data, "0 bytes are not NULL");
    /* the context works after a failure */
    CHECK_OK(alloc(ctx, 1, &data));
    CHECK((uintptr_t)data % 256 == 0, "memory is not aligned to 256 bytes");
    CHECK_OK(release(ctx, &data));
}

static void check_free(alloc_function *alloc, free_function *release)
{
    tutti_context *ctx = harness_context();
    void *data = NULL;
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", release(NULL, &data));
    CHECK_FAILS(TUTTI_ERR_ARG, "data", release(ctx, NULL));
    CHECK_OK(release(ctx, &data));
    CHECK_OK(alloc(ctx, 8, &data));
    CHECK_OK(release(ctx, &data));
    CHECK(!data, "the pointer was not cleared");
}

static void bad_alloc(void)
{
    check_alloc(tutti_alloc, tutti_free);
}

static void bad_free(void)
{
    check_free(tutti_alloc, tutti_free);
}

static void bad_alloc_host(void)
{
    check_alloc(tutti_alloc_host, tutti_free_host);
}

static void bad_free_host(void)
{
    check_free(tutti_alloc_host, tutti_free_host);
}

static void bad_copy(void)
{
    tutti_context *ctx = harness_context();
    char from[4] = "abc", to[4] = "xyz";
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_copy(NULL, to, from, 4));
    CHECK_FAILS(TUTTI_ERR_ARG, "dst", tutti_copy(ctx, NULL, from, 4));
    CHECK_FAILS(TUTTI_ERR_ARG, "src", tutti_copy(ctx, to, NULL, 4));
    CHECK_OK(tutti_copy(ctx, NULL, NULL, 0));
    CHECK(strcmp(to, "xyz") == 0, "dst was written");
}

static void bad_zero(void)
{
    tutti_context *ctx = harness_context();
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_zero(NULL, ctx, 4));
    CHECK_FAILS(TUTTI_ERR_ARG, "data", tutti_zero(ctx, NULL, 4));
    CHECK_OK(tutti_zero(ctx, NULL, 0));
}

/* step.h */

static void bad_step_create(void)
{
    tutti_step_block *step = UNTOUCHED(tutti_step_block);
    CHECK_FAILS_KEEPING(step, TUTTI_ERR_ARG, "ctx", tutti_step_block_create(NULL, &step));
    CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_step_block_create(harness_context(), NULL));
}

static void bad_step_destroy(void)
{
    tutti_step_block_destroy(NULL);
    tutti_step_block *step = NULL;
    tutti_step_block_destroy(&step);
    CHECK_OK(tutti_step_block_create(harness_context(), &step));
    tutti_step_block_destroy(&step);
    CHECK(!step, "the pointer was not cleared");
}

static void bad_step_set(void)
{
    tutti_context *ctx = harness_context();
    tutti_step_block *step = NULL;
    CHECK_OK(tutti_step_block_create(ctx, &step));
    const tutti_step_values good = {.step = 1, .loss_weight = 1};
    CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_step_block_set(NULL, ctx, &good));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_step_block_set(step, NULL, &good));
    CHECK_FAILS(TUTTI_ERR_ARG, "values", tutti_step_block_set(step, ctx, NULL));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context", tutti_step_block_set(step, foreign_context(), &good));
    tutti_step_values bad = good;
    static const int64_t steps[] = {0, -1, INT64_MIN};
    for (int i = 0; i < HARNESS_COUNT(steps); i++) {
        bad.step = steps[i];
        CHECK_FAILS(TUTTI_ERR_ARG, "step is", tutti_step_block_set(step, ctx, &bad));
    }
    bad = good;
    static const double rates[] = {NAN, INFINITY, -INFINITY, -1e-9};
    for (int i = 0; i < HARNESS_COUNT(rates); i++) {
        bad.learning_rate = rates[i];
        CHECK_FAILS(TUTTI_ERR_ARG, "learning_rate", tutti_step_block_set(step, ctx, &bad));
    }
    bad = good;
    static const double weights[] = {NAN, INFINITY, -1, 0};
    for (int i = 0; i < HARNESS_COUNT(weights); i++) {
        bad.loss_weight = weights[i];
        CHECK_FAILS(TUTTI_ERR_ARG, "loss_weight", tutti_step_block_set(step, ctx, &bad));
    }
    bad = good;
    static const double scales[] = {NAN, INFINITY, -2, 3, 0.1};
    for (int i = 0; i < HARNESS_COUNT(scales); i++) {
        bad.loss_scale = scales[i];
        CHECK_FAILS(TUTTI_ERR_ARG, "loss_scale", tutti_step_block_set(step, ctx, &bad));
    }
    CHECK_OK(tutti_step_block_set(step, ctx, &good));
    tutti_step_block_destroy(&step);
}

static void bad_step_weigh(void)
{
    tutti_context *ctx = harness_context();
    tutti_step_block *step = NULL;
    CHECK_OK(tutti_step_block_create(ctx, &step));
    harness_buffer buffer = harness_buffer_make(ctx, TUTTI_F64, 1, 2, 0, 0);
    harness_buffer_put(ctx, &buffer, (double[]){4, 5});
    tutti_tensor count = tutti_tensor_1d(buffer.data, TUTTI_F64, 1), bad = count;
    CHECK_FAILS(TUTTI_ERR_STATE, "never set", tutti_step_block_weigh(step, ctx, &count));
    CHECK_OK(tutti_step_block_set(step, ctx, &(tutti_step_values){.step = 1, .loss_weight = 1}));
    CHECK_FAILS(TUTTI_ERR_ARG, "step", tutti_step_block_weigh(NULL, ctx, &count));
    CHECK_FAILS(TUTTI_ERR_ARG, "ctx", tutti_step_block_weigh(step, NULL, &count));
    CHECK_FAILS(TUTTI_ERR_ARG, "count is NULL", tutti_step_block_weigh(step, ctx, NULL));
    if (foreign_context())
        CHECK_FAILS(TUTTI_ERR_ARG, "context",
                    tutti_step_block_weigh(step, foreign_context(), &count));
    bad.dtype = TUTTI_I32;
    CHECK_FAILS(TUTTI_ERR_ARG, "want f64", tutti_step_block_weigh(step, ctx, &bad));
    bad = tutti_tensor_1d(buffer.data, TUTTI_F64, 2);
    CHECK_FAILS(TUTTI_ERR_ARG, "2 elements", tutti_step_block_weigh(step, ctx, &bad));
    bad.dims[0] = 0;
    CHECK_FAILS(TUTTI_ERR_ARG, "0 elements", tutti_step_block_weigh(step, ctx, &bad));
    bad = tutti_tensor_1d(NULL, TUTTI_F64, 1);
    CHECK_FAILS(TUTTI_ERR_ARG, "NULL", tutti_step_block_weigh(step, ctx, &bad));
    CHECK_OK(tutti_step_block_weigh(step, ctx, &count));
    CHECK_OK(tutti_context_synchronize(ctx));
    harness_buffer_free(ctx, &buffer);
    tutti_step_block_destroy(&step);
}

/* Nothing but its size: 0 is every default. */
static void bad_context_desc_default(void)
{
    tutti_context_desc desc = tutti_context_desc_default(), zero = {.size = sizeof zero};
    CHECK(memcmp(&desc, &zero, sizeof desc) == 0, "the default is not all 0");
}

const harness_test bad_core[] = {
    {"tutti_context_desc_default", bad_context_desc_default},
    {"tutti_version", bad_version},
    {"tutti_build_info", bad_build_info},
    {"tutti_status_string", bad_status_string},
    {"tutti_last_error", bad_last_error},
    {"tutti_text_clean", bad_text_clean},
    {"tutti_set_log", bad_set_log},
    {"tutti_tensor_make", bad_tensor_make},
    {"tutti_tensor_1d", bad_tensor_1d},
    {"tutti_tensor_2d", bad_tensor_2d},
    {"tutti_tensor_count", bad_tensor_count},
    {"tutti_dtype_size", bad_dtype_size},
    {"tutti_dtype_name", bad_dtype_name},
    {"tutti_dtype_parse", bad_dtype_parse},
    {"tutti_convert", bad_convert},
    {"tutti_device_count", bad_device_count},
    {"tutti_context_create", bad_context_create},
    {"tutti_context_destroy", bad_context_destroy},
    {"tutti_context_synchronize", bad_context_synchronize},
    {"tutti_context_check", bad_context_check},
    {"tutti_context_trim", bad_context_trim},
    {"tutti_context_tune", bad_context_tune},
    {"tutti_context_tuning_get", bad_context_tuning_get},
    {"tutti_context_tuning_set", bad_context_tuning_set},
    {"tutti_context_backend", bad_context_backend},
    {"tutti_context_device", bad_context_device},
    {"tutti_alloc", bad_alloc},
    {"tutti_free", bad_free},
    {"tutti_alloc_host", bad_alloc_host},
    {"tutti_free_host", bad_free_host},
    {"tutti_copy", bad_copy},
    {"tutti_zero", bad_zero},
    {"tutti_step_block_create", bad_step_create},
    {"tutti_step_block_destroy", bad_step_destroy},
    {"tutti_step_block_set", bad_step_set},
    {"tutti_step_block_weigh", bad_step_weigh},
    {NULL, NULL},
};
