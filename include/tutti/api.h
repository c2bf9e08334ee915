/* Shared by all public headers: the export attribute, C linkage for C++, the version. */
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

/* Descriptors.  A field that is 0 selects its default, which its comment names.  TUTTI_ZERO sets a
 * real field to the number 0 where 0 selects another default, and TUTTI_ZERO_INT32 an int32_t
 * field or an enum.  The first field of a descriptor that may grow is `size`: its sizeof as the
 * program was compiled, or 0 for the library's own; so give other fields by name.
 * TUTTI_X_DESC_INIT sets it; tutti_x_desc_default() returns the same for languages without
 * macros. */
#define TUTTI_ZERO (-1e-300)
#define TUTTI_ZERO_INT32 (-2147483647 - 1)

#ifdef __cplusplus
#define TUTTI_DESC_INIT(type) type##_default()
#else
#define TUTTI_DESC_INIT(type) \
    {                         \
        .size = sizeof(type)  \
    }
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 2
#define TUTTI_VERSION_PATCH 0

TUTTI_BEGIN

/* The version of the loaded library, "0.2.0". */
TUTTI_API const char *tutti_version(void);

/* One line per component: what the library was built with and what it finds at run time (backends
 * and their devices, NCCL, MPI, BLAS).  The text belongs to the calling thread and is valid until
 * its next call of this function. */
TUTTI_API const char *tutti_build_info(void);

TUTTI_END
#endif
