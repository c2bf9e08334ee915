/* The single writer of a path is the one that holds the lock on path.lck.
 *
 * An open file description lock: it ends with the process, however that ends; closing another
 * descriptor does not release it; it works over NFS.  The file names its holder, for messages, and
 * only its holder removes it: a lock obtained on a file that has been removed meanwhile is
 * retried. */
#ifndef TUTTI_IO_LOCK_H
#define TUTTI_IO_LOCK_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core/internal.h"

typedef struct tutti__lock {
    int fd;                              /* -1: not held */
    pid_t owner;                         /* a forked child does not release it */
    char path[PATH_MAX], name[PATH_MAX]; /* name: of the lock file */
} tutti__lock;

#define TUTTI__LOCK_NONE \
    {                    \
        .fd = -1         \
    }

/* Never waits.  *held: it is held now, or was already; otherwise `holder` names the holder. */
tutti_status tutti__lock_try(tutti__lock *lock, const char *who, const char *path, bool *held,
                             char *holder, size_t size);
/* True if it is held for the same file as path, whatever its name. */
bool tutti__lock_covers(const tutti__lock *lock, const char *path);
void tutti__lock_release(tutti__lock *lock);

#endif
