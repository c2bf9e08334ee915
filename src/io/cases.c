/* Opening a case file: what it holds, against what a case file may hold. */
#include "io/cases.h"

#include <ctype.h>
#include <string.h>

static const char *const part_names[] = {"inputs",        "params", "upstream",  "expected",
                                         "expected_grad", "actual", "difference"};

const char *tutti_case_part_name(tutti_case_part part)
{
    return (unsigned)part <= TUTTI_CASE_DIFFERENCE ? part_names[part] : "unknown";
}

int tutti__case_part_parse(const char *name, size_t length)
{
    for (int i = 0; i <= TUTTI_CASE_DIFFERENCE; i++)
        if (strlen(part_names[i]) == length && memcmp(part_names[i], name, length) == 0) return i;
    return -1;
}

bool tutti__case_is_expected(tutti_case_part part)
{
    return part == TUTTI_CASE_EXPECTED || part == TUTTI_CASE_EXPECTED_GRAD;
}

bool tutti__case_name_ok(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= TUTTI_CASE_NAME_MAX || name[0] == '.') return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("-_.", *name)) return false;
    return true;
}

const tutti_case_tensor *tutti_case_find(const tutti_case *which, tutti_case_part part,
                                         const char *name)
{
    if (!which || !name) return NULL;
    for (int i = 0; i < which->tensor_count; i++)
        if (which->tensors[i].part == part && strcmp(which->tensors[i].name, name) == 0)
            return &which->tensors[i];
    return NULL;
}

#ifdef TUTTI_WITH_HDF5

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char who[] = "cases_open";

static tutti_status open_file(tutti_cases *cases)
{
    /* without waiting for whoever writes into a pipe */
    cases->fd = open(cases->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat now;
    if (cases->fd < 0 || fstat(cases->fd, &now) != 0)
        return tutti__fail(TUTTI_ERR_IO, "%s: %s: %s", who, cases->path, strerror(errno));
    if (!S_ISREG(now.st_mode))
        return tutti__fail(TUTTI_ERR_IO, "%s: %s: is no regular file", who, cases->path);
    return tutti__structure_read(cases->fd, who, cases->path, &cases->structure);
}

static tutti_status check_root(const tutti_cases *cases)
{
    const tutti__structure *structure = cases->structure;
    const tutti__node *root = tutti__structure_find(structure, "");
    const tutti__attribute *format = root ? tutti__node_attribute(structure, root, "format") : NULL;
    if (!format || format->kind != TUTTI__ATTRIBUTE_TEXT)
        return tutti__fail(TUTTI_ERR_DATA, "%s: %s: is no case file: it has no format", who,
                           cases->path);
    if (strcmp(format->text, TUTTI_CASES_FORMAT) != 0)
        return tutti__fail(TUTTI_ERR_DATA, "%s: %s: is no case file: its format is %s, want %s",
                           who, cases->path, format->text, TUTTI_CASES_FORMAT);
    const tutti__attribute *version = tutti__node_attribute(structure, root, "format_version");
    if (!version || version->kind != TUTTI__ATTRIBUTE_INT || version->count != 2)
        return tutti__fail(TUTTI_ERR_DATA, "%s: %s: format_version is not two whole numbers", who,
                           cases->path);
    if (version->ints[0] != TUTTI__CASES_MAJOR)
        return tutti__fail(TUTTI_ERR_DATA,
                           "%s: %s: is of format version %" PRId64 ".%" PRId64 ", want %d", who,
                           cases->path, version->ints[0], version->ints[1], TUTTI__CASES_MAJOR);
    return TUTTI_OK;
}

/* Where in the tree a node is. */
typedef struct place {
    int depth; /* 0 the root, 1 cases, 2 a case, 3 a part, 4 a tensor */
    const char *part;
    size_t part_length;
} place;

static place place_of(const char *path)
{
    place at = {.depth = *path ? 1 : 0};
    for (const char *c = path; *c; c++) {
        if (*c != '/') continue;
        at.depth++;
        if (at.depth == 3) {
            at.part = c + 1;
            at.part_length = strcspn(at.part, "/");
        }
    }
    return at;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static tutti_status stray(const tutti_cases *cases, const tutti__node *node)
{
    return tutti__fail(TUTTI_ERR_DATA, "%s: %s: /%s does not belong into a case file", who,
                       cases->path, node->path);
}

/* Links, places and names of one node. */
static tutti_status check_node(const tutti_cases *cases, const tutti__node *node)
{
    place at = place_of(node->path);
    if (at.depth == 0) return TUTTI_OK;
    if (node->kind == TUTTI__NODE_OTHER)
        return tutti__fail(TUTTI_ERR_DATA,
                           "%s: %s: /%s is neither group nor dataset of this file's own (a link, a "
                           "second path to a group, or what HDF5 cannot open)",
                           who, cases->path, node->path);
    if (strcmp(node->path, "cases") != 0 && strncmp(node->path, "cases/", 6) != 0)
        return stray(cases, node);
    if (at.depth >= 3) {
        int part = tutti__case_part_parse(at.part, at.part_length);
        if (part < 0 || part > TUTTI_CASE_EXPECTED_GRAD) return stray(cases, node);
    }
    if (at.depth > 4) return stray(cases, node);
    tutti__node_kind wants = at.depth == 4 ? TUTTI__NODE_DATASET : TUTTI__NODE_GROUP;
    if (node->kind != wants)
        return tutti__fail(TUTTI_ERR_DATA, "%s: %s: /%s is no %s", who, cases->path, node->path,
                           wants == TUTTI__NODE_GROUP ? "group" : "dataset");
    if (!tutti__case_name_ok(last_name(node->path)))
        return tutti__fail(TUTTI_ERR_DATA,
                           "%s: %s: the name of /%s is not 1 to %d letters, digits, - _ and .", who,
                           cases->path, node->path, TUTTI_CASE_NAME_MAX - 1);
    return TUTTI_OK;
}

/* Checks all places, counts cases and tensors, and makes room for them. */
static tutti_status make_room(tutti_cases *cases)
{
    const tutti__structure *structure = cases->structure;
    for (int i = 0; i < structure->node_count; i++) {
        TUTTI_TRY(check_node(cases, &structure->nodes[i]));
        if (i > 0 && strcmp(structure->nodes[i].path, structure->nodes[i - 1].path) == 0)
            return tutti__fail(TUTTI_ERR_DATA, "%s: %s: there are two of /%s", who, cases->path,
                               structure->nodes[i].path);
        int depth = place_of(structure->nodes[i].path).depth;
        cases->count += depth == 2;
        cases->tensor_count += depth == 4;
    }
    if (!tutti__structure_find(structure, "cases"))
        return tutti__fail(TUTTI_ERR_DATA, "%s: %s: has no group cases", who, cases->path);
    if (cases->count == 0)
        return tutti__fail(TUTTI_ERR_DATA, "%s: %s: there is no case in /cases", who, cases->path);
    cases->cases = calloc((size_t)cases->count, sizeof *cases->cases);
    cases->tensors = calloc((size_t)cases->tensor_count + 1, sizeof *cases->tensors);
    cases->nodes = calloc((size_t)cases->tensor_count + 1, sizeof *cases->nodes);
    if (!cases->cases || !cases->tensors || !cases->nodes)
        return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    return TUTTI_OK;
}

/* The first node whose path is not before `path`. */
static int lower_bound(const tutti__structure *structure, const char *path)
{
    int low = 0, high = structure->node_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strcmp(structure->nodes[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The tensors of a case go to the end of the list. */
static tutti_status take_case(tutti_cases *cases, const tutti__node *group, tutti_case *which,
                              int *used)
{
    const tutti__structure *structure = cases->structure;
    char prefix[TUTTI_CASE_NAME_MAX + 8] = "";
    TUTTI_TRY(tutti__case_from(cases, group, which));
    strcat(strcat(strcat(prefix, "cases/"), which->name), "/");
    which->tensors = &cases->tensors[*used];
    for (int i = lower_bound(structure, prefix);
         i < structure->node_count &&
         strncmp(structure->nodes[i].path, prefix, strlen(prefix)) == 0;
         i++) {
        const tutti__node *node = &structure->nodes[i];
        place at = place_of(node->path);
        if (at.depth != 4) continue;
        tutti_case_tensor *tensor = &cases->tensors[*used];
        cases->nodes[*used] = node;
        int part = tutti__case_part_parse(at.part, at.part_length);
        strcpy(tensor->name, last_name(node->path));
        TUTTI_TRY(tutti__case_tensor_from(cases, node, (tutti_case_part)part, tensor));
        which->tensor_count++;
        ++*used;
    }
    return tutti__case_complete(cases, which);
}

static int by_offset(const void *a, const void *b)
{
    const tutti__node *left = *(const tutti__node *const *)a;
    const tutti__node *right = *(const tutti__node *const *)b;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* Each tensor has bytes of its own. */
static tutti_status check_apart(const tutti_cases *cases)
{
    const tutti__node **sorted = calloc((size_t)cases->tensor_count + 1, sizeof *sorted);
    if (!sorted) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    int count = 0;
    for (int i = 0; i < cases->tensor_count; i++)
        if (cases->nodes[i]->bytes > 0) sorted[count++] = cases->nodes[i];
    qsort(sorted, (size_t)count, sizeof *sorted, by_offset);
    tutti_status status = TUTTI_OK;
    for (int i = 1; i < count && status == TUTTI_OK; i++)
        if (sorted[i]->offset - sorted[i - 1]->offset < sorted[i - 1]->bytes)
            status = tutti__fail(TUTTI_ERR_DATA, "%s: %s: /%s and /%s share their bytes", who,
                                 cases->path, sorted[i - 1]->path, sorted[i]->path);
    free(sorted);
    return status;
}

static tutti_status read_all(tutti_cases *cases)
{
    TUTTI_TRY(open_file(cases));
    TUTTI_TRY(check_root(cases));
    TUTTI_TRY(make_room(cases));
    int which = 0, used = 0;
    for (int i = 0; i < cases->structure->node_count; i++) {
        const tutti__node *node = &cases->structure->nodes[i];
        if (place_of(node->path).depth == 2)
            TUTTI_TRY(take_case(cases, node, &cases->cases[which++], &used));
    }
    return check_apart(cases);
}

tutti_status tutti_cases_open(const char *path, tutti_cases **cases)
{
    TUTTI_REQUIRE(path && path[0], "%s: path is %s", who, path ? "empty" : "NULL");
    TUTTI_REQUIRE(cases, "%s: cases is NULL", who);
    tutti_cases *made = calloc(1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    made->fd = -1;
    made->path = strdup(path);
    tutti_status status =
        made->path ? read_all(made) : tutti__fail(TUTTI_ERR_MEMORY, "%s: no memory", who);
    if (status == TUTTI_OK)
        *cases = made;
    else
        tutti_cases_close(&made);
    return status;
}

void tutti_cases_close(tutti_cases **cases)
{
    if (!cases || !*cases) return;
    if ((*cases)->fd >= 0) close((*cases)->fd);
    tutti__structure_destroy(&(*cases)->structure);
    free((*cases)->cases);
    free((*cases)->tensors);
    free((*cases)->nodes);
    free((*cases)->path);
    free(*cases);
    *cases = NULL;
}

int tutti_cases_count(const tutti_cases *cases)
{
    return cases ? cases->count : 0;
}

const tutti_case *tutti_cases_get(const tutti_cases *cases, int index)
{
    return cases && index >= 0 && index < cases->count ? &cases->cases[index] : NULL;
}

#endif
