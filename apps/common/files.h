/* The files that a program's command line names.  What is written must be neither what is read nor
 * a second output, whatever the names: regular files are told apart by device and inode, those that
 * are not there yet by their folder and name. */
#ifndef TUTTI_APPS_FILES_H
#define TUTTI_APPS_FILES_H

typedef struct app_files app_files;

/* An empty list, which knows of standard output and standard error.  NULL: no memory, which
 * app_files_check says. */
app_files *app_files_create(void);
/* A NULL path is none. */
void app_files_reads(app_files *files, const char *path);
/* option: "--losses".  ending: of a further name, beside path, that is written to for the same
 * option; "" for path itself. */
void app_files_writes(app_files *files, const char *option, const char *path, const char *ending);

/* APP_USAGE if an output is an input or another option's output.  Destroys the list. */
int app_files_check(app_files *files);

#endif
