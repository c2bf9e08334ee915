/* A rank's device and communicator. */
#include "common/device.h"

#include <sched.h>
#include <stdlib.h>

#include "common/exit_code.h"
#include "common/options.h"
#include "common/report.h"

int app_device_threads(const app_group *group, int64_t wanted)
{
    cpu_set_t cores;
    if (wanted > 0 || getenv("OMP_NUM_THREADS")) return (int)wanted;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 0;
    const int share = CPU_COUNT(&cores) / group->local_size;
    return share > 1 ? share : 1;
}

int app_device_number(const app_group *group, tutti_backend backend)
{
    int devices = 0;
    if (backend == TUTTI_BACKEND_HOST ||
        tutti_device_count(TUTTI_BACKEND_CUDA, &devices) != TUTTI_OK || devices == 0)
        return 0;
    return group->local_rank % devices;
}

int app_device_open(const app_group *group, tutti_backend backend, int64_t threads,
                    tutti_context **ctx)
{
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = backend;
    desc.threads = app_device_threads(group, threads);
    desc.device = app_device_number(group, backend);
    return app_check(tutti_context_create(&desc, ctx));
}

int app_device_connect(const app_group *group, tutti_context *ctx, tutti_transport transport,
                       tutti_comm **comm)
{
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = transport;
    desc.timeout = group->timeout;
    if (transport == TUTTI_TRANSPORT_SELF && group->world_size > 1)
        return app_fail(APP_USAGE, "--transport is self, but there are %d ranks",
                        group->world_size);
    return app_check(tutti_comm_create(ctx, &desc, comm));
}

const char *app_backend_name(const tutti_context *ctx)
{
    return app_backends[tutti_context_backend(ctx)];
}

const char *app_transport_name(tutti_transport transport)
{
    return app_transports[transport];
}
