/* The library never prints: it passes its few messages to a callback. */
#ifndef TUTTI_LOG_H
#define TUTTI_LOG_H

#include "tutti/api.h"

TUTTI_BEGIN

typedef enum tutti_log_level { TUTTI_LOG_DEBUG, TUTTI_LOG_INFO, TUTTI_LOG_WARN } tutti_log_level;

/* message: one line without a newline, clean (tutti_text_clean), valid during the call.  May come
 * from any thread. */
typedef void (*tutti_log_fn)(void *user, tutti_log_level level, const char *message);

/* Sets the process's callback, NULL for none (the default), and the lowest level that reaches it.
 * Thread-safe; a call already under way may still use the previous callback. */
TUTTI_API void tutti_set_log(tutti_log_fn fn, void *user, tutti_log_level lowest);

TUTTI_END
#endif
