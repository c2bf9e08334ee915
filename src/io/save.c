/* Saving.  The ranks agree on every step before they wait for each other, and rounds bound how
 * long:
 *
 *   1. rank 0 is or becomes the single writer of path;
 *   2. rank 0 lays the file out in memory, and all learn its size and the tensors' offsets;
 *   3. rank 0 creates path.tmp and reserves its space, so that a full disk is found before writing;
 *   4. the ranks that see that file share its blocks: copied from the device, hashed,
 *      written, synced; those of tensors in pieces after the others, in rounds in which all ranks
 *      first send their pieces;
 *   5. rank 0 writes checksums and metadata, the first bytes last, syncs and renames.
 *
 * Each step is logged at debug level as it ends; tests that kill a process match these texts. */
#include "io/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/control.h"
#include "files/place.h"

static const char who[] = "checkpoint_save";

/* The first bytes of path.tmp until it is complete.  They are unique, unlike its inode number,
 * which may be reused: so a rank left over from a killed run never writes to the next run's
 * file. */
typedef struct mark {
    char bytes[32];
} mark;

/* Blocks of this rank's share that are written before the ranks agree on their status. */
typedef struct share_round {
    int64_t first, count;
} share_round;

typedef struct save {
    tutti_checkpoint *checkpoint;
    const char *path;
    int keep;
    tutti__place place; /* of path.tmp; on ranks > 0 only its descriptor */
    mark mark;
    tutti__lock lock; /* rank 0: for this save if the list does not own path */
    int64_t size, *offsets;
    tutti__layout *layout; /* rank 0 */
    tutti__blocks blocks;
    int writers, *ranks;    /* the ranks that write, and how many */
    tutti__share mine;      /* the blocks that this rank writes */
    share_round pending[2]; /* the last two rounds of `mine`, which may not be on the disk yet */
    uint64_t *hashes;       /* of all blocks */
} save;

static void step(const save *s, const char *what)
{
    tutti__place_step(&s->place, what);
}

/* Fails unless all ranks have the same list and values, since the file has only one rank's. */
static tutti_status same_list(const save *s)
{
    const tutti_checkpoint *checkpoint = s->checkpoint;
    int count = checkpoint->count + 1;
    uint64_t *hashes = calloc((size_t)count + 1, sizeof *hashes);
    tutti_status status = hashes ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    status = tutti_comm_agree(checkpoint->comm, status);
    if (status == TUTTI_OK) {
        hashes[0] = tutti__hash(TUTTI__HASH_START, s->path, strlen(s->path) + 1);
        hashes[0] = tutti__hash(hashes[0], &s->keep, sizeof s->keep);
        for (int i = 0; i < checkpoint->count; i++)
            hashes[i + 1] = tutti__item_hash(&checkpoint->items[i], true);
        status = tutti__same_list(checkpoint, who, hashes, "path or keep");
    }
    free(hashes);
    return status;
}

/* path.tmp */

static tutti_status make_temporary(save *s)
{
    TUTTI_TRY(tutti__place_make(&s->place));
    TUTTI_TRY(tutti__place_reserve(&s->place, s->size));
    mark *mine = &s->mark;
    if (getrandom(mine->bytes, sizeof mine->bytes, 0) != (ssize_t)sizeof mine->bytes)
        return tutti__fail(TUTTI_ERR_IO, "%s: cannot get random bytes: %s", who, strerror(errno));
    memcpy(mine->bytes, "unfinished", 10); /* HDF5 files begin otherwise */
    const int error = tutti__write_at(s->place.fd, mine, sizeof *mine, 0);
    if (error) return tutti__place_failed(&s->place, "cannot write", error);
    step(s, "marked");
    return TUTTI_OK;
}

/* Identifies the file that a rank sees: only those write that see rank 0's, on its machine. */
typedef struct file_identity {
    uint64_t device, inode;
    mark mark;
    char machine[40];
    char writes;
} file_identity;

static file_identity identify_file(const save *s)
{
    file_identity seen;
    memset(&seen, 0, sizeof seen);
    struct stat now;
    int id = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (id < 0) return seen;
    bool known = read(id, seen.machine, sizeof seen.machine - 1) > 0;
    close(id);
    struct rlimit limit;
    bool allowed = getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                   (limit.rlim_cur == RLIM_INFINITY || (uint64_t)s->size <= limit.rlim_cur);
    const int fd = s->place.fd;
    if (!known || !allowed || fd < 0 || fstat(fd, &now) != 0) return seen;
    if (s->checkpoint->comm->rank == 0)
        seen.mark = s->mark;
    else if (tutti__read_at(fd, &seen.mark, sizeof seen.mark, 0) != 0)
        return seen;
    seen.device = now.st_dev;
    seen.inode = now.st_ino;
    seen.writes = 1;
    return seen;
}

static tutti_status find_writers(save *s)
{
    tutti_comm *comm = s->checkpoint->comm;
    if (comm->rank > 0)
        s->place.fd = open(s->place.temporary, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    file_identity mine = identify_file(s), *all = calloc((size_t)comm->world_size, sizeof *all);
    tutti_status status = all ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) status = comm->control->gather(comm, &mine, all, sizeof mine, who);
    for (int r = 0; status == TUTTI_OK && r < comm->world_size; r++) {
        /* rank 0 has created the file and always writes */
        if (r > 0 && (!all[0].writes || memcmp(&all[r], &all[0], sizeof mine) != 0)) continue;
        s->ranks[s->writers++] = r;
    }
    free(all);
    return status;
}

/* Sends the file's size and offsets from rank 0 to all. */
static tutti_status share_layout(save *s)
{
    const tutti_checkpoint *checkpoint = s->checkpoint;
    tutti_comm *comm = checkpoint->comm;
    size_t count = (size_t)checkpoint->count;
    s->offsets = calloc(count + 1, sizeof *s->offsets);
    tutti_status status =
        s->offsets ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    if (status == TUTTI_OK && comm->rank == 0)
        status = tutti__target_check(checkpoint, who, s->path);
    if (status == TUTTI_OK && comm->rank == 0) {
        status = tutti__layout_create(checkpoint, &s->layout);
        if (status == TUTTI_OK) {
            memcpy(s->offsets, tutti__layout_offsets(s->layout), count * sizeof *s->offsets);
            s->offsets[count] = tutti__layout_size(s->layout);
        }
    }
    TUTTI_TRY(tutti_comm_agree(comm, status));
    TUTTI_TRY(comm->control->broadcast(comm, s->offsets, (count + 1) * sizeof *s->offsets, 0, who));
    s->size = s->offsets[count];
    step(s, "laid out");
    return TUTTI_OK;
}

/* The tensors */

/* The writer of one of `count` things: each writer gets a run of them. */
static int writer_of(const save *s, int64_t number, int64_t count)
{
    return s->ranks[number * s->writers / count];
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Assigns blocks to the writers: those of whole tensors as a run each, of those in pieces a run of
 * each round, since all ranks go through these rounds together. */
static tutti_status assign_blocks(save *s)
{
    const tutti__blocks *blocks = &s->blocks;
    for (int64_t i = 0; i < blocks->whole; i++)
        blocks->all[i].writer = writer_of(s, i, blocks->whole);
    for (int64_t first = blocks->whole; first < blocks->count; first += TUTTI__ROUND_BLOCKS) {
        const int64_t count = least(TUTTI__ROUND_BLOCKS, blocks->count - first);
        for (int64_t i = 0; i < count; i++) blocks->all[first + i].writer = writer_of(s, i, count);
    }
    return tutti__share_make(s->checkpoint, blocks, &s->mine);
}

/* Waits until a round is on the disk.  So at most two are pending, the final sync is short, and
 * ranks wait for each other no longer than that, however slow the disk. */
static tutti_status settle_round(const save *s, share_round round)
{
    for (int64_t i = round.first; i < round.first + round.count; i++) {
        const unsigned wait =
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        const tutti__block *block = &s->mine.blocks[i];
        int done = sync_file_range(s->place.fd, block->offset, block->bytes, wait);
        if (done != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
            return tutti__place_failed(&s->place, "cannot write", errno);
    }
    return TUTTI_OK;
}

static tutti_status write_round(save *s, tutti__mover *mover, share_round now, share_round next)
{
    const tutti__share *mine = &s->mine;
    if (now.count == 0) return TUTTI_OK;
    TUTTI_TRY(settle_round(s, s->pending[0]));
    s->pending[0] = s->pending[1];
    s->pending[1] = now;
    int error;
    TUTTI_TRY(tutti__mover_write(mover, mine->blocks + now.first, now.count,
                                 mine->hashes + now.first, mine->blocks + next.first, next.count,
                                 &error));
    return error ? tutti__place_failed(&s->place, "cannot write", error) : TUTTI_OK;
}

/* A round of this rank's blocks of whole tensors; count is 0 past their end. */
static share_round whole_round(const save *s, int64_t number)
{
    const int64_t first = least(number * TUTTI__ROUND_BLOCKS, s->mine.whole);
    return (share_round){first, least(TUTTI__ROUND_BLOCKS, s->mine.whole - first)};
}

static tutti_status write_whole(save *s, tutti__mover *mover)
{
    tutti_comm *comm = s->checkpoint->comm;
    const int64_t most = (s->blocks.whole + s->writers - 1) / s->writers; /* of any rank */
    tutti_status status = tutti__mover_fetch(mover, s->mine.blocks, whole_round(s, 0).count);
    status = tutti_comm_agree(comm, status);
    for (int64_t r = 0; status == TUTTI_OK && r * TUTTI__ROUND_BLOCKS < most; r++) {
        const share_round now = whole_round(s, r);
        status = tutti_comm_agree(comm, write_round(s, mover, now, whole_round(s, r + 1)));
        if (now.count > 0) step(s, "wrote a round");
    }
    return status;
}

/* This rank's blocks of a round of tensors in pieces, of which it has written `done` before. */
static share_round pieces_round(const save *s, int64_t first, int64_t count, int64_t done)
{
    share_round mine = {done, 0};
    for (int64_t i = first; i < first + count; i++)
        mine.count += s->blocks.all[i].writer == s->checkpoint->comm->rank;
    return mine;
}

static tutti_status write_pieces(save *s, tutti__mover *mover)
{
    tutti_comm *comm = s->checkpoint->comm;
    const tutti__blocks *blocks = &s->blocks;
    tutti_status status = TUTTI_OK;
    int64_t first = blocks->whole, done = s->mine.whole;
    for (; status == TUTTI_OK && first < blocks->count; first += TUTTI__ROUND_BLOCKS) {
        const int64_t count = least(TUTTI__ROUND_BLOCKS, blocks->count - first);
        const share_round now = pieces_round(s, first, count, done);
        status = tutti__pieces_gather(s->checkpoint, blocks->all + first, count);
        if (status == TUTTI_OK)
            status = tutti__mover_fetch(mover, s->mine.blocks + done, now.count);
        if (status == TUTTI_OK) status = write_round(s, mover, now, (share_round){0, 0});
        status = tutti_comm_agree(comm, status);
        if (now.count > 0) step(s, "wrote a round");
        done += now.count;
    }
    return status;
}

static tutti_status write_tensors(save *s)
{
    tutti_comm *comm = s->checkpoint->comm;
    const tutti__share *mine = &s->mine;
    tutti__mover mover;
    tutti_status status =
        tutti__mover_open(&mover, s->checkpoint->ctx, s->place.fd, mine->blocks, mine->count);
    if (status == TUTTI_OK) status = tutti__list_widen(s->checkpoint);
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) status = write_whole(s, &mover);
    if (status == TUTTI_OK) status = write_pieces(s, &mover);
    /* keeps the buffers if a copy may still be under way */
    if (tutti_context_synchronize(s->checkpoint->ctx) == TUTTI_OK) tutti__mover_close(&mover);
    if (status == TUTTI_OK && mine->count > 0 && fsync(s->place.fd) != 0)
        status = tutti__place_failed(&s->place, "cannot sync", errno);
    step(s, "synced the tensors");
    return tutti_comm_agree(comm, status);
}

/* The end, on rank 0 */

static tutti_status write_layout(save *s)
{
    uint64_t *checksums = calloc((size_t)s->checkpoint->count + 1, sizeof *checksums);
    if (!checksums) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    for (int64_t i = 0, end; i < s->blocks.count; i = end) {
        int item = s->blocks.all[i].item;
        for (end = i; s->blocks.all[end].item == item;) end++;
        checksums[item] = tutti__checksum_of_hashes(s->hashes + i, end - i);
    }
    tutti_status status = tutti__layout_finish(s->layout, checksums);
    free(checksums);
    TUTTI_TRY(status);
    int error;
    TUTTI_TRY(tutti__layout_write(s->layout, s->place.fd, &error));
    if (error) return tutti__place_failed(&s->place, "cannot write", error);
    step(s, "completed");
    return tutti__place_sync(&s->place);
}

static tutti_status take_place(save *s)
{
    TUTTI_TRY(write_layout(s));
    /* all that may fail comes before an older file is lost */
    TUTTI_TRY(tutti__place_permit(&s->place));
    TUTTI_TRY(tutti__place_rotate(&s->place, s->keep));
    TUTTI_TRY(tutti__place_take(&s->place));
    return tutti__place_sync_folder(&s->place);
}

/* The whole save */

static tutti_status write_file(save *s)
{
    tutti_comm *comm = s->checkpoint->comm;
    step(s, "begins");
    TUTTI_TRY(same_list(s));
    TUTTI_TRY(tutti__own(s->checkpoint, who, s->path, &s->lock));
    step(s, "owns the file");
    TUTTI_TRY(share_layout(s));
    tutti_status status = comm->rank == 0 ? make_temporary(s) : TUTTI_OK;
    if (status == TUTTI_OK) status = tutti__blocks_make(s->checkpoint, s->offsets, &s->blocks);
    s->hashes = calloc((size_t)s->blocks.count + 1, sizeof *s->hashes);
    s->ranks = calloc((size_t)comm->world_size, sizeof *s->ranks);
    if (status == TUTTI_OK && (!s->hashes || !s->ranks))
        status = tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    TUTTI_TRY(tutti_comm_agree(comm, status));
    TUTTI_TRY(find_writers(s));
    TUTTI_TRY(tutti_comm_agree(comm, assign_blocks(s)));
    TUTTI_TRY(write_tensors(s));
    TUTTI_TRY(tutti__share_gather(s->checkpoint, who, &s->mine, &s->blocks, s->hashes));
    return tutti_comm_agree(comm, comm->rank == 0 ? take_place(s) : TUTTI_OK);
}

tutti_status tutti_checkpoint_save(tutti_checkpoint *checkpoint, const char *path, int keep)
{
    TUTTI_REQUIRE(checkpoint, "%s: checkpoint is NULL", who);
    TUTTI_TRY(tutti__comm_open(checkpoint->comm, who));
    TUTTI_TRY(tutti_comm_agree(checkpoint->comm, tutti__save_check(checkpoint, who, path, keep)));
    save s = {.checkpoint = checkpoint, .path = path, .keep = keep};
    s.lock = (tutti__lock)TUTTI__LOCK_NONE;
    tutti__place_init(&s.place, &tutti__library, who, path);
    tutti_status status = write_file(&s);
    tutti__place_drop(&s.place);
    tutti__lock_release(&s.lock);
    tutti__layout_destroy(&s.layout);
    free(s.offsets);
    tutti__share_free(&s.mine);
    tutti__blocks_free(checkpoint, &s.blocks);
    free(s.hashes);
    free(s.ranks);
    return status;
}
