/* A rank's device and communicator. */
#ifndef TUTTI_APPS_DEVICE_H
#define TUTTI_APPS_DEVICE_H

#include "common/group.h"

/* Host threads of this rank: `wanted` if above 0; 0 (OpenMP decides) if OMP_NUM_THREADS is set;
 * otherwise the rank's share of the cores it may use. */
int app_device_threads(const app_group *group, int64_t wanted);

/* This rank's GPU, as the ranks of a machine take its GPUs in turn; 0 on the host. */
int app_device_number(const app_group *group, tutti_backend backend);
/* Creates a context on that device.  Not collective. */
int app_device_open(const app_group *group, tutti_backend backend, int64_t threads,
                    tutti_context **ctx);

/* Creates a communicator.  APP_USAGE for self with several ranks.  Collective. */
int app_device_connect(const app_group *group, tutti_context *ctx, tutti_transport transport,
                       tutti_comm **comm);

/* "host" or "cuda" */
const char *app_backend_name(const tutti_context *ctx);
/* "self", "mpi", "nccl" */
const char *app_transport_name(tutti_transport transport);

#endif
