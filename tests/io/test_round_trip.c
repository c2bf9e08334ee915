/* Save and load: everything is restored, on any number of ranks, and equal states give equal
 * bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state.h"

static void check_round_trip(tutti_dtype masters, bool big)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, masters, big);
    if (!s) return;
    const char *path = in_folder("round");
    for (uint64_t seed = 1; seed <= (big ? 1 : 3); seed++) {
        state_fill(s, seed);
        CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
        state_fill(s, seed + 100);
        CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
        CHECK_STATE(s, seed);
    }
    CHECK(!file_exists(in_folder("round.tmp")), "the temporary file is still there");
    state_free(&s);
}

static void test_f32(void)
{
    check_round_trip(TUTTI_F32, false);
}
static void test_f64(void)
{
    check_round_trip(TUTTI_F64, false);
}
static void test_several_blocks(void)
{
    check_round_trip(TUTTI_F32, true);
}

static void test_save_load_save(void)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, true);
    if (!s) return;
    const char *first = in_folder("first"), *second = in_folder("second");
    state_fill(s, 5);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, first, 0));
    state_fill(s, 6);
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, first, 0));
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, second, 0));
    if (rig_rank() == 0) CHECK(file_same(first, second), "equal states are not equal bytes");
    state_free(&s);
}

static void check_seed(state *s, const char *path, int older, uint64_t seed)
{
    char name[300];
    snprintf(name, sizeof name, older ? "%s.%d" : "%s", path, older);
    rig_barrier();
    harness_where("%s", name);
    if (seed == 0)
        CHECK(!file_exists(name), "%s exists", name);
    else {
        state_fill(s, 99);
        CHECK_OK(tutti_checkpoint_load(s->checkpoint, name, 0));
        CHECK_STATE(s, seed);
    }
    harness_where(NULL);
    rig_barrier();
}

static void check_keep(int keep)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, false);
    if (!s) return;
    char name[32];
    snprintf(name, sizeof name, "keep%d", keep);
    const char *path = in_folder(name);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        state_fill(s, seed);
        CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, keep));
        check_seed(s, path, 0, seed);
        for (int i = 1; i <= keep + 1; i++)
            check_seed(s, path, i, i <= keep && seed > (uint64_t)i ? seed - (uint64_t)i : 0);
    }
    state_free(&s);
}

static void test_keep_none(void)
{
    check_keep(0);
}
static void test_keep_one(void)
{
    check_keep(1);
}
static void test_keep_three(void)
{
    check_keep(3);
}

/* If fewer are kept than before, the oldest files stay and the newest are rotated. */
static void test_keep_changes(void)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, false);
    if (!s) return;
    const char *path = in_folder("changes");
    static const int keep[] = {2, 2, 2, 1, 0, 2};
    for (uint64_t seed = 1; seed <= 6; seed++) {
        state_fill(s, seed);
        CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, keep[seed - 1]));
    }
    check_seed(s, path, 0, 6);
    check_seed(s, path, 1, 5);
    check_seed(s, path, 2, 3);
    state_free(&s);
}

/* A rank that does not see the file does not write to it. */
static void test_one_rank_elsewhere(void)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, true);
    if (!s) return;
    char before[1024];
    CHECK(getcwd(before, sizeof before), "no folder");
    CHECK(chdir(rig_rank() == 1 ? "/" : folder()) == 0, "no folder");
    state_fill(s, 8);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, "elsewhere", 0));
    state_fill(s, 9);
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, "elsewhere", 0));
    CHECK_STATE(s, 8);
    CHECK(chdir(before) == 0, "no folder");
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, in_folder("here"), 0));
    if (rig_rank() == 0)
        CHECK(file_same(in_folder("here"), in_folder("elsewhere")), "the bytes differ");
    state_free(&s);
}

/* A list may be empty or hold values only. */
static void test_small_lists(void)
{
    tutti_comm *comm = rig_comm(rig_context(), TUTTI_TRANSPORT_AUTO);
    if (!comm) return;
    tutti_checkpoint *list = NULL;
    const char *path = in_folder("small");
    int64_t value = 7, rows = 0;
    double table[4] = {1, 2, 3, 4};
    char text[8] = "";
    CHECK_OK(tutti_checkpoint_create(rig_context(), comm, &list));
    CHECK_OK(tutti_checkpoint_save(list, path, 0));
    CHECK_OK(tutti_checkpoint_load(list, path, 0));
    CHECK_OK(tutti_checkpoint_add_int(list, "a.b/c-d/E_1", &value));
    CHECK_OK(tutti_checkpoint_add_table(list, "table", table, 2, 2, &rows));
    CHECK_OK(tutti_checkpoint_add_text(list, "text", text, sizeof text));
    CHECK_OK(tutti_checkpoint_save(list, path, 0));
    value = 0;
    rows = 2;
    strcpy(text, "other");
    CHECK_OK(tutti_checkpoint_load(list, path, 0));
    CHECK(value == 7 && rows == 0 && text[0] == 0, "value %d, %d rows, '%s'", (int)value, (int)rows,
          text);
    tutti_checkpoint_destroy(&list);
    tutti_comm_destroy(&comm);
}

/* A model of two parameters, of which the second may be frozen, and its checkpoint. */
typedef struct pair {
    tutti_param param[2];
    tutti_params *params;
    tutti_adamw *adamw;
    tutti_checkpoint *list;
} pair;

static void make_pair(pair *p, tutti_context *ctx, tutti_comm *comm, bool frozen, uint64_t seed)
{
    *p = (pair){.params = NULL};
    CHECK_OK(tutti_params_create(ctx, NULL, &p->params));
    for (int i = 0; i < 2; i++) {
        p->param[i] = (tutti_param){.lr_scale = 1, .init = TUTTI_INIT_UNIFORM, .init_bound = 1};
        snprintf(p->param[i].name, sizeof p->param[i].name, i ? "base" : "head");
        p->param[i].value = tutti_tensor_1d(NULL, TUTTI_F32, 150);
        CHECK_OK(tutti_params_add_param(p->params, &p->param[i]));
    }
    if (frozen) CHECK_OK(tutti_params_freeze(p->params, &p->param[1]));
    CHECK_OK(tutti_params_build(p->params, ctx));
    CHECK_OK(tutti_params_init(p->params, ctx, seed));
    CHECK_OK(tutti_adamw_create(ctx, p->params, NULL, &p->adamw));
    CHECK_OK(tutti_checkpoint_create(ctx, comm, &p->list));
    CHECK_OK(tutti_checkpoint_add_params(p->list, p->params));
    for (int i = 0; i < tutti_adamw_state_count(p->adamw); i++) {
        tutti_state_tensor state;
        CHECK_OK(tutti_adamw_state_get(p->adamw, i, &state));
        CHECK_OK(tutti_checkpoint_add_state(p->list, p->params, &state));
    }
}

static void end_pair(pair *p)
{
    tutti_checkpoint_destroy(&p->list);
    tutti_adamw_destroy(&p->adamw);
    tutti_params_destroy(&p->params);
}

static void check_equal_masters(tutti_context *ctx, const pair *a, const pair *b, bool equal)
{
    for (int i = 0; i < 2; i++) {
        float x[150], y[150];
        CHECK_OK(tutti_copy(ctx, x, a->param[i].master.data, sizeof x));
        CHECK_OK(tutti_copy(ctx, y, b->param[i].master.data, sizeof y));
        CHECK_OK(tutti_context_synchronize(ctx));
        CHECK((memcmp(x, y, sizeof x) == 0) == equal, "%s is %s", a->param[i].name,
              equal ? "another" : "the same");
    }
}

/* A frozen parameter is in the file, its optimizer's state is not. */
static void test_frozen(void)
{
    tutti_context *ctx = rig_context();
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_AUTO);
    if (!comm) return;
    pair frozen, again, trained;
    make_pair(&frozen, ctx, comm, true, 1);
    make_pair(&again, ctx, comm, true, 2);
    make_pair(&trained, ctx, comm, false, 3);
    check_equal_masters(ctx, &frozen, &again, false);
    CHECK_OK(tutti_checkpoint_save(frozen.list, in_folder("frozen"), 0));
    CHECK_OK(tutti_checkpoint_load(again.list, in_folder("frozen"), 0));
    check_equal_masters(ctx, &frozen, &again, true);
    /* trained on from now, its state is missing */
    CHECK_FAILS(TUTTI_ERR_DATA, "base/m",
                tutti_checkpoint_load(trained.list, in_folder("frozen"), 0));
    check_equal_masters(ctx, &frozen, &trained, false);
    /* frozen from now on, its state is of no use */
    CHECK_OK(tutti_checkpoint_save(trained.list, in_folder("trained"), 0));
    CHECK_FAILS(TUTTI_ERR_DATA, "base/m",
                tutti_checkpoint_load(frozen.list, in_folder("trained"), 0));
    check_equal_masters(ctx, &again, &frozen, true);
    CHECK_OK(tutti_checkpoint_load(frozen.list, in_folder("trained"), TUTTI_CHECKPOINT_SUBSET));
    check_equal_masters(ctx, &frozen, &trained, true);
    end_pair(&frozen);
    end_pair(&again);
    end_pair(&trained);
    tutti_comm_destroy(&comm);
}

static const rig_test tests[] = {
    {"f32 masters", test_f32, 0, 0, false},
    {"f64 masters", test_f64, 0, 0, false},
    {"several blocks", test_several_blocks, 0, 0, false},
    {"save, load, save", test_save_load_save, 0, 0, false},
    {"keep none", test_keep_none, 0, 0, false},
    {"keep one", test_keep_one, 0, 0, false},
    {"keep three", test_keep_three, 0, 0, false},
    {"keep changes", test_keep_changes, 0, 0, false},
    {"small lists", test_small_lists, 0, 0, false},
    {"frozen parameters", test_frozen, 0, 0, false},
    {"one rank elsewhere", test_one_rank_elsewhere, 2, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "checkpoints", tests, HARNESS_COUNT(tests));
}
