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

/* Cuts a tensor into blocks, part by part if ranks have parts; returns how many. */
static int64_t cut(const tutti_checkpoint *checkpoint, int number, int64_t offset,
                   tutti__block *blocks)
{
    const tutti__item *item = &checkpoint->items[number];
    const int rank = checkpoint->comm->rank, ranks = item->bounds ? item->ranks : 1;
    int64_t n = 0;
    for (int r = 0; r < ranks; r++) {
        const tutti__part part = tutti__item_part(item, r);
        const bool here = !item->bounds || r == rank;
        for (int64_t at = part.begin; at < part.end; at += TUTTI__BLOCK_BYTES) {
            const int64_t left = part.end - at;
            blocks[n++] = (tutti__block){
                .item = number,
                .mover = item->bounds ? r : -1,
                .data = here ? (char *)item->tensor.data + (at - part.begin) : NULL,
                .offset = offset + at,
                .bytes = left < TUTTI__BLOCK_BYTES ? left : TUTTI__BLOCK_BYTES,
            };
        }
    }
    return n;
}

tutti_status tutti__blocks_make(const tutti_checkpoint *checkpoint, const int64_t *offsets,
                                tutti__block **blocks, int64_t *count)
{
    *count = 0;
    for (int i = 0; i < checkpoint->count; i++)
        if (checkpoint->items[i].kind == TUTTI__ITEM_TENSOR)
            *count += ((int64_t)tutti__item_bytes(&checkpoint->items[i]) + TUTTI__BLOCK_BYTES - 1) /
                      TUTTI__BLOCK_BYTES;
    tutti__block *made = calloc((size_t)*count + 1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "checkpoint: no memory");
    int64_t n = 0;
    for (int i = 0; i < checkpoint->count; i++)
        if (checkpoint->items[i].kind == TUTTI__ITEM_TENSOR)
            n += cut(checkpoint, i, offsets[i], made + n);
    *blocks = made;
    return TUTTI_OK;
}

tutti_status tutti__share_make(const tutti_checkpoint *checkpoint, const tutti__block *blocks,
                               int64_t count, int mover, tutti__share *share)
{
    int64_t *counts = calloc((size_t)checkpoint->comm->world_size + 1, sizeof *counts);
    *share = (tutti__share){.count = 0};
    for (int64_t i = 0; counts && i < count; i++) {
        const int64_t so_many = ++counts[blocks[i].mover + 1];
        if (blocks[i].mover >= 0 && so_many > share->most) share->most = so_many;
    }
    const size_t room = counts ? (size_t)counts[mover + 1] + 1 : 1;
    share->blocks = calloc(room, sizeof *share->blocks);
    share->hashes = calloc(room, sizeof *share->hashes);
    const bool good = counts && share->blocks && share->hashes;
    for (int64_t i = 0; good && i < count; i++)
        if (blocks[i].mover == mover) share->blocks[share->count++] = blocks[i];
    free(counts);
    return good ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "checkpoint: no memory");
}

void tutti__share_free(tutti__share *share)
{
    free(share->blocks);
    free(share->hashes);
    *share = (tutti__share){.count = 0};
}

tutti__round tutti__share_round(const tutti__share *share, int64_t round)
{
    const int64_t done = round * TUTTI__ROUND_BLOCKS;
    const int64_t left = share->count > done ? share->count - done : 0;
    return (tutti__round){done, left < TUTTI__ROUND_BLOCKS ? left : TUTTI__ROUND_BLOCKS};
}

tutti_status tutti__share_gather(const tutti_checkpoint *checkpoint, const char *who,
                                 const tutti__share *share, const tutti__block *blocks,
                                 int64_t count, uint64_t *hashes)
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
    for (int64_t i = 0; status == TUTTI_OK && i < count; i++) {
        const int mover = blocks[i].mover;
        if (mover >= 0) hashes[i] = all[(size_t)mover * most + next[mover]++];
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
