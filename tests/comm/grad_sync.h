/* Parts of the tests of the gradient exchange, each run by all ranks with every transport. */
#ifndef TUTTI_TESTS_COMM_GRAD_SYNC_H
#define TUTTI_TESTS_COMM_GRAD_SYNC_H

#include "rig.h"

extern tutti_engine grad_sync_engine; /* of exchanges of stores */

/* grad_sync_own.c */
void listed_parameters(tutti_context *ctx, tutti_comm *comm);
void layouts(tutti_context *ctx, tutti_comm *comm);
void differences(tutti_context *ctx, tutti_comm *comm);
void narrow(tutti_context *ctx, tutti_comm *comm);
void frozen(tutti_context *ctx, tutti_comm *comm);

/* grad_sync_tied.c */
void tied_weight(tutti_context *ctx, tutti_comm *comm);
void tied_refused(tutti_context *ctx, tutti_comm *comm);
void any_order(tutti_context *ctx, tutti_comm *comm);
void wait_for_one(tutti_context *ctx, tutti_comm *comm);

#endif
