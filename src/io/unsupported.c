/* Checkpoints of a library that was built without HDF5. */
#include "core/internal.h"
#include "core/version.h"
#include "tutti/checkpoint.h"

#include <stdio.h>

void tutti__io_describe(char *text, size_t size)
{
    snprintf(text, size, "files: not built");
}

static tutti_status unsupported(const char *who)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "%s: the library was built without HDF5; install HDF5 and xxhash "
                       "(libhdf5-dev and libxxhash-dev on Debian) and build it again",
                       who);
}

tutti_status tutti_checkpoint_create(tutti_context *ctx, tutti_comm *comm,
                                     tutti_checkpoint **checkpoint)
{
    (void)comm, (void)ctx, (void)checkpoint;
    return unsupported("checkpoint_create");
}

void tutti_checkpoint_destroy(tutti_checkpoint **checkpoint)
{
    (void)checkpoint;
}

tutti_status tutti_checkpoint_add_params(tutti_checkpoint *checkpoint, tutti_params *params)
{
    (void)checkpoint, (void)params;
    return unsupported("checkpoint_add_params");
}

tutti_status tutti_checkpoint_add_param(tutti_checkpoint *checkpoint, const char *name,
                                        const tutti_param *param)
{
    (void)checkpoint, (void)name, (void)param;
    return unsupported("checkpoint_add_param");
}

tutti_status tutti_checkpoint_add_state(tutti_checkpoint *checkpoint, tutti_params *params,
                                        const tutti_state_tensor *state)
{
    (void)checkpoint, (void)params, (void)state;
    return unsupported("checkpoint_add_state");
}

tutti_status tutti_checkpoint_add_int(tutti_checkpoint *checkpoint, const char *name,
                                      int64_t *value)
{
    (void)checkpoint, (void)name, (void)value;
    return unsupported("checkpoint_add_int");
}

tutti_status tutti_checkpoint_add_real(tutti_checkpoint *checkpoint, const char *name,
                                       double *value)
{
    (void)checkpoint, (void)name, (void)value;
    return unsupported("checkpoint_add_real");
}

tutti_status tutti_checkpoint_add_text(tutti_checkpoint *checkpoint, const char *name, char *text,
                                       size_t size)
{
    (void)checkpoint, (void)name, (void)text, (void)size;
    return unsupported("checkpoint_add_text");
}

tutti_status tutti_checkpoint_add_table(tutti_checkpoint *checkpoint, const char *name,
                                        double *values, int64_t cols, int64_t capacity,
                                        int64_t *rows)
{
    (void)checkpoint, (void)name, (void)values, (void)cols, (void)capacity, (void)rows;
    return unsupported("checkpoint_add_table");
}

tutti_status tutti_checkpoint_own(tutti_checkpoint *checkpoint, const char *path, int keep)
{
    (void)checkpoint, (void)path, (void)keep;
    return unsupported("checkpoint_own");
}

tutti_status tutti_checkpoint_save(tutti_checkpoint *checkpoint, const char *path, int keep)
{
    (void)checkpoint, (void)path, (void)keep;
    return unsupported("checkpoint_save");
}

tutti_status tutti_checkpoint_load(tutti_checkpoint *checkpoint, const char *path, unsigned flags)
{
    (void)checkpoint, (void)path, (void)flags;
    return unsupported("checkpoint_load");
}

tutti_status tutti_checkpoint_visit(const char *path, tutti_checkpoint_visitor *visit, void *user)
{
    (void)path, (void)visit, (void)user;
    return unsupported("checkpoint_visit");
}
