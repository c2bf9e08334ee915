/* Replacing a file atomically: the new one is written as path.tmp and renamed to path, so that a
 * reader sees either the old file or the new one.  The descriptor that created path.tmp tells
 * whether the name still refers to that file. */
#ifndef TUTTI_FILES_PLACE_H
#define TUTTI_FILES_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "files/file.h"

typedef struct tutti__place {
    const tutti__reporter *reporter;
    const char *who, *path; /* who: for messages */
    char temporary[PATH_MAX];
    int fd;    /* of path.tmp, for reading and writing; -1: none */
    bool made; /* created here, so it may be renamed and removed */
    bool replaces;
    struct stat before; /* of the file that it replaces */
} tutti__place;

/* True if name refers to the file that fd has open. */
bool tutti__file_is_at(int fd, const char *name);

/* path must outlive it. */
void tutti__place_init(tutti__place *place, const tutti__reporter *reporter, const char *who,
                       const char *path);
/* Logs "<who>: <path>: <what>" at debug level; tests that kill a process match these texts. */
void tutti__place_step(const tutti__place *place, const char *what);
/* Fails with TUTTI_ERR_IO: "<what> <path>.tmp: <error>". */
tutti_status tutti__place_failed(const tutti__place *place, const char *what, int error);

/* Creates path.tmp, empty; removes one that was left there. */
tutti_status tutti__place_make(tutti__place *place);
/* Reserves space for path.tmp. */
tutti_status tutti__place_reserve(tutti__place *place, int64_t bytes);
/* Gives path.tmp the owner and permissions of the file at path; without one, the umask's.
 * TUTTI_ERR_IO also if path.tmp is another file by now. */
tutti_status tutti__place_permit(tutti__place *place);
/* Fails unless path.tmp may be renamed to path, and path to path.1 to path.<keep>.  Changes
 * nothing. */
tutti_status tutti__place_try(const tutti__place *place, int keep);
/* Renames path.1 to path.2 and so on, and links path.1 to the file at path. */
tutti_status tutti__place_rotate(const tutti__place *place, int keep);
/* Syncs path.tmp to the disk. */
tutti_status tutti__place_sync(tutti__place *place);
/* Sets the permissions of path.tmp and renames it to path. */
tutti_status tutti__place_take(tutti__place *place);
tutti_status tutti__place_sync_folder(const tutti__place *place);
/* Removes path.tmp unless it has been renamed or replaced by another file. */
void tutti__place_drop(tutti__place *place);

#endif
