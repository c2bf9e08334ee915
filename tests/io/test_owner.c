/* One writer per file: owning, waiting and refusing; stale and foreign files beside it; targets
 * that are found unfit before saving; permissions of a saved file. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

static const char *beside(const char *path, const char *ending)
{
    static char names[4][300];
    static int next;
    char *name = names[next++ % 4];
    snprintf(name, sizeof names[0], "%s%s", path, ending);
    return name;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static state *make(void)
{
    return state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, false);
}

/* Another process, on rank 0, that locks path.lck, writes a holder's name and ends after some
 * seconds. */
static pid_t start_holder(const char *path, double seconds)
{
    if (rig_rank() > 0) return 0;
    int ready[2];
    char byte = 0;
    if (!CHECK(pipe(ready) == 0, "no pipe")) return -1;
    pid_t child = fork();
    if (child == 0) {
        int fd = open(beside(path, ".lck"), O_RDWR | O_CREAT, 0666);
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        const bool locked = fcntl(fd, F_OFD_SETLK, &whole) == 0 &&
                            write(fd, "process 7 on host \033[31mx\nand more\n", 33) == 33;
        if (!locked || write(ready[1], "+", 1) != 1) _exit(1);
        usleep((useconds_t)(seconds * 1e6));
        _exit(0);
    }
    close(ready[1]);
    CHECK(child > 0 && read(ready[0], &byte, 1) == 1, "the other process has no lock");
    close(ready[0]);
    return child;
}

static void end_holder(pid_t child)
{
    if (child <= 0) return;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Owning */

static void test_own_and_save(void)
{
    const char *path = in_folder("own");
    state *s = make();
    if (!s) return;
    state_fill(s, 1);
    CHECK_OK(tutti_checkpoint_own(s->checkpoint, path, 2));
    rig_barrier();
    CHECK(!file_exists(path) && !file_exists(beside(path, ".tmp")), "something was left");
    CHECK(file_exists(beside(path, ".lck")), "there is no lock");
    rig_barrier();
    CHECK_OK(tutti_checkpoint_own(s->checkpoint, path, 2)); /* owning twice is allowed */
    for (int i = 0; i < 3; i++) CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 2));
    CHECK_OK(
        tutti_checkpoint_save(s->checkpoint, beside(folder(), "/./own"), 2)); /* the same file */
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, in_folder("own-too"), 0));
    rig_barrier();
    CHECK(!file_exists(in_folder("own-too.lck")), "a save's own lock was left");
    CHECK(file_exists(beside(path, ".lck")), "the list's lock is gone");
    rig_barrier();
    CHECK_OK(tutti_checkpoint_own(s->checkpoint, in_folder("own-too"), 0));
    rig_barrier();
    CHECK(!file_exists(beside(path, ".lck")), "it still owns the former path");
    rig_barrier();
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
    CHECK_STATE(s, 1);
    state_free(&s);
    rig_barrier();
    CHECK(!file_exists(in_folder("own-too.lck")), "a lock was left");
}

static void test_another_is_refused(void)
{
    const char *path = in_folder("refused");
    char host[65] = "", who[100];
    state *first = state_saved(path), *second = make();
    if (!first || !second) return;
    CHECK_OK(tutti_checkpoint_own(first->checkpoint, path, 0));
    gethostname(host, sizeof host - 1);
    int pid = rig_worst(rig_rank() == 0 ? (int)getpid() : 0);
    snprintf(who, sizeof who, "process %d on host %s writes this file", pid, host);
    double begin = now();
    state_fill(second, 2);
    CHECK_FAILS(TUTTI_ERR_IO, who, tutti_checkpoint_save(second->checkpoint, path, 0));
    CHECK(strstr(tutti_last_error(), path), "%s", tutti_last_error());
    CHECK(now() - begin > 9.5 && now() - begin < 20, "refused after %.1f s", now() - begin);
    CHECK_OK(tutti_checkpoint_load(second->checkpoint, path, 0)); /* loading needs no lock */
    CHECK_STATE(second, 1);
    CHECK_OK(tutti_checkpoint_save(first->checkpoint, path, 0));
    state_free(&first);
    CHECK_OK(tutti_checkpoint_own(second->checkpoint, path, 0));
    state_free(&second);
}

static char warned[512];

static void on_warning(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    snprintf(warned, sizeof warned, "%s", message);
}

static void test_a_dying_one_is_waited_for(void)
{
    const char *path = in_folder("dying");
    state *s = state_saved(path);
    if (!s) return;
    warned[0] = 0;
    tutti_set_log(on_warning, NULL, TUTTI_LOG_WARN);
    pid_t holder = start_holder(path, 1.5);
    double begin = now();
    CHECK_OK(tutti_checkpoint_own(s->checkpoint, path, 0));
    CHECK(now() - begin > 0.5 && now() - begin < 9, "waited %.1f s", now() - begin);
    if (rig_rank() == 0)
        CHECK(strstr(warned, "process 7 on host ?[31mx writes this file: waiting"), "'%s'", warned);
    tutti_set_log(NULL, NULL, TUTTI_LOG_WARN);
    end_holder(holder);
    state_free(&s);
    /* a killed holder's lock is free at once, whatever it has left */
    end_holder(start_holder(path, 60));
    rig_barrier();
    s = make();
    state_fill(s, 3);
    begin = now();
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
    CHECK(now() - begin < 5, "waited for a dead holder");
    rig_barrier();
    CHECK(!file_exists(beside(path, ".lck")), "the dead holder's lock file was left");
    state_free(&s);
}

static void test_what_is_no_lock(void)
{
    const char *path = in_folder("lockless"), *other = in_folder("other");
    state *s = make();
    if (!s) return;
    if (rig_rank() == 0) CHECK(mkdir(beside(path, ".lck"), 0755) == 0, "mkdir");
    rig_barrier();
    CHECK_FAILS(TUTTI_ERR_IO, ".lck", tutti_checkpoint_own(s->checkpoint, path, 0));
    rig_barrier();
    if (rig_rank() == 0) {
        CHECK(rmdir(beside(path, ".lck")) == 0, "rmdir");
        file_write(other, "mine", 4);
        CHECK(symlink(other, beside(path, ".lck")) == 0, "symlink");
    }
    rig_barrier();
    CHECK_FAILS(TUTTI_ERR_IO, ".lck", tutti_checkpoint_own(s->checkpoint, path, 0));
    size_t bytes = 0;
    unsigned char *content = file_read(other, &bytes);
    CHECK(bytes == 4 && memcmp(content, "mine", 4) == 0, "the link's target was written");
    free(content);
    rig_barrier();
    if (rig_rank() == 0) unlink(beside(path, ".lck"));
    CHECK_FAILS(TUTTI_ERR_ARG, rig_size() > 1 ? "path or keep on rank 1" : "keep",
                tutti_checkpoint_own(s->checkpoint, path, rig_size() > 1 ? rig_rank() == 1 : -1));
    state_free(&s);
}

/* If the lock file is removed by hand, the next save locks it again; if another has it by then,
 * that one is named. */
static void test_a_lost_lock(void)
{
    const char *path = in_folder("lost");
    state *s = state_saved(path);
    if (!s) return;
    CHECK_OK(tutti_checkpoint_own(s->checkpoint, path, 0));
    rig_barrier();
    if (rig_rank() == 0) CHECK(unlink(beside(path, ".lck")) == 0, "there is no lock");
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
    rig_barrier();
    CHECK(file_exists(beside(path, ".lck")), "it was not locked again");
    rig_barrier();
    if (rig_rank() == 0) unlink(beside(path, ".lck"));
    pid_t holder = start_holder(path, 60);
    CHECK_FAILS(TUTTI_ERR_IO, "process 7", tutti_checkpoint_save(s->checkpoint, path, 0));
    end_holder(holder);
    state_free(&s);
    rig_barrier();
    CHECK(file_exists(beside(path, ".lck")), "another's lock was removed");
}

/* The temporary file */

static const char *moment, *changed_path;
static int written;

/* At that moment path.tmp is replaced by another file, or gets another beginning, as a file that
 * reuses the inode number of a removed one would have. */
static void on_step(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    const char *step = strrchr(message, ':');
    written += step && strcmp(step, ": wrote a round") == 0;
    if (!step || !moment || strcmp(step + 2, moment) != 0 || rig_rank() > 0) return;
    const char *name = beside(changed_path, ".tmp");
    if (strcmp(moment, "marked") == 0) {
        int fd = open(name, O_WRONLY);
        CHECK(pwrite(fd, "unfinished, but another's file  ", 32, 0) == 32, "no other beginning");
        close(fd);
    } else {
        CHECK(unlink(name) == 0, "there is no %s", name);
        file_write(name, "somebody else's", 15);
    }
}

static tutti_status save_changed(state *s, const char *path, const char *when)
{
    moment = when;
    changed_path = path;
    written = 0;
    rig_barrier();
    tutti_set_log(on_step, NULL, TUTTI_LOG_DEBUG);
    tutti_status status = tutti_checkpoint_save(s->checkpoint, path, 1);
    tutti_set_log(NULL, NULL, TUTTI_LOG_WARN);
    rig_barrier();
    return status;
}

static void test_a_stolen_temporary_file(void)
{
    static const char *const moments[] = {"made the temporary file", "reserved", "completed",
                                          "synced"};
    const char *path = in_folder("stolen"), *copy = in_folder("stolen-copy");
    state *s = state_saved(path);
    if (!s) return;
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, copy, 0));
    for (int i = 0; i < HARNESS_COUNT(moments); i++) {
        harness_where("'%s'", moments[i]);
        state_fill(s, 2);
        CHECK(save_changed(s, path, moments[i]) == TUTTI_ERR_IO, "it was saved");
        CHECK(strstr(tutti_last_error(), "removed or replaced") &&
                  strstr(tutti_last_error(), beside(path, ".tmp")),
              "%s", tutti_last_error());
        size_t bytes = 0;
        unsigned char *content = file_read(beside(path, ".tmp"), &bytes);
        CHECK(content && bytes == 15 && memcmp(content, "somebody else's", 15) == 0,
              "the other file was written to or removed");
        free(content);
        rig_barrier();
        CHECK(file_same(path, copy), "the old file was changed");
        CHECK(!file_exists(beside(path, ".1")), "it was rotated");
        if (rig_rank() == 0) unlink(beside(path, ".tmp"));
        rig_barrier();
    }
    harness_where(NULL);
    state_free(&s);
}

static void test_a_file_with_the_number_of_another(void)
{
    const char *path = in_folder("number");
    state *s = make();
    if (!s) return;
    state_fill(s, 4);
    CHECK_OK(save_changed(s, path, NULL));
    CHECK(written > 0, "rank %d writes nothing", rig_rank());
    CHECK_OK(save_changed(s, path, "marked"));
    CHECK((written > 0) == (rig_rank() == 0), "rank %d wrote %d rounds", rig_rank(), written);
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
    CHECK_STATE(s, 4);
    state_free(&s);
}

/* Targets that cannot be saved to */

/* Compares all that stat tells of a file. */
static bool same_stat(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_nlink == b->st_nlink &&
           a->st_mode == b->st_mode && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Owning fails with this text, and no file beside path is created, changed or removed. */
static void check_not_owned(state *s, const char *path, int keep, const char *word)
{
    static const char *const endings[] = {"", ".1", ".2", ".3", ".tmp"};
    struct stat before[HARNESS_COUNT(endings)], after;
    bool there[HARNESS_COUNT(endings)];
    rig_barrier();
    for (int i = 0; i < HARNESS_COUNT(endings); i++)
        there[i] = lstat(beside(path, endings[i]), &before[i]) == 0;
    rig_barrier();
    harness_forget_error();
    tutti_status status = tutti_checkpoint_own(s->checkpoint, path, keep);
    CHECK(status == TUTTI_ERR_IO, "status '%s' (%s)", tutti_status_string(status),
          tutti_last_error());
    CHECK(strstr(tutti_last_error(), path) && strstr(tutti_last_error(), word),
          "'%s' does not name %s and '%s'", tutti_last_error(), path, word);
    rig_barrier();
    for (int i = 0; i < HARNESS_COUNT(endings); i++) {
        bool still = lstat(beside(path, endings[i]), &after) == 0;
        CHECK(still == there[i] && (!still || same_stat(&before[i], &after)), "%s was changed",
              beside(path, endings[i]));
    }
    CHECK(!file_exists(beside(path, ".lck")), "the lock was left");
    rig_barrier();
}

static void test_unfit_targets(void)
{
    const char *path = in_folder("unfit");
    state *s = make();
    if (!s) return;
    check_not_owned(s, "/proc/tutti-owner", 0, "No such file or directory");
    check_not_owned(s, "/no/such/folder/f", 0, "No such file or directory");
    check_not_owned(s, "/dev/full", 0, "is not a regular file");
    if (rig_rank() == 0) {
        file_write(path, "1", 1);
        mkdir(beside(path, ".2"), 0755);
    }
    check_not_owned(s, path, 3, ".2: is a folder");
    CHECK_OK(tutti_checkpoint_own(s->checkpoint, path, 1));
    state_free(&s);
    s = make();
    if (rig_rank() == 0) mkdir(beside(path, ".tmp"), 0755);
    check_not_owned(s, path, 0, ".tmp: is a folder");
    rig_barrier();
    if (rig_rank() == 0) rmdir(beside(path, ".tmp"));
    char name[240];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    char longest[300];
    snprintf(longest, sizeof longest, "%s/%sxxxxxxxxxxxx", folder(), name); /* 251 */
    CHECK_OK(tutti_checkpoint_own(s->checkpoint, longest, 9));
    check_not_owned(s, longest, 1000, "File name too long");
    strcat(longest, "x");
    check_not_owned(s, longest, 0, "File name too long");
    state_free(&s);
}

static void test_full_disk(void)
{
    const char *disk = small_disk();
    if (!disk) return;
    char path[200];
    snprintf(path, sizeof path, "%s/f", disk);
    state *s = make(), *big = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, true);
    CHECK_OK(tutti_checkpoint_own(s->checkpoint, path, 0));
    strcat(path, "2");
    check_not_owned(big, path, 0, "No space left on device");
    state_free(&s);
    state_free(&big);
    small_disk_remove();
}

/* A folder in which everyone may create files, but nobody may remove another's. */
static void test_sticky_folder(void)
{
    enum { NOBODY = 65534 };
    const char *shared = in_folder("shared");
    const char *const files[] = {"/file", "/old.1", "/tmp.tmp", "/lck.lck"};
    state *s = make();
    if (!s) return;
    int root = geteuid() == 0;
    if (rig_rank() == 0) {
        mkdir(shared, 0755);
        for (int i = 0; i < HARNESS_COUNT(files); i++)
            file_write(beside(shared, files[i]), "root's", 6);
        chmod(shared, 01777);
    }
    rig_barrier();
    if (!rig_worst(root) || seteuid(NOBODY) != 0) {
        harness_skip("needs root to become another user");
        state_free(&s);
        return;
    }
    rig_barrier();
    char path[4][200];
    static const char *const names[] = {"file", "old", "tmp", "lck"};
    for (int i = 0; i < 4; i++) snprintf(path[i], sizeof path[i], "%s/%s", shared, names[i]);
    check_not_owned(s, path[0], 0, "file: cannot be replaced: Operation not permitted");
    check_not_owned(s, path[1], 1, "old.1: cannot be replaced: Operation not permitted");
    check_not_owned(s, path[2], 0, "cannot remove");
    CHECK_FAILS(TUTTI_ERR_IO, "lck.lck: Permission denied",
                tutti_checkpoint_own(s->checkpoint, path[3], 0));
    CHECK_OK(tutti_checkpoint_own(s->checkpoint, path[1], 0)); /* which does not touch old.1 */
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path[1], 0));
    state_free(&s);
    rig_barrier();
    CHECK(seteuid(0) == 0, "seteuid fails");
    rig_barrier();
    if (rig_rank() == 0) {
        for (int i = 0; i < HARNESS_COUNT(files); i++) unlink(beside(shared, files[i]));
        unlink(path[1]);
        CHECK(rmdir(shared) == 0, "%s is not empty", shared);
    }
    rig_barrier();
}

/* Permissions */

static mode_t mode_of(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 ? there.st_mode & 07777 : 0;
}

static void test_permissions(void)
{
    static const mode_t modes[] = {0600, 0640, 0664, 0400, 0444, 0755};
    state *s = make();
    if (!s) return;
    state_fill(s, 1);
    mode_t before = umask(027);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, in_folder("mode"), 2));
    rig_barrier();
    CHECK(mode_of(in_folder("mode")) == 0640, "a new file is %o", mode_of(in_folder("mode")));
    umask(022);
    for (int i = 0; i < HARNESS_COUNT(modes); i++) {
        rig_barrier();
        if (rig_rank() == 0) CHECK(chmod(in_folder("mode"), modes[i]) == 0, "chmod");
        rig_barrier();
        CHECK_OK(tutti_checkpoint_own(s->checkpoint, in_folder("mode"), 2));
        for (int saves = 0; saves < 2; saves++)
            CHECK_OK(tutti_checkpoint_save(s->checkpoint, in_folder("mode"), 2));
        rig_barrier();
        CHECK(mode_of(in_folder("mode")) == modes[i] && mode_of(in_folder("mode.1")) == modes[i],
              "%o becomes %o, and %o before it", modes[i], mode_of(in_folder("mode")),
              mode_of(in_folder("mode.1")));
    }
    umask(before);
    state_free(&s);
}

/* Until its permissions are set only the owner can read it. */
static void on_made(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    const char *step = strrchr(message, ':');
    if (!step || rig_rank() > 0 || strcmp(step, ": completed") != 0) return;
    CHECK((mode_of(in_folder("private.tmp")) & 077) == 0, "the temporary file is %o",
          mode_of(in_folder("private.tmp")));
    written++;
}

static void test_private_while_written(void)
{
    const char *path = in_folder("private");
    state *s = state_saved(path);
    if (!s) return;
    rig_barrier();
    if (rig_rank() == 0) CHECK(chmod(path, 0600) == 0, "chmod");
    written = 0;
    rig_barrier();
    tutti_set_log(on_made, NULL, TUTTI_LOG_DEBUG);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
    tutti_set_log(NULL, NULL, TUTTI_LOG_WARN);
    CHECK(rig_rank() > 0 || written == 1, "the mode was not checked");
    state_free(&s);
}

static void test_owner_and_group(void)
{
    enum { NOBODY = 65534, GROUP = 4321 };
    const char *path = in_folder("theirs");
    state *s = state_saved(path);
    if (!s) return;
    int root = geteuid() == 0;
    if (!rig_worst(root)) {
        harness_skip("needs root to change owners");
        state_free(&s);
        return;
    }
    rig_barrier();
    if (rig_rank() == 0)
        CHECK(chown(path, NOBODY, GROUP) == 0 && chmod(path, 0660) == 0, "chown, chmod");
    rig_barrier();
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
    rig_barrier();
    struct stat there = {0};
    CHECK(stat(path, &there) == 0 && there.st_uid == NOBODY && there.st_gid == GROUP &&
              mode_of(path) == 0660,
          "it is %u:%u's, %o", there.st_uid, there.st_gid, mode_of(path));
    /* if the group cannot be set, the saver's own group gets no access instead */
    rig_barrier();
    if (rig_rank() == 0) chmod(folder(), 0777);
    rig_barrier();
    CHECK(seteuid(NOBODY) == 0, "seteuid fails");
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
    rig_barrier();
    CHECK(mode_of(path) == 0600, "another group gets %o", mode_of(path));
    rig_barrier();
    CHECK(seteuid(0) == 0, "seteuid fails");
    if (rig_rank() == 0) chmod(folder(), 0755);
    state_free(&s);
}

static const rig_test tests[] = {
    {"own and save", test_own_and_save, 0, 0, false},
    {"another is refused", test_another_is_refused, 0, 0, false},
    {"a dying one is waited for", test_a_dying_one_is_waited_for, 0, 0, false},
    {"what is no lock", test_what_is_no_lock, 0, 0, false},
    {"a lost lock", test_a_lost_lock, 1, 1, false},
    {"a stolen temporary file", test_a_stolen_temporary_file, 0, 0, false},
    {"a file with the number of another", test_a_file_with_the_number_of_another, 0, 0, false},
    {"unfit targets", test_unfit_targets, 0, 0, false},
    {"full disk", test_full_disk, 0, 0, false},
    {"sticky folder", test_sticky_folder, 0, 0, false},
    {"permissions", test_permissions, 0, 0, false},
    {"private while written", test_private_while_written, 0, 0, false},
    {"owner and group", test_owner_and_group, 0, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "one writer a file", tests, HARNESS_COUNT(tests));
}
