/* Moving and hashing tensors in blocks: between the device and the file, by several threads. */
#include "io/checkpoint.h"

#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "comm/control.h"
#include "core/version.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the file format is little-endian, so the machine must be"
#endif

void tutti__io_describe(char *text, size_t size)
{
    unsigned major = 0, minor = 0, release = 0, xxhash = XXH_versionNumber();
    H5get_libversion(&major, &minor, &release);
    snprintf(text, size, "files: hdf5 %u.%u.%u, xxhash %u.%u.%u", major, minor, release,
             xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
}

/* Hashes */

uint64_t tutti__checksum_of_hashes(const uint64_t *hashes, int64_t count)
{
    return XXH3_64bits(hashes, (size_t)count * sizeof *hashes);
}

uint64_t tutti__checksum(const void *data, size_t bytes)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) return 0;
    XXH3_64bits_reset(state);
    const char *at = data;
    for (size_t done = 0; done < bytes;) {
        size_t part =
            bytes - done < (size_t)TUTTI__BLOCK_BYTES ? bytes - done : (size_t)TUTTI__BLOCK_BYTES;
        uint64_t hash = XXH3_64bits(at + done, part);
        XXH3_64bits_update(state, &hash, sizeof hash);
        done += part;
    }
    uint64_t checksum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return checksum;
}

/* Blocks */

static int64_t blocks_of(const tutti__item *item)
{
    if (item->kind != TUTTI__ITEM_TENSOR) return 0;
    return ((int64_t)tutti__item_bytes(item) + TUTTI__BLOCK_BYTES - 1) / TUTTI__BLOCK_BYTES;
}

/* Cuts a tensor into blocks. */
static void cut(const tutti_checkpoint *checkpoint, int number, int64_t offset,
                tutti__blocks *blocks)
{
    const tutti__item *item = &checkpoint->items[number];
    for (int64_t i = 0, count = blocks_of(item); i < count; i++) {
        const int64_t place = (blocks->count - blocks->whole) % TUTTI__ROUND_BLOCKS;
        const int64_t begin = i * TUTTI__BLOCK_BYTES;
        const int64_t left = (int64_t)tutti__item_bytes(item) - begin;
        blocks->all[blocks->count++] = (tutti__block){
            .item = number,
            .data = item->pieces ? blocks->staging + place * TUTTI__BLOCK_BYTES
                                 : (char *)item->tensor.data + begin,
            .begin = begin,
            .offset = offset + begin,
            .bytes = left < TUTTI__BLOCK_BYTES ? left : TUTTI__BLOCK_BYTES,
        };
    }
}

/* Counts the blocks of tensors that are whole on every rank, and of those that are not. */
static void count_blocks(const tutti_checkpoint *checkpoint, int64_t counts[2])
{
    for (int i = 0; i < checkpoint->count; i++) {
        const tutti__item *item = &checkpoint->items[i];
        counts[item->pieces != NULL] += blocks_of(item);
    }
}

tutti_status tutti__blocks_make(const tutti_checkpoint *checkpoint, const int64_t *offsets,
                                tutti__blocks *blocks)
{
    const tutti_context *ctx = checkpoint->ctx;
    int64_t counts[2] = {0, 0};
    count_blocks(checkpoint, counts);
    *blocks = (tutti__blocks){.whole = counts[0]};
    blocks->all = calloc((size_t)(counts[0] + counts[1]) + 1, sizeof *blocks->all);
    if (!blocks->all) return tutti__fail(TUTTI_ERR_MEMORY, "checkpoint: no memory");
    const int64_t places = counts[1] < TUTTI__ROUND_BLOCKS ? counts[1] : TUTTI__ROUND_BLOCKS;
    if (places > 0)
        TUTTI_TRY(ctx->backend->run.alloc(ctx->device, (size_t)(places * TUTTI__BLOCK_BYTES),
                                          (void **)&blocks->staging));
    for (int pieces = 0; pieces < 2; pieces++)
        for (int i = 0; i < checkpoint->count; i++)
            if ((checkpoint->items[i].pieces != NULL) == pieces)
                cut(checkpoint, i, offsets[i], blocks);
    blocks->all[blocks->count].item = -1;
    return TUTTI_OK;
}

void tutti__blocks_free(const tutti_checkpoint *checkpoint, tutti__blocks *blocks)
{
    tutti_context *ctx = checkpoint->ctx;
    if (blocks->staging && !checkpoint->comm->dead && tutti_context_synchronize(ctx) == TUTTI_OK)
        ctx->backend->run.free(ctx->device, blocks->staging);
    free(blocks->all);
    *blocks = (tutti__blocks){.count = 0};
}

tutti_status tutti__share_make(const tutti_checkpoint *checkpoint, const tutti__blocks *blocks,
                               tutti__share *share)
{
    const tutti_comm *comm = checkpoint->comm;
    int64_t *counts = calloc((size_t)comm->world_size, sizeof *counts);
    *share = (tutti__share){.count = 0};
    for (int64_t i = 0; counts && i < blocks->count; i++) {
        const int64_t so_many = ++counts[blocks->all[i].writer];
        if (so_many > share->most) share->most = so_many;
    }
    const size_t room = counts ? (size_t)counts[comm->rank] + 1 : 1;
    share->blocks = calloc(room, sizeof *share->blocks);
    share->hashes = calloc(room, sizeof *share->hashes);
    const bool good = counts && share->blocks && share->hashes;
    for (int64_t i = 0; good && i < blocks->count; i++) {
        if (blocks->all[i].writer != comm->rank) continue;
        share->blocks[share->count++] = blocks->all[i];
        share->whole += i < blocks->whole;
    }
    free(counts);
    return good ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "checkpoint: no memory");
}

void tutti__share_free(tutti__share *share)
{
    free(share->blocks);
    free(share->hashes);
    *share = (tutti__share){.count = 0};
}

tutti_status tutti__share_gather(const tutti_checkpoint *checkpoint, const char *who,
                                 const tutti__share *share, const tutti__blocks *blocks,
                                 uint64_t *hashes)
{
    tutti_comm *comm = checkpoint->comm;
    const size_t most = (size_t)share->most, ranks = (size_t)comm->world_size;
    uint64_t *sent = calloc(most + 1, sizeof *sent);
    uint64_t *all = calloc(ranks * most + 1, sizeof *all);
    size_t *next = calloc(ranks, sizeof *next);
    tutti_status status =
        sent && all && next ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) {
        memcpy(sent, share->hashes, (size_t)share->count * sizeof *sent);
        status = comm->control->gather(comm, sent, all, most * sizeof *sent, who);
    }
    for (int64_t i = 0; status == TUTTI_OK && i < blocks->count; i++) {
        const int writer = blocks->all[i].writer;
        hashes[i] = all[(size_t)writer * most + next[writer]++];
    }
    free(sent);
    free(all);
    free(next);
    return status;
}

/* The device */

tutti_status tutti__mover_open(tutti__mover *mover, tutti_context *ctx, int fd,
                               const tutti__block *blocks, int64_t count)
{
    *mover = (tutti__mover){.ctx = ctx, .fd = fd};
    if (ctx->backend->kind == TUTTI_BACKEND_HOST || count == 0) return TUTTI_OK;
    int64_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (blocks[i].bytes > largest) largest = blocks[i].bytes;
    /* a stage has room for a full block per block of a round */
    size_t blocks_a_round = (size_t)(count < TUTTI__ROUND_BLOCKS ? count : TUTTI__ROUND_BLOCKS);
    size_t bytes = count == 1 ? (size_t)largest : blocks_a_round * (size_t)TUTTI__BLOCK_BYTES;
    for (int i = 0; i < 2; i++)
        TUTTI_TRY(ctx->backend->run.host_alloc(ctx->device, bytes, (void **)&mover->stage[i]));
    return TUTTI_OK;
}

void tutti__mover_close(tutti__mover *mover)
{
    for (int i = 0; i < 2; i++)
        if (mover->stage[i])
            mover->ctx->backend->run.host_free(mover->ctx->device, mover->stage[i]);
    mover->stage[0] = mover->stage[1] = NULL;
}

/* Where a block of a round is in host memory. */
static char *host_place(const tutti__mover *mover, const tutti__block *block, int64_t place)
{
    char *stage = mover->stage[mover->turn];
    return stage ? stage + place * TUTTI__BLOCK_BYTES : block->data;
}

static tutti_status copy_round(tutti__mover *mover, const tutti__block *blocks, int64_t count,
                               bool to_device)
{
    const tutti__runtime *run = &mover->ctx->backend->run;
    for (int64_t i = 0; mover->stage[0] && i < count; i++) {
        char *host = host_place(mover, &blocks[i], i);
        TUTTI_TRY(run->copy(mover->ctx->device, mover->ctx->stream,
                            to_device ? blocks[i].data : host, to_device ? host : blocks[i].data,
                            (size_t)blocks[i].bytes));
    }
    return TUTTI_OK;
}

static int team(const tutti__mover *mover, int64_t count)
{
    int64_t threads =
        mover->ctx->threads < TUTTI__ROUND_BLOCKS ? mover->ctx->threads : TUTTI__ROUND_BLOCKS;
    return (int)(threads < count ? threads : count > 0 ? count : 1);
}

tutti_status tutti__mover_fetch(tutti__mover *mover, const tutti__block *blocks, int64_t count)
{
    return copy_round(mover, blocks, count, false);
}

tutti_status tutti__mover_write(tutti__mover *mover, const tutti__block *blocks, int64_t count,
                                uint64_t *hashes, const tutti__block *next, int64_t next_count,
                                int *error)
{
    *error = 0;
    TUTTI_TRY(tutti_context_synchronize(mover->ctx));
    mover->turn ^= 1;
    TUTTI_TRY(copy_round(mover, next, next_count, false));
    mover->turn ^= 1;
    int first_error = 0;
#pragma omp parallel for num_threads(team(mover, count)) schedule(dynamic, 1)
    for (int64_t i = 0; i < count; i++) {
        const tutti__block *block = &blocks[i];
        const char *data = host_place(mover, block, i);
        int failed = tutti__write_at(mover->fd, data, block->bytes, block->offset);
        /* written to the disk while the next one is hashed */
        if (!failed) sync_file_range(mover->fd, block->offset, block->bytes, SYNC_FILE_RANGE_WRITE);
        hashes[i] = XXH3_64bits(data, (size_t)block->bytes);
        if (failed) {
#pragma omp atomic write
            first_error = failed;
        }
    }
    mover->turn ^= 1;
    *error = first_error;
    return TUTTI_OK;
}

tutti_status tutti__mover_read(tutti__mover *mover, const tutti__block *blocks, int64_t count,
                               uint64_t *hashes, int *error)
{
    int first_error = 0;
#pragma omp parallel for num_threads(team(mover, count)) schedule(dynamic, 1)
    for (int64_t i = 0; i < count; i++) {
        char *data = host_place(mover, &blocks[i], i);
        int failed = tutti__read_at(mover->fd, data, blocks[i].bytes, blocks[i].offset);
        hashes[i] = failed ? 0 : XXH3_64bits(data, (size_t)blocks[i].bytes);
        if (failed) {
#pragma omp atomic write
            first_error = failed;
        }
    }
    *error = first_error;
    if (first_error || !mover->stage[0]) return TUTTI_OK;
    /* waits for the other stage's copies, so that it can be reused */
    TUTTI_TRY(tutti_context_synchronize(mover->ctx));
    TUTTI_TRY(copy_round(mover, blocks, count, true));
    mover->turn ^= 1;
    return TUTTI_OK;
}
