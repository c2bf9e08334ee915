/* The host backend's table and its run-time functions.  Work is complete when a call returns, so
 * streams are NULL and an event is the time at which it was recorded. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "kernels/host/host.h"

typedef struct host_event {
    double time; /* seconds */
} host_event;

static tutti_status device_count(int *count)
{
    *count = 1;
    return TUTTI_OK;
}

static void describe(char *text, size_t size)
{
    snprintf(text, size, "host: %d threads, %s", omp_get_max_threads(), openblas_get_config());
}

static tutti_status stream_create(int device, bool priority, tutti__stream *stream)
{
    (void)device, (void)priority;
    *stream = NULL;
    return TUTTI_OK;
}

static void stream_destroy(int device, tutti__stream stream)
{
    (void)device, (void)stream;
}

static tutti_status stream_query(int device, tutti__stream stream, bool *done)
{
    (void)device, (void)stream;
    *done = true;
    return TUTTI_OK;
}

static tutti_status stream_synchronize(int device, tutti__stream stream)
{
    (void)device, (void)stream;
    return TUTTI_OK;
}

static tutti_status stream_capturing(int device, tutti__stream stream, bool *capturing)
{
    (void)device, (void)stream;
    *capturing = false;
    return TUTTI_OK;
}

static tutti_status event_create(int device, bool timing, tutti__event *event)
{
    (void)device, (void)timing;
    *event = calloc(1, sizeof(host_event));
    if (!*event) return tutti__fail(TUTTI_ERR_MEMORY, "host: no memory for an event");
    return TUTTI_OK;
}

static void event_destroy(int device, tutti__event event)
{
    (void)device;
    free(event);
}

static tutti_status event_record(int device, tutti__event event, tutti__stream stream)
{
    (void)device, (void)stream;
    ((host_event *)event)->time = tutti__now();
    return TUTTI_OK;
}

static tutti_status event_query(int device, tutti__event event, bool *done)
{
    (void)device, (void)event;
    *done = true;
    return TUTTI_OK;
}

static tutti_status event_elapsed(int device, tutti__event begin, tutti__event end, double *ms)
{
    (void)device;
    *ms = (((host_event *)end)->time - ((host_event *)begin)->time) * 1e3;
    return TUTTI_OK;
}

static tutti_status stream_wait_event(int device, tutti__stream stream, tutti__event event)
{
    (void)device, (void)stream, (void)event;
    return TUTTI_OK;
}

static tutti_status host_memory(int device, size_t bytes, void **data)
{
    (void)device;
    *data = NULL;
    if (bytes > PTRDIFF_MAX || posix_memalign(data, 256, bytes) != 0) {
        *data = NULL;
        return tutti__fail(TUTTI_ERR_MEMORY, "host: no memory for %zu bytes", bytes);
    }
    return TUTTI_OK;
}

static void host_free(int device, void *data)
{
    (void)device;
    free(data);
}

static tutti_status copy(int device, tutti__stream stream, void *dst, const void *src, size_t bytes)
{
    (void)device, (void)stream;
    if (bytes > 0) memmove(dst, src, bytes);
    return TUTTI_OK;
}

static tutti_status zero(int device, tutti__stream stream, void *data, size_t bytes)
{
    (void)device, (void)stream;
    if (bytes > 0) memset(data, 0, bytes);
    return TUTTI_OK;
}

const tutti__backend tutti__host_backend = {
    .name = "host",
    .kind = TUTTI_BACKEND_HOST,
    .run =
        {
            .device_count = device_count,
            .describe = describe,
            .stream_create = stream_create,
            .stream_destroy = stream_destroy,
            .stream_query = stream_query,
            .stream_synchronize = stream_synchronize,
            .stream_capturing = stream_capturing,
            .event_create = event_create,
            .event_destroy = event_destroy,
            .event_record = event_record,
            .event_query = event_query,
            .event_elapsed = event_elapsed,
            .stream_wait_event = stream_wait_event,
            .alloc = host_memory,
            .free = host_free,
            .host_alloc = host_memory,
            .host_free = host_free,
            .copy = copy,
            .zero = zero,
        },
    .op =
        {
#define TUTTI_X(name) .name = &tutti__host_##name,
            TUTTI__OPS(TUTTI_X)
#undef TUTTI_X
                .tree_sum = tutti__host_tree_sum,
            .hash = tutti__host_hash,
            .convert = tutti__host_convert,
            .count_labels = tutti__host_count_labels,
            .weigh = tutti__host_weigh,
        },
};
