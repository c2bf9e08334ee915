/* A corpus of mapped files.  Training reads a few bytes in random places, so nothing is read
 * ahead. */
#include "corpus.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/report.h"

static int map_opened(corpus_file *file, const char *path, int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return app_fail(APP_FAILED, "%s: cannot be read: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return app_fail(APP_FAILED, "%s: is a folder, want a file", path);
    if (!S_ISREG(info.st_mode)) return app_fail(APP_FAILED, "%s: is not a regular file", path);
    if (info.st_size == 0) return app_fail(APP_FAILED, "%s: is empty", path);
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return app_fail(APP_FAILED, "%s: its %lld bytes cannot be mapped: %s", path,
                        (long long)info.st_size, strerror(errno));
    file->data = data;
    file->bytes = info.st_size;
    (void)madvise(data, (size_t)info.st_size, MADV_RANDOM);
    return APP_OK;
}

static int map_file(corpus_file *file, const char *path)
{
    /* a pipe without a writer would keep a blocking open waiting */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return app_fail(APP_FAILED, "%s: cannot be opened: %s", path, strerror(errno));
    const int code = map_opened(file, path, fd);
    close(fd);
    return code;
}

int corpus_open(corpus *corpus, const char *const *paths, int64_t count)
{
    *corpus = (struct corpus){.files = calloc((size_t)count, sizeof *corpus->files)};
    if (!corpus->files)
        return app_fail(APP_FAILED, "no memory for the names of %lld files", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        corpus_file *file = &corpus->files[i];
        APP_TRY(map_file(file, paths[i]));
        file->first = corpus->bytes;
        corpus->bytes += file->bytes;
        corpus->count = i + 1;
    }
    return APP_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends the path of an entry if it is a regular file, not a link to one. */
static int add_path(const char *folder, const char *name, char ***paths, int64_t *count)
{
    char *path = NULL;
    struct stat info;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return app_fail(APP_FAILED, "%s: no memory for its files' names", folder);
    if (lstat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        free(path);
        return APP_OK;
    }
    char **more = realloc(*paths, (size_t)(*count + 1) * sizeof *more);
    if (!more) {
        free(path);
        return app_fail(APP_FAILED, "%s: no memory for its files' names", folder);
    }
    *paths = more;
    more[(*count)++] = path;
    return APP_OK;
}

static int list_folder(const char *folder, char ***paths, int64_t *count)
{
    DIR *stream = opendir(folder);
    if (!stream)
        return app_fail(APP_FAILED, "%s: cannot be opened: %s; name the files to train on", folder,
                        strerror(errno));
    int code = APP_OK;
    errno = 0;
    for (struct dirent *entry; code == APP_OK && (entry = readdir(stream)); errno = 0)
        code = add_path(folder, entry->d_name, paths, count);
    if (code == APP_OK && errno != 0)
        code = app_fail(APP_FAILED, "%s: cannot be read: %s", folder, strerror(errno));
    closedir(stream);
    if (code == APP_OK && *count == 0)
        code = app_fail(APP_FAILED, "%s: has no regular file; name the files to train on", folder);
    return code;
}

static void free_paths(char **paths, int64_t count)
{
    for (int64_t i = 0; i < count; i++) free(paths[i]);
    free(paths);
}

void corpus_list_folder(const char *folder, app_files *files)
{
    char **paths = NULL;
    int64_t count = 0;
    if (list_folder(folder, &paths, &count) == APP_OK)
        for (int64_t i = 0; i < count; i++) app_files_reads(files, paths[i]);
    free_paths(paths, count);
}

int corpus_open_folder(corpus *corpus, const char *folder)
{
    char **paths = NULL;
    int64_t count = 0;
    *corpus = (struct corpus){0};
    int code = list_folder(folder, &paths, &count);
    if (code == APP_OK) {
        qsort(paths, (size_t)count, sizeof *paths, by_bytes);
        code = corpus_open(corpus, (const char *const *)paths, count);
    }
    free_paths(paths, count);
    return code;
}

void corpus_close(corpus *corpus)
{
    for (int64_t i = 0; i < corpus->count; i++)
        munmap((void *)corpus->files[i].data, (size_t)corpus->files[i].bytes);
    free(corpus->files);
    *corpus = (struct corpus){0};
}

/* The file that holds a byte: the last one that begins at or before it. */
static const corpus_file *find_file(const corpus *corpus, int64_t at)
{
    int64_t low = 0, high = corpus->count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (corpus->files[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return &corpus->files[low];
}

void corpus_read(const corpus *corpus, int64_t first, int64_t count, uint8_t *bytes)
{
    for (const corpus_file *file = find_file(corpus, first); count > 0; file++) {
        const int64_t at = first - file->first, left = file->bytes - at;
        const int64_t part = count < left ? count : left;
        memcpy(bytes, file->data + at, (size_t)part);
        bytes += part;
        first += part;
        count -= part;
    }
}
