/* The lock on path.lck; lock.h. */
#include "io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/place.h"

/* How often the lock file may be replaced between opening and locking it before that is an
 * error. */
#define TRIES 100

static void name_of(const char *path, char *name)
{
    snprintf(name, PATH_MAX, "%s.lck", path);
}

bool tutti__lock_covers(const tutti__lock *lock, const char *path)
{
    char name[PATH_MAX];
    name_of(path, name);
    return lock->fd >= 0 && tutti__file_is_at(lock->fd, name);
}

static int set(int fd, short type)
{
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
    int done;
    do done = fcntl(fd, F_OFD_SETLK, &whole);
    while (done != 0 && errno == EINTR);
    return done;
}

/* Names the holder for others' messages, which say less if this fails. */
static void write_holder(int fd)
{
    char host[65] = "", text[128];
    gethostname(host, sizeof host - 1);
    const int length =
        snprintf(text, sizeof text, "process %lld on host %s\n", (long long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length)
        tutti__log(TUTTI_LOG_DEBUG, "cannot write the holder's name to the lock file");
}

static void read_holder(int fd, char *holder, size_t size)
{
    char text[128];
    const ssize_t bytes = pread(fd, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    snprintf(holder, size, "%s", text[0] ? tutti_text_clean(text) : "another process");
}

static tutti_status open_file(const char *who, const char *name, int *fd)
{
    struct stat now;
    *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (*fd < 0)
        return tutti__fail(TUTTI_ERR_IO, "%s: cannot open %s: %s", who, name, strerror(errno));
    if (fstat(*fd, &now) == 0 && S_ISREG(now.st_mode)) return TUTTI_OK;
    close(*fd);
    return tutti__fail(TUTTI_ERR_IO, "%s: %s: is not a regular file", who, name);
}

/* Locks the open file; *again: it was removed meanwhile. */
static tutti_status lock_file(int fd, const char *who, const char *path, const char *name,
                              bool *held, bool *again)
{
    if (set(fd, F_WRLCK) == 0) {
        *held = tutti__file_is_at(fd, name);
        *again = !*held;
        return TUTTI_OK;
    }
    if (errno == EAGAIN || errno == EACCES) return TUTTI_OK;
    if (errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS)
        return tutti__fail(TUTTI_ERR_IO, "%s: cannot lock %s: %s", who, name, strerror(errno));
    tutti__log(TUTTI_LOG_WARN,
               "%s: %s: this file system does not support locks (%s): nothing keeps another "
               "program from saving to the same file",
               who, path, strerror(errno));
    *held = true;
    return TUTTI_OK;
}

tutti_status tutti__lock_try(tutti__lock *lock, const char *who, const char *path, bool *held,
                             char *holder, size_t size)
{
    char name[PATH_MAX];
    name_of(path, name);
    *held = tutti__lock_covers(lock, path);
    if (*held) return TUTTI_OK;
    /* what it held was removed, or is another path's */
    tutti__lock_release(lock);
    bool again = true;
    for (int i = 0; again && i < TRIES; i++) {
        int fd;
        again = false;
        TUTTI_TRY(open_file(who, name, &fd));
        tutti_status status = lock_file(fd, who, path, name, held, &again);
        if (status == TUTTI_OK && *held) {
            *lock = (tutti__lock){.fd = fd, .owner = getpid()};
            strcpy(lock->path, path);
            strcpy(lock->name, name);
            write_holder(fd);
            return TUTTI_OK;
        }
        if (status == TUTTI_OK) read_holder(fd, holder, size);
        close(fd);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

void tutti__lock_release(tutti__lock *lock)
{
    if (lock->fd < 0) return;
    if (lock->owner == getpid()) {
        if (tutti__file_is_at(lock->fd, lock->name)) unlink(lock->name);
        set(lock->fd, F_UNLCK); /* a child may have it open too */
    }
    close(lock->fd);
    *lock = (tutti__lock)TUTTI__LOCK_NONE;
}
