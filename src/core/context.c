/* Contexts (stream, scratch, findings, memory) and the step block. */
#include "core/context.h"

#include "core/layer.h"
#include "core/staging.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

/* Backends */

tutti_status tutti__backend_find(tutti_backend kind, const tutti__backend **backend)
{
    switch (kind) {
    case TUTTI_BACKEND_HOST:
        *backend = &tutti__host_backend;
        return TUTTI_OK;
    case TUTTI_BACKEND_CUDA:
#ifdef TUTTI_WITH_CUDA
        *backend = &tutti__cuda_backend;
        return TUTTI_OK;
#else
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "the library was built without the CUDA backend; want host or auto");
#endif
    case TUTTI_BACKEND_AUTO: {
        *backend = &tutti__host_backend;
#ifdef TUTTI_WITH_CUDA
        int count = 0;
        if (tutti__cuda_backend.run.device_count(&count) == TUTTI_OK && count > 0)
            *backend = &tutti__cuda_backend;
#endif
        return TUTTI_OK;
    }
    }
    return tutti__fail(TUTTI_ERR_ARG, "backend is %d, want auto, host or cuda", (int)kind);
}

tutti_status tutti_device_count(tutti_backend backend, int *count)
{
    TUTTI_REQUIRE(count, "device_count: count is NULL");
    const tutti__backend *table = NULL;
    TUTTI_TRY(tutti__backend_find(backend, &table));
    return table->run.device_count(count);
}

/* Scratch */

typedef struct tutti__scratch_block {
    struct tutti__scratch_block *next;
    size_t bytes;
    void *data;
} scratch_block;

/* AddressSanitizer sees an operation that goes beyond what it asked for. */
static void *hand_out(const tutti_context *ctx, const scratch_block *block, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    if (ctx->backend == &tutti__host_backend) {
        ASAN_UNPOISON_MEMORY_REGION(block->data, bytes);
        ASAN_POISON_MEMORY_REGION((char *)block->data + bytes, block->bytes - bytes);
    }
#else
    (void)ctx, (void)bytes;
#endif
    return block->data;
}

tutti_status tutti__scratch(tutti_context *ctx, size_t bytes, void **data)
{
    return tutti__scratch_of(ctx, TUTTI__SCRATCH_OPERATION, bytes, data);
}

tutti_status tutti__scratch_of(tutti_context *ctx, tutti__scratch_kind kind, size_t bytes,
                               void **data)
{
    scratch_block **blocks = &ctx->scratch[kind];
    *data = NULL;
    if (bytes == 0) return TUTTI_OK;
    if (*blocks && (*blocks)->bytes >= bytes) {
        *data = hand_out(ctx, *blocks, bytes);
        return TUTTI_OK;
    }
    const tutti__runtime *run = &ctx->backend->run;
    bool capturing;
    TUTTI_TRY(run->stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "the stream is being captured, but this call needs %zu bytes of scratch: "
            "plan this shape on this context first",
            bytes);
    scratch_block *block = malloc(sizeof *block);
    if (!block) return tutti__fail(TUTTI_ERR_MEMORY, "context: no memory for a scratch block");
    /* half as much again, so that slowly growing shapes do not add a block each */
    *block = (scratch_block){*blocks, bytes + bytes / 2, NULL};
    tutti_status status = run->alloc(ctx->device, block->bytes, &block->data);
    if (status != TUTTI_OK) {
        block->bytes = bytes;
        status = run->alloc(ctx->device, block->bytes, &block->data);
    }
    if (status != TUTTI_OK) {
        free(block);
        return status;
    }
    *blocks = block;
    *data = hand_out(ctx, block, bytes);
    return TUTTI_OK;
}

/* Holders */

/* For all objects, as finalisers of other languages may run on a thread of their own. */
static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;

void tutti__hold(tutti__holders *holders)
{
    pthread_mutex_lock(&holding);
    holders->count++;
    pthread_mutex_unlock(&holding);
}

bool tutti__let_go(tutti__holders *holders, bool caller)
{
    pthread_mutex_lock(&holding);
    if (caller)
        holders->closed = true;
    else
        holders->count--;
    const bool last = holders->closed && holders->count == 0;
    pthread_mutex_unlock(&holding);
    return last;
}

tutti_status tutti__context_open(const tutti_context *ctx, const char *function)
{
    if (!ctx->holders.closed) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE, "%s: the context has been destroyed", function);
}

void tutti__context_release(tutti_context *ctx)
{
    if (tutti__let_go(&ctx->holders, false)) free(ctx);
}

/* idle: no enqueued work uses it. */
static void drop_scratch(tutti_context *ctx, bool idle)
{
    for (int kind = 0; kind < TUTTI__SCRATCHES; kind++) {
        for (scratch_block *block = ctx->scratch[kind], *next; block; block = next) {
            next = block->next;
            if (idle) ctx->backend->run.free(ctx->device, block->data);
            free(block);
        }
        ctx->scratch[kind] = NULL;
    }
}

tutti_status tutti_context_trim(tutti_context *ctx)
{
    TUTTI_REQUIRE(ctx, "context_trim: ctx is NULL");
    TUTTI_TRY(tutti_context_synchronize(ctx));
    tutti__plans_drop(ctx);
    tutti__recent_drop(ctx);
    drop_scratch(ctx, true);
    tutti__staging_drop(ctx, true);
    return TUTTI_OK;
}

/* Progress of communicators */

void tutti__progress_add(tutti_context *ctx, tutti__progress *progress)
{
    tutti__hold(&ctx->holders);
    progress->next = ctx->progress;
    ctx->progress = progress;
}

void tutti__progress_remove(tutti_context *ctx, tutti__progress *progress)
{
    for (tutti__progress **at = &ctx->progress; *at; at = &(*at)->next)
        if (*at == progress) {
            *at = progress->next;
            tutti__context_release(ctx);
            return;
        }
}

static tutti_status advance(tutti_context *ctx, double waited)
{
    tutti_status worst = TUTTI_OK;
    for (tutti__progress *progress = ctx->progress, *next; progress; progress = next) {
        next = progress->next; /* it may remove itself */
        tutti_status status = progress->advance(progress->self, waited);
        if (status != TUTTI_OK) worst = status;
    }
    return worst;
}

tutti_status tutti__context_advance(tutti_context *ctx)
{
    return ctx->progress ? advance(ctx, -1) : TUTTI_OK;
}

/* Creation and destruction */

tutti_status tutti__context_make(const tutti__backend *backend, int device, int threads,
                                 bool stream_given, tutti__stream stream, tutti_context **ctx)
{
    int count;
    TUTTI_TRY(backend->run.device_count(&count));
    if (count == 0)
        return tutti__fail(TUTTI_ERR_DEVICE, "context: the %s backend finds no device",
                           backend->name);
    if (device < 0 || device >= count)
        return tutti__fail(TUTTI_ERR_DEVICE, "context: device is %d, want 0 to %d", device,
                           count - 1);
    tutti_context *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "context: no memory");
    made->backend = backend;
    made->device = device;
    made->threads = threads > 0 ? threads : omp_get_max_threads();
    tutti_status status = TUTTI_OK;
    if (stream_given)
        made->stream = stream;
    else {
        status = backend->run.stream_create(device, false, &made->stream);
        made->owns_stream = status == TUTTI_OK;
    }
    if (status == TUTTI_OK)
        status = backend->run.alloc(device, sizeof *made->finding, (void **)&made->finding);
    if (status == TUTTI_OK)
        status = backend->run.zero(device, made->stream, made->finding, sizeof *made->finding);
    if (status != TUTTI_OK)
        tutti_context_destroy(&made);
    else
        *ctx = made;
    return status;
}

tutti_context_desc tutti_context_desc_default(void)
{
    return (tutti_context_desc)TUTTI_CONTEXT_DESC_INIT;
}

tutti_status tutti_context_create(const tutti_context_desc *desc, tutti_context **ctx)
{
    TUTTI_REQUIRE(ctx, "context_create: ctx is NULL");
    tutti_context_desc wanted;
    TUTTI_TRY(tutti__desc_read(&wanted, sizeof wanted, desc, "context_create"));
    TUTTI_REQUIRE(wanted.threads >= 0 && wanted.threads <= 4096,
                  "context_create: threads is %d, want 0 to 4096", wanted.threads);
    const tutti__backend *backend = NULL;
    TUTTI_TRY(tutti__backend_find(wanted.backend, &backend));
    return tutti__context_make(backend, wanted.device, wanted.threads, false, NULL, ctx);
}

void tutti_context_destroy(tutti_context **ctx)
{
    if (!ctx || !*ctx) return;
    tutti_context *c = *ctx;
    const tutti__runtime *run = &c->backend->run;
    /* after a missed deadline, work that is still under way keeps its memory */
    bool idle = tutti_context_synchronize(c) == TUTTI_OK;
    tutti__plans_drop(c);
    tutti__recent_drop(c);
    if (c->backend_data) c->backend_data_free(c->backend_data);
    drop_scratch(c, idle);
    tutti__staging_drop(c, idle);
    if (idle) {
        if (c->finding) run->free(c->device, c->finding);
        if (c->owns_stream) run->stream_destroy(c->device, c->stream);
    }
    if (tutti__let_go(&c->holders, true)) free(c);
    *ctx = NULL;
}

tutti_status tutti_context_synchronize(tutti_context *ctx)
{
    TUTTI_REQUIRE(ctx, "context_synchronize: ctx is NULL");
    TUTTI_TRY(tutti__context_open(ctx, "context_synchronize"));
    const tutti__runtime *run = &ctx->backend->run;
    bool capturing;
    TUTTI_TRY(run->stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing)
        return tutti__fail(TUTTI_ERR_STATE, "context_synchronize: the stream is being captured");
    if (!ctx->progress) return run->stream_synchronize(ctx->device, ctx->stream);
    return tutti__context_wait(ctx, NULL);
}

tutti_status tutti__context_wait(tutti_context *ctx, tutti__event event)
{
    const tutti__runtime *run = &ctx->backend->run;
    double start = tutti__now();
    for (;;) {
        bool done;
        TUTTI_TRY(event ? run->event_query(ctx->device, event, &done)
                        : run->stream_query(ctx->device, ctx->stream, &done));
        double waited = tutti__now() - start;
        TUTTI_TRY(advance(ctx, done ? 0 : waited)); /* a finished wait misses no deadline */
        if (done) return TUTTI_OK;
        if (waited > 1e-3)
            tutti__sleep(waited > 1 ? 1e-3 : 2e-5); /* spin at first: steps are short */
    }
}

tutti_status tutti_context_check(tutti_context *ctx)
{
    TUTTI_REQUIRE(ctx, "context_check: ctx is NULL");
    TUTTI_TRY(tutti_context_synchronize(ctx));
    const tutti__runtime *run = &ctx->backend->run;
    tutti__finding finding;
    TUTTI_TRY(run->copy(ctx->device, ctx->stream, &finding, ctx->finding, sizeof finding));
    TUTTI_TRY(tutti_context_synchronize(ctx));
    if (finding.code == 0) return TUTTI_OK;
    TUTTI_TRY(run->zero(ctx->device, ctx->stream, ctx->finding, sizeof finding));
    TUTTI_TRY(tutti_context_synchronize(ctx));
    return tutti__layer_classes[finding.code - 1]->explain(&finding);
}

tutti_backend tutti_context_backend(const tutti_context *ctx)
{
    return ctx ? ctx->backend->kind : TUTTI_BACKEND_AUTO;
}

int tutti_context_device(const tutti_context *ctx)
{
    return ctx ? ctx->device : -1;
}

/* Memory */

/* host: page-locked memory of the host.  who: the public function. */
static tutti_status alloc(tutti_context *ctx, bool host, size_t bytes, void **data, const char *who)
{
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", who);
    TUTTI_REQUIRE(data, "%s: data is NULL", who);
    TUTTI_TRY(tutti__context_open(ctx, who));
    TUTTI_REQUIRE(bytes <= PTRDIFF_MAX, "%s: bytes is %zu, want at most PTRDIFF_MAX", who, bytes);
    if (bytes == 0) {
        *data = NULL;
        return TUTTI_OK;
    }
    const tutti__runtime *run = &ctx->backend->run;
    return (host ? run->host_alloc : run->alloc)(ctx->device, bytes, data);
}

static tutti_status release(tutti_context *ctx, bool host, void **data, const char *who)
{
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", who);
    TUTTI_REQUIRE(data, "%s: data is NULL", who);
    if (!*data) return TUTTI_OK;
    TUTTI_TRY(tutti_context_synchronize(ctx));
    const tutti__runtime *run = &ctx->backend->run;
    (host ? run->host_free : run->free)(ctx->device, *data);
    *data = NULL;
    return TUTTI_OK;
}

tutti_status tutti_alloc(tutti_context *ctx, size_t bytes, void **data)
{
    return alloc(ctx, false, bytes, data, "alloc");
}

tutti_status tutti_free(tutti_context *ctx, void **data)
{
    return release(ctx, false, data, "free");
}

tutti_status tutti_alloc_host(tutti_context *ctx, size_t bytes, void **data)
{
    return alloc(ctx, true, bytes, data, "alloc_host");
}

tutti_status tutti_free_host(tutti_context *ctx, void **data)
{
    return release(ctx, true, data, "free_host");
}

tutti_status tutti_copy(tutti_context *ctx, void *dst, const void *src, size_t bytes)
{
    TUTTI_REQUIRE(ctx, "copy: ctx is NULL");
    TUTTI_REQUIRE(dst || bytes == 0, "copy: dst is NULL");
    TUTTI_REQUIRE(src || bytes == 0, "copy: src is NULL");
    TUTTI_TRY(tutti__context_open(ctx, "copy"));
    if (bytes == 0) return TUTTI_OK;
    const tutti__runtime *run = &ctx->backend->run;
    bool from = false, to = false, capturing = false;
    if (run->is_pageable) {
        TUTTI_TRY(run->is_pageable(ctx->device, dst, &to));
        if (!to) TUTTI_TRY(run->is_pageable(ctx->device, src, &from));
    }
    if (from || to) TUTTI_TRY(run->stream_capturing(ctx->device, ctx->stream, &capturing));
    const bool staged = from && !capturing && bytes <= TUTTI__STAGED_MOST;
    /* wait here, with a deadline, not in the copy, which could block behind a sum that a rank never
     * joins */
    if ((from || to) && !capturing && !staged && ctx->progress)
        TUTTI_TRY(tutti_context_synchronize(ctx));
    TUTTI_TRY(tutti__context_advance(ctx));
    if (staged) return tutti__staged_copy(ctx, dst, src, bytes);
    return run->copy(ctx->device, ctx->stream, dst, src, bytes);
}

tutti_status tutti_zero(tutti_context *ctx, void *data, size_t bytes)
{
    TUTTI_REQUIRE(ctx, "zero: ctx is NULL");
    TUTTI_REQUIRE(data || bytes == 0, "zero: data is NULL");
    TUTTI_TRY(tutti__context_open(ctx, "zero"));
    if (bytes == 0) return TUTTI_OK;
    TUTTI_TRY(tutti__context_advance(ctx));
    return ctx->backend->run.zero(ctx->device, ctx->stream, data, bytes);
}

/* The step block */

tutti_status tutti_step_block_create(tutti_context *ctx, tutti_step_block **step)
{
    TUTTI_REQUIRE(ctx, "step_block_create: ctx is NULL");
    TUTTI_REQUIRE(step, "step_block_create: step is NULL");
    tutti_step_block *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "step_block_create: no memory");
    made->backend = ctx->backend;
    made->device = ctx->device;
    tutti_status status =
        ctx->backend->run.alloc(ctx->device, sizeof *made->values, (void **)&made->values);
    if (status != TUTTI_OK)
        tutti_step_block_destroy(&made);
    else
        *step = made;
    return status;
}

tutti_status tutti__step_block_check(const tutti_step_block *step, const tutti_context *ctx,
                                     const char *function)
{
    if (step->set) return TUTTI_OK;
    bool capturing; /* captured work reads the values at replay */
    TUTTI_TRY(ctx->backend->run.stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE,
                       "%s: the step block was never set: call tutti_step_block_set first",
                       function);
}

static tutti_status check_device(const tutti_step_block *step, const tutti_context *ctx,
                                 const char *function)
{
    TUTTI_REQUIRE(step->backend == ctx->backend && step->device == ctx->device,
                  "%s: the step block is on %s device %d, the context on %s device %d", function,
                  step->backend->name, step->device, ctx->backend->name, ctx->device);
    return TUTTI_OK;
}

void tutti_step_block_destroy(tutti_step_block **step)
{
    if (!step || !*step) return;
    if ((*step)->values) (*step)->backend->run.free((*step)->device, (*step)->values);
    free(*step);
    *step = NULL;
}

tutti_status tutti_step_block_weigh(tutti_step_block *step, tutti_context *ctx,
                                    const tutti_tensor *count)
{
    TUTTI_REQUIRE(step, "step_block_weigh: step is NULL");
    TUTTI_REQUIRE(ctx, "step_block_weigh: ctx is NULL");
    TUTTI_TRY(tutti__context_open(ctx, "step_block_weigh"));
    TUTTI_TRY(check_device(step, ctx, "step_block_weigh"));
    TUTTI_TRY(tutti__tensor_check(count, TUTTI_F64, "step_block_weigh: count"));
    TUTTI_REQUIRE(tutti_tensor_count(count) == 1,
                  "step_block_weigh: count has %lld elements, want 1",
                  (long long)tutti_tensor_count(count));
    TUTTI_TRY(tutti__step_block_check(step, ctx, "step_block_weigh"));
    TUTTI_TRY(tutti__context_advance(ctx));
    return ctx->backend->op.weigh(ctx, count->data, &step->values->loss_weight);
}

tutti_status tutti_step_block_set(tutti_step_block *step, tutti_context *ctx,
                                  const tutti_step_values *values)
{
    TUTTI_REQUIRE(step, "step_block_set: step is NULL");
    TUTTI_REQUIRE(ctx, "step_block_set: ctx is NULL");
    TUTTI_REQUIRE(values, "step_block_set: values is NULL");
    TUTTI_TRY(tutti__context_open(ctx, "step_block_set"));
    TUTTI_TRY(check_device(step, ctx, "step_block_set"));
    TUTTI_REQUIRE(values->step > 0, "step_block_set: step is %lld, want > 0",
                  (long long)values->step);
    TUTTI_REQUIRE(isfinite(values->learning_rate) && values->learning_rate >= 0,
                  "step_block_set: learning_rate is %g, want finite and >= 0",
                  values->learning_rate);
    TUTTI_REQUIRE(isfinite(values->loss_weight) && values->loss_weight > 0,
                  "step_block_set: loss_weight is %g, want finite and > 0", values->loss_weight);
    tutti_step_values own = *values;
    if (own.loss_scale == 0) own.loss_scale = 1;
    int exponent;
    TUTTI_REQUIRE(
        isfinite(own.loss_scale) && own.loss_scale > 0 && frexp(own.loss_scale, &exponent) == 0.5,
        "step_block_set: loss_scale is %g, want a power of two, or 0 for 1", own.loss_scale);
    bool capturing;
    TUTTI_TRY(ctx->backend->run.stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing)
        return tutti__fail(TUTTI_ERR_STATE, "step_block_set: the stream is being captured; set the "
                                            "step's values outside the graph");
    TUTTI_TRY(ctx->backend->run.copy(ctx->device, ctx->stream, step->values, &own, sizeof own));
    step->set = true;
    return TUTTI_OK;
}
