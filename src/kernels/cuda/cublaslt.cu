/* See cublaslt.h. */
#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>

#include <cstdio>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* As the header declares them, by the names they have there: # and ## take a name as it stands. */
#define EACH(X)                              \
    X(cublasLtCreate)                        \
    X(cublasLtDestroy)                       \
    X(cublasLtGetStatusString)               \
    X(cublasLtGetVersion)                    \
    X(cublasLtMatmul)                        \
    X(cublasLtMatmulAlgoCheck)               \
    X(cublasLtMatmulAlgoConfigGetAttribute)  \
    X(cublasLtMatmulAlgoGetHeuristic)        \
    X(cublasLtMatmulDescInit_internal)       \
    X(cublasLtMatmulDescSetAttribute)        \
    X(cublasLtMatmulPreferenceInit_internal) \
    X(cublasLtMatmulPreferenceSetAttribute)  \
    X(cublasLtMatrixLayoutInit_internal)     \
    X(cublasLtMatrixLayoutSetAttribute)

namespace
{

struct functions {
#define MEMBER(name) decltype(&name) name##_;
    EACH(MEMBER)
    bool found;
    char missing[200];
};

/* The library stays until the process ends, as one that is linked does: handles may, too. */
functions load()
{
    functions f = {};
    void *library = dlopen("libcublasLt.so." TEXT(CUBLAS_VER_MAJOR), RTLD_LAZY | RTLD_LOCAL);
#define FIND(name)                                                            \
    if (library) {                                                            \
        f.name##_ = reinterpret_cast<decltype(&name)>(dlsym(library, #name)); \
        if (!f.name##_) library = nullptr;                                    \
    }
    EACH(FIND)
    f.found = library;
    const char *why = library ? "" : dlerror();
    (void)snprintf(f.missing, sizeof f.missing, "%s", why ? why : "cuBLASLt was not found");
    return f;
}

const functions &loaded()
{
    static const functions f = load();
    return f;
}

} // namespace

#define FORWARD(name, parameters, arguments)                                                \
    cublasStatus_t name parameters                                                          \
    {                                                                                       \
        return loaded().found ? loaded().name##_ arguments : CUBLAS_STATUS_NOT_INITIALIZED; \
    }

FORWARD(cublasLtCreate, (cublasLtHandle_t * handle), (handle))
FORWARD(cublasLtDestroy, (cublasLtHandle_t handle), (handle))
FORWARD(cublasLtMatmul,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
         cublasLtMatrixLayout_t of_a, const void *b, cublasLtMatrixLayout_t of_b, const void *beta,
         const void *c, cublasLtMatrixLayout_t of_c, void *d, cublasLtMatrixLayout_t of_d,
         const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes, cudaStream_t stream),
        (handle, desc, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algorithm, workspace, bytes,
         stream))
FORWARD(cublasLtMatmulAlgoCheck,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulHeuristicResult_t *result),
        (handle, desc, a, b, c, d, algorithm, result))
FORWARD(cublasLtMatmulAlgoConfigGetAttribute,
        (const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
         void *value, size_t size, size_t *written),
        (algorithm, attribute, value, size, written))
FORWARD(cublasLtMatmulAlgoGetHeuristic,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         cublasLtMatmulPreference_t preference, int wanted,
         cublasLtMatmulHeuristicResult_t *results, int *count),
        (handle, desc, a, b, c, d, preference, wanted, results, count))
FORWARD(cublasLtMatmulDescInit_internal,
        (cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute, cudaDataType_t scale),
        (desc, size, compute, scale))
FORWARD(cublasLtMatmulDescSetAttribute,
        (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value,
         size_t size),
        (desc, attribute, value, size))
FORWARD(cublasLtMatmulPreferenceInit_internal, (cublasLtMatmulPreference_t preference, size_t size),
        (preference, size))
FORWARD(cublasLtMatmulPreferenceSetAttribute,
        (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const void *value, size_t size),
        (preference, attribute, value, size))
FORWARD(cublasLtMatrixLayoutInit_internal,
        (cublasLtMatrixLayout_t layout, size_t size, cudaDataType type, uint64_t rows,
         uint64_t cols, int64_t ld),
        (layout, size, type, rows, cols, ld))
FORWARD(cublasLtMatrixLayoutSetAttribute,
        (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
         const void *value, size_t size),
        (layout, attribute, value, size))

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return loaded().found ? loaded().cublasLtGetStatusString_(status) : loaded().missing;
}

size_t cublasLtGetVersion(void)
{
    return loaded().found ? loaded().cublasLtGetVersion_() : 0;
}
