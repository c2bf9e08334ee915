/* --json of a program that was built without jansson. */
#include "common/exit_code.h"
#include "report.h"

int report_json(const char *path, const validator *v, const summary *sum)
{
    (void)v, (void)sum;
    return app_fail(APP_FAILED,
                    "%s: --json: this program was built without jansson (libjansson-dev on Debian)",
                    path);
}
