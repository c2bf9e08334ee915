/* Inside of a context. */
#ifndef TUTTI_CORE_CONTEXT_H
#define TUTTI_CORE_CONTEXT_H

#include "core/backend.h"
#include "tutti/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What makes progress for a communicator that has work on a context.  advance never blocks: it
 * moves pending messages on and, told how long somebody has been waiting for the stream, gives up
 * at its deadline.  waited: 0 when the wait is over, < 0 in a layer call, where nobody waits. */
typedef struct tutti__progress {
    struct tutti__progress *next;
    void *self;
    tutti_status (*advance)(void *self, double waited);
} tutti__progress;

/* What a kernel found wrong: written by the first thread that finds something since the last
 * check. */
typedef struct tutti__finding {
    /* 0: nothing, claimed from that by compare-and-swap; otherwise the args' finding: whose it
     * is */
    int32_t code;
    int32_t value;
    int64_t row, limit;
} tutti__finding;

/* Handles hold what they need: the caller's destroy closes an object, and the last holder frees
 * it. */
typedef struct tutti__holders {
    int count;   /* beside the caller */
    bool closed; /* by the caller */
} tutti__holders;

void tutti__hold(tutti__holders *holders);
/* Gives one hold up (caller: the caller's).  true: it was the last, so that the object goes. */
bool tutti__let_go(tutti__holders *holders, bool caller);

/* Memories of a context: the operations', and what waits while they run. */
typedef enum tutti__scratch_kind {
    TUTTI__SCRATCH_OPERATION,
    TUTTI__SCRATCH_LEAVES,
    TUTTI__SCRATCHES
} tutti__scratch_kind;

struct tutti_context {
    tutti__holders holders;
    const tutti__backend *backend;
    int device;
    int threads; /* host: > 0 */
    tutti__stream stream;
    bool owns_stream;
    tutti__finding *finding; /* device memory */
    struct tutti__scratch_block *scratch[TUTTI__SCRATCHES];
    struct tutti__plans *plans; /* core/plan.c */
    tutti__progress *progress;  /* a list */
    void *backend_data;         /* a backend's own, made on first use, freed by backend_data_free */
    void (*backend_data_free)(void *data);
};

/* At least `bytes` of device memory, 256-byte aligned, for the operation now being enqueued; the
 * next operation on this context reuses it, in stream order.  TUTTI_ERR_STATE if it would have to
 * grow during capture. */
tutti_status tutti__scratch(tutti_context *ctx, size_t bytes, void **data);
/* The same from a memory that operations do not reuse. */
tutti_status tutti__scratch_of(tutti_context *ctx, tutti__scratch_kind kind, size_t bytes,
                               void **data);

/* Frees all plans of a context. */
void tutti__plans_drop(tutti_context *ctx);

/* Lets communicators make progress; called by every layer call, copy and zero. */
tutti_status tutti__context_advance(tutti_context *ctx);

/* TUTTI_ERR_STATE for a context that was destroyed while somebody held it. */
tutti_status tutti__context_open(const tutti_context *ctx, const char *who);
/* Gives up a hold (tutti__hold). */
void tutti__context_release(tutti_context *ctx);

/* It holds the context until it is removed. */
void tutti__progress_add(tutti_context *ctx, tutti__progress *progress);
void tutti__progress_remove(tutti_context *ctx, tutti__progress *progress);

/* A context on a stream that exists (stream_given) or on one of its own. */
tutti_status tutti__context_make(const tutti__backend *backend, int device, int threads,
                                 bool stream_given, tutti__stream stream, tutti_context **ctx);

/* The table of a built backend; AUTO chooses. */
tutti_status tutti__backend_find(tutti_backend kind, const tutti__backend **backend);

/* Inside of a step block: values in device memory. */
struct tutti_step_block {
    const tutti__backend *backend;
    int device;
    tutti_step_values *values;
    bool set; /* the values are the caller's */
};

/* TUTTI_ERR_STATE for a block that was never set.  who: for the message. */
tutti_status tutti__step_block_check(const tutti_step_block *step, const tutti_context *ctx,
                                     const char *who);

#ifdef __cplusplus
}
#endif
#endif
