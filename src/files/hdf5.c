/* Making HDF5's objects; hdf5.h.  HDF5 never converts: the file's type is the memory's, as 1.10
 * narrows floats wrongly. */
#include "files/hdf5.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

tutti__hush tutti__hdf5_hush(void)
{
    tutti__hush before = {NULL, NULL};
    H5Eget_auto2(H5E_DEFAULT, &before.print, &before.data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return before;
}

void tutti__hdf5_unhush(tutti__hush before)
{
    H5Eset_auto2(H5E_DEFAULT, before.print, before.data);
}

/* A property list that stores no times. */
static hid_t timeless(hid_t class)
{
    hid_t list = H5Pcreate(class);
    if (list >= 0) H5Pset_obj_track_times(list, 0);
    return list;
}

/* Files */

hid_t tutti__hdf5_file(int fd, bool create, int alignment)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    hid_t creation = timeless(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_stdio(access); /* other drivers open the path's target by name */
    H5Pset_alignment(access, 512, (hsize_t)alignment);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    /* metadata with checksums, readable by any HDF5 since 1.8 */
#if H5_VERSION_GE(1, 10, 2)
    H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
#endif
    hid_t file = create ? H5Fcreate(path, H5F_ACC_TRUNC, creation, access)
                        : H5Fopen(path, H5F_ACC_RDWR, access);
    H5Pclose(creation);
    H5Pclose(access);
    return file;
}

bool tutti__hdf5_begin(hid_t file, const tutti__format *format)
{
    const int32_t version[] = {format->major, format->minor}, complete = 0;
    return tutti__hdf5_text(file, "format", format->name) &&
           tutti__hdf5_attribute(file, "format_version", H5T_STD_I32LE, 2, version) &&
           tutti__hdf5_attribute(file, "complete", H5T_STD_I32LE, 1, &complete);
}

bool tutti__hdf5_complete(hid_t file)
{
    const int32_t complete = 1;
    return tutti__hdf5_set(file, "/", "complete", H5T_STD_I32LE, &complete);
}

/* Types */

/* A two-byte float: sign, exponent and mantissa from the most significant bit. */
static hid_t two_byte_float(unsigned exponent_bits, unsigned mantissa_bits, size_t bias)
{
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type < 0) return type;
    if (H5Tset_fields(type, 15, mantissa_bits, exponent_bits, 0, mantissa_bits) < 0 ||
        H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, bias) < 0) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

hid_t tutti__hdf5_type(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case TUTTI_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case TUTTI_F16:
        return two_byte_float(5, 10, 15);
    case TUTTI_BF16:
        return two_byte_float(8, 7, 127);
    case TUTTI_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case TUTTI_U8:
        return H5Tcopy(H5T_STD_U8LE);
    }
    return -1;
}

hid_t tutti__hdf5_text_type(size_t bytes)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0) {
        H5Tset_size(type, bytes > 0 ? bytes : 1);
        H5Tset_strpad(type, H5T_STR_NULLPAD);
        H5Tset_cset(type, H5T_CSET_UTF8);
    }
    return type;
}

/* Groups and datasets */

bool tutti__hdf5_groups(hid_t file, const char *path)
{
    char above[PATH_MAX];
    bool good = strlen(path) < sizeof above;
    hid_t list = timeless(H5P_GROUP_CREATE);
    for (const char *slash = strchr(path, '/'); good && slash; slash = strchr(slash + 1, '/')) {
        memcpy(above, path, (size_t)(slash - path));
        above[slash - path] = 0;
        htri_t there = H5Lexists(file, above, H5P_DEFAULT);
        hid_t group = there == 0 ? H5Gcreate2(file, above, H5P_DEFAULT, list, H5P_DEFAULT) : -1;
        good = there > 0 || group >= 0;
        if (group >= 0) H5Gclose(group);
    }
    H5Pclose(list);
    return good;
}

hid_t tutti__hdf5_dataset(hid_t file, const char *path, hid_t type, int ndim, const int64_t *dims)
{
    hsize_t sizes[TUTTI_MAX_DIMS];
    for (int i = 0; i < ndim; i++) sizes[i] = (hsize_t)dims[i];
    hid_t list = timeless(H5P_DATASET_CREATE), dataset = -1;
    H5Pset_layout(list, H5D_CONTIGUOUS);
    H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    hid_t space = ndim > 0 ? H5Screate_simple(ndim, sizes, NULL) : H5Screate(H5S_SCALAR);
    if (tutti__hdf5_groups(file, path))
        dataset = H5Dcreate2(file, path, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (space >= 0) H5Sclose(space);
    H5Pclose(list);
    return dataset;
}

/* Attributes */

bool tutti__hdf5_attribute(hid_t object, const char *name, hid_t type, int count, const void *data)
{
    hsize_t dims = (hsize_t)count;
    hid_t space = count > 1 ? H5Screate_simple(1, &dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attribute >= 0 && H5Awrite(attribute, type, data) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    return good;
}

bool tutti__hdf5_text(hid_t object, const char *name, const char *text)
{
    hid_t type = tutti__hdf5_text_type(strlen(text));
    bool good = tutti__hdf5_attribute(object, name, type, 1, text);
    if (type >= 0) H5Tclose(type);
    return good;
}

bool tutti__hdf5_set(hid_t file, const char *path, const char *name, hid_t type, const void *data)
{
    hid_t object = H5Oopen(file, path, H5P_DEFAULT);
    hid_t attribute = object >= 0 ? H5Aopen(object, name, H5P_DEFAULT) : -1;
    bool good = attribute >= 0 && H5Awrite(attribute, type, data) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    if (object >= 0) H5Oclose(object);
    return good;
}
