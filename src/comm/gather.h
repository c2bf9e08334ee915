/* The values of a sharded store where ranks share device memory: each rank writes those of its
 * slices into the other ranks' memory. */
#ifndef TUTTI_COMM_GATHER_H
#define TUTTI_COMM_GATHER_H

#include "comm/engine.h"
#include "core/params.h"

typedef struct tutti__gather {
    const tutti__engine *engine;
    tutti_params *params;
    bool shared; /* false: the values are not, and nothing is open */
    bool begun;
    int64_t sequence;
    void **rounded, **masters; /* as in `replicas`, but in host memory */
    tutti__shard_replicas replicas;

    /* Where values may travel beside what follows an update: in groups, number 0 all of small
     * ranges, which the update writes; then the others, those that forward reads first first. */
    int groups;  /* 0: they may not */
    int *ranges; /* of each group but the first */
    tutti__stream send, arrive;
    tutti__event early; /* NULL, or when an update has written groups 0 and 1: its last slices */
    tutti__event updated, sent;
    tutti__event *arrived;  /* after each group; the last one after all of this rank's are sent */
    uint64_t number, round; /* its own; of the last update that left values on their way, or 0 */
    bool beside;            /* the one that has begun will */
    bool captured;          /* one has been, whose replays wait for none on their way */
} tutti__gather;

/* Collective.  The engine's peers are open.  Logs why where a rank's values cannot be shared.
 * beside: values may be on their way when end has returned. */
tutti_status tutti__gather_open(tutti__gather *gather, const tutti__engine *engine,
                                tutti_params *params, bool beside);
/* Before the engine's close, after tutti__comm_drain. */
void tutti__gather_close(tutti__gather *gather);

/* In stream order of ctx.  begin: the values of other ranks' slices may be written from here on,
 * there and here; met: all ranks have met on ctx since they read any.  end: all values are here, or
 * on their way; those of this rank that have not been written to the replicas are copied. */
tutti_status tutti__gather_begin(tutti__gather *gather, tutti_context *ctx, bool met);
tutti_status tutti__gather_end(tutti__gather *gather, tutti_context *ctx, bool written);
/* As a link's await. */
tutti_status tutti__gather_await(tutti__gather *gather, tutti_context *ctx, int group);

#endif
