/* Checkpoints: one HDF5 file that holds a model, its optimizer's state and the run's own values in
 * full, whatever the number of ranks that wrote it.  Any number of ranks can read it, and equal
 * states give equal bytes.  docs/file-formats.md describes the layout.
 *
 * A checkpoint object is a list of what belongs in the file, by name; it serves saving and
 * loading. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include "tutti/comm.h"

TUTTI_BEGIN

typedef struct tutti_checkpoint tutti_checkpoint;

/* An empty list.  It keeps comm and ctx alive.  TUTTI_ERR_UNSUPPORTED if the library was built
 * without HDF5. */
TUTTI_API tutti_status tutti_checkpoint_create(tutti_context *ctx, tutti_comm *comm,
                                               tutti_checkpoint **checkpoint);
/* NULL is allowed.  Releases the lock of the path that the list owns. */
TUTTI_API void tutti_checkpoint_destroy(tutti_checkpoint **checkpoint);

/* The functions below add to the list.  It keeps stores alive; everything else must be valid when
 * the list is saved or loaded.  A name is a path in the file, such as "state/step": letters, digits
 * and ._- in at most 16 parts separated by /, at most 255 bytes.  TUTTI_ERR_ARG for a name that is
 * taken or is not such a path. */

/* The masters of a built store, each as model/<its name>.  They must be equal on all ranks, as
 * training keeps them.
 *
 * A sharded store saves and loads the same files as one that is not sharded, so a file of N shards
 * can be loaded into M shards, or into a store that is not sharded.  Ranks send their slices while
 * saving, through device memory of at most 32 MiB, which is allocated for that time.
 * TUTTI_ERR_ARG unless the communicator has as many ranks as the store has shards, and this rank
 * is the store's number. */
TUTTI_API tutti_status tutti_checkpoint_add_params(tutti_checkpoint *checkpoint,
                                                   tutti_params *params);
/* The master of a bound parameter of the caller's (tutti_param_bind), like a store's: model/<name>.
 * name: as in a store; NULL: the parameter's own.  Equal on all ranks.  The memory that it is bound
 * to now is saved and loaded.
 *
 * A store can load what the caller's parameters save, and the reverse; added in a store's order
 * (tutti_params_get) they make the same file.  The file has f64 for f64 values and f32 for all
 * others.  An f16 or bf16 value that is its own master is therefore saved as f32, exactly, through
 * memory that the list allocates here, and rounded to nearest even when loaded: digits that a
 * store's f32 master had beyond that are lost.  A value with a separate master is rewritten from it
 * after loading.
 *
 * TUTTI_ERR_STATE for a parameter that is not bound. */
TUTTI_API tutti_status tutti_checkpoint_add_param(tutti_checkpoint *checkpoint, const char *name,
                                                  const tutti_param *param);
/* One tensor of an optimizer's state (tutti_adamw_state_get).  If it is laid out like the store,
 * each parameter's part becomes optimizer/<its name>/<name>, in full if the store is sharded, as
 * above; any other tensor becomes optimizer/<name> as it is, and params may be NULL.  So another
 * optimizer's state of one parameter, in the parameter's shape, is named "<parameter's name>/m" to
 * be read like a store's. */
TUTTI_API tutti_status tutti_checkpoint_add_state(tutti_checkpoint *checkpoint,
                                                  tutti_params *params,
                                                  const tutti_state_tensor *state);
/* Values of the caller's in host memory: an integer, a real number, a text (in `size` bytes, its
 * terminating 0 included), a table of f64 with `cols` columns, *rows rows now and at most
 * `capacity`.  Equal on all ranks when saved; set on all ranks when loaded. */
TUTTI_API tutti_status tutti_checkpoint_add_int(tutti_checkpoint *checkpoint, const char *name,
                                                int64_t *value);
TUTTI_API tutti_status tutti_checkpoint_add_real(tutti_checkpoint *checkpoint, const char *name,
                                                 double *value);
TUTTI_API tutti_status tutti_checkpoint_add_text(tutti_checkpoint *checkpoint, const char *name,
                                                 char *text, size_t size);
TUTTI_API tutti_status tutti_checkpoint_add_table(tutti_checkpoint *checkpoint, const char *name,
                                                  double *values, int64_t cols, int64_t capacity,
                                                  int64_t *rows);

/* Makes this list the only writer of path and checks that it can be written, at the beginning of a
 * run rather than at its first save.  Collective: all ranks return the same status.  Waits for the
 * context's stream.
 *
 * Rank 0 locks path.lck, which names its process and host, until the list is destroyed or owns
 * another path or the process ends in any way.  It then does all that a save of the list would do
 * now, except writing tensors and renaming.  path and path.1 to path.<keep> are not changed, and
 * only path.lck remains.  Waits up to 10 s for another writer, which may be ending after a kill.
 * The list may own its path again, for example after something was added.
 *
 * TUTTI_ERR_IO, naming the file, if another process writes it, naming that too, or if a save would
 * fail.  The list then owns nothing. */
TUTTI_API tutti_status tutti_checkpoint_own(tutti_checkpoint *checkpoint, const char *path,
                                            int keep);

/* Writes the file.  Collective: all ranks return the same status.  Waits for the context's stream.
 *
 * The ranks on rank 0's machine write it together as path.tmp, which is synced and renamed to
 * `path`, so at every moment `path` is the complete old or the complete new file.  keep: how many
 * older files are kept, as path.1 (the latest) to path.<keep>; 0: none.
 *
 * The file at path keeps its permissions and, where the system allows it, its owner and group; a
 * new file's follow the umask.  A symbolic link at path is replaced.
 *
 * A path has one writer: unless the list owns it already (tutti_checkpoint_own), it owns it during
 * the save, and waits up to 10 s for another writer.
 *
 * TUTTI_ERR_IO, naming the file and the system's error (a full disk, a missing folder, no
 * permission), or the process that writes it; the file at `path` is then untouched.  TUTTI_ERR_ARG
 * if the ranks' lists or values differ, or if a list makes more than 131072 groups and datasets,
 * which is also the most that is read. */
TUTTI_API tutti_status tutti_checkpoint_save(tutti_checkpoint *checkpoint, const char *path,
                                             int keep);

enum {
    /* read only the values (int, real, text, table), not the tensors: for a program that compares
     * them with its options before it builds a model */
    TUTTI_CHECKPOINT_VALUES = 1,
    /* ignore what the file has and the list does not: a model without its optimizer, for example */
    TUTTI_CHECKPOINT_SUBSET = 2
};

/* Reads the file on rank 0 and distributes its contents to all ranks; refreshes the working values
 * of stores (sharded ones: by their exchange) and of the caller's parameters.  Collective: all
 * ranks return the same status.  Waits for the context's stream.
 *
 * All names, types and shapes are checked against the list before any data is read.  A wrong
 * checksum is found while reading; tensors may then hold parts of the file, and the program should
 * stop.  Values are set last, and not at all by a load that fails.
 *
 * No file is trusted: HDF5 reads its structure in a short-lived child process (fork), so a damaged
 * file cannot harm this one.
 *
 * TUTTI_ERR_IO if the file does not exist or cannot be read; TUTTI_ERR_DATA, naming file and
 * tensor, if it is not a checkpoint, is of a newer format, incomplete or damaged, or if something
 * is missing, unexpected, or of another shape or type. */
TUTTI_API tutti_status tutti_checkpoint_load(tutti_checkpoint *checkpoint, const char *path,
                                             unsigned flags);

/* Receives a tensor's name (without "model/"), type and shape (data NULL). */
typedef void tutti_checkpoint_visitor(void *user, const char *name, const tutti_tensor *shape);

/* Calls visit for each tensor of a file's model, sorted by name, for programs that do not know the
 * model.  Reads no values.  Not collective.  Errors as of tutti_checkpoint_load. */
TUTTI_API tutti_status tutti_checkpoint_visit(const char *path, tutti_checkpoint_visitor *visit,
                                              void *user);

TUTTI_END
#endif
