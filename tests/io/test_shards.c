/* Checkpoints of sharded stores: the file is that of a store that is not sharded, and each loads
 * the other's.  Looks into stores, whose slices are not public. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/params.h"
#include "state.h"
#ifdef RIG_WITH_MPI
#include "tutti/mpi.h"
#endif

/* Tensors of several blocks of 1048576 elements with a rest, and less than a block.  Slices begin
 * at other elements than blocks, and the trained ones have 9 blocks in all, so that a round of 8
 * ends within a slice. */
enum { BLOCK = 1 << 20, PARAMS = 7, RANGE_BYTES = 1 << 20, WHOLE = BLOCK + 3, FROZEN = 1 };
static const struct {
    const char *name;
    int64_t count;
} shapes[PARAMS] = {{"embed/weight", 1300001}, {"fixed/table", 1100003}, {"block.norm/gamma", 7},
                    {"block.up/weight", 165},  {"head/scale", 3},        {"head/bias", 1},
                    {"head/weight", 2400321}};

/* A store with an optimizer's state and more, and the list of it all; on the first `shards` of the
 * ranks, or not sharded, on all. */
typedef struct model {
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_params *params;
    tutti_param param[PARAMS];
    tutti_state_tensor state[3]; /* two laid out as the store, of other sizes an element */
    int64_t step;
    tutti__shard_link link;
    tutti_checkpoint *list;
} model;

static int gathers;

static tutti_status begin_nothing(tutti__shard_link *self, tutti_context *ctx, bool met)
{
    (void)self, (void)ctx, (void)met;
    return TUTTI_OK;
}

static tutti_status count_gather(tutti__shard_link *self, tutti_context *ctx, bool written)
{
    (void)self, (void)ctx, (void)written;
    gathers++;
    return TUTTI_OK;
}

/* A communicator of the first ranks; NULL on the others, or if the test is skipped. */
static tutti_comm *comm_of(tutti_context *ctx, int ranks)
{
    if (ranks == rig_size()) return rig_comm(ctx, TUTTI_TRANSPORT_AUTO);
    tutti_comm *comm = NULL;
#ifdef RIG_WITH_MPI
    MPI_Comm some;
    const bool member = rig_rank() < ranks;
    MPI_Comm_split(MPI_COMM_WORLD, member ? 0 : MPI_UNDEFINED, rig_rank(), &some);
    if (!member) return NULL;
    CHECK_OK(tutti_comm_create_from_mpi(ctx, some, NULL, &comm));
    MPI_Comm_free(&some);
#endif
    return comm;
}

static void add_params(model *m, tutti_dtype dtype, const tutti_params_desc *desc)
{
    CHECK_OK(tutti_params_create(m->ctx, desc, &m->params));
    for (int i = 0; i < PARAMS; i++) {
        tutti_param *param = &m->param[i];
        snprintf(param->name, TUTTI_NAME_MAX, "%s", shapes[i].name);
        param->value = tutti_tensor_1d(NULL, dtype, shapes[i].count);
        param->init = TUTTI_INIT_UNIFORM;
        param->init_bound = 1;
        CHECK_OK(tutti_params_add_param(m->params, param));
    }
    CHECK_OK(tutti_params_freeze(m->params, &m->param[FROZEN]));
    CHECK_OK(tutti_params_build(m->params, m->ctx));
    m->link.begin = begin_nothing;
    m->link.gather = count_gather;
    if (desc->shards > 1) m->params->link = &m->link;
}

static void make_state(model *m)
{
    static const char *const names[] = {"m", "v", "whole"};
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F32};
    for (int i = 0; i < 3; i++) {
        tutti_tensor tensor = tutti_tensor_1d(NULL, dtypes[i], i < 2 ? m->params->kept : WHOLE);
        const size_t bytes = (size_t)tensor.dims[0] * tutti_dtype_size(tensor.dtype);
        CHECK_OK(tutti_alloc(m->ctx, bytes ? bytes : 1, &tensor.data));
        m->state[i] = (tutti_state_tensor){names[i], tensor, i < 2};
    }
}

static tutti_params_desc desc_of(int shards)
{
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.shards = shards;
    desc.shard = shards ? rig_rank() : 0;
    desc.range_bytes = shards ? RANGE_BYTES : 0;
    return desc;
}

static bool make(model *m, tutti_dtype dtype, const tutti_params_desc *desc)
{
    *m = (model){.ctx = rig_context(), .step = 7};
    m->comm = comm_of(m->ctx, desc->shards ? desc->shards : rig_size());
    if (!m->comm) return false;
    add_params(m, dtype, desc);
    make_state(m);
    CHECK_OK(tutti_checkpoint_create(m->ctx, m->comm, &m->list));
    CHECK_OK(tutti_checkpoint_add_state(m->list, m->params, &m->state[0]));
    CHECK_OK(tutti_checkpoint_add_params(m->list, m->params));
    CHECK_OK(tutti_checkpoint_add_int(m->list, "state/step", &m->step));
    CHECK_OK(tutti_checkpoint_add_state(m->list, NULL, &m->state[2]));
    CHECK_OK(tutti_checkpoint_add_state(m->list, m->params, &m->state[1]));
    return true;
}

static bool make_shards(model *m, tutti_dtype dtype, int shards)
{
    const tutti_params_desc desc = desc_of(shards);
    return make(m, dtype, &desc);
}

static void drop(model *m)
{
    if (!m->comm) return;
    tutti_checkpoint_destroy(&m->list);
    m->params->link = NULL;
    tutti_params_destroy(&m->params);
    for (int i = 0; i < 3; i++) CHECK_OK(tutti_free(m->ctx, &m->state[i].tensor.data));
    tutti_comm_destroy(&m->comm);
}

/* A number in every byte of an element of state, so that it depends on the element only. */
static unsigned char byte_of(int64_t element, size_t byte, int state, int seed)
{
    const uint64_t mixed = (uint64_t)(element * 31 + state * 7 + seed) * UINT64_C(0x9e3779b97f4a7c);
    return (unsigned char)(mixed >> (8 * byte + 8));
}

/* Sets elements of a tensor of state; false if they were others. */
static bool set_elements(unsigned char *at, int64_t first, int64_t end, size_t size, int state,
                         int seed)
{
    bool same = true;
    for (int64_t e = first; e < end; e++)
        for (size_t b = 0; b < size; b++, at++) {
            const unsigned char wanted = byte_of(e, b, state, seed);
            same = same && *at == wanted;
            *at = wanted;
        }
    return same;
}

/* The same of a slice of the store, but for padding, which is not in the file. */
static bool set_slice(const tutti_params *params, const tutti__slice *own, unsigned char *host,
                      size_t size, int state, int seed)
{
    bool same = true;
    const int64_t own_end = own->span.first + own->span.count;
    for (int s = 0; s < params->trained_slots; s++) {
        const tutti__slot *slot = &params->slots[s];
        const int64_t slot_end = slot->offset + slot->count;
        const int64_t first = slot->offset > own->span.first ? slot->offset : own->span.first;
        const int64_t end = slot_end < own_end ? slot_end : own_end;
        if (first >= end) continue;
        unsigned char *at = host + (size_t)(own->local + first - own->span.first) * size;
        if (!set_elements(at, first, end, size, state, seed)) same = false;
    }
    return same;
}

/* Fills a tensor of state, or tells whether it is as filled. */
static bool visit_state(model *m, int state, int seed, bool fill)
{
    const tutti_tensor *tensor = &m->state[state].tensor;
    const size_t size = tutti_dtype_size(tensor->dtype), bytes = (size_t)tensor->dims[0] * size;
    unsigned char *host = harness_calloc(1, bytes + 1);
    bool same = true;
    if (!fill) CHECK_OK(tutti_copy(m->ctx, host, tensor->data, bytes));
    CHECK_OK(tutti_context_synchronize(m->ctx));
    if (!m->state[state].like_store) same = set_elements(host, 0, WHOLE, size, state, seed);
    for (int i = 0; m->state[state].like_store && i < m->params->own_count; i++)
        if (!set_slice(m->params, &m->params->own[i], host, size, state, seed)) same = false;
    if (fill) CHECK_OK(tutti_copy(m->ctx, tensor->data, host, bytes));
    CHECK_OK(tutti_context_synchronize(m->ctx));
    free(host);
    return same;
}

static bool masters_equal(const model *m, const float *wanted, const void *masters, int64_t count)
{
    float *host = harness_calloc((size_t)count + 1, sizeof *host);
    CHECK_OK(tutti_copy(m->ctx, host, masters, (size_t)count * sizeof *host));
    CHECK_OK(tutti_context_synchronize(m->ctx));
    const bool equal = memcmp(host, wanted, (size_t)count * sizeof *host) == 0;
    free(host);
    return equal;
}

/* The masters here are those that a store that is not sharded has after an init. */
static bool masters_are(const model *m, int seed)
{
    model plain = {.ctx = m->ctx};
    const tutti_params_desc desc = desc_of(0);
    const tutti_params *params = m->params;
    add_params(&plain, TUTTI_F32, &desc);
    CHECK_OK(tutti_params_init(plain.params, plain.ctx, (uint64_t)seed));
    float *host = harness_calloc((size_t)params->count, sizeof *host);
    CHECK_OK(tutti_copy(m->ctx, host, plain.params->master, (size_t)params->count * sizeof *host));
    CHECK_OK(tutti_context_synchronize(m->ctx));
    tutti_params_destroy(&plain.params);
    bool same = true;
    for (int i = 0; i < params->own_count; i++) {
        const tutti__slice *own = &params->own[i];
        same = same && masters_equal(m, host + own->span.first, own->master, own->span.count);
    }
    const void *frozen = tutti__masters_at(params, params->trained);
    same =
        same && masters_equal(m, host + params->trained, frozen, params->count - params->trained);
    if (!params->parted) same = same && masters_equal(m, host, params->master, params->count);
    free(host);
    return same;
}

static void fill(model *m, int seed)
{
    CHECK_OK(tutti_params_init(m->params, m->ctx, (uint64_t)seed));
    for (int i = 0; i < 3; i++) visit_state(m, i, seed, true);
    m->step = 7 * seed;
}

static void check_filled(model *m, int seed)
{
    CHECK(masters_are(m, seed), "masters differ");
    for (int i = 0; i < 3; i++)
        CHECK(visit_state(m, i, seed, false), "%s differs", m->state[i].name);
    CHECK(m->step == 7 * seed, "step is %lld", (long long)m->step);
}

static const char *path_of(tutti_dtype dtype, int shards)
{
    char name[40];
    snprintf(name, sizeof name, "%s-%d", tutti_dtype_name(dtype), shards);
    return in_folder(name);
}

static void save(tutti_dtype dtype, int shards)
{
    model m;
    if (make_shards(&m, dtype, shards)) {
        fill(&m, 1);
        CHECK_OK(tutti_checkpoint_save(m.list, path_of(dtype, shards), 0));
        check_filled(&m, 1);
    }
    drop(&m);
    rig_barrier();
}

/* Loads the first and the last file; they all have the same bytes. */
static void load(tutti_dtype dtype, int shards)
{
    model m;
    if (make_shards(&m, dtype, shards))
        for (int saved = 0; saved <= rig_size(); saved += rig_size()) {
            fill(&m, 2);
            gathers = 0;
            CHECK_OK(tutti_checkpoint_load(m.list, path_of(dtype, saved), 0));
            check_filled(&m, 1);
            const int wanted = dtype == TUTTI_BF16 && shards > 1;
            CHECK(gathers == wanted, "%d gathers, want %d", gathers, wanted);
        }
    drop(&m);
    rig_barrier();
}

/* Shards 0: not sharded. */
static void each_into_each(tutti_dtype dtype)
{
    for (int shards = 0; shards <= rig_size(); shards++) save(dtype, shards);
    for (int shards = 1; shards <= rig_size() && rig_rank() == 0; shards++)
        CHECK(file_same(path_of(dtype, 0), path_of(dtype, shards)), "the file of %d differs",
              shards);
    rig_barrier();
    for (int shards = 0; shards <= rig_size(); shards++) load(dtype, shards);
}

static void test_f32_values(void)
{
    each_into_each(TUTTI_F32);
}

static void test_bf16_values(void)
{
    each_into_each(TUTTI_BF16);
}

/* Changes a bit of a dataset's bytes, which begin as given. */
static void damage(const char *path, const void *begin, size_t bytes, size_t where)
{
    size_t size;
    unsigned char *data = file_read(path, &size), *at = data;
    while (at + bytes < data + size && memcmp(at, begin, bytes) != 0) at++;
    CHECK(at + where < data + size, "the bytes are not in the file");
    if (at + where < data + size) at[where] ^= 4;
    file_write(path, data, size);
    free(data);
}

/* Damage in any block fails all ranks. */
static void test_damage(void)
{
    const char *path = in_folder("damaged");
    model m;
    if (make_shards(&m, TUTTI_BF16, rig_size())) {
        const tutti__slot *slot = &m.params->slots[0];
        for (int where = 0; where < 3; where++) {
            unsigned char begin[64];
            for (size_t i = 0; i < sizeof begin; i++)
                begin[i] = byte_of(slot->offset + (int64_t)i / 4, i % 4, 0, 1);
            fill(&m, 1);
            CHECK_OK(tutti_checkpoint_save(m.list, path, 0));
            const size_t last = (size_t)slot->count * 4 - 1;
            if (rig_rank() == 0) damage(path, begin, sizeof begin, where * last / 2);
            rig_barrier();
            char words[160];
            snprintf(words, sizeof words, "the checksum of optimizer/%s/m", slot->param->name);
            CHECK_FAILS(TUTTI_ERR_DATA, words, tutti_checkpoint_load(m.list, path, 0));
        }
    }
    drop(&m);
}

/* A store is of other shards than the communicator has ranks.  The list stays as it was. */
static void test_other_ranks(void)
{
    model m, other = {.ctx = rig_context()};
    if (!make_shards(&m, TUTTI_BF16, rig_size())) return;
    tutti_params_desc desc = desc_of(rig_size() + 1);
    add_params(&other, TUTTI_BF16, &desc);
    make_state(&other);
    char words[120];
    snprintf(words, sizeof words,
             "checkpoint_add_params: the store is one of %d shards, the communicator has %d rank",
             rig_size() + 1, rig_size());
    CHECK_FAILS(TUTTI_ERR_ARG, words, tutti_checkpoint_add_params(m.list, other.params));
    CHECK_FAILS(TUTTI_ERR_ARG, "checkpoint_add_state: the store is one of",
                tutti_checkpoint_add_state(m.list, other.params, &other.state[0]));
    other.params->desc.shards = rig_size();
    other.params->desc.shard = rig_rank() + 1;
    CHECK_FAILS(TUTTI_ERR_ARG, "the communicator's rank is",
                tutti_checkpoint_add_params(m.list, other.params));
    other.params->link = NULL;
    tutti_params_destroy(&other.params);
    for (int i = 0; i < 3; i++) CHECK_OK(tutti_free(m.ctx, &other.state[i].tensor.data));
    CHECK_FAILS(TUTTI_ERR_ARG, "is taken", tutti_checkpoint_add_params(m.list, m.params));
    CHECK_FAILS(TUTTI_ERR_ARG, "is taken",
                tutti_checkpoint_add_state(m.list, m.params, &m.state[1]));
    fill(&m, 1);
    CHECK_OK(tutti_checkpoint_save(m.list, in_folder("kept"), 0));
    drop(&m);
}

/* Ranks that cut the store differently have different pieces. */
static void test_other_pieces(void)
{
    model m;
    tutti_params_desc desc = desc_of(rig_size());
    if (rig_rank() == rig_size() - 1) desc.range_bytes = 2 * RANGE_BYTES;
    if (make(&m, TUTTI_BF16, &desc)) {
        CHECK_FAILS(TUTTI_ERR_ARG, "differs from rank 0's",
                    tutti_checkpoint_save(m.list, in_folder("pieces"), 0));
        CHECK(!file_exists(in_folder("pieces")), "there is a file");
    }
    drop(&m);
}

/* A rank that does not see the file, as on another machine, has pieces of it all the same. */
static void test_elsewhere(void)
{
    char before[1024];
    model m;
    CHECK(getcwd(before, sizeof before), "no folder");
    if (make_shards(&m, TUTTI_BF16, rig_size())) {
        CHECK(chdir(rig_rank() == 0 ? folder() : "/") == 0, "no folder");
        fill(&m, 1);
        CHECK_OK(tutti_checkpoint_save(m.list, "there", 0));
        fill(&m, 2);
        CHECK_OK(tutti_checkpoint_load(m.list, "there", 0));
        check_filled(&m, 1);
        CHECK(chdir(before) == 0, "no folder");
    }
    drop(&m);
}

/* Ranges by default, of stores too large for a test: no memory is touched. */
static void check_default(int64_t rounded, int64_t trained, tutti_dtype dtype, int shards)
{
    const int64_t MiB = (int64_t)(1 << 20) / (int64_t)tutti_dtype_size(dtype);
    const int64_t unit = (int64_t)shards * TUTTI__NORM_RUN; /* whole runs in each slice */
    tutti_params store = {.rounded = rounded, .trained = trained, .count = trained};
    store.desc.master_dtype = dtype;
    store.desc.shards = shards;
    harness_where("%lld of %lld elements, %d shards", (long long)rounded, (long long)trained,
                  shards);
    CHECK_OK(tutti__shard_lay_out(&store));
    int64_t end = 0, largest = 0;
    for (int r = 0; r < store.range_count; r++) {
        const tutti__span *range = &store.ranges[r];
        const int64_t left = (range->first < rounded ? rounded : trained) - range->first;
        CHECK(range->first == end && range->count > 0, "range %d: %lld from %lld, want from %lld",
              r, (long long)range->count, (long long)range->first, (long long)end);
        CHECK(range->count % unit == 0 || left <= MiB, "range %d: %lld elements", r,
              (long long)range->count);
        CHECK(left > range->count || left <= MiB, "the last range has %lld", (long long)left);
        if (range->count > largest) largest = range->count;
        end += range->count;
    }
    CHECK(end == trained, "ranges end at %lld", (long long)end);
    CHECK(largest <= 128 * MiB && (largest <= 32 * MiB || largest <= trained / 8) &&
              store.range_count <= 8 + 4 + trained / (100 * MiB),
          "%d ranges, of up to %lld elements", store.range_count, (long long)largest);
    harness_where(NULL);
    free(store.ranges);
    free(store.own);
}

static void test_default_ranges(void)
{
    const int64_t counts[] = {0, 1000, 3000000, 70000001, 201000000, 1074000003};
    for (int i = 0; i < HARNESS_COUNT(counts); i++)
        for (int shards = 1; shards <= 8; shards = 2 * shards + 1) {
            const int64_t most = counts[i] * 3 / 4 / TUTTI__NORM_RUN * TUTTI__NORM_RUN;
            check_default(0, counts[i], TUTTI_F32, shards);
            check_default(0, counts[i], TUTTI_F64, shards);
            check_default(counts[i], counts[i], TUTTI_F32, shards);
            check_default(most, counts[i], TUTTI_F32, shards);
        }
}

static const rig_test tests[] = {
    {"f32 values", test_f32_values, 0, 0, false},
    {"bf16 values", test_bf16_values, 0, 0, false},
    {"damage", test_damage, 0, 0, false},
    {"other ranks", test_other_ranks, 0, 0, false},
    {"other pieces", test_other_pieces, 2, 0, false},
    {"elsewhere", test_elsewhere, 2, 0, false},
    {"default ranges", test_default_ranges, 0, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "checkpoints of sharded stores", tests, HARNESS_COUNT(tests));
}
