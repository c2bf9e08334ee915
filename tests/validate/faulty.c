/* Wrong layers that tutti-validate must catch, loaded before the library (LD_PRELOAD).  On the host
 * only.  TUTTI_TEST_FAULT is
 *     bit     in a call that does not begin with the first row, the last bit of an output's first
 *             element is flipped
 *     row     backward leaves a call's last row out
 *     rank    a rank sends no gradients of its own
 *     idle    every second forward does nothing
 *     keep    gradients that are to be added to are overwritten */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/tutti.h"

static int fault_is(const char *name)
{
    const char *fault = getenv("TUTTI_TEST_FAULT");
    return fault && strcmp(fault, name) == 0;
}

tutti_status tutti_layer_forward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    tutti_status (*real)(tutti_layer *, tutti_context *, const tutti_call *);
    *(void **)&real = dlsym(RTLD_NEXT, "tutti_layer_forward");
    static int calls;
    if (fault_is("idle") && calls++ % 2) return TUTTI_OK;
    tutti_status status = real(layer, ctx, call);
    const tutti_tensor *y = call->out[0];
    if (status == TUTTI_OK && fault_is("bit") && *call->first_row > 0 && tutti_tensor_count(y) > 0)
        *(char *)y->data ^= 1;
    return status;
}

tutti_status tutti_layer_backward(tutti_layer *layer, tutti_context *ctx, const tutti_call *call)
{
    tutti_status (*real)(tutti_layer *, tutti_context *, const tutti_call *);
    *(void **)&real = dlsym(RTLD_NEXT, "tutti_layer_backward");
    const tutti_tensor *dy = call->upstream[0];
    if (fault_is("row") && dy->ndim >= 2 && dy->dims[0] > 0) {
        const size_t row = (size_t)(tutti_tensor_count(dy) / dy->dims[0]);
        const size_t bytes = row * tutti_dtype_size(dy->dtype);
        memset((char *)dy->data + (size_t)(dy->dims[0] - 1) * bytes, 0, bytes);
    }
    tutti_call changed = *call;
    if (fault_is("keep")) changed.flags &= ~(unsigned)TUTTI_GRAD_ACCUMULATE;
    return real(layer, ctx, &changed);
}

tutti_status tutti_grad_sync_ready_param(tutti_grad_sync *sync, tutti_context *ctx,
                                         const tutti_param *param)
{
    tutti_status (*real)(tutti_grad_sync *, tutti_context *, const tutti_param *);
    *(void **)&real = dlsym(RTLD_NEXT, "tutti_grad_sync_ready_param");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (fault_is("rank") && rank && atoi(rank) == 1)
        memset(param->grad.data, 0,
               (size_t)tutti_tensor_count(&param->grad) * tutti_dtype_size(param->grad.dtype));
    return real(sync, ctx, param);
}
