/* Writing a case file, by HDF5.  It is made under a temporary name and takes its place when it is whole.  HDF5 never converts:
 * the file's type is the memory's, as 1.10 narrows floats wrongly. */
#include "io/cases.h"

#ifdef TUTTI_WITH_HDF5

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/place.h"
#include "io/types.h"

struct tutti_cases_writer {
    char path[PATH_MAX];
    tutti__place place;
    hid_t file;
    char name[TUTTI_CASE_NAME_MAX]; /* of the last case; "" before the first */
    bool failed;
};

static const char who[] = "cases_writer";

static tutti_status not_written(tutti_cases_writer *writer, const char *what)
{
    int error = errno;
    writer->failed = true;
    return tutti__fail(TUTTI_ERR_IO, "%s: %s: cannot write %s%s%s", who, writer->path, what,
                       error ? ": " : "", error ? strerror(error) : "");
}

/* HDF5 says nothing on stderr: we do it for it. */
typedef struct quiet {
    H5E_auto2_t print;
    void *data;
} quiet;

static quiet be_quiet(void)
{
    quiet before = {NULL, NULL};
    H5Eget_auto2(H5E_DEFAULT, &before.print, &before.data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    errno = 0;
    return before;
}

static void speak(quiet before)
{
    H5Eset_auto2(H5E_DEFAULT, before.print, before.data);
}

static bool write_attribute(hid_t object, const char *name, hid_t type, int count,
                            const void *value)
{
    hsize_t dims = (hsize_t)count;
    hid_t space = count > 1 ? H5Screate_simple(1, &dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    return good;
}

static bool write_text(hid_t object, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    size_t length = strlen(text);
    bool good = H5Tset_size(type, length > 0 ? length : 1) >= 0 &&
                H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
                write_attribute(object, name, type, 1, text);
    H5Tclose(type);
    return good;
}

static bool write_real(hid_t object, const char *name, double value)
{
    return write_attribute(object, name, H5T_IEEE_F64LE, 1, &value);
}

static hid_t without_times(hid_t kind)
{
    hid_t list = H5Pcreate(kind);
    H5Pset_obj_track_times(list, false);
    return list;
}

/* A group, or -1. */
static hid_t make_group(hid_t file, const char *path)
{
    hid_t list = without_times(H5P_GROUP_CREATE);
    hid_t group = H5Gcreate2(file, path, H5P_DEFAULT, list, H5P_DEFAULT);
    H5Pclose(list);
    return group;
}

static bool have_group(hid_t file, const char *path)
{
    if (H5Lexists(file, path, H5P_DEFAULT) > 0) return true;
    hid_t group = make_group(file, path);
    return group >= 0 && H5Gclose(group) >= 0;
}

static bool start_file(tutti_cases_writer *writer, const char *format)
{
    static const int32_t version[] = {TUTTI__CASES_MAJOR, TUTTI__CASES_MINOR};
    char own[64]; /* the very file that was made, whatever is at its name by now */
    snprintf(own, sizeof own, "/proc/self/fd/%d", writer->place.fd);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = without_times(H5P_FILE_CREATE);
    H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
    writer->file = H5Fcreate(own, H5F_ACC_TRUNC, create, access);
    H5Pclose(create);
    H5Pclose(access);
    if (writer->file < 0) return false;
    hid_t root = H5Gopen2(writer->file, "/", H5P_DEFAULT);
    bool good = root >= 0 && write_text(root, "format", format) &&
                write_attribute(root, "format_version", H5T_STD_I32LE, 2, version) &&
                have_group(writer->file, "cases");
    if (root >= 0) H5Gclose(root);
    return good;
}

tutti_status tutti_cases_writer_create(const char *path, const char *format,
                                       tutti_cases_writer **writer)
{
    TUTTI_REQUIRE(path && path[0], "%s_create: path is %s", who, path ? "empty" : "NULL");
    TUTTI_REQUIRE(strlen(path) + 8 < PATH_MAX, "%s_create: path is longer than %d bytes", who,
                  PATH_MAX - 9);
    TUTTI_REQUIRE(format && (strcmp(format, TUTTI_CASES_FORMAT) == 0 ||
                             strcmp(format, TUTTI_DIFFERENCES_FORMAT) == 0),
                  "%s_create: format is '%s', want %s or %s", who, format ? format : "NULL",
                  TUTTI_CASES_FORMAT, TUTTI_DIFFERENCES_FORMAT);
    TUTTI_REQUIRE(writer, "%s_create: writer is NULL", who);
    /* the new file would take the place of a folder, or of a device */
    struct stat now;
    if (stat(path, &now) == 0 && !S_ISREG(now.st_mode))
        return tutti__fail(TUTTI_ERR_IO, "%s_create: %s: is no regular file", who, path);
    tutti_cases_writer *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "%s_create: no memory", who);
    made->file = -1;
    strcpy(made->path, path);
    tutti__place_init(&made->place, "cases_writer_create", made->path);
    tutti_status status = tutti__place_make(&made->place);
    if (status == TUTTI_OK) status = tutti__place_try(&made->place, 0);
    if (status == TUTTI_OK) {
        quiet before = be_quiet();
        if (!start_file(made, format)) status = not_written(made, "the file");
        speak(before);
    }
    if (status == TUTTI_OK)
        *writer = made;
    else
        tutti_cases_writer_destroy(&made);
    return status;
}

tutti_status tutti_cases_writer_add(tutti_cases_writer *writer, const tutti_case *which)
{
    TUTTI_REQUIRE(writer, "%s_add: writer is NULL", who);
    TUTTI_REQUIRE(which, "%s_add: which is NULL", who);
    TUTTI_REQUIRE(memchr(which->name, 0, sizeof which->name) && tutti__case_name_ok(which->name),
                  "%s_add: the name is not 1 to %d letters, digits, - _ and .", who,
                  TUTTI_CASE_NAME_MAX - 1);
    TUTTI_REQUIRE(memchr(which->layer, 0, sizeof which->layer) &&
                      memchr(which->options, 0, sizeof which->options),
                  "%s_add: layer or options are not ended by a 0", who);
    TUTTI_REQUIRE(!writer->failed && writer->file >= 0, "%s_add: the file is finished", who);
    char path[TUTTI_CASE_NAME_MAX + 8] = "cases/";
    strcat(path, which->name);
    quiet before = be_quiet();
    tutti_status status = TUTTI_OK;
    hid_t group = -1;
    if (H5Lexists(writer->file, path, H5P_DEFAULT) > 0)
        status = tutti__fail(TUTTI_ERR_ARG, "%s_add: there is a case %s already", who, which->name);
    else {
        group = make_group(writer->file, path);
        bool good = group >= 0 && write_text(group, "layer", which->layer) &&
                    write_text(group, "options", which->options) &&
                    write_attribute(group, "first_row", H5T_STD_I64LE, 1, &which->first_row) &&
                    write_real(group, "loss_weight", which->loss_weight) &&
                    write_real(group, "loss_scale", which->loss_scale);
        if (!good) status = not_written(writer, which->name);
    }
    if (group >= 0) H5Gclose(group);
    speak(before);
    if (status == TUTTI_OK) strcpy(writer->name, which->name);
    return status;
}

static hid_t make_dataset(const tutti_cases_writer *writer, const tutti_case_tensor *tensor,
                          const char *path, hid_t type)
{
    hsize_t dims[TUTTI_MAX_DIMS];
    for (int i = 0; i < tensor->ndim; i++) dims[i] = (hsize_t)tensor->dims[i];
    hid_t list = without_times(H5P_DATASET_CREATE);
    H5Pset_layout(list, H5D_CONTIGUOUS);
    H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    hid_t space = H5Screate_simple(tensor->ndim, dims, NULL);
    hid_t dataset = H5Dcreate2(writer->file, path, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    H5Sclose(space);
    H5Pclose(list);
    return dataset;
}

static bool write_tensor(const tutti_cases_writer *writer, const tutti_case_tensor *tensor,
                         const char *path, tutti_dtype stored, const void *data)
{
    hid_t type = tutti__file_type_of(stored);
    hid_t dataset = make_dataset(writer, tensor, path, type);
    bool good = dataset >= 0;
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
    if (good && count > 0) good = H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    good = good && write_text(dataset, "dtype", tutti_dtype_name(tensor->dtype));
    if (tensor->has_bound)
        good = good && write_real(dataset, "atol", tensor->atol) &&
               write_real(dataset, "rtol", tensor->rtol);
    if (dataset >= 0) H5Dclose(dataset);
    H5Tclose(type);
    return good;
}

static tutti_status check_tensor(const tutti_cases_writer *writer, const tutti_case_tensor *tensor,
                                 tutti_dtype stored, const void *data)
{
    TUTTI_REQUIRE(writer, "%s_tensor: writer is NULL", who);
    TUTTI_REQUIRE(tensor, "%s_tensor: tensor is NULL", who);
    TUTTI_REQUIRE(!writer->failed && writer->file >= 0, "%s_tensor: the file is finished", who);
    TUTTI_REQUIRE(writer->name[0], "%s_tensor: there is no case yet", who);
    TUTTI_REQUIRE((unsigned)tensor->part <= TUTTI_CASE_DIFFERENCE, "%s_tensor: part is %d", who,
                  (int)tensor->part);
    TUTTI_REQUIRE(memchr(tensor->name, 0, sizeof tensor->name) && tutti__case_name_ok(tensor->name),
                  "%s_tensor: the name is not 1 to %d letters, digits, - _ and .", who,
                  TUTTI_CASE_NAME_MAX - 1);
    TUTTI_REQUIRE(tensor->ndim >= 1 && tensor->ndim <= TUTTI_MAX_DIMS,
                  "%s_tensor: ndim is %d, want 1 to %d", who, tensor->ndim, TUTTI_MAX_DIMS);
    for (int i = 0; i < tensor->ndim; i++)
        TUTTI_REQUIRE(tensor->dims[i] >= 0, "%s_tensor: dims[%d] is %lld, want >= 0", who, i,
                      (long long)tensor->dims[i]);
    TUTTI_REQUIRE(stored == tensor->dtype || stored == TUTTI_F64,
                  "%s_tensor: stored is %s, want %s or f64", who, tutti_dtype_name(stored),
                  tutti_dtype_name(tensor->dtype));
    TUTTI_REQUIRE(data, "%s_tensor: data is NULL", who);
    return TUTTI_OK;
}

tutti_status tutti_cases_writer_tensor(tutti_cases_writer *writer, const tutti_case_tensor *tensor,
                                       tutti_dtype stored, const void *data)
{
    TUTTI_TRY(check_tensor(writer, tensor, stored, data));
    char path[2 * TUTTI_CASE_NAME_MAX + 32];
    quiet before = be_quiet();
    snprintf(path, sizeof path, "cases/%s/%s", writer->name, tutti_case_part_name(tensor->part));
    bool good = have_group(writer->file, path);
    strcat(strcat(path, "/"), tensor->name);
    good = good && write_tensor(writer, tensor, path, stored, data);
    tutti_status status = good ? TUTTI_OK : not_written(writer, path);
    speak(before);
    return status;
}

tutti_status tutti_cases_writer_finish(tutti_cases_writer *writer)
{
    TUTTI_REQUIRE(writer, "%s_finish: writer is NULL", who);
    TUTTI_REQUIRE(!writer->failed && writer->file >= 0, "%s_finish: the file is finished", who);
    quiet before = be_quiet();
    bool good = H5Fflush(writer->file, H5F_SCOPE_GLOBAL) >= 0;
    good = H5Fclose(writer->file) >= 0 && good;
    writer->file = -1;
    tutti_status status = good ? TUTTI_OK : not_written(writer, "the file");
    speak(before);
    writer->place.who = "cases_writer_finish";
    if (status == TUTTI_OK) status = tutti__place_take(&writer->place);
    if (status != TUTTI_OK) writer->failed = true;
    return status;
}

void tutti_cases_writer_destroy(tutti_cases_writer **writer)
{
    if (!writer || !*writer) return;
    quiet before = be_quiet();
    if ((*writer)->file >= 0) H5Fclose((*writer)->file);
    tutti__place_drop(&(*writer)->place);
    speak(before);
    free(*writer);
    *writer = NULL;
}

#endif
