/* Opens a case file and checks its structure. */
#include "inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char who[] = "cases_open";

const tutti__format cases_format = {"case file", TUTTI_CASES_FORMAT, 1, 0, false};

static tutti_status fail(tutti_status status, const char *format, ...)
{
    char text[APP_MESSAGE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    app_fail(APP_FAILED, "%s", text);
    return status;
}

const tutti__reporter cases_reporter = {fail, NULL};

int cases_code(tutti_status status)
{
    return status == TUTTI_OK ? APP_OK : APP_FAILED;
}

/* A node's place in the tree. */
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

static int unexpected(const tutti_cases *cases, const tutti__node *node)
{
    CASES_REFUSE(cases, "/%s does not belong in a case file", node->path);
}

/* Links, places and names of one node. */
static int check_node(const tutti_cases *cases, const tutti__node *node)
{
    place at = place_of(node->path);
    if (at.depth == 0) return APP_OK;
    if (node->kind == TUTTI__NODE_OTHER)
        CASES_REFUSE(cases,
                     "/%s is not a group or dataset of this file itself (but a link, a "
                     "second path to a group, or something that HDF5 cannot open)",
                     node->path);
    if (strcmp(node->path, "cases") != 0 && strncmp(node->path, "cases/", 6) != 0)
        return unexpected(cases, node);
    if (at.depth >= 3) {
        int part = case_part_parse(at.part, at.part_length);
        if (part < 0 || part > TUTTI_CASE_EXPECTED_GRAD) return unexpected(cases, node);
    }
    if (at.depth > 4) return unexpected(cases, node);
    tutti__node_kind wants = at.depth == 4 ? TUTTI__NODE_DATASET : TUTTI__NODE_GROUP;
    if (node->kind != wants)
        CASES_REFUSE(cases, "/%s is not a %s", node->path,
                     wants == TUTTI__NODE_GROUP ? "group" : "dataset");
    if (!case_name_ok(last_name(node->path)))
        CASES_REFUSE(cases, "the name of /%s is not 1 to %d letters, digits, - _ and .", node->path,
                     TUTTI_CASE_NAME_MAX - 1);
    return APP_OK;
}

/* Checks all nodes, counts cases and tensors, and allocates room for them. */
static int make_room(tutti_cases *cases)
{
    const tutti__structure *structure = cases->file.structure;
    for (int i = 0; i < structure->node_count; i++) {
        APP_TRY(check_node(cases, &structure->nodes[i]));
        if (i > 0 && strcmp(structure->nodes[i].path, structure->nodes[i - 1].path) == 0)
            CASES_REFUSE(cases, "/%s exists twice", structure->nodes[i].path);
        int depth = place_of(structure->nodes[i].path).depth;
        cases->count += depth == 2;
        cases->tensor_count += depth == 4;
    }
    if (!tutti__structure_find(structure, "cases")) CASES_REFUSE(cases, "has no group /cases");
    if (cases->count == 0) CASES_REFUSE(cases, "there is no case in /cases");
    cases->cases = calloc((size_t)cases->count, sizeof *cases->cases);
    cases->tensors = calloc((size_t)cases->tensor_count + 1, sizeof *cases->tensors);
    cases->nodes = calloc((size_t)cases->tensor_count + 1, sizeof *cases->nodes);
    if (!cases->cases || !cases->tensors || !cases->nodes)
        return app_fail(APP_FAILED, "%s: no memory", who);
    return APP_OK;
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

/* Reads a case; its tensors are appended to the list. */
static int take_case(tutti_cases *cases, const tutti__node *group, tutti_case *test_case, int *used)
{
    const tutti__structure *structure = cases->file.structure;
    char prefix[TUTTI_CASE_NAME_MAX + 8] = "";
    APP_TRY(case_from(cases, group, test_case));
    strcat(strcat(strcat(prefix, "cases/"), test_case->name), "/");
    test_case->tensors = &cases->tensors[*used];
    for (int i = lower_bound(structure, prefix);
         i < structure->node_count &&
         strncmp(structure->nodes[i].path, prefix, strlen(prefix)) == 0;
         i++) {
        const tutti__node *node = &structure->nodes[i];
        place at = place_of(node->path);
        if (at.depth != 4) continue;
        tutti_case_tensor *tensor = &cases->tensors[*used];
        cases->nodes[*used] = node;
        int part = case_part_parse(at.part, at.part_length);
        strcpy(tensor->name, last_name(node->path));
        APP_TRY(case_tensor_from(cases, node, (tutti_case_part)part, tensor));
        test_case->tensor_count++;
        ++*used;
    }
    return case_complete(cases, test_case);
}

static int by_offset(const void *a, const void *b)
{
    const tutti__node *left = *(const tutti__node *const *)a;
    const tutti__node *right = *(const tutti__node *const *)b;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* Refuses tensors whose bytes overlap. */
static int check_apart(const tutti_cases *cases)
{
    const tutti__node **sorted = calloc((size_t)cases->tensor_count + 1, sizeof *sorted);
    if (!sorted) return app_fail(APP_FAILED, "%s: no memory", who);
    int count = 0;
    for (int i = 0; i < cases->tensor_count; i++)
        if (cases->nodes[i]->bytes > 0) sorted[count++] = cases->nodes[i];
    qsort(sorted, (size_t)count, sizeof *sorted, by_offset);
    int code = APP_OK;
    for (int i = 1; i < count && code == APP_OK; i++)
        if (sorted[i]->offset - sorted[i - 1]->offset < sorted[i - 1]->bytes)
            code = cases_code(tutti__file_fail(&cases->file, TUTTI_ERR_DATA,
                                               "/%s and /%s overlap in the file",
                                               sorted[i - 1]->path, sorted[i]->path));
    free(sorted);
    return code;
}

static int read_all(tutti_cases *cases)
{
    APP_TRY(cases_code(tutti__file_open(&cases->file, &cases_format)));
    APP_TRY(make_room(cases));
    int index = 0, used = 0;
    for (int i = 0; i < cases->file.structure->node_count; i++) {
        const tutti__node *node = &cases->file.structure->nodes[i];
        if (place_of(node->path).depth == 2)
            APP_TRY(take_case(cases, node, &cases->cases[index++], &used));
    }
    return check_apart(cases);
}

int tutti_cases_open(const char *path, tutti_cases **cases)
{
    tutti_cases *made = calloc(1, sizeof *made);
    if (!made) return app_fail(APP_FAILED, "%s: no memory", who);
    made->file = (tutti__file){.reporter = &cases_reporter, .who = who, .path = path, .fd = -1};
    int code = read_all(made);
    if (code == APP_OK)
        *cases = made;
    else
        tutti_cases_close(&made);
    return code;
}

void tutti_cases_close(tutti_cases **cases)
{
    if (!*cases) return;
    tutti__file_close(&(*cases)->file);
    free((*cases)->cases);
    free((*cases)->tensors);
    free((*cases)->nodes);
    free(*cases);
    *cases = NULL;
}

int tutti_cases_count(const tutti_cases *cases)
{
    return cases->count;
}

const tutti_case *tutti_cases_get(const tutti_cases *cases, int index)
{
    return &cases->cases[index];
}
