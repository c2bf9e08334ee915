/* The store that lays parameters out flat. */
#include "core/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/layer.h"
#include "core/text.h"

/* The store: adding */

tutti_params_desc tutti_params_desc_default(void)
{
    return (tutti_params_desc)TUTTI_PARAMS_DESC_INIT;
}

tutti_status tutti_params_create(tutti_context *ctx, const tutti_params_desc *desc,
                                 tutti_params **params)
{
    TUTTI_REQUIRE(ctx, "params_create: ctx is NULL");
    TUTTI_REQUIRE(params, "params_create: params is NULL");
    tutti_params_desc wanted;
    TUTTI_TRY(tutti__desc_read(&wanted, sizeof wanted, desc, "params_create"));
    if (!wanted.master_dtype) wanted.master_dtype = TUTTI_F32;
    TUTTI_REQUIRE(wanted.master_dtype == TUTTI_F32 || wanted.master_dtype == TUTTI_F64,
                  "params_create: master_dtype is %s, want f32 or f64",
                  tutti_dtype_name(wanted.master_dtype));
    TUTTI_REQUIRE(!wanted.gradient_memory.alloc == !wanted.gradient_memory.free,
                  "params_create: gradient_memory has only one of alloc and free");
    TUTTI_REQUIRE(!wanted.gradient_memory.hold == !wanted.gradient_memory.release,
                  "params_create: gradient_memory has only one of hold and release");
    TUTTI_REQUIRE(wanted.shards >= 0, "params_create: shards is %d, want >= 0", wanted.shards);
    TUTTI_REQUIRE(wanted.shard >= 0 && wanted.shard < (wanted.shards ? wanted.shards : 1),
                  "params_create: shard is %d, want 0 to %d", wanted.shard,
                  wanted.shards ? wanted.shards - 1 : 0);
    TUTTI_REQUIRE(wanted.shards || !wanted.range_bytes,
                  "params_create: range_bytes is %zu, want 0 for a store that is not sharded",
                  wanted.range_bytes);
    tutti_params *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "params_create: no memory");
    made->backend = ctx->backend;
    made->device = ctx->device;
    made->desc = wanted;
    if (wanted.gradient_memory.hold) wanted.gradient_memory.hold(wanted.gradient_memory.self);
    *params = made;
    return TUTTI_OK;
}

/* Makes calls of layers that outlive their store fail with a message, and their parameters as they
 * were before; the caller's own parameters may not exist any more. */
static void unbind(tutti_params *params)
{
    for (int i = 0; i < params->entry_count; i++) {
        tutti_param *param = params->entries[i].param;
        tutti_layer *layer = params->entries[i].layer;
        if (!layer) continue;
        const char *slash = strrchr(param->name, '/');
        if (slash) memmove(param->name, slash + 1, strlen(slash));
        if (params->built) param->value.data = param->master.data = param->grad.data = NULL;
        layer->store = NULL;
    }
}

static void let_go(tutti_params *p, bool caller)
{
    if (!tutti__let_go(&p->holders, caller)) return;
    const tutti__runtime *run = &p->backend->run;
    const tutti_allocator *memory = &p->desc.gradient_memory;
    if (p->master) run->free(p->device, p->master);
    if (p->working) run->free(p->device, p->working);
    if (p->grad) {
        if (memory->free)
            memory->free(memory->self, p->grad);
        else
            run->free(p->device, p->grad);
    }
    for (int i = 0; i < p->entry_count; i++)
        if (p->entries[i].layer) tutti__layer_release(p->entries[i].layer);
    if (memory->release) memory->release(memory->self);
    free(p->own);
    free(p->ranges);
    free(p->slots);
    free(p->entries);
    free(p);
}

void tutti__params_release(tutti_params *params)
{
    let_go(params, false);
}

void tutti_params_destroy(tutti_params **params)
{
    if (!params || !*params) return;
    tutti__stores_remove(*params);
    unbind(*params);
    let_go(*params, true);
    *params = NULL;
}

int tutti__params_entry_of(const tutti_params *params, const tutti_param *param)
{
    for (int i = 0; i < params->entry_count; i++)
        if (params->entries[i].param == param) return i;
    return -1;
}

/* The type of the values that are not their own masters; the masters' type if there are none
 * yet. */
static tutti_dtype working_dtype(const tutti_params *params)
{
    for (int i = 0; i < params->entry_count; i++)
        if (params->entries[i].param->value.dtype != params->desc.master_dtype)
            return params->entries[i].param->value.dtype;
    return params->desc.master_dtype;
}

tutti_status tutti__factors_check(const tutti_param *param, const char *place)
{
    TUTTI_REQUIRE(isfinite(param->weight_decay) && param->weight_decay >= 0,
                  "%sweight_decay is %g, want finite and >= 0", place, param->weight_decay);
    TUTTI_REQUIRE(isfinite(param->lr_scale) && param->lr_scale >= 0,
                  "%slr_scale is %g, want finite and >= 0", place, param->lr_scale);
    return TUTTI_OK;
}

static tutti_status check_new(const tutti_params *params, const tutti_param *param,
                              const char *name)
{
    tutti_dtype dtype = param->value.dtype, master = params->desc.master_dtype;
    TUTTI_REQUIRE(tutti__is_float(dtype), "params_add: %s: value is %s, want a float type", name,
                  tutti__dtype_text(dtype));
    TUTTI_REQUIRE((dtype == TUTTI_F64) == (master == TUTTI_F64),
                  "params_add: %s is %s, but the store's masters are %s: %s", name,
                  tutti_dtype_name(dtype), tutti_dtype_name(master),
                  "f64 parameters need f64 masters, all others f32");
    tutti_dtype working = working_dtype(params);
    TUTTI_REQUIRE(dtype == master || working == master || dtype == working,
                  "params_add: %s is %s, but the store has working values of %s already", name,
                  tutti_dtype_name(dtype), tutti_dtype_name(working));
    TUTTI_TRY(tutti__init_check(param, name, "params_add"));
    char place[TUTTI_NAME_MAX + 16];
    snprintf(place, sizeof place, "params_add: %s: ", name);
    TUTTI_TRY(tutti__factors_check(param, place));
    TUTTI_TRY(tutti__shape_check(&param->value, name, "params_add"));
    TUTTI_REQUIRE(tutti__params_entry_of(params, param) < 0,
                  "params_add: %s is in the store already", param->name);
    for (int i = 0; i < params->entry_count; i++) {
        const char *other = params->entries[i].param->name;
        TUTTI_REQUIRE(!tutti__paths_collide(name, other),
                      "params_add: the name %s is taken (%s is in the store)", name, other);
    }
    return TUTTI_OK;
}

static tutti_status check_addable(const tutti_params *params, const char *function)
{
    TUTTI_REQUIRE(params, "%s: params is NULL", function);
    if (params->built)
        return tutti__fail(TUTTI_ERR_STATE, "%s: the store is built already", function);
    return TUTTI_OK;
}

static tutti_status make_room(tutti_params *params, int more)
{
    if (params->entry_count + more <= params->entry_room) return TUTTI_OK;
    int room = 2 * (params->entry_count + more);
    tutti__params_entry *entries = realloc(params->entries, (size_t)room * sizeof *params->entries);
    if (!entries) return tutti__fail(TUTTI_ERR_MEMORY, "params_add: no memory");
    params->entries = entries;
    params->entry_room = room;
    return TUTTI_OK;
}

/* layer: NULL for a parameter of the caller's own */
static void append(tutti_params *params, tutti_layer *layer, tutti_param *param)
{
    params->entries[params->entry_count] =
        (tutti__params_entry){param, layer, params->entry_count, false, -1};
    params->entry_count++;
    if (!layer) return;
    tutti__hold(&layer->holders);
    layer->store = params;
    layer->stored_value[param - layer->params] = NULL;
}

tutti_status tutti_params_add(tutti_params *params, tutti_layer *layer, const char *prefix)
{
    TUTTI_TRY(check_addable(params, "params_add"));
    TUTTI_REQUIRE(layer, "params_add: layer is NULL");
    TUTTI_REQUIRE(prefix && prefix[0], "params_add: prefix is %s", prefix ? "empty" : "NULL");
    TUTTI_TRY(tutti__name_check(prefix, 1, "prefix", "params_add"));
    TUTTI_REQUIRE(layer->backend == params->backend && layer->device == params->device,
                  "params_add: %s: the layer is on %s device %d, the store on %s device %d", prefix,
                  layer->backend->name, layer->device, params->backend->name, params->device);
    if (layer->store && layer->store != params)
        return tutti__fail(TUTTI_ERR_STATE, "params_add: %s: the layer is in another store, as %s",
                           prefix, layer->params[0].name);
    TUTTI_TRY(make_room(params, layer->param_count));
    char names[TUTTI__LAYER_PARAMS_MAX][TUTTI_NAME_MAX];
    for (int i = 0; i < layer->param_count; i++) {
        int length = snprintf(names[i], TUTTI_NAME_MAX, "%s/%s", prefix, layer->params[i].name);
        TUTTI_REQUIRE(length < TUTTI_NAME_MAX, "params_add: %s/%s is longer than %d bytes", prefix,
                      layer->params[i].name, TUTTI_NAME_MAX - 1);
        TUTTI_TRY(check_new(params, &layer->params[i], names[i]));
    }
    for (int i = 0; i < layer->param_count; i++) {
        memcpy(layer->params[i].name, names[i], TUTTI_NAME_MAX);
        append(params, layer, &layer->params[i]);
    }
    return TUTTI_OK;
}

tutti_status tutti_params_add_param(tutti_params *params, tutti_param *param)
{
    TUTTI_TRY(check_addable(params, "params_add_param"));
    TUTTI_REQUIRE(param, "params_add_param: param is NULL");
    TUTTI_TRY(tutti__own_name_check(param, "params_add_param"));
    TUTTI_TRY(tutti__name_check(param->name, 0, "name", "params_add_param"));
    TUTTI_TRY(check_new(params, param, param->name));
    TUTTI_TRY(make_room(params, 1));
    append(params, NULL, param);
    return TUTTI_OK;
}

tutti_status tutti_params_tie(tutti_params *params, tutti_param *param, tutti_param *other)
{
    TUTTI_TRY(check_addable(params, "params_tie"));
    TUTTI_REQUIRE(param, "params_tie: param is NULL");
    TUTTI_REQUIRE(other, "params_tie: other is NULL");
    int from = tutti__params_entry_of(params, param), to = tutti__params_entry_of(params, other);
    TUTTI_REQUIRE(from >= 0, "params_tie: %s is not in the store", param->name);
    TUTTI_REQUIRE(to >= 0, "params_tie: %s is not in the store", other->name);
    char dims[2][TUTTI__DIMS_TEXT];
    TUTTI_REQUIRE(
        param->value.dtype == other->value.dtype && tutti__same_shape(&param->value, &other->value),
        "params_tie: %s is %s %s, %s is %s %s, want one shape and type", param->name,
        tutti_dtype_name(param->value.dtype), tutti__dims_text(&param->value, dims[0]), other->name,
        tutti_dtype_name(other->value.dtype), tutti__dims_text(&other->value, dims[1]));
    while (params->entries[to].tied_to != to) to = params->entries[to].tied_to;
    TUTTI_REQUIRE(from != to, "params_tie: %s and %s are tied already", param->name, other->name);
    TUTTI_REQUIRE(params->entries[from].tied_to == from, "params_tie: %s is tied already",
                  param->name);
    params->entries[from].tied_to = to;
    return TUTTI_OK;
}

tutti_status tutti_params_freeze(tutti_params *params, tutti_param *param)
{
    TUTTI_TRY(check_addable(params, "params_freeze"));
    TUTTI_REQUIRE(param, "params_freeze: param is NULL");
    const int entry = tutti__params_entry_of(params, param);
    TUTTI_REQUIRE(entry >= 0, "params_freeze: %s is not in the store", param->name);
    params->entries[entry].frozen = true;
    return TUTTI_OK;
}

/* The store: building */

static int root_of(const tutti_params *params, int entry)
{
    while (params->entries[entry].tied_to != entry) entry = params->entries[entry].tied_to;
    return entry;
}

/* A slot for all entries that share one with this. */
static tutti_status add_slot(tutti_params *params, int root, int users)
{
    tutti__slot *slot = &params->slots[params->slot_count];
    slot->param = params->entries[root].param;
    slot->count = tutti_tensor_count(&slot->param->value);
    slot->offset = params->count;
    slot->users = users;
    if (slot->count > INT64_MAX / 16 - TUTTI_PARAM_ALIGN - params->count)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "params_build: the parameters have more than 2^59 elements in all");
    params->count += (slot->count + TUTTI_PARAM_ALIGN - 1) / TUTTI_PARAM_ALIGN * TUTTI_PARAM_ALIGN;
    for (int j = 0; j < params->entry_count; j++)
        if (root_of(params, j) == root) params->entries[j].slot = params->slot_count;
    params->slot_count++;
    return TUTTI_OK;
}

/* The three parts of the flat buffers, in this order. */
enum { ROUNDED, OWN_MASTERS, FROZEN, PARTS };

/* Which part the slot of an entry belongs to; *users: how many entries share it; *last: none of
 * them comes before this entry. */
static int part_of(const tutti_params *params, int entry, int *users, bool *last)
{
    const int root = root_of(params, entry);
    bool frozen = false;
    *users = 0;
    *last = true;
    for (int j = 0; j < params->entry_count; j++)
        if (root_of(params, j) == root) {
            ++*users;
            *last = *last && j >= entry;
            frozen = frozen || params->entries[j].frozen;
        }
    const bool rounded = params->entries[root].param->value.dtype != params->desc.master_dtype;
    return frozen ? FROZEN : rounded ? ROUNDED : OWN_MASTERS;
}

/* They begin with a run, so that the ranges of a sharded store have values of one type. */
static void begin_own_masters(tutti_params *params)
{
    const int64_t runs = (params->count + TUTTI__NORM_RUN - 1) / TUTTI__NORM_RUN;
    params->count = params->rounded = runs * TUTTI__NORM_RUN;
}

/* Slots in the order in which backward completes them: backward runs through the entries from last
 * to first, and a slot is complete when the first of its entries is done.  Those whose values are
 * their own masters follow the others, then the frozen ones. */
static tutti_status lay_out(tutti_params *params)
{
    params->slots = calloc((size_t)params->entry_count + 1, sizeof *params->slots);
    if (!params->slots) return tutti__fail(TUTTI_ERR_MEMORY, "params_build: no memory");
    params->slot_count = 0;
    params->count = 0;
    for (int i = 0; i < params->entry_count; i++) params->entries[i].slot = -1;
    for (int part = 0; part < PARTS; part++) {
        const int64_t before = params->count;
        for (int i = params->entry_count - 1; i >= 0; i--) {
            int users;
            bool last;
            if (part_of(params, i, &users, &last) != part || !last) continue;
            if (part == OWN_MASTERS && params->count == before) begin_own_masters(params);
            TUTTI_TRY(add_slot(params, root_of(params, i), users));
        }
        if (part == ROUNDED) params->rounded = params->count;
        if (part == OWN_MASTERS)
            params->trained_slots = params->slot_count, params->trained = params->count;
    }
    return tutti__shard_lay_out(params);
}

static tutti_status allocate(tutti_params *params, tutti_context *ctx)
{
    const tutti__runtime *run = &params->backend->run;
    params->working_dtype = working_dtype(params);
    bool has_working = params->working_dtype != params->desc.master_dtype;
    /* an empty store has buffers too, so that they are never NULL */
    size_t count = (size_t)(params->count > 0 ? params->count : TUTTI_PARAM_ALIGN);
    size_t trained = (size_t)(params->trained > 0 ? params->trained : TUTTI_PARAM_ALIGN);
    const int64_t masters = tutti__masters_count(params);
    size_t bytes = (size_t)(masters > 0 ? masters : TUTTI_PARAM_ALIGN) *
                   tutti_dtype_size(params->desc.master_dtype);
    size_t grad_bytes = trained * tutti_dtype_size(params->desc.master_dtype);
    size_t working_bytes = count * tutti_dtype_size(params->working_dtype);
    TUTTI_TRY(run->alloc(params->device, bytes, &params->master));
    if (has_working) TUTTI_TRY(run->alloc(params->device, working_bytes, &params->working));
    const tutti_allocator *memory = &params->desc.gradient_memory;
    /* by itself in the smallest piece of a GPU's memory that other processes can open */
    const size_t unit = params->backend->kind == TUTTI_BACKEND_HOST ? 1 : (size_t)2 << 20;
    TUTTI_TRY(memory->alloc ? memory->alloc(memory->self, grad_bytes, &params->grad)
                            : run->alloc(params->device, (grad_bytes + unit - 1) / unit * unit,
                                         &params->grad));
    TUTTI_TRY(run->zero(params->device, ctx->stream, params->master, bytes));
    TUTTI_TRY(run->zero(params->device, ctx->stream, params->grad, grad_bytes));
    if (has_working)
        TUTTI_TRY(run->zero(params->device, ctx->stream, params->working, working_bytes));
    tutti__shard_bind(params);
    return tutti_context_synchronize(ctx);
}

static void *at(void *data, tutti_dtype dtype, int64_t offset)
{
    return (char *)data + (size_t)offset * tutti_dtype_size(dtype);
}

tutti_status tutti_params_build(tutti_params *params, tutti_context *ctx)
{
    TUTTI_TRY(check_addable(params, "params_build"));
    TUTTI_REQUIRE(ctx, "params_build: ctx is NULL");
    TUTTI_REQUIRE(ctx->backend == params->backend && ctx->device == params->device,
                  "params_build: the context is on another device than the store");
    TUTTI_TRY(
        tutti_context_synchronize(ctx)); /* fails during capture, before anything is enqueued */
    tutti_status status = lay_out(params);
    if (status == TUTTI_OK) status = allocate(params, ctx);
    if (status != TUTTI_OK) { /* undo everything */
        const tutti_allocator *memory = &params->desc.gradient_memory;
        if (params->grad) {
            if (memory->free)
                memory->free(memory->self, params->grad);
            else
                params->backend->run.free(params->device, params->grad);
        }
        if (params->master) params->backend->run.free(params->device, params->master);
        if (params->working) params->backend->run.free(params->device, params->working);
        params->master = params->grad = params->working = NULL;
        free(params->slots);
        free(params->own);
        free(params->ranges);
        params->slots = NULL;
        params->own = NULL;
        params->ranges = NULL;
        params->own_count = params->range_count = 0;
        params->kept = params->kept_masters = 0;
        params->parted = false;
        return status;
    }
    params->built = true;
    for (int i = 0; i < params->entry_count; i++) {
        tutti_param *param = params->entries[i].param;
        const int slot = params->entries[i].slot;
        int64_t offset = params->slots[slot].offset;
        tutti_dtype dtype = param->value.dtype, master = params->desc.master_dtype;
        tutti_tensor shape = param->value;
        void *own = tutti__masters_at(params, offset);
        void *value = dtype == master ? own : at(params->working, dtype, offset);
        param->value = tutti_tensor_make(value, dtype, shape.ndim, shape.dims);
        param->master = tutti_tensor_make(own, master, shape.ndim, shape.dims);
        param->grad = slot < params->trained_slots
                          ? tutti_tensor_make(at(params->grad, master, offset), master, shape.ndim,
                                              shape.dims)
                          : (tutti_tensor){.data = NULL};
        tutti_layer *layer = params->entries[i].layer;
        if (!layer) continue;
        layer->stored_value[param - layer->params] = param->value.data;
        layer->stored_grad[param - layer->params] = param->grad.data;
    }
    tutti__stores_add(params);
    return TUTTI_OK;
}

tutti_status tutti__params_ready(const tutti_params *params, const tutti_context *ctx,
                                 const char *function)
{
    TUTTI_REQUIRE(params, "%s: params is NULL", function);
    TUTTI_REQUIRE(ctx, "%s: ctx is NULL", function);
    TUTTI_TRY(tutti__context_open(ctx, function));
    TUTTI_REQUIRE(ctx->backend == params->backend && ctx->device == params->device,
                  "%s: the context is on %s device %d, the store on %s device %d", function,
                  ctx->backend->name, ctx->device, params->backend->name, params->device);
    if (params->holders.closed)
        return tutti__fail(TUTTI_ERR_STATE, "%s: the store has been destroyed", function);
    if (!params->built)
        return tutti__fail(TUTTI_ERR_STATE, "%s: the store is not built yet", function);
    return TUTTI_OK;
}

tutti_status tutti__state_check(const tutti_params *params, const tutti_state_tensor *state,
                                const char *function)
{
    const tutti_tensor *tensor = &state->tensor;
    TUTTI_REQUIRE(!state->like_store || (tensor->ndim == 1 && tensor->dims[0] == params->kept),
                  "%s: %s: like_store is set, but tensor has %lld elements in %d dimensions; the "
                  "store's %s have %lld in 1",
                  function, state->name, (long long)tutti_tensor_count(tensor), tensor->ndim,
                  params->desc.shards ? "slices" : "gradients", (long long)params->kept);
    return TUTTI_OK;
}

/* The store: contents */

/* Copies this rank's parts of all masters, and all values, which need no other rank; they are
 * rounded behind the masters. */
static tutti_status put_parts(const tutti_params *params, tutti_context *ctx, void *host)
{
    const tutti_dtype dtype = params->desc.master_dtype, working = params->working_dtype;
    const int64_t others = params->count - params->rounded;
    for (int i = 0; i < params->own_count && params->own[i].span.first < params->rounded; i++) {
        const tutti__slice *own = &params->own[i];
        TUTTI_TRY(tutti_copy(ctx, own->master, at(host, dtype, own->span.first),
                             (size_t)own->span.count * tutti_dtype_size(dtype)));
    }
    TUTTI_TRY(tutti_copy(ctx, tutti__masters_at(params, params->rounded),
                         at(host, dtype, params->rounded),
                         (size_t)others * tutti_dtype_size(dtype)));
    void *rounded = at(host, dtype, params->count);
    TUTTI_TRY(tutti_convert(rounded, working, host, dtype, params->count));
    return tutti_copy(ctx, params->working, rounded,
                      (size_t)params->count * tutti_dtype_size(working));
}

tutti_status tutti_params_init(tutti_params *params, tutti_context *ctx, uint64_t seed)
{
    TUTTI_TRY(tutti__params_ready(params, ctx, "params_init"));
    TUTTI_TRY(tutti__values_await(params, ctx, TUTTI__VALUES_ALL));
    TUTTI_TRY(
        tutti_context_synchronize(ctx)); /* fails during capture, before anything is enqueued */
    tutti_dtype dtype = params->desc.master_dtype;
    size_t size = tutti_dtype_size(dtype);
    void *host = calloc((size_t)params->count * (params->parted ? 2 : 1) + 1, size);
    if (!host) return tutti__fail(TUTTI_ERR_MEMORY, "params_init: no memory");
    for (int s = 0; s < params->slot_count; s++) {
        const tutti__slot *slot = &params->slots[s];
        tutti__param_fill(slot->param, slot->param->name, seed, dtype,
                          at(host, dtype, slot->offset));
    }
    tutti_status status = params->parted
                              ? put_parts(params, ctx, host)
                              : tutti_copy(ctx, params->master, host, (size_t)params->count * size);
    if (status == TUTTI_OK && !params->parted) status = tutti_params_refresh(params, ctx);
    if (status == TUTTI_OK) status = tutti_context_synchronize(ctx);
    free(host);
    return status;
}

tutti_status tutti_params_refresh(tutti_params *params, tutti_context *ctx)
{
    TUTTI_TRY(tutti__params_ready(params, ctx, "params_refresh"));
    if (!params->working) return TUTTI_OK;
    if (params->parted) return tutti__shard_refresh(params, ctx);
    /* one pass over all: the working copy of a value of the masters' type is never read */
    return params->backend->op.convert(ctx, params->working, params->working_dtype, params->master,
                                       params->desc.master_dtype, params->count);
}

tutti_status tutti_params_zero_grad(tutti_params *params, tutti_context *ctx)
{
    TUTTI_TRY(tutti__params_ready(params, ctx, "params_zero_grad"));
    return tutti_zero(ctx, params->grad,
                      (size_t)params->trained * tutti_dtype_size(params->desc.master_dtype));
}

tutti_status tutti_params_settle(tutti_params *params, tutti_context *ctx)
{
    TUTTI_TRY(tutti__params_ready(params, ctx, "params_settle"));
    return tutti__values_await(params, ctx, TUTTI__VALUES_ALL);
}

int tutti_params_count(const tutti_params *params)
{
    return params && params->built ? params->slot_count : 0;
}

const tutti_param *tutti_params_get(const tutti_params *params, int index)
{
    if (index < 0 || index >= tutti_params_count(params)) return NULL;
    return params->slots[index].param;
}

tutti_param *tutti_params_find(const tutti_params *params, const char *name)
{
    for (int i = 0; params && name && i < params->entry_count; i++)
        if (strcmp(params->entries[i].param->name, name) == 0) return params->entries[i].param;
    return NULL;
}

int tutti_params_slice_count(const tutti_params *params)
{
    return params && params->built ? params->own_count : 0;
}

tutti_status tutti_params_slice(const tutti_params *params, int index, int64_t *first,
                                int64_t *count)
{
    TUTTI_REQUIRE(params, "params_slice: params is NULL");
    TUTTI_REQUIRE(first && count, "params_slice: %s is NULL", first ? "count" : "first");
    if (!params->built) return tutti__fail(TUTTI_ERR_STATE, "params_slice: the store is not built");
    TUTTI_REQUIRE(index >= 0 && index < params->own_count,
                  "params_slice: index is %d, want 0 to %d", index, params->own_count - 1);
    *first = params->own[index].span.first;
    *count = params->own[index].span.count;
    return TUTTI_OK;
}

tutti_status tutti_params_flat(const tutti_params *params, tutti_params_buffer buffer,
                               tutti_tensor *flat)
{
    TUTTI_REQUIRE(params, "params_flat: params is NULL");
    TUTTI_REQUIRE(flat, "params_flat: flat is NULL");
    if (!params->built)
        return tutti__fail(TUTTI_ERR_STATE, "params_flat: the store is not built yet");
    switch (buffer) {
    case TUTTI_PARAMS_MASTER:
        *flat = tutti_tensor_1d(params->master, params->desc.master_dtype,
                                tutti__masters_count(params));
        return TUTTI_OK;
    case TUTTI_PARAMS_GRAD:
        *flat = tutti_tensor_1d(params->grad, params->desc.master_dtype, params->trained);
        return TUTTI_OK;
    case TUTTI_PARAMS_WORKING:
        *flat = tutti_tensor_1d(params->working, params->working_dtype, params->count);
        return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_ARG, "params_flat: buffer is %d, want a tutti_params_buffer",
                       (int)buffer);
}
