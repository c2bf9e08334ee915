/* Ranks of one host that write into each other's device memory: how it is shared, and words by
 * which one rank's stream waits for another's. */
#ifndef TUTTI_COMM_PEERS_H
#define TUTTI_COMM_PEERS_H

#include "comm/comm.h"

/* A word of a rank is 0 or 1.  Another rank posts it: sets it, on a stream.  Its own rank awaits
 * it: the stream waits until it is set, and clears it.  Words are so few values that a captured
 * graph can hold them; in return a word must not be posted again before it has been awaited, which
 * whoever uses them has to ensure.
 *
 * They lie in host memory, so that a thread that must not call CUDA can set them: when the
 * communicator dies, all words of this rank are set, again and again, and its streams come free. */
typedef struct tutti__peers tutti__peers;
enum { TUTTI__PEERS_WORDS_MAX = TUTTI__WORDS_MAX };
typedef struct tutti__post {
    int rank, word; /* whose, which */
} tutti__post;

typedef struct tutti__peers_table {
    /* Collective.  *peers NULL: the ranks cannot share memory, and `why` says why, the same on all
     * of them. */
    tutti_status (*open)(tutti_comm *comm, int words, tutti__peers **peers, char *why, size_t size);
    /* Collective.  Device memory that the others may write, which close frees.  theirs[rank]: where
     * that rank's lies on this one.  *own NULL: as above. */
    tutti_status (*alloc)(tutti__peers *peers, size_t bytes, void **own, void **theirs, char *why,
                          size_t size);
    /* Collective.  The same with memory of the caller's, an allocation that begins at `base` and is
     * not in use; theirs[rank] is that rank's `at`.  *shared false: as above. */
    tutti_status (*share)(tutti__peers *peers, void *base, const void *at, void **theirs,
                          bool *shared, char *why, size_t size);
    /* Collective.  Writes into memory of alloc and posts words.  *works: what was written arrived
     * on all ranks, where otherwise `why` says why.  *engines: on all ranks it did so while kernels
     * held every multiprocessor, by copy engines that is. */
    tutti_status (*prove)(tutti__peers *peers, void *own, void *const *theirs, bool *works,
                          bool *engines, char *why, size_t size);

    /* Sets words of other ranks, TUTTI__PEERS_WORDS_MAX at most, once all that the stream has been
     * given is done, and can be seen there.  idle: the device has most likely nothing else to do,
     * so a kernel sets them, all at once, and not the stream itself, one after another. */
    tutti_status (*post)(tutti__peers *peers, tutti__stream stream, const tutti__post *posts,
                         int count, bool idle);
    /* What the stream is given from now on follows the posts of these own words, of which there are
     * TUTTI__PEERS_WORDS_MAX at most.  idle: as above, so that a kernel awaits them: one block,
     * which keeps a multiprocessor from a product of the same device until all are posted. */
    tutti_status (*await)(tutti__peers *peers, tutti__stream stream, const int *words, int count,
                          bool idle, const char *operation, int64_t sequence);
    /* post, then await, as one operation of the stream's, of which each costs the launch of a graph
     * that holds it a microsecond or two; each of both at most TUTTI__PEERS_WORDS_MAX words. */
    tutti_status (*meet)(tutti__peers *peers, tutti__stream stream, const tutti__post *posts,
                         int post_count, const int *words, int count, const char *operation,
                         int64_t sequence);
    /* On the device: not 0 once the communicator is dead, before any wait ends without its post. */
    const uint32_t *(*dead)(const tutti__peers *peers);
    /* No stream has work with it any more.  Other ranks may be later by half a second; if they are,
     * what they still have in use is freed when the next peers are opened or closed. */
    void (*close)(tutti__peers **closing);
} tutti__peers_table;

#endif
