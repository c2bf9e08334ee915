/* The lines of comm/mpi, comm/nccl and io in tutti_build_info: "mpi: …". */
#ifndef TUTTI_CORE_VERSION_H
#define TUTTI_CORE_VERSION_H

#include <stddef.h>

void tutti__mpi_describe(char *text, size_t size);
void tutti__nccl_describe(char *text, size_t size);
void tutti__io_describe(char *text, size_t size); /* "files: …", with or without HDF5 */

#endif
