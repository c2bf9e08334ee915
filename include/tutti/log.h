/* The library never prints: it hands its few remarks to a callback. */
#ifndef TUTTI_LOG_H
#define TUTTI_LOG_H

#include "tutti/api.h"

TUTTI_BEGIN

typedef enum tutti_log_level { TUTTI_LOG_DEBUG, TUTTI_LOG_INFO, TUTTI_LOG_WARN } tutti_log_level;

/* message: one line without a newline, clean (tutti_text_clean), valid during the call.  May come
 * from any thread. */
typedef void (*tutti_log_fn)(void *user, tutti_log_level level, const char *message);

/* Sets the callback of the process, NULL for silence (as at the start), and the least level that
 * reaches it.  Safe beside other threads' calls; a call already under way may still use the
 * former. */
TUTTI_API void tutti_set_log(tutti_log_fn fn, void *user, tutti_log_level least);

TUTTI_END
#endif
