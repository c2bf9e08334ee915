/* The structure of an HDF5 file, for readers that must not trust it.
 *
 * HDF5 1.10 may crash or loop on a damaged file, so it reads the structure in a child process with
 * limits of memory and time.  The child reports names, types, shapes, offsets and small attributes,
 * and every number is checked again here.  The data are then read by offset, without HDF5. */
#ifndef TUTTI_FILES_STRUCTURE_H
#define TUTTI_FILES_STRUCTURE_H

#include "files/file.h"

/* A type in the file.  F32 to U8 have the numbers of tutti_dtype. */
#define TUTTI__FILE_TYPES(X) \
    X(NONE, "of no type")    \
    X(F32, "f32")            \
    X(F64, "f64")            \
    X(F16, "f16")            \
    X(BF16, "bf16")          \
    X(I32, "i32")            \
    X(U8, "u8")              \
    X(I8, "i8")              \
    X(I16, "i16")            \
    X(I64, "i64")            \
    X(U16, "u16")            \
    X(U32, "u32")            \
    X(U64, "u64")            \
    X(TEXT, "text")          \
    X(OTHER, "of another type")
typedef enum tutti__file_type {
#define TUTTI_X(name, text) TUTTI__FILE_##name,
    TUTTI__FILE_TYPES(TUTTI_X)
#undef TUTTI_X
} tutti__file_type;
_Static_assert((int)TUTTI__FILE_F32 == TUTTI_F32 && (int)TUTTI__FILE_U8 == TUTTI_U8,
               "dtypes have the same numbers");

const char *tutti__file_type_name(tutti__file_type type);

enum {
    TUTTI__FILE_DIMS_MAX = 8,
    TUTTI__FILE_NUMBERS_MAX = 16, /* of an attribute */
    TUTTI__FILE_TEXT_MAX = 4096   /* of an attribute */
};

/* Files that exceed these limits are neither read nor written. */
#define TUTTI__FILE_LIMITS(X)                                \
    X(NODES, 1 << 17, "groups and datasets")                 \
    X(DEPTH, 16, "parts in the path of a dataset")           \
    X(PATH, 1023, "bytes in the path of a group or dataset") \
    X(ATTRIBUTES, 256, "attributes of one group or dataset") \
    X(NAMES, 1 << 26, "bytes of names, shapes and attributes")
typedef enum tutti__file_limit {
#define TUTTI_X(name, most, what) TUTTI__FILE_LIMIT_##name,
    TUTTI__FILE_LIMITS(TUTTI_X)
#undef TUTTI_X
} tutti__file_limit;
enum {
#define TUTTI_X(name, most, what) TUTTI__FILE_##name##_MAX = most,
    TUTTI__FILE_LIMITS(TUTTI_X)
#undef TUTTI_X
};

typedef enum tutti__attribute_kind {
    TUTTI__ATTRIBUTE_INT,  /* integers and booleans; u64 as its bits */
    TUTTI__ATTRIBUTE_REAL, /* floats */
    TUTTI__ATTRIBUTE_TEXT, /* one string */
    TUTTI__ATTRIBUTE_OTHER /* any other type, or too large */
} tutti__attribute_kind;

typedef struct tutti__attribute {
    const char *name;
    tutti__attribute_kind kind;
    int count; /* numbers */
    int64_t ints[TUTTI__FILE_NUMBERS_MAX];
    double reals[TUTTI__FILE_NUMBERS_MAX];
    const char *text;
} tutti__attribute;

typedef enum tutti__node_kind {
    TUTTI__NODE_GROUP,
    TUTTI__NODE_DATASET,
    TUTTI__NODE_OTHER /* soft or external link, link to an ancestor, named type, unreadable */
} tutti__node_kind;

typedef struct tutti__node {
    const char *path; /* "model/fc1/weight"; "" the root; ? for unprintable bytes */
    tutti__node_kind kind;
    int first_attribute, attribute_count;
    /* datasets */
    tutti__file_type type;
    int64_t element; /* bytes */
    int ndim;        /* -1: unknown */
    int64_t dims[TUTTI__FILE_DIMS_MAX];
    /* contiguous, unfiltered and in this file: its bytes are at offset, all within the file */
    bool plain;
    int64_t offset, bytes;
} tutti__node;

typedef struct tutti__structure {
    char *text;         /* names and strings */
    tutti__node *nodes; /* sorted by path; the root is the first */
    int node_count;
    tutti__attribute *attributes;
    int attribute_count;
} tutti__structure;

/* Reads the structure of an open regular file.  TUTTI_ERR_DATA if it is not HDF5, truncated,
 * damaged or exceeds a limit, which the message names. */
tutti_status tutti__structure_read(const tutti__file *file, tutti__structure **structure);
/* NULL is allowed. */
void tutti__structure_destroy(tutti__structure **structure);

/* NULL if there is none.  node may be NULL. */
const tutti__node *tutti__structure_find(const tutti__structure *structure, const char *path);
const tutti__attribute *tutti__node_attribute(const tutti__structure *structure,
                                              const tutti__node *node, const char *name);

/* What the child writes into the pipe: records in native byte order.  A number is 8 bytes; a text
 * is its length, its bytes and a 0.
 *     N kind path, and for a dataset: type element ndim dims... plain offset storage
 *     A kind name, then count numbers..., or text              (of the node before)
 *     E outcome limit found                                    (the last one; limit and how much
 *                                                              there is for TOO_MUCH) */
typedef enum tutti__outcome {
    TUTTI__OUTCOME_OK,
    TUTTI__OUTCOME_NOT_HDF5,
    TUTTI__OUTCOME_DAMAGED,
    TUTTI__OUTCOME_TOO_MUCH,
    TUTTI__OUTCOME_TOO_SLOW /* found by the parent: the child exceeded its time */
} tutti__outcome;

/* The child's limit of CPU time, in seconds; of wall time, twice as much. */
enum { TUTTI__FILE_SECONDS = 20 };

/* The child: reads file, writes to pipe, never returns. */
_Noreturn void tutti__structure_child(int file, int pipe);

#endif
