/* Detects names of the same file. */
#include "common/files.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/report.h"

typedef struct entry {
    const char *option; /* NULL: an input */
    bool standard;      /* standard output or standard error */
    char path[PATH_MAX];
    bool known; /* a regular file, existing or to be created: it has an identity */
    dev_t device;
    ino_t inode;             /* of the file; of its folder if the file does not exist */
    char name[NAME_MAX + 1]; /* in that folder; "" if the file exists */
} entry;

struct app_files {
    entry *entries;
    int count, room;
    bool no_memory;
};

/* Splits a path into folder and name; false if one of them is too long. */
static bool split(const char *path, char folder[PATH_MAX], char name[NAME_MAX + 1])
{
    const char *slash = strrchr(path, '/');
    const int length = slash ? (int)(slash - path) : 0;
    snprintf(folder, PATH_MAX, "%.*s", slash ? (length ? length : 1) : 1,
             slash ? (length ? path : "/") : ".");
    return snprintf(name, NAME_MAX + 1, "%s", slash ? slash + 1 : path) <= NAME_MAX;
}

static void take_identity(entry *e, const struct stat *info)
{
    e->known = true;
    e->device = info->st_dev;
    e->inode = info->st_ino;
}

/* Identifies the file at the path, or that opening the path would create, dangling links included.
 * Stays unknown where that fails: opening the file will report the error. */
static void identify(entry *e)
{
    enum { HOPS = 40 }; /* Linux's own limit */
    char path[PATH_MAX], link[PATH_MAX], folder[PATH_MAX], name[NAME_MAX + 1];
    struct stat info;
    snprintf(path, sizeof path, "%s", e->path);
    for (int hop = 0; hop < HOPS; hop++) {
        if (stat(path, &info) == 0) {
            if (S_ISREG(info.st_mode)) take_identity(e, &info);
            return;
        }
        if (errno != ENOENT || !split(path, folder, name)) return;
        const ssize_t length = readlink(path, link, sizeof link - 1);
        if (length < 0) {
            if (stat(folder, &info) != 0) return;
            take_identity(e, &info);
            memcpy(e->name, name, sizeof name);
            return;
        }
        link[length] = '\0';
        const int wanted = link[0] == '/' ? snprintf(path, sizeof path, "%s", link)
                                          : snprintf(path, sizeof path, "%s/%s", folder, link);
        if (wanted >= (int)sizeof path) return;
    }
}

static entry *add(app_files *files, const char *option, const char *path, const char *ending)
{
    if (!files || !path) return NULL;
    if (files->count == files->room) {
        const int room = 2 * files->room + 16;
        entry *larger = realloc(files->entries, (size_t)room * sizeof *larger);
        files->no_memory = files->no_memory || !larger;
        if (!larger) return NULL;
        files->entries = larger;
        files->room = room;
    }
    entry *made = &files->entries[files->count];
    *made = (entry){.option = option};
    /* a longer path cannot be opened */
    if (snprintf(made->path, sizeof made->path, "%s%s", path, ending) >= (int)sizeof made->path)
        return NULL;
    files->count++;
    return made;
}

static void add_standard(app_files *files, int file, const char *name)
{
    struct stat info;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) return;
    entry *made = add(files, name, name, "");
    if (!made) return;
    made->standard = true;
    take_identity(made, &info);
}

app_files *app_files_create(void)
{
    app_files *files = calloc(1, sizeof *files);
    if (!files) return NULL;
    add_standard(files, STDOUT_FILENO, "standard output");
    add_standard(files, STDERR_FILENO, "standard error");
    return files;
}

void app_files_reads(app_files *files, const char *path)
{
    entry *made = add(files, NULL, path, "");
    if (made) identify(made);
}

void app_files_writes(app_files *files, const char *option, const char *path, const char *ending)
{
    entry *made = add(files, option, path, ending);
    if (made) identify(made);
}

static bool same(const entry *a, const entry *b)
{
    return a->known && b->known && a->device == b->device && a->inode == b->inode &&
           strcmp(a->name, b->name) == 0;
}

/* One option's own names, FILE and FILE.1, may be the same file for a while. */
static bool one_purpose(const entry *a, const entry *b)
{
    if (!a->option || !b->option) return !a->option && !b->option;
    return (a->standard && b->standard) || strcmp(a->option, b->option) == 0;
}

static int refuse(const entry *a, const entry *b)
{
    const entry *out = a->option ? a : b, *other = a->option ? b : a;
    const bool other_name = !out->standard && strcmp(out->path, other->path) != 0;
    const char *also = other_name ? out->path : "";
    if (!other->option)
        return app_fail(APP_USAGE, "%s would overwrite %s, which is read%s%s%s", out->option,
                        other->path, *also ? ": " : "", also, *also ? " is the same file" : "");
    if (other->standard)
        return app_fail(APP_USAGE, "%s and %s are the same file: %s", other->option, out->option,
                        out->path);
    return app_fail(APP_USAGE, "%s and %s name the same file: %s%s%s", out->option, other->option,
                    other->path, *also ? " is " : "", also);
}

static int compare(const app_files *files)
{
    for (int i = 0; i < files->count; i++)
        for (int k = 0; k < i; k++) {
            const entry *a = &files->entries[k], *b = &files->entries[i];
            if (!one_purpose(a, b) && same(a, b)) return refuse(a, b);
        }
    return APP_OK;
}

int app_files_check(app_files *files)
{
    int code = APP_FAILED;
    if (files && !files->no_memory)
        code = compare(files);
    else
        app_fail(code, "no memory for the files' names");
    if (files) free(files->entries);
    free(files);
    return code;
}
