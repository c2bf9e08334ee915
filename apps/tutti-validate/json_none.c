/* --json of a program that was built without jansson. */
#include "common/exit_code.h"
#include "report.h"

int report_json_check(void)
{
    return app_fail(APP_FAILED,
                    "--json: this program was built without jansson (libjansson-dev on Debian)");
}

int report_json(FILE *file, const validator *v, const summary *sum)
{
    (void)file, (void)v, (void)sum;
    return report_json_check();
}
