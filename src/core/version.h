/* What comm/mpi and comm/nccl say of themselves for tutti_build_info: one line "mpi: …". */
#ifndef TUTTI_CORE_VERSION_H
#define TUTTI_CORE_VERSION_H

#include <stddef.h>

void tutti__mpi_describe(char *text, size_t size);
void tutti__nccl_describe(char *text, size_t size);

#endif
