/* Checkpoints: one HDF5 file that holds a model, its optimizer's state and the run's own values, in
 * full, whatever the number of ranks that wrote it: any number of ranks reads it, and equal states
 * are equal bytes.  docs/file-formats.md has the layout.
 *
 * A checkpoint object lists what belongs into the file, by name; the one list serves saving and
 * loading. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include "tutti/comm.h"

TUTTI_BEGIN

typedef struct tutti_checkpoint tutti_checkpoint;

/* An empty list.  It holds comm and ctx.  TUTTI_ERR_UNSUPPORTED if the library was built without
 * HDF5. */
TUTTI_API tutti_status tutti_checkpoint_create(tutti_context *ctx, tutti_comm *comm,
                                               tutti_checkpoint **checkpoint);
/* NULL is allowed.  Gives up what the list owns. */
TUTTI_API void tutti_checkpoint_destroy(tutti_checkpoint **checkpoint);

/* What follows adds to the list.  Stores are held; other things that are added must be there when
 * it is saved or loaded.  A name is a path in the file, "state/step": letters, digits and ._- in at
 * most 16 parts split by /, of at most 255 bytes.  TUTTI_ERR_ARG for a name that is taken or is no
 * such path. */

/* The masters of a built store, each as model/<its name>.  Equal on all ranks, as training keeps
 * them. */
TUTTI_API tutti_status tutti_checkpoint_add_params(tutti_checkpoint *checkpoint,
                                                   tutti_params *params);
/* The master of a bound parameter of the caller's own (tutti_param_bind), as a store's:
 * model/<name>.  name: as of a parameter in a store; NULL: the parameter's own.  Equal on all
 * ranks.  The memory that it is bound to now is what is saved and loaded.
 *
 * What own parameters save a store loads, and the reverse; added in a store's order
 * (tutti_params_get) they make the same file.  The file has f64 for f64 values and f32 for all
 * others.  A value of f16 or bf16 that is its own master is therefore saved as f32, exactly, by way
 * of memory that the list takes here, and rounded to nearest even when it is loaded: digits that a
 * store's master had beyond that are lost.  A value that has a master apart from it is made from
 * that after loading.
 *
 * TUTTI_ERR_STATE for a parameter that is not bound. */
TUTTI_API tutti_status tutti_checkpoint_add_param(tutti_checkpoint *checkpoint, const char *name,
                                                  const tutti_param *param);
/* One tensor of an optimizer's state (tutti_adamw_state_get).  Of one like the store, the part of
 * each parameter becomes optimizer/<its name>/<name>; any other becomes optimizer/<name> as it is,
 * and wants no store: params may be NULL then.  So state that another optimizer keeps for a
 * parameter of its own, in the parameter's shape, is named "<parameter's name>/m" to be read as a
 * store's. */
TUTTI_API tutti_status tutti_checkpoint_add_state(tutti_checkpoint *checkpoint,
                                                  tutti_params *params,
                                                  const tutti_state_tensor *state);
/* Values of the caller's own in host memory: a whole number, a number, a text (with its 0 in `size`
 * bytes), a table of f64 with `cols` columns, of which *rows rows count now and `capacity` at most.
 * Equal on all ranks when saved; set on all ranks when loaded. */
TUTTI_API tutti_status tutti_checkpoint_add_int(tutti_checkpoint *checkpoint, const char *name,
                                                int64_t *value);
TUTTI_API tutti_status tutti_checkpoint_add_real(tutti_checkpoint *checkpoint, const char *name,
                                                 double *value);
TUTTI_API tutti_status tutti_checkpoint_add_text(tutti_checkpoint *checkpoint, const char *name,
                                                 char *text, size_t size);
TUTTI_API tutti_status tutti_checkpoint_add_table(tutti_checkpoint *checkpoint, const char *name,
                                                  double *values, int64_t cols, int64_t capacity,
                                                  int64_t *rows);

/* Makes this list the only writer of path, and finds out whether it can be written: for the
 * beginning of a run, which would otherwise learn either at its first save.  Collective: all ranks
 * return the same status.  Waits for the context's stream.
 *
 * Rank 0 locks path.lck, which names its process and host, until the list is destroyed or owns
 * another path, or until the process ends, however it ends; then it does what a save of the list as
 * it is now would do, but for the tensors and the renaming.  Nothing changes at path and path.1 to
 * path.<keep>, and no file but path.lck is left.  Another writer is waited for up to 10 s: one that
 * is about to end after a kill is then gone.  What the list owns may be owned again, after
 * something was added, say.
 *
 * TUTTI_ERR_IO, naming the file: another process writes it, and which; or what a save would fail
 * with.  The list owns nothing then. */
TUTTI_API tutti_status tutti_checkpoint_own(tutti_checkpoint *checkpoint, const char *path,
                                            int keep);

/* Writes the file.  Collective: all ranks return the same status.  Waits for the context's stream.
 *
 * The ranks of rank 0's machine write it together under the name path.tmp; it is synced and takes
 * the place of `path` in one step, so at every moment `path` is the file before or the file after,
 * whole.  keep: how many older ones stay, as path.1 (the one before) to path.<keep>; 0: none.
 *
 * Permissions stay as they were at path, and where the system allows it owner and group; a new file
 * has them by the umask.  A symbolic link at path is replaced.
 *
 * One writer a path: unless the list owns it already (tutti_checkpoint_own), it does so while it
 * saves, and waits for another one up to 10 s.
 *
 * TUTTI_ERR_IO, naming the file and what the system said (a full disk, a missing folder, no
 * permission), or the process that writes it; what was at `path` is untouched then.  TUTTI_ERR_ARG
 * if the ranks' lists or values differ, or a list makes more than 131072 groups and datasets, which
 * is the most that is read, too. */
TUTTI_API tutti_status tutti_checkpoint_save(tutti_checkpoint *checkpoint, const char *path,
                                             int keep);

enum {
    /* read the values (int, real, text, table) only, and leave tensors alone: what a program
     * compares with its options before it builds a model */
    TUTTI_CHECKPOINT_VALUES = 1,
    /* what the file holds and the list does not is ignored: a model without its optimizer, say */
    TUTTI_CHECKPOINT_SUBSET = 2
};

/* Reads the file on rank 0 and gives what it holds to all ranks; refreshes the working values of
 * stores and own parameters.  Collective: all ranks return the same status.  Waits for the
 * context's stream.
 *
 * Everything is checked against the list before anything is read: name, type and shape of all.  A
 * checksum that differs is found while reading; tensors hold parts of the file then, and the
 * program should stop.  Values are set last, and not at all by a load that fails.
 *
 * No file is trusted: HDF5 reads its structure in a child process that lives for milliseconds
 * (fork), so that a damaged file can do no harm here.
 *
 * TUTTI_ERR_IO if the file is not there or cannot be read; TUTTI_ERR_DATA, naming file and tensor,
 * if it is no checkpoint, of a newer format, incomplete or damaged, if something is missing, too
 * many, or of another shape or type. */
TUTTI_API tutti_status tutti_checkpoint_load(tutti_checkpoint *checkpoint, const char *path,
                                             unsigned flags);

/* Is told the name (without "model/"), type and shape (data NULL) of a tensor. */
typedef void tutti_checkpoint_visitor(void *user, const char *name, const tutti_tensor *shape);

/* What a file's model is made of, for programs that do not know it: visit is called for each of its
 * tensors, sorted by name.  Reads no values.  Not collective.  Fails as tutti_checkpoint_load does
 * for a file that is none. */
TUTTI_API tutti_status tutti_checkpoint_visit(const char *path, tutti_checkpoint_visitor *visit,
                                              void *user);

TUTTI_END
#endif
