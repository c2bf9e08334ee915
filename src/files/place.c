/* Writing path.tmp and renaming it to path; place.h. */
#include "files/place.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tutti__place_init(tutti__place *place, const tutti__reporter *reporter, const char *who,
                       const char *path)
{
    *place = (tutti__place){.reporter = reporter, .who = who, .path = path, .fd = -1};
    snprintf(place->temporary, sizeof place->temporary, "%s.tmp", path);
}

void tutti__place_step(const tutti__place *place, const char *what)
{
    if (place->reporter->log)
        place->reporter->log(TUTTI_LOG_DEBUG, "%s: %s: %s", place->who, place->path, what);
}

tutti_status tutti__place_failed(const tutti__place *place, const char *what, int error)
{
    return place->reporter->fail(TUTTI_ERR_IO, "%s: %s %s: %s", place->who, what, place->temporary,
                                 strerror(error));
}

static tutti_status is_a_folder(const tutti__place *place, const char *name)
{
    return place->reporter->fail(TUTTI_ERR_IO, "%s: %s: is a folder, want a file", place->who,
                                 name);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool tutti__file_is_at(int fd, const char *name)
{
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && lstat(name, &named) == 0 && same_file(&open_one, &named);
}

static void look_before(tutti__place *place)
{
    struct stat now;
    if (stat(place->path, &now) != 0 || !S_ISREG(now.st_mode)) return;
    place->replaces = true;
    place->before = now;
}

tutti_status tutti__place_make(tutti__place *place)
{
    look_before(place);
    /* left by a killed process */
    if (unlink(place->temporary) != 0 && errno != ENOENT)
        return errno == EISDIR ? is_a_folder(place, place->temporary)
                               : tutti__place_failed(place, "cannot remove", errno);
    /* unreadable for others until its permissions are set */
    const mode_t mode = place->replaces ? 0600 : 0666;
    place->fd = open(place->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (place->fd < 0) return tutti__place_failed(place, "cannot create", errno);
    place->made = true;
    tutti__place_step(place, "made the temporary file");
    return TUTTI_OK;
}

tutti_status tutti__place_reserve(tutti__place *place, int64_t bytes)
{
    int done;
    do done = fallocate(place->fd, 0, 0, bytes);
    while (done != 0 && errno == EINTR);
    /* if the file system cannot reserve, a full disk is found while writing */
    if (done != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) done = ftruncate(place->fd, bytes);
    if (done != 0) return tutti__place_failed(place, "cannot reserve the space of", errno);
    tutti__place_step(place, "reserved");
    return TUTTI_OK;
}

/* True if path.tmp is still the file that was created. */
static bool is_own(const tutti__place *place)
{
    return place->made && tutti__file_is_at(place->fd, place->temporary);
}

static tutti_status check_own(const tutti__place *place)
{
    if (is_own(place)) return TUTTI_OK;
    return place->reporter->fail(
        TUTTI_ERR_IO,
        "%s: %s: another program has removed or replaced it while it was being written", place->who,
        place->temporary);
}

tutti_status tutti__place_permit(tutti__place *place)
{
    struct stat now;
    TUTTI_TRY(check_own(place));
    look_before(place);
    if (!place->replaces) return TUTTI_OK;
    if (fstat(place->fd, &now) != 0) return tutti__place_failed(place, "cannot read", errno);
    const struct stat *before = &place->before;
    mode_t mode = before->st_mode & 0777;
    const bool owner = now.st_uid == before->st_uid, group = now.st_gid == before->st_gid;
    const bool given = (owner && group) || fchown(place->fd, before->st_uid, before->st_gid) == 0 ||
                       group || fchown(place->fd, (uid_t)-1, before->st_gid) == 0;
    /* a different group gets no more rights than everybody */
    if (!given) mode &= ~(mode_t)070 | (mode & 07) << 3;
    if ((now.st_mode & 0777) != mode && fchmod(place->fd, mode) != 0)
        return tutti__place_failed(place, "cannot set the permissions of", errno);
    return TUTTI_OK;
}

/* Calls rmdir on a file: the system first checks whether this process may remove the name,
 * including sticky folders and immutable files, then finds that it is not a folder.  Nothing is
 * changed. */
static tutti_status try_name(const tutti__place *place, const char *name)
{
    struct stat now;
    if (lstat(name, &now) != 0) {
        if (errno == ENOENT) return TUTTI_OK;
        return place->reporter->fail(TUTTI_ERR_IO, "%s: %s: %s", place->who, name, strerror(errno));
    }
    if (S_ISDIR(now.st_mode)) return is_a_folder(place, name);
    if (rmdir(name) != 0 && (errno == ENOTDIR || errno == ENOENT)) return TUTTI_OK;
    return place->reporter->fail(TUTTI_ERR_IO, "%s: %s: cannot be replaced: %s", place->who, name,
                                 strerror(errno));
}

static void older(const tutti__place *place, char *name, int number)
{
    snprintf(name, PATH_MAX, "%s.%d", place->path, number);
}

tutti_status tutti__place_try(const tutti__place *place, int keep)
{
    char name[PATH_MAX];
    TUTTI_TRY(try_name(place, place->path));
    for (int i = 1; i <= keep; i++) {
        older(place, name, i);
        TUTTI_TRY(try_name(place, name));
    }
    return TUTTI_OK;
}

tutti_status tutti__place_rotate(const tutti__place *place, int keep)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct stat newest, before;
    older(place, to, 1);
    if (keep == 0 || stat(place->path, &newest) != 0) return TUTTI_OK;
    /* rotated by a process that was killed after that */
    if (stat(to, &before) == 0 && same_file(&before, &newest)) return TUTTI_OK;
    for (int i = keep - 1; i >= 1; i--) {
        older(place, from, i);
        older(place, to, i + 1);
        if (rename(from, to) == 0)
            tutti__place_step(place, "rotated");
        else if (errno != ENOENT)
            return place->reporter->fail(TUTTI_ERR_IO, "%s: cannot rename %s to %s: %s", place->who,
                                         from, to, strerror(errno));
    }
    older(place, to, 1);
    int done = link(place->path, to);
    if (done != 0 && errno == EEXIST && unlink(to) == 0) done = link(place->path, to);
    /* no hard links on this file system: path is briefly missing */
    if (done != 0) done = rename(place->path, to);
    if (done != 0)
        return place->reporter->fail(TUTTI_ERR_IO, "%s: cannot rename %s to %s: %s", place->who,
                                     place->path, to, strerror(errno));
    tutti__place_step(place, "linked");
    return TUTTI_OK;
}

static void finish(tutti__place *place)
{
    if (place->fd >= 0) close(place->fd);
    place->fd = -1;
    place->made = false;
}

tutti_status tutti__place_sync(tutti__place *place)
{
    if (fsync(place->fd) != 0) return tutti__place_failed(place, "cannot sync", errno);
    /* some file systems report errors on close; place->fd stays open to identify the file */
    const int other = dup(place->fd);
    if (other < 0 || close(other) != 0) return tutti__place_failed(place, "cannot close", errno);
    tutti__place_step(place, "synced");
    return TUTTI_OK;
}

tutti_status tutti__place_take(tutti__place *place)
{
    TUTTI_TRY(tutti__place_permit(place));
    TUTTI_TRY(check_own(place));
    if (rename(place->temporary, place->path) != 0)
        return tutti__place_failed(place, "cannot rename", errno);
    finish(place);
    tutti__place_step(place, "renamed");
    return TUTTI_OK;
}

tutti_status tutti__place_sync_folder(const tutti__place *place)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", place->path);
    int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return TUTTI_OK; /* a folder with write but no read permission */
    int error = fsync(folder) != 0 ? errno : 0;
    close(folder);
    if (error && error != EINVAL && error != ENOTSUP)
        return place->reporter->fail(TUTTI_ERR_IO,
                                     "%s: %s was written, but its folder cannot be synced: %s",
                                     place->who, place->path, strerror(error));
    tutti__place_step(place, "synced the folder");
    return TUTTI_OK;
}

void tutti__place_drop(tutti__place *place)
{
    if (is_own(place)) unlink(place->temporary);
    finish(place);
}
