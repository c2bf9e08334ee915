/* What every public header needs: the export mark, C linkage for C++, the version. */
#ifndef TUTTI_API_H
#define TUTTI_API_H

#if defined(TUTTI_STATIC)
#define TUTTI_API
#else
#define TUTTI_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
#define TUTTI_BEGIN extern "C" {
#define TUTTI_END }
#else
#define TUTTI_BEGIN
#define TUTTI_END
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

TUTTI_BEGIN

/* "0.1.0": the version of the library that is loaded. */
TUTTI_API const char *tutti_version(void);

/* One line a component: what the library was built with and what it finds now (backends and their
 * devices, NCCL, MPI, BLAS).  The text belongs to the calling thread and is valid until its next
 * call of this function. */
TUTTI_API const char *tutti_build_info(void);

TUTTI_END
#endif
