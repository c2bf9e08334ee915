/* Loading.  Rank 0 reads the file's structure (structure.h), which must match the list, then the
 * bytes, block by block, verifies them and sends them to all ranks, which keep their pieces of
 * tensors in pieces.  Nothing that is read is converted: values of another type are made from their
 * masters. */
#include "io/checkpoint.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/control.h"
#include "files/structure.h"

static const char who[] = "checkpoint_load";

typedef struct load {
    const tutti_checkpoint *checkpoint;
    unsigned flags;
    tutti__file file;          /* rank 0: open */
    const tutti__node **nodes; /* rank 0: one per item; NULL: not loaded */
    int64_t *offsets;
    int64_t *value_bytes; /* one per item; 0 for tensors */
    char *values;         /* of all items, in order */
    int64_t values_bytes;
} load;

#define DATA_REQUIRE(l, condition, ...)                                                     \
    do {                                                                                    \
        if (!(condition)) return tutti__file_fail(&(l)->file, TUTTI_ERR_DATA, __VA_ARGS__); \
    } while (0)

static bool wanted(const load *l, const tutti__item *item)
{
    return item->kind != TUTTI__ITEM_TENSOR || !(l->flags & TUTTI_CHECKPOINT_VALUES);
}

/* Keeps tensors out of the forked process that reads the structure: with them the fork would take
 * 0.2 s per GB, and the first write to their pages afterwards another 0.7 s (measured). */
static void advise(void *data, size_t bytes, int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data;
    uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
    if (data && end > first + (1 << 20)) madvise((void *)first, end - first, advice);
}

static void advise_tensors(const tutti_checkpoint *checkpoint, int advice)
{
    if (checkpoint->ctx->backend->kind != TUTTI_BACKEND_HOST) return;
    for (int i = 0; i < checkpoint->count; i++) {
        const tutti__item *item = &checkpoint->items[i];
        if (item->kind == TUTTI__ITEM_TENSOR)
            advise(item->tensor.data, tutti__item_kept(item, checkpoint->comm->rank), advice);
    }
    for (int i = 0; i < checkpoint->store_count; i++) {
        const tutti_params *params = checkpoint->stores[i];
        advise(params->grad, (size_t)params->trained * tutti_dtype_size(params->desc.master_dtype),
               advice);
        advise(params->working, (size_t)params->count * tutti_dtype_size(params->working_dtype),
               advice);
    }
    for (int i = 0; i < checkpoint->bound_count; i++) {
        const tutti_tensor *value = &checkpoint->bound[i].value;
        advise(value->data, (size_t)tutti_tensor_count(value) * tutti_dtype_size(value->dtype),
               advice);
    }
}

/* Comparing the file with the list */

static const tutti__attribute *checksum_of(const load *l, const tutti__node *node)
{
    const tutti__attribute *checksum = tutti__node_attribute(l->file.structure, node, "checksum");
    return checksum && checksum->kind == TUTTI__ATTRIBUTE_INT && checksum->count == 1 ? checksum
                                                                                      : NULL;
}

/* What the file must contain for an item.  A dimension of -1 may have any size. */
typedef struct form {
    tutti__file_type type;
    int ndim;
    int64_t dims[TUTTI_MAX_DIMS];
} form;

static form form_of(const tutti__item *item)
{
    form wants = {TUTTI__FILE_F64, 0, {0}};
    switch (item->kind) {
    case TUTTI__ITEM_TENSOR:
        wants.type = (tutti__file_type)item->tensor.dtype;
        wants.ndim = item->tensor.ndim;
        memcpy(wants.dims, item->tensor.dims, sizeof wants.dims);
        break;
    case TUTTI__ITEM_INT:
        wants.type = TUTTI__FILE_I64;
        break;
    case TUTTI__ITEM_REAL:
        break;
    case TUTTI__ITEM_TEXT:
        wants.type = TUTTI__FILE_TEXT;
        break;
    case TUTTI__ITEM_TABLE:
        wants.ndim = 2;
        wants.dims[0] = -1;
        wants.dims[1] = item->cols;
        break;
    }
    return wants;
}

static tutti_status check_room(const load *l, const tutti__item *item, const tutti__node *node)
{
    if (item->kind == TUTTI__ITEM_TEXT)
        DATA_REQUIRE(l, node->bytes < (int64_t)item->size,
                     "%s has %" PRId64 " bytes, want at most %zu", item->name, node->bytes,
                     item->size - 1);
    if (item->kind == TUTTI__ITEM_TABLE)
        DATA_REQUIRE(l, node->dims[0] <= item->capacity,
                     "%s has %" PRId64 " rows, want at most %" PRId64, item->name, node->dims[0],
                     item->capacity);
    return TUTTI_OK;
}

static tutti_status check_item(const load *l, const tutti__item *item, const tutti__node *node)
{
    const char *name = item->name;
    DATA_REQUIRE(l, node, "%s is missing", name);
    DATA_REQUIRE(l, node->kind == TUTTI__NODE_DATASET, "%s is not a dataset", name);
    form wants = form_of(item);
    DATA_REQUIRE(l, node->type == wants.type, "%s is %s, want %s", name,
                 tutti__file_type_name(node->type), tutti__file_type_name(wants.type));
    bool same = node->ndim == wants.ndim;
    for (int i = 0; same && i < wants.ndim; i++)
        same = wants.dims[i] == node->dims[i] || wants.dims[i] == -1;
    if (!same) {
        char got[200] = "unknown", want[120];
        if (node->ndim >= 0) tutti__shape_text(got, sizeof got, node->ndim, node->dims);
        tutti__shape_text(want, sizeof want, wants.ndim, wants.dims);
        if (item->kind == TUTTI__ITEM_TABLE)
            snprintf(want, sizeof want, "[rows, %" PRId64 "]", item->cols);
        return tutti__file_fail(&l->file, TUTTI_ERR_DATA, "the shape of %s is %s, want %s", name,
                                got, want);
    }
    DATA_REQUIRE(l, node->plain, "%s is not stored in one piece (chunked or compressed)", name);
    if (item->kind == TUTTI__ITEM_TENSOR) {
        const tutti__attribute *dtype = tutti__node_attribute(l->file.structure, node, "dtype");
        const char *given = dtype && dtype->kind == TUTTI__ATTRIBUTE_TEXT ? dtype->text : "missing";
        DATA_REQUIRE(l, strcmp(given, tutti_dtype_name(item->tensor.dtype)) == 0,
                     "the attribute dtype of %s is %s, want %s", name, given,
                     tutti_dtype_name(item->tensor.dtype));
    }
    DATA_REQUIRE(l, checksum_of(l, node), "%s has no checksum", name);
    return check_room(l, item, node);
}

/* Fails if the file contains what is not in the list. */
static tutti_status check_extras(const load *l)
{
    const tutti__structure *structure = l->file.structure;
    if (l->flags & TUTTI_CHECKPOINT_SUBSET) return TUTTI_OK;
    bool *known = calloc((size_t)structure->node_count, sizeof *known);
    if (!known) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    for (int i = 0; i < l->checkpoint->count; i++)
        if (l->nodes[i]) known[l->nodes[i] - structure->nodes] = true;
    const tutti__node *extra = NULL;
    for (int i = 0; i < structure->node_count && !extra; i++) {
        const tutti__node *node = &structure->nodes[i];
        bool tensor = tutti__node_attribute(structure, node, "dtype");
        if (!known[i] && node->kind != TUTTI__NODE_GROUP &&
            !(tensor && (l->flags & TUTTI_CHECKPOINT_VALUES)))
            extra = node;
    }
    free(known);
    DATA_REQUIRE(l, !extra, "%s is in the file, but is %s", extra ? extra->path : "",
                 l->flags & TUTTI_CHECKPOINT_VALUES
                     ? "neither a tensor nor a value that is expected"
                     : "not expected");
    return TUTTI_OK;
}

/* On rank 0: checks everything but the bytes. */
static tutti_status examine(load *l)
{
    const tutti_checkpoint *checkpoint = l->checkpoint;
    advise_tensors(checkpoint, MADV_DONTFORK);
    tutti_status status = tutti__file_open(&l->file, &tutti__checkpoint_format);
    advise_tensors(checkpoint, MADV_DOFORK);
    TUTTI_TRY(status);
    l->nodes = calloc((size_t)checkpoint->count + 1, sizeof *l->nodes);
    if (!l->nodes) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    for (int i = 0; i < checkpoint->count; i++) {
        const tutti__item *item = &checkpoint->items[i];
        if (!wanted(l, item)) continue;
        l->nodes[i] = tutti__structure_find(l->file.structure, item->name);
        TUTTI_TRY(check_item(l, item, l->nodes[i]));
        l->offsets[i] = l->nodes[i]->offset;
        if (item->kind != TUTTI__ITEM_TENSOR) l->value_bytes[i] = l->nodes[i]->bytes;
    }
    return check_extras(l);
}

static tutti_status read_failed(const load *l, const char *name, int error)
{
    return error > 0 ? tutti__file_fail(&l->file, TUTTI_ERR_IO, "cannot read %s: %s", name,
                                        strerror(error))
                     : tutti__file_fail(&l->file, TUTTI_ERR_DATA, "ends within %s", name);
}

static tutti_status verify(const load *l, int item, uint64_t checksum)
{
    uint64_t given = (uint64_t)checksum_of(l, l->nodes[item])->ints[0];
    DATA_REQUIRE(l, checksum == given,
                 "the checksum of %s is %016" PRIx64 ", the file says %016" PRIx64
                 ": the file is damaged",
                 l->checkpoint->items[item].name, checksum, given);
    return TUTTI_OK;
}

/* Values */

static tutti_status read_values(const load *l)
{
    char *at = l->values;
    for (int i = 0; i < l->checkpoint->count; i++) {
        const tutti__item *item = &l->checkpoint->items[i];
        if (item->kind == TUTTI__ITEM_TENSOR) continue;
        int error = tutti__read_at(l->file.fd, at, l->value_bytes[i], l->offsets[i]);
        if (error) return read_failed(l, item->name, error);
        TUTTI_TRY(verify(l, i, tutti__checksum(at, (size_t)l->value_bytes[i])));
        at += l->value_bytes[i];
    }
    return TUTTI_OK;
}

/* Sends rank 0's values to all ranks. */
static tutti_status share_values(load *l)
{
    tutti_comm *comm = l->checkpoint->comm;
    size_t count = (size_t)l->checkpoint->count;
    TUTTI_TRY(
        comm->control->broadcast(comm, l->value_bytes, count * sizeof *l->value_bytes, 0, who));
    for (size_t i = 0; i < count; i++) l->values_bytes += l->value_bytes[i];
    l->values = malloc((size_t)l->values_bytes + 1);
    tutti_status status =
        l->values ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    if (status == TUTTI_OK && comm->rank == 0) status = read_values(l);
    TUTTI_TRY(tutti_comm_agree(comm, status));
    for (int64_t at = 0; at < l->values_bytes; at += TUTTI__BLOCK_BYTES) {
        int64_t left = l->values_bytes - at;
        size_t part = (size_t)(left < TUTTI__BLOCK_BYTES ? left : TUTTI__BLOCK_BYTES);
        TUTTI_TRY(comm->control->broadcast(comm, l->values + at, part, 0, who));
    }
    return TUTTI_OK;
}

static void set_values(const load *l)
{
    const char *at = l->values;
    for (int i = 0; i < l->checkpoint->count; i++) {
        const tutti__item *item = &l->checkpoint->items[i];
        size_t bytes = (size_t)l->value_bytes[i];
        if (item->kind == TUTTI__ITEM_TENSOR) continue;
        memcpy(item->data, at, bytes);
        if (item->kind == TUTTI__ITEM_TEXT) ((char *)item->data)[bytes] = 0;
        if (item->kind == TUTTI__ITEM_TABLE)
            *item->rows = (int64_t)(bytes / sizeof(double)) / item->cols;
        at += bytes;
    }
}

/* Tensors */

/* Reads a round on rank 0 and verifies the tensors that end in it. */
static tutti_status read_round(const load *l, tutti__mover *mover, const tutti__block *blocks,
                               uint64_t *hashes, int64_t first, int64_t end, int64_t *tensor)
{
    int error;
    TUTTI_TRY(tutti__mover_read(mover, blocks + first, end - first, hashes + first, &error));
    if (error) return read_failed(l, l->checkpoint->items[blocks[first].item].name, error);
    for (int64_t i = first; i < end; i++) {
        if (blocks[i + 1].item == blocks[i].item) continue;
        TUTTI_TRY(verify(l, blocks[i].item,
                         tutti__checksum_of_hashes(hashes + *tensor, i + 1 - *tensor)));
        *tensor = i + 1;
    }
    return TUTTI_OK;
}

/* Prefetches the next round while this one is hashed and sent. */
static void prefetch(const load *l, const tutti__block *blocks, int64_t first, int64_t count)
{
    for (int64_t i = first; i < count && i < first + TUTTI__ROUND_BLOCKS; i++)
        posix_fadvise(l->file.fd, blocks[i].offset, blocks[i].bytes, POSIX_FADV_WILLNEED);
}

/* Adjacent blocks of one tensor are broadcast together. */
static tutti_status share_round(const load *l, const tutti__block *blocks, int64_t first,
                                int64_t end)
{
    tutti_comm *comm = l->checkpoint->comm;
    if (comm->world_size == 1) return TUTTI_OK;
    for (int64_t i = first; i < end;) {
        int64_t bytes = 0, begin = i;
        for (; i < end && blocks[i].item == blocks[begin].item; i++) bytes += blocks[i].bytes;
        TUTTI_TRY(
            tutti_comm_broadcast(comm, l->checkpoint->ctx, blocks[begin].data, bytes, TUTTI_U8, 0));
    }
    return TUTTI_OK;
}

/* A round is of tensors that every rank has, or of tensors in pieces. */
static int64_t round_end(const tutti__blocks *blocks, int64_t first)
{
    const int64_t last = first < blocks->whole ? blocks->whole : blocks->count;
    return first + TUTTI__ROUND_BLOCKS < last ? first + TUTTI__ROUND_BLOCKS : last;
}

/* Rank 0 reads for all. */
static tutti_status load_blocks(const load *l, const tutti__blocks *blocks, uint64_t *hashes)
{
    const tutti_checkpoint *checkpoint = l->checkpoint;
    tutti_comm *comm = checkpoint->comm;
    const tutti__block *all = blocks->all;
    const bool reads = comm->rank == 0;
    tutti__mover mover;
    tutti_status status =
        tutti__mover_open(&mover, checkpoint->ctx, l->file.fd, all, reads ? blocks->count : 0);
    /* a failure of this rank alone ends the next round, so that all ranks end in the same one */
    tutti_status agreed = status = tutti_comm_agree(comm, status);
    int64_t tensor = 0; /* the first block of the one being read */
    for (int64_t first = 0, end; agreed == TUTTI_OK && first < blocks->count; first = end) {
        end = round_end(blocks, first);
        if (reads) prefetch(l, all, end, blocks->count);
        if (reads && status == TUTTI_OK)
            status = read_round(l, &mover, all, hashes, first, end, &tensor);
        agreed = status = tutti_comm_agree(comm, status);
        if (status == TUTTI_OK) status = share_round(l, all, first, end);
        if (status == TUTTI_OK && first >= blocks->whole)
            status = tutti__pieces_keep(checkpoint, all + first, end - first);
    }
    /* keeps the buffers if a copy may still be under way */
    const tutti_status idle = tutti_context_synchronize(checkpoint->ctx);
    if (status == TUTTI_OK) status = idle;
    if (idle == TUTTI_OK) tutti__mover_close(&mover);
    return tutti_comm_agree(comm, status);
}

static tutti_status load_tensors(load *l)
{
    const tutti_checkpoint *checkpoint = l->checkpoint;
    tutti_comm *comm = checkpoint->comm;
    tutti__blocks blocks;
    TUTTI_TRY(comm->control->broadcast(comm, l->offsets,
                                       (size_t)checkpoint->count * sizeof *l->offsets, 0, who));
    tutti_status status = tutti__blocks_make(checkpoint, l->offsets, &blocks);
    uint64_t *hashes = calloc((size_t)blocks.count + 1, sizeof *hashes);
    if (status == TUTTI_OK && !hashes) status = tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    status = tutti_comm_agree(comm, status);
    if (status == TUTTI_OK) status = load_blocks(l, &blocks, hashes);
    tutti__blocks_free(checkpoint, &blocks);
    free(hashes);
    if (status == TUTTI_OK) status = tutti__list_refresh(checkpoint);
    return tutti_comm_agree(comm, status);
}

/* The whole load */

static tutti_status check_load(tutti_checkpoint *checkpoint, const char *path, unsigned flags)
{
    TUTTI_TRY(tutti__list_open(checkpoint, who));
    TUTTI_REQUIRE(path && path[0], "%s: path is %s", who, path ? "empty" : "NULL");
    TUTTI_REQUIRE(!(flags & ~(unsigned)(TUTTI_CHECKPOINT_VALUES | TUTTI_CHECKPOINT_SUBSET)),
                  "%s: flags is %#x, want TUTTI_CHECKPOINT_VALUES and TUTTI_CHECKPOINT_SUBSET only",
                  who, flags);
    return tutti_context_synchronize(checkpoint->ctx);
}

static tutti_status same_list(const load *l)
{
    const tutti_checkpoint *checkpoint = l->checkpoint;
    uint64_t *hashes = calloc((size_t)checkpoint->count + 1, sizeof *hashes);
    tutti_status status = hashes ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    status = tutti_comm_agree(checkpoint->comm, status);
    if (status == TUTTI_OK) {
        hashes[0] = tutti__hash(TUTTI__HASH_START, &l->flags, sizeof l->flags);
        for (int i = 0; i < checkpoint->count; i++)
            hashes[i + 1] = tutti__item_hash(&checkpoint->items[i], false);
        status = tutti__same_list(checkpoint, who, hashes, "flags");
    }
    free(hashes);
    return status;
}

static tutti_status read_file(load *l)
{
    tutti_comm *comm = l->checkpoint->comm;
    TUTTI_TRY(same_list(l));
    size_t room = (size_t)l->checkpoint->count + 1;
    l->offsets = calloc(room, sizeof *l->offsets);
    l->value_bytes = calloc(room, sizeof *l->value_bytes);
    tutti_status status = l->offsets && l->value_bytes
                              ? TUTTI_OK
                              : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    if (status == TUTTI_OK && comm->rank == 0) status = examine(l);
    TUTTI_TRY(tutti_comm_agree(comm, status));
    TUTTI_TRY(share_values(l));
    if (!(l->flags & TUTTI_CHECKPOINT_VALUES)) TUTTI_TRY(load_tensors(l));
    set_values(l);
    return TUTTI_OK;
}

tutti_status tutti_checkpoint_load(tutti_checkpoint *checkpoint, const char *path, unsigned flags)
{
    TUTTI_REQUIRE(checkpoint, "%s: checkpoint is NULL", who);
    TUTTI_TRY(tutti__comm_open(checkpoint->comm, who));
    TUTTI_TRY(tutti_comm_agree(checkpoint->comm, check_load(checkpoint, path, flags)));
    load l = {.checkpoint = checkpoint, .flags = flags};
    l.file = (tutti__file){.reporter = &tutti__library, .who = who, .path = path, .fd = -1};
    tutti_status status = read_file(&l);
    tutti__file_close(&l.file);
    free(l.nodes);
    free(l.offsets);
    free(l.value_bytes);
    free(l.values);
    return status;
}
