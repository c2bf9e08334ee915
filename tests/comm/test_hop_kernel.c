/* The kernel of small sums with all its ranks on one GPU, each on a stream: more ranks than there
 * are GPUs, epochs that wrap around, and a rank that never comes. */
#include <string.h>

#include "core/context.h"
#include "harness.h"

enum { RANKS_MAX = 8, ROUNDS = 40, COUNT_MAX = TUTTI__HOP_BYTES / 4 };
#define SECONDS_MAX 5.0

typedef struct ranks {
    const tutti__runtime *run;
    int device, world;
    tutti__stream streams[RANKS_MAX];
    tutti__hop_memory memory[RANKS_MAX];
    void *data[RANKS_MAX], *stop;
} ranks;

/* epoch: of all blocks, before the first sum */
static void open_ranks(ranks *r, int world, uint32_t epoch)
{
    const tutti_context *ctx = harness_context();
    uint32_t epochs[TUTTI__HOP_BLOCKS];
    const size_t bytes = tutti__hop_inbox_bytes(world);
    *r = (ranks){.run = &ctx->backend->run, .device = ctx->device, .world = world};
    for (int b = 0; b < TUTTI__HOP_BLOCKS; b++) epochs[b] = epoch;
    CHECK_OK(r->run->host_alloc(r->device, sizeof(uint32_t), &r->stop));
    *(volatile uint32_t *)r->stop = 0;
    for (int k = 0; k < world; k++) {
        void *inbox = NULL;
        CHECK_OK(r->run->stream_create(r->device, false, &r->streams[k]));
        CHECK_OK(r->run->alloc(r->device, TUTTI__HOP_BYTES, &r->data[k]));
        CHECK_OK(r->run->alloc(r->device, bytes, &inbox));
        CHECK_OK(r->run->zero(r->device, r->streams[k], inbox, bytes));
        CHECK_OK(r->run->copy(r->device, r->streams[k], (char *)inbox + bytes - sizeof epochs,
                              epochs, sizeof epochs));
        CHECK_OK(r->run->stream_synchronize(r->device, r->streams[k]));
        for (int other = 0; other < world; other++) r->memory[other].inbox[k] = inbox;
        r->memory[k].rank = k;
        r->memory[k].world_size = world;
        r->memory[k].stop = r->stop;
    }
}

static void close_ranks(ranks *r)
{
    for (int k = 0; k < r->world; k++) {
        r->run->free(r->device, r->memory[0].inbox[k]);
        r->run->free(r->device, r->data[k]);
        r->run->stream_destroy(r->device, r->streams[k]);
    }
    r->run->host_free(r->device, r->stop);
}

/* Waits for all streams; stops what does not end. */
static bool all_done(ranks *r, double seconds)
{
    bool done = false;
    for (const double until = tutti__now() + seconds; !done && tutti__now() < until;) {
        done = true;
        for (int k = 0; k < r->world && done; k++)
            CHECK_OK(r->run->stream_query(r->device, r->streams[k], &done));
    }
    if (!done) *(volatile uint32_t *)r->stop = 1;
    for (int k = 0; k < r->world; k++)
        CHECK_OK(r->run->stream_synchronize(r->device, r->streams[k]));
    return done;
}

/* Several sums of sums without a pause, of other counts each: what a rank has then. */
static const int counts[] = {COUNT_MAX, 1, 4097, 3, 1024, COUNT_MAX - 1};
enum { SUMS = 6 };

/* Of many ranks not all blocks of the largest sums have room on one GPU, as they must. */
static int count_of(int s, int world)
{
    return world > 3 && counts[s] > COUNT_MAX / 4 ? counts[s] / 4 : counts[s];
}

static void expect(float values[][COUNT_MAX], int world, float want[][COUNT_MAX])
{
    memcpy(want, values, (size_t)world * sizeof want[0]);
    for (int s = 0; s < SUMS; s++)
        for (int i = 0; i < count_of(s, world); i++) {
            float sum = want[0][i];
            for (int k = 1; k < world; k++) sum += want[k][i];
            for (int k = 0; k < world; k++) want[k][i] = sum;
        }
}

static void one_round(ranks *r, harness_rng *rng, int round)
{
    static float values[RANKS_MAX][COUNT_MAX], want[RANKS_MAX][COUNT_MAX], got[COUNT_MAX];
    for (int k = 0; k < r->world; k++) {
        for (int i = 0; i < COUNT_MAX; i++)
            values[k][i] =
                (float)harness_uniform(rng, -1, 1) * (float)(1 << harness_random(rng) % 12);
        CHECK_OK(r->run->copy(r->device, r->streams[k], r->data[k], values[k], sizeof values[k]));
    }
    for (int s = 0; s < SUMS; s++)
        for (int k = 0; k < r->world; k++) {
            const int rank = (k + round + s) % r->world;
            CHECK_OK(r->run->hop(r->device, r->streams[rank], &r->memory[rank], r->data[rank],
                                 r->data[rank], count_of(s, r->world), TUTTI_F32));
        }
    if (!CHECK(all_done(r, SECONDS_MAX), "the sums do not end")) return;
    expect(values, r->world, want);
    for (int k = 0; k < r->world; k++) {
        CHECK_OK(r->run->copy(r->device, r->streams[k], got, r->data[k], sizeof got));
        CHECK_OK(r->run->stream_synchronize(r->device, r->streams[k]));
        CHECK(memcmp(got, want[k], sizeof got) == 0, "rank %d of %d, round %d: other bits", k,
              r->world, round);
    }
}

static void sums(void)
{
    static const int worlds[] = {2, 3, 5, RANKS_MAX};
    static const uint32_t epochs[] = {0, UINT32_MAX - 20, UINT32_MAX - 3, UINT32_MAX - 30};
    harness_rng rng = {7};
    for (int w = 0; w < HARNESS_COUNT(worlds); w++) {
        ranks r;
        const int before = harness_failures();
        open_ranks(&r, worlds[w], epochs[w]);
        for (int round = 0; round < ROUNDS && harness_failures() == before; round++)
            one_round(&r, &rng, round);
        close_ranks(&r);
    }
}

/* A rank alone waits until it is stopped, and leaves its values. */
static void stopped(void)
{
    static const float value = 3;
    float got = 0;
    ranks r;
    open_ranks(&r, 2, 0);
    CHECK_OK(r.run->copy(r.device, r.streams[1], r.data[1], &value, sizeof value));
    CHECK_OK(r.run->hop(r.device, r.streams[1], &r.memory[1], r.data[1], r.data[1], 1, TUTTI_F32));
    CHECK(!all_done(&r, 0.2), "a sum has ended without the other rank");
    CHECK_OK(r.run->copy(r.device, r.streams[1], &got, r.data[1], sizeof got));
    CHECK_OK(r.run->stream_synchronize(r.device, r.streams[1]));
    CHECK(got == value, "a sum that was stopped has left %g", (double)got);
    close_ranks(&r);
}

static const harness_test tests[] = {{"sums of many ranks", sums}, {"a sum is stopped", stopped}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "hop kernel", tests, HARNESS_COUNT(tests));
}
