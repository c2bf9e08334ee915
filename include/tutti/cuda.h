/* For programs that have a CUDA stream.  Only a library built with CUDA has these functions. */
#ifndef TUTTI_CUDA_H
#define TUTTI_CUDA_H

#include <cuda_runtime_api.h>

#include "tutti/context.h"

TUTTI_BEGIN

/* A context on the caller's stream, which must belong to `device` and outlive the context.  The
 * library makes `device` current during its calls and leaves it so. */
TUTTI_API tutti_status tutti_context_create_on_stream(int device, cudaStream_t stream,
                                                      tutti_context **ctx);
/* The context's stream; NULL on the host. */
TUTTI_API cudaStream_t tutti_context_stream(const tutti_context *ctx);

TUTTI_END
#endif
