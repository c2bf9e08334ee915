/* Writes a case file by HDF5, under a temporary name until it is complete. */
#include "inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/hdf5.h"
#include "files/place.h"

struct tutti_cases_writer {
    char path[PATH_MAX];
    tutti__place place;
    hid_t file;                     /* -1: closed */
    char name[TUTTI_CASE_NAME_MAX]; /* of the last case */
};

static const char who[] = "cases_writer";

static int not_written(const tutti_cases_writer *writer, const char *what)
{
    const int error = errno;
    return app_fail(APP_FAILED, "%s: %s: cannot write %s%s%s", who, writer->path, what,
                    error ? ": " : "", error ? strerror(error) : "");
}

static tutti__hush hush(void)
{
    errno = 0;
    return tutti__hdf5_hush();
}

static bool write_real(hid_t object, const char *name, double value)
{
    return tutti__hdf5_attribute(object, name, H5T_IEEE_F64LE, 1, &value);
}

static bool start_file(tutti_cases_writer *writer, const char *name)
{
    tutti__format format = cases_format;
    format.name = name;
    writer->file = tutti__hdf5_file(writer->place.fd, true, 1);
    return writer->file >= 0 && tutti__hdf5_begin(writer->file, &format) &&
           tutti__hdf5_groups(writer->file, "cases/");
}

int tutti_cases_writer_create(const char *path, const char *format, tutti_cases_writer **writer)
{
    struct stat now;
    if (strlen(path) + 8 >= PATH_MAX)
        return app_fail(APP_FAILED, "%s: path is longer than %d bytes", who, PATH_MAX - 9);
    /* the new file would replace a device */
    if (stat(path, &now) == 0 && !S_ISREG(now.st_mode))
        return app_fail(APP_FAILED, "%s: %s: is not a regular file", who, path);
    tutti_cases_writer *made = calloc(1, sizeof *made);
    if (!made) return app_fail(APP_FAILED, "%s: no memory", who);
    made->file = -1;
    strcpy(made->path, path);
    tutti__place_init(&made->place, &cases_reporter, who, made->path);
    int code = cases_code(tutti__place_make(&made->place));
    if (code == APP_OK) code = cases_code(tutti__place_try(&made->place, 0));
    if (code == APP_OK) {
        tutti__hush before = hush();
        if (!start_file(made, format)) code = not_written(made, "the file");
        tutti__hdf5_unhush(before);
    }
    if (code == APP_OK)
        *writer = made;
    else
        tutti_cases_writer_destroy(&made);
    return code;
}

static bool write_case(hid_t file, const char *path, const tutti_case *test_case)
{
    hid_t group = tutti__hdf5_groups(file, path) ? H5Gopen2(file, path, H5P_DEFAULT) : -1;
    bool good =
        group >= 0 && tutti__hdf5_text(group, "layer", test_case->layer) &&
        tutti__hdf5_text(group, "options", test_case->options) &&
        tutti__hdf5_attribute(group, "first_row", H5T_STD_I64LE, 1, &test_case->first_row) &&
        write_real(group, "loss_weight", test_case->loss_weight) &&
        write_real(group, "loss_scale", test_case->loss_scale);
    if (group >= 0) H5Gclose(group);
    return good;
}

int tutti_cases_writer_add(tutti_cases_writer *writer, const tutti_case *test_case)
{
    if (!case_name_ok(test_case->name))
        return app_fail(APP_FAILED, "%s: %s: the name %s is not 1 to %d letters, digits, - _ and .",
                        who, writer->path, test_case->name, TUTTI_CASE_NAME_MAX - 1);
    char path[TUTTI_CASE_NAME_MAX + 8];
    snprintf(path, sizeof path, "cases/%s/", test_case->name);
    tutti__hush before = hush();
    int code = APP_OK;
    if (H5Lexists(writer->file, path, H5P_DEFAULT) > 0)
        code = app_fail(APP_FAILED, "%s: %s: case %s exists already", who, writer->path,
                        test_case->name);
    else if (!write_case(writer->file, path, test_case))
        code = not_written(writer, test_case->name);
    tutti__hdf5_unhush(before);
    if (code == APP_OK) strcpy(writer->name, test_case->name);
    return code;
}

static bool write_tensor(hid_t file, const tutti_case_tensor *tensor, const char *path,
                         tutti_dtype stored, const void *data)
{
    hid_t type = tutti__hdf5_type(stored);
    hid_t dataset = tutti__hdf5_dataset(file, path, type, tensor->ndim, tensor->dims);
    bool good = dataset >= 0;
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
    if (good && count > 0) good = H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    good = good && tutti__hdf5_text(dataset, "dtype", tutti_dtype_name(tensor->dtype));
    if (tensor->has_bound)
        good = good && write_real(dataset, "atol", tensor->atol) &&
               write_real(dataset, "rtol", tensor->rtol);
    if (dataset >= 0) H5Dclose(dataset);
    H5Tclose(type);
    return good;
}

int tutti_cases_writer_tensor(tutti_cases_writer *writer, const tutti_case_tensor *tensor,
                              tutti_dtype stored, const void *data)
{
    char path[2 * TUTTI_CASE_NAME_MAX + 32];
    snprintf(path, sizeof path, "cases/%s/%s/%s", writer->name, tutti_case_part_name(tensor->part),
             tensor->name);
    tutti__hush before = hush();
    const bool good = write_tensor(writer->file, tensor, path, stored, data);
    const int code = good ? APP_OK : not_written(writer, path);
    tutti__hdf5_unhush(before);
    return code;
}

int tutti_cases_writer_finish(tutti_cases_writer *writer)
{
    tutti__hush before = hush();
    bool good = tutti__hdf5_complete(writer->file) && H5Fflush(writer->file, H5F_SCOPE_GLOBAL) >= 0;
    good = H5Fclose(writer->file) >= 0 && good;
    writer->file = -1;
    const int code = good ? APP_OK : not_written(writer, "the file");
    tutti__hdf5_unhush(before);
    APP_TRY(code);
    APP_TRY(cases_code(tutti__place_sync(&writer->place)));
    APP_TRY(cases_code(tutti__place_take(&writer->place)));
    return cases_code(tutti__place_sync_folder(&writer->place));
}

void tutti_cases_writer_destroy(tutti_cases_writer **writer)
{
    if (!*writer) return;
    tutti__hush before = hush();
    if ((*writer)->file >= 0) H5Fclose((*writer)->file);
    tutti__place_drop(&(*writer)->place);
    tutti__hdf5_unhush(before);
    free(*writer);
    *writer = NULL;
}
