/* What the bad-input tests of communicators and of the exchange share. */
#ifndef TESTS_API_COMM_FIXTURE_H
#define TESTS_API_COMM_FIXTURE_H

#include "bad_input.h"

/* A communicator of one rank. */
tutti_comm *self(void);

/* Checks what every create function refuses: a missing argument, and in `desc` bad timeouts and
 * these transports. */
typedef tutti_status create_comm_fn(tutti_context *, const tutti_comm_desc *, tutti_comm **);
void check_create_comm(create_comm_fn *create, tutti_comm_desc desc, const int *transports,
                       int count);

/* A model of two layers, in a store. */
typedef struct model {
    tutti_layer *a, *b, *outside;
    tutti_params *params;
} model;
model open_model(bool build);
void close_model(model *m);

#endif
