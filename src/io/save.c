/* Saving.  Every step is agreed on before anybody waits for anybody, and rounds bound how long that is:
 *
 *   rank 0 lays the file out in memory; all learn its size and the places of the tensors
 *   rank 0 makes path.tmp and reserves its space: a full disk is found here, before a byte is written
 *   the ranks that see that very file share its blocks: from the device, hashed, written, synced
 *   rank 0 adds checksums and metadata, the first bytes last, syncs, and renames
 *
 * Each step is logged at debug level as it ends, in the words of the tests that kill a process there. */
#include "io/checkpoint.h"

#ifdef TUTTI_WITH_HDF5

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"

static const char who[] = "checkpoint_save";

typedef struct save {
    const tutti_checkpoint *checkpoint;
    const char *path;
    char temporary[PATH_MAX];
    int keep, fd;
    bool made; /* path.tmp is there */
    int64_t size, *offsets;
    tutti__layout *layout; /* rank 0 */
    tutti__block *blocks;
    int64_t block_count;
    int writers, writer,
        *ranks;       /* how many ranks write, which of them this one is (-1: none), who they are */
    uint64_t *hashes; /* of all blocks */
} save;

static void step(const save *s, const char *what)
{
    tutti__log(TUTTI_LOG_DEBUG, "%s: %s: %s", who, s->path, what);
}

static tutti_status failed(const save *s, const char *what, int error)
{
    return tutti__fail(TUTTI_ERR_IO, "%s: %s: %s %s: %s", who, s->path, what, s->temporary,
                       strerror(error));
}

/* The list */

static tutti_status check_value(const tutti__item *item)
{
    if (item->kind == TUTTI__ITEM_TEXT)
        TUTTI_REQUIRE(memchr(item->data, 0, item->size), "%s: %s is not ended by a 0", who,
                      item->name);
    if (item->kind == TUTTI__ITEM_TABLE)
        TUTTI_REQUIRE(*item->rows >= 0 && *item->rows <= item->capacity,
                      "%s: %s has %lld rows, want 0 to %lld", who, item->name,
                      (long long)*item->rows, (long long)item->capacity);
    return TUTTI_OK;
}

static tutti_status check_save(tutti_checkpoint *checkpoint, const char *path, int keep)
{
    TUTTI_REQUIRE(path && path[0], "%s: path is %s", who, path ? "empty" : "NULL");
    TUTTI_REQUIRE(strlen(path) + 16 < PATH_MAX, "%s: path is longer than %d bytes", who,
                  PATH_MAX - 17);
    TUTTI_REQUIRE(keep >= 0 && keep <= 9999, "%s: keep is %d, want 0 to 9999", who, keep);
    for (int i = 0; i < checkpoint->count; i++) TUTTI_TRY(check_value(&checkpoint->items[i]));
    return tutti_context_synchronize(checkpoint->ctx);
}

/* The same list with the same values on all ranks: what differs would be one rank's alone in the file. */
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

static tutti_status check_target(const save *s)
{
    struct stat there;
    if (stat(s->path, &there) == 0 && !S_ISREG(there.st_mode))
        return tutti__fail(TUTTI_ERR_IO, "%s: %s: is no regular file", who, s->path);
    /* beyond this limit a write would end the process by SIGXFSZ, and one into the layout's memory too: so the size is estimated
     * before there is a layout, from above */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return TUTTI_OK;
    uint64_t bytes = 1 << 16;
    for (int i = 0; i < s->checkpoint->count; i++) {
        const tutti__item *item = &s->checkpoint->items[i];
        bytes += tutti__item_bytes(item) + 8192;
        for (const char *at = item->name; *at; at++) bytes += *at == '/' ? 6144 : 0;
    }
    if (bytes > limit.rlim_cur)
        return tutti__fail(TUTTI_ERR_IO,
                           "%s: %s: it takes up to %llu bytes, and this process may write files "
                           "of %llu (RLIMIT_FSIZE)",
                           who, s->path, (unsigned long long)bytes,
                           (unsigned long long)limit.rlim_cur);
    return TUTTI_OK;
}

static tutti_status make_temporary(save *s)
{
    unlink(s->temporary); /* what a killed process has left */
    s->fd = open(s->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (s->fd < 0) return failed(s, "cannot create", errno);
    s->made = true;
    step(s, "made the temporary file");
    int done;
    do done = fallocate(s->fd, 0, 0, s->size);
    while (done != 0 && errno == EINTR);
    /* a file system that cannot reserve says so; a full one is then found while writing */
    if (done != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) done = ftruncate(s->fd, s->size);
    if (done != 0) return failed(s, "cannot reserve the space of", errno);
    step(s, "reserved");
    return TUTTI_OK;
}

/* Whose file it is: only ranks that see the same file on the same machine write. */
typedef struct sight {
    uint64_t device, inode;
    char machine[40];
    char writes;
} sight;

static sight look_at(const save *s)
{
    sight seen;
    memset(&seen, 0, sizeof seen);
    struct stat now;
    int id = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (id < 0) return seen;
    bool known = read(id, seen.machine, sizeof seen.machine - 1) > 0;
    close(id);
    struct rlimit limit;
    bool allowed = getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                   (limit.rlim_cur == RLIM_INFINITY || (uint64_t)s->size <= limit.rlim_cur);
    if (!known || !allowed || s->fd < 0 || fstat(s->fd, &now) != 0) return seen;
    seen.device = now.st_dev;
    seen.inode = now.st_ino;
    seen.writes = 1;
    return seen;
}

static tutti_status find_writers(save *s)
{
    tutti_comm *comm = s->checkpoint->comm;
    if (comm->rank > 0) s->fd = open(s->temporary, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    sight mine = look_at(s), *all = calloc((size_t)comm->world_size, sizeof *all);
    tutti_status status = all ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) status = comm->control->gather(comm, &mine, all, sizeof mine, who);
    s->writer = -1;
    for (int r = 0; status == TUTTI_OK && r < comm->world_size; r++) {
        /* rank 0 has made the file and writes in any case */
        if (r > 0 && (!all[0].writes || memcmp(&all[r], &all[0], sizeof mine) != 0)) continue;
        if (r == comm->rank) s->writer = s->writers;
        s->ranks[s->writers++] = r;
    }
    free(all);
    return status;
}

/* Size and places, from rank 0 to all. */
static tutti_status share_layout(save *s)
{
    const tutti_checkpoint *checkpoint = s->checkpoint;
    tutti_comm *comm = checkpoint->comm;
    size_t count = (size_t)checkpoint->count;
    s->offsets = calloc(count + 1, sizeof *s->offsets);
    tutti_status status =
        s->offsets ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    if (status == TUTTI_OK && comm->rank == 0) status = check_target(s);
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

typedef struct share {
    int64_t first, count;
} share;

static share share_of(const save *s, int writer)
{
    int64_t each = s->block_count / s->writers, rest = s->block_count % s->writers;
    if (writer < 0) return (share){0, 0};
    return (share){writer * each + (writer < rest ? writer : rest), each + (writer < rest)};
}

static share round_of(share mine, int64_t round)
{
    int64_t done = round * TUTTI__ROUND_BLOCKS;
    int64_t left = mine.count > done ? mine.count - done : 0;
    return (share){mine.first + done, left < TUTTI__ROUND_BLOCKS ? left : TUTTI__ROUND_BLOCKS};
}

/* Waits until the disk has a round: what it has not yet is never more than two, and the sync at the end is soon done, so no rank
 * waits for another longer than that, however slow the disk. */
static tutti_status settle_round(const save *s, int64_t round)
{
    share now = round_of(share_of(s, s->writer), round);
    for (int64_t i = now.first; i < now.first + now.count; i++) {
        const unsigned wait =
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        int done = sync_file_range(s->fd, s->blocks[i].offset, s->blocks[i].bytes, wait);
        if (done != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
            return failed(s, "cannot write", errno);
    }
    return TUTTI_OK;
}

static tutti_status write_round(save *s, tutti__mover *mover, int64_t round)
{
    share mine = share_of(s, s->writer), now = round_of(mine, round);
    share next = round_of(mine, round + 1);
    if (now.count == 0) return TUTTI_OK;
    if (round >= 2) TUTTI_TRY(settle_round(s, round - 2));
    int error;
    TUTTI_TRY(tutti__mover_write(mover, s->blocks + now.first, now.count, s->hashes + now.first,
                                 s->blocks + next.first, next.count, &error));
    return error ? failed(s, "cannot write", error) : TUTTI_OK;
}

static tutti_status write_tensors(save *s)
{
    tutti_comm *comm = s->checkpoint->comm;
    share mine = share_of(s, s->writer), first = round_of(mine, 0);
    tutti__mover mover;
    tutti_status status =
        tutti__mover_open(&mover, s->checkpoint->ctx, s->fd, s->blocks + mine.first, mine.count);
    if (status == TUTTI_OK)
        status = tutti__mover_fetch(&mover, s->blocks + first.first, first.count);
    status = tutti_comm_agree(comm, status);
    int64_t most = share_of(s, 0).count; /* the first writers have the largest shares */
    for (int64_t round = 0; status == TUTTI_OK && round * TUTTI__ROUND_BLOCKS < most; round++) {
        status = tutti_comm_agree(comm, write_round(s, &mover, round));
        step(s, "wrote a round");
    }
    /* where a copy may still be under way the buffers are left to it */
    if (tutti_context_synchronize(s->checkpoint->ctx) == TUTTI_OK) tutti__mover_close(&mover);
    if (status == TUTTI_OK && mine.count > 0 && fsync(s->fd) != 0)
        status = failed(s, "cannot sync", errno);
    step(s, "synced the tensors");
    return tutti_comm_agree(comm, status);
}

/* Everybody's hashes, for all. */
static tutti_status gather_hashes(save *s)
{
    tutti_comm *comm = s->checkpoint->comm;
    share mine = share_of(s, s->writer);
    size_t most = (size_t)share_of(s, 0).count;
    uint64_t *sent = calloc(most + 1, sizeof *sent);
    uint64_t *all = calloc((size_t)comm->world_size * most + 1, sizeof *all);
    tutti_status status =
        sent && all ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) {
        memcpy(sent, s->hashes + mine.first, (size_t)mine.count * sizeof *sent);
        status = comm->control->gather(comm, sent, all, most * sizeof *sent, who);
    }
    for (int w = 0; status == TUTTI_OK && w < s->writers; w++) {
        share theirs = share_of(s, w);
        memcpy(s->hashes + theirs.first, all + (size_t)s->ranks[w] * most,
               (size_t)theirs.count * sizeof *all);
    }
    free(sent);
    free(all);
    return status;
}

/* The end, on rank 0 */

static tutti_status write_layout(save *s)
{
    uint64_t *checksums = calloc((size_t)s->checkpoint->count + 1, sizeof *checksums);
    if (!checksums) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    for (int64_t i = 0, end; i < s->block_count; i = end) {
        int item = s->blocks[i].item;
        for (end = i; end < s->block_count && s->blocks[end].item == item;) end++;
        checksums[item] = tutti__checksum_of_hashes(s->hashes + i, end - i);
    }
    tutti_status status = tutti__layout_finish(s->layout, checksums);
    free(checksums);
    TUTTI_TRY(status);
    int error;
    TUTTI_TRY(tutti__layout_write(s->layout, s->fd, &error));
    if (error) return failed(s, "cannot write", error);
    step(s, "completed");
    if (fsync(s->fd) != 0) return failed(s, "cannot sync", errno);
    error = close(s->fd) != 0 ? errno : 0;
    s->fd = -1;
    if (error) return failed(s, "cannot close", error);
    step(s, "synced");
    return TUTTI_OK;
}

static void older(const save *s, char *name, int which)
{
    snprintf(name, PATH_MAX, "%s.%d", s->path, which);
}

/* path.1 becomes path.2 and so on; what is at path gets path.1 as a second name, so that it is at path until the new file is. */
static tutti_status rotate(const save *s)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct stat newest, before;
    older(s, to, 1);
    if (s->keep == 0 || stat(s->path, &newest) != 0) return TUTTI_OK;
    /* a process killed just here has rotated already */
    if (stat(to, &before) == 0 && before.st_dev == newest.st_dev && before.st_ino == newest.st_ino)
        return TUTTI_OK;
    for (int i = s->keep - 1; i >= 1; i--) {
        older(s, from, i);
        older(s, to, i + 1);
        if (rename(from, to) == 0)
            step(s, "rotated");
        else if (errno != ENOENT)
            return tutti__fail(TUTTI_ERR_IO, "%s: cannot rename %s to %s: %s", who, from, to,
                               strerror(errno));
    }
    older(s, to, 1);
    int done = link(s->path, to);
    if (done != 0 && errno == EEXIST && unlink(to) == 0) done = link(s->path, to);
    /* a file system without links: for a moment nothing is at path */
    if (done != 0) done = rename(s->path, to);
    if (done != 0)
        return tutti__fail(TUTTI_ERR_IO, "%s: cannot rename %s to %s: %s", who, s->path, to,
                           strerror(errno));
    step(s, "linked");
    return TUTTI_OK;
}

static tutti_status sync_folder(const save *s)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", s->path);
    int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return TUTTI_OK; /* a folder that may be written to but not read */
    int error = fsync(folder) != 0 ? errno : 0;
    close(folder);
    if (error && error != EINVAL && error != ENOTSUP)
        return tutti__fail(TUTTI_ERR_IO,
                           "%s: %s is in its place, but its folder cannot be synced: %s", who,
                           s->path, strerror(error));
    return TUTTI_OK;
}

static tutti_status take_place(save *s)
{
    TUTTI_TRY(write_layout(s));
    TUTTI_TRY(rotate(s));
    if (rename(s->temporary, s->path) != 0) return failed(s, "cannot rename", errno);
    s->made = false;
    step(s, "renamed");
    TUTTI_TRY(sync_folder(s));
    step(s, "synced the folder");
    return TUTTI_OK;
}

/* All of it */

static tutti_status write_file(save *s)
{
    tutti_comm *comm = s->checkpoint->comm;
    step(s, "begins");
    TUTTI_TRY(same_list(s));
    TUTTI_TRY(share_layout(s));
    tutti_status status = comm->rank == 0 ? make_temporary(s) : TUTTI_OK;
    if (status == TUTTI_OK)
        status = tutti__blocks_make(s->checkpoint, s->offsets, &s->blocks, &s->block_count);
    s->hashes = calloc((size_t)s->block_count + 1, sizeof *s->hashes);
    s->ranks = calloc((size_t)comm->world_size, sizeof *s->ranks);
    if (status == TUTTI_OK && (!s->hashes || !s->ranks))
        status = tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    TUTTI_TRY(tutti_comm_agree(comm, status));
    TUTTI_TRY(find_writers(s));
    TUTTI_TRY(write_tensors(s));
    TUTTI_TRY(gather_hashes(s));
    return tutti_comm_agree(comm, comm->rank == 0 ? take_place(s) : TUTTI_OK);
}

tutti_status tutti_checkpoint_save(tutti_checkpoint *checkpoint, const char *path, int keep)
{
    TUTTI_REQUIRE(checkpoint, "%s: checkpoint is NULL", who);
    TUTTI_TRY(tutti__comm_alive(checkpoint->comm, who));
    TUTTI_TRY(tutti_comm_agree(checkpoint->comm, check_save(checkpoint, path, keep)));
    save s = {.checkpoint = checkpoint, .path = path, .keep = keep, .fd = -1, .writer = -1};
    snprintf(s.temporary, sizeof s.temporary, "%s.tmp", path);
    tutti_status status = write_file(&s);
    if (s.fd >= 0) close(s.fd);
    if (s.made) unlink(s.temporary);
    tutti__layout_destroy(&s.layout);
    free(s.offsets);
    free(s.blocks);
    free(s.hashes);
    free(s.ranks);
    return status;
}

#endif
