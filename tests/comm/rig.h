/* For tests of communicators: MPI around the harness, a context per rank, communicators. */
#ifndef TESTS_COMM_RIG_H
#define TESTS_COMM_RIG_H

#include "harness.h"
#include "tutti/adamw.h"

/* A test function, and where it applies; elsewhere it is left out, not skipped. */
typedef struct rig_test {
    const char *name;
    void (*run)(void);
    int min_ranks, max_ranks; /* 0: any */
    bool cuda_only;           /* with --backend cuda */
} rig_test;

/* main of a test program: under mpirun, or alone with one rank.  Initialises MPI, FUNNELED, unless
 * the program has; finalises it. */
int rig_main(int argc, char **argv, const char *suite, const rig_test *tests, int count);

int rig_rank(void);
int rig_size(void);

/* This rank's context: on the GPU of its local number, or on a shared one. */
tutti_context *rig_context(void);
/* A communicator of all ranks, or NULL with the test marked as skipped if that transport is not
 * available. */
tutti_comm *rig_comm(tutti_context *ctx, tutti_transport transport);
/* Runs a test with a communicator of this transport. */
void rig_over(tutti_transport transport, void (*test)(tutti_context *ctx, tutti_comm *comm));
/* RIG_OVER defines test_self, test_mpi and test_nccl, which run the test with a communicator of
 * each transport; RIG_ROWS lists them among the tests. */
#define RIG_OVER_(test, name, transport) \
    static void test##_##name(void)      \
    {                                    \
        rig_over(transport, test);       \
    }
#ifdef RIG_WITH_MPI
#define RIG_OVER(test)                          \
    RIG_OVER_(test, self, TUTTI_TRANSPORT_SELF) \
    RIG_OVER_(test, mpi, TUTTI_TRANSPORT_MPI)   \
    RIG_OVER_(test, nccl, TUTTI_TRANSPORT_NCCL)
#define RIG_ROWS(name, test, min_ranks, max_ranks)                   \
    {name " over self", test##_self, min_ranks, 1, false},           \
        {name " over mpi", test##_mpi, min_ranks, max_ranks, false}, \
    {                                                                \
        name " over nccl", test##_nccl, min_ranks, max_ranks, true   \
    }
#else
#define RIG_OVER(test) RIG_OVER_(test, self, TUTTI_TRANSPORT_SELF)
#define RIG_ROWS(name, test, min_ranks, max_ranks)          \
    {                                                       \
        name " over self", test##_self, min_ranks, 1, false \
    }
#endif
/* Builds a store and initialises it, with an AdamW whose clipping makes values depend on the norm,
 * and a step block. */
void rig_build(tutti_context *ctx, tutti_params *store, tutti_adamw **adamw,
               tutti_step_block **block);
/* Every rank has its own GPU, or NCCL is set up to share GPUs. */
bool rig_has_gpu_each(void);
/* Without the library: a barrier, and the largest value of all ranks. */
void rig_barrier(void);
int rig_worst(int value);

#endif
