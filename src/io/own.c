/* Owning a file and checking that it can be written: tutti_checkpoint_own, and the first checks of
 * a save. */
#include "io/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "comm/agree.h"
#include "comm/control.h"
#include "files/place.h"
#include "files/structure.h"

/* How long to wait for another writer to end. */
#define PATIENCE 10.0

static tutti_status check_value(const char *who, const tutti__item *item)
{
    if (item->kind == TUTTI__ITEM_TEXT)
        TUTTI_REQUIRE(memchr(item->data, 0, item->size), "%s: %s is not terminated by a 0", who,
                      item->name);
    if (item->kind == TUTTI__ITEM_TABLE)
        TUTTI_REQUIRE(*item->rows >= 0 && *item->rows <= item->capacity,
                      "%s: %s has %lld rows, want 0 to %lld", who, item->name,
                      (long long)*item->rows, (long long)item->capacity);
    return TUTTI_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The groups and datasets that a name adds to those of its predecessor in sorted order. */
static int64_t nodes_of(const char *name, const char *before)
{
    size_t same = 0;
    int64_t nodes = 1;
    while (name[same] && name[same] == before[same]) same++;
    for (const char *at = name + same; *at; at++) nodes += *at == '/';
    return nodes;
}

/* Refuses a file that has more than a reader accepts. */
static tutti_status check_nodes(const tutti_checkpoint *checkpoint, const char *who)
{
    const char **names = calloc((size_t)checkpoint->count + 1, sizeof *names);
    if (!names) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    for (int i = 0; i < checkpoint->count; i++) names[i] = checkpoint->items[i].name;
    qsort(names, (size_t)checkpoint->count, sizeof *names, by_name);
    int64_t nodes = 1; /* the root */
    for (int i = 0; i < checkpoint->count; i++)
        nodes += nodes_of(names[i], i > 0 ? names[i - 1] : "");
    free(names);
    TUTTI_REQUIRE(nodes <= TUTTI__FILE_NODES_MAX,
                  "%s: the list makes %lld groups and datasets, want at most %d", who,
                  (long long)nodes, TUTTI__FILE_NODES_MAX);
    return TUTTI_OK;
}

tutti_status tutti__save_check(tutti_checkpoint *checkpoint, const char *who, const char *path,
                               int keep)
{
    TUTTI_TRY(tutti__list_open(checkpoint, who));
    TUTTI_REQUIRE(path && path[0], "%s: path is %s", who, path ? "empty" : "NULL");
    TUTTI_REQUIRE(strlen(path) + 16 < PATH_MAX, "%s: path is longer than %d bytes", who,
                  PATH_MAX - 17);
    TUTTI_REQUIRE(keep >= 0 && keep <= 9999, "%s: keep is %d, want 0 to 9999", who, keep);
    for (int i = 0; i < checkpoint->count; i++) TUTTI_TRY(check_value(who, &checkpoint->items[i]));
    TUTTI_TRY(check_nodes(checkpoint, who));
    return tutti_context_synchronize(checkpoint->ctx);
}

tutti_status tutti__target_check(const tutti_checkpoint *checkpoint, const char *who,
                                 const char *path)
{
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return tutti__fail(TUTTI_ERR_IO, "%s: %s: is not a regular file", who, path);
    /* beyond this limit any write, even to the layout's memory, raises SIGXFSZ: so an upper bound
     * of the size is computed before there is a layout */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return TUTTI_OK;
    uint64_t bytes = 1 << 16;
    for (int i = 0; i < checkpoint->count; i++) {
        const tutti__item *item = &checkpoint->items[i];
        bytes += tutti__item_bytes(item) + 8192;
        for (const char *at = item->name; *at; at++) bytes += *at == '/' ? 6144 : 0;
    }
    if (bytes > limit.rlim_cur)
        return tutti__fail(TUTTI_ERR_IO,
                           "%s: %s: it takes up to %llu bytes, but this process may write at most "
                           "%llu (RLIMIT_FSIZE)",
                           who, path, (unsigned long long)bytes,
                           (unsigned long long)limit.rlim_cur);
    return TUTTI_OK;
}

/* Rank 0's attempts at the lock: short ones, each followed by a broadcast, so that no other rank
 * waits long. */
struct attempts {
    const char *who, *path;
    tutti__lock *lock;
    double begin, pause;
    bool held, warned;
};

static tutti_status try_lock(struct attempts *attempts)
{
    char holder[160] = "";
    const double begin = tutti__now();
    for (;;) {
        TUTTI_TRY(tutti__lock_try(attempts->lock, attempts->who, attempts->path, &attempts->held,
                                  holder, sizeof holder));
        if (attempts->held) return TUTTI_OK;
        const double now = tutti__now();
        if (now - attempts->begin > PATIENCE)
            return tutti__fail(TUTTI_ERR_IO,
                               "%s: %s: %s writes this file: it has locked %s.lck and did not "
                               "release it within %g s",
                               attempts->who, attempts->path, holder, attempts->path, PATIENCE);
        if (!attempts->warned && now - attempts->begin > 0.5) {
            tutti__log(TUTTI_LOG_WARN,
                       "%s: %s: %s writes this file: waiting up to %g s for it to end",
                       attempts->who, attempts->path, holder, PATIENCE);
            attempts->warned = true;
        }
        if (now - begin > attempts->pause) return TUTTI_OK;
        tutti__sleep(0.02);
    }
}

tutti_status tutti__own(tutti_checkpoint *checkpoint, const char *who, const char *path,
                        tutti__lock *temporary)
{
    tutti_comm *comm = checkpoint->comm;
    tutti__lock *lasting = &checkpoint->lock;
    const bool owned =
        !temporary || strcmp(lasting->path, path) == 0 || tutti__lock_covers(lasting, path);
    struct attempts attempts = {.who = who,
                                .path = path,
                                .lock = owned ? lasting : temporary,
                                .begin = tutti__now(),
                                .pause = fmin(0.25, comm->timeout / 4)};
    for (;;) {
        tutti_status status = TUTTI_OK;
        if (comm->rank == 0) status = tutti__target_check(checkpoint, who, path);
        if (comm->rank == 0 && status == TUTTI_OK) status = try_lock(&attempts);
        TUTTI_TRY(tutti_comm_agree(comm, status));
        char held = attempts.held;
        TUTTI_TRY(comm->control->broadcast(comm, &held, sizeof held, 0, who));
        if (held) return TUTTI_OK;
    }
}

/* On rank 0: tries everything that a save does, except writing tensors and renaming. */
static tutti_status try_save(const tutti_checkpoint *checkpoint, const char *who, const char *path,
                             int keep)
{
    tutti__place place;
    tutti__layout *layout = NULL;
    tutti__place_init(&place, &tutti__library, who, path);
    tutti_status status = tutti__layout_create(checkpoint, &layout);
    if (status == TUTTI_OK) status = tutti__place_make(&place);
    if (status == TUTTI_OK) status = tutti__place_reserve(&place, tutti__layout_size(layout));
    if (status == TUTTI_OK) status = tutti__place_permit(&place);
    if (status == TUTTI_OK) status = tutti__place_try(&place, keep);
    tutti__place_drop(&place);
    tutti__layout_destroy(&layout);
    return status;
}

/* Fails unless all ranks have the same path and keep. */
static tutti_status same_arguments(const tutti_checkpoint *checkpoint, const char *who,
                                   const char *path, int keep)
{
    int differ, rank;
    char ranks[160];
    uint64_t hash = tutti__hash(TUTTI__HASH_START, path, strlen(path) + 1);
    hash = tutti__hash(hash, &keep, sizeof keep);
    TUTTI_TRY(
        tutti__comm_compare(checkpoint->comm, &hash, 1, who, &differ, &rank, ranks, sizeof ranks));
    if (differ < 0) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG, "%s: path or keep on %s differs from rank 0's", who, ranks);
}

tutti_status tutti_checkpoint_own(tutti_checkpoint *checkpoint, const char *path, int keep)
{
    static const char who[] = "checkpoint_own";
    TUTTI_REQUIRE(checkpoint, "%s: checkpoint is NULL", who);
    tutti_comm *comm = checkpoint->comm;
    TUTTI_TRY(tutti__comm_open(comm, who));
    TUTTI_TRY(tutti_comm_agree(comm, tutti__save_check(checkpoint, who, path, keep)));
    TUTTI_TRY(same_arguments(checkpoint, who, path, keep));
    tutti_status status = tutti__own(checkpoint, who, path, NULL);
    if (status == TUTTI_OK)
        status = tutti_comm_agree(comm, comm->rank == 0 ? try_save(checkpoint, who, path, keep)
                                                        : TUTTI_OK);
    if (status != TUTTI_OK) tutti__lock_release(&checkpoint->lock);
    return status;
}
