/* The child process in which HDF5 reads a file's structure; structure.h.  The only code of the
 * library that exits, as it ends only its own process. */
#include "files/structure.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "files/hdf5.h"

#define MEMORY ((rlim_t)1 << 30)

static struct {
    int fd;
    size_t used;
    char data[1 << 16];
} out;

static int nodes;
static hid_t types[TUTTI__FILE_TEXT]; /* one per type of numbers */

_Noreturn static void leave(tutti__outcome outcome);
_Noreturn static void leave_over(tutti__file_limit limit, int64_t found);

/* Reporting */

static void flush(void)
{
    for (size_t at = 0; at < out.used;) {
        ssize_t done = write(out.fd, out.data + at, out.used - at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) _exit(1);
        at += (size_t)done;
    }
    out.used = 0;
}

static void put(const void *data, size_t bytes)
{
    if (out.used + bytes > sizeof out.data) flush();
    memcpy(out.data + out.used, data, bytes);
    out.used += bytes;
}

static void put_tag(char tag)
{
    put(&tag, 1);
}

static void put_number(int64_t value)
{
    put(&value, sizeof value);
}

static void put_text(const char *text, size_t length)
{
    put_number((int64_t)length);
    put(text, length);
    put("", 1);
}

_Noreturn static void end_with(tutti__outcome outcome, int limit, int64_t found)
{
    put_tag('E');
    put_number(outcome);
    put_number(limit);
    put_number(found);
    flush();
    _exit(0);
}

static void leave(tutti__outcome outcome)
{
    end_with(outcome, 0, 0);
}

static void leave_over(tutti__file_limit limit, int64_t found)
{
    end_with(TUTTI__OUTCOME_TOO_MUCH, (int)limit, found);
}

/* Attributes */

static void put_attribute_head(tutti__attribute_kind kind, const char *name)
{
    put_tag('A');
    put_number(kind);
    put_text(name, strlen(name));
}

static void put_numbers(hid_t attribute, hid_t type, const char *name, int64_t count)
{
    union {
        int64_t ints[TUTTI__FILE_NUMBERS_MAX];
        double reals[TUTTI__FILE_NUMBERS_MAX];
    } values;
    memset(&values, 0, sizeof values);
    bool real = H5Tget_class(type) == H5T_FLOAT;
    bool is_signed = H5Tget_sign(type) != H5T_SGN_NONE;
    hid_t memory = real ? H5T_NATIVE_DOUBLE : is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
    if (H5Aread(attribute, memory, &values) < 0) leave(TUTTI__OUTCOME_DAMAGED);
    put_attribute_head(real ? TUTTI__ATTRIBUTE_REAL : TUTTI__ATTRIBUTE_INT, name);
    put_number(count);
    put(&values, (size_t)count * 8);
}

static bool put_string(hid_t attribute, hid_t type, const char *name)
{
    if (H5Tis_variable_str(type) > 0) {
        char *text = NULL;
        if (H5Aread(attribute, type, &text) < 0) leave(TUTTI__OUTCOME_DAMAGED);
        size_t length = text ? strnlen(text, TUTTI__FILE_TEXT_MAX) : 0;
        if (length == TUTTI__FILE_TEXT_MAX) return false;
        put_attribute_head(TUTTI__ATTRIBUTE_TEXT, name);
        put_text(text ? text : "", length);
        return true;
    }
    char text[TUTTI__FILE_TEXT_MAX + 1] = "";
    size_t size = H5Tget_size(type);
    if (size == 0 || size >= TUTTI__FILE_TEXT_MAX) return false;
    if (H5Aread(attribute, type, text) < 0) leave(TUTTI__OUTCOME_DAMAGED);
    put_attribute_head(TUTTI__ATTRIBUTE_TEXT, name);
    put_text(text, strnlen(text, size));
    return true;
}

static herr_t on_attribute(hid_t object, const char *name, const H5A_info_t *info, void *data)
{
    int *count = data;
    (void)info;
    if (++*count > TUTTI__FILE_ATTRIBUTES_MAX) leave_over(TUTTI__FILE_LIMIT_ATTRIBUTES, *count);
    if (strlen(name) > TUTTI__FILE_PATH_MAX)
        leave_over(TUTTI__FILE_LIMIT_PATH, (int64_t)strlen(name));
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    if (attribute < 0 || type < 0 || space < 0) leave(TUTTI__OUTCOME_DAMAGED);
    hssize_t n = H5Sget_simple_extent_npoints(space);
    H5T_class_t class = H5Tget_class(type);
    bool told = false;
    if ((class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM) && n >= 1 &&
        n <= TUTTI__FILE_NUMBERS_MAX && H5Tget_size(type) <= 8) {
        put_numbers(attribute, type, name, n);
        told = true;
    } else if (class == H5T_STRING && n == 1)
        told = put_string(attribute, type, name);
    if (!told) put_attribute_head(TUTTI__ATTRIBUTE_OTHER, name);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    return 0;
}

static void put_attributes(hid_t object)
{
    int count = 0;
    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, on_attribute, &count) < 0)
        leave(TUTTI__OUTCOME_DAMAGED);
}

/* Objects */

static void put_node(tutti__node_kind kind, const char *path)
{
    if (++nodes > TUTTI__FILE_NODES_MAX) leave_over(TUTTI__FILE_LIMIT_NODES, nodes);
    put_tag('N');
    put_number(kind);
    put_text(path, strlen(path));
}

static tutti__file_type type_of(hid_t type)
{
    for (int i = TUTTI_F32; i < TUTTI__FILE_TEXT; i++)
        if (H5Tequal(type, types[i]) > 0) return (tutti__file_type)i;
    if (H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0) return TUTTI__FILE_TEXT;
    return TUTTI__FILE_OTHER;
}

static void put_dataset(hid_t dataset, const char *path)
{
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    hid_t list = H5Dget_create_plist(dataset);
    if (type < 0 || space < 0 || list < 0) leave(TUTTI__OUTCOME_DAMAGED);
    hsize_t dims[H5S_MAX_RANK];
    int ndim = -1;
    H5S_class_t class = H5Sget_simple_extent_type(space);
    if (class == H5S_SCALAR || class == H5S_SIMPLE)
        ndim = H5Sget_simple_extent_dims(space, dims, NULL);
    if (ndim > TUTTI__FILE_DIMS_MAX) ndim = -1;
    put_node(TUTTI__NODE_DATASET, path);
    put_number(type_of(type));
    put_number((int64_t)H5Tget_size(type));
    put_number(ndim);
    for (int i = 0; i < ndim; i++) put_number((int64_t)dims[i]);
    bool plain = H5Pget_layout(list) == H5D_CONTIGUOUS && H5Pget_nfilters(list) == 0 &&
                 H5Pget_external_count(list) == 0;
    haddr_t offset = plain ? H5Dget_offset(dataset) : HADDR_UNDEF;
    bool empty = false;
    for (int i = 0; i < ndim; i++) empty = empty || dims[i] == 0;
    /* no shape, or never written */
    if (ndim < 0 || (offset == HADDR_UNDEF && !empty)) plain = false;
    put_number(plain);
    put_number((int64_t)offset);
    put_number(plain ? (int64_t)H5Dget_storage_size(dataset) : 0);
    H5Pclose(list);
    H5Sclose(space);
    H5Tclose(type);
}

/* A group that is its own ancestor would be visited for ever. */
static bool is_ancestor(hid_t group, int depth)
{
    static haddr_t ancestors[TUTTI__FILE_DEPTH_MAX + 1];
#if H5_VERSION_GE(1, 12, 0)
    H5O_info1_t info;
    herr_t got = H5Oget_info1(group, &info);
#else
    H5O_info_t info;
    herr_t got = H5Oget_info(group, &info);
#endif
    if (got < 0) leave(TUTTI__OUTCOME_DAMAGED);
    for (int i = 0; i < depth; i++)
        if (ancestors[i] == info.addr) return true;
    if (depth <= TUTTI__FILE_DEPTH_MAX) ancestors[depth] = info.addr;
    return false;
}

static void put_group(hid_t group, char *path, int depth);

/* A group's position in the tree. */
typedef struct place {
    char *path; /* of the group, with room for its members' names */
    int depth;
} place;

static void put_object(hid_t object, const place *at)
{
    H5I_type_t kind = object >= 0 ? H5Iget_type(object) : H5I_BADID;
    if (kind == H5I_GROUP)
        put_group(object, at->path, at->depth + 1);
    else if (kind == H5I_DATASET) {
        put_dataset(object, at->path);
        put_attributes(object);
    } else
        put_node(TUTTI__NODE_OTHER, at->path);
}

static herr_t on_link(hid_t group, const char *name, const H5L_info_t *link, void *data)
{
    const place *at = data;
    const size_t length = strlen(at->path), bytes = length + (length > 0) + strlen(name);
    if (bytes > TUTTI__FILE_PATH_MAX) leave_over(TUTTI__FILE_LIMIT_PATH, (int64_t)bytes);
    if (length > 0) at->path[length] = '/';
    strcpy(at->path + length + (length > 0), name);
    /* soft and external links may lead anywhere; what HDF5 cannot open is reported by name only */
    hid_t object = link->type == H5L_TYPE_HARD ? H5Oopen(group, name, H5P_DEFAULT) : -1;
    put_object(object, at);
    if (object >= 0) H5Oclose(object);
    at->path[length] = 0;
    return 0;
}

/* Reports everything below the group at `path`. */
static void put_group(hid_t group, char *path, int depth)
{
    if (is_ancestor(group, depth)) {
        put_node(TUTTI__NODE_OTHER, path);
        return;
    }
    put_node(TUTTI__NODE_GROUP, path);
    put_attributes(group);
    H5G_info_t info;
    if (H5Gget_info(group, &info) < 0) leave(TUTTI__OUTCOME_DAMAGED);
    if (depth == TUTTI__FILE_DEPTH_MAX && info.nlinks > 0)
        leave_over(TUTTI__FILE_LIMIT_DEPTH, depth + 1);
    /* too many are refused before they are visited */
    if (info.nlinks > (hsize_t)(TUTTI__FILE_NODES_MAX - nodes))
        leave_over(TUTTI__FILE_LIMIT_NODES,
                   info.nlinks < INT64_MAX / 2 ? nodes + (int64_t)info.nlinks : INT64_MAX);
    /* iterating by index would search from the first one each time */
    place at = {path, depth};
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, on_link, &at) < 0)
        leave(TUTTI__OUTCOME_DAMAGED);
}

/* The child process */

static void limit(int resource, rlim_t value)
{
    struct rlimit limits;
    if (getrlimit((__rlimit_resource_t)resource, &limits) != 0) return;
    if (limits.rlim_max == RLIM_INFINITY || value < limits.rlim_max) limits.rlim_cur = value;
    setrlimit((__rlimit_resource_t)resource, &limits);
}

/* Limits memory to what the process has already plus a gigabyte. */
static void limit_memory(void)
{
    unsigned long long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm) return;
    if (fscanf(statm, "%llu", &pages) == 1)
        limit(RLIMIT_AS, (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + MEMORY);
    fclose(statm);
}

static void settle(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* the program's handlers must not run here; a crash ends this process */
    for (int signal_number = 1; signal_number < 32; signal_number++) signal(signal_number, SIG_DFL);
    static const int others[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) signal(others[i], SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, TUTTI__FILE_SECONDS);
    limit_memory();
    alarm(2 * TUTTI__FILE_SECONDS);
    int silence = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(silence, i);
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
}

static bool make_types(void)
{
    for (int i = TUTTI_F32; i <= TUTTI_U8; i++) types[i] = tutti__hdf5_type((tutti_dtype)i);
    types[TUTTI__FILE_I8] = H5T_STD_I8LE;
    types[TUTTI__FILE_I16] = H5T_STD_I16LE;
    types[TUTTI__FILE_I64] = H5T_STD_I64LE;
    types[TUTTI__FILE_U16] = H5T_STD_U16LE;
    types[TUTTI__FILE_U32] = H5T_STD_U32LE;
    types[TUTTI__FILE_U64] = H5T_STD_U64LE;
    for (int i = TUTTI_F32; i < TUTTI__FILE_TEXT; i++)
        if (types[i] < 0) return false;
    return true;
}

void tutti__structure_child(int file, int pipe)
{
    out.fd = pipe;
    settle();
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    char path[TUTTI__FILE_PATH_MAX + 1];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (H5open() < 0 || !make_types()) leave(TUTTI__OUTCOME_DAMAGED);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* other drivers would open the descriptor's path, which may refer to another file by now */
    H5Pset_fapl_stdio(access);
    if (H5Fis_hdf5(path) <= 0) leave(TUTTI__OUTCOME_NOT_HDF5);
    hid_t id = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (id < 0) leave(TUTTI__OUTCOME_DAMAGED);
    hid_t root = H5Gopen2(id, "/", H5P_DEFAULT);
    if (root < 0) leave(TUTTI__OUTCOME_DAMAGED);
    path[0] = 0;
    put_group(root, path, 0);
    leave(TUTTI__OUTCOME_OK);
}
