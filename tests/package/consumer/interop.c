/* The headers that include another library's, as far as the build has them, with a communicator of
 * MPI's or NCCL's or a CUDA stream; in C and, by interop.cpp, in C++.  Prints those that worked. */
#include <stdio.h>
#include <tutti/tutti.h>
#ifdef WITH_MPI
#include <tutti/mpi.h>
#endif
#ifdef WITH_NCCL
#include <tutti/nccl.h>
#endif
#ifdef WITH_CUDA
#include <tutti/cuda.h>
#endif

int main(void)
{
    tutti_context_desc host = TUTTI_CONTEXT_DESC_INIT;
    tutti_context *ctx = NULL;
    tutti_comm *comm = NULL;
    host.backend = TUTTI_BACKEND_HOST;
    if (tutti_context_create(&host, &ctx) != TUTTI_OK) {
        puts(tutti_last_error());
        return 1;
    }
#ifdef WITH_MPI
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) == MPI_SUCCESS &&
        tutti_comm_create_from_mpi(ctx, MPI_COMM_WORLD, NULL, &comm) == TUTTI_OK)
        printf("mpi ");
    else
        puts(tutti_last_error());
    tutti_comm_destroy(&comm);
    MPI_Finalize();
#endif
#ifdef WITH_NCCL
    if (tutti_comm_create_from_nccl(ctx, (ncclComm_t)NULL, NULL, &comm) == TUTTI_ERR_ARG)
        printf("nccl ");
#endif
#ifdef WITH_CUDA
    if (tutti_context_stream(ctx) == (cudaStream_t)NULL) printf("cuda ");
#endif
    tutti_comm_destroy(&comm);
    tutti_context_destroy(&ctx);
    puts("tutti");
    return 0;
}
