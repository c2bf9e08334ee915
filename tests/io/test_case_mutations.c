/* Damaged and hostile case files: seeded mutations of a good one (mutate.h), in the three ways of test_mutations.c.  Values of a
 * case file have no checksum; so what is taken must be as large as it says, and be readable to its end. */
#include <stdlib.h>
#include <string.h>

#include "mutate.h"
#include "state.h"
#include "tutti/cases.h"

static int64_t elements_of(const tutti_case_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
    return count;
}

/* Both ways: as what it is, which refuses values that are none, and as it is stored. */
static tutti_status read_tensor(const tutti_cases *cases, const tutti_case_tensor *tensor)
{
    double *data = harness_calloc((size_t)elements_of(tensor) + 1, sizeof *data);
    tutti_status status = tutti_cases_read(cases, tensor, 0, tensor->dims[0], tensor->dtype, data);
    if (status == TUTTI_OK && tensor->dtype != TUTTI_I32)
        status = tutti_cases_read(cases, tensor, 0, tensor->dims[0], TUTTI_F64, data);
    free(data);
    return status;
}

static bool try_read(const char *path, bool *taken)
{
    tutti_cases *cases = NULL;
    harness_forget_error();
    tutti_status status = tutti_cases_open(path, &cases);
    for (int i = 0; status == TUTTI_OK && i < tutti_cases_count(cases); i++) {
        const tutti_case *which = tutti_cases_get(cases, i);
        for (int j = 0; status == TUTTI_OK && j < which->tensor_count; j++) {
            if (!CHECK(elements_of(&which->tensors[j]) < 1 << 20, "a tensor larger than the file"))
                return false;
            status = read_tensor(cases, &which->tensors[j]);
        }
    }
    tutti_cases_close(&cases);
    *taken = status == TUTTI_OK;
    return *taken || mutate_refused(status, path);
}

static void put(tutti_cases_writer *writer, tutti_case_part part, const char *name,
                tutti_dtype dtype, tutti_dtype stored, int64_t rows, int64_t cols)
{
    static double values[64];
    tutti_case_tensor tensor = {.part = part, .dtype = dtype, .ndim = 2, .dims = {rows, cols}};
    strcpy(tensor.name, name);
    tensor.has_bound = part == TUTTI_CASE_EXPECTED;
    tensor.atol = 1e-6;
    CHECK_OK(tutti_cases_writer_tensor(writer, &tensor, stored, values));
}

static const char *good_file(void)
{
    const char *path = in_folder("good-cases");
    tutti_cases_writer *writer = NULL;
    CHECK_OK(tutti_cases_writer_create(path, TUTTI_CASES_FORMAT, &writer));
    for (int i = 0; i < 3; i++) {
        tutti_case which = {.layer = "rmsnorm", .options = "cols=4,x_dtype=bf16"};
        which.loss_weight = which.loss_scale = 1;
        strcpy(which.name, "case-0");
        which.name[5] = (char)('0' + i);
        CHECK_OK(tutti_cases_writer_add(writer, &which));
        put(writer, TUTTI_CASE_INPUTS, "x", TUTTI_BF16, i == 1 ? TUTTI_F64 : TUTTI_BF16, 3, 4);
        put(writer, TUTTI_CASE_INPUTS, "labels", TUTTI_I32, TUTTI_I32, 3, 1);
        put(writer, TUTTI_CASE_PARAMS, "gamma", TUTTI_F32, TUTTI_F32, 4, 1);
        put(writer, TUTTI_CASE_UPSTREAM, "dy", TUTTI_F16, TUTTI_F64, 3, 4);
        put(writer, TUTTI_CASE_EXPECTED, "y", TUTTI_BF16, TUTTI_F64, 3, 4);
        put(writer, TUTTI_CASE_EXPECTED_GRAD, "dgamma", TUTTI_F32, TUTTI_F64, 4, 1);
    }
    CHECK_OK(tutti_cases_writer_finish(writer));
    tutti_cases_writer_destroy(&writer);
    bool taken = false;
    CHECK(try_read(path, &taken) && taken, "the good file is refused: %s", tutti_last_error());
    return path;
}

static void test_as_written(void)
{
    mutate_run(good_file(), 25, NULL, try_read);
}

static void test_resealed(void)
{
    metadata_checksum checksum = mutate_checksum();
    if (checksum)
        mutate_run(good_file(), 35, checksum, try_read);
    else
        harness_skip("this HDF5 does not show its checksum");
}

static void test_oldest_format(void)
{
    const char *path = in_folder("oldest-cases");
    bool taken = false;
    mutate_oldest(good_file(), path);
    CHECK(try_read(path, &taken) && taken, "the oldest format is refused: %s", tutti_last_error());
    mutate_run(path, 40, NULL, try_read);
}

static const rig_test tests[] = {
    {"as written", test_as_written, 0, 0, false},
    {"resealed", test_resealed, 0, 0, false},
    {"oldest format", test_oldest_format, 0, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "mutated case files", tests, HARNESS_COUNT(tests));
}
