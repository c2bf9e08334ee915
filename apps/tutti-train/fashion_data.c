/* Labelled images from IDX files, the format of the MNIST family: a big-endian magic number (the
 * last byte is the number of dimensions), the dimensions, then bytes.  zlib reads gzip files and
 * plain ones alike. */
#include "fashion_data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/exit_code.h"
#include "common/report.h"

enum { IDX_LABELS = 0x0801, IDX_IMAGES = 0x0803, PATH_SIZE = 4096 };

typedef struct idx_file {
    char path[PATH_SIZE];
    gzFile stream;
    int64_t file_bytes;
} idx_file;

/* Reports zlib's last error, or the system's if that was the cause. */
static int read_failed(idx_file *file)
{
    int number = Z_OK;
    const char *text = gzerror(file->stream, &number);
    /* zlib puts the file's name before its message */
    const size_t length = strlen(file->path);
    if (strncmp(text, file->path, length) == 0 && strncmp(text + length, ": ", 2) == 0)
        text += length + 2;
    if (number == Z_ERRNO) text = strerror(errno);
    if (number == Z_BUF_ERROR || number == Z_OK) text = "it ends too early";
    return app_fail(APP_FAILED, "%s: cannot be read: %s", file->path, text);
}

static int read_bytes(idx_file *file, void *data, int64_t bytes)
{
    /* gzread takes an unsigned and returns an int */
    const int64_t most = INT64_C(1) << 30;
    for (uint8_t *next = data; bytes > 0;) {
        const int64_t want = bytes < most ? bytes : most;
        const int got = gzread(file->stream, next, (unsigned)want);
        if (got <= 0) return read_failed(file);
        next += got;
        bytes -= got;
    }
    return APP_OK;
}

static int read_u32(idx_file *file, uint32_t *value)
{
    uint8_t bytes[4];
    APP_TRY(read_bytes(file, bytes, 4));
    *value =
        (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    return APP_OK;
}

static const char *const endings[] = {".gz", ""};
enum { ENDINGS = 2 };

/* Opens folder/name.gz or folder/name, without waiting for a pipe's writer. */
static int open_idx(idx_file *file, const char *folder, const char *name)
{
    for (int i = 0; i < ENDINGS; i++) {
        const int length = snprintf(file->path, PATH_SIZE, "%s/%s%s", folder, name, endings[i]);
        if (length >= PATH_SIZE)
            return app_fail(APP_FAILED, "--data: the folder's name is too long");
        struct stat info;
        const int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0 && errno == ENOENT) continue;
        if (fd < 0 || fstat(fd, &info) != 0) {
            const int error = errno;
            if (fd >= 0) close(fd);
            return app_fail(APP_FAILED, "%s: cannot be opened: %s", file->path, strerror(error));
        }
        file->stream = S_ISREG(info.st_mode) ? gzdopen(fd, "rb") : NULL;
        if (!file->stream) {
            close(fd);
            return app_fail(APP_FAILED, "%s: %s", file->path,
                            S_ISREG(info.st_mode) ? "no memory to read it"
                                                  : "is not a regular file");
        }
        file->file_bytes = info.st_size;
        gzbuffer(file->stream, 1 << 18);
        return APP_OK;
    }
    return app_fail(APP_FAILED,
                    "%s/%s: does not exist, with or without .gz; install Debian's package "
                    "dataset-fashion-mnist, or name its folder by --data DIR",
                    folder, name);
}

/* Checks the header: the kind of file and its dimensions, of which dims[0] is free. */
static int read_head(idx_file *file, uint32_t magic, int ndim, uint32_t *dims)
{
    uint32_t found;
    APP_TRY(read_u32(file, &found));
    if (found != magic)
        return app_fail(APP_FAILED, "%s: begins with 0x%08x, want 0x%08x (%s)", file->path, found,
                        magic, magic == IDX_IMAGES ? "IDX images" : "IDX labels");
    for (int i = 0; i < ndim; i++) {
        const uint32_t wanted = dims[i];
        APP_TRY(read_u32(file, &dims[i]));
        if (i > 0 && dims[i] != wanted)
            return app_fail(APP_FAILED, "%s: dimension %d is %u, want %u", file->path, i, dims[i],
                            wanted);
    }
    if (dims[0] == 0) return app_fail(APP_FAILED, "%s: is empty", file->path);
    return APP_OK;
}

/* Reads the `bytes` that the header declares; nothing may follow them. */
static int read_body(idx_file *file, int64_t bytes, uint8_t **data)
{
    /* A damaged header must not make us allocate: deflate compresses to 1/1032 at best. */
    const int64_t most = gzdirect(file->stream) ? file->file_bytes : file->file_bytes * 1032;
    if (bytes > most)
        return app_fail(APP_FAILED,
                        "%s: its header declares %lld bytes, but the file has only %lld",
                        file->path, (long long)bytes, (long long)file->file_bytes);
    *data = malloc((size_t)bytes);
    if (!*data)
        return app_fail(APP_FAILED, "%s: no memory for its %lld bytes", file->path,
                        (long long)bytes);
    APP_TRY(read_bytes(file, *data, bytes));
    uint8_t extra;
    const int got = gzread(file->stream, &extra, 1); /* at the end zlib compares the checksum */
    if (got < 0) return read_failed(file);
    if (got > 0)
        return app_fail(APP_FAILED, "%s: continues after the %lld bytes that its header declares",
                        file->path, (long long)bytes);
    return APP_OK;
}

static int load_file(const char *folder, const char *name, uint32_t magic, int64_t *count,
                     uint8_t **data)
{
    idx_file file = {.stream = NULL};
    uint32_t dims[3] = {0, 28, 28};
    const int ndim = magic == IDX_IMAGES ? 3 : 1;
    int code = open_idx(&file, folder, name);
    if (code == APP_OK) code = read_head(&file, magic, ndim, dims);
    if (code == APP_OK) {
        *count = dims[0];
        code = read_body(&file, *count * (ndim == 3 ? DATA_PIXELS : 1), data);
    }
    for (int64_t i = 0; code == APP_OK && ndim == 1 && i < *count; i++)
        if ((*data)[i] >= DATA_CLASSES)
            code = app_fail(APP_FAILED, "%s: label %lld is %d, want 0 to %d", file.path,
                            (long long)i, (*data)[i], DATA_CLASSES - 1);
    /* only gzclose reports a file truncated inside its last block */
    if (file.stream && gzclose_r(file.stream) == Z_BUF_ERROR && code == APP_OK)
        code = app_fail(APP_FAILED, "%s: cannot be read: it ends too early", file.path);
    return code;
}

/* The names in the folder, without .gz. */
enum { IMAGES, LABELS, NAMES, NAME_SIZE = 64 };
static void make_names(const char *kind, char names[NAMES][NAME_SIZE])
{
    snprintf(names[IMAGES], NAME_SIZE, "%s-images-idx3-ubyte", kind);
    snprintf(names[LABELS], NAME_SIZE, "%s-labels-idx1-ubyte", kind);
}

void dataset_list(const char *folder, const char *kind, app_files *files)
{
    char names[NAMES][NAME_SIZE], path[PATH_SIZE];
    make_names(kind, names);
    for (int i = 0; i < NAMES * ENDINGS; i++) {
        const char *name = names[i / ENDINGS], *ending = endings[i % ENDINGS];
        if (snprintf(path, PATH_SIZE, "%s/%s%s", folder, name, ending) < PATH_SIZE)
            app_files_reads(files, path);
    }
}

int dataset_load(dataset *set, const char *folder, const char *kind)
{
    char names[NAMES][NAME_SIZE];
    int64_t labels = 0;
    *set = (dataset){0};
    make_names(kind, names);
    APP_TRY(load_file(folder, names[IMAGES], IDX_IMAGES, &set->count, &set->images));
    APP_TRY(load_file(folder, names[LABELS], IDX_LABELS, &labels, &set->labels));
    if (labels != set->count)
        return app_fail(APP_FAILED, "%s/%s: has %lld labels for %lld images", folder, names[LABELS],
                        (long long)labels, (long long)set->count);
    return APP_OK;
}

void dataset_free(dataset *set)
{
    free(set->images);
    free(set->labels);
    *set = (dataset){0};
}
