/* Output files and pipes. */
#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/report.h"

struct app_output {
    const char *path;
    FILE *stream;
    int file;   /* -1: not open yet */
    bool plain; /* a regular file, or none yet */
    int error;  /* of a write: no more is attempted */
};

static const int flags = O_WRONLY | O_CLOEXEC | O_NONBLOCK; /* a pipe may have no reader yet */

static int refuse(const char *path)
{
    const int error = errno;
    struct stat there;
    if (error == ENXIO && stat(path, &there) == 0 && S_ISFIFO(there.st_mode))
        return app_fail(APP_FAILED, "%s: is a pipe without a reader", path);
    return app_fail(APP_FAILED, "%s: cannot be written: %s", path, strerror(error));
}

int app_output_open(const char *path, app_output **output)
{
    *output = NULL;
    if (!path) return APP_OK;
    int file = open(path, flags);
    const bool made = file < 0 && errno == ENOENT;
    if (made) file = open(path, flags | O_CREAT | O_EXCL, 0666);
    if (file < 0) return refuse(path);
    struct stat there;
    const bool plain = fstat(file, &there) != 0 || S_ISREG(there.st_mode);
    if (plain) close(file);
    if (made) unlink(path);
    app_output *o = malloc(sizeof *o);
    if (!o && !plain) close(file);
    if (!o) return app_fail(APP_FAILED, "%s: no memory to write it", path);
    *o = (app_output){.path = path, .file = plain ? -1 : file, .plain = plain};
    *output = o;
    return APP_OK;
}

static ssize_t put(void *cookie, const char *data, size_t size)
{
    app_output *o = cookie;
    size_t done = 0;
    while (done < size && !o->error) {
        const ssize_t written = write(o->file, data + done, size - done);
        if (written >= 0)
            done += (size_t)written;
        else if (errno == EAGAIN)
            o->error = app_wait_writable(o->file) ? 0 : ETIMEDOUT;
        else if (errno != EINTR)
            o->error = errno;
    }
    return o->error ? 0 : (ssize_t)size;
}

/* Whether the last line is incomplete: a run may have died, for example on a full disk. */
static bool half_a_line(const char *path)
{
    struct stat info;
    char last = '\n';
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return false;
    if (fstat(file, &info) == 0 && info.st_size > 0 && pread(file, &last, 1, info.st_size - 1) != 1)
        last = '\n';
    close(file);
    return last != '\n';
}

int app_output_begin(app_output *o, bool append)
{
    enum { ROOM = 1 << 16 }; /* for a line in one write */
    const bool half = o->plain && append && half_a_line(o->path);
    if (o->plain) o->file = open(o->path, flags | O_CREAT | (append ? O_APPEND : O_TRUNC), 0666);
    if (o->file < 0) return refuse(o->path);
    o->stream = fopencookie(o, "w", (cookie_io_functions_t){.write = put});
    if (!o->stream || setvbuf(o->stream, NULL, _IOFBF, ROOM) != 0)
        return app_fail(APP_FAILED, "%s: no memory to write it", o->path);
    if (half) fputc('\n', o->stream);
    return app_output_flush(o);
}

FILE *app_output_stream(app_output *o)
{
    return o->stream;
}

int app_output_file(app_output *o)
{
    (void)fcntl(o->file, F_SETFL, fcntl(o->file, F_GETFL) & ~O_NONBLOCK);
    return o->file;
}

int app_output_flush(app_output *o)
{
    if (fflush(o->stream) == 0 && !ferror(o->stream)) return APP_OK;
    if (o->error == EPIPE) return app_fail(APP_FAILED, "%s: its reader has gone", o->path);
    if (o->error == ETIMEDOUT)
        return app_fail(APP_FAILED, "%s: its reader has stopped reading", o->path);
    return app_fail(APP_FAILED, "%s: cannot be written: %s", o->path, strerror(o->error));
}

bool app_output_lost(const app_output *o)
{
    return o->error != 0;
}

int app_output_close(app_output **output)
{
    app_output *o = *output;
    if (!o) return APP_OK;
    int code = o->stream ? app_output_flush(o) : APP_OK;
    if (o->stream) fclose(o->stream);
    if (o->file >= 0 && close(o->file) != 0 && code == APP_OK)
        code = app_fail(APP_FAILED, "%s: cannot be written: %s", o->path, strerror(errno));
    free(o);
    *output = NULL;
    return code;
}
