/* Damaged and hostile case files: seeded mutations of a good one (mutate.h), in the three ways of
 * test_mutations.c.  Values of a case file have no checksum, so an accepted file must only have
 * consistent sizes and be readable to its end.  Also rows: the kind of layer determines which
 * tensors have as many as the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "common/exit_code.h"
#include "common/report.h"
#include "mutate.h"
#include "state.h"

#define CHECK_CODE(call) CHECK((call) == APP_OK, "%s: %s", #call, app_failure())

static int64_t elements_of(const tutti_case_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
    return count;
}

/* Reads in both ways: converted, which refuses invalid values, and as stored. */
static int read_tensor(const tutti_cases *cases, const tutti_case_tensor *tensor)
{
    double *data = harness_calloc((size_t)elements_of(tensor) + 1, sizeof *data);
    int code = tutti_cases_read(cases, tensor, 0, tensor->dims[0], tensor->dtype, data);
    if (code == APP_OK && tensor->dtype != TUTTI_I32)
        code = tutti_cases_read(cases, tensor, 0, tensor->dims[0], TUTTI_F64, data);
    free(data);
    return code;
}

static bool try_read(const char *path, bool *taken)
{
    tutti_cases *cases = NULL;
    app_fail(APP_OK, "%s", "none");
    int code = tutti_cases_open(path, &cases);
    for (int i = 0; code == APP_OK && i < tutti_cases_count(cases); i++) {
        const tutti_case *entry = tutti_cases_get(cases, i);
        for (int j = 0; code == APP_OK && j < entry->tensor_count; j++) {
            if (!CHECK(elements_of(&entry->tensors[j]) < 1 << 20, "a tensor larger than the file"))
                return false;
            code = read_tensor(cases, &entry->tensors[j]);
        }
    }
    tutti_cases_close(&cases);
    *taken = code == APP_OK;
    return *taken || mutate_refused(app_failure(), path);
}

static void put(tutti_cases_writer *writer, tutti_case_part part, const char *name,
                tutti_dtype dtype, tutti_dtype stored, int64_t rows, int64_t cols)
{
    static double values[64];
    tutti_case_tensor tensor = {.part = part, .dtype = dtype, .ndim = 2, .dims = {rows, cols}};
    strcpy(tensor.name, name);
    tensor.has_bound = part == TUTTI_CASE_EXPECTED;
    tensor.atol = 1e-6;
    CHECK_CODE(tutti_cases_writer_tensor(writer, &tensor, stored, values));
}

static const char *good_file(void)
{
    const char *path = in_folder("good-cases");
    tutti_cases_writer *writer = NULL;
    CHECK_CODE(tutti_cases_writer_create(path, TUTTI_CASES_FORMAT, &writer));
    for (int i = 0; i < 3; i++) {
        tutti_case entry = {.layer = "rmsnorm", .options = "cols=4,x_dtype=bf16"};
        entry.loss_weight = entry.loss_scale = 1;
        strcpy(entry.name, "case-0");
        entry.name[5] = (char)('0' + i);
        CHECK_CODE(tutti_cases_writer_add(writer, &entry));
        put(writer, TUTTI_CASE_INPUTS, "x", TUTTI_BF16, i == 1 ? TUTTI_F64 : TUTTI_BF16, 3, 4);
        put(writer, TUTTI_CASE_INPUTS, "labels", TUTTI_I32, TUTTI_I32, 3, 1);
        put(writer, TUTTI_CASE_PARAMS, "gamma", TUTTI_F32, TUTTI_F32, 4, 1);
        put(writer, TUTTI_CASE_UPSTREAM, "dy", TUTTI_F16, TUTTI_F64, 3, 4);
        put(writer, TUTTI_CASE_EXPECTED, "y", TUTTI_BF16, TUTTI_F64, 3, 4);
        put(writer, TUTTI_CASE_EXPECTED_GRAD, "dgamma", TUTTI_F32, TUTTI_F64, 4, 1);
    }
    CHECK_CODE(tutti_cases_writer_finish(writer));
    tutti_cases_writer_destroy(&writer);
    bool taken = false;
    CHECK(try_read(path, &taken) && taken, "the good file is refused: %s", app_failure());
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
    CHECK(try_read(path, &taken) && taken, "the oldest format is refused: %s", app_failure());
    mutate_run(path, 40, NULL, try_read);
}

/* Opens a file of one case with 3 rows of inputs and one more expected tensor. */
static int open_with(const char *layer, const char *name, int ndim, int64_t rows, int64_t *found)
{
    static const double values[8];
    const char *path = in_folder("rows-cases");
    tutti_cases_writer *writer = NULL;
    tutti_cases *cases = NULL;
    tutti_case entry = {.name = "one", .loss_weight = 1, .loss_scale = 1};
    tutti_case_tensor given = {
        .part = TUTTI_CASE_INPUTS, .name = "in", .dtype = TUTTI_F64, .ndim = 2, .dims = {3, 1}};
    tutti_case_tensor expected = {
        .part = TUTTI_CASE_EXPECTED, .dtype = TUTTI_F64, .ndim = ndim, .dims = {rows, 1}};
    snprintf(entry.layer, sizeof entry.layer, "%s", layer);
    snprintf(expected.name, sizeof expected.name, "%s", name);
    CHECK_CODE(tutti_cases_writer_create(path, TUTTI_CASES_FORMAT, &writer));
    CHECK_CODE(tutti_cases_writer_add(writer, &entry));
    CHECK_CODE(tutti_cases_writer_tensor(writer, &given, TUTTI_F64, values));
    CHECK_CODE(tutti_cases_writer_tensor(writer, &expected, TUTTI_F64, values));
    CHECK_CODE(tutti_cases_writer_finish(writer));
    tutti_cases_writer_destroy(&writer);
    const int code = tutti_cases_open(path, &cases);
    *found = code == APP_OK ? tutti_cases_get(cases, 0)->rows : -1;
    tutti_cases_close(&cases);
    return code;
}

static void test_rows_of_outputs(void)
{
    int sums = 0, others = 0;
    int64_t rows;
    for (int i = 0; i < tutti_layer_type_count(); i++) {
        const tutti_layer_type *type = tutti_layer_type_get(i);
        for (int j = 0; j < type->slot_count; j++) {
            const tutti_slot *slot = &type->slots[j];
            const bool sum = slot->flags & TUTTI_SLOT_SUM;
            if (slot->role != TUTTI_SLOT_OUT) continue;
            sums += sum;
            others += !sum;
            CHECK_CODE(open_with(type->name, slot->name, sum ? 1 : 2, sum ? 1 : 3, &rows));
            CHECK(rows == 3, "%s of %s: %lld rows", slot->name, type->name, (long long)rows);
            if (sum && slot->cols) continue; /* the layer checks its columns */
            CHECK(open_with(type->name, slot->name, sum ? 1 : 2, sum ? 3 : 1, &rows) != APP_OK &&
                      strstr(app_failure(), sum ? "is [3], want [1]"
                                                : "is [1, 1], has 1 rows, but inputs/in is [3, 1]"),
                  "%s of %s: '%s'", slot->name, type->name, app_failure());
        }
    }
    CHECK(sums > 0 && others > 0, "%d sums and %d other outputs were looked at", sums, others);
}

/* Accepted, and refused when the layer is created.  Its use of rows is unknown, so expected tensors
 * may have any number of them. */
static void test_unknown_kind(void)
{
    int64_t rows;
    for (int ndim = 1; ndim <= 2; ndim++)
        for (int64_t count = 0; count < 5; count++) {
            CHECK_CODE(open_with("no_such_layer", "out", ndim, count, &rows));
            CHECK(rows == 3, "%lld rows", (long long)rows);
        }
    tutti_context *ctx = NULL;
    tutti_layer *layer = NULL;
    CHECK_OK(tutti_context_create(NULL, &ctx));
    CHECK_FAILS(TUTTI_ERR_ARG, "no_such_layer",
                tutti_layer_create_by_name(ctx, "no_such_layer", "", &layer));
    tutti_context_destroy(&ctx);
}

static const rig_test tests[] = {
    {"as written", test_as_written, 0, 0, false},
    {"resealed", test_resealed, 0, 0, false},
    {"oldest format", test_oldest_format, 0, 0, false},
    {"rows of outputs", test_rows_of_outputs, 0, 0, false},
    {"unknown kind", test_unknown_kind, 0, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "mutated case files", tests, HARNESS_COUNT(tests));
}
