/* Case files: HDF5 files of reference cases, that is what goes into a layer and what should come
 * out.  docs/case-files.md has the format.  Reading trusts nothing: what a file says is checked
 * before anything is allocated or read.
 *
 * A library of tutti-validate's own.  What fails returns APP_FAILED, with a message that names
 * file, case and tensor. */
#ifndef TUTTI_VALIDATE_CASES_H
#define TUTTI_VALIDATE_CASES_H

#include "tutti/layer.h"

#define TUTTI_CASE_NAME_MAX 64      /* bytes of the name of a case or a tensor, its 0 included */
#define TUTTI_CASE_OPTIONS_MAX 1024 /* bytes of a layer's options, their 0 included */

/* The groups of a case; the last two are in files of differences only. */
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
    tutti_dtype dtype; /* what it is of, however it is stored: f64, f32, f16, bf16 or i32 */
    int ndim;
    int64_t dims[TUTTI_MAX_DIMS];
    int has_bound; /* of an expected one: atol + rtol |expected| */
    double atol, rtol;
} tutti_case_tensor;

typedef struct tutti_case {
    char name[TUTTI_CASE_NAME_MAX];
    char layer[TUTTI_CASE_NAME_MAX];      /* for tutti_layer_create_by_name, as are the options */
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

/* Opens a file for reading and lists what is in it.  Not collective: each rank that reads opens it.
 * Fails if it is not there, cannot be read or is not what docs/case-files.md says, and where the
 * program was built without HDF5. */
int tutti_cases_open(const char *path, tutti_cases **cases);
/* NULL is allowed. */
void tutti_cases_close(tutti_cases **cases);

/* Cases in the file, sorted by name: at least 1.  Valid until the file is closed. */
int tutti_cases_count(const tutti_cases *cases);
const tutti_case *tutti_cases_get(const tutti_cases *cases, int index);
/* NULL if there is none. */
const tutti_case_tensor *tutti_case_find(const tutti_case *which, tutti_case_part part,
                                         const char *name);

/* Reads rows [first, first + count) of a tensor of this file into host memory.  dtype: the tensor's
 * own, and then every value must be a number of that type; or f64, whatever float the tensor is of,
 * as it is stored. */
int tutti_cases_read(const tutti_cases *cases, const tutti_case_tensor *tensor, int64_t first,
                     int64_t count, tutti_dtype dtype, void *data);

/* Writing.  The file appears at `path`, whole, when it is finished, with the permissions of the one
 * that was there, or by the umask. */
typedef struct tutti_cases_writer tutti_cases_writer;

#define TUTTI_CASES_FORMAT "tutti-cases"
/* cases/<name>/{actual,expected,difference}/<tensor>: what a validation found, for people and their
 * scripts */
#define TUTTI_DIFFERENCES_FORMAT "tutti-differences"

/* format: one of the two.  Fails if the file cannot be made or may not take its place, or something
 * else than a file is at `path`. */
int tutti_cases_writer_create(const char *path, const char *format, tutti_cases_writer **writer);
/* A new case: its name, layer, options and numbers; its tensors are not looked at.  A name may be
 * there only once. */
int tutti_cases_writer_add(tutti_cases_writer *writer, const tutti_case *which);
/* A tensor of the case that was added last: contiguous, in host memory, and stored, as `stored`:
 * the tensor's dtype or f64. */
int tutti_cases_writer_tensor(tutti_cases_writer *writer, const tutti_case_tensor *tensor,
                              tutti_dtype stored, const void *data);
/* Puts the file in its place, once the disk has it.  What was at path is untouched where that
 * fails.  To be destroyed afterwards all the same. */
int tutti_cases_writer_finish(tutti_cases_writer *writer);
/* Of one that is not finished nothing remains.  NULL is allowed. */
void tutti_cases_writer_destroy(tutti_cases_writer **writer);

#endif
