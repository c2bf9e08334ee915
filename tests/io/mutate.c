/* Damaging files; mutate.h. */
#include "mutate.h"

#include <dlfcn.h>
#include <glob.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "state.h"

static harness_rng rng;

static size_t below(size_t n)
{
    return n > 0 ? (size_t)(harness_random(&rng) % n) : 0;
}

/* Files */

typedef struct bytes {
    unsigned char *data;
    size_t size, room;
    size_t *used; /* offsets of bytes that are not 0 */
    size_t used_count;
} bytes;

static bytes bytes_take(const char *path)
{
    bytes b = {.data = NULL};
    b.data = file_read(path, &b.size);
    if (!CHECK(b.data, "%s cannot be read", path)) return b;
    b.room = 2 * b.size + 4096;
    b.data = realloc(b.data, b.room);
    b.used = harness_calloc(b.size, sizeof *b.used);
    for (size_t i = 0; i < b.size; i++)
        if (b.data[i]) b.used[b.used_count++] = i;
    return b;
}

static void bytes_drop(bytes *b)
{
    free(b->data);
    free(b->used);
}

static herr_t copy_attribute(hid_t from, const char *name, const H5A_info_t *info, void *data)
{
    char value[2048] = "";
    hid_t attribute = H5Aopen(from, name, H5P_DEFAULT), type = H5Aget_type(attribute);
    hid_t space = H5Aget_space(attribute);
    hid_t made = H5Acreate2(*(hid_t *)data, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    (void)info;
    CHECK(H5Aget_storage_size(attribute) <= sizeof value && H5Aread(attribute, type, value) >= 0 &&
              H5Awrite(made, type, value) >= 0,
          "%s", name);
    H5Aclose(made);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    return 0;
}

static herr_t copy_link(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    hid_t to = *(hid_t *)data;
    (void)info;
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (H5Iget_type(object) == H5I_GROUP) {
        hid_t made = H5Gcreate2(to, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &made);
        H5Literate(object, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_link, &made);
        H5Gclose(made);
    } else
        H5Ocopy(group, name, to, name, H5P_DEFAULT, H5P_DEFAULT);
    H5Oclose(object);
    return 0;
}

void mutate_oldest(const char *from, const char *to)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST);
    hid_t in = H5Fopen(from, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t out = H5Fcreate(to, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t group = H5Gopen2(out, "/", H5P_DEFAULT), root = H5Gopen2(in, "/", H5P_DEFAULT);
    H5Aiterate2(root, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &group);
    CHECK(H5Literate(root, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_link, &group) >= 0, "no copy");
    H5Gclose(root);
    H5Gclose(group);
    H5Fclose(out);
    H5Fclose(in);
    H5Pclose(access);
}

/* Mutations */

static size_t place(const bytes *b)
{
    size_t at = b->used[below(b->used_count)];
    return below(4) && at < b->size ? at : below(b->size);
}

static void put_number(bytes *b, size_t at)
{
    static const uint64_t numbers[] = {0,          1,          0xff,       UINT64_MAX, INT64_MAX,
                                       UINT32_MAX, 1ULL << 31, 1ULL << 40, 1ULL << 63, 4096};
    uint64_t value = below(3) ? numbers[below(HARNESS_COUNT(numbers))] : below(2 * b->size);
    size_t width = (size_t)1 << below(4);
    if (at + width > b->size) at = b->size - width;
    memcpy(b->data + at, &value, width);
}

static void mutate_once(bytes *b)
{
    size_t from = place(b), to = place(b), length = 1 + below(below(2) ? 16 : 600);
    switch (below(10)) {
    case 0:
    case 1:
    case 2:
        for (size_t n = 1 + below(4); n > 0; n--)
            b->data[place(b)] ^= (unsigned char)(1 << below(8));
        break;
    case 3:
    case 4:
        put_number(b, to);
        break;
    case 5:
        b->data[to] = (unsigned char)harness_random(&rng);
        break;
    case 6: /* copy a piece */
        if (length > b->size - (from > to ? from : to)) length = b->size - (from > to ? from : to);
        memmove(b->data + to, b->data + from, length);
        break;
    case 7: /* remove a piece */
        if (length > b->size - from) length = b->size - from;
        memmove(b->data + from, b->data + from + length, b->size - from - length);
        b->size -= length;
        break;
    case 8: /* duplicate a piece */
        memmove(b->data + from + length, b->data + from, b->size - from);
        b->size += length;
        break;
    case 9:
        b->size = below(b->size);
        break;
    }
}

metadata_checksum mutate_checksum(void)
{
    metadata_checksum checksum;
    *(void **)&checksum = dlsym(RTLD_DEFAULT, "H5_checksum_metadata");
    return checksum;
}

static void seal(bytes *b, metadata_checksum checksum, size_t begin, size_t length)
{
    if (begin + length + 4 > b->size) return;
    uint32_t sum = checksum(b->data + begin, length, 0);
    memcpy(b->data + begin + length, &sum, sizeof sum);
}

/* Corrects the checksums of the superblock and of the object headers. */
static void reseal(bytes *b, metadata_checksum checksum)
{
    seal(b, checksum, 0, 44);
    for (size_t i = 0; i + 32 < b->size; i++) {
        if (memcmp(b->data + i, "OHDR", 4) != 0) continue;
        unsigned flags = b->data[i + 5];
        size_t at = i + 6 + (flags & 0x20 ? 16 : 0) + (flags & 0x10 ? 4 : 0);
        uint64_t chunk = 0;
        size_t width = (size_t)1 << (flags & 3);
        if (at + width > b->size) continue;
        memcpy(&chunk, b->data + at, width);
        if (chunk < b->size) seal(b, checksum, i, at + width + (size_t)chunk - i);
    }
}

static void mutate(const bytes *whole, bytes *spoilt, metadata_checksum checksum)
{
    memcpy(spoilt->data, whole->data, whole->size);
    spoilt->size = whole->size;
    do mutate_once(spoilt);
    while (below(3) == 0 && spoilt->size > 64);
    if (checksum) reseal(spoilt, checksum);
}

/* Sanitizer reports of the process that reads a file's structure, which has no stderr: the program
 * only sees it end. */

typedef void set_report_path(const char *path);
static char reports[128]; /* path prefix of the reports; the process id is appended */
static set_report_path *set_paths[2];

static void in_child(void)
{
    for (int i = 0; i < 2; i++)
        if (set_paths[i]) set_paths[i](reports);
}

static void watch_children(void)
{
    void *other =
        dlopen("libubsan.so.1", RTLD_LAZY | RTLD_NOLOAD); /* GCC's has a path of its own */
    if (reports[0]) return;
    snprintf(reports, sizeof reports, "%s", in_folder("report"));
    *(void **)&set_paths[0] = dlsym(RTLD_DEFAULT, "__sanitizer_set_report_path");
    if (other) *(void **)&set_paths[1] = dlsym(other, "__sanitizer_set_report_path");
    CHECK(pthread_atfork(NULL, NULL, in_child) == 0, "pthread_atfork");
}

/* The first frame below `from` that is not the sanitizer's own is in HDF5. */
static bool frame_in_hdf5(const char *from)
{
    for (const char *line = from; line && (line = strchr(line, '\n')); line++) {
        char frame[256];
        snprintf(frame, sizeof frame, "%.*s", (int)strcspn(line + 1, "\n"), line + 1);
        if (!strstr(frame, " #") || strstr(frame, "interceptor") || strstr(frame, "asan_"))
            continue;
        return strstr(frame, "libhdf5") != NULL;
    }
    return false;
}

/* The address is not in the block that the report describes, but some bytes beside it. */
static bool is_beside(const char *error)
{
    static const char *const words[] = {" to the right of ", " to the left of ", " bytes after ",
                                        " bytes before "};
    for (int i = 0; i < HARNESS_COUNT(words); i++)
        if (strstr(error, words[i])) return true;
    return false;
}

/* True if a report is of an error of HDF5's in its own heap memory.  HDF5 is built without
 * sanitizers, so reports on stacks and variables are not about it.  A wild pointer of HDF5's may
 * lie beside any block; if that was freed already, nobody can have passed it to HDF5. */
static bool is_hdf5s(const char *report)
{
    const char *error = strstr(report, "ERROR: AddressSanitizer");
    const char *allocated = error ? strstr(error, "allocated by thread") : NULL;
    if (!error || strstr(error, "stack-") || strstr(error, "global-") || !frame_in_hdf5(error))
        return false;
    return !allocated || frame_in_hdf5(allocated) ||
           (strstr(error, "freed by thread") && is_beside(error));
}

/* Reads and removes the reports; false if one is of an error of the library's own. */
static bool no_reports(void)
{
    char pattern[sizeof reports + 2];
    glob_t found;
    bool good = true;
    snprintf(pattern, sizeof pattern, "%s.*", reports);
    if (glob(pattern, 0, NULL, &found) != 0) return true;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        size_t size = 0;
        char *text = (char *)file_read(found.gl_pathv[i], &size);
        const bool fault = strstr(text, "ERROR: ") || strstr(text, "runtime error: ");
        if (fault && !is_hdf5s(text)) good = CHECK(false, "in the reading process: %s", text);
        free(text);
        unlink(found.gl_pathv[i]);
    }
    globfree(&found);
    return good;
}

/* Reading the damaged files */

/* Processor time, in seconds, of this process and of the children it has waited for: what a busy
 * machine does not lengthen.  A reader that waits for ever runs into CTest's limit. */
static double processor_time(void)
{
    double seconds = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage used;
        getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &used);
        seconds += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    return seconds;
}

typedef struct tally {
    int taken, refused;
    double slowest;
} tally;
static int crashes;

static void on_log(void *user, tutti_log_level level, const char *message)
{
    (void)user, (void)level;
    if (strstr(message, "ended by signal")) crashes++;
}

bool mutate_refused(const char *message, const char *path)
{
    return CHECK(strstr(message, path), "'%s' does not name the file", message);
}

static bool try(const char *path, const bytes *b, mutate_reader *read, tally *tally)
{
    bool taken = false;
    file_write(path, b->data, b->size);
    const double begin = processor_time();
    const bool good = read(path, &taken);
    const double took = processor_time() - begin;
    if (took > tally->slowest) tally->slowest = took;
    ++*(taken ? &tally->taken : &tally->refused);
    const bool quick = CHECK(took < 25, "it took %g s of processor time", took);
    return no_reports() && quick && good;
}

static int number_from(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

void mutate_run(const char *good, int share, metadata_checksum checksum, mutate_reader *read)
{
    bytes whole = bytes_take(good), now_bytes = whole;
    if (!whole.data) return;
    int rounds = number_from("TUTTI_TEST_ROUNDS", 600) * share / 100;
    rng.state = (uint64_t)number_from("TUTTI_TEST_SEED", 1) * 1000 + (uint64_t)share;
    tally tally = {0, 0, 0};
    crashes = 0;
    tutti_set_log(on_log, NULL, TUTTI_LOG_DEBUG);
    watch_children();
    const char *path = in_folder("mutated");
    now_bytes.data = harness_calloc(1, whole.room);
    for (int i = 0; i < rounds && harness_failures() < 5; i++) {
        mutate(&whole, &now_bytes, checksum);
        harness_where("mutation %d of %s", i, good);
        if (!try(path, &now_bytes, read, &tally)) {
            char kept[64];
            snprintf(kept, sizeof kept, "/tmp/tutti-mutation-%d-%d", (int)getpid(), i);
            file_write(kept, now_bytes.data, now_bytes.size);
        }
    }
    harness_where(NULL);
    tutti_set_log(NULL, NULL, TUTTI_LOG_DEBUG);
    CHECK(tally.refused > rounds / 3, "only %d of %d were refused", tally.refused, rounds);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%d mutations: %d refused, %d without effect; HDF5 crashed %d times; slowest %.3f s; "
           "%ld MiB at most\n",
           rounds, tally.refused, tally.taken, crashes, tally.slowest, used.ru_maxrss >> 10);
    free(now_bytes.data);
    bytes_drop(&whole);
}
