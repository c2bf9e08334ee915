/* The values of a sharded store where ranks share device memory: each rank writes those of its
 * slices into the other ranks' memory. */
#ifndef TUTTI_COMM_GATHER_H
#define TUTTI_COMM_GATHER_H

#include "comm/engine.h"
#include "core/params.h"

typedef struct tutti__gather {
    const tutti__engine *engine;
    const tutti_params *params;
    bool shared; /* false: the values are not, and nothing is open */
    bool begun;
    int64_t sequence;
    void **rounded, **masters; /* as in `replicas`, but in host memory */
    tutti__shard_replicas replicas;
} tutti__gather;

/* Collective.  The engine's peers are open.  Logs why where a rank's values cannot be shared. */
tutti_status tutti__gather_open(tutti__gather *gather, const tutti__engine *engine,
                                const tutti_params *params);
/* Before the engine's close, after tutti__comm_drain. */
void tutti__gather_close(tutti__gather *gather);

/* In stream order of ctx.  begin: the values of other ranks' slices may be written from here on,
 * there and here.  end: all values are here; unless this rank's have been written to the replicas,
 * they are copied first. */
tutti_status tutti__gather_begin(tutti__gather *gather, tutti_context *ctx);
tutti_status tutti__gather_end(tutti__gather *gather, tutti_context *ctx, bool written);

#endif
