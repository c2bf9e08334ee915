/* Element types and tensor views. */
#ifndef TUTTI_TENSOR_H
#define TUTTI_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/status.h"

TUTTI_BEGIN

/* f16 is IEEE binary16, bf16 the upper half of a binary32; both are uint16_t in C.  i32 and u8 are
 * accepted only where a header says so (labels). */
typedef enum tutti_dtype {
    TUTTI_F32 = 1, /* 0 is not a type: in a descriptor it selects the default */
    TUTTI_F64,
    TUTTI_F16,
    TUTTI_BF16,
    TUTTI_I32,
    TUTTI_U8
} tutti_dtype;

#define TUTTI_MAX_DIMS 4

/* A view, never an owner.  dims and strides count elements, outermost first; the last stride is 1
 * (strides of dimensions of size 1 are ignored).  Row-wise layers treat the leading dimensions as
 * rows, which must be evenly spaced in memory, with one row stride; where rows are matrices
 * (tutti/matmul.h), their lines must be, too. */
typedef struct tutti_tensor {
    void *data;
    tutti_dtype dtype;
    int ndim;
    int64_t dims[TUTTI_MAX_DIMS];
    int64_t strides[TUTTI_MAX_DIMS];
} tutti_tensor;

/* A contiguous view of data.  Not checked here but in the call that takes the view. */
TUTTI_API tutti_tensor tutti_tensor_make(void *data, tutti_dtype dtype, int ndim,
                                         const int64_t *dims);
/* The same for one and two dimensions. */
TUTTI_API tutti_tensor tutti_tensor_1d(void *data, tutti_dtype dtype, int64_t count);
TUTTI_API tutti_tensor tutti_tensor_2d(void *data, tutti_dtype dtype, int64_t rows, int64_t cols);

/* The number of elements: the product of dims; 0 for NULL. */
TUTTI_API int64_t tutti_tensor_count(const tutti_tensor *tensor);

/* Bytes per element; 0 for an unknown type. */
TUTTI_API size_t tutti_dtype_size(tutti_dtype dtype);

/* "f32", …; "unknown" for an unknown type. */
TUTTI_API const char *tutti_dtype_name(tutti_dtype dtype);

/* The type with this name (as tutti_dtype_name writes it).  TUTTI_ERR_ARG if there is none. */
TUTTI_API tutti_status tutti_dtype_parse(const char *name, tutti_dtype *dtype);

/* Converts count elements in host memory, rounding to nearest even (to i32 and u8: to nearest, and
 * saturating; NaN to 0).  src and dst must not overlap unless they are equal and their types have
 * one size. */
TUTTI_API tutti_status tutti_convert(void *dst, tutti_dtype dst_dtype, const void *src,
                                     tutti_dtype src_dtype, int64_t count);

TUTTI_END
#endif
