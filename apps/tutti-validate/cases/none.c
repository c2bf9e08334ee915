/* Case files in builds without HDF5. */
#include "cases.h"
#include "common/exit_code.h"
#include "common/report.h"

static int unsupported(void)
{
    return app_fail(APP_FAILED, "case files: built without HDF5; install HDF5 and xxhash "
                                "(libhdf5-dev and libxxhash-dev on Debian) and build it again");
}

int tutti_cases_open(const char *path, tutti_cases **cases)
{
    (void)path, (void)cases;
    return unsupported();
}

void tutti_cases_close(tutti_cases **cases)
{
    (void)cases;
}

int tutti_cases_count(const tutti_cases *cases)
{
    (void)cases;
    return 0;
}

const tutti_case *tutti_cases_get(const tutti_cases *cases, int index)
{
    (void)cases, (void)index;
    return NULL;
}

int tutti_cases_read(const tutti_cases *cases, const tutti_case_tensor *tensor, int64_t first,
                     int64_t count, tutti_dtype dtype, void *data)
{
    (void)cases, (void)tensor, (void)first, (void)count, (void)dtype, (void)data;
    return unsupported();
}

int tutti_cases_writer_create(const char *path, const char *format, tutti_cases_writer **writer)
{
    (void)path, (void)format, (void)writer;
    return unsupported();
}

int tutti_cases_writer_add(tutti_cases_writer *writer, const tutti_case *test_case)
{
    (void)writer, (void)test_case;
    return unsupported();
}

int tutti_cases_writer_tensor(tutti_cases_writer *writer, const tutti_case_tensor *tensor,
                              tutti_dtype stored, const void *data)
{
    (void)writer, (void)tensor, (void)stored, (void)data;
    return unsupported();
}

int tutti_cases_writer_finish(tutti_cases_writer *writer)
{
    (void)writer;
    return unsupported();
}

void tutti_cases_writer_destroy(tutti_cases_writer **writer)
{
    (void)writer;
}
