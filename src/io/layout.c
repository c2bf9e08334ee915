/* The file without its tensors: HDF5 lays it out and writes its metadata and values into memory, where no disk can be
 * full (after ENOSPC HDF5 1.10 crashes at exit).  Tensors have their places in it, but no bytes: memory that nobody has
 * written is no memory.  Equal lists give equal bytes: no times are kept, and nothing is left to the file system. */
#include "io/checkpoint.h"

#ifdef TUTTI_WITH_HDF5

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/types.h"

/* What is larger begins at a multiple of a page. */
#define ALIGN_FROM 512
#define ALIGNMENT 4096

typedef struct extent {
    int64_t begin, end;
} extent;

struct tutti__layout {
    const tutti_checkpoint *checkpoint;
    int fd;
    hid_t file;
    int64_t size, *offsets;
    extent *tensors; /* in the file's order */
    int tensor_count;
};

/* HDF5's messages go to stderr unless told otherwise: the library never prints. */
typedef struct quiet {
    H5E_auto2_t print;
    void *data;
} quiet;

static quiet hush(void)
{
    quiet before = {NULL, NULL};
    H5Eget_auto2(H5E_DEFAULT, &before.print, &before.data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return before;
}

static void unhush(quiet before)
{
    H5Eset_auto2(H5E_DEFAULT, before.print, before.data);
}

static hid_t text_type(size_t size)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0) {
        H5Tset_size(type, size);
        H5Tset_strpad(type, H5T_STR_NULLPAD);
        H5Tset_cset(type, H5T_CSET_UTF8);
    }
    return type;
}

/* Attributes */

static bool add_attribute(hid_t object, const char *name, hid_t type, int64_t count,
                          const void *data)
{
    hsize_t dims = (hsize_t)count;
    hid_t space = count > 0 ? H5Screate_simple(1, &dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = attribute >= 0 && H5Awrite(attribute, type, data) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    return ok;
}

static bool add_text(hid_t object, const char *name, const char *text)
{
    hid_t type = text_type(strlen(text));
    bool ok = add_attribute(object, name, type, 0, text);
    if (type >= 0) H5Tclose(type);
    return ok;
}

static bool set_attribute(hid_t file, const char *name_of_object, const char *name, hid_t type,
                          const void *data)
{
    hid_t object = H5Oopen(file, name_of_object, H5P_DEFAULT);
    hid_t attribute = object >= 0 ? H5Aopen(object, name, H5P_DEFAULT) : -1;
    bool ok = attribute >= 0 && H5Awrite(attribute, type, data) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    if (object >= 0) H5Oclose(object);
    return ok;
}

/* Properties */

static hid_t timeless(hid_t class)
{
    hid_t list = H5Pcreate(class);
    if (list >= 0) H5Pset_obj_track_times(list, 0);
    return list;
}

/* Creates the file in memory, or opens it again. */
static hid_t open_file(int fd, bool create)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    hid_t creation = timeless(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_stdio(access); /* the other drivers want a path that leads to a name */
    H5Pset_alignment(access, ALIGN_FROM, ALIGNMENT);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    /* metadata with checksums: what any HDF5 since 1.8 reads */
#if H5_VERSION_GE(1, 10, 2)
    H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
#endif
    hid_t file = create ? H5Fcreate(path, H5F_ACC_TRUNC, creation, access)
                        : H5Fopen(path, H5F_ACC_RDWR, access);
    H5Pclose(creation);
    H5Pclose(access);
    return file;
}

/* Only a closed file has its final size. */
static bool close_file(tutti__layout *layout, int64_t *size)
{
    herr_t closed = H5Fclose(layout->file);
    layout->file = -1;
    struct stat now;
    if (closed < 0 || fstat(layout->fd, &now) != 0) return false;
    *size = now.st_size;
    return true;
}

/* The folders above a name. */
static bool make_groups(hid_t file, const char *name)
{
    char path[TUTTI__ITEM_NAME_MAX];
    bool ok = true;
    hid_t list = timeless(H5P_GROUP_CREATE);
    for (const char *slash = strchr(name, '/'); ok && slash; slash = strchr(slash + 1, '/')) {
        memcpy(path, name, (size_t)(slash - name));
        path[slash - name] = 0;
        htri_t there = H5Lexists(file, path, H5P_DEFAULT);
        hid_t group = there == 0 ? H5Gcreate2(file, path, H5P_DEFAULT, list, H5P_DEFAULT) : -1;
        ok = there > 0 || group >= 0;
        if (group >= 0) H5Gclose(group);
    }
    H5Pclose(list);
    return ok;
}

/* Items */

static hid_t item_type(const tutti__item *item)
{
    switch (item->kind) {
    case TUTTI__ITEM_TENSOR:
        return tutti__file_type_of(item->tensor.dtype);
    case TUTTI__ITEM_INT:
        return H5Tcopy(H5T_STD_I64LE);
    case TUTTI__ITEM_REAL:
    case TUTTI__ITEM_TABLE:
        return H5Tcopy(H5T_IEEE_F64LE);
    case TUTTI__ITEM_TEXT:
        return text_type(tutti__item_bytes(item));
    }
    return -1;
}

static hid_t item_space(const tutti__item *item)
{
    hsize_t dims[TUTTI_MAX_DIMS];
    switch (item->kind) {
    case TUTTI__ITEM_TENSOR:
        for (int i = 0; i < item->tensor.ndim; i++) dims[i] = (hsize_t)item->tensor.dims[i];
        return H5Screate_simple(item->tensor.ndim, dims, NULL);
    case TUTTI__ITEM_TABLE:
        dims[0] = (hsize_t)*item->rows;
        dims[1] = (hsize_t)item->cols;
        return H5Screate_simple(2, dims, NULL);
    default:
        return H5Screate(H5S_SCALAR);
    }
}

static bool fill_in(hid_t dataset, hid_t type, const tutti__item *item)
{
    uint64_t checksum = 0; /* a tensor's is known when it has been written */
    if (item->kind == TUTTI__ITEM_TENSOR)
        return add_text(dataset, "dtype", tutti_dtype_name(item->tensor.dtype)) &&
               add_attribute(dataset, "checksum", H5T_STD_U64LE, 0, &checksum);
    size_t bytes = tutti__item_bytes(item);
    checksum = tutti__checksum(item->data, bytes);
    return add_attribute(dataset, "checksum", H5T_STD_U64LE, 0, &checksum) &&
           (bytes == 0 || H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, item->data) >= 0);
}

static bool add_item(tutti__layout *layout, const tutti__item *item, int64_t *offset)
{
    hid_t list = timeless(H5P_DATASET_CREATE);
    H5Pset_layout(list, H5D_CONTIGUOUS);
    H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    hid_t type = item_type(item), space = item_space(item), dataset = -1;
    if (make_groups(layout->file, item->name))
        dataset = H5Dcreate2(layout->file, item->name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    bool ok = dataset >= 0 && fill_in(dataset, type, item);
    haddr_t where = ok ? H5Dget_offset(dataset) : HADDR_UNDEF;
    *offset = where == HADDR_UNDEF ? -1 : (int64_t)where;
    ok = ok && (*offset >= 0 || tutti__item_bytes(item) == 0);
    if (dataset >= 0) H5Dclose(dataset);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    H5Pclose(list);
    return ok;
}

static bool add_root(hid_t file)
{
    const int32_t version[] = {TUTTI__FORMAT_MAJOR, TUTTI__FORMAT_MINOR}, complete = 0;
    return add_text(file, "format", TUTTI__FORMAT) &&
           add_attribute(file, "format_version", H5T_STD_I32LE, 2, version) &&
           add_attribute(file, "complete", H5T_STD_I32LE, 0, &complete);
}

static int by_begin(const void *a, const void *b)
{
    int64_t x = ((const extent *)a)->begin, y = ((const extent *)b)->begin;
    return (x > y) - (x < y);
}

static bool fill_layout(tutti__layout *layout)
{
    const tutti_checkpoint *checkpoint = layout->checkpoint;
    layout->file = open_file(layout->fd, true);
    if (layout->file < 0 || !add_root(layout->file)) return false;
    for (int i = 0; i < checkpoint->count; i++) {
        const tutti__item *item = &checkpoint->items[i];
        int64_t *offset = &layout->offsets[i];
        if (!add_item(layout, item, offset)) return false;
        if (item->kind == TUTTI__ITEM_TENSOR)
            layout->tensors[layout->tensor_count++] =
                (extent){*offset, *offset + (int64_t)tutti__item_bytes(item)};
    }
    qsort(layout->tensors, (size_t)layout->tensor_count, sizeof *layout->tensors, by_begin);
    return close_file(layout, &layout->size);
}

/* The layout */

tutti_status tutti__layout_create(const tutti_checkpoint *checkpoint, tutti__layout **layout)
{
    tutti__layout *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "checkpoint_save: no memory");
    size_t room = (size_t)checkpoint->count + 1;
    made->checkpoint = checkpoint;
    made->file = -1;
    made->fd = memfd_create("tutti-checkpoint", MFD_CLOEXEC);
    made->offsets = calloc(room, sizeof *made->offsets);
    made->tensors = calloc(room, sizeof *made->tensors);
    tutti_status status = TUTTI_OK;
    if (!made->offsets || !made->tensors)
        status = tutti__fail(TUTTI_ERR_MEMORY, "checkpoint_save: no memory");
    else if (made->fd < 0)
        status = tutti__fail(TUTTI_ERR_MEMORY, "checkpoint_save: no file in memory: %s",
                             strerror(errno));
    if (status == TUTTI_OK) {
        quiet before = hush();
        if (!fill_layout(made))
            status =
                tutti__fail(TUTTI_ERR_INTERNAL, "checkpoint_save: HDF5 cannot lay out the file");
        unhush(before);
    }
    if (status == TUTTI_OK)
        *layout = made;
    else
        tutti__layout_destroy(&made);
    return status;
}

void tutti__layout_destroy(tutti__layout **layout)
{
    if (!layout || !*layout) return;
    tutti__layout *l = *layout;
    quiet before = hush();
    if (l->file >= 0) H5Fclose(l->file);
    unhush(before);
    if (l->fd >= 0) close(l->fd);
    free(l->offsets);
    free(l->tensors);
    free(l);
    *layout = NULL;
}

int64_t tutti__layout_size(const tutti__layout *layout)
{
    return layout->size;
}

const int64_t *tutti__layout_offsets(const tutti__layout *layout)
{
    return layout->offsets;
}

static bool finish(tutti__layout *layout, const uint64_t *checksums)
{
    const tutti_checkpoint *checkpoint = layout->checkpoint;
    layout->file = open_file(layout->fd, false);
    if (layout->file < 0) return false;
    for (int i = 0; i < checkpoint->count; i++)
        if (checkpoint->items[i].kind == TUTTI__ITEM_TENSOR &&
            !set_attribute(layout->file, checkpoint->items[i].name, "checksum", H5T_NATIVE_UINT64,
                           &checksums[i]))
            return false;
    const int32_t complete = 1;
    if (!set_attribute(layout->file, "/", "complete", H5T_NATIVE_INT32, &complete)) return false;
    int64_t size = -1;
    return close_file(layout, &size) && size == layout->size;
}

tutti_status tutti__layout_finish(tutti__layout *layout, const uint64_t *checksums)
{
    quiet before = hush();
    bool ok = finish(layout, checksums);
    unhush(before);
    if (!ok) return tutti__fail(TUTTI_ERR_INTERNAL, "checkpoint_save: HDF5 cannot finish the file");
    return TUTTI_OK;
}

static int copy_range(int to, int from, int64_t begin, int64_t end, char *buffer, int64_t room)
{
    for (int64_t at = begin; at < end; at += room) {
        int64_t part = end - at < room ? end - at : room;
        int error = tutti__read_at(from, buffer, part, at);
        if (!error) error = tutti__write_at(to, buffer, part, at);
        if (error) return error > 0 ? error : EIO;
    }
    return 0;
}

tutti_status tutti__layout_write(const tutti__layout *layout, int fd, int *error)
{
    enum { ROOM = 1 << 16 };
    char *buffer = malloc(ROOM);
    if (!buffer) return tutti__fail(TUTTI_ERR_MEMORY, "checkpoint_save: no memory");
    *error = 0;
    int64_t end = layout->size;
    for (int i = layout->tensor_count - 1; i >= -1 && !*error; i--) {
        int64_t begin = i >= 0 ? layout->tensors[i].end : 0;
        *error = copy_range(fd, layout->fd, begin, end, buffer, ROOM);
        end = i >= 0 ? layout->tensors[i].begin : 0;
    }
    free(buffer);
    return TUTTI_OK;
}

#endif
