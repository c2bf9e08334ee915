/* cuBLASLt, which is loaded when it is first called: linked to it, every program would relocate its
 * 100 MB of data at its start, which takes 0.1 s, and most never call it.
 *
 * A function that is not in the list below cannot be called.  If the library or one of them is not
 * found, all fail with CUBLAS_STATUS_NOT_INITIALIZED, cublasLtGetStatusString says what is missing,
 * and cublasLtGetVersion is 0. */
#ifndef TUTTI_KERNELS_CUDA_CUBLASLT_H
#define TUTTI_KERNELS_CUDA_CUBLASLT_H

/* Names of our own: a program may be linked to this library, if that is static, and to cuBLASLt. */
#define cublasLtCreate tutti__cublasLtCreate
#define cublasLtDestroy tutti__cublasLtDestroy
#define cublasLtGetStatusString tutti__cublasLtGetStatusString
#define cublasLtGetVersion tutti__cublasLtGetVersion
#define cublasLtMatmul tutti__cublasLtMatmul
#define cublasLtMatmulAlgoCheck tutti__cublasLtMatmulAlgoCheck
#define cublasLtMatmulAlgoConfigGetAttribute tutti__cublasLtMatmulAlgoConfigGetAttribute
#define cublasLtMatmulAlgoGetHeuristic tutti__cublasLtMatmulAlgoGetHeuristic
#define cublasLtMatmulDescInit_internal tutti__cublasLtMatmulDescInit_internal
#define cublasLtMatmulDescSetAttribute tutti__cublasLtMatmulDescSetAttribute
#define cublasLtMatmulPreferenceInit_internal tutti__cublasLtMatmulPreferenceInit_internal
#define cublasLtMatmulPreferenceSetAttribute tutti__cublasLtMatmulPreferenceSetAttribute
#define cublasLtMatrixLayoutInit_internal tutti__cublasLtMatrixLayoutInit_internal
#define cublasLtMatrixLayoutSetAttribute tutti__cublasLtMatrixLayoutSetAttribute

#include <cublasLt.h>

#endif
