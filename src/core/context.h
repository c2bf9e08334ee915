/* A context's internals. */
#ifndef TUTTI_CORE_CONTEXT_H
#define TUTTI_CORE_CONTEXT_H

#include "core/backend.h"
#include "tutti/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator's hook in a context on which it has work.  advance never blocks: it advances
 * pending messages and fails at its deadline.  waited: how long the caller has waited for the
 * stream; 0 when the wait is over, < 0 in a layer call, which does not wait. */
typedef struct tutti__progress {
    struct tutti__progress *next;
    void *self;
    tutti_status (*advance)(void *self, double waited);
} tutti__progress;

/* A fault in the data, written by the first thread of a kernel that finds one since the last
 * check. */
typedef struct tutti__finding {
    /* 0: none, and claimed from that by compare-and-swap; otherwise the args' finding: the kind of
     * layer */
    int32_t code;
    int32_t value;
    int64_t row, limit;
} tutti__finding;

/* Reference count of an object: the caller's destroy closes it, and the last holder frees it. */
typedef struct tutti__holders {
    int count;   /* besides the caller */
    bool closed; /* by the caller */
} tutti__holders;

void tutti__hold(tutti__holders *holders);
/* Drops one reference (caller: the caller's).  true: it was the last, so the object must be
 * freed. */
bool tutti__let_go(tutti__holders *holders, bool caller);

/* Scratch of a context: the operations', and that of leaves' sums, which outlives one operation. */
typedef enum tutti__scratch_kind {
    TUTTI__SCRATCH_OPERATION,
    TUTTI__SCRATCH_LEAVES,
    TUTTI__SCRATCHES
} tutti__scratch_kind;

/* Of the values of a sharded store's gather, by its number, the last round that the stream waits
 * for, and to which group (comm/gather.c). */
typedef struct tutti__values_seen {
    uint64_t gather, round;
    int group;
} tutti__values_seen;
#define TUTTI__VALUES_SEEN 4 /* beyond as many stores a context waits again, or cannot capture */

struct tutti_context {
    tutti__holders holders;
    const tutti__backend *backend;
    int device;
    int threads; /* host: > 0 */
    tutti__stream stream;
    bool owns_stream;
    tutti__finding *finding; /* device memory */
    struct tutti__scratch_block *scratch[TUTTI__SCRATCHES];
    struct tutti__plans *plans;     /* core/plan.c */
    struct tutti__recents *recents; /* core/recent.c */
    struct tutti__staging *staging; /* core/staging.c */
    tutti__progress *progress;      /* a list */
    bool tunes;                     /* planning measures products (core/tune.c) */
    bool tuned; /* it does, or there are measured choices: bits may depend on them */
    tutti__values_seen values[TUTTI__VALUES_SEEN];
    unsigned values_next;
    void *backend_data; /* the backend's, made on first use, freed by backend_data_free */
    void (*backend_data_free)(void *data);
};

/* At least `bytes` of device memory, 256-byte aligned, for the operation now being enqueued; the
 * next operation on this context reuses it, in stream order.  TUTTI_ERR_STATE if it would have to
 * grow during capture. */
tutti_status tutti__scratch(tutti_context *ctx, size_t bytes, void **data);
/* The same of the given kind. */
tutti_status tutti__scratch_of(tutti_context *ctx, tutti__scratch_kind kind, size_t bytes,
                               void **data);

/* TUTTI_ERR_STATE for a call of leaves on a context that is tuned.  name: of the layer. */
tutti_status tutti__tune_check(const tutti_context *ctx, int leaves, const char *name);

/* Frees all plans of a context. */
void tutti__plans_drop(tutti_context *ctx);

/* Makes room for a context's recent calls, unless it has it; frees it. */
tutti_status tutti__recent_open(tutti_context *ctx);
void tutti__recent_drop(tutti_context *ctx);

/* tutti_context_synchronize for an event that was recorded on the context's stream: what was
 * enqueued after it is not waited for. */
tutti_status tutti__context_wait(tutti_context *ctx, tutti__event event);

/* Advances communicators; called by every layer call, copy and zero. */
tutti_status tutti__context_advance(tutti_context *ctx);

/* TUTTI_ERR_STATE for a context that was destroyed while held. */
tutti_status tutti__context_open(const tutti_context *ctx, const char *function);
/* Gives up a hold (tutti__hold). */
void tutti__context_release(tutti_context *ctx);

/* progress holds the context until it is removed. */
void tutti__progress_add(tutti_context *ctx, tutti__progress *progress);
void tutti__progress_remove(tutti_context *ctx, tutti__progress *progress);

/* A context on an existing stream (stream_given) or on one of its own. */
tutti_status tutti__context_make(const tutti__backend *backend, int device, int threads,
                                 bool stream_given, tutti__stream stream, tutti_context **ctx);

/* The table of a built backend; AUTO chooses. */
tutti_status tutti__backend_find(tutti_backend kind, const tutti__backend **backend);

/* A step block's internals. */
struct tutti_step_block {
    const tutti__backend *backend;
    int device;
    tutti_step_values *values;
    bool set; /* by tutti_step_block_set */
};

/* TUTTI_ERR_STATE for a block that was never set.  function: for the message. */
tutti_status tutti__step_block_check(const tutti_step_block *step, const tutti_context *ctx,
                                     const char *function);

#ifdef __cplusplus
}
#endif
#endif
