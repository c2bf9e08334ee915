/* An engine's own stream beside the caller's: it waits for the caller's where ranges are issued,
 * and the caller's waits for it where their sums are needed. */
#ifndef TUTTI_COMM_SIDE_STREAM_H
#define TUTTI_COMM_SIDE_STREAM_H

#include "comm/engine.h"

typedef struct tutti__side_stream {
    tutti__stream stream;
    tutti__event fork, join;
    tutti__event *summed; /* per range */
    int *behind;          /* per range: the one whose event tells that its sum is there */
} tutti__side_stream;

tutti_status tutti__side_open(tutti__side_stream *side, const tutti__engine *engine);
void tutti__side_close(tutti__side_stream *side, const tutti__engine *engine);

/* What ctx has enqueued so far precedes what follows on the side stream. */
tutti_status tutti__side_fork(tutti__side_stream *side, const tutti_context *ctx);
/* The sums of these ranges are enqueued on the wires: copies them into the gradients.  Late sums in
 * bf16 are there already.  One event tells of all: each would take the stream some microseconds. */
tutti_status tutti__side_land(tutti__side_stream *side, const tutti__engine *engine, int first,
                              int last);
/* ctx waits for the sums of these ranges, or for everything. */
tutti_status tutti__side_wait(const tutti__side_stream *side, const tutti_context *ctx, int first,
                              int last);
tutti_status tutti__side_join(tutti__side_stream *side, const tutti_context *ctx);

#endif
