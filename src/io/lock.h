/* The one writer of a path: whoever holds the lock on path.lck.
 *
 * The lock is an open file description's: it ends with the process, however that ends; no other
 * close of the file loses it; NFS passes it on.  The file names its holder for whom it keeps
 * waiting, and is removed by its holder only: who gets a lock on a file that has left its place by
 * then begins again. */
#ifndef TUTTI_IO_LOCK_H
#define TUTTI_IO_LOCK_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core/internal.h"

typedef struct tutti__lock {
    int fd;                              /* -1: not held */
    pid_t owner;                         /* a child that inherits it lets it be */
    char path[PATH_MAX], name[PATH_MAX]; /* and of the file that is locked */
} tutti__lock;

#define TUTTI__LOCK_NONE \
    {                    \
        .fd = -1         \
    }

/* Never waits.  *held: it is this lock's now, or was already; otherwise holder says whose it is. */
tutti_status tutti__lock_try(tutti__lock *lock, const char *who, const char *path, bool *held,
                             char *holder, size_t size);
/* It is held, and it is that of this path, whatever its name. */
bool tutti__lock_covers(const tutti__lock *lock, const char *path);
void tutti__lock_release(tutti__lock *lock);

#endif
