/* What is wrong with a command line. */
#include "common/usage.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/report.h"

void app_usage_error(struct argp_state *state, const char *format, ...)
{
    char text[APP_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    argp_error(state, "%s", tutti_text_clean(text));
}
