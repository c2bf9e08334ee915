/* Saves to impossible targets and ranks that disagree: each gives a status and a message, on all
 * ranks alike, and the file at the path is unchanged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

/* The name of a save's temporary file. */
static const char *temporary_of(const char *path)
{
    static char name[300];
    snprintf(name, sizeof name, "%s.tmp", path);
    return name;
}

/* The save fails with TUTTI_ERR_IO and this text; the file at path is unchanged, and there is no
 * temporary file. */
static void check_not_saved(state *s, const char *path, const char *word)
{
    const char *copy = in_folder("copy");
    struct stat now;
    bool there = stat(path, &now) == 0 && S_ISREG(now.st_mode);
    size_t size = 0;
    rig_barrier();
    if (rig_rank() == 0 && there) {
        unsigned char *data = file_read(path, &size);
        file_write(copy, data, size);
        free(data);
    }
    state_fill(s, 77);
    harness_forget_error();
    tutti_status status = tutti_checkpoint_save(s->checkpoint, path, 2);
    CHECK(status == TUTTI_ERR_IO, "status '%s' (%s)", tutti_status_string(status),
          tutti_last_error());
    CHECK(strstr(tutti_last_error(), path) && strstr(tutti_last_error(), word),
          "'%s' does not name %s and '%s'", tutti_last_error(), path, word);
    rig_barrier();
    CHECK(!file_exists(temporary_of(path)), "%s was left", temporary_of(path));
    if (rig_rank() == 0 && there) CHECK(file_same(path, copy), "%s was changed", path);
    rig_barrier();
}

static void test_no_place(void)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, false);
    if (!s) return;
    check_not_saved(s, in_folder("no/such"), "No such file or directory");
    check_not_saved(s, "/dev/full", "not a regular file");
    check_not_saved(s, folder(), "not a regular file");
    const char *file = in_folder("file");
    char below[200];
    if (rig_rank() == 0) file_write(file, "x", 1);
    snprintf(below, sizeof below, "%s/below", file);
    check_not_saved(s, below, "Not a directory");
    state_free(&s);
}

static void test_file_size_limit(void)
{
    const char *path = in_folder("limit");
    state *s = state_saved(path);
    if (!s) return;
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 10000;
    if (rig_rank() == 0) setrlimit(RLIMIT_FSIZE, &small);
    state *other = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, false);
    state_fill(other, 2);
    harness_forget_error();
    CHECK(tutti_checkpoint_save(other->checkpoint, path, 0) == TUTTI_ERR_IO, "it was saved");
    CHECK(strstr(tutti_last_error(), "RLIMIT_FSIZE"), "%s", tutti_last_error());
    CHECK(!file_exists(temporary_of(path)), "the temporary file is still there");
    /* whatever the limit, the file is complete or the save is refused */
    for (small.rlim_cur = 4096; small.rlim_cur < 2000000; small.rlim_cur *= 2) {
        if (rig_rank() == 0) setrlimit(RLIMIT_FSIZE, &small);
        tutti_status status = tutti_checkpoint_save(other->checkpoint, in_folder("some"), 0);
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_IO, "%s", tutti_last_error());
    }
    small.rlim_cur = 10000;
    setrlimit(RLIMIT_FSIZE, &before);
    rig_barrier();
    CHECK(file_exists(in_folder("some")), "2 MB are not enough");
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
    CHECK_STATE(s, 1);
    /* the limit of a rank other than 0 is no reason to fail: the others write */
    if (rig_rank() > 0) setrlimit(RLIMIT_FSIZE, &small);
    CHECK_OK(tutti_checkpoint_save(other->checkpoint, path, 0));
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
    CHECK_STATE(s, 2);
    state_free(&other);
    state_free(&s);
}

static void test_full_disk(void)
{
    const char *disk = small_disk();
    if (!disk) return;
    char path[200];
    snprintf(path, sizeof path, "%s/file", disk);
    state *s = state_saved(path), *big = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, true);
    if (s && big) {
        check_not_saved(big, path, "No space left on device");
        CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
        CHECK_STATE(s, 1);
        state_free(&s);
        state_free(&big);
    }
    small_disk_remove();
}

static void test_no_permission(void)
{
    enum { NOBODY = 65534 };
    const char *path = in_folder("mine"), *secret = in_folder("secret");
    state *s = state_saved(path);
    if (!s) return;
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, secret, 0));
    if (rig_rank() == 0) chmod(secret, 0600);
    rig_barrier();
    int root = geteuid() == 0;
    if (!rig_worst(root) || seteuid(NOBODY) != 0) {
        harness_skip("needs root to drop permissions");
        state_free(&s);
        return;
    }
    rig_barrier();
    harness_forget_error();
    tutti_status status = tutti_checkpoint_save(s->checkpoint, path, 0);
    CHECK(status == TUTTI_ERR_IO && strstr(tutti_last_error(), "Permission denied"), "%s",
          tutti_last_error());
    check_refused(s, TUTTI_ERR_IO, "Permission denied", secret);
    CHECK(seteuid(0) == 0, "seteuid fails");
    rig_barrier();
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
    CHECK_STATE(s, 1);
    state_free(&s);
}

/* Ranks that disagree */

static void test_ranks_differ(void)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, false);
    if (!s) return;
    const char *path = in_folder("differ");
    state_fill(s, 1);
    if (rig_rank() == 1) s->step++;
    CHECK_FAILS(TUTTI_ERR_ARG, "state/step on rank 1",
                tutti_checkpoint_save(s->checkpoint, path, 0));
    if (rig_rank() == 1) s->step--;
    CHECK_FAILS(TUTTI_ERR_ARG, "path or keep on rank 1",
                tutti_checkpoint_save(s->checkpoint, path, rig_rank() == 1));
    CHECK(!file_exists(path), "it was saved");
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "flags on rank 1",
                tutti_checkpoint_load(s->checkpoint, path, rig_rank() == 1));
    CHECK_FAILS(TUTTI_ERR_ARG, "rank 1",
                tutti_checkpoint_load(s->checkpoint, rig_rank() == 1 ? NULL : path, 0));
    int64_t more = 0;
    tutti_checkpoint *list = NULL;
    CHECK_OK(tutti_checkpoint_create(s->ctx, s->comm, &list));
    CHECK_OK(tutti_checkpoint_add_int(list, "first", &more));
    CHECK_OK(tutti_checkpoint_add_int(list, rig_rank() == 1 ? "one" : "other", &more));
    CHECK_FAILS(TUTTI_ERR_ARG, "entry 2 of the list is '", tutti_checkpoint_save(list, path, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "another name on rank 1", tutti_checkpoint_save(list, path, 0));
    tutti_checkpoint_destroy(&list);
    if (rig_rank() == 1) CHECK_OK(tutti_checkpoint_add_int(s->checkpoint, "more", &more));
    CHECK_FAILS(TUTTI_ERR_ARG, "the list on rank 1", tutti_checkpoint_load(s->checkpoint, path, 0));
    CHECK_FAILS(TUTTI_ERR_ARG, "the list on rank 1", tutti_checkpoint_save(s->checkpoint, path, 0));
    state_free(&s);
}

static const rig_test tests[] = {
    {"no place to save to", test_no_place, 0, 0, false},
    {"file size limit", test_file_size_limit, 0, 0, false},
    {"full disk", test_full_disk, 0, 0, false},
    {"no permission", test_no_permission, 0, 0, false},
    {"ranks differ", test_ranks_differ, 2, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "refused saves", tests, HARNESS_COUNT(tests));
}
