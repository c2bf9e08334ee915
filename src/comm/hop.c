/* Opening and proving small sums in one hop. */
#include "comm/hop.h"

#include <stdio.h>

#include "comm/agree.h"
#include "comm/transport.h"
#include "core/half.h"

#define PROOF_SECONDS 2.0 /* for a sum; at most half of the communicator's deadline */

#define FITS_BYTES (64 << 10) /* what is larger is the transport's, whose bandwidth is higher */

bool tutti__hop_fits(int64_t count, tutti_dtype dtype)
{
    const bool floats =
        dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
    return floats && count > 0 && count <= FITS_BYTES / (int64_t)tutti__size_of(dtype);
}

tutti_status tutti__hop_sum(const tutti__hop *hop, tutti_comm *comm, tutti__stream stream,
                            const void *from, void *to, int64_t count, tutti_dtype dtype,
                            const char *operation, int64_t sequence)
{
    TUTTI_TRY(comm->transport->watch(comm, stream, operation, sequence));
    return comm->backend->run.hop(comm->device, stream, &hop->memory, from, to, count, dtype);
}

/* The proof: sums of known values in every type, in both buffers, which also loads the kernels. */

typedef struct proof {
    const tutti_comm *comm;
    tutti__hop_memory memory; /* with a stop of its own */
    tutti__stream stream;
    tutti__event event;
    void *data, *values, *stop; /* on the device; on the host */
} proof;

static tutti_status proof_open(proof *p)
{
    const tutti__runtime *run = &p->comm->backend->run;
    const int device = p->comm->device;
    TUTTI_TRY(run->stream_create(device, true, &p->stream));
    TUTTI_TRY(run->event_create(device, false, &p->event));
    TUTTI_TRY(run->alloc(device, TUTTI__HOP_BYTES, &p->data));
    TUTTI_TRY(run->host_alloc(device, TUTTI__HOP_BYTES, &p->values));
    TUTTI_TRY(run->host_alloc(device, sizeof(uint32_t), &p->stop));
    *(uint32_t *)p->stop = 0;
    p->memory.stop = p->stop;
    return TUTTI_OK;
}

static void proof_close(proof *p)
{
    const tutti__runtime *run = &p->comm->backend->run;
    const int device = p->comm->device;
    if (p->stop) *(volatile uint32_t *)p->stop = 1; /* a sum that still waits ends */
    if (p->stream) (void)run->stream_synchronize(device, p->stream);
    if (p->stop) run->host_free(device, p->stop);
    if (p->values) run->host_free(device, p->values);
    if (p->data) run->free(device, p->data);
    if (p->event) run->event_destroy(device, p->event);
    if (p->stream) run->stream_destroy(device, p->stream);
}

/* Whole numbers up to 256, which every type has. */
static void put(void *values, tutti_dtype dtype, int i, int number)
{
    if (dtype == TUTTI_F64)
        ((double *)values)[i] = number;
    else if (dtype == TUTTI_F32)
        ((float *)values)[i] = (float)number;
    else
        ((uint16_t *)values)[i] =
            (dtype == TUTTI_F16 ? tutti__float_to_f16 : tutti__float_to_bf16)((float)number);
}

/* Waits for what the stream has been given. */
static tutti_status reach(const proof *p)
{
    const tutti__runtime *run = &p->comm->backend->run;
    const double half = p->comm->timeout / 2;
    const double until = tutti__now() + (half < PROOF_SECONDS ? half : PROOF_SECONDS);
    bool done = false;
    TUTTI_TRY(run->event_record(p->comm->device, p->event, p->stream));
    while (!done && tutti__now() < until)
        TUTTI_TRY(run->event_query(p->comm->device, p->event, &done));
    return done ? TUTTI_OK : tutti__fail(TUTTI_ERR_UNSUPPORTED, "a sum in one hop has not ended");
}

static tutti_status sum_known(const proof *p, tutti_dtype dtype)
{
    enum { PERIOD = 7 };
    const tutti__runtime *run = &p->comm->backend->run;
    const int device = p->comm->device, world = p->comm->world_size;
    const size_t size = tutti__size_of(dtype);
    const int count = (int)(TUTTI__HOP_BYTES / size);
    for (int i = 0; i < count; i++) put(p->values, dtype, i, i % PERIOD + p->comm->rank);
    TUTTI_TRY(run->copy(device, p->stream, p->data, p->values, TUTTI__HOP_BYTES));
    TUTTI_TRY(run->hop(device, p->stream, &p->memory, p->data, p->data, count, dtype));
    TUTTI_TRY(run->copy(device, p->stream, p->values, p->data, TUTTI__HOP_BYTES));
    TUTTI_TRY(reach(p));
    for (int i = 0; i < count; i++) {
        uint64_t want = 0;
        put(&want, dtype, 0, i % PERIOD * world + world * (world - 1) / 2);
        if (memcmp((const char *)p->values + (size_t)i * size, &want, size) != 0)
            return tutti__fail(TUTTI_ERR_UNSUPPORTED, "a sum in one hop is wrong");
    }
    return TUTTI_OK;
}

static tutti_status prove(const tutti__hop *hop, const tutti_comm *comm)
{
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16};
    proof p = {.comm = comm, .memory = hop->memory};
    tutti_status status = proof_open(&p);
    for (int i = 0; i < 8 && status == TUTTI_OK; i++) status = sum_known(&p, dtypes[i / 2]);
    proof_close(&p);
    return status;
}

/* Life */

/* Collective.  hop->peers NULL: `why` says why, the same on all ranks. */
static tutti_status try_open(tutti__hop *hop, tutti_comm *comm, tutti__peers *shared, char *why,
                             size_t size)
{
    const tutti__peers_table *table = comm->transport->peers;
    void *own = NULL;
    if (comm->world_size > TUTTI__HOP_RANKS) {
        snprintf(why, size, "there are %d ranks, want at most %d", comm->world_size,
                 TUTTI__HOP_RANKS);
        return TUTTI_OK;
    }
    if (!shared) TUTTI_TRY(table->open(comm, 0, &hop->own, why, size));
    tutti__peers *peers = shared ? shared : hop->own;
    if (!peers) return TUTTI_OK;
    TUTTI_TRY(table->alloc(peers, tutti__hop_inbox_bytes(comm->world_size), &own, hop->memory.inbox,
                           why, size));
    if (!own) return TUTTI_OK;
    hop->memory.inbox[comm->rank] = own;
    hop->memory.rank = comm->rank;
    hop->memory.world_size = comm->world_size;
    hop->memory.stop = table->dead(peers);
    bool all = false;
    const bool mine = prove(hop, comm) == TUTTI_OK;
    snprintf(why, size, "%s", mine ? "they do not work on another rank" : tutti_last_error());
    TUTTI_TRY(tutti__comm_all(comm, mine, "grad_sync_create", &all));
    if (all) hop->peers = peers;
    return TUTTI_OK;
}

tutti_status tutti__hop_open(tutti__hop *hop, tutti_comm *comm, tutti__peers *shared)
{
    char why[192] = "";
    TUTTI_TRY(try_open(hop, comm, shared, why, sizeof why));
    if (comm->rank == 0)
        tutti__log(
            TUTTI_LOG_INFO, "small sums of an exchange %s%s",
            hop->peers ? "in one hop between GPUs" : "by the transport: ", hop->peers ? "" : why);
    if (!hop->peers) tutti__hop_close(hop, comm);
    return TUTTI_OK;
}

void tutti__hop_close(tutti__hop *hop, const tutti_comm *comm)
{
    if (hop->own) comm->transport->peers->close(&hop->own);
    hop->peers = NULL;
}
