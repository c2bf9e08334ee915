/* Invalid files: each gives a status and a message that names file and tensor, on all ranks
 * alike. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "state.h"

/* Changes a file with HDF5, on rank 0. */
typedef void (*change)(hid_t file);

static void edit(const char *path, change how)
{
    rig_barrier();
    if (rig_rank() == 0) {
        hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
        if (CHECK(file >= 0, "%s does not open", path)) how(file);
        CHECK(H5Fclose(file) >= 0, "%s does not close", path);
    }
    rig_barrier();
}

static void pass_over(void *user, const char *name, const tutti_tensor *shape)
{
    (void)user, (void)name, (void)shape;
}

/* at_root: opening the file already fails. */
static void check_edited(change how, const char *word, bool at_root)
{
    const char *path = in_folder("edited");
    state *s = state_saved(path);
    if (!s) return;
    edit(path, how);
    harness_where("want '%s'", word);
    check_refused(s, TUTTI_ERR_DATA, word, path);
    if (at_root) CHECK_FAILS(TUTTI_ERR_DATA, word, tutti_checkpoint_visit(path, pass_over, NULL));
    harness_where(NULL);
    state_free(&s);
}

static void set_int(hid_t object, const char *name, int count, const int32_t *values)
{
    hsize_t dims = (hsize_t)count;
    H5Adelete(object, name);
    hid_t space = count > 1 ? H5Screate_simple(1, &dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(H5Awrite(attribute, H5T_NATIVE_INT32, values) >= 0, "no attribute %s", name);
    H5Aclose(attribute);
    H5Sclose(space);
}

/* The content */

static void newer(hid_t file)
{
    set_int(file, "format_version", 2, (const int32_t[]){2, 7});
}
static void unknown_version(hid_t file)
{
    set_int(file, "format_version", 2, (const int32_t[]){0, 1});
}
static void newer_minor(hid_t file)
{
    set_int(file, "format_version", 2, (const int32_t[]){1, 9});
    set_int(file, "something_new", 1, (const int32_t[]){1});
}
static void no_version(hid_t file)
{
    H5Adelete(file, "format_version");
}
static void incomplete(hid_t file)
{
    set_int(file, "complete", 1, (const int32_t[]){0});
}
static void no_format(hid_t file)
{
    H5Adelete(file, "format");
}
static void no_tensor(hid_t file)
{
    H5Ldelete(file, "model/block0.norm/gamma", H5P_DEFAULT);
}
static void no_value(hid_t file)
{
    H5Ldelete(file, "state/step", H5P_DEFAULT);
}
static void one_too_many(hid_t file)
{
    H5Ocopy(file, "model/block0.norm/gamma", file, "model/block7.norm_gamma", H5P_DEFAULT,
            H5P_DEFAULT);
}
static void without(hid_t file, const char *name, const char *attribute)
{
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    H5Adelete(dataset, attribute);
    H5Dclose(dataset);
}
static void no_checksum(hid_t file)
{
    without(file, "optimizer/head-1/bias_2/m", "checksum");
}
static void no_dtype(hid_t file)
{
    without(file, "optimizer/extra/bf16", "dtype");
}
static void a_group(hid_t file)
{
    H5Ldelete(file, "history", H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, "history", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
}
static void a_link(hid_t file)
{
    H5Ldelete(file, "history", H5P_DEFAULT);
    H5Lcreate_external("/etc/passwd", "/", file, "history", H5P_DEFAULT, H5P_DEFAULT);
}
static void circles(hid_t file)
{
    H5Lcreate_hard(file, "/", file, "model/again", H5P_DEFAULT, H5P_DEFAULT);
}

/* Replaces gamma [7] by another dataset. */
static void replace(hid_t file, hid_t type, int ndim, const hsize_t *dims, bool chunked)
{
    static const char name[] = "model/block0.norm/gamma";
    H5Ldelete(file, name, H5P_DEFAULT);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(ndim, dims, NULL);
    if (chunked) H5Pset_chunk(list, ndim, dims);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    double zeros[64] = {0};
    CHECK(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros) >= 0,
          "no dataset");
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(list);
}
static void other_shape(hid_t file)
{
    replace(file, H5T_IEEE_F32LE, 2, (const hsize_t[]){3, 2}, false);
}
static void other_type(hid_t file)
{
    replace(file, H5T_IEEE_F64LE, 1, (const hsize_t[]){7}, false);
}
static void big_endian(hid_t file)
{
    replace(file, H5T_IEEE_F32BE, 1, (const hsize_t[]){7}, false);
}
static void in_chunks(hid_t file)
{
    replace(file, H5T_IEEE_F32LE, 1, (const hsize_t[]){7}, true);
}

static void test_content(void)
{
    static const struct {
        change how;
        const char *word;
        bool at_root;
    } cases[] = {
        {newer, "version 2.7, newer than this library's 1.", true},
        {unknown_version, "version 0", true},
        {no_version, "format_version", true},
        {incomplete, "incomplete", true},
        {no_format, "not a Tutti checkpoint", true},
        {no_tensor, "model/block0.norm/gamma is missing", false},
        {no_value, "state/step is missing", false},
        {one_too_many, "model/block7.norm_gamma is in the file, but is not expected", false},
        {no_checksum, "optimizer/head-1/bias_2/m has no checksum", false},
        {no_dtype, "the attribute dtype of optimizer/extra/bf16 is missing, want bf16", false},
        {a_group, "history is not a dataset", false},
        {a_link, "history is not a dataset", false},
        {circles, "model/again is in the file, but is not expected", false},
        {other_shape, "the shape of model/block0.norm/gamma is [3, 2], want [7]", false},
        {other_type, "model/block0.norm/gamma is f64, want f32", false},
        {big_endian, "model/block0.norm/gamma is of another type, want f32", false},
        {in_chunks, "model/block0.norm/gamma is not stored in one piece", false},
    };
    for (int i = 0; i < HARNESS_COUNT(cases); i++)
        check_edited(cases[i].how, cases[i].word, cases[i].at_root);
}

static void test_newer_minor_version(void)
{
    const char *path = in_folder("minor");
    state *s = state_saved(path);
    if (!s) return;
    edit(path, newer_minor);
    state_fill(s, 2);
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
    CHECK_STATE(s, 1);
    state_free(&s);
}

static void test_other_list(void)
{
    const char *path = in_folder("list");
    state *s = state_saved(path);
    if (!s) return;
    state *wide = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F64, false);
    state *big = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, true);
    check_refused(wide, TUTTI_ERR_DATA, "is f32, want f64", path);
    check_refused(big, TUTTI_ERR_DATA, "the shape of model/embed/weight is [700], want [3158073]",
                  path);
    state_free(&wide);
    state_free(&big);
    char text[4] = "";
    double table[6];
    int64_t rows = 0;
    tutti_checkpoint *list = NULL;
    static const char *const words[] = {
        "config/activation has 1 bytes, want at most 0", "history has 1 rows, want at most",
        "want [rows, 2]", "state/step is i64, want f64", "state/step is i64, want text"};
    for (int i = 0; i < HARNESS_COUNT(words); i++) {
        CHECK_OK(tutti_checkpoint_create(s->ctx, s->comm, &list));
        if (i == 0) CHECK_OK(tutti_checkpoint_add_text(list, "config/activation", text, 1));
        if (i == 1) CHECK_OK(tutti_checkpoint_add_table(list, "history", table, 3, 1, &rows));
        if (i == 2) CHECK_OK(tutti_checkpoint_add_table(list, "history", table, 2, 3, &rows));
        if (i == 3) CHECK_OK(tutti_checkpoint_add_real(list, "state/step", table));
        if (i == 4) CHECK_OK(tutti_checkpoint_add_text(list, "state/step", text, 4));
        tutti_status status = tutti_checkpoint_load(list, path, TUTTI_CHECKPOINT_SUBSET);
        if (i == 1) /* one row fits */
            CHECK(status == TUTTI_OK && rows == 1, "%s", tutti_last_error());
        else
            CHECK(status == TUTTI_ERR_DATA && strstr(tutti_last_error(), words[i]),
                  "'%s', want '%s'", tutti_last_error(), words[i]);
        tutti_checkpoint_destroy(&list);
    }
    state_free(&s);
}

static void test_flags(void)
{
    const char *path = in_folder("flags");
    state *s = state_saved(path);
    if (!s) return;
    int64_t step = 0;
    char text[64];
    tutti_checkpoint *list = NULL;
    CHECK_OK(tutti_checkpoint_create(s->ctx, s->comm, &list));
    CHECK_OK(tutti_checkpoint_add_int(list, "state/step", &step));
    CHECK_FAILS(TUTTI_ERR_DATA, "not expected", tutti_checkpoint_load(list, path, 0));
    /* tensors are ignored by a load of values, other values are not */
    CHECK_FAILS(TUTTI_ERR_DATA,
                "config/activation is in the file, but is neither a tensor nor a value",
                tutti_checkpoint_load(list, path, TUTTI_CHECKPOINT_VALUES));
    CHECK(step == 0, "a value was set");
    CHECK_OK(tutti_checkpoint_load(list, path, TUTTI_CHECKPOINT_VALUES | TUTTI_CHECKPOINT_SUBSET));
    CHECK(step == s->step, "step is %lld", (long long)step);
    step = 0;
    CHECK_OK(tutti_checkpoint_load(list, path, TUTTI_CHECKPOINT_SUBSET));
    CHECK(step == s->step, "step is %lld", (long long)step);
    tutti_checkpoint_destroy(&list);

    /* the model without its optimizer and values */
    CHECK_OK(tutti_checkpoint_create(s->ctx, s->comm, &list));
    CHECK_OK(tutti_checkpoint_add_params(list, s->params));
    CHECK_OK(tutti_checkpoint_add_text(list, "config/activation", text, sizeof text));
    state_fill(s, 2);
    CHECK_OK(tutti_checkpoint_load(list, path, TUTTI_CHECKPOINT_SUBSET));
    CHECK(strcmp(text, "g") == 0, "the text is '%s'", text);
    const char *what = "";
    CHECK(!state_is(s, 1, &what) && !state_is(s, 2, &what), "all or nothing was loaded");
    tutti_checkpoint_destroy(&list);
    state_fill(s, 2);
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, TUTTI_CHECKPOINT_VALUES));
    CHECK(s->rows == 1, "the values were not loaded");
    CHECK(!state_is(s, 1, &what), "the tensors were loaded");
    /* a damaged tensor is not called unexpected, as a list of values names no tensors */
    edit(path, no_dtype);
    CHECK_FAILS(TUTTI_ERR_DATA, "optimizer/extra/bf16 is in the file, but is neither",
                tutti_checkpoint_load(s->checkpoint, path, TUTTI_CHECKPOINT_VALUES));
    state_free(&s);
}

/* Bytes */

static void flip(const char *path, size_t at)
{
    rig_barrier();
    if (rig_rank() == 0) {
        size_t size = 0;
        unsigned char *data = file_read(path, &size);
        if (CHECK(data && at < size, "no byte %zu", at)) data[at] ^= 0x10;
        file_write(path, data, size);
        free(data);
    }
    rig_barrier();
}

/* The offset and size of a dataset's bytes. */
static size_t place_of(const char *path, const char *name, size_t *bytes)
{
    int place = 0, length = 0;
    if (rig_rank() == 0) {
        hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
        hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
        place = (int)H5Dget_offset(dataset);
        length = (int)H5Dget_storage_size(dataset);
        H5Dclose(dataset);
        H5Fclose(file);
    }
    *bytes = (size_t)rig_worst(length);
    return (size_t)rig_worst(place);
}

static void test_flipped_bits(void)
{
    static const char *const names[] = {"model/embed/weight",
                                        "model/block0.norm/gamma",
                                        "model/block0.up/weight",
                                        "model/head-1/bias_2",
                                        "optimizer/embed/weight/m",
                                        "optimizer/embed/weight/v",
                                        "optimizer/block0.up/weight/m",
                                        "optimizer/extra/f32",
                                        "optimizer/extra/f64",
                                        "optimizer/extra/f16",
                                        "optimizer/extra/bf16",
                                        "optimizer/extra/i32",
                                        "optimizer/extra/u8",
                                        "state/step",
                                        "state/loss_scale",
                                        "config/activation",
                                        "history"};
    const char *path = in_folder("flipped");
    state *s = state_saved(path);
    if (!s) return;
    for (int i = 0; i < HARNESS_COUNT(names); i++) {
        size_t bytes, at = place_of(path, names[i], &bytes);
        for (int k = 0; k < 3; k++) {
            size_t where = at + (k == 0 ? 0 : k == 1 ? bytes / 2 : bytes - 1);
            flip(path, where);
            check_refused(s, TUTTI_ERR_DATA, names[i], path);
            check_refused(s, TUTTI_ERR_DATA, "checksum", path);
            flip(path, where);
        }
    }
    state_fill(s, 2);
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
    CHECK_STATE(s, 1);
    state_free(&s);
}

static void test_flipped_bit_in_a_later_block(void)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, true);
    if (!s) return;
    const char *path = in_folder("later");
    state_fill(s, 1);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
    size_t bytes, at = place_of(path, "model/embed/weight", &bytes);
    flip(path, at + bytes - 100);
    check_refused(s, TUTTI_ERR_DATA, "the checksum of model/embed/weight", path);
    state_free(&s);
}

static void test_truncated(void)
{
    const char *path = in_folder("cut"), *whole = in_folder("whole");
    state *s = state_saved(whole);
    if (!s) return;
    size_t size = 0;
    unsigned char *data = file_read(whole, &size);
    const struct {
        size_t bytes;
        const char *word;
    } cases[] = {
        {0, "not an HDF5 file"},    {7, "not an HDF5 file"},    {40, "is"},
        {size / 4, "is truncated"}, {size / 2, "is truncated"}, {size - 4096, "is truncated"},
        {size - 1, "is truncated"}};
    for (int i = 0; i < HARNESS_COUNT(cases); i++) {
        if (rig_rank() == 0) file_write(path, data, cases[i].bytes);
        rig_barrier();
        harness_where("%zu bytes", cases[i].bytes);
        check_refused(s, TUTTI_ERR_DATA, cases[i].word, path);
    }
    harness_where(NULL);
    free(data);
    state_free(&s);
}

static void test_other_files(void)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, false);
    if (!s) return;
    const char *path = in_folder("text"), *pipe = in_folder("pipe");
    if (rig_rank() == 0) {
        file_write(path, "this is a text, and no checkpoint\n", 34);
        CHECK(mkfifo(pipe, 0644) == 0, "no pipe");
    }
    rig_barrier();
    check_refused(s, TUTTI_ERR_DATA, "not an HDF5 file", path);
    check_refused(s, TUTTI_ERR_IO, "not a regular file", pipe);
    check_refused(s, TUTTI_ERR_IO, "not a regular file", folder());
    check_refused(s, TUTTI_ERR_IO, "not a regular file", "/dev/zero");
    check_refused(s, TUTTI_ERR_IO, "No such file", in_folder("nothing"));
    check_refused(s, TUTTI_ERR_IO, "No such file", "/no/such/folder/file");
    state_free(&s);
}

static const rig_test tests[] = {
    {"content", test_content, 0, 0, false},
    {"newer minor version", test_newer_minor_version, 0, 0, false},
    {"another list", test_other_list, 0, 0, false},
    {"flags", test_flags, 0, 0, false},
    {"flipped bits", test_flipped_bits, 0, 0, false},
    {"a flipped bit in a later block", test_flipped_bit_in_a_later_block, 0, 0, false},
    {"truncated", test_truncated, 0, 0, false},
    {"other files", test_other_files, 0, 0, false},
};

int main(int argc, char **argv)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return rig_main(argc, argv, "damaged checkpoints", tests, HARNESS_COUNT(tests));
}
