/* The transports that were built, beside self. */
#include "comm/makers.h"

#ifdef TUTTI_WITH_MPI
extern const tutti__maker tutti__mpi_maker;
#endif
#ifdef TUTTI_WITH_NCCL
extern const tutti__maker tutti__nccl_maker;
#endif

const tutti__maker *tutti__maker_of(tutti_transport kind)
{
    static const tutti__maker *const makers[] = {
#ifdef TUTTI_WITH_MPI
        &tutti__mpi_maker,
#endif
#ifdef TUTTI_WITH_NCCL
        &tutti__nccl_maker,
#endif
        NULL,
    };
    const tutti__maker *const *maker = makers;
    while (*maker && (*maker)->kind != kind) maker++;
    return *maker;
}
