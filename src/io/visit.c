/* Visits the tensors of a checkpoint's model. */
#include <string.h>

#include "files/structure.h"
#include "io/checkpoint.h"

static const char model[] = "model/";

static tutti_status visit_all(const tutti__file *file, tutti_checkpoint_visitor *visit, void *user)
{
    for (int i = 0; i < file->structure->node_count; i++) {
        const tutti__node *node = &file->structure->nodes[i];
        if (node->kind != TUTTI__NODE_DATASET || strncmp(node->path, model, strlen(model)) != 0)
            continue;
        if (!node->plain || node->ndim > TUTTI_MAX_DIMS || node->type > TUTTI__FILE_BF16)
            return tutti__file_fail(file, TUTTI_ERR_DATA, "%s is not a tensor", node->path);
        tutti_tensor shape =
            tutti_tensor_make(NULL, (tutti_dtype)node->type, node->ndim, node->dims);
        visit(user, node->path + strlen(model), &shape);
    }
    return TUTTI_OK;
}

tutti_status tutti_checkpoint_visit(const char *path, tutti_checkpoint_visitor *visit, void *user)
{
    tutti__file file = {.reporter = &tutti__library, .who = "checkpoint_visit", .path = path};
    TUTTI_REQUIRE(path && path[0], "%s: path is %s", file.who, path ? "empty" : "NULL");
    TUTTI_REQUIRE(visit, "%s: visit is NULL", file.who);
    tutti_status status = tutti__file_open(&file, &tutti__checkpoint_format);
    if (status == TUTTI_OK) status = visit_all(&file, visit, user);
    tutti__file_close(&file);
    return status;
}
