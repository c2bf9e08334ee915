/* The version, and what the library was built with and finds at run time. */
#include <stdio.h>
#include <string.h>

#include "core/backend.h"
#include "core/version.h"
#include "tutti/api.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *tutti_version(void)
{
    return TEXT(TUTTI_VERSION_MAJOR) "." TEXT(TUTTI_VERSION_MINOR) "." TEXT(TUTTI_VERSION_PATCH);
}

typedef void (*describe_fn)(char *text, size_t size);

static void no_cuda(char *text, size_t size)
{
    snprintf(text, size, "cuda: not built");
}
static void no_mpi(char *text, size_t size)
{
    snprintf(text, size, "mpi: not built");
}
static void no_nccl(char *text, size_t size)
{
    snprintf(text, size, "nccl: not built");
}

const char *tutti_build_info(void)
{
    static _Thread_local char text[2048];
    describe_fn parts[] = {
        tutti__host_backend.run.describe,
#ifdef TUTTI_WITH_CUDA
        tutti__cuda_backend.run.describe,
#else
        no_cuda,
#endif
#ifdef TUTTI_WITH_MPI
        tutti__mpi_describe,
#else
        no_mpi,
#endif
#ifdef TUTTI_WITH_NCCL
        tutti__nccl_describe,
#else
        no_nccl,
#endif
        tutti__io_describe,
    };
    (void)no_cuda, (void)no_mpi, (void)no_nccl;
    size_t used = (size_t)snprintf(text, sizeof text, "tutti %s", tutti_version());
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && used + 1 < sizeof text; i++) {
        text[used++] = '\n';
        text[used] = 0;
        parts[i](text + used, sizeof text - used);
        used += strlen(text + used);
    }
    return text;
}
