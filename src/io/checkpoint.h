/* Inside of a checkpoint: the list of the file's contents, and the blocks in which tensors are
 * moved and hashed.
 *
 *   list.c       the list: create, add, destroy
 *   layout.c     the file without its tensors, made by HDF5 in memory
 *   own.c        who may write the file (the lock path.lck, lock.c), and whether it can be written
 *   save.c       writes tensors and layout to path.tmp and renames it to path
 *   load.c       compares the file with the list, then reads blocks into tensors
 *   blocks.c     moving and hashing
 *   pieces.c     tensors of sharded stores, of which each rank has pieces
 *   visit.c      the tensors of a file's model
 *
 * What checkpoints share with case files is in files/. */
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

/* Elements of a tensor that only one rank has. */
typedef struct tutti__shard_piece {
    int64_t begin, end;
    int rank;
} tutti__shard_piece;

typedef struct tutti__item {
    char name[TUTTI__ITEM_NAME_MAX];
    tutti__item_kind kind;
    tutti_tensor tensor; /* TENSOR: contiguous, on the device; data: what this rank has of it */
    /* TENSOR: in order, they are all of it, and this rank's follow one another in its memory;
     * NULL: every rank has all */
    tutti__shard_piece *pieces;
    int piece_count;
    void *data;                    /* other kinds: in host memory */
    size_t size;                   /* TEXT: capacity of data in bytes */
    int64_t cols, capacity, *rows; /* TABLE */
} tutti__item;

/* A caller's parameter whose value has another type than its master in the file. */
typedef struct tutti__bound {
    tutti_tensor value, master;
    bool made; /* master is owned by the list and made from the value before saving */
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
    tutti__lock lock; /* rank 0: of the path that the list owns */
};

/* Fails if the context or a store has been destroyed. */
tutti_status tutti__list_open(const tutti_checkpoint *checkpoint, const char *who);

/* Before saving: makes the masters that the list owns from their values. */
tutti_status tutti__list_widen(const tutti_checkpoint *checkpoint);
/* After loading: makes the values of stores and of the caller's parameters from their masters. */
tutti_status tutti__list_refresh(const tutti_checkpoint *checkpoint);

/* Checks a save's arguments and list, without looking at the file. */
tutti_status tutti__save_check(tutti_checkpoint *checkpoint, const char *who, const char *path,
                               int keep);
/* On rank 0: fails unless path may be replaced by a file of the list's size. */
tutti_status tutti__target_check(const tutti_checkpoint *checkpoint, const char *who,
                                 const char *path);
/* Makes the list the owner of path, or for one save the lock `temporary`; waits a while for another
 * owner to end.  Collective. */
tutti_status tutti__own(tutti_checkpoint *checkpoint, const char *who, const char *path,
                        tutti__lock *temporary);

/* Bytes in the file of the current value (an empty text is one 0). */
size_t tutti__item_bytes(const tutti__item *item);
/* Bytes of a tensor that a rank has. */
size_t tutti__item_kept(const tutti__item *item, int rank);

/* Fails unless every rank has the same list: hashes [1 + count], the first of what `first` names,
 * the others one per item (tutti__item_hash).  Collective. */
tutti_status tutti__same_list(const tutti_checkpoint *checkpoint, const char *who,
                              const uint64_t *hashes, const char *first);
/* Hash of name, type and shape; with_value: also of the current value. */
uint64_t tutti__item_hash(const tutti__item *item, bool with_value);

/* Tensors are moved and hashed in blocks of this many bytes; a tensor's last one may be shorter.
 * Part of the format: checksums depend on it. */
#define TUTTI__BLOCK_BYTES ((int64_t)4 << 20)
/* The most blocks that a rank moves before the ranks agree on their status, which bounds how long
 * they wait for each other. */
#define TUTTI__ROUND_BLOCKS 8

typedef struct tutti__block {
    int item;
    int writer;            /* the rank that writes it, when saving */
    char *data;            /* on the device; of a tensor in pieces: in the staging memory */
    int64_t begin;         /* the tensor's bytes before it */
    int64_t offset, bytes; /* in the file */
} tutti__block;

/* The blocks of all tensors, in the list's order, but first those of the tensors that every rank
 * has.  The others pass through the staging memory, which has room for a round of them. */
typedef struct tutti__blocks {
    tutti__block *all; /* [count + 1]: the last one's item is -1 */
    int64_t count, whole;
    char *staging; /* on the device */
} tutti__blocks;

/* offsets: in the file, one per item. */
tutti_status tutti__blocks_make(const tutti_checkpoint *checkpoint, const int64_t *offsets,
                                tutti__blocks *blocks);
/* Keeps the staging memory if something may still be under way. */
void tutti__blocks_free(const tutti_checkpoint *checkpoint, tutti__blocks *blocks);

/* Makes the pieces of a slot's part of the masters or the state, of which this rank keeps `kept`;
 * its shape and type are the tensor's.  Without other shards it is whole. */
tutti_status tutti__pieces_make(const tutti_params *params, const tutti__slot *slot, void *kept,
                                tutti__item *item);
/* Brings a round of blocks in pieces from the ranks that have them to all.  Collective.  Waits for
 * the stream. */
tutti_status tutti__pieces_gather(const tutti_checkpoint *checkpoint, const tutti__block *blocks,
                                  int64_t count);
/* Copies what this rank has of a round of blocks in pieces from the staging memory to its place. */
tutti_status tutti__pieces_keep(const tutti_checkpoint *checkpoint, const tutti__block *blocks,
                                int64_t count);

/* The blocks that this rank writes, in order, with their hashes. */
typedef struct tutti__share {
    tutti__block *blocks;
    uint64_t *hashes;
    int64_t count, whole;
    int64_t most; /* the largest count of any rank */
} tutti__share;

tutti_status tutti__share_make(const tutti_checkpoint *checkpoint, const tutti__blocks *blocks,
                               tutti__share *share);
void tutti__share_free(tutti__share *share);
/* hashes: of all blocks, gathered from all ranks.  Collective. */
tutti_status tutti__share_gather(const tutti_checkpoint *checkpoint, const char *who,
                                 const tutti__share *share, const tutti__blocks *blocks,
                                 uint64_t *hashes);

/* A file, and the buffers between it and a device that is not the host. */
typedef struct tutti__mover {
    tutti_context *ctx;
    int fd;
    char *stage[2]; /* of a round each; NULL on the host */
    int turn;
} tutti__mover;

tutti_status tutti__mover_open(tutti__mover *mover, tutti_context *ctx, int fd,
                               const tutti__block *blocks, int64_t count);
void tutti__mover_close(tutti__mover *mover);

/* Writes a round of blocks and hashes them, while the next round's (next_count 0: none) are copied
 * from the device; tutti__mover_fetch starts the copy of the first.  *error: 0 or errno. */
tutti_status tutti__mover_fetch(tutti__mover *mover, const tutti__block *blocks, int64_t count);
tutti_status tutti__mover_write(tutti__mover *mover, const tutti__block *blocks, int64_t count,
                                uint64_t *hashes, const tutti__block *next, int64_t next_count,
                                int *error);
/* Reads a round of blocks, hashes them and copies them to the device.  *error: 0, errno, or -1 if
 * the file ends early. */
tutti_status tutti__mover_read(tutti__mover *mover, const tutti__block *blocks, int64_t count,
                               uint64_t *hashes, int *error);

/* A checksum is the hash of the hashes of a tensor's blocks. */
uint64_t tutti__checksum_of_hashes(const uint64_t *hashes, int64_t count);
/* The same for bytes in host memory. */
uint64_t tutti__checksum(const void *data, size_t bytes);

/* The file without its tensors: all metadata and values, in memory, made by HDF5 on rank 0. */
typedef struct tutti__layout tutti__layout;
tutti_status tutti__layout_create(const tutti_checkpoint *checkpoint, tutti__layout **layout);
/* NULL is allowed. */
void tutti__layout_destroy(tutti__layout **layout);
/* Size of the whole file, tensors included. */
int64_t tutti__layout_size(const tutti__layout *layout);
/* The offset of each item's bytes; -1 for an item without any. */
const int64_t *tutti__layout_offsets(const tutti__layout *layout);
/* Writes the tensors' checksums, one per item (values have theirs already), and marks the file as
 * complete. */
tutti_status tutti__layout_finish(tutti__layout *layout, const uint64_t *checksums);
/* After finish: writes everything but the tensors to fd, the file's first bytes last, so that an
 * unfinished file is not HDF5.  *error: 0 or errno. */
tutti_status tutti__layout_write(const tutti__layout *layout, int fd, int *error);

#endif
