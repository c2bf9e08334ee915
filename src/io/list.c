/* The list of a checkpoint's contents. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/agree.h"
#include "comm/life.h"
#include "files/structure.h"
#include "io/checkpoint.h"

const tutti__format tutti__checkpoint_format = {"Tutti checkpoint", "tutti-checkpoint", 1, 0, true};
const tutti__reporter tutti__library = {tutti__fail, tutti__log};

tutti_status tutti_checkpoint_create(tutti_context *ctx, tutti_comm *comm,
                                     tutti_checkpoint **checkpoint)
{
    TUTTI_TRY(tutti__comm_context_check(comm, ctx, "checkpoint_create"));
    TUTTI_REQUIRE(checkpoint, "checkpoint_create: checkpoint is NULL");
    tutti_checkpoint *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "checkpoint_create: no memory");
    made->comm = comm;
    made->ctx = ctx;
    tutti__hold(&comm->holders);
    tutti__hold(&ctx->holders);
    made->lock.fd = -1;
    *checkpoint = made;
    return TUTTI_OK;
}

/* Removes the items after the first `count`. */
static void cut_list(tutti_checkpoint *checkpoint, int count)
{
    while (checkpoint->count > count) free(checkpoint->items[--checkpoint->count].pieces);
}

void tutti_checkpoint_destroy(tutti_checkpoint **checkpoint)
{
    if (!checkpoint || !*checkpoint) return;
    tutti_checkpoint *c = *checkpoint;
    tutti__lock_release(&c->lock);
    cut_list(c, 0);
    for (int i = 0; i < c->store_count; i++) tutti__params_release(c->stores[i]);
    for (int i = 0; i < c->bound_count; i++)
        if (c->bound[i].made) c->ctx->backend->run.free(c->ctx->device, c->bound[i].master.data);
    tutti__comm_release(c->comm);
    tutti__context_release(c->ctx);
    free(c->items);
    free(c->stores);
    free(c->bound);
    free(c);
    *checkpoint = NULL;
}

tutti_status tutti__list_open(const tutti_checkpoint *checkpoint, const char *who)
{
    TUTTI_TRY(tutti__context_open(checkpoint->ctx, who));
    for (int i = 0; i < checkpoint->store_count; i++) {
        TUTTI_TRY(tutti__params_ready(checkpoint->stores[i], checkpoint->ctx, who));
        TUTTI_TRY(tutti__values_await(checkpoint->stores[i], checkpoint->ctx, TUTTI__VALUES_ALL));
    }
    return TUTTI_OK;
}

size_t tutti__item_bytes(const tutti__item *item)
{
    switch (item->kind) {
    case TUTTI__ITEM_TENSOR:
        return (size_t)tutti_tensor_count(&item->tensor) * tutti_dtype_size(item->tensor.dtype);
    case TUTTI__ITEM_INT:
        return sizeof(int64_t);
    case TUTTI__ITEM_REAL:
        return sizeof(double);
    case TUTTI__ITEM_TEXT: {
        size_t length = strnlen(item->data, item->size);
        return length > 0 ? length : 1;
    }
    case TUTTI__ITEM_TABLE:
        return (size_t)(*item->rows * item->cols) * sizeof(double);
    }
    return 0;
}

size_t tutti__item_kept(const tutti__item *item, int rank)
{
    if (!item->pieces) return tutti__item_bytes(item);
    int64_t count = 0;
    for (int i = 0; i < item->piece_count; i++)
        if (item->pieces[i].rank == rank) count += item->pieces[i].end - item->pieces[i].begin;
    return (size_t)count * tutti_dtype_size(item->tensor.dtype);
}

/* Comparing ranks */

uint64_t tutti__item_hash(const tutti__item *item, bool with_value)
{
    uint64_t hash = tutti__hash(TUTTI__HASH_START, item->name, strlen(item->name) + 1);
    const tutti_tensor *tensor = &item->tensor;
    const int64_t numbers[] = {item->kind,          tensor->dtype, tensor->ndim,
                               (int64_t)item->size, item->cols,    item->capacity};
    hash = tutti__hash(hash, numbers, sizeof numbers);
    hash = tutti__hash(hash, tensor->dims, (size_t)tensor->ndim * sizeof *tensor->dims);
    for (int i = 0; i < item->piece_count; i++) {
        const tutti__shard_piece *piece = &item->pieces[i];
        const int64_t piece_numbers[] = {piece->begin, piece->end, piece->rank};
        hash = tutti__hash(hash, piece_numbers, sizeof piece_numbers);
    }
    if (with_value && item->kind != TUTTI__ITEM_TENSOR)
        hash = tutti__hash(hash, item->data, tutti__item_bytes(item));
    return hash;
}

tutti_status tutti__same_list(const tutti_checkpoint *checkpoint, const char *who,
                              const uint64_t *hashes, const char *first)
{
    int differ, rank;
    char ranks[160];
    uint64_t count = (uint64_t)checkpoint->count;
    TUTTI_TRY(
        tutti__comm_compare(checkpoint->comm, &count, 1, who, &differ, &rank, ranks, sizeof ranks));
    if (differ >= 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: the list on %s is not as long as rank 0's", who,
                           ranks);
    TUTTI_TRY(tutti__comm_compare(checkpoint->comm, hashes, checkpoint->count + 1, who, &differ,
                                  &rank, ranks, sizeof ranks));
    if (differ < 0) return TUTTI_OK;
    const char *name = differ == 0 ? first : checkpoint->items[differ - 1].name;
    const uint64_t named = tutti__hash(0, name, strlen(name));
    const int place = differ;
    char others[sizeof ranks];
    TUTTI_TRY(tutti__comm_compare(checkpoint->comm, &named, 1, who, &differ, &rank, others,
                                  sizeof others));
    if (differ >= 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: entry %d of the list is '%s' here, and has another name on %s than "
                           "on rank 0; want the same names in the same order on all ranks",
                           who, place, name, others);
    return tutti__fail(TUTTI_ERR_ARG, "%s: %s on %s differs from rank 0's", who, name, ranks);
}

/* Adding */

_Static_assert(TUTTI__NAME_PARTS_MAX + 2 <= TUTTI__FILE_DEPTH_MAX,
               "state of a store's parameter has a valid path in a file");

static tutti_status add(tutti_checkpoint *checkpoint, const char *who, const tutti__item *item)
{
    int parts = tutti__path_parts(item->name);
    TUTTI_REQUIRE(
        parts > 0,
        "%s: name is '%s', want a path of letters, digits and ._- in parts separated by /", who,
        item->name);
    TUTTI_REQUIRE(parts <= TUTTI__FILE_DEPTH_MAX, "%s: the name %s has %d parts, want at most %d",
                  who, item->name, parts, TUTTI__FILE_DEPTH_MAX);
    for (int i = 0; i < checkpoint->count; i++)
        TUTTI_REQUIRE(!tutti__paths_collide(item->name, checkpoint->items[i].name),
                      "%s: the name %s is taken (%s is in the list)", who, item->name,
                      checkpoint->items[i].name);
    if (checkpoint->count == checkpoint->room) {
        int room = 2 * checkpoint->room + 32;
        tutti__item *items = realloc(checkpoint->items, (size_t)room * sizeof *items);
        if (!items) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
        checkpoint->items = items;
        checkpoint->room = room;
    }
    checkpoint->items[checkpoint->count++] = *item;
    return TUTTI_OK;
}

static tutti_status set_name(tutti__item *item, const char *who, const char *first,
                             const char *second, const char *third)
{
    int length = snprintf(item->name, sizeof item->name, "%s%s%s%s%s", first, *second ? "/" : "",
                          second, *third ? "/" : "", third);
    TUTTI_REQUIRE(length < TUTTI__ITEM_NAME_MAX, "%s: the name %s... is longer than %d bytes", who,
                  item->name, TUTTI__ITEM_NAME_MAX - 1);
    return TUTTI_OK;
}

static tutti_status add_store(tutti_checkpoint *checkpoint, tutti_params *params)
{
    tutti_params **stores =
        realloc(checkpoint->stores, (size_t)(checkpoint->store_count + 1) * sizeof *stores);
    if (!stores) return tutti__fail(TUTTI_ERR_MEMORY, "checkpoint_add_params: no memory");
    checkpoint->stores = stores;
    stores[checkpoint->store_count++] = params;
    tutti__hold(&params->holders);
    return TUTTI_OK;
}

/* A sharded store's ranks are the checkpoint's. */
static tutti_status check_shards(const tutti_checkpoint *checkpoint, const tutti_params *params,
                                 const char *who)
{
    const tutti_params_desc *desc = &params->desc;
    const tutti_comm *comm = checkpoint->comm;
    TUTTI_REQUIRE(desc->shards == 0 || desc->shards == comm->world_size,
                  "%s: the store is one of %d shards, the communicator has %d ranks", who,
                  desc->shards, comm->world_size);
    TUTTI_REQUIRE(desc->shards == 0 || desc->shard == comm->rank,
                  "%s: the store is shard %d, the communicator's rank is %d", who, desc->shard,
                  comm->rank);
    return TUTTI_OK;
}

/* Adds a slot's tensor: what this rank keeps of it is among `kept`. */
static tutti_status add_slot(tutti_checkpoint *checkpoint, const char *who,
                             const tutti_params *params, const tutti__slot *slot, void *kept,
                             tutti__item *item)
{
    TUTTI_TRY(tutti__pieces_make(params, slot, kept, item));
    const tutti_status status = add(checkpoint, who, item);
    if (status != TUTTI_OK) free(item->pieces);
    return status;
}

tutti_status tutti_checkpoint_add_params(tutti_checkpoint *checkpoint, tutti_params *params)
{
    static const char who[] = "checkpoint_add_params";
    TUTTI_REQUIRE(checkpoint, "%s: checkpoint is NULL", who);
    TUTTI_TRY(tutti__params_ready(params, checkpoint->ctx, who));
    TUTTI_TRY(check_shards(checkpoint, params, who));
    int before = checkpoint->count;
    tutti_status status = TUTTI_OK;
    for (int i = 0; status == TUTTI_OK && i < params->slot_count; i++) {
        const tutti__slot *slot = &params->slots[i];
        const bool parted = params->parted && slot->offset < params->rounded;
        tutti__item item = {.kind = TUTTI__ITEM_TENSOR, .tensor = slot->param->master};
        status = set_name(&item, who, "model", slot->param->name, "");
        if (status == TUTTI_OK)
            status = parted ? add_slot(checkpoint, who, params, slot, params->master, &item)
                            : add(checkpoint, who, &item);
    }
    if (status == TUTTI_OK) status = add_store(checkpoint, params);
    if (status != TUTTI_OK) cut_list(checkpoint, before);
    return status;
}

/* The caller's parameters */

static tutti_status convert(const tutti_checkpoint *checkpoint, const tutti_tensor *to,
                            const tutti_tensor *from)
{
    return checkpoint->ctx->backend->op.convert(checkpoint->ctx, to->data, to->dtype, from->data,
                                                from->dtype, tutti_tensor_count(from));
}

tutti_status tutti__list_widen(const tutti_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->bound_count; i++) {
        const tutti__bound *bound = &checkpoint->bound[i];
        if (bound->made) TUTTI_TRY(convert(checkpoint, &bound->master, &bound->value));
    }
    return TUTTI_OK;
}

tutti_status tutti__list_refresh(const tutti_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->store_count; i++)
        TUTTI_TRY(tutti_params_refresh(checkpoint->stores[i], checkpoint->ctx));
    for (int i = 0; i < checkpoint->bound_count; i++)
        TUTTI_TRY(convert(checkpoint, &checkpoint->bound[i].value, &checkpoint->bound[i].master));
    return tutti_context_synchronize(checkpoint->ctx);
}

/* Adds a parameter whose value is f16 or bf16; *master gets an f32 tensor. */
static tutti_status add_bound(tutti_checkpoint *checkpoint, const char *who,
                              const tutti_tensor *value, tutti_tensor *master)
{
    tutti__bound *grown =
        realloc(checkpoint->bound, (size_t)(checkpoint->bound_count + 1) * sizeof *grown);
    if (!grown) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    checkpoint->bound = grown;
    bool made = master->data == value->data;
    if (made) {
        *master = tutti_tensor_make(NULL, TUTTI_F32, value->ndim, value->dims);
        size_t bytes = (size_t)tutti_tensor_count(master) * sizeof(float);
        const tutti_context *ctx = checkpoint->ctx;
        TUTTI_TRY(ctx->backend->run.alloc(ctx->device, bytes, &master->data));
    }
    grown[checkpoint->bound_count++] = (tutti__bound){*value, *master, made};
    return TUTTI_OK;
}

tutti_status tutti_checkpoint_add_param(tutti_checkpoint *checkpoint, const char *name,
                                        const tutti_param *param)
{
    static const char who[] = "checkpoint_add_param";
    TUTTI_REQUIRE(checkpoint, "%s: checkpoint is NULL", who);
    TUTTI_TRY(tutti__param_check(param, &name, who));
    TUTTI_TRY(tutti__context_open(checkpoint->ctx, who));
    const tutti_tensor *value = &param->value;
    tutti__item item = {.kind = TUTTI__ITEM_TENSOR, .tensor = *value};
    if (param->master.data != value->data) item.tensor = param->master;
    TUTTI_TRY(set_name(&item, who, "model", name, ""));
    TUTTI_TRY(add(checkpoint, who, &item));
    if (value->dtype == TUTTI_F32 || value->dtype == TUTTI_F64) return TUTTI_OK;
    tutti_tensor *master = &checkpoint->items[checkpoint->count - 1].tensor;
    tutti_status status = add_bound(checkpoint, who, value, master);
    if (status != TUTTI_OK) checkpoint->count--;
    return status;
}

static tutti_status check_state(const tutti_tensor *tensor, const char *who, const char *name)
{
    TUTTI_REQUIRE(tensor->ndim >= 1 && tensor->ndim <= TUTTI_MAX_DIMS,
                  "%s: %s: tensor.ndim is %d, want 1 to %d", who, name, tensor->ndim,
                  TUTTI_MAX_DIMS);
    size_t size = tutti_dtype_size(tensor->dtype);
    TUTTI_REQUIRE(size > 0, "%s: %s: tensor.dtype is %d, want a tutti_dtype", who, name,
                  (int)tensor->dtype);
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) {
        int64_t dim = tensor->dims[i];
        TUTTI_REQUIRE(dim >= 0 && (dim == 0 || count <= INT64_MAX / 16 / dim),
                      "%s: %s: tensor.dims[%d] is %lld, want >= 0 and a product below 2^59", who,
                      name, i, (long long)dim);
        count *= dim;
    }
    int64_t stride = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        TUTTI_REQUIRE(tensor->dims[i] == 1 || tensor->strides[i] == stride,
                      "%s: %s: tensor is not contiguous", who, name);
        stride *= tensor->dims[i];
    }
    return TUTTI_OK;
}

tutti_status tutti_checkpoint_add_state(tutti_checkpoint *checkpoint, tutti_params *params,
                                        const tutti_state_tensor *state)
{
    static const char who[] = "checkpoint_add_state";
    TUTTI_REQUIRE(checkpoint, "%s: checkpoint is NULL", who);
    TUTTI_REQUIRE(state, "%s: state is NULL", who);
    const char *name = state->name;
    const tutti_tensor *tensor = &state->tensor;
    TUTTI_REQUIRE(name && name[0], "%s: state.name is %s", who, name ? "empty" : "NULL");
    TUTTI_TRY(check_state(tensor, who, name));
    TUTTI_REQUIRE(tensor->data || tutti_tensor_count(tensor) == 0, "%s: %s: tensor.data is NULL",
                  who, name);
    if (state->like_store) TUTTI_TRY(tutti__params_ready(params, checkpoint->ctx, who));
    TUTTI_TRY(tutti__state_check(params, state, who));
    if (state->like_store) TUTTI_TRY(check_shards(checkpoint, params, who));
    int before = checkpoint->count;
    tutti__item item = {.kind = TUTTI__ITEM_TENSOR, .tensor = *tensor};
    if (!state->like_store) {
        TUTTI_REQUIRE(tutti_tensor_count(tensor) > 0, "%s: %s: tensor has no elements", who, name);
        TUTTI_TRY(set_name(&item, who, "optimizer", name, ""));
        return add(checkpoint, who, &item);
    }
    tutti_status status = TUTTI_OK;
    for (int i = 0; status == TUTTI_OK && i < params->trained_slots; i++) {
        const tutti__slot *slot = &params->slots[i];
        const tutti_tensor *shape = &slot->param->value;
        item.tensor = tutti_tensor_make(NULL, tensor->dtype, shape->ndim, shape->dims);
        status = set_name(&item, who, "optimizer", slot->param->name, name);
        if (status == TUTTI_OK)
            status = add_slot(checkpoint, who, params, slot, tensor->data, &item);
    }
    if (status != TUTTI_OK) cut_list(checkpoint, before);
    return status;
}

static tutti_status add_value(tutti_checkpoint *checkpoint, const char *who, const char *name,
                              tutti__item item)
{
    TUTTI_REQUIRE(checkpoint, "%s: checkpoint is NULL", who);
    TUTTI_REQUIRE(name, "%s: name is NULL", who);
    TUTTI_REQUIRE(item.data, "%s: %s: %s is NULL", who, name,
                  item.kind == TUTTI__ITEM_TEXT    ? "text"
                  : item.kind == TUTTI__ITEM_TABLE ? "values"
                                                   : "value");
    TUTTI_TRY(set_name(&item, who, name, "", ""));
    return add(checkpoint, who, &item);
}

tutti_status tutti_checkpoint_add_int(tutti_checkpoint *checkpoint, const char *name,
                                      int64_t *value)
{
    return add_value(checkpoint, "checkpoint_add_int", name,
                     (tutti__item){.kind = TUTTI__ITEM_INT, .data = value});
}

tutti_status tutti_checkpoint_add_real(tutti_checkpoint *checkpoint, const char *name,
                                       double *value)
{
    return add_value(checkpoint, "checkpoint_add_real", name,
                     (tutti__item){.kind = TUTTI__ITEM_REAL, .data = value});
}

tutti_status tutti_checkpoint_add_text(tutti_checkpoint *checkpoint, const char *name, char *text,
                                       size_t size)
{
    TUTTI_REQUIRE(size > 0 && size <= TUTTI__BLOCK_BYTES,
                  "checkpoint_add_text: size is %zu, want 1 to %lld", size,
                  (long long)TUTTI__BLOCK_BYTES);
    return add_value(checkpoint, "checkpoint_add_text", name,
                     (tutti__item){.kind = TUTTI__ITEM_TEXT, .data = text, .size = size});
}

tutti_status tutti_checkpoint_add_table(tutti_checkpoint *checkpoint, const char *name,
                                        double *values, int64_t cols, int64_t capacity,
                                        int64_t *rows)
{
    static const char who[] = "checkpoint_add_table";
    TUTTI_REQUIRE(cols > 0, "%s: cols is %lld, want > 0", who, (long long)cols);
    TUTTI_REQUIRE(capacity > 0 && capacity <= INT64_MAX / 16 / cols,
                  "%s: capacity is %lld, want > 0 and below 2^59 numbers", who,
                  (long long)capacity);
    TUTTI_REQUIRE(rows, "%s: rows is NULL", who);
    return add_value(checkpoint, who, name,
                     (tutti__item){.kind = TUTTI__ITEM_TABLE,
                                   .data = values,
                                   .cols = cols,
                                   .capacity = capacity,
                                   .rows = rows});
}
