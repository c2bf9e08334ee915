/* Small sums over the ranks in one hop, of f32, f64, f16 or bf16: each rank writes its values into
 * the others' device memory and adds what arrives, in rank order (kernels/cuda/hop.cu). */
#ifndef TUTTI_COMM_HOP_H
#define TUTTI_COMM_HOP_H

#include "comm/peers.h"

typedef struct tutti__hop {
    tutti__peers *peers; /* NULL: not open */
    tutti__peers *own;   /* the same, if close ends them */
    tutti__hop_memory memory;
} tutti__hop;

/* Collective, where the transport has peers.  shared: peers that are open, or NULL.  Proves that
 * sums work; where they do not, or memory cannot be shared, it leaves the hop closed on all ranks.
 * Rank 0 logs which. */
tutti_status tutti__hop_open(tutti__hop *hop, tutti_comm *comm, tutti__peers *shared);
/* After tutti__comm_drain, when no stream has a sum any more. */
void tutti__hop_close(tutti__hop *hop, const tutti_comm *comm);

/* Whether a sum of gradients is of a size and type that a hop is the fastest way for. */
bool tutti__hop_fits(int64_t count, tutti_dtype dtype);

/* Enqueues a sum of at most TUTTI__HOP_BYTES, `from` to `to`, which may be the same, where the hop
 * is open.  All ranks enqueue a hop's sums in one order, and on the device one follows the
 * other. */
tutti_status tutti__hop_sum(const tutti__hop *hop, tutti_comm *comm, tutti__stream stream,
                            const void *from, void *to, int64_t count, tutti_dtype dtype,
                            const char *operation, int64_t sequence);

#endif
