/* Files that a program writes at its end. */
#ifndef TUTTI_APPS_OUTPUT_H
#define TUTTI_APPS_OUTPUT_H

/* Says at the start what would only be found out at the end: APP_FAILED if the file cannot be written.  Leaves it as it is, and
 * none behind. */
int app_output_check(const char *path);

#endif
