/* Status codes and the message of the last failure. */
#ifndef TUTTI_STATUS_H
#define TUTTI_STATUS_H

#include "tutti/api.h"

TUTTI_BEGIN

/* name, what it means */
#define TUTTI_STATUS_LIST(X)                                           \
    X(TUTTI_OK, "success")                                             \
    X(TUTTI_ERR_ARG, "invalid argument")                               \
    X(TUTTI_ERR_STATE, "not allowed in this state")                    \
    X(TUTTI_ERR_UNSUPPORTED, "not supported by this backend or build") \
    X(TUTTI_ERR_MEMORY, "out of memory")                               \
    X(TUTTI_ERR_DEVICE, "device error")                                \
    X(TUTTI_ERR_COMM, "communication error")                           \
    X(TUTTI_ERR_DATA, "bad data")                                      \
    X(TUTTI_ERR_IO, "file error")                                      \
    X(TUTTI_ERR_INTERNAL, "internal error")

typedef enum tutti_status {
#define TUTTI_X(name, text) name,
    TUTTI_STATUS_LIST(TUTTI_X)
#undef TUTTI_X
} tutti_status;

/* The text of a status, such as "invalid argument"; "unknown status" for any other number. */
TUTTI_API const char *tutti_status_string(tutti_status status);

/* The message of the last failure on this thread: what was given, what was wanted.  Empty before
 * the first one.  Valid until the next failure on this thread.  One line, always clean
 * (tutti_text_clean). */
TUTTI_API const char *tutti_last_error(void);

/* Cleans a text of unknown origin in place: each byte that is not part of a printable UTF-8
 * character becomes a ? (control characters such as ESC, which a terminal would obey; marks that
 * reverse the writing direction; invalid UTF-8).  Returns text; NULL is allowed.  The library's
 * messages are clean; texts loaded from a checkpoint are as the file has them. */
TUTTI_API char *tutti_text_clean(char *text);

TUTTI_END
#endif
