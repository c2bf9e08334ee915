/* The files that a program's command line names.  An output must be neither an input nor another
 * output, under whatever name: regular files are compared by device and inode, files that do not
 * exist yet by their folder and name. */
#ifndef TUTTI_APPS_FILES_H
#define TUTTI_APPS_FILES_H

typedef struct app_files app_files;

/* A list of standard output and standard error.  NULL if there is no memory; app_files_check
 * reports it. */
app_files *app_files_create(void);
/* A NULL path is ignored, here and below. */
void app_files_reads(app_files *files, const char *path);
/* option: "--losses".  ending: appended to path, for a further file of the same option; "" for path
 * itself. */
void app_files_writes(app_files *files, const char *option, const char *path, const char *ending);

/* APP_USAGE if an output is an input or another option's output.  Destroys the list. */
int app_files_check(app_files *files);

#endif
