/* Making and destroying communicators of any transport. */
#include "comm/life.h"

#include <math.h>
#include <stdlib.h>

#include "comm/control.h"
#include "comm/follow.h"
#include "comm/transport.h"

tutti_comm_desc tutti_comm_desc_default(void)
{
    return (tutti_comm_desc)TUTTI_COMM_DESC_INIT;
}

static tutti_status desc_check(const tutti_comm_desc *given, const char *who, tutti_comm_desc *own)
{
    TUTTI_TRY(tutti__desc_read(own, sizeof *own, given, who));
    TUTTI_REQUIRE((int)own->transport >= TUTTI_TRANSPORT_AUTO &&
                      own->transport <= TUTTI_TRANSPORT_NCCL,
                  "%s: transport is %d, want auto, self, mpi or nccl", who, (int)own->transport);
    own->timeout = tutti__field(own->timeout, 60);
    TUTTI_REQUIRE(isfinite(own->timeout) && own->timeout > 0,
                  "%s: timeout is %g, want seconds > 0, or 0 for 60", who, own->timeout);
    return TUTTI_OK;
}

tutti_status tutti__comm_desc_check(const tutti_comm_desc *given, const char *who,
                                    tutti_comm_desc *wanted)
{
    tutti_status status = desc_check(given, who, wanted);
    if (status != TUTTI_OK)
        *wanted = (tutti_comm_desc){.timeout = 60}; /* with which the other ranks are told */
    return status;
}

tutti_status tutti__comm_new(tutti_context *ctx, double timeout, tutti_comm **comm)
{
    tutti_comm *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "comm_create: no memory");
    made->transport = &tutti__self_transport;
    made->control = &tutti__self_control;
    if (ctx) {
        made->backend = ctx->backend;
        made->device = ctx->device;
    }
    made->world_size = 1;
    made->timeout = timeout;
    *comm = made;
    return TUTTI_OK;
}

static void let_go(tutti_comm *comm, bool caller)
{
    if (!tutti__let_go(&comm->holders, caller)) return;
    tutti__comm_unfollow(comm);
    comm->transport->destroy(comm);
    comm->control->destroy(comm);
    free(comm);
}

void tutti__comm_release(tutti_comm *comm)
{
    let_go(comm, false);
}

void tutti_comm_destroy(tutti_comm **comm)
{
    if (!comm || !*comm) return;
    if ((*comm)->dead) tutti__comm_unfollow(*comm);
    let_go(*comm, true);
    *comm = NULL;
}
