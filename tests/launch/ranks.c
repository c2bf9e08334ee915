/* A small MPI program for the tests of tutti-run.
 *
 *     ranks exit RANK CODE    RANK ends with CODE, the others with 0 (all of them if RANK is -1)
 *     ranks wait FOLDER       each rank creates FOLDER/up.R and waits for SIGUSR1, then creates
 *                             FOLDER/got.R; all ranks wait for each other and end with 75
 *     ranks threads           each rank prints OMP_NUM_THREADS */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
    (void)number;
    signalled = 1;
}

static void mark(const char *folder, const char *what, int rank)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%d", folder, what, rank);
    FILE *file = fopen(path, "w");
    if (file) fclose(file);
}

int main(int argc, char **argv)
{
    signal(SIGUSR1, on_signal);
    MPI_Init(&argc, &argv);
    int rank, code = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc == 4 && strcmp(argv[1], "exit") == 0) {
        int failing = atoi(argv[2]);
        if (failing == -1 || failing == rank) code = atoi(argv[3]);
    } else if (argc == 3 && strcmp(argv[1], "wait") == 0) {
        mark(argv[2], "up", rank);
        for (int i = 0; i < 3000 && !signalled; i++) usleep(10000);
        if (signalled) mark(argv[2], "got", rank);
        code = signalled ? 75 : 1;
    } else if (argc == 2 && strcmp(argv[1], "threads") == 0) {
        const char *threads = getenv("OMP_NUM_THREADS");
        printf("threads %s\n", threads ? threads : "none");
    } else {
        code = 64;
    }
    MPI_Finalize();
    return code;
}
