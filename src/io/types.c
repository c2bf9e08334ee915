/* The types of a file's tensors, for HDF5; types.h. */
#include "core/internal.h"

#ifdef TUTTI_WITH_HDF5

#include <stdio.h>

#include "core/version.h"
#include "io/types.h"
#include <xxhash.h>

void tutti__io_describe(char *text, size_t size)
{
    unsigned major = 0, minor = 0, release = 0, xxhash = XXH_versionNumber();
    H5get_libversion(&major, &minor, &release);
    snprintf(text, size, "files: hdf5 %u.%u.%u, xxhash %u.%u.%u", major, minor, release,
             xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
}

/* A float of two bytes: sign, exponent and mantissa from the top. */
static hid_t two_byte_float(unsigned exponent_bits, unsigned mantissa_bits, size_t bias)
{
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type < 0) return type;
    if (H5Tset_fields(type, 15, mantissa_bits, exponent_bits, 0, mantissa_bits) < 0 ||
        H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, bias) < 0) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

hid_t tutti__file_type_of(tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case TUTTI_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case TUTTI_F16:
        return two_byte_float(5, 10, 15);
    case TUTTI_BF16:
        return two_byte_float(8, 7, 127);
    case TUTTI_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case TUTTI_U8:
        return H5Tcopy(H5T_STD_U8LE);
    }
    return -1;
}

#endif
