/* See comm_fixture.h. */
#include "comm_fixture.h"

#include <math.h>

tutti_comm *self(void)
{
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_SELF;
    tutti_comm *comm = NULL;
    CHECK_OK(tutti_comm_create(harness_context(), &desc, &comm));
    return comm;
}

void check_create_comm(create_comm_fn *create, tutti_comm_desc desc, const int *transports,
                       int count)
{
    static const double timeouts[] = {NAN, INFINITY, -1};
    tutti_context *ctx = harness_context();
    tutti_comm *comm = UNTOUCHED(tutti_comm);
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "ctx", create(NULL, &desc, &comm));
    CHECK_FAILS(TUTTI_ERR_ARG, "comm", create(ctx, &desc, NULL));
    for (int i = 0; i < HARNESS_COUNT(timeouts); i++) {
        tutti_comm_desc bad = desc;
        bad.timeout = timeouts[i];
        harness_where("timeout %g", timeouts[i]);
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "timeout", create(ctx, &bad, &comm));
    }
    desc.size = 3;
    CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "size", create(ctx, &desc, &comm));
    desc.size = sizeof desc;
    for (int i = 0; i < count; i++) {
        tutti_comm_desc bad = desc;
        bad.transport = (tutti_transport)transports[i];
        harness_where("transport %d", transports[i]);
        CHECK_FAILS_KEEPING(comm, TUTTI_ERR_ARG, "transport", create(ctx, &bad, &comm));
    }
    harness_where(NULL);
}

static tutti_layer *norm(void)
{
    tutti_rmsnorm_desc desc = TUTTI_RMSNORM_DESC_INIT;
    desc.cols = 6;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_rmsnorm_create(harness_context(), &desc, &layer));
    return layer;
}

model open_model(bool build)
{
    model m = {norm(), norm(), norm(), NULL};
    CHECK_OK(tutti_params_create(harness_context(), NULL, &m.params));
    CHECK_OK(tutti_params_add(m.params, m.a, "a"));
    CHECK_OK(tutti_params_add(m.params, m.b, "b"));
    if (build) CHECK_OK(tutti_params_build(m.params, harness_context()));
    return m;
}

void close_model(model *m)
{
    tutti_params_destroy(&m->params);
    tutti_layer_destroy(&m->a);
    tutti_layer_destroy(&m->b);
    tutti_layer_destroy(&m->outside);
}
