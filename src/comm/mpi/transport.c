/* The mpi transport: non-blocking collectives on host memory, tested until a deadline.  Device
 * memory is staged through pinned host memory, because MPI need not support device pointers. */
#include <limits.h>
#include <stdlib.h>

#include "comm/agree.h"
#include "comm/makers.h"
#include "comm/mpi/channel.h"

/* MPI counts are int; tests may build with smaller pieces. */
#ifndef TUTTI__MPI_PIECE
#define TUTTI__MPI_PIECE ((int64_t)1 << 30)
#endif

static MPI_Datatype type_of(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return MPI_FLOAT;
    case TUTTI_F64:
        return MPI_DOUBLE;
    case TUTTI_F16:
    case TUTTI_BF16:
        return MPI_UINT16_T;
    case TUTTI_I32:
        return MPI_INT32_T;
    case TUTTI_U8:
        return MPI_UINT8_T;
    }
    return MPI_DATATYPE_NULL;
}

static MPI_Op op_of(const tutti_comm *comm, tutti_dtype dtype, tutti_op op)
{
    static const MPI_Op plain[] = {MPI_SUM, MPI_MIN, MPI_MAX};
    const tutti__channel *channel = comm->channel;
    if (dtype == TUTTI_F16) return channel->ops[0][op];
    if (dtype == TUTTI_BF16) return channel->ops[1][op];
    return plain[op];
}

static int piece(int64_t count, int64_t done)
{
    return (int)(count - done < TUTTI__MPI_PIECE ? count - done : TUTTI__MPI_PIECE);
}

/* Verbs on host memory */

static tutti_status finish(tutti_comm *comm, int code, MPI_Request *request,
                           const tutti__collective *call)
{
    TUTTI_TRY(tutti__mpi_check(comm, code, call->name));
    return tutti__mpi_wait(comm, request, call->name, call->sequence);
}

/* `n` elements in a row, the next such block `count` elements further: the pieces of all ranks'
 * blocks in one call. */
static int block_type(MPI_Datatype element, int n, int64_t count, size_t size, MPI_Datatype *block)
{
    MPI_Datatype row;
    int code = MPI_Type_contiguous(n, element, &row);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_resized(row, 0, (MPI_Aint)count * (MPI_Aint)size, block);
    MPI_Type_free(&row);
    return code == MPI_SUCCESS ? MPI_Type_commit(block) : code;
}

static tutti_status gather_or_exchange(tutti_comm *comm, const tutti__collective *call)
{
    const tutti__channel *channel = comm->channel;
    size_t size = tutti_dtype_size(call->dtype);
    MPI_Datatype element = type_of(call->dtype);
    bool exchange = call->kind == TUTTI__ALL_TO_ALL;
    bool in_place = !exchange && call->send == (char *)call->recv +
                                                   (size_t)call->count * size * (size_t)comm->rank;
    for (int64_t done = 0; done < call->count; done += TUTTI__MPI_PIECE) {
        int n = piece(call->count, done);
        const char *send = (const char *)call->send + (size_t)done * size;
        char *recv = (char *)call->recv + (size_t)done * size;
        bool whole = n == call->count;
        MPI_Datatype block = element;
        int blocks = whole ? n : 1;
        MPI_Request request;
        if (!whole)
            TUTTI_TRY(tutti__mpi_check(comm, block_type(element, n, call->count, size, &block),
                                       call->name));
        int code = exchange ? MPI_Ialltoall(send, blocks, block, recv, blocks, block, channel->data,
                                            &request)
                            : MPI_Iallgather(in_place ? MPI_IN_PLACE : send, n, element, recv,
                                             blocks, block, channel->data, &request);
        tutti_status status = finish(comm, code, &request, call);
        if (!whole) MPI_Type_free(&block);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

static tutti_status reduce_scatter(tutti_comm *comm, const tutti__collective *call)
{
    const tutti__channel *channel = comm->channel;
    size_t size = tutti_dtype_size(call->dtype);
    MPI_Datatype element = type_of(call->dtype);
    MPI_Op op = op_of(comm, call->dtype, call->op);
    MPI_Request request;
    if (call->count <= TUTTI__MPI_PIECE && call->count <= INT_MAX / comm->world_size)
        return finish(comm,
                      MPI_Ireduce_scatter_block(call->send, call->recv, (int)call->count, element,
                                                op, channel->data, &request),
                      &request, call);
    for (int root = 0; root < comm->world_size; root++)
        for (int64_t done = 0; done < call->count; done += TUTTI__MPI_PIECE) {
            const char *send = (const char *)call->send +
                               ((size_t)root * (size_t)call->count + (size_t)done) * size;
            char *recv = (char *)call->recv + (size_t)done * size;
            TUTTI_TRY(
                finish(comm,
                       MPI_Ireduce(send, root == comm->rank ? recv : NULL, piece(call->count, done),
                                   element, op, root, channel->data, &request),
                       &request, call));
        }
    return TUTTI_OK;
}

static tutti_status all_reduce_or_broadcast(tutti_comm *comm, const tutti__collective *call)
{
    const tutti__channel *channel = comm->channel;
    size_t size = tutti_dtype_size(call->dtype);
    MPI_Datatype element = type_of(call->dtype);
    for (int64_t done = 0; done < call->count; done += TUTTI__MPI_PIECE) {
        const char *send = (const char *)call->send + (size_t)done * size;
        char *recv = (char *)call->recv + (size_t)done * size;
        int n = piece(call->count, done), code;
        MPI_Request request;
        if (call->kind == TUTTI__BROADCAST)
            code = MPI_Ibcast(recv, n, element, call->root, channel->data, &request);
        else
            code = MPI_Iallreduce(call->send == call->recv ? MPI_IN_PLACE : send, recv, n, element,
                                  op_of(comm, call->dtype, call->op), channel->data, &request);
        TUTTI_TRY(finish(comm, code, &request, call));
    }
    return TUTTI_OK;
}

static tutti_status on_host(tutti_comm *comm, const tutti__collective *call)
{
    switch (call->kind) {
    case TUTTI__ALL_GATHER:
    case TUTTI__ALL_TO_ALL:
        return gather_or_exchange(comm, call);
    case TUTTI__REDUCE_SCATTER:
        return reduce_scatter(comm, call);
    case TUTTI__ALL_REDUCE:
    case TUTTI__BROADCAST:
        break;
    }
    return all_reduce_or_broadcast(comm, call);
}

/* Device memory */

/* Pinned host memory for the collectives, which grows and is kept. */
typedef struct staging {
    void *data;
    size_t bytes;
} staging;

static tutti_status staging_reserve(tutti_comm *comm, size_t bytes, void **data)
{
    const tutti__runtime *run = &comm->backend->run;
    staging *stage = comm->state;
    if (!stage) {
        stage = comm->state = calloc(1, sizeof *stage);
        if (!stage) return tutti__fail(TUTTI_ERR_MEMORY, "comm: no memory");
    }
    if (stage->bytes < bytes) {
        if (stage->data) run->host_free(comm->device, stage->data);
        *stage = (staging){NULL, 0};
        TUTTI_TRY(run->host_alloc(comm->device, bytes, &stage->data));
        stage->bytes = bytes;
    }
    *data = stage->data;
    return TUTTI_OK;
}

static tutti_status staged(tutti_comm *comm, tutti_context *ctx, const tutti__collective *call)
{
    const tutti__runtime *run = &ctx->backend->run;
    TUTTI_TRY(tutti__comm_capture_check(comm, ctx, call->name));
    size_t block = (size_t)call->count * tutti_dtype_size(call->dtype);
    size_t all = block * (size_t)comm->world_size;
    bool scatters = call->kind == TUTTI__REDUCE_SCATTER || call->kind == TUTTI__ALL_TO_ALL;
    bool gathers = call->kind == TUTTI__ALL_GATHER || call->kind == TUTTI__ALL_TO_ALL;
    size_t in = scatters ? all : block, out = gathers ? all : block;
    bool in_place = call->kind == TUTTI__ALL_REDUCE || call->kind == TUTTI__BROADCAST;
    void *memory = NULL;
    TUTTI_TRY(staging_reserve(comm, in_place ? out : in + out, &memory));
    tutti__collective host = *call;
    host.recv = memory;
    host.send = in_place ? memory : (char *)memory + out;
    TUTTI_TRY(run->copy(ctx->device, ctx->stream, (void *)(uintptr_t)host.send, call->send, in));
    TUTTI_TRY(tutti_context_synchronize(ctx));
    TUTTI_TRY(on_host(comm, &host));
    TUTTI_TRY(run->copy(ctx->device, ctx->stream, call->recv, memory, out));
    return tutti_context_synchronize(ctx);
}

static tutti_status mpi_collective(tutti_comm *comm, tutti_context *ctx,
                                   const tutti__collective *call)
{
    return ctx->backend->kind == TUTTI_BACKEND_HOST ? on_host(comm, call) : staged(comm, ctx, call);
}

static void mpi_destroy(tutti_comm *comm)
{
    staging *stage = comm->state;
    comm->state = NULL;
    if (!stage || comm->dead) return;
    if (stage->data) comm->backend->run.host_free(comm->device, stage->data);
    free(stage);
}

/* Sums and messages while the caller computes */

/* Each gradient exchange has its own duplicate, so that its sums keep their order whatever else the
 * communicator does. */
static tutti_status mpi_duplicate_create(tutti_comm *comm, void **duplicate)
{
    const tutti__channel *channel = comm->channel;
    MPI_Comm *made = tutti__comm_room(comm, sizeof *made, "grad_sync_create");
    if (!made) return TUTTI_ERR_MEMORY;
    *made = MPI_COMM_NULL;
    /* after a failure MPI may still write the handle, so it is not freed */
    TUTTI_TRY(
        tutti__mpi_duplicate(comm, channel->data, made, "grad_sync_create", ++comm->sequence));
    *duplicate = made;
    return TUTTI_OK;
}

static void mpi_duplicate_destroy(tutti_comm *comm, void *duplicate, bool idle)
{
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!idle || comm->dead || finalized ||
        comm->control->thread(comm, "grad_sync_destroy") != TUTTI_OK)
        return;
    MPI_Comm_free((MPI_Comm *)duplicate);
    free(duplicate);
}

/* Must not move until MPI has completed all. */
typedef struct requests {
    int count;
    MPI_Request each[];
} requests;

static tutti_status requests_new(int count, tutti__work *work, MPI_Request **each)
{
    requests *made = malloc(sizeof *made + (size_t)count * sizeof made->each[0]);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync: no memory");
    made->count = count;
    for (int i = 0; i < count; i++) made->each[i] = MPI_REQUEST_NULL;
    work->requests = made;
    *each = made->each;
    return TUTTI_OK;
}

static tutti_status mpi_all_reduce(tutti_comm *comm, tutti__work *work, void *data, int64_t count,
                                   tutti_dtype dtype)
{
    MPI_Request *request = NULL;
    TUTTI_TRY(requests_new(1, work, &request));
    TUTTI_ASSERT(count <= TUTTI__MPI_PIECE);
    return tutti__mpi_check(comm,
                            MPI_Iallreduce(MPI_IN_PLACE, data, (int)count, type_of(dtype),
                                           op_of(comm, dtype, TUTTI_SUM),
                                           *(MPI_Comm *)work->duplicate, request),
                            "grad_sync");
}

static tutti_status mpi_swap(tutti_comm *comm, tutti__work *work, const tutti__swap *swap)
{
    const MPI_Comm over = *(MPI_Comm *)work->duplicate;
    const MPI_Datatype type = type_of(swap->dtype);
    MPI_Request *request = NULL;
    TUTTI_TRY(requests_new(swap->recv_count + swap->send_count, work, &request));
    for (int i = 0; i < swap->recv_count; i++) {
        const tutti__piece *piece = &swap->recvs[i];
        int code = MPI_Irecv(piece->data, (int)piece->count, type, piece->peer, work->tag, over,
                             request++);
        TUTTI_TRY(tutti__mpi_check(comm, code, "grad_sync"));
    }
    for (int i = 0; i < swap->send_count; i++) {
        const tutti__piece *piece = &swap->sends[i];
        int code = MPI_Isend(piece->data, (int)piece->count, type, piece->peer, work->tag, over,
                             request++);
        TUTTI_TRY(tutti__mpi_check(comm, code, "grad_sync"));
    }
    return TUTTI_OK;
}

static tutti_status mpi_test_work(tutti_comm *comm, tutti__work *work, bool *done)
{
    requests *under_way = work->requests;
    int complete = 1;
    if (under_way && under_way->count == 1)
        TUTTI_TRY(tutti__mpi_test(comm, under_way->each, "grad_sync", &complete));
    else if (under_way)
        TUTTI_TRY(tutti__mpi_check(
            comm, MPI_Testall(under_way->count, under_way->each, &complete, MPI_STATUSES_IGNORE),
            "grad_sync"));
    *done = complete;
    if (!complete) return TUTTI_OK;
    free(under_way);
    work->requests = NULL;
    return TUTTI_OK;
}

static const tutti__transport transport = {
    .kind = TUTTI_TRANSPORT_MPI,
    .style = TUTTI__STYLE_HOST,
    .collective = mpi_collective,
    .all_reduce = mpi_all_reduce,
    .swap = mpi_swap,
    .test = mpi_test_work,
    .duplicate_create = mpi_duplicate_create,
    .duplicate_destroy = mpi_duplicate_destroy,
    .destroy = mpi_destroy,
};

static tutti_status mpi_attach(tutti_comm *comm)
{
    comm->transport = &transport;
    return TUTTI_OK;
}

const tutti__maker tutti__mpi_maker = {.kind = TUTTI_TRANSPORT_MPI, .attach = mpi_attach};
