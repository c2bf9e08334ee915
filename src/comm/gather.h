/* The values of a sharded store by copy engines: each rank writes those of its slices into the
 * other ranks' memory, a slice when its update has ended. */
#ifndef TUTTI_COMM_GATHER_H
#define TUTTI_COMM_GATHER_H

#include "comm/engine.h"
#include "core/params.h"

typedef struct tutti__gather {
    const tutti__engine *engine;
    const tutti_params *params;
    bool copies; /* false: not by copy engines, and nothing is open */
    bool begun;
    int sent; /* own slices */
    int64_t sequence;
    void **values, **masters; /* by rank: rounded values; those that are masters, from the first */
    tutti__stream push, arrive;
    tutti__event fork, updated, pushed, arrived;
} tutti__gather;

/* Collective.  The engine's peers are open.  Logs why copies are not used where a rank's values
 * cannot be shared. */
tutti_status tutti__gather_open(tutti__gather *gather, const tutti__engine *engine,
                                const tutti_params *params);
/* Before the engine's close, after tutti__comm_drain.  Waits for copies under way. */
void tutti__gather_close(tutti__gather *gather);

/* In stream order of ctx.  begin: the values of other ranks' slices may be written from here on.
 * send: those of own slice number `index` are final; in order.  end: all values are here; begins
 * and sends what has not been. */
tutti_status tutti__gather_begin(tutti__gather *gather, tutti_context *ctx);
tutti_status tutti__gather_send(tutti__gather *gather, tutti_context *ctx, int index);
tutti_status tutti__gather_end(tutti__gather *gather, tutti_context *ctx);

#endif
