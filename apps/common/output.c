/* Whether a file can be written, asked before the work. */
#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/report.h"

int app_output_check(const char *path)
{
    const int flags = O_WRONLY | O_CLOEXEC | O_NONBLOCK; /* a pipe's reader is not waited for */
    int file = open(path, flags);
    const bool made = file < 0 && errno == ENOENT;
    if (made) file = open(path, flags | O_CREAT | O_EXCL, 0666);
    if (file < 0) return app_fail(APP_FAILED, "%s: cannot be written: %s", path, strerror(errno));
    close(file);
    if (made) unlink(path);
    return APP_OK;
}
