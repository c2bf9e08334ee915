/* Opening a file and checking its format; file.h. */
#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/structure.h"

tutti_status tutti__file_fail(const tutti__file *file, tutti_status status, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return file->reporter->fail(status, "%s: %s: %s", file->who, file->path, text);
}

static tutti_status check_root(const tutti__file *file, const tutti__format *format)
{
    const tutti__structure *structure = file->structure;
    const tutti__node *root = tutti__structure_find(structure, "");
    const tutti__attribute *name = tutti__node_attribute(structure, root, "format");
    const tutti__attribute *version = tutti__node_attribute(structure, root, "format_version");
    const tutti__attribute *complete = tutti__node_attribute(structure, root, "complete");
    if (!name || name->kind != TUTTI__ATTRIBUTE_TEXT)
        return tutti__file_fail(file, TUTTI_ERR_DATA, "is not a %s: it has no format attribute",
                                format->noun);
    if (strcmp(name->text, format->name) != 0)
        return tutti__file_fail(file, TUTTI_ERR_DATA, "is not a %s: its format is %.64s, want %s",
                                format->noun, name->text, format->name);
    if (!version || version->kind != TUTTI__ATTRIBUTE_INT || version->count != 2)
        return tutti__file_fail(file, TUTTI_ERR_DATA, "format_version is not two integers");
    if (version->ints[0] != format->major)
        return tutti__file_fail(
            file, TUTTI_ERR_DATA,
            "is of format version %" PRId64 ".%" PRId64 ", %s than this library's %d.%d",
            version->ints[0], version->ints[1],
            version->ints[0] > format->major ? "newer" : "older", format->major, format->minor);
    if (complete ? complete->kind != TUTTI__ATTRIBUTE_INT || complete->ints[0] != 1
                 : format->says_complete)
        return tutti__file_fail(file, TUTTI_ERR_DATA, "is incomplete: it was not fully written");
    return TUTTI_OK;
}

tutti_status tutti__file_open(tutti__file *file, const tutti__format *format)
{
    struct stat now;
    file->structure = NULL;
    /* does not block if it is a pipe */
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &now) != 0)
        return tutti__file_fail(file, TUTTI_ERR_IO, "%s", strerror(errno));
    if (!S_ISREG(now.st_mode)) return tutti__file_fail(file, TUTTI_ERR_IO, "is not a regular file");
    TUTTI_TRY(tutti__structure_read(file, &file->structure));
    return check_root(file, format);
}

void tutti__file_close(tutti__file *file)
{
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
    tutti__structure_destroy(&file->structure);
}

int tutti__write_at(int fd, const void *data, int64_t bytes, int64_t offset)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = pwrite(fd, at, (size_t)bytes, offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        if (done == 0) return ENOSPC;
        at += done, offset += done, bytes -= done;
    }
    return 0;
}

int tutti__read_at(int fd, void *data, int64_t bytes, int64_t offset)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t done = pread(fd, at, (size_t)bytes, offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        if (done == 0) return -1;
        at += done, offset += done, bytes -= done;
    }
    return 0;
}
