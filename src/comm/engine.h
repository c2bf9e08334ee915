/* Engines: how ranges of gradients that are complete on this rank become sums over all ranks. */
#ifndef TUTTI_COMM_ENGINE_H
#define TUTTI_COMM_ENGINE_H

#include "comm/leaves.h"
#include "comm/ranges.h"
#include "comm/timeline.h"
#include "comm/transport.h"

typedef struct tutti__engine tutti__engine;

typedef struct tutti__engine_range {
    tutti__range gradient; /* what is summed: buffer and type */
    struct {
        char *data; /* this rank's share, and in the end the sum */
        tutti_dtype dtype;
    } wire;        /* what travels; the gradient itself where an engine does not say otherwise */
    size_t offset; /* its place in memory of flat_bytes */
    tutti__work work;
} tutti__engine_range;

/* Called so: open, then in each step begin, issue of all ranges in their order, finish; close.
 * Entries may be NULL: nothing to do.  Merge, issue and advance never wait for other ranks. */
typedef struct tutti__engine_table {
    tutti_status (*open)(tutti__engine *engine);
    tutti_status (*begin)(tutti__engine *engine, tutti_context *ctx);
    /* In a leaf a range is complete on ctx: it joins this rank's earlier ones. */
    tutti_status (*merge)(tutti__engine *engine, tutti_context *ctx, int range, int leaf);
    /* Ranges, complete on ctx, set out. */
    tutti_status (*issue)(tutti__engine *engine, tutti_context *ctx, int first, int last);
    /* Moves on what is under way. */
    tutti_status (*advance)(tutti__engine *engine);
    /* Makes ctx wait for the sums of these ranges, which have been issued, or waits for them; after
     * a finish, of its step's. */
    tutti_status (*wait)(tutti__engine *engine, tutti_context *ctx, int first, int last);
    tutti_status (*finish)(tutti__engine *engine, tutti_context *ctx);
    /* No finish follows what has been issued. */
    void (*abandon)(tutti__engine *engine);
    /* True: nothing is under way any more, memory can be freed.  After a failed open, too. */
    bool (*close)(tutti__engine *engine);

    /* What the engines `stream` and `host` do for a range: start a round of messages; when they
     * have arrived, what follows, and whether another round does. */
    tutti_status (*start)(tutti__engine *engine, int range);
    tutti_status (*arrived)(tutti__engine *engine, int range, bool *another);
} tutti__engine_table;

struct tutti__engine {
    const tutti__engine_table *table, *carrier; /* carrier: for the transport, in fast mode */
    tutti_comm *comm;
    tutti__engine_range *ranges;
    int range_count;
    size_t flat_bytes; /* of all ranges, each at its offset */
    const tutti__leaves *leaves;
    tutti__timeline *times; /* NULL: nobody asks */
    int threads;            /* of the context that began the step */
    int issued;             /* the first so many ranges */
    bool in_step;           /* between begin and finish */
    bool staged;            /* device memory travels through host memory */
    int64_t bytes_sent;
    double wait_seconds;
    void *duplicate; /* the transport's, for this exchange */
    /* This rank's roots beside the last (none in fast mode), flat_bytes each: on the device, and
     * where they travel from. */
    int roots;
    char *device_roots, *wire_roots;
    void *state, *tree; /* the engine's own, and the tree's beside it */
};

extern const tutti__engine_table tutti__local_engine, tutti__stream_engine, tutti__host_engine,
    tutti__tree_engine;

static inline size_t tutti__engine_bytes(const tutti__engine_range *range)
{
    return (size_t)range->gradient.count * tutti__size_of(range->gradient.dtype);
}

/* start of engines without leaves: the transport's all-reduce. */
tutti_status tutti__engine_all_reduce(tutti__engine *engine, int range);

#endif
