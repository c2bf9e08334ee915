/* The steps of a gradient exchange: tracks ready parameters, leaves and steps. */
#include "tutti/grad_sync.h"

#include <stdio.h>
#include <string.h>

#include "comm/sync.h"
#include "core/layer.h"

/* A step */

static tutti__exchanged **list_of(const tutti__sync_entry *entry)
{
    return &entry->layer->exchanged[entry->param - entry->layer->params];
}

void tutti__sync_release_layers(tutti_grad_sync *sync)
{
    for (int i = 0; i < sync->gradients.entry_count; i++) {
        tutti__sync_entry *entry = &sync->gradients.entries[i];
        if (!entry->layer) continue;
        tutti__exchanged **at = list_of(entry);
        while (*at != &entry->exchanged) at = &(*at)->next;
        *at = entry->exchanged.next;
        tutti__layer_release(entry->layer);
        entry->layer = NULL;
    }
}

tutti_status tutti__sync_fail(tutti_grad_sync *sync, tutti_status status)
{
    tutti__sync_release_layers(sync);
    sync->failed = true;
    snprintf(sync->why, sizeof sync->why, "%s", tutti_last_error());
    if (sync->engine.table->abandon) sync->engine.table->abandon(&sync->engine);
    return status;
}

tutti_status tutti__sync_usable(const tutti_grad_sync *sync, const tutti_context *ctx,
                                const char *who)
{
    TUTTI_REQUIRE(sync, "%s: sync is NULL", who);
    const tutti_comm *comm = sync->comm;
    TUTTI_TRY(tutti__comm_context_check(comm, ctx, who));
    TUTTI_TRY(tutti__comm_open(comm, who));
    if (sync->params && sync->params->holders.closed)
        return tutti__fail(TUTTI_ERR_STATE, "%s: the store has been destroyed", who);
    if (sync->failed)
        return tutti__fail(TUTTI_ERR_COMM, "%s: the exchange has already failed: %s", who,
                           sync->why);
    TUTTI_TRY(tutti__comm_capture_check(comm, ctx, who));
    bool capturing;
    TUTTI_TRY(ctx->backend->run.stream_capturing(ctx->device, ctx->stream, &capturing));
    if (capturing && sync->desc.timeline)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: desc.timeline cannot be used while the stream is being captured",
                           who);
    return TUTTI_OK;
}

tutti_status tutti__sync_begin_step(tutti_grad_sync *sync, tutti_context *ctx)
{
    tutti__engine *engine = &sync->engine;
    if (engine->in_step) return TUTTI_OK;
    if (engine->table->begin) TUTTI_TRY(engine->table->begin(engine, ctx));
    engine->in_step = true;
    sync->ctx = ctx;
    engine->threads = ctx->threads;
    if (sync->params) sync->params->summed = false;
    return tutti__timeline_mark(engine->times, TUTTI__MOMENT_START, 0, ctx->stream);
}

/* Exclusive: what waits for a sum must not write values that backward, which has given that sum's
 * gradient early, still reads. */
static tutti_status on_one_context(const tutti_grad_sync *sync, const tutti_context *ctx,
                                   const char *who)
{
    TUTTI_REQUIRE(!sync->desc.exclusive || !sync->ctx || sync->ctx == ctx,
                  "%s: ctx is another context than that of the step's first ready, with which "
                  "desc.exclusive wants all of them",
                  who);
    return TUTTI_OK;
}

/* Whether the run that has begun contains this rank's last leaf. */
static bool last_run(const tutti_grad_sync *sync)
{
    return sync->leaf + sync->run == sync->leaves.first + sync->leaves.count;
}

/* Handles a range whose last gradient is ready.  Before this rank's last leaf it is only merged,
 * unless backward has added its leaves already. */
static tutti_status complete(tutti_grad_sync *sync, tutti_context *ctx, int r)
{
    tutti__engine *engine = &sync->engine;
    sync->ranges[r].complete = true;
    const tutti__range *range = &engine->ranges[r].gradient;
    const tutti__leaf_part part = {
        .first = sync->leaf, .leaves = 1, .span = 1, .count = range->count, .data = range->data};
    return engine->table->merge && sync->run <= 1 ? engine->table->merge(engine, ctx, r, &part)
                                                  : TUTTI_OK;
}

/* Those of the ranges that no gradient is missing in any more. */
static tutti_status complete_ranges(tutti_grad_sync *sync, tutti_context *ctx, int first, int last)
{
    tutti__engine *engine = &sync->engine;
    for (int r = first, end; r <= last; r = end + 1) {
        for (end = r; end <= last && !sync->ranges[end].complete && sync->ranges[end].missing == 0;
             end++)
            TUTTI_TRY(complete(sync, ctx, end));
        if (!sync->leaves.total || last_run(sync)) /* one mark for all, as each takes time */
            TUTTI_TRY(tutti__timeline_mark_ranges(engine->times, TUTTI__MOMENT_READY, r, end - 1,
                                                  ctx->stream));
    }
    return TUTTI_OK;
}

/* Ranges are issued in their own order, whatever that of the calls, so that all ranks sum the same
 * ones without asking. */
static tutti_status issue(tutti_grad_sync *sync, tutti_context *ctx)
{
    tutti__engine *engine = &sync->engine;
    const int first = engine->issued;
    if (sync->leaves.total && !last_run(sync)) return TUTTI_OK;
    for (; engine->issued < engine->range_count && sync->ranges[engine->issued].complete;
         engine->issued++)
        engine->ranges[engine->issued].work.sequence = ++sync->comm->sequence;
    if (engine->issued > first)
        TUTTI_TRY(engine->table->issue(engine, ctx, first, engine->issued - 1));
    return engine->table->advance ? engine->table->advance(engine) : TUTTI_OK;
}

/* The layer must not write this gradient, and is held, until tutti__sync_release_layers. */
static void give(tutti_layer *layer, tutti__sync_entry *entry, const void *grad)
{
    entry->layer = layer;
    tutti__exchanged **list = list_of(entry);
    entry->exchanged = (tutti__exchanged){*list, grad};
    *list = &entry->exchanged;
    tutti__hold(&layer->holders);
}

/* These parameters' gradients are complete on this rank (in this run).  layer: theirs, or NULL. */
static tutti_status ready(tutti_grad_sync *sync, tutti_context *ctx, tutti_layer *layer,
                          tutti__sync_entry *const *entries, int count)
{
    const tutti__gradients *gradients = &sync->gradients;
    if (sync->engine.in_step) TUTTI_TRY(on_one_context(sync, ctx, "grad_sync_ready"));
    tutti_status status = tutti__sync_begin_step(sync, ctx);
    int first = sync->engine.range_count, last = -1;
    for (int i = 0; i < count; i++) {
        const int g = entries[i]->gradient;
        const tutti__gradient *gradient = &gradients->list[g];
        entries[i]->ready = true;
        if (layer) give(layer, entries[i], gradient->data);
        if (--gradients->missing[g] > 0) continue;
        for (int r = gradient->first_range; r <= gradient->last_range; r++)
            sync->ranges[r].missing--;
        if (gradient->first_range < first) first = gradient->first_range;
        if (gradient->last_range > last) last = gradient->last_range;
    }
    if (status == TUTTI_OK) status = complete_ranges(sync, ctx, first, last);
    if (status == TUTTI_OK) status = issue(sync, ctx);
    return status == TUTTI_OK ? TUTTI_OK : tutti__sync_fail(sync, status);
}

static tutti_status ready_twice(const tutti_grad_sync *sync, const tutti__sync_entry *entry,
                                const char *who)
{
    const bool leaf = sync->leaves.total > 0;
    return tutti__fail(TUTTI_ERR_STATE, "%s: '%s' already declared ready in this %s; call %s first",
                       who, entry->param->name, leaf ? "leaf" : "step",
                       leaf ? "tutti_grad_sync_leaves_end" : "tutti_grad_sync_finish");
}

/* Fails unless this parameter can be declared ready: not twice, in reproducible mode while leaves
 * are computed, and with several of them only if backward has added each. */
static tutti_status may_be_ready(const tutti_grad_sync *sync, const tutti__sync_entry *entry,
                                 const char *who)
{
    if (entry->ready) return ready_twice(sync, entry, who);
    if (sync->run > 1 && !entry->given)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: '%s' has no gradients of the %d leaves: want its backward called "
                           "with leaves and sync, or one leaf at a time",
                           who, entry->param->name, sync->run);
    return TUTTI_OK;
}

/* Reproducible mode: ready must be called while a leaf is computed. */
static tutti_status in_run(const tutti_grad_sync *sync, const char *who)
{
    if (!sync->leaves.total || sync->run) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE,
                       "%s: no leaf has begun; call tutti_grad_sync_leaves_begin first", who);
}

/* Fails with the name of a parameter in the ranges up to this one that is not ready. */
static tutti_status all_ready(const tutti_grad_sync *sync, int range, const char *who)
{
    const tutti__gradients *gradients = &sync->gradients;
    for (int g = 0; g < gradients->count; g++) {
        if (gradients->missing[g] == 0 || gradients->list[g].first_range > range) continue;
        const tutti_param *param = gradients->list[g].param;
        for (int i = 0; i < gradients->entry_count; i++)
            if (gradients->entries[i].gradient == g && !gradients->entries[i].ready)
                param = gradients->entries[i].param;
        return tutti__fail(
            TUTTI_ERR_STATE,
            "%s: '%s' is not ready in this %s; want its layer's backward called with "
            "sync, or tutti_grad_sync_ready",
            who, param->name, sync->leaves.total ? "leaf" : "step");
    }
    return TUTTI_OK;
}

/* Marks all gradients as not ready. */
static void reopen(tutti_grad_sync *sync)
{
    const tutti__gradients *gradients = &sync->gradients;
    tutti__sync_release_layers(sync);
    for (int i = 0; i < gradients->entry_count; i++)
        gradients->entries[i].ready = gradients->entries[i].given = false;
    for (int g = 0; g < gradients->count; g++) {
        gradients->missing[g] = gradients->list[g].users;
        gradients->list[g].given = 0;
    }
    for (int r = 0; r < sync->engine.range_count; r++)
        sync->ranges[r] = (tutti__sync_range){sync->engine.ranges[r].gradient.gradients, false};
}

/* more: a part of the layer's backward follows. */
static tutti_status layer_ready(tutti_grad_sync *sync, tutti_context *ctx, tutti_layer *layer,
                                bool more)
{
    static const char who[] = "grad_sync_ready";
    TUTTI_TRY(tutti__sync_usable(sync, ctx, who));
    TUTTI_REQUIRE(layer, "%s: layer is NULL", who);
    tutti__sync_entry *found[TUTTI__LAYER_PARAMS_MAX];
    int count = 0, trained = 0, params = tutti_layer_param_count(layer);
    if (params > 0) TUTTI_TRY(in_run(sync, who));
    for (int i = 0; i < params; i++) {
        const tutti_param *param = tutti_layer_param(layer, i);
        tutti__sync_entry *entry = tutti__gradients_find(&sync->gradients, param);
        trained += entry || param->grad.data || !param->value.data;
        if (!entry) continue;
        TUTTI_TRY(may_be_ready(sync, entry, who));
        found[count++] = entry;
    }
    if (trained == 0) { /* but its backward has followed the last parameters */
        sync->engine.more = true;
        return TUTTI_OK;
    }
    TUTTI_REQUIRE(count > 0, "%s: no parameter of this layer is part of the exchange", who);
    sync->engine.more = more;
    return ready(sync, ctx, layer, found, count);
}

tutti_status tutti_grad_sync_ready(tutti_grad_sync *sync, tutti_context *ctx, tutti_layer *layer)
{
    return layer_ready(sync, ctx, layer, false);
}

tutti_status tutti__sync_sink_may_begin(const tutti__ready_sink *self, const tutti_context *ctx,
                                        tutti_layer *layer, bool accumulate)
{
    const tutti_grad_sync *sync = (const tutti_grad_sync *)self;
    const tutti__gradients *gradients = &sync->gradients;
    const char *who = tutti_layer_type_of(layer)->name;
    TUTTI_TRY(tutti__sync_usable(sync, ctx, who));
    for (int i = 0; i < tutti_layer_param_count(layer); i++) {
        const tutti_param *param = tutti_layer_param(layer, i);
        const tutti__sync_entry *entry = tutti__gradients_find(gradients, param);
        if (!entry) continue;
        TUTTI_TRY(in_run(sync, who));
        if (entry->ready) return ready_twice(sync, entry, who);
        const int g = entry->gradient;
        if (sync->run <= 1 && !accumulate && gradients->missing[g] < gradients->list[g].users)
            return tutti__fail(TUTTI_ERR_STATE,
                               "%s: '%s' has gradients of this %s by another layer: want flags "
                               "TUTTI_GRAD_ACCUMULATE",
                               who, param->name, sync->leaves.total ? "leaf" : "step");
    }
    return TUTTI_OK;
}

tutti_status tutti__sync_sink_ready(tutti__ready_sink *self, tutti_context *ctx, tutti_layer *layer,
                                    bool more)
{
    return layer_ready((tutti_grad_sync *)self, ctx, layer, more);
}

bool tutti__sync_sink_begins(const tutti__ready_sink *self, tutti_layer *layer)
{
    const tutti_grad_sync *sync = (const tutti_grad_sync *)self;
    const tutti__gradient *found[TUTTI__LAYER_PARAMS_MAX];
    int count = 0;
    if (!sync->desc.exclusive || sync->engine.carrier == &tutti__local_engine) return false;
    if (sync->leaves.total && !last_run(sync)) return false;
    for (int i = 0; i < tutti_layer_param_count(layer); i++) {
        const tutti__sync_entry *entry =
            tutti__gradients_find(&sync->gradients, tutti_layer_param(layer, i));
        if (entry && sync->gradients.missing[entry->gradient] == 1)
            found[count++] = &sync->gradients.list[entry->gradient];
    }
    for (int i = 0; i < count; i++)
        for (int r = found[i]->first_range; r <= found[i]->last_range; r++) {
            int others = sync->ranges[r].missing;
            for (int k = 0; k < count; k++)
                others -= found[k]->first_range <= r && r <= found[k]->last_range;
            if (others == 0) return true;
        }
    return false;
}

tutti_status tutti_grad_sync_ready_param(tutti_grad_sync *sync, tutti_context *ctx,
                                         const tutti_param *param)
{
    static const char who[] = "grad_sync_ready_param";
    TUTTI_TRY(tutti__sync_usable(sync, ctx, who));
    TUTTI_REQUIRE(param, "%s: param is NULL", who);
    tutti__sync_entry *entry = tutti__gradients_find(&sync->gradients, param);
    TUTTI_REQUIRE(entry, "%s: '%s' is not part of the exchange", who, param->name);
    TUTTI_TRY(in_run(sync, who));
    TUTTI_TRY(may_be_ready(sync, entry, who));
    sync->engine.more = false;
    return ready(sync, ctx, NULL, &entry, 1);
}

/* Leaves */

tutti_status tutti_grad_sync_own_leaves(const tutti_grad_sync *sync, int *first, int *count)
{
    static const char who[] = "grad_sync_own_leaves";
    TUTTI_REQUIRE(sync, "%s: sync is NULL", who);
    TUTTI_REQUIRE(first && count, "%s: %s is NULL", who, first ? "count" : "first");
    if (!sync->leaves.total)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: desc.leaves is 0, want > 0: fast mode has no leaves", who);
    *first = sync->leaves.first;
    *count = sync->leaves.count;
    return TUTTI_OK;
}

/* Fails in fast mode, and if this rank's leaves have all been computed. */
static tutti_status leaves_left(const tutti_grad_sync *sync, const tutti_context *ctx,
                                const char *who)
{
    TUTTI_TRY(tutti__sync_usable(sync, ctx, who));
    if (!sync->leaves.total)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: desc.leaves is 0, want > 0: fast mode has no leaves", who);
    if (sync->leaf == sync->leaves.first + sync->leaves.count)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s: all leaves of this rank have ended; call tutti_grad_sync_finish",
                           who);
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_leaves_begin(tutti_grad_sync *sync, tutti_context *ctx, int leaf,
                                          int count)
{
    static const char who[] = "grad_sync_leaves_begin";
    TUTTI_TRY(leaves_left(sync, ctx, who));
    const int end = sync->leaves.first + sync->leaves.count;
    TUTTI_REQUIRE(leaf == sync->leaf,
                  "%s: leaf is %d, want %d: this rank has leaves %d to %d, in order", who, leaf,
                  sync->leaf, sync->leaves.first, end - 1);
    TUTTI_REQUIRE(count >= 1 && count <= end - leaf,
                  "%s: count is %d, want 1 to the %d leaves that this rank has left", who, count,
                  end - leaf);
    if (sync->run)
        return tutti__fail(TUTTI_ERR_STATE, "%s: leaf %d has not ended", who, sync->leaf);
    sync->run = count;
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_leaves_end(tutti_grad_sync *sync, tutti_context *ctx)
{
    static const char who[] = "grad_sync_leaves_end";
    TUTTI_TRY(leaves_left(sync, ctx, who));
    if (!sync->run)
        return tutti__fail(TUTTI_ERR_STATE, "%s: leaf %d has not begun", who, sync->leaf);
    TUTTI_TRY(all_ready(sync, sync->engine.range_count, who));
    if (!last_run(sync)) reopen(sync);
    sync->leaf += sync->run;
    sync->run = 0;
    return TUTTI_OK;
}

/* Returns to the state before the first ready. */
static void next_step(tutti_grad_sync *sync)
{
    reopen(sync);
    sync->leaf = sync->leaves.first;
    sync->engine.issued = 0;
    sync->engine.in_step = false;
    tutti__timeline_next(sync->engine.times);
    sync->steps++;
    if (sync->params) sync->params->summed = true;
}

static tutti_status finish(tutti_grad_sync *sync, tutti_context *ctx)
{
    tutti__engine *engine = &sync->engine;
    TUTTI_TRY(tutti__sync_begin_step(sync, ctx)); /* needed if the exchange has no parameters */
    TUTTI_TRY(tutti__timeline_mark(engine->times, TUTTI__MOMENT_FINISH, 0, ctx->stream));
    return engine->table->finish ? engine->table->finish(engine, ctx) : TUTTI_OK;
}

tutti_status tutti_grad_sync_finish(tutti_grad_sync *sync, tutti_context *ctx)
{
    static const char who[] = "grad_sync_finish";
    TUTTI_TRY(tutti__sync_usable(sync, ctx, who));
    if (sync->leaf < sync->leaves.first + sync->leaves.count)
        return tutti__fail(TUTTI_ERR_STATE, "%s: leaf %d has not %s", who, sync->leaf,
                           sync->run ? "ended" : "begun");
    TUTTI_TRY(all_ready(sync, sync->engine.range_count, who));
    if (sync->engine.in_step) TUTTI_TRY(on_one_context(sync, ctx, who));
    tutti_status status = finish(sync, ctx);
    if (status != TUTTI_OK) return tutti__sync_fail(sync, status);
    next_step(sync);
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_wait(tutti_grad_sync *sync, tutti_context *ctx,
                                  const tutti_param *param)
{
    static const char who[] = "grad_sync_wait";
    TUTTI_TRY(tutti__sync_usable(sync, ctx, who));
    TUTTI_REQUIRE(param, "%s: param is NULL", who);
    const tutti__sync_entry *entry = tutti__gradients_find(&sync->gradients, param);
    TUTTI_REQUIRE(entry, "%s: '%s' is not part of the exchange", who, param->name);
    const tutti__gradient *gradient = &sync->gradients.list[entry->gradient];
    TUTTI_TRY(on_one_context(sync, ctx, who));
    if (sync->engine.in_step || sync->steps == 0) {
        TUTTI_TRY(all_ready(sync, gradient->last_range, who));
        const int leaf = sync->leaf + (sync->run > 1 ? sync->run - 1 : 0);
        if (leaf < sync->leaves.first + sync->leaves.count - 1)
            return tutti__fail(TUTTI_ERR_STATE, "%s: leaf %d is not this rank's last", who, leaf);
    }
    if (!sync->engine.table->wait) return TUTTI_OK;
    tutti_status status =
        sync->engine.table->wait(&sync->engine, ctx, gradient->first_range, gradient->last_range);
    return status == TUTTI_OK ? TUTTI_OK : tutti__sync_fail(sync, status);
}

/* Results */

tutti_status tutti_grad_sync_get_info(const tutti_grad_sync *sync, tutti_grad_sync_info *info)
{
    TUTTI_REQUIRE(sync, "grad_sync_get_info: sync is NULL");
    TUTTI_REQUIRE(info, "grad_sync_get_info: info is NULL");
    const tutti__engine *engine = &sync->engine;
    *info = (tutti_grad_sync_info){
        .ranges = engine->range_count,
        .bytes = sync->gradients.bytes,
        .wait_seconds = engine->wait_seconds,
        .steps = sync->steps,
        .bytes_sent = engine->bytes_sent,
        .bytes_held = engine->bytes_held,
        .engine = engine->peers ? TUTTI_ENGINE_COPY : TUTTI_ENGINE_TRANSPORT,
    };
    return TUTTI_OK;
}

tutti_status tutti_grad_sync_get_timeline(tutti_grad_sync *sync, double *ready, double *begin,
                                          double *end, double *finish)
{
    static const char who[] = "grad_sync_get_timeline";
    TUTTI_REQUIRE(sync, "%s: sync is NULL", who);
    if (!sync->desc.timeline)
        return tutti__fail(TUTTI_ERR_STATE, "%s: desc.timeline was not set", who);
    if (sync->steps == 0)
        return tutti__fail(TUTTI_ERR_STATE, "%s: no step has been finished yet", who);
    TUTTI_TRY(tutti__comm_open(sync->comm, who));
    return tutti__timeline_read(sync->engine.times, ready, begin, end, finish);
}
