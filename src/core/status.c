/* Statuses, the thread's message, the log callback, and the small helpers of internal.h. */
#include "core/layer.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tutti/api.h"

static _Thread_local char last_error[1024];
static _Thread_local tutti_call_place last_place;

const char *tutti_status_string(tutti_status status)
{
    switch (status) {
#define TUTTI_X(name, text) \
    case name:              \
        return text;
        TUTTI_STATUS_LIST(TUTTI_X)
#undef TUTTI_X
    }
    return "unknown status";
}

const char *tutti_last_error(void)
{
    return last_error;
}

tutti_status tutti__fail(tutti_status status, const char *format, ...)
{
    /* an argument may be the previous message, so the new one is not written over it yet */
    char text[sizeof last_error];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(last_error, sizeof last_error, "%s", tutti_text_clean(text));
    last_place = (tutti_call_place){TUTTI_PART_NONE, 0};
    return status;
}

void tutti__blame(tutti_call_part part, int index)
{
    last_place = (tutti_call_place){part, index};
}

tutti_call_place tutti_last_error_place(void)
{
    return last_place;
}

tutti_status tutti__desc_read(void *own, size_t own_size, const void *given, const char *function)
{
    memset(own, 0, own_size);
    if (!given) return TUTTI_OK;
    size_t size = *(const size_t *)given;
    if (size == 0) size = own_size;
    /* a later version's may have more fields, but not as many as a number that belongs in one */
    TUTTI_REQUIRE(size >= sizeof size && size <= own_size + 128,
                  "%s: size, the descriptor's first field, is %zu, want 0 or its sizeof; give "
                  "fields by name",
                  function, size);
    for (size_t i = own_size; i < size; i++)
        TUTTI_REQUIRE(((const char *)given)[i] == 0,
                      "%s: the descriptor has %zu bytes, this library knows %zu, and the rest is "
                      "not 0: the program was compiled for a newer one",
                      function, size, own_size);
    memcpy(own, given, size < own_size ? size : own_size);
    *(size_t *)own = own_size;
    return TUTTI_OK;
}

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static tutti_log_fn log_fn;
static void *log_user;
static tutti_log_level log_least;

void tutti_set_log(tutti_log_fn fn, void *user, tutti_log_level least)
{
    pthread_mutex_lock(&log_lock);
    log_fn = fn;
    log_user = user;
    log_least = least;
    pthread_mutex_unlock(&log_lock);
}

void tutti__log(tutti_log_level level, const char *format, ...)
{
    pthread_mutex_lock(&log_lock);
    tutti_log_fn fn = log_fn;
    void *user = log_user;
    tutti_log_level least = log_least;
    pthread_mutex_unlock(&log_lock);
    if (!fn || level < least) return;

    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fn(user, level, tutti_text_clean(text));
}

void tutti__sleep(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

uint64_t tutti__hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}
