/* Inside of a checkpoint: the list of what belongs into the file, and the blocks in which tensors
 * are moved and hashed.
 *
 *   list.c       the list: create, add, destroy
 *   layout.c     the file without its tensors, made by HDF5 in memory
 *   own.c        who may write the file, and whether it can be written; by lock.c, path.lck
 *   save.c       tensors and layout into path.tmp, and that into the place of path
 *   load.c       file against list, then blocks into tensors
 *   blocks.c     moving and hashing
 *   visit.c      what a file's model is made of
 *
 * What is not a checkpoint's own is in files/. */
#ifndef TUTTI_IO_CHECKPOINT_H
#define TUTTI_IO_CHECKPOINT_H

#include <sys/types.h>

#include "core/context.h"
#include "core/params.h"
#include "files/file.h"
#include "io/lock.h"
#include "tutti/checkpoint.h"

extern const tutti__format tutti__checkpoint_format;
extern const tutti__reporter tutti__library; /* tutti_last_error and the log */

#define TUTTI__ITEM_NAME_MAX 256 /* its 0 included */

typedef enum tutti__item_kind {
    TUTTI__ITEM_TENSOR,
    TUTTI__ITEM_INT,
    TUTTI__ITEM_REAL,
    TUTTI__ITEM_TEXT,
    TUTTI__ITEM_TABLE
} tutti__item_kind;

typedef struct tutti__item {
    char name[TUTTI__ITEM_NAME_MAX];
    tutti__item_kind kind;
    tutti_tensor tensor; /* TENSOR: contiguous, on the device; data: of this rank's part */
    /* TENSOR: rank r alone has elements [bounds[r], bounds[r + 1]); NULL: all have all */
    int64_t *bounds;
    int ranks;                     /* of the bounds */
    void *data;                    /* the others: in host memory */
    size_t size;                   /* TEXT: bytes that data has room for */
    int64_t cols, capacity, *rows; /* TABLE */
} tutti__item;

/* A parameter of the caller's own whose value is not what the file has. */
typedef struct tutti__bound {
    tutti_tensor value, master;
    bool made; /* master is the list's, made from the value before saving */
} tutti__bound;

struct tutti_checkpoint {
    tutti_comm *comm;
    tutti_context *ctx;
    tutti__item *items;
    int count, room;
    tutti_params **stores; /* refreshed after loading */
    int store_count;
    tutti__bound *bound; /* the values are made from the masters after loading */
    int bound_count;
    tutti__lock lock; /* rank 0's, of the path that the list owns */
};

/* Adds a tensor of which each rank has a part: rank r the elements [bounds[r], bounds[r + 1]),
 * contiguous at its tensor.data.  The first bound is 0, the last the tensor's count, and the others
 * are multiples of a block, so that each block has one owner.  What is saved is the file of the
 * whole tensor.  Owners write and read their blocks themselves: a save wants them on rank 0's
 * machine, and a load wants them to see the file. */
tutti_status tutti__checkpoint_add_parts(tutti_checkpoint *checkpoint, const char *name,
                                         const tutti_tensor *tensor, const int64_t *bounds);

/* Neither the context nor a store has been destroyed. */
tutti_status tutti__list_open(const tutti_checkpoint *checkpoint, const char *who);

/* Makes the masters that are the list's own from their values: before saving. */
tutti_status tutti__list_widen(const tutti_checkpoint *checkpoint);
/* Makes the values of stores and own parameters from their masters: after loading. */
tutti_status tutti__list_refresh(const tutti_checkpoint *checkpoint);

/* What a save can be refused for before anybody looks at the file. */
tutti_status tutti__save_check(tutti_checkpoint *checkpoint, const char *who, const char *path,
                               int keep);
/* On rank 0: what is at path may be replaced by a file, of the list's size. */
tutti_status tutti__target_check(const tutti_checkpoint *checkpoint, const char *who,
                                 const char *path);
/* Makes the list the owner of path, or temporary the one that lasts for a save; waits for one that
 * is about to end. Collective. */
tutti_status tutti__own(tutti_checkpoint *checkpoint, const char *who, const char *path,
                        tutti__lock *temporary);

/* Bytes of a value as it is now, as the file has them (an empty text is one 0). */
size_t tutti__item_bytes(const tutti__item *item);
/* Which of a tensor's bytes a rank has. */
typedef struct tutti__part {
    int64_t begin, end;
} tutti__part;
tutti__part tutti__item_part(const tutti__item *item, int rank);

/* Every rank has the same list: hashes [1 + count], the first of which is of what `first` says, the
 * others one an item (tutti__item_hash).  Collective. */
tutti_status tutti__same_list(const tutti_checkpoint *checkpoint, const char *who,
                              const uint64_t *hashes, const char *first);
/* Of name, type and shape; with_value: and of what a value is now. */
uint64_t tutti__item_hash(const tutti__item *item, bool with_value);

/* Tensors are moved and hashed in blocks of this many bytes, the last one of a tensor being
 * shorter.  The format's: the checksum of a tensor depends on it. */
#define TUTTI__BLOCK_BYTES ((int64_t)4 << 20)
/* The most blocks that one rank moves before the ranks agree that all is well: bounds how long
 * ranks wait for each other. */
#define TUTTI__ROUND_BLOCKS 8

typedef struct tutti__block {
    int item;
    int mover;  /* the rank that writes or reads it, its owner where it has one; -1: any may */
    char *data; /* on the device; NULL: only the owner's */
    int64_t offset, bytes; /* in the file */
} tutti__block;

/* The blocks of all tensors, in the list's order; offsets: in the file, one an item. */
tutti_status tutti__blocks_make(const tutti_checkpoint *checkpoint, const int64_t *offsets,
                                tutti__block **blocks, int64_t *count);

/* Some of the blocks, one behind the other, with their hashes. */
typedef struct tutti__share {
    tutti__block *blocks; /* with room for one more */
    uint64_t *hashes;
    int64_t count, most; /* most: of any rank's share */
} tutti__share;

/* Those of a mover. */
tutti_status tutti__share_make(const tutti_checkpoint *checkpoint, const tutti__block *blocks,
                               int64_t count, int mover, tutti__share *share);
void tutti__share_free(tutti__share *share);
/* hashes [count]: of all blocks that have movers, from every rank's share.  Collective. */
tutti_status tutti__share_gather(const tutti_checkpoint *checkpoint, const char *who,
                                 const tutti__share *share, const tutti__block *blocks,
                                 int64_t count, uint64_t *hashes);
/* The blocks of a round: from `first` on; none, where the share has fewer. */
typedef struct tutti__round {
    int64_t first, count;
} tutti__round;
tutti__round tutti__share_round(const tutti__share *share, int64_t round);

/* A file, and buffers between it and the device where that is not the host. */
typedef struct tutti__mover {
    tutti_context *ctx;
    int fd;
    char *stage[2]; /* of a round, each; NULL on the host */
    int turn;
} tutti__mover;

tutti_status tutti__mover_open(tutti__mover *mover, tutti_context *ctx, int fd,
                               const tutti__block *blocks, int64_t count);
void tutti__mover_close(tutti__mover *mover);

/* Writes a round of blocks and hashes them.  next: those of the round to come (next_count 0: none),
 * which are on their way from the device meanwhile; the first round was announced by
 * tutti__mover_fetch.  *error: 0 or errno. */
tutti_status tutti__mover_fetch(tutti__mover *mover, const tutti__block *blocks, int64_t count);
tutti_status tutti__mover_write(tutti__mover *mover, const tutti__block *blocks, int64_t count,
                                uint64_t *hashes, const tutti__block *next, int64_t next_count,
                                int *error);
/* Reads a round of blocks, hashes them and sends them to the device.  *error: 0, errno, or -1 for a
 * file that ends early. */
tutti_status tutti__mover_read(tutti__mover *mover, const tutti__block *blocks, int64_t count,
                               uint64_t *hashes, int *error);

/* A checksum is the hash of the hashes of a tensor's blocks. */
uint64_t tutti__checksum_of_hashes(const uint64_t *hashes, int64_t count);
/* The same of bytes in host memory. */
uint64_t tutti__checksum(const void *data, size_t bytes);

/* The file without its tensors: all metadata and values, in memory, made by HDF5 on rank 0. */
typedef struct tutti__layout tutti__layout;
tutti_status tutti__layout_create(const tutti_checkpoint *checkpoint, tutti__layout **layout);
/* NULL is allowed. */
void tutti__layout_destroy(tutti__layout **layout);
/* Of the whole file, tensors included. */
int64_t tutti__layout_size(const tutti__layout *layout);
/* Where each item's bytes begin; -1 for an item without any. */
const int64_t *tutti__layout_offsets(const tutti__layout *layout);
/* Enters the checksums, one an item (values have theirs already), and marks the file as
 * complete. */
tutti_status tutti__layout_finish(tutti__layout *layout, const uint64_t *checksums);
/* Writes everything but the tensors into fd, the file's first bytes last, so that what is
 * unfinished is no HDF5 file.  After finish.  *error: 0 or errno. */
tutti_status tutti__layout_write(const tutti__layout *layout, int fd, int *error);

#endif
