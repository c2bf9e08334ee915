/* The caller's own parameters in checkpoints: they and a store read each other's files, to the
 * bit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

enum { PARAMS = 3 };
static const char *const names[PARAMS] = {"head-1/bias_2", "block0.norm/gamma", "embed/weight"};

/* How the parameters of a list are kept. */
typedef struct kind {
    const char *name;
    tutti_dtype value;
    bool apart; /* masters of f32 beside the values */
} kind;
static const kind kinds[] = {{"f32", TUTTI_F32, false},
                             {"f64", TUTTI_F64, false},
                             {"bf16 with masters", TUTTI_BF16, true},
                             {"f16 with masters", TUTTI_F16, true},
                             {"bf16 alone", TUTTI_BF16, false},
                             {"f16 alone", TUTTI_F16, false}};
enum { KINDS = HARNESS_COUNT(kinds) };

static bool is_alone(const kind *k)
{
    return !k->apart && (k->value == TUTTI_F16 || k->value == TUTTI_BF16);
}

static tutti_dtype master_type(const kind *k)
{
    return k->value == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
}

/* Some kinds have parameters of several blocks. */
static bool is_big(const kind *k)
{
    return !k->apart && k->value != TUTTI_F64;
}

/* Parameters: own ones, or a store's. */
typedef struct side {
    tutti_context *ctx;
    const kind *kind;
    tutti_params *store;
    tutti_param param[PARAMS];
    tutti_checkpoint *list;
} side;

/* The last one has several blocks and an odd rest if big. */
static tutti_tensor shape_of(int i, tutti_dtype dtype, bool big)
{
    static const int ndim[PARAMS] = {1, 1, 3};
    const int64_t dims[PARAMS][TUTTI_MAX_DIMS] = {{1}, {7}, {3, 5, big ? 80001 : 11}};
    return tutti_tensor_make(NULL, dtype, ndim[i], dims[i]);
}

static size_t bytes_of(const tutti_tensor *t)
{
    return (size_t)tutti_tensor_count(t) * tutti_dtype_size(t->dtype);
}

static void own_bind(side *s, tutti_param *p)
{
    tutti_tensor value = p->value, master = p->value;
    CHECK_OK(tutti_alloc(s->ctx, bytes_of(&value), &value.data));
    CHECK_OK(tutti_param_bind(p, &value, NULL));
    if (!s->kind->apart) return;
    master.dtype = TUTTI_F32;
    CHECK_OK(tutti_alloc(s->ctx, bytes_of(&master), &master.data));
    CHECK_OK(tutti_param_bind_master(p, &master));
}

static void make_side(side *s, tutti_comm *comm, const kind *k, bool store, bool big)
{
    *s = (side){.ctx = rig_context(), .kind = k};
    tutti_params_desc desc = {.master_dtype = master_type(k)};
    if (store) CHECK_OK(tutti_params_create(s->ctx, &desc, &s->store));
    for (int i = 0; i < PARAMS; i++) {
        snprintf(s->param[i].name, TUTTI_NAME_MAX, "%s", names[i]);
        s->param[i].value = shape_of(i, k->value, big);
        if (!store) own_bind(s, &s->param[i]);
    }
    CHECK_OK(tutti_checkpoint_create(s->ctx, comm, &s->list));
}

/* Own parameters in a store's order, which adds the last first. */
static void own_side(side *s, tutti_comm *comm, const kind *k, bool big)
{
    make_side(s, comm, k, false, big);
    for (int i = 0; i < PARAMS; i++)
        CHECK_OK(tutti_checkpoint_add_param(s->list, i ? names[i] : NULL, &s->param[i]));
}

static void store_side(side *s, tutti_comm *comm, const kind *k, bool big)
{
    make_side(s, comm, k, true, big);
    for (int i = PARAMS - 1; i >= 0; i--) CHECK_OK(tutti_params_add_param(s->store, &s->param[i]));
    CHECK_OK(tutti_params_build(s->store, s->ctx));
    CHECK_OK(tutti_checkpoint_add_params(s->list, s->store));
}

static void end_side(side *s)
{
    tutti_checkpoint_destroy(&s->list);
    for (int i = 0; i < PARAMS && !s->store; i++) {
        if (s->kind->apart) CHECK_OK(tutti_free(s->ctx, &s->param[i].master.data));
        CHECK_OK(tutti_free(s->ctx, &s->param[i].value.data));
    }
    tutti_params_destroy(&s->store);
}

static unsigned char *get(const side *s, const tutti_tensor *tensor)
{
    unsigned char *bytes = harness_calloc(1, bytes_of(tensor));
    CHECK_OK(tutti_copy(s->ctx, bytes, tensor->data, bytes_of(tensor)));
    CHECK_OK(tutti_context_synchronize(s->ctx));
    return bytes;
}

/* The master's values of this seed: of every magnitude, including subnormal and infinite ones,
 * exact in the type given. */
static double *numbers(const tutti_param *p, int number, uint64_t seed, tutti_dtype exact)
{
    int64_t count = tutti_tensor_count(&p->value);
    double *values = harness_calloc((size_t)count, sizeof *values);
    harness_rng rng = {seed * 100 + (uint64_t)number};
    harness_fill(&rng, values, count, exact, 0, 1);
    if (count > 4) {
        values[1] = harness_tiny(exact);
        values[2] = -harness_huge(exact);
        values[3] = -0.0;
        values[4] = 1.0 / 0.0;
    }
    return values;
}

/* Sets the masters to those of the seed, and values that have separate masters to nonsense, as only
 * the masters are saved. */
static void fill_side(side *s, uint64_t seed, tutti_dtype exact)
{
    for (int i = 0; i < PARAMS; i++) {
        const tutti_param *p = &s->param[i];
        double *values = numbers(p, i, seed, exact);
        harness_put(s->ctx, &p->master, values);
        for (int64_t j = 0; j < tutti_tensor_count(&p->value); j++) values[j] = 77;
        if (p->value.data != p->master.data) harness_put(s->ctx, &p->value, values);
        free(values);
    }
}

/* All masters are those of the seed, to the bit, and all values are the masters, rounded. */
static void check_side(const side *s, uint64_t seed, tutti_dtype exact)
{
    for (int i = 0; i < PARAMS; i++) {
        const tutti_param *p = &s->param[i];
        const tutti_tensor *both[] = {&p->master, &p->value};
        double *values = numbers(p, i, seed, exact);
        for (int t = 0; t < 2; t++) {
            unsigned char *got = get(s, both[t]);
            size_t size = tutti_dtype_size(both[t]->dtype);
            int64_t bad = -1;
            for (int64_t j = 0; j < tutti_tensor_count(both[t]) && bad < 0; j++) {
                uint64_t want = harness_encode(both[t]->dtype, values[j]);
                if (memcmp(got + (size_t)j * size, &want, size) != 0) bad = j;
            }
            CHECK(bad < 0, "%s of %s differs at %lld", t ? "value" : "master", p->name,
                  (long long)bad);
            free(got);
        }
        free(values);
    }
}

/* Runs a check for every kind, with a communicator of all ranks and two file names. */
static void for_all_kinds(void (*check)(tutti_comm *comm, const kind *k, const char *a,
                                        const char *b))
{
    tutti_comm *comm = rig_comm(rig_context(), TUTTI_TRANSPORT_AUTO);
    if (!comm) return;
    for (int i = 0; i < KINDS; i++) {
        harness_where("%s", kinds[i].name);
        check(comm, &kinds[i], in_folder("a"), in_folder("b"));
        rig_barrier();
    }
    harness_where(NULL);
    tutti_comm_destroy(&comm);
}

static void own_to_own(tutti_comm *comm, const kind *k, const char *a, const char *b)
{
    side s;
    own_side(&s, comm, k, is_big(k));
    tutti_dtype exact = s.param[0].master.dtype;
    fill_side(&s, 1, exact);
    CHECK_OK(tutti_checkpoint_save(s.list, a, 0));
    fill_side(&s, 2, exact);
    CHECK_OK(tutti_checkpoint_load(s.list, a, 0));
    check_side(&s, 1, exact);
    CHECK_OK(tutti_checkpoint_save(s.list, b, 0));
    if (rig_rank() == 0) CHECK(file_same(a, b), "equal states are not equal bytes");
    end_side(&s);
}

/* Own parameters read a store's file and write the same bytes. */
static void store_to_own(tutti_comm *comm, const kind *k, const char *a, const char *b)
{
    side store, own;
    store_side(&store, comm, k, false);
    own_side(&own, comm, k, false);
    tutti_dtype exact = is_alone(k) ? k->value : master_type(k);
    fill_side(&store, 3, exact);
    CHECK_OK(tutti_checkpoint_save(store.list, a, 0));
    fill_side(&own, 4, exact);
    CHECK_OK(tutti_checkpoint_load(own.list, a, 0));
    check_side(&own, 3, exact);
    CHECK_OK(tutti_checkpoint_save(own.list, b, 0));
    if (rig_rank() == 0) CHECK(file_same(a, b), "own parameters write other bytes than a store");
    end_side(&store);
    end_side(&own);
}

static void own_to_store(tutti_comm *comm, const kind *k, const char *a, const char *b)
{
    side store, own;
    store_side(&store, comm, k, false);
    own_side(&own, comm, k, false);
    tutti_dtype exact = own.param[0].master.dtype;
    fill_side(&own, 5, exact);
    CHECK_OK(tutti_checkpoint_save(own.list, a, 0));
    fill_side(&store, 6, exact);
    CHECK_OK(tutti_checkpoint_load(store.list, a, 0));
    check_side(&store, 5, exact);
    CHECK_OK(tutti_checkpoint_save(store.list, b, 0));
    if (rig_rank() == 0) CHECK(file_same(a, b), "a store writes other bytes than own parameters");
    end_side(&store);
    end_side(&own);
}

/* Masters with more digits than the values: the values become a store's working values. */
static void rounded_store_to_own(tutti_comm *comm, const kind *k, const char *a, const char *b)
{
    (void)b;
    if (!is_alone(k)) return;
    side store, own;
    store_side(&store, comm, k, false);
    own_side(&own, comm, k, false);
    fill_side(&store, 7, TUTTI_F32);
    CHECK_OK(tutti_checkpoint_save(store.list, a, 0));
    CHECK_OK(tutti_checkpoint_load(own.list, a, 0));
    check_side(&own, 7, TUTTI_F32);
    end_side(&store);
    end_side(&own);
}

/* All ranks write the same file as one, and each reads the other's. */
static void other_ranks(tutti_comm *comm, const kind *k, const char *a, const char *b)
{
    tutti_comm *alone = rig_comm(rig_context(), TUTTI_TRANSPORT_SELF);
    side all, one;
    own_side(&all, comm, k, is_big(k));
    own_side(&one, alone, k, is_big(k));
    tutti_dtype exact = all.param[0].master.dtype;
    fill_side(&all, 8, exact);
    CHECK_OK(tutti_checkpoint_save(all.list, a, 0));
    CHECK_OK(tutti_checkpoint_load(one.list, a, 0));
    check_side(&one, 8, exact);
    if (rig_rank() == 0) {
        CHECK_OK(tutti_checkpoint_save(one.list, b, 0));
        CHECK(file_same(a, b), "one rank writes other bytes");
    }
    rig_barrier();
    fill_side(&all, 9, exact);
    CHECK_OK(tutti_checkpoint_load(all.list, b, 0));
    check_side(&all, 8, exact);
    end_side(&all);
    end_side(&one);
    tutti_comm_destroy(&alone);
}

static void test_own_to_own(void)
{
    for_all_kinds(own_to_own);
}
static void test_store_to_own(void)
{
    for_all_kinds(store_to_own);
}
static void test_own_to_store(void)
{
    for_all_kinds(own_to_store);
}
static void test_rounded(void)
{
    for_all_kinds(rounded_store_to_own);
}
static void test_other_ranks(void)
{
    for_all_kinds(other_ranks);
}

/* AdamW's state of another trainer's parameters: tensors of the parameters' shapes under AdamW's
 * names. */
static void optimizer_state(tutti_comm *comm, const kind *k, const char *a, const char *b)
{
    static const char *const states[] = {"m", "v"};
    side store, own;
    store_side(&store, comm, k, false);
    own_side(&own, comm, k, false);
    tutti_dtype exact = is_alone(k) ? k->value : master_type(k);
    tutti_adamw *adamw = NULL;
    tutti_state_tensor state;
    tutti_tensor mine[2][PARAMS], updates;
    CHECK_OK(tutti_adamw_create(store.ctx, store.store, NULL, &adamw));
    for (int i = 0; i < tutti_adamw_state_count(adamw); i++) {
        CHECK_OK(tutti_adamw_state_get(adamw, i, &state));
        CHECK_OK(tutti_checkpoint_add_state(store.list, store.store, &state));
        updates = state.tensor;
    }
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < PARAMS; i++) {
            char name[2 * TUTTI_NAME_MAX];
            snprintf(name, sizeof name, "%s/%s", names[i], states[t]);
            mine[t][i] = shape_of(i, master_type(k), false);
            CHECK_OK(tutti_alloc(own.ctx, bytes_of(&mine[t][i]), &mine[t][i].data));
            double *values = numbers(&own.param[i], 10 * t + i, 11, master_type(k));
            harness_put(own.ctx, &mine[t][i], values);
            free(values);
            state = (tutti_state_tensor){.name = name, .tensor = mine[t][i]};
            CHECK_OK(tutti_checkpoint_add_state(own.list, NULL, &state));
        }
    CHECK_OK(tutti_alloc(own.ctx, bytes_of(&updates), &updates.data));
    harness_put(own.ctx, &updates, (const double[]){12});
    state = (tutti_state_tensor){.name = "updates", .tensor = updates};
    CHECK_OK(tutti_checkpoint_add_state(own.list, NULL, &state));

    fill_side(&own, 10, exact);
    CHECK_OK(tutti_checkpoint_save(own.list, a, 0));
    CHECK_OK(tutti_checkpoint_load(store.list, a, 0));
    check_side(&store, 10, exact);
    tutti_adamw_stats stats;
    CHECK_OK(tutti_adamw_get_stats(adamw, store.ctx, &stats));
    CHECK(stats.updates == 12, "%lld updates, want 12", (long long)stats.updates);
    CHECK_OK(tutti_checkpoint_save(store.list, b, 0));
    if (rig_rank() == 0) CHECK(file_same(a, b), "the optimizer's state has other names");
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < PARAMS; i++)
            CHECK_OK(tutti_zero(own.ctx, mine[t][i].data, bytes_of(&mine[t][i])));
    CHECK_OK(tutti_checkpoint_load(own.list, b, 0));
    CHECK_OK(tutti_checkpoint_save(own.list, a, 0));
    if (rig_rank() == 0) CHECK(file_same(a, b), "the optimizer's state is not restored");
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < PARAMS; i++) CHECK_OK(tutti_free(own.ctx, &mine[t][i].data));
    CHECK_OK(tutti_free(own.ctx, &updates.data));
    tutti_adamw_destroy(&adamw);
    end_side(&store);
    end_side(&own);
}

static void test_optimizer_state(void)
{
    for_all_kinds(optimizer_state);
}

/* Own parameters and a store's in one file; the list outlives its layers and parameters. */
static void test_beside_a_store(void)
{
    tutti_comm *comm = rig_comm(rig_context(), TUTTI_TRANSPORT_AUTO);
    if (!comm) return;
    side store, own;
    store_side(&store, comm, &kinds[2], false);
    make_side(&own, comm, &kinds[4], false, false);
    CHECK_FAILS(TUTTI_ERR_ARG, "taken",
                tutti_checkpoint_add_param(store.list, NULL, &own.param[1]));
    CHECK_FAILS(TUTTI_ERR_ARG, "taken",
                tutti_checkpoint_add_param(store.list, "embed", &own.param[1]));
    for (int i = 0; i < PARAMS; i++) {
        char name[32];
        snprintf(name, sizeof name, "own/%d", i);
        tutti_param passing = own.param[i];
        CHECK_OK(tutti_checkpoint_add_param(store.list, name, &passing));
        memset(&passing, 0xff, sizeof passing);
    }
    fill_side(&store, 1, TUTTI_F32);
    fill_side(&own, 2, TUTTI_BF16);
    CHECK_OK(tutti_checkpoint_save(store.list, in_folder("both"), 0));
    fill_side(&store, 3, TUTTI_F32);
    fill_side(&own, 4, TUTTI_BF16);
    CHECK_OK(tutti_checkpoint_load(store.list, in_folder("both"), 0));
    check_side(&store, 1, TUTTI_F32);
    check_side(&own, 2, TUTTI_BF16);
    fill_side(&own, 5, TUTTI_BF16); /* reads values only: no parameter changes */
    CHECK_OK(tutti_checkpoint_load(store.list, in_folder("both"), TUTTI_CHECKPOINT_VALUES));
    check_side(&own, 5, TUTTI_BF16);
    end_side(&store);
    end_side(&own);
    tutti_comm_destroy(&comm);
}

/* A single parameter of a store's, and a part of a file. */
static void test_part_of_a_store(void)
{
    tutti_comm *comm = rig_comm(rig_context(), TUTTI_TRANSPORT_AUTO);
    if (!comm) return;
    side store;
    store_side(&store, comm, &kinds[2], false);
    const char *path = in_folder("part");
    tutti_checkpoint *list = NULL;
    fill_side(&store, 1, TUTTI_F32);
    CHECK_OK(tutti_checkpoint_save(store.list, path, 0));
    CHECK_OK(tutti_checkpoint_create(store.ctx, comm, &list));
    for (int i = 0; i < PARAMS; i++)
        CHECK_OK(tutti_checkpoint_add_param(list, NULL, &store.param[i]));
    fill_side(&store, 2, TUTTI_F32);
    CHECK_OK(tutti_checkpoint_load(list, path, 0));
    check_side(&store, 1, TUTTI_F32);
    tutti_checkpoint_destroy(&list);

    CHECK_OK(tutti_checkpoint_create(store.ctx, comm, &list));
    CHECK_OK(tutti_checkpoint_add_param(list, names[2], &store.param[2]));
    CHECK_FAILS(TUTTI_ERR_DATA, names[1], tutti_checkpoint_load(list, path, 0));
    fill_side(&store, 3, TUTTI_F32);
    unsigned char *other = get(&store, &store.param[1].master);
    CHECK_OK(tutti_checkpoint_load(list, path, TUTTI_CHECKPOINT_SUBSET));
    unsigned char *still = get(&store, &store.param[1].master);
    CHECK(memcmp(other, still, bytes_of(&store.param[1].master)) == 0,
          "a parameter that is not in the list was loaded");
    free(other);
    free(still);
    tutti_checkpoint_destroy(&list);
    end_side(&store);
    tutti_comm_destroy(&comm);
}

static void check_other(side *s, tutti_comm *comm, const tutti_param *other, const char *path,
                        const char *word)
{
    tutti_checkpoint *list = NULL;
    CHECK_OK(tutti_checkpoint_create(s->ctx, comm, &list));
    for (int i = 0; i < PARAMS - 1; i++)
        CHECK_OK(tutti_checkpoint_add_param(list, NULL, &s->param[i]));
    CHECK_OK(tutti_checkpoint_add_param(list, names[2], other));
    CHECK_FAILS(TUTTI_ERR_DATA, word, tutti_checkpoint_load(list, path, 0));
    tutti_checkpoint_destroy(&list);
}

/* A file whose parameter has another shape, type or name is refused, and nothing is loaded. */
static void test_other_shapes(void)
{
    tutti_comm *comm = rig_comm(rig_context(), TUTTI_TRANSPORT_AUTO);
    if (!comm) return;
    const char *path = in_folder("shapes");
    side s;
    own_side(&s, comm, &kinds[4], false);
    tutti_param other = s.param[2];
    fill_side(&s, 1, TUTTI_BF16);
    CHECK_OK(tutti_checkpoint_save(s.list, path, 0));
    fill_side(&s, 2, TUTTI_BF16);
    static double memory[200];
    tutti_tensor wide = tutti_tensor_make(memory, TUTTI_F64, other.value.ndim, other.value.dims);
    other.value.dtype = TUTTI_F64;
    CHECK_OK(tutti_param_bind(&other, &wide, NULL));
    check_other(&s, comm, &other, path, "embed/weight is f32, want f64");
    other.value = tutti_tensor_2d(memory, TUTTI_F16, 15, 11);
    CHECK_OK(tutti_param_bind(&other, &other.value, NULL));
    check_other(&s, comm, &other, path, "the shape of model/embed/weight is [3, 5, 11], want [15");
    check_side(&s, 2, TUTTI_BF16);
    CHECK(memory[0] == 0, "a parameter of another shape was written");
    tutti_checkpoint_destroy(&s.list);
    CHECK_OK(tutti_checkpoint_create(s.ctx, comm, &s.list));
    CHECK_OK(tutti_checkpoint_add_param(s.list, "elsewhere", &s.param[0]));
    CHECK_FAILS(TUTTI_ERR_DATA, "model/elsewhere is missing",
                tutti_checkpoint_load(s.list, path, 0));
    check_side(&s, 2, TUTTI_BF16);
    end_side(&s);
    tutti_comm_destroy(&comm);
}

/* Lists that differ over the ranks. */
static void test_ranks_differ(void)
{
    tutti_comm *comm = rig_comm(rig_context(), TUTTI_TRANSPORT_AUTO);
    if (!comm) return;
    side s;
    make_side(&s, comm, &kinds[0], false, false);
    for (int i = 0; i < PARAMS; i++)
        CHECK_OK(tutti_checkpoint_add_param(s.list, NULL,
                                            &s.param[rig_rank() == 1 ? PARAMS - 1 - i : i]));
    CHECK_FAILS(TUTTI_ERR_ARG, "rank 1", tutti_checkpoint_save(s.list, in_folder("differ"), 0));
    end_side(&s);
    tutti_comm_destroy(&comm);
}

static const rig_test tests[] = {
    {"own to own", test_own_to_own, 0, 0, false},
    {"store to own", test_store_to_own, 0, 0, false},
    {"own to store", test_own_to_store, 0, 0, false},
    {"masters with more digits", test_rounded, 0, 0, false},
    {"other ranks", test_other_ranks, 0, 0, false},
    {"optimizer state", test_optimizer_state, 0, 0, false},
    {"beside a store", test_beside_a_store, 0, 0, false},
    {"part of a store", test_part_of_a_store, 0, 0, false},
    {"other shapes", test_other_shapes, 0, 0, false},
    {"ranks differ", test_ranks_differ, 2, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "own parameters", tests, HARNESS_COUNT(tests));
}
