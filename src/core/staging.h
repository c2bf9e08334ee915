/* Copies of small pageable memory to a device, in stream order: the bytes pass through page-locked
 * memory of the context.  CUDA by itself may wait for the stream. */
#ifndef TUTTI_CORE_STAGING_H
#define TUTTI_CORE_STAGING_H

#include "core/context.h"

enum { TUTTI__STAGED_MOST = 4 << 20 }; /* bytes of a copy */

/* src may be used again at return.  Waits where the last few such copies are still to be made. */
tutti_status tutti__staged_copy(tutti_context *ctx, void *dst, const void *src, size_t bytes);

/* idle: no copy is under way; otherwise what copies read is left alone. */
void tutti__staging_drop(tutti_context *ctx, bool idle);

#endif
