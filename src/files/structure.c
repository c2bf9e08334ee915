/* Starts the child process that reads a file's structure with HDF5, and checks all it reports;
 * structure.h. */
#include "files/structure.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE = 30 /* seconds */, ATTRIBUTES_MAX = 2 * TUTTI__FILE_NODES_MAX };

const char *tutti__file_type_name(tutti__file_type type)
{
    static const char *const names[] = {
#define TUTTI_X(name, text) text,
        TUTTI__FILE_TYPES(TUTTI_X)
#undef TUTTI_X
    };
    return names[type <= TUTTI__FILE_OTHER ? type : TUTTI__FILE_OTHER];
}

/* The child process */

struct report {
    char *data;
    size_t bytes, room;
    bool too_long, too_slow; /* reading was aborted */
};

/* Reads what the pipe holds; false at the end, or if it is longer than any valid report. */
static bool read_some(struct report *report, int pipe)
{
    report->too_long = report->bytes > TUTTI__FILE_NAMES_MAX;
    if (report->too_long) return false;
    if (report->room - report->bytes < 4096) {
        size_t room = 2 * report->room + (1 << 16);
        char *data = realloc(report->data, room);
        if (!data) return false;
        report->data = data;
        report->room = room;
    }
    ssize_t got = read(pipe, report->data + report->bytes, report->room - report->bytes);
    if (got < 0) return errno == EINTR;
    report->bytes += (size_t)got;
    return got > 0;
}

static void read_report(struct report *report, int pipe)
{
    double begin = tutti__now(), left;
    while ((left = begin + DEADLINE - tutti__now()) > 0) {
        struct pollfd wait = {.fd = pipe, .events = POLLIN};
        int ready = poll(&wait, 1, (int)(left * 1000) + 1);
        if (ready < 0 && errno != EINTR) return;
        if (ready > 0 && !read_some(report, pipe)) return;
    }
    report->too_slow = true;
}

/* Lets HDF5 read the file in a child process.  -1 with errno if the child cannot be started. */
static int run_child(const tutti__file *file, struct report *report)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) return -1;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all,
                    &before); /* none of the program's handlers runs in the child */
    /* above the standard three, which the child closes */
    int in = fcntl(file->fd, F_DUPFD_CLOEXEC, 3), out = fcntl(pipes[1], F_DUPFD_CLOEXEC, 3);
    pid_t child = in >= 0 && out >= 0 ? fork() : -1;
    if (child == 0) tutti__structure_child(in, out);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    close(pipes[1]);
    if (child > 0) read_report(report, pipes[0]);
    close(pipes[0]);
    if (child > 0) {
        int status = 0;
        kill(child, SIGKILL); /* the report is complete or will never be */
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
        if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGALRM))
            report->too_slow = true;
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL && file->reporter->log)
            file->reporter->log(TUTTI_LOG_DEBUG,
                                "the process in which HDF5 read a file was ended by signal %d",
                                WTERMSIG(status));
    }
    errno = error;
    return child > 0 ? 0 : -1;
}

/* The report */

struct reader {
    char *at, *end;
    bool bad;
};

static int64_t get_number(struct reader *reader)
{
    int64_t value = 0;
    if (reader->end - reader->at < (ptrdiff_t)sizeof value)
        reader->bad = true;
    else {
        memcpy(&value, reader->at, sizeof value);
        reader->at += sizeof value;
    }
    return value;
}

/* A number within a range. */
static int get_int(struct reader *reader, int least, int most)
{
    int64_t value = get_number(reader);
    if (value < least || value > most) reader->bad = true;
    return reader->bad ? least : (int)value;
}

static double get_real(struct reader *reader)
{
    int64_t bits = get_number(reader);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const char *get_text(struct reader *reader, int most)
{
    int length = get_int(reader, 0, most);
    if (reader->bad || reader->end - reader->at <= length || reader->at[length]) {
        reader->bad = true;
        return "";
    }
    char *text = reader->at;
    reader->at += length + 1;
    return tutti_text_clean(text);
}

/* True if a dataset's bytes lie within the file and are as many as its shape needs. */
static bool fits(const tutti__node *node, int64_t storage, int64_t file_bytes)
{
    if (node->ndim < 0 || node->element <= 0) return false;
    int64_t bytes = node->element;
    for (int i = 0; i < node->ndim; i++)
        if (node->dims[i] == 0) bytes = 0;
    for (int i = 0; i < node->ndim && bytes > 0; i++) {
        if (bytes > INT64_MAX / node->dims[i]) return false;
        bytes *= node->dims[i];
    }
    return bytes == storage && (bytes == 0 || (node->offset >= 0 && bytes <= file_bytes &&
                                               node->offset <= file_bytes - bytes));
}

static void get_dataset(struct reader *reader, tutti__node *node, int64_t file_bytes)
{
    node->type = (tutti__file_type)get_int(reader, TUTTI__FILE_F32, TUTTI__FILE_OTHER);
    node->element = get_number(reader);
    node->ndim = get_int(reader, -1, TUTTI__FILE_DIMS_MAX);
    for (int i = 0; i < node->ndim; i++) {
        node->dims[i] = get_number(reader);
        if (node->dims[i] < 0) reader->bad = true;
    }
    node->plain = get_int(reader, 0, 1);
    node->offset = get_number(reader);
    int64_t storage = get_number(reader);
    if (reader->bad || !node->plain) return;
    node->bytes = storage;
    if (!fits(node, storage, file_bytes)) reader->bad = true;
}

static void get_attribute(struct reader *reader, tutti__attribute *attribute)
{
    attribute->kind = (tutti__attribute_kind)get_int(reader, 0, TUTTI__ATTRIBUTE_OTHER);
    attribute->name = get_text(reader, TUTTI__FILE_PATH_MAX);
    attribute->text = "";
    if (attribute->kind == TUTTI__ATTRIBUTE_TEXT)
        attribute->text = get_text(reader, TUTTI__FILE_TEXT_MAX);
    if (attribute->kind != TUTTI__ATTRIBUTE_INT && attribute->kind != TUTTI__ATTRIBUTE_REAL) return;
    attribute->count = get_int(reader, 1, TUTTI__FILE_NUMBERS_MAX);
    for (int i = 0; !reader->bad && i < attribute->count; i++)
        if (attribute->kind == TUTTI__ATTRIBUTE_INT)
            attribute->reals[i] = (double)(attribute->ints[i] = get_number(reader));
        else
            attribute->reals[i] = get_real(reader);
}

/* Appends a cleared element to an array. */
static void *grow(void **array, int *count, size_t size, int most)
{
    int n = *count;
    if (n >= most) return NULL;
    if ((n & (n - 1)) == 0) { /* full: 0, 1, 2, 4, ... */
        void *larger = realloc(*array, (n > 0 ? 2 * (size_t)n : 1) * size);
        if (!larger) return NULL;
        *array = larger;
    }
    ++*count;
    return memset((char *)*array + (size_t)n * size, 0, size);
}

/* The limit that was exceeded, and how much there is. */
struct excess {
    tutti__file_limit limit;
    int64_t found;
};

/* Fills structure from the report.  Returns its outcome, or DAMAGED if it is truncated or
 * malformed. */
static tutti__outcome parse_report(tutti__structure *structure, struct report *report,
                                   int64_t file_bytes, struct excess *excess)
{
    struct reader in = {report->data, report->data + report->bytes, false};
    while (!in.bad && in.at < in.end) {
        char tag = *in.at++;
        if (tag == 'E') {
            int outcome = get_int(&in, 0, TUTTI__OUTCOME_TOO_MUCH);
            excess->limit = (tutti__file_limit)get_int(&in, 0, TUTTI__FILE_LIMIT_NAMES);
            excess->found = get_number(&in);
            return in.bad ? TUTTI__OUTCOME_DAMAGED : (tutti__outcome)outcome;
        }
        if (tag == 'N') {
            tutti__node *node = grow((void **)&structure->nodes, &structure->node_count,
                                     sizeof *node, TUTTI__FILE_NODES_MAX);
            if (!node) break;
            node->kind = (tutti__node_kind)get_int(&in, 0, TUTTI__NODE_OTHER);
            node->path = get_text(&in, TUTTI__FILE_PATH_MAX);
            node->first_attribute = structure->attribute_count;
            if (node->kind == TUTTI__NODE_DATASET) get_dataset(&in, node, file_bytes);
        } else if (tag == 'A' && structure->node_count > 0) {
            tutti__attribute *attribute =
                grow((void **)&structure->attributes, &structure->attribute_count,
                     sizeof *attribute, ATTRIBUTES_MAX);
            if (!attribute) break;
            get_attribute(&in, attribute);
            structure->nodes[structure->node_count - 1].attribute_count++;
        } else
            in.bad = true;
    }
    if (report->too_slow) return TUTTI__OUTCOME_TOO_SLOW;
    if (!report->too_long) return TUTTI__OUTCOME_DAMAGED;
    excess->limit = TUTTI__FILE_LIMIT_NAMES;
    excess->found = (int64_t)report->bytes;
    return TUTTI__OUTCOME_TOO_MUCH;
}

static tutti_status refuse(const tutti__file *file, tutti__outcome outcome,
                           const struct excess *excess)
{
    static const struct {
        int most;
        const char *what;
    } limits[] = {
#define TUTTI_X(name, most, what) {most, what},
        TUTTI__FILE_LIMITS(TUTTI_X)
#undef TUTTI_X
    };
    if (outcome == TUTTI__OUTCOME_TOO_MUCH)
        return tutti__file_fail(file, TUTTI_ERR_DATA, "has %lld %s, want at most %d",
                                (long long)excess->found, limits[excess->limit].what,
                                limits[excess->limit].most);
    if (outcome == TUTTI__OUTCOME_TOO_SLOW)
        return tutti__file_fail(file, TUTTI_ERR_DATA,
                                "HDF5 could not read its structure within %d s: it is damaged or "
                                "not a file of this kind",
                                TUTTI__FILE_SECONDS);
    return tutti__file_fail(file, TUTTI_ERR_DATA, "%s",
                            outcome == TUTTI__OUTCOME_NOT_HDF5
                                ? "is not an HDF5 file"
                                : "is damaged: HDF5 cannot read its structure");
}

/* The file's size when it was closed, according to its superblock (HDF5's file format, III.A); 0 if
 * unknown. */
static int64_t bytes_by_superblock(int fd)
{
    unsigned char start[52];
    int64_t bytes = 0;
    if (pread(fd, start, sizeof start, 0) != (ssize_t)sizeof start) return 0;
    int version = start[8];
    if (memcmp(start, "\211HDF\r\n\032\n", 8) != 0 || version > 3) return 0;
    if (start[version < 2 ? 13 : 9] != sizeof bytes) return 0; /* the size of its addresses */
    memcpy(&bytes, start + (version == 0 ? 40 : version == 1 ? 44 : 28), sizeof bytes);
    return bytes;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const tutti__node *)a)->path, ((const tutti__node *)b)->path);
}

tutti_status tutti__structure_read(const tutti__file *file, tutti__structure **structure)
{
    struct stat now;
    if (fstat(file->fd, &now) != 0)
        return tutti__file_fail(file, TUTTI_ERR_IO, "%s", strerror(errno));
    struct report report = {NULL, 0, 0, false, false};
    struct excess excess = {TUTTI__FILE_LIMIT_NODES, 0};
    if (run_child(file, &report) != 0)
        return tutti__file_fail(file, TUTTI_ERR_IO, "cannot start a process to read it: %s",
                                strerror(errno));
    tutti__structure *made = calloc(1, sizeof *made);
    if (!made) {
        free(report.data);
        return tutti__file_fail(file, TUTTI_ERR_MEMORY, "no memory");
    }
    made->text = report.data;
    tutti__outcome outcome = parse_report(made, &report, now.st_size, &excess);
    if (outcome == TUTTI__OUTCOME_OK && made->node_count == 0) outcome = TUTTI__OUTCOME_DAMAGED;
    if (outcome == TUTTI__OUTCOME_OK) {
        qsort(made->nodes, (size_t)made->node_count, sizeof *made->nodes, by_path);
        *structure = made;
        return TUTTI_OK;
    }
    tutti__structure_destroy(&made);
    int64_t whole = outcome == TUTTI__OUTCOME_DAMAGED ? bytes_by_superblock(file->fd) : 0;
    if (whole > now.st_size)
        return tutti__file_fail(file, TUTTI_ERR_DATA, "is truncated: it has %lld bytes of %lld",
                                (long long)now.st_size, (long long)whole);
    return refuse(file, outcome, &excess);
}

void tutti__structure_destroy(tutti__structure **structure)
{
    if (!structure || !*structure) return;
    free((*structure)->text);
    free((*structure)->nodes);
    free((*structure)->attributes);
    free(*structure);
    *structure = NULL;
}

const tutti__node *tutti__structure_find(const tutti__structure *structure, const char *path)
{
    tutti__node key = {.path = path};
    return bsearch(&key, structure->nodes, (size_t)structure->node_count, sizeof *structure->nodes,
                   by_path);
}

const tutti__attribute *tutti__node_attribute(const tutti__structure *structure,
                                              const tutti__node *node, const char *name)
{
    for (int i = 0; node && i < node->attribute_count; i++) {
        const tutti__attribute *attribute = &structure->attributes[node->first_attribute + i];
        if (strcmp(attribute->name, name) == 0) return attribute;
    }
    return NULL;
}
