/* Bad input for cases.h, and for what looks into a checkpoint.  A library without HDF5 refuses everything, and says what to install. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bad_input.h"

#ifdef TESTS_WITH_HDF5
#define CASES_FAIL(wanted, word, call) CHECK_FAILS(wanted, word, call)
#else
#define CASES_FAIL(wanted, word, call) CHECK_FAILS(TUTTI_ERR_UNSUPPORTED, "libhdf5-dev", call)
#endif

static const float numbers[6] = {1, 2, 3, 4, 5, 6};

static tutti_case a_case(const char *name)
{
    tutti_case which = {.layer = "softmax", .options = "cols=2", .loss_weight = 1, .loss_scale = 1};
    snprintf(which.name, sizeof which.name, "%s", name);
    return which;
}

static tutti_case_tensor a_tensor(tutti_case_part part, const char *name)
{
    tutti_case_tensor tensor = {.part = part, .dtype = TUTTI_F32, .ndim = 2, .dims = {3, 2}};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    return tensor;
}

static const char *path_of(const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/tutti-bad-cases-%d-%s", (int)getpid(), name);
    return path;
}

#ifdef TESTS_WITH_HDF5

static tutti_cases_writer *begin_writer(const char *name)
{
    tutti_cases_writer *writer = NULL;
    CHECK_OK(tutti_cases_writer_create(path_of(name), TUTTI_CASES_FORMAT, &writer));
    return writer;
}

/* A file of one case, opened and already unlinked. */
static tutti_cases *good_file(void)
{
    tutti_cases_writer *writer = begin_writer("good");
    tutti_case which = a_case("one");
    tutti_case_tensor x = a_tensor(TUTTI_CASE_INPUTS, "x"), y = a_tensor(TUTTI_CASE_EXPECTED, "y");
    CHECK_OK(tutti_cases_writer_add(writer, &which));
    CHECK_OK(tutti_cases_writer_tensor(writer, &x, TUTTI_F32, numbers));
    CHECK_OK(tutti_cases_writer_tensor(writer, &y, TUTTI_F32, numbers));
    CHECK_OK(tutti_cases_writer_finish(writer));
    tutti_cases_writer_destroy(&writer);
    tutti_cases *cases = NULL;
    CHECK_OK(tutti_cases_open(path_of("good"), &cases));
    unlink(path_of("good"));
    return cases;
}

#else

static tutti_cases_writer *begin_writer(const char *name)
{
    (void)name;
    return NULL;
}

static tutti_cases *good_file(void)
{
    return NULL;
}

#endif

static void bad_case_part_name(void)
{
    CHECK(strcmp(tutti_case_part_name((tutti_case_part)-1), "unknown") == 0, "a name for -1");
    CHECK(strcmp(tutti_case_part_name((tutti_case_part)99), "unknown") == 0, "a name for 99");
    CHECK(strcmp(tutti_case_part_name(TUTTI_CASE_INPUTS), "inputs") == 0, "inputs");
}

static void bad_case_find(void)
{
    tutti_case which = a_case("one");
    CHECK(!tutti_case_find(NULL, TUTTI_CASE_INPUTS, "x"), "found in NULL");
    CHECK(!tutti_case_find(&which, TUTTI_CASE_INPUTS, NULL), "found NULL");
    CHECK(!tutti_case_find(&which, TUTTI_CASE_INPUTS, "x"), "found in an empty case");
}

static void bad_cases_open(void)
{
    tutti_cases *cases = UNTOUCHED(tutti_cases);
    CASES_FAIL(TUTTI_ERR_ARG, "path is NULL", tutti_cases_open(NULL, &cases));
    CASES_FAIL(TUTTI_ERR_ARG, "path is empty", tutti_cases_open("", &cases));
    CASES_FAIL(TUTTI_ERR_ARG, "cases is NULL", tutti_cases_open("/dev/null", NULL));
    CASES_FAIL(TUTTI_ERR_IO, "regular", tutti_cases_open("/tmp", &cases));
    CASES_FAIL(TUTTI_ERR_IO, path_of("nowhere"), tutti_cases_open(path_of("nowhere"), &cases));
    CHECK(cases == UNTOUCHED(tutti_cases), "the output was written");
}

static void bad_cases_close(void)
{
    tutti_cases_close(NULL);
    tutti_cases *cases = good_file();
    tutti_cases_close(&cases);
    CHECK(!cases, "the pointer was not cleared");
    tutti_cases_close(&cases);
}

static void bad_cases_count(void)
{
    CHECK(tutti_cases_count(NULL) == 0, "cases in NULL");
}

static void bad_cases_get(void)
{
    CHECK(!tutti_cases_get(NULL, 0), "a case of NULL");
    tutti_cases *cases = good_file();
    CHECK(!tutti_cases_get(cases, -1), "the case before the first");
    CHECK(!tutti_cases_get(cases, 1), "the case after the last");
    tutti_cases_close(&cases);
}

static void bad_cases_read(void)
{
    float data[6];
    tutti_cases *cases = good_file();
    const tutti_case *which = tutti_cases_get(cases, 0);
    const tutti_case_tensor *x = tutti_case_find(which, TUTTI_CASE_INPUTS, "x");
    tutti_case_tensor other = a_tensor(TUTTI_CASE_INPUTS, "x");
    CASES_FAIL(TUTTI_ERR_ARG, "cases is NULL", tutti_cases_read(NULL, x, 0, 3, TUTTI_F32, data));
    CASES_FAIL(TUTTI_ERR_ARG, "tensor", tutti_cases_read(cases, NULL, 0, 3, TUTTI_F32, data));
    CASES_FAIL(TUTTI_ERR_ARG, "tensor", tutti_cases_read(cases, &other, 0, 3, TUTTI_F32, data));
    CASES_FAIL(TUTTI_ERR_ARG, "rows", tutti_cases_read(cases, x, -1, 3, TUTTI_F32, data));
    CASES_FAIL(TUTTI_ERR_ARG, "rows", tutti_cases_read(cases, x, 0, -1, TUTTI_F32, data));
    CASES_FAIL(TUTTI_ERR_ARG, "rows", tutti_cases_read(cases, x, 1, 3, TUTTI_F32, data));
    CASES_FAIL(TUTTI_ERR_ARG, "rows", tutti_cases_read(cases, x, 2, INT64_MAX, TUTTI_F32, data));
    CASES_FAIL(TUTTI_ERR_ARG, "dtype", tutti_cases_read(cases, x, 0, 3, TUTTI_BF16, data));
    CASES_FAIL(TUTTI_ERR_ARG, "dtype", tutti_cases_read(cases, x, 0, 3, (tutti_dtype)77, data));
    CASES_FAIL(TUTTI_ERR_ARG, "data is NULL", tutti_cases_read(cases, x, 0, 3, TUTTI_F32, NULL));
#ifdef TESTS_WITH_HDF5
    CHECK_OK(tutti_cases_read(cases, x, 0, 3, TUTTI_F32, data));
    CHECK(memcmp(data, numbers, sizeof data) == 0, "other numbers than were written");
#endif
    tutti_cases_close(&cases);
}

static void bad_cases_writer_create(void)
{
    static char endless[8192];
    memset(endless, 'a', sizeof endless - 1);
    const char *format = TUTTI_CASES_FORMAT, *path = path_of("bad");
    tutti_cases_writer *writer = UNTOUCHED(tutti_cases_writer);
    CASES_FAIL(TUTTI_ERR_ARG, "path is NULL", tutti_cases_writer_create(NULL, format, &writer));
    CASES_FAIL(TUTTI_ERR_ARG, "path is empty", tutti_cases_writer_create("", format, &writer));
    CASES_FAIL(TUTTI_ERR_ARG, "longer", tutti_cases_writer_create(endless, format, &writer));
    CASES_FAIL(TUTTI_ERR_ARG, "format is", tutti_cases_writer_create(path, NULL, &writer));
    CASES_FAIL(TUTTI_ERR_ARG, "format is", tutti_cases_writer_create(path, "zip", &writer));
    CASES_FAIL(TUTTI_ERR_ARG, "writer is NULL", tutti_cases_writer_create(path, format, NULL));
    CASES_FAIL(TUTTI_ERR_IO, "-no/such",
               tutti_cases_writer_create(path_of("no/such"), format, &writer));
    CHECK(writer == UNTOUCHED(tutti_cases_writer), "the output was written");
    CHECK(access(path, F_OK) != 0, "a file was made");
}

static void bad_cases_writer_add(void)
{
    tutti_cases_writer *writer = begin_writer("add");
    tutti_case good = a_case("one"), slash = a_case("a/b"), empty = a_case(""), endless = good;
    memset(endless.options, 'a', sizeof endless.options);
    CASES_FAIL(TUTTI_ERR_ARG, "writer is NULL", tutti_cases_writer_add(NULL, &good));
    CASES_FAIL(TUTTI_ERR_ARG, "which is NULL", tutti_cases_writer_add(writer, NULL));
    CASES_FAIL(TUTTI_ERR_ARG, "name", tutti_cases_writer_add(writer, &slash));
    CASES_FAIL(TUTTI_ERR_ARG, "name", tutti_cases_writer_add(writer, &empty));
    CASES_FAIL(TUTTI_ERR_ARG, "options", tutti_cases_writer_add(writer, &endless));
#ifdef TESTS_WITH_HDF5
    CHECK_OK(tutti_cases_writer_add(writer, &good));
    CHECK_FAILS(TUTTI_ERR_ARG, "already", tutti_cases_writer_add(writer, &good));
#endif
    tutti_cases_writer_destroy(&writer);
}

static void bad_cases_writer_tensor(void)
{
    tutti_cases_writer *writer = begin_writer("tensor");
    tutti_case which = a_case("one");
    tutti_case_tensor good = a_tensor(TUTTI_CASE_INPUTS, "x"), part = good, dims = good,
                      negative = good, name = a_tensor(TUTTI_CASE_INPUTS, "x y");
    part.part = (tutti_case_part)99;
    dims.ndim = 5;
    negative.dims[1] = -2;
    const tutti_dtype type = TUTTI_F32;
    CASES_FAIL(TUTTI_ERR_ARG, "writer is", tutti_cases_writer_tensor(NULL, &good, type, numbers));
    CASES_FAIL(TUTTI_ERR_ARG, "tensor is", tutti_cases_writer_tensor(writer, NULL, type, numbers));
    CASES_FAIL(TUTTI_ERR_ARG, "no case", tutti_cases_writer_tensor(writer, &good, type, numbers));
#ifdef TESTS_WITH_HDF5
    CHECK_OK(tutti_cases_writer_add(writer, &which));
#endif
    (void)which;
    CASES_FAIL(TUTTI_ERR_ARG, "part is", tutti_cases_writer_tensor(writer, &part, type, numbers));
    CASES_FAIL(TUTTI_ERR_ARG, "name", tutti_cases_writer_tensor(writer, &name, type, numbers));
    CASES_FAIL(TUTTI_ERR_ARG, "ndim", tutti_cases_writer_tensor(writer, &dims, type, numbers));
    CASES_FAIL(TUTTI_ERR_ARG, "dims[1]",
               tutti_cases_writer_tensor(writer, &negative, type, numbers));
    CASES_FAIL(TUTTI_ERR_ARG, "stored",
               tutti_cases_writer_tensor(writer, &good, TUTTI_BF16, numbers));
    CASES_FAIL(TUTTI_ERR_ARG, "data is", tutti_cases_writer_tensor(writer, &good, type, NULL));
    tutti_cases_writer_destroy(&writer);
}

static void bad_cases_writer_finish(void)
{
    CASES_FAIL(TUTTI_ERR_ARG, "writer is NULL", tutti_cases_writer_finish(NULL));
    tutti_cases_writer *writer = begin_writer("finish");
#ifdef TESTS_WITH_HDF5
    CHECK_OK(tutti_cases_writer_finish(writer));
#endif
    CASES_FAIL(TUTTI_ERR_ARG, "finished", tutti_cases_writer_finish(writer));
    tutti_cases_writer_destroy(&writer);
    unlink(path_of("finish"));
}

static void bad_cases_writer_destroy(void)
{
    tutti_cases_writer_destroy(NULL);
    tutti_cases_writer *writer = begin_writer("destroy");
    tutti_cases_writer_destroy(&writer);
    CHECK(!writer, "the pointer was not cleared");
    CHECK(access(path_of("destroy"), F_OK) != 0, "an unfinished file remains");
    CHECK(access(path_of("destroy.tmp"), F_OK) != 0, "an unfinished file remains");
}

static void count_tensors(void *user, const char *name, const tutti_tensor *shape)
{
    (void)name, (void)shape;
    ++*(int *)user;
}

static void bad_checkpoint_visit(void)
{
    int seen = 0;
    CASES_FAIL(TUTTI_ERR_ARG, "path is NULL", tutti_checkpoint_visit(NULL, count_tensors, &seen));
    CASES_FAIL(TUTTI_ERR_ARG, "path is empty", tutti_checkpoint_visit("", count_tensors, &seen));
    CASES_FAIL(TUTTI_ERR_ARG, "visit is NULL", tutti_checkpoint_visit("/tmp", NULL, &seen));
    CASES_FAIL(TUTTI_ERR_IO, "regular", tutti_checkpoint_visit("/tmp", count_tensors, &seen));
    CASES_FAIL(TUTTI_ERR_IO, "/no/such", tutti_checkpoint_visit("/no/such", count_tensors, &seen));
#ifdef TESTS_WITH_HDF5
    tutti_cases_writer *writer = begin_writer("visit");
    CHECK_OK(tutti_cases_writer_finish(writer));
    tutti_cases_writer_destroy(&writer);
    CHECK_FAILS(TUTTI_ERR_DATA, "no Tutti checkpoint",
                tutti_checkpoint_visit(path_of("visit"), count_tensors, &seen));
    unlink(path_of("visit"));
#endif
    CHECK(seen == 0, "%d tensors in nothing", seen);
}

const harness_test bad_cases[] = {
    {"tutti_case_part_name", bad_case_part_name},
    {"tutti_case_find", bad_case_find},
    {"tutti_cases_open", bad_cases_open},
    {"tutti_cases_close", bad_cases_close},
    {"tutti_cases_count", bad_cases_count},
    {"tutti_cases_get", bad_cases_get},
    {"tutti_cases_read", bad_cases_read},
    {"tutti_cases_writer_create", bad_cases_writer_create},
    {"tutti_cases_writer_add", bad_cases_writer_add},
    {"tutti_cases_writer_tensor", bad_cases_writer_tensor},
    {"tutti_cases_writer_finish", bad_cases_writer_finish},
    {"tutti_cases_writer_destroy", bad_cases_writer_destroy},
    {"tutti_checkpoint_visit", bad_checkpoint_visit},
    {NULL, NULL},
};
