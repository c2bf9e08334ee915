/* Engines: how ranges of gradients that are complete on this rank become sums over all ranks. */
#ifndef TUTTI_COMM_ENGINE_H
#define TUTTI_COMM_ENGINE_H

#include "comm/hop.h"
#include "comm/leaves.h"
#include "comm/ranges.h"
#include "comm/timeline.h"
#include "comm/transport.h"
#include "tutti/grad_sync.h"

typedef struct tutti__engine tutti__engine;

typedef struct tutti__engine_range {
    tutti__range gradient; /* what is summed: buffer and type */
    struct {
        char *data; /* this rank's share, and in the end the sum */
        tutti_dtype dtype;
    } wire;        /* what travels: the gradient itself unless the engine copies it */
    size_t offset; /* of the range in a buffer of flat_bytes */
    tutti__work work;
} tutti__engine_range;

/* What some leaves, one after another, give of a range: elements [begin, begin + count). */
typedef struct tutti__leaf_part {
    int first, leaves;
    int span; /* leaves that are added already; with 2, first and leaves are even */
    int64_t begin, count;
    const char *data; /* the first leaves'; the next ones' lie `apart` bytes on */
    size_t apart;
} tutti__leaf_part;

/* Order of calls: open; in each step begin, issue of all ranges in order, finish; close.  An entry
 * may be NULL if there is nothing to do.  The host waits for no other rank in merge, issue
 * and advance. */
typedef struct tutti__engine_table {
    tutti_status (*open)(tutti__engine *engine);
    tutti_status (*begin)(tutti__engine *engine, tutti_context *ctx);
    /* Leaves are complete on ctx: merges them with this rank's earlier ones. */
    tutti_status (*merge)(tutti__engine *engine, tutti_context *ctx, int range,
                          const tutti__leaf_part *part);
    /* Starts the exchange of ranges that are complete on ctx. */
    tutti_status (*issue)(tutti__engine *engine, tutti_context *ctx, int first, int last);
    /* Drives what is under way. */
    tutti_status (*advance)(tutti__engine *engine);
    /* Waits for the sums of these ranges, which have been issued, or makes ctx wait; after finish,
     * for those of the finished step. */
    tutti_status (*wait)(tutti__engine *engine, tutti_context *ctx, int first, int last);
    tutti_status (*finish)(tutti__engine *engine, tutti_context *ctx);
    /* The step is given up: no finish follows. */
    void (*abandon)(tutti__engine *engine);
    /* True if nothing is under way any more, so memory can be freed.  Also called after a failed
     * open. */
    bool (*close)(tutti__engine *engine);

    /* Per range, for the engines `stream` and `host`: start begins a round of messages; arrived
     * handles them and tells whether another round follows. */
    tutti_status (*start)(tutti__engine *engine, int range);
    tutti_status (*arrived)(tutti__engine *engine, int range, bool *another);
    /* Instead of arrived where sums are late, or spread: adds what these ranges' messages have
     * brought.  With peers, room: tells them that it has been added, where they wait for that. */
    tutti_status (*add)(tutti__engine *engine, int first, int last);
    /* With peers, before start: waits on the stream of the moves until other ranks have a place for
     * the range's pieces. */
    tutti_status (*place)(tutti__engine *engine, int range);
    tutti_status (*room)(tutti__engine *engine, tutti__stream stream);
    /* Where sums spread: sends the range's, which this rank has added, to all others. */
    tutti_status (*spread)(tutti__engine *engine, int range);
} tutti__engine_table;

struct tutti__engine {
    const tutti__engine_table *table, *carrier; /* carrier: the transport's, as in fast mode */
    tutti_comm *comm;
    tutti__engine_range *ranges;
    int range_count;
    size_t flat_bytes; /* all ranges, each at its offset */
    const tutti__leaves *leaves;
    tutti__timeline *times; /* NULL: not recorded */
    int threads;            /* of the context that began the step */
    int issued;             /* ranges issued in this step */
    int issuing[2];         /* the first and the last of the last call of issue */
    int followed;           /* the first so many ranges: other ranks' pieces have been awaited */
    bool more;              /* backward went on behind the last parameters that were ready */
    bool in_step;           /* between begin and finish */
    bool staged;            /* device memory travels through host memory */
    int at_once;            /* ranges under way at a time; 0: any number */
    int shards;             /* sharded: each rank wants the sums of its slices only; 0: all */
    bool late;              /* sums are added from finish or wait on, not during backward */
    bool spreads;           /* copy engines: sums are added between backward's products, by the rank
                             * that has the slice, which sends them to all */
    char *base;             /* of the store's gradients; NULL: a list's */
    bool plain;             /* no rank's gradients lie in memory that is registered with NCCL */
    tutti_engine mover;     /* asked for */
    tutti__peers *peers;    /* copy engines move; NULL: the transport does */
    tutti__hop hop;         /* for small sums of gradients, or of a sharded store's squares */
    /* Sharded, and nothing changes sums until they are used: on the device, the squares of each run
     * of the store's gradients, 0 for other ranks'; otherwise NULL. */
    double *squares;
    bool narrow;    /* wires are bf16 in memory of their own, gradients f32 */
    char *narrowed; /* that memory; staged: of one wire on the device */
    int64_t bytes_sent, bytes_held;
    double wait_seconds;
    void *duplicate; /* the transport's, for this exchange */
    /* This rank's roots but the last (none in fast mode), flat_bytes each: on the device, and where
     * they are sent from. */
    int roots;
    char *device_roots, *wire_roots;
    void *state, *tree; /* the engine's, and the tree's in reproducible mode */
};

extern const tutti__engine_table tutti__local_engine, tutti__stream_engine, tutti__host_engine,
    tutti__tree_engine;

static inline size_t tutti__engine_bytes(const tutti__engine_range *range)
{
    return (size_t)range->gradient.count * tutti__size_of(range->gradient.dtype);
}

static inline size_t tutti__engine_wire_bytes(const tutti__engine_range *range)
{
    return (size_t)range->gradient.count * tutti__size_of(range->wire.dtype);
}

/* While backward runs, the engine's stream only moves pieces, on which no sum follows there. */
static inline bool tutti__engine_only_moves(const tutti__engine *engine)
{
    return engine->late || engine->spreads;
}

/* Not cut into slices: small ranges are sent whole, and every rank adds all of them. */
bool tutti__engine_whole(const tutti__engine *engine, const tutti__engine_range *range);
/* The elements of a range that a rank adds. */
tutti__span tutti__engine_slice(const tutti__engine *engine, const tutti__engine_range *range,
                                int rank);

/* Where sums spread: ranges whose bf16 wires have memory of their own. */
enum { TUTTI__WIRES = 4 };
/* Rounds a range's gradient to bf16, as it will travel, and widens the sum (sharded: this rank's
 * slice of it) again. */
tutti_status tutti__engine_narrow(tutti__engine *engine, int range, tutti__stream stream, void *to);
tutti_status tutti__engine_widen(const tutti__engine *engine, int range, tutti__stream stream,
                                 const void *from);

/* Words of peers, of the rank that awaits them, by the rank that posts them.  Of a step: its pieces
 * of a range have arrived; there is room for pieces.  Of a gather of values: they have arrived;
 * they may be written.
 *
 * No word is posted again before it has been awaited.  In a step a rank awaits all others' room
 * before it sends the first range's pieces, which is room for all that have memory of their own;
 * before those of a range that take the place of the range before it awaits all others' pieces of
 * that one: they have been sent to all, and so have left room.  It sends pieces of every range,
 * empty ones too (those of small ranges that are ready last at once, and their words together), and
 * in the end it awaits all others' that it has not yet.  Room is posted when all pieces have been
 * added, for the next step.  A range's pieces wait for nothing but what the other ranks send before
 * that range, so that ranks never wait for each other in a circle.  In a gather a rank posts room,
 * awaits the others' room, sends and posts values, and awaits the others' values: the same, but
 * that room is posted first.  An update's needs no room: the sum of squares before it ends once
 * every rank has come that far, and has awaited all values before (a replay's values are never on
 * their way, and no later update's).
 *
 * Where sums spread, all pieces have memory of their own, and no room is awaited: a rank sends its
 * pieces of a range, awaits the others', adds them, sends the sum, and in the end awaits the
 * others' sums.  A sum follows the other rank's pieces of that range, in whose place it is written,
 * and pieces of the next step the sum of this one, which was sent when those of this step had been
 * added.  A rank awaits pieces of a range only when it has sent its own of that range and the sums
 * of those before, which the other needs in order to send them. */
static inline int tutti__word_piece(const tutti__engine *engine, int range, int rank)
{
    return range * engine->comm->world_size + rank;
}
static inline int tutti__word_room(const tutti__engine *engine, int rank)
{
    return tutti__word_piece(engine, engine->range_count, rank);
}
static inline int tutti__word_values(const tutti__engine *engine, int rank)
{
    return tutti__word_piece(engine, engine->range_count + 1, rank);
}
static inline int tutti__word_values_room(const tutti__engine *engine, int rank)
{
    return tutti__word_piece(engine, engine->range_count + 2, rank);
}
/* Those of a range: where values travel beside what follows an update; and sums that spread, of
 * stores that have no such values. */
static inline int tutti__word_range_values(const tutti__engine *engine, int range, int rank)
{
    return tutti__word_piece(engine, engine->range_count + 3 + range, rank);
}
static inline int tutti__word_sum(const tutti__engine *engine, int range, int rank)
{
    return tutti__word_range_values(engine, range, rank);
}
static inline int tutti__word_count(const tutti__engine *engine)
{
    return tutti__word_piece(engine, 2 * engine->range_count + 3, 0);
}

/* Awaits the words of all other ranks, of which `first` is rank 0's, and as many of each as there
 * are `rows` of words of all ranks; posts these words on all other ranks.  idle: as for peers. */
tutti_status tutti__engine_await(const tutti__engine *engine, tutti__stream stream, int first,
                                 int rows, bool idle, const char *operation, int64_t sequence);
tutti_status tutti__engine_post(const tutti__engine *engine, tutti__stream stream, const int *words,
                                int count, bool idle);
/* Posts one word on all other ranks, then awaits as engine_await does; one operation of the
 * stream's up to TUTTI__PEERS_WORDS_MAX words, `rows` for each rank. */
tutti_status tutti__engine_meet(const tutti__engine *engine, tutti__stream stream, int word,
                                int first, int rows, const char *operation, int64_t sequence);
/* Copies to other ranks' memory: engine_send collects them, and enqueues them whenever there are
 * TUTTI__COPIES_MAX, as engine_sent does with those that are left.  idle: by a kernel. */
typedef struct tutti__sends {
    tutti__copy copies[TUTTI__COPIES_MAX];
    int count;
    tutti__stream stream;
    bool idle;
} tutti__sends;
tutti_status tutti__engine_send(const tutti__engine *engine, tutti__sends *sends, void *dst,
                                const void *src, size_t bytes);
tutti_status tutti__engine_sent(const tutti__engine *engine, tutti__sends *sends);

/* start of engines without leaves: a sum in one hop, or the transport's all-reduce. */
tutti_status tutti__engine_all_reduce(tutti__engine *engine, int range);

#endif
