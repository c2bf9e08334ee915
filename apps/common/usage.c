/* What is wrong with a command line. */
#include "common/usage.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/exit_code.h"
#include "common/report.h"

error_t app_usage_error(struct argp_state *state, const char *format, ...)
{
    char text[APP_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    app_fail(APP_USAGE, "%s", text);
    argp_error(state, "%s", app_failure());
    return EINVAL;
}
