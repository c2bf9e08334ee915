/* The file without its tensors: HDF5 lays it out and writes its metadata and values into memory,
 * where no disk can be full (after ENOSPC HDF5 1.10 crashes at exit).  Tensors have their offsets
 * in it but are never written, so they take no memory.  Equal lists give equal bytes: no times are
 * stored. */
#include "io/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/hdf5.h"

enum { PAGE = 4096 };

typedef struct extent {
    int64_t begin, end;
} extent;

struct tutti__layout {
    const tutti_checkpoint *checkpoint;
    int fd;
    hid_t file;
    int64_t size, *offsets;
    extent *tensors; /* by offset */
    int tensor_count;
};

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

/* Items */

static hid_t item_type(const tutti__item *item)
{
    switch (item->kind) {
    case TUTTI__ITEM_TENSOR:
        return tutti__hdf5_type(item->tensor.dtype);
    case TUTTI__ITEM_INT:
        return H5Tcopy(H5T_STD_I64LE);
    case TUTTI__ITEM_REAL:
    case TUTTI__ITEM_TABLE:
        return H5Tcopy(H5T_IEEE_F64LE);
    case TUTTI__ITEM_TEXT:
        return tutti__hdf5_text_type(tutti__item_bytes(item));
    }
    return -1;
}

/* A dataset of the item's shape. */
static hid_t make_dataset(hid_t file, const tutti__item *item, hid_t type)
{
    if (item->kind == TUTTI__ITEM_TENSOR)
        return tutti__hdf5_dataset(file, item->name, type, item->tensor.ndim, item->tensor.dims);
    if (item->kind != TUTTI__ITEM_TABLE)
        return tutti__hdf5_dataset(file, item->name, type, 0, NULL);
    const int64_t dims[] = {*item->rows, item->cols};
    return tutti__hdf5_dataset(file, item->name, type, 2, dims);
}

static bool fill_in(hid_t dataset, hid_t type, const tutti__item *item)
{
    uint64_t checksum = 0; /* a tensor's is set once it has been written */
    if (item->kind == TUTTI__ITEM_TENSOR)
        return tutti__hdf5_text(dataset, "dtype", tutti_dtype_name(item->tensor.dtype)) &&
               tutti__hdf5_attribute(dataset, "checksum", H5T_STD_U64LE, 1, &checksum);
    size_t bytes = tutti__item_bytes(item);
    checksum = tutti__checksum(item->data, bytes);
    return tutti__hdf5_attribute(dataset, "checksum", H5T_STD_U64LE, 1, &checksum) &&
           (bytes == 0 || H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, item->data) >= 0);
}

static bool add_item(tutti__layout *layout, const tutti__item *item, int64_t *offset)
{
    hid_t type = item_type(item), dataset = make_dataset(layout->file, item, type);
    bool ok = dataset >= 0 && fill_in(dataset, type, item);
    haddr_t where = ok ? H5Dget_offset(dataset) : HADDR_UNDEF;
    *offset = where == HADDR_UNDEF ? -1 : (int64_t)where;
    ok = ok && (*offset >= 0 || tutti__item_bytes(item) == 0);
    if (dataset >= 0) H5Dclose(dataset);
    if (type >= 0) H5Tclose(type);
    return ok;
}

static int by_begin(const void *a, const void *b)
{
    int64_t x = ((const extent *)a)->begin, y = ((const extent *)b)->begin;
    return (x > y) - (x < y);
}

static bool fill_layout(tutti__layout *layout)
{
    const tutti_checkpoint *checkpoint = layout->checkpoint;
    layout->file = tutti__hdf5_file(layout->fd, true, PAGE);
    if (layout->file < 0 || !tutti__hdf5_begin(layout->file, &tutti__checkpoint_format))
        return false;
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
        tutti__hush before = tutti__hdf5_hush();
        if (!fill_layout(made))
            status =
                tutti__fail(TUTTI_ERR_INTERNAL, "checkpoint_save: HDF5 cannot lay out the file");
        tutti__hdf5_unhush(before);
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
    tutti__hush before = tutti__hdf5_hush();
    if (l->file >= 0) H5Fclose(l->file);
    tutti__hdf5_unhush(before);
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
    layout->file = tutti__hdf5_file(layout->fd, false, PAGE);
    if (layout->file < 0) return false;
    for (int i = 0; i < checkpoint->count; i++)
        if (checkpoint->items[i].kind == TUTTI__ITEM_TENSOR &&
            !tutti__hdf5_set(layout->file, checkpoint->items[i].name, "checksum", H5T_STD_U64LE,
                             &checksums[i]))
            return false;
    int64_t size = -1;
    return tutti__hdf5_complete(layout->file) && close_file(layout, &size) && size == layout->size;
}

tutti_status tutti__layout_finish(tutti__layout *layout, const uint64_t *checksums)
{
    tutti__hush before = tutti__hdf5_hush();
    bool ok = finish(layout, checksums);
    tutti__hdf5_unhush(before);
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
