/* A rank's device, and its way to the others. */
#ifndef TUTTI_APPS_DEVICE_H
#define TUTTI_APPS_DEVICE_H

#include "common/group.h"

/* Host threads of this rank: `wanted`, or 0, OpenMP's own choice, where the user made one;
 * otherwise the rank's share of the cores it may use. */
int app_device_threads(const app_group *group, int64_t wanted);

/* The ranks of a machine take its GPUs in turn: the number of this rank's; 0 on the host. */
int app_device_number(const app_group *group, tutti_backend backend);
/* A context there.  Not collective. */
int app_device_open(const app_group *group, tutti_backend backend, int64_t threads,
                    tutti_context **ctx);

/* APP_USAGE for self with several ranks.  Collective. */
int app_device_connect(const app_group *group, tutti_context *ctx, tutti_transport transport,
                       tutti_comm **comm);

/* "host" or "cuda" */
const char *app_backend_name(const tutti_context *ctx);
/* "self", "mpi", "nccl" */
const char *app_transport_name(tutti_transport transport);

#endif
