/* Bad input for checkpoint.h.  A library without HDF5 refuses everything and tells what to
 * install. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bad_input.h"

#ifdef TESTS_WITH_HDF5
#define IO_FAILS(wanted, word, call) CHECK_FAILS(wanted, word, call)
#else
#define IO_FAILS(wanted, word, call) CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "libhdf5-dev", call)
#endif

/* A communicator of one rank, a built store with the parameter "p" of 5 elements, and an empty
 * list. */
typedef struct io_rig {
    tutti_comm *comm;
    tutti_param param;
    tutti_params *params;
    tutti_checkpoint *list; /* not a valid pointer without HDF5 */
} io_rig;

static void begin(io_rig *rig)
{
    tutti_context *ctx = harness_context();
    tutti_comm_desc desc = TUTTI_COMM_DESC_INIT;
    desc.transport = TUTTI_TRANSPORT_SELF;
    *rig = (io_rig){.param = {.name = "p", .weight_decay = 1, .lr_scale = 1}};
    rig->param.value = tutti_tensor_1d(NULL, TUTTI_F32, 5);
    CHECK_OK(tutti_comm_create(ctx, &desc, &rig->comm));
    CHECK_OK(tutti_params_create(ctx, NULL, &rig->params));
    CHECK_OK(tutti_params_add_param(rig->params, &rig->param));
    CHECK_OK(tutti_params_build(rig->params, ctx));
#ifdef TESTS_WITH_HDF5
    CHECK_OK(tutti_checkpoint_create(ctx, rig->comm, &rig->list));
#else
    rig->list = UNTOUCHED(tutti_checkpoint);
#endif
}

static void end(io_rig *rig)
{
#ifdef TESTS_WITH_HDF5
    tutti_checkpoint_destroy(&rig->list);
    CHECK(!rig->list, "the pointer was not cleared");
#endif
    tutti_params_destroy(&rig->params);
    tutti_comm_destroy(&rig->comm);
}

static void bad_checkpoint_create(void)
{
    io_rig rig;
    begin(&rig);
    tutti_context *ctx = harness_context();
    tutti_checkpoint *list = UNTOUCHED(tutti_checkpoint);
    IO_FAILS(TUTTI_ERR_ARG, "comm", tutti_checkpoint_create(ctx, NULL, &list));
    IO_FAILS(TUTTI_ERR_ARG, "ctx", tutti_checkpoint_create(NULL, rig.comm, &list));
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is", tutti_checkpoint_create(ctx, rig.comm, NULL));
    tutti_context *other = foreign_context();
    if (other) IO_FAILS(TUTTI_ERR_ARG, "context", tutti_checkpoint_create(other, rig.comm, &list));
    CHECK(list == UNTOUCHED(tutti_checkpoint), "the output was written");
    end(&rig);
}

static void bad_checkpoint_destroy(void)
{
    tutti_checkpoint_destroy(NULL);
    tutti_checkpoint *list = NULL;
    tutti_checkpoint_destroy(&list);
    io_rig rig;
    begin(&rig);
    end(&rig);
}

static void bad_checkpoint_add_params(void)
{
    io_rig rig;
    begin(&rig);
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is", tutti_checkpoint_add_params(NULL, rig.params));
    IO_FAILS(TUTTI_ERR_ARG, "params", tutti_checkpoint_add_params(rig.list, NULL));
    tutti_params *other = NULL;
    CHECK_OK(tutti_params_create(harness_context(), NULL, &other));
    IO_FAILS(TUTTI_ERR_STATE, "built", tutti_checkpoint_add_params(rig.list, other));
    /* the second name is taken: the first must not be added */
    tutti_param a = rig.param, b = rig.param;
    int64_t number = 0;
    snprintf(a.name, sizeof a.name, "a/b");
    snprintf(b.name, sizeof b.name, "fine");
#ifdef TESTS_WITH_HDF5
    CHECK_OK(tutti_checkpoint_add_int(rig.list, "model/a", &number));
#else
    (void)number;
#endif
    CHECK_OK(tutti_params_add_param(other, &a));
    CHECK_OK(tutti_params_add_param(other, &b));
    CHECK_OK(tutti_params_build(other, harness_context()));
    IO_FAILS(TUTTI_ERR_ARG, "a/b", tutti_checkpoint_add_params(rig.list, other));
    tutti_params_destroy(&other);
#ifdef TESTS_WITH_HDF5
    CHECK_OK(tutti_checkpoint_add_int(rig.list, "model/fine", &number));
    CHECK_OK(tutti_checkpoint_add_params(rig.list, rig.params));
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_checkpoint_add_params(rig.list, rig.params));
#endif
    end(&rig);
}

/* Names that are not valid paths, for a function that takes one. */
#define CHECK_NAMES(call)                                                            \
    do {                                                                             \
        char long_name[300];                                                         \
        memset(long_name, 'a', sizeof long_name);                                    \
        long_name[sizeof long_name - 1] = 0;                                         \
        const char *const names[] = {"",    "/",    "a/", "/a",  "a//b", "a b",      \
                                     "a/.", "../a", "ä",  "a\n", "a:b",  long_name}; \
        for (int i_ = 0; i_ < HARNESS_COUNT(names); i_++) {                          \
            const char *name = names[i_];                                            \
            IO_FAILS(TUTTI_ERR_ARG, "name", call);                                   \
        }                                                                            \
    } while (0)

static tutti_status add_named(io_rig *rig, const char *name)
{
    return tutti_checkpoint_add_param(rig->list, name, &rig->param);
}

static void bad_checkpoint_add_param(void)
{
    io_rig rig;
    begin(&rig);
    static float memory[12];
    tutti_param unbound = {.name = "w", .value = tutti_tensor_1d(NULL, TUTTI_BF16, 6)};
    tutti_param own = unbound, bad;
    const tutti_tensor value = tutti_tensor_1d(memory, TUTTI_BF16, 6);
    CHECK_OK(tutti_param_bind(&own, &value, NULL));
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is", tutti_checkpoint_add_param(NULL, "w", &own));
    IO_FAILS(TUTTI_ERR_ARG, "param is", tutti_checkpoint_add_param(rig.list, "w", NULL));
    IO_FAILS(TUTTI_ERR_STATE, "w is not bound",
             tutti_checkpoint_add_param(rig.list, "w", &unbound));
    bad = own, bad.name[0] = 0;
    IO_FAILS(TUTTI_ERR_ARG, "name", tutti_checkpoint_add_param(rig.list, NULL, &bad));
    memset(bad.name, 'n', sizeof bad.name);
    IO_FAILS(TUTTI_ERR_ARG, "name", tutti_checkpoint_add_param(rig.list, NULL, &bad));
    CHECK_NAMES(add_named(&rig, name));
    /* parameters that neither tutti_param_bind nor a store has made */
    for (int wrong = 0; wrong < 10; wrong++) {
        bad = own;
        if (wrong == 0) bad.value.dtype = TUTTI_I32;
        if (wrong == 1) bad.value.dtype = (tutti_dtype)99;
        if (wrong == 2) bad.value.ndim = 0;
        if (wrong == 3) bad.value.ndim = TUTTI_MAX_DIMS + 1;
        if (wrong == 4) bad.value.dims[0] = 0;
        if (wrong == 5) bad.value.strides[0] = 2;
        if (wrong >= 6) bad.master = tutti_tensor_1d(memory + 3, TUTTI_F32, 6);
        if (wrong == 6) bad.master.data = memory + 2; /* overlaps the value's last two elements */
        if (wrong == 7) bad.master.dtype = TUTTI_F64;
        if (wrong == 8) bad.master.dims[0] = 5;
        if (wrong == 9) bad.value.dtype = TUTTI_F32;
        harness_where("wrong in way %d", wrong);
        IO_FAILS(TUTTI_ERR_ARG, wrong > 5 && wrong < 9 ? "w: master" : "w: ",
                 tutti_checkpoint_add_param(rig.list, "w", &bad));
    }
    harness_where(NULL);
#ifdef TESTS_WITH_HDF5
    int64_t number = 0;
    CHECK_OK(tutti_checkpoint_add_int(rig.list, "model/w", &number)); /* nothing was added */
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_checkpoint_add_param(rig.list, "w", &own));
    CHECK_OK(tutti_checkpoint_add_param(rig.list, "block0.norm/gamma", &own));
    CHECK_FAILS(TUTTI_ERR_ARG, "taken",
                tutti_checkpoint_add_param(rig.list, "block0.norm/gamma", &own));
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_checkpoint_add_param(rig.list, "block0.norm", &own));
    CHECK_OK(tutti_checkpoint_add_params(rig.list, rig.params));
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_checkpoint_add_param(rig.list, "p", &own));
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_checkpoint_add_param(rig.list, NULL, &rig.param));
#endif
    end(&rig);
}

static void bad_checkpoint_add_state(void)
{
    io_rig rig;
    begin(&rig);
    static float memory[16];
    const tutti_state_tensor good = {"m", tutti_tensor_2d(memory, TUTTI_F32, 2, 3), 0};
    tutti_state_tensor bad = good;
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is", tutti_checkpoint_add_state(NULL, rig.params, &good));
    IO_FAILS(TUTTI_ERR_ARG, "state is", tutti_checkpoint_add_state(rig.list, rig.params, NULL));
    bad.name = NULL;
    IO_FAILS(TUTTI_ERR_ARG, "name", tutti_checkpoint_add_state(rig.list, rig.params, &bad));
    bad.name = "";
    IO_FAILS(TUTTI_ERR_ARG, "name", tutti_checkpoint_add_state(rig.list, rig.params, &bad));
    bad = good, bad.like_store = 1;
    IO_FAILS(TUTTI_ERR_ARG, "params", tutti_checkpoint_add_state(rig.list, NULL, &bad));
    IO_FAILS(TUTTI_ERR_ARG, "like_store", tutti_checkpoint_add_state(rig.list, rig.params, &bad));
    for (int wrong = 0; wrong < 8; wrong++) {
        bad = good;
        if (wrong == 0) bad.tensor.data = NULL;
        if (wrong == 1) bad.tensor.dtype = (tutti_dtype)99;
        if (wrong == 2) bad.tensor.ndim = 0;
        if (wrong == 3) bad.tensor.ndim = TUTTI_MAX_DIMS + 1;
        if (wrong == 4) bad.tensor.dims[1] = -3;
        if (wrong == 5) bad.tensor.dims[1] = INT64_MAX / 2;
        if (wrong == 6) bad.tensor.strides[0] = 4;
        if (wrong == 7) bad.tensor.dims[0] = 0;
        harness_where("wrong in way %d", wrong);
        IO_FAILS(TUTTI_ERR_ARG, "tensor", tutti_checkpoint_add_state(rig.list, rig.params, &bad));
    }
    harness_where(NULL);
    end(&rig);
}

static void bad_checkpoint_add_int(void)
{
    io_rig rig;
    begin(&rig);
    int64_t value = 0;
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is", tutti_checkpoint_add_int(NULL, "a", &value));
    IO_FAILS(TUTTI_ERR_ARG, "name", tutti_checkpoint_add_int(rig.list, NULL, &value));
    IO_FAILS(TUTTI_ERR_ARG, "value", tutti_checkpoint_add_int(rig.list, "a", NULL));
    CHECK_NAMES(tutti_checkpoint_add_int(rig.list, name, &value));
#ifdef TESTS_WITH_HDF5
    CHECK_OK(tutti_checkpoint_add_int(rig.list, "a/b", &value));
    CHECK_OK(tutti_checkpoint_add_int(rig.list, "a/bc", &value));
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_checkpoint_add_int(rig.list, "a/b", &value));
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_checkpoint_add_int(rig.list, "a", &value));
    CHECK_FAILS(TUTTI_ERR_ARG, "taken", tutti_checkpoint_add_int(rig.list, "a/b/c", &value));
#endif
    end(&rig);
}

static void bad_checkpoint_add_real(void)
{
    io_rig rig;
    begin(&rig);
    double value = 0;
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is", tutti_checkpoint_add_real(NULL, "a", &value));
    IO_FAILS(TUTTI_ERR_ARG, "name", tutti_checkpoint_add_real(rig.list, NULL, &value));
    IO_FAILS(TUTTI_ERR_ARG, "value", tutti_checkpoint_add_real(rig.list, "a", NULL));
    CHECK_NAMES(tutti_checkpoint_add_real(rig.list, name, &value));
    end(&rig);
}

static void bad_checkpoint_add_text(void)
{
    io_rig rig;
    begin(&rig);
    char text[8] = "";
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is", tutti_checkpoint_add_text(NULL, "a", text, 8));
    IO_FAILS(TUTTI_ERR_ARG, "name", tutti_checkpoint_add_text(rig.list, NULL, text, 8));
    IO_FAILS(TUTTI_ERR_ARG, "text", tutti_checkpoint_add_text(rig.list, "a", NULL, 8));
    IO_FAILS(TUTTI_ERR_ARG, "size", tutti_checkpoint_add_text(rig.list, "a", text, 0));
    IO_FAILS(TUTTI_ERR_ARG, "size", tutti_checkpoint_add_text(rig.list, "a", text, SIZE_MAX));
    CHECK_NAMES(tutti_checkpoint_add_text(rig.list, name, text, 8));
    end(&rig);
}

static void bad_checkpoint_add_table(void)
{
    io_rig rig;
    begin(&rig);
    double values[6] = {0};
    int64_t rows = 0;
    tutti_checkpoint *list = rig.list;
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is",
             tutti_checkpoint_add_table(NULL, "a", values, 2, 3, &rows));
    IO_FAILS(TUTTI_ERR_ARG, "name", tutti_checkpoint_add_table(list, NULL, values, 2, 3, &rows));
    IO_FAILS(TUTTI_ERR_ARG, "values", tutti_checkpoint_add_table(list, "a", NULL, 2, 3, &rows));
    IO_FAILS(TUTTI_ERR_ARG, "rows", tutti_checkpoint_add_table(list, "a", values, 2, 3, NULL));
    static const int64_t wrong[] = {0, -1, INT64_MAX};
    for (int i = 0; i < HARNESS_COUNT(wrong); i++)
        IO_FAILS(TUTTI_ERR_ARG, "capacity",
                 tutti_checkpoint_add_table(list, "a", values, 2, wrong[i], &rows));
    IO_FAILS(TUTTI_ERR_ARG, "cols", tutti_checkpoint_add_table(list, "a", values, 0, 3, &rows));
    IO_FAILS(TUTTI_ERR_ARG, "cols", tutti_checkpoint_add_table(list, "a", values, -2, 3, &rows));
    CHECK_NAMES(tutti_checkpoint_add_table(list, name, values, 2, 3, &rows));
    end(&rig);
}

typedef tutti_status writing(tutti_checkpoint *checkpoint, const char *path, int keep);

static void bad_writing(writing *call)
{
    io_rig rig;
    begin(&rig);
    char path[64], text[4] = "abc";
    snprintf(path, sizeof path, "/tmp/tutti-bad-%d", (int)getpid());
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is", call(NULL, path, 0));
    IO_FAILS(TUTTI_ERR_ARG, "path", call(rig.list, NULL, 0));
    IO_FAILS(TUTTI_ERR_ARG, "path", call(rig.list, "", 0));
    char *long_path = harness_calloc(1, 5001);
    memset(long_path, 'a', 5000);
    IO_FAILS(TUTTI_ERR_ARG, "path", call(rig.list, long_path, 0));
    free(long_path);
    IO_FAILS(TUTTI_ERR_ARG, "keep", call(rig.list, path, -1));
    IO_FAILS(TUTTI_ERR_ARG, "keep", call(rig.list, path, 1000000));
    IO_FAILS(TUTTI_ERR_IO, "regular", call(rig.list, "/tmp", 0));
#ifdef TESTS_WITH_HDF5
    double values[4] = {0};
    int64_t rows = 3;
    CHECK_OK(tutti_checkpoint_add_table(rig.list, "t", values, 2, 2, &rows));
    CHECK_FAILS(TUTTI_ERR_ARG, "rows", call(rig.list, path, 0));
    rows = -1;
    CHECK_FAILS(TUTTI_ERR_ARG, "rows", call(rig.list, path, 0));
    rows = 2;
    CHECK_OK(tutti_checkpoint_add_text(rig.list, "text", text, 3)); /* its 0 is beyond the end */
    CHECK_FAILS(TUTTI_ERR_ARG, "text", call(rig.list, path, 0));
#else
    (void)text;
#endif
    CHECK(access(path, F_OK) != 0, "%s was made", path);
    strcat(path, ".lck");
    CHECK(access(path, F_OK) != 0, "%s was made", path);
    end(&rig);
}

static void bad_checkpoint_own(void)
{
    bad_writing(tutti_checkpoint_own);
}

static void bad_checkpoint_save(void)
{
    bad_writing(tutti_checkpoint_save);
}

static void bad_checkpoint_load(void)
{
    io_rig rig;
    begin(&rig);
    IO_FAILS(TUTTI_ERR_ARG, "checkpoint is", tutti_checkpoint_load(NULL, "/tmp/x", 0));
    IO_FAILS(TUTTI_ERR_ARG, "path", tutti_checkpoint_load(rig.list, NULL, 0));
    IO_FAILS(TUTTI_ERR_ARG, "path", tutti_checkpoint_load(rig.list, "", 0));
    IO_FAILS(TUTTI_ERR_ARG, "flags", tutti_checkpoint_load(rig.list, "/tmp/x", 4));
    IO_FAILS(TUTTI_ERR_IO, "/no/such", tutti_checkpoint_load(rig.list, "/no/such", 0));
    IO_FAILS(TUTTI_ERR_IO, "regular", tutti_checkpoint_load(rig.list, "/tmp", 0));
    end(&rig);
}

static void count_tensors(void *user, const char *name, const tutti_tensor *shape)
{
    (void)name, (void)shape;
    ++*(int *)user;
}

static void bad_checkpoint_visit(void)
{
    int seen = 0;
    IO_FAILS(TUTTI_ERR_ARG, "path is NULL", tutti_checkpoint_visit(NULL, count_tensors, &seen));
    IO_FAILS(TUTTI_ERR_ARG, "path is empty", tutti_checkpoint_visit("", count_tensors, &seen));
    IO_FAILS(TUTTI_ERR_ARG, "visit is NULL", tutti_checkpoint_visit("/tmp", NULL, &seen));
    IO_FAILS(TUTTI_ERR_IO, "regular", tutti_checkpoint_visit("/tmp", count_tensors, &seen));
    IO_FAILS(TUTTI_ERR_IO, "/no/such", tutti_checkpoint_visit("/no/such", count_tensors, &seen));
    CHECK(seen == 0, "%d tensors in nothing", seen);
}

const harness_test bad_io[] = {
    {"tutti_checkpoint_create", bad_checkpoint_create},
    {"tutti_checkpoint_destroy", bad_checkpoint_destroy},
    {"tutti_checkpoint_add_params", bad_checkpoint_add_params},
    {"tutti_checkpoint_add_param", bad_checkpoint_add_param},
    {"tutti_checkpoint_add_state", bad_checkpoint_add_state},
    {"tutti_checkpoint_add_int", bad_checkpoint_add_int},
    {"tutti_checkpoint_add_real", bad_checkpoint_add_real},
    {"tutti_checkpoint_add_text", bad_checkpoint_add_text},
    {"tutti_checkpoint_add_table", bad_checkpoint_add_table},
    {"tutti_checkpoint_own", bad_checkpoint_own},
    {"tutti_checkpoint_save", bad_checkpoint_save},
    {"tutti_checkpoint_load", bad_checkpoint_load},
    {"tutti_checkpoint_visit", bad_checkpoint_visit},
    {NULL, NULL},
};
