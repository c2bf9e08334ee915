/* What the two files of peers share: their state, and what a rank tells the others in set-up. */
#ifndef TUTTI_COMM_NCCL_PEERS_STATE_H
#define TUTTI_COMM_NCCL_PEERS_STATE_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdio.h>

#include "comm/nccl/transport.h"

#define RANKS_MAX 256
#define SHARED_MAX 8 /* memories of a rank that others write */

/* The file: this page, then the words of each rank. */
typedef struct page {
    uint64_t token;
    atomic_uint left[RANKS_MAX]; /* rank r uses no other rank's memory any more */
} page;
#define PAGE_BYTES 4096

struct tutti__peers {
    tutti__peers *next; /* of the communicator's, or of those that other ranks still use */
    tutti_comm *comm;   /* NULL once closed */
    const tutti__runtime *run;
    int rank, world, device;
    page *page;
    size_t bytes, stride; /* of the file; words of a rank */
    bool registered;
    int words;
    CUdeviceptr device_words;
    PFN_cuStreamBatchMemOp_v11070 batch;
    unsigned flush;       /* a flag of waits, where the device has it */
    tutti__stream stream; /* of set-up */
    void *opened[SHARED_MAX][RANKS_MAX];
    int shared;
    void *own[SHARED_MAX]; /* from alloc */
    int own_count;
};

/* What a rank tells the others after a part of set-up. */
typedef struct outcome {
    int32_t well;
    char why[124];
} outcome;

static inline void fails(outcome *mine, const char *what, const char *why)
{
    if (!mine->well) return;
    mine->well = false;
    snprintf(mine->why, sizeof mine->why, "%s: %.90s", what, why);
}

static inline void check_cuda(outcome *mine, cudaError_t code, const char *what)
{
    if (code == cudaSuccess) return;
    (void)cudaGetLastError();
    fails(mine, what, cudaGetErrorString(code));
}

static inline void check_status(outcome *mine, tutti_status status, const char *what)
{
    if (status != TUTTI_OK) fails(mine, what, tutti_last_error());
}

/* Collective.  *well: of all ranks; otherwise `why` names the first that is not. */
tutti_status tutti__peers_all_well(tutti_comm *comm, const outcome *mine, bool *well, char *why,
                                   size_t size);

/* Another number in every call, on every rank. */
uint64_t tutti__peers_token(void);

static inline atomic_uint *words_of(const tutti__peers *peers, int rank)
{
    return (atomic_uint *)((char *)peers->page + PAGE_BYTES) + (size_t)rank * peers->stride;
}

/* The table's share, alloc and prove (peers_memory.c), post and await. */
tutti_status tutti__peers_share(tutti__peers *peers, void *base, const void *at, void **theirs,
                                bool *shared, char *why, size_t size);
tutti_status tutti__peers_alloc(tutti__peers *peers, size_t bytes, void **own, void **theirs,
                                char *why, size_t size);
tutti_status tutti__peers_prove(tutti__peers *peers, void *own, void *const *theirs, bool *works,
                                bool *engines, char *why, size_t size);
tutti_status tutti__peers_post(tutti__peers *peers, tutti__stream stream, const tutti__post *posts,
                               int count, bool idle);
/* Without a deadline. */
tutti_status tutti__peers_await_some(tutti__peers *peers, tutti__stream stream, const int *words,
                                     int count, bool idle);

#endif
