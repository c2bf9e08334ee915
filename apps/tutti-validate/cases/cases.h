/* Case files: HDF5 files of reference cases, a layer's inputs and expected outputs.
 * docs/case-files.md defines the format.  Files are not trusted: everything is checked before
 * anything is allocated or read.
 *
 * A library of tutti-validate's own.  Failures return APP_FAILED, with a message that names file,
 * case and tensor. */
#ifndef TUTTI_VALIDATE_CASES_H
#define TUTTI_VALIDATE_CASES_H

#include "tutti/layer.h"

#define TUTTI_CASE_NAME_MAX 64      /* bytes of the name of a case or a tensor, its 0 included */
#define TUTTI_CASE_OPTIONS_MAX 1024 /* bytes of a layer's options, their 0 included */

/* The groups of a case; the last two only in files of differences. */
typedef enum tutti_case_part {
    TUTTI_CASE_INPUTS,
    TUTTI_CASE_PARAMS,
    TUTTI_CASE_UPSTREAM,
    TUTTI_CASE_EXPECTED,
    TUTTI_CASE_EXPECTED_GRAD,
    TUTTI_CASE_ACTUAL,
    TUTTI_CASE_DIFFERENCE
} tutti_case_part;

typedef struct tutti_case_tensor {
    tutti_case_part part;
    char name[TUTTI_CASE_NAME_MAX]; /* "x", "dgamma" */
    tutti_dtype dtype; /* f64, f32, f16, bf16 or i32; the file may store a wider type */
    int ndim;
    int64_t dims[TUTTI_MAX_DIMS];
    int has_bound; /* for expected tensors: the bound is atol + rtol |expected| */
    double atol, rtol;
} tutti_case_tensor;

typedef struct tutti_case {
    char name[TUTTI_CASE_NAME_MAX];
    char layer[TUTTI_CASE_NAME_MAX];      /* for tutti_layer_create_by_name, like the options */
    char options[TUTTI_CASE_OPTIONS_MAX]; /* "" for none */
    int64_t first_row;                    /* number of the case's first row in the global batch */
    double loss_weight, loss_scale;
    int64_t rows;
    int tensor_count;
    const tutti_case_tensor *tensors; /* sorted by group and name */
} tutti_case;

/* "inputs", … */
const char *tutti_case_part_name(tutti_case_part part);

/* Writes a shape as "[3, 4]". */
typedef struct tutti_case_text {
    char text[100];
} tutti_case_text;
tutti_case_text tutti_case_shape(int ndim, const int64_t *dims);

typedef struct tutti_cases tutti_cases;

/* Opens a file for reading and lists its cases.  Not collective: each rank that reads opens it.
 * Fails if the file does not exist, cannot be read or violates docs/case-files.md, or if the
 * program was built without HDF5. */
int tutti_cases_open(const char *path, tutti_cases **cases);
/* NULL is allowed. */
void tutti_cases_close(tutti_cases **cases);

/* The cases of the file, at least 1, sorted by name.  Valid until the file is closed. */
int tutti_cases_count(const tutti_cases *cases);
const tutti_case *tutti_cases_get(const tutti_cases *cases, int index);
/* NULL if there is none. */
const tutti_case_tensor *tutti_case_find(const tutti_case *test_case, tutti_case_part part,
                                         const char *name);

/* Reads rows [first, first + count) of a tensor of this file into host memory.  dtype: the tensor's
 * own, which must represent every value exactly; or f64 for any float type, with the values as they
 * are stored. */
int tutti_cases_read(const tutti_cases *cases, const tutti_case_tensor *tensor, int64_t first,
                     int64_t count, tutti_dtype dtype, void *data);

/* Writing.  The file appears at `path` only once it is complete, with the permissions of the file
 * it replaces, or by the umask. */
typedef struct tutti_cases_writer tutti_cases_writer;

#define TUTTI_CASES_FORMAT "tutti-cases"
/* cases/<name>/{actual,expected,difference}/<tensor>: results that did not hold */
#define TUTTI_DIFFERENCES_FORMAT "tutti-differences"

/* format: one of the two.  Fails if the file cannot be created, may not replace the one at `path`,
 * or that is not a regular file. */
int tutti_cases_writer_create(const char *path, const char *format, tutti_cases_writer **writer);
/* Adds a case: its name, which must be new, layer, options and numbers, but not its tensors. */
int tutti_cases_writer_add(tutti_cases_writer *writer, const tutti_case *test_case);
/* Adds a tensor to the last case.  data: contiguous, in host memory, of type `stored`, the tensor's
 * dtype or f64, which is also the type in the file. */
int tutti_cases_writer_tensor(tutti_cases_writer *writer, const tutti_case_tensor *tensor,
                              tutti_dtype stored, const void *data);
/* Syncs the file and moves it to its path, which is untouched if that fails.  The writer must still
 * be destroyed. */
int tutti_cases_writer_finish(tutti_cases_writer *writer);
/* Removes an unfinished file.  NULL is allowed. */
void tutti_cases_writer_destroy(tutti_cases_writer **writer);

#endif
