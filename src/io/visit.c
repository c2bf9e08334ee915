/* What a checkpoint's model is made of. */
#include <string.h>

#include "core/internal.h"
#include "tutti/checkpoint.h"

#ifdef TUTTI_WITH_HDF5

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/checkpoint.h"
#include "io/structure.h"

static const char who[] = "checkpoint_visit", model[] = "model/";

static tutti_status visit_all(const tutti__structure *structure, const char *path,
                              tutti_checkpoint_visitor *visit, void *user)
{
    const tutti__node *root = tutti__structure_find(structure, "");
    const tutti__attribute *format = root ? tutti__node_attribute(structure, root, "format") : NULL;
    if (!format || format->kind != TUTTI__ATTRIBUTE_TEXT ||
        strcmp(format->text, TUTTI__FORMAT) != 0)
        return tutti__fail(TUTTI_ERR_DATA, "%s: %s: is no Tutti checkpoint", who, path);
    for (int i = 0; i < structure->node_count; i++) {
        const tutti__node *node = &structure->nodes[i];
        if (node->kind != TUTTI__NODE_DATASET || strncmp(node->path, model, strlen(model)) != 0)
            continue;
        if (!node->plain || node->ndim > TUTTI_MAX_DIMS || node->type > TUTTI__FILE_BF16)
            return tutti__fail(TUTTI_ERR_DATA, "%s: %s: %s is no tensor", who, path, node->path);
        tutti_tensor shape =
            tutti_tensor_make(NULL, (tutti_dtype)node->type, node->ndim, node->dims);
        visit(user, node->path + strlen(model), &shape);
    }
    return TUTTI_OK;
}

tutti_status tutti_checkpoint_visit(const char *path, tutti_checkpoint_visitor *visit, void *user)
{
    TUTTI_REQUIRE(path && path[0], "%s: path is %s", who, path ? "empty" : "NULL");
    TUTTI_REQUIRE(visit, "%s: visit is NULL", who);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat now;
    tutti__structure *structure = NULL;
    tutti_status status;
    if (fd < 0 || fstat(fd, &now) != 0)
        status = tutti__fail(TUTTI_ERR_IO, "%s: %s: %s", who, path, strerror(errno));
    else if (!S_ISREG(now.st_mode))
        status = tutti__fail(TUTTI_ERR_IO, "%s: %s: is no regular file", who, path);
    else
        status = tutti__structure_read(fd, who, path, &structure);
    if (fd >= 0) close(fd);
    if (status == TUTTI_OK) status = visit_all(structure, path, visit, user);
    tutti__structure_destroy(&structure);
    return status;
}

#else

tutti_status tutti_checkpoint_visit(const char *path, tutti_checkpoint_visitor *visit, void *user)
{
    (void)path, (void)visit, (void)user;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "checkpoint_visit: the library was built without HDF5; install HDF5 and "
                       "xxhash (libhdf5-dev and libxxhash-dev on Debian) and build it again");
}

#endif
