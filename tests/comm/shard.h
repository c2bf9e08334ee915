/* What the parts of the tests of sharded stores share. */
#ifndef TUTTI_TESTS_COMM_SHARD_H
#define TUTTI_TESTS_COMM_SHARD_H

#include "core/params.h"
#include "rig.h"
#include "tutti/adamw.h"
#include "tutti/sgd.h"

enum { PARAMS = 8 };

/* What moves gradients. */
extern tutti_engine shard_engine;

/* Which types a store's values have, and its optimizer. */
typedef struct types {
    const char *name;
    tutti_dtype master, even, odd; /* values of even and of odd parameters */
    bool sgd;
} types;
enum { SHARD_TYPES = 5 };
extern const types shard_types[SHARD_TYPES];

typedef struct model {
    tutti_context *ctx;
    tutti_params *store;
    tutti_param params[PARAMS];
    tutti_adamw *adamw;
    tutti_sgd *sgd; /* in its place */
    tutti_step_block *step;
} model;

tutti_params_desc shard_desc(const types *types, int shards, int shard, size_t range_bytes);
model shard_make(tutti_context *ctx, const tutti_params_desc *desc);
/* In place: the store keeps the parameters' addresses. */
void shard_build(model *m, const types *types);
void shard_set_step(model *m, int step);
void shard_drop(model *m);

typedef struct pair {
    model model;
    tutti_grad_sync *sync;
} pair;

/* A store of two types, in as many ranges as there can be, with its exchange. */
void shard_open_pair(tutti_context *ctx, tutti_comm *comm, pair *pair);
void shard_close_pair(pair *pair);

/* shard_exchange.c: run by all ranks with every transport */
void shard_held(tutti_context *ctx, tutti_comm *comm);
void shard_in_turn(tutti_context *ctx, tutti_comm *comm);
void shard_diverged(tutti_context *ctx, tutti_comm *comm);
void shard_refused(tutti_context *ctx, tutti_comm *comm);
void shard_engines(tutti_context *ctx, tutti_comm *comm);
/* shard_beside.c: the same */
void shard_beside(tutti_context *ctx, tutti_comm *comm);
/* shard_own.c: the same */
void shard_own(tutti_context *ctx, tutti_comm *comm);

#endif
