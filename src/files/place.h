/* A new file's way to its place: made as path.tmp, finished, and renamed to path in one step, so
 * that whoever looks sees the file before or the file after.  The one descriptor that made path.tmp
 * says whether it is still the same file. */
#ifndef TUTTI_FILES_PLACE_H
#define TUTTI_FILES_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "files/file.h"

typedef struct tutti__place {
    const tutti__reporter *reporter;
    const char *who, *path; /* of messages too */
    char temporary[PATH_MAX];
    int fd;    /* of path.tmp, for reading and writing; -1: none */
    bool made; /* by this one, which may rename and remove it */
    bool replaces;
    struct stat before; /* what it replaces */
} tutti__place;

/* What fd has open is what is at that name. */
bool tutti__file_is_at(int fd, const char *name);

/* path must outlive it. */
void tutti__place_init(tutti__place *place, const tutti__reporter *reporter, const char *who,
                       const char *path);
/* "<who>: <path>: <what>" at debug level, in the words of the tests that kill a process there. */
void tutti__place_step(const tutti__place *place, const char *what);
/* TUTTI_ERR_IO: what could not be done with path.tmp. */
tutti_status tutti__place_failed(const tutti__place *place, const char *what, int error);

/* Makes path.tmp, an empty file of its own; what was there is removed. */
tutti_status tutti__place_make(tutti__place *place);
/* Reserves its space. */
tutti_status tutti__place_reserve(tutti__place *place, int64_t bytes);
/* Whom it lets read and write it is as it was with what is at path; where nothing is, as the umask
 * has it.  TUTTI_ERR_IO too if path.tmp is another file by now. */
tutti_status tutti__place_permit(tutti__place *place);
/* Whether it may take path, and path the names path.1 to path.<keep>.  Changes nothing. */
tutti_status tutti__place_try(const tutti__place *place, int keep);
/* path.1 becomes path.2 and so on; what is at path gets path.1 as a second name. */
tutti_status tutti__place_rotate(const tutti__place *place, int keep);
/* The disk has all that was written to it. */
tutti_status tutti__place_sync(tutti__place *place);
/* Gives it its permissions and its place. */
tutti_status tutti__place_take(tutti__place *place);
tutti_status tutti__place_sync_folder(const tutti__place *place);
/* Removes path.tmp unless it has taken its place, or is somebody else's by now. */
void tutti__place_drop(tutti__place *place);

#endif
