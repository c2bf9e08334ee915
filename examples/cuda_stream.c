/* Teaches: a layer on a CUDA stream and in device memory that your program already has, and its
 * forward and backward captured in a graph of yours.  The result is checked against a plain
 * computation.  Without a GPU it ends with 77.
 *
 * Build: nvcc -cudart shared cuda_stream.c -o cuda_stream $(pkg-config --cflags --libs tutti) -lm
 * Run:   ./cuda_stream */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/cuda.h>
#include <tutti/tutti.h>

enum { ROWS = 64, COLS = 384, ITERATIONS = 3 };

static void check(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "%s\n", tutti_last_error());
    exit(2);
}

static void cuda(cudaError_t error)
{
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
    exit(2);
}

/* Device memory of the program's, with values if not NULL. */
static void *device(const void *values, size_t bytes)
{
    void *data;
    cuda(cudaMalloc(&data, bytes));
    if (values) cuda(cudaMemcpy(data, values, bytes, cudaMemcpyHostToDevice));
    return data;
}

/* RMSNorm of a row, and the gradient of its input, as tutti/rmsnorm.h states them. */
static void plain(const float *x, const float *gamma, const float *dy, double *y, double *dx)
{
    double squares = 0.0, mean = 0.0;
    for (int i = 0; i < COLS; i++) squares += (double)x[i] * x[i];
    const double rstd = 1.0 / sqrt(squares / COLS + 1e-6);
    for (int i = 0; i < COLS; i++) mean += (double)gamma[i] * dy[i] * x[i] * rstd / COLS;
    for (int i = 0; i < COLS; i++) {
        y[i] = x[i] * rstd * gamma[i];
        dx[i] = rstd * ((double)gamma[i] * dy[i] - x[i] * rstd * mean);
    }
}

int main(void)
{
    static float x[ROWS][COLS], dy[ROWS][COLS], y[ROWS][COLS], dx[ROWS][COLS], gamma[COLS];
    int gpus;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
        puts("skipped: no GPU");
        return 77;
    }
    for (int col = 0; col < COLS; col++) {
        gamma[col] = 1.0f + 0.001f * (float)col;
        for (int row = 0; row < ROWS; row++) {
            x[row][col] = sinf((float)(row * COLS + col));
            dy[row][col] = cosf((float)(row + 3 * col));
        }
    }

    /* The program's own: a stream, memory, a graph to be made. */
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t step;
    cuda(cudaSetDevice(0));
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    tutti_tensor tx = tutti_tensor_2d(device(x, sizeof x), TUTTI_F32, ROWS, COLS);
    tutti_tensor tdy = tutti_tensor_2d(device(dy, sizeof dy), TUTTI_F32, ROWS, COLS);
    tutti_tensor ty = tutti_tensor_2d(device(NULL, sizeof y), TUTTI_F32, ROWS, COLS);
    tutti_tensor tdx = tutti_tensor_2d(device(NULL, sizeof dx), TUTTI_F32, ROWS, COLS);
    tutti_tensor tgamma = tutti_tensor_1d(device(gamma, sizeof gamma), TUTTI_F32, COLS);
    tutti_tensor tdgamma = tutti_tensor_1d(device(NULL, sizeof gamma), TUTTI_F32, COLS);

    tutti_context *ctx;
    tutti_layer *norm;
    check(tutti_context_create_on_stream(0, stream, &ctx));
    check(tutti_layer_create_by_name(ctx, "rmsnorm", "cols=384", &norm));
    check(tutti_param_bind(tutti_layer_param(norm, 0), &tgamma, &tdgamma));
    const size_t bytes = tutti_layer_saved_bytes(norm, ROWS);
    const tutti_rmsnorm_call call = {
        .x = &tx,
        .y = &ty,
        .dy = &tdy,
        .dx = &tdx,
        .saved = device(NULL, bytes),
        .saved_bytes = bytes,
    };
    check(tutti_rmsnorm_plan(norm, ctx, &call)); /* all allocation: a capture allows none */

    cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    check(tutti_rmsnorm_forward(norm, ctx, &call));
    check(tutti_rmsnorm_backward(norm, ctx, &call));
    cuda(cudaStreamEndCapture(stream, &graph));
    cuda(cudaGraphInstantiate(&step, graph, 0));
    for (int i = 0; i < ITERATIONS; i++) cuda(cudaGraphLaunch(step, stream));
    cuda(cudaMemcpyAsync(y, ty.data, sizeof y, cudaMemcpyDeviceToHost, stream));
    cuda(cudaMemcpyAsync(dx, tdx.data, sizeof dx, cudaMemcpyDeviceToHost, stream));
    cuda(cudaStreamSynchronize(stream));

    double error = 0.0, want_y[COLS], want_dx[COLS];
    for (int row = 0; row < ROWS; row++) {
        plain(x[row], gamma, dy[row], want_y, want_dx);
        for (int i = 0; i < COLS; i++)
            error = fmax(error, fmax(fabs(y[row][i] - want_y[i]), fabs(dx[row][i] - want_dx[i])));
    }
    printf("worst difference from a plain computation %.1e\n", error);
    tutti_layer_destroy(&norm);
    tutti_context_destroy(&ctx); /* the stream and the memory remain */
    cuda(cudaGraphExecDestroy(step));
    cuda(cudaGraphDestroy(graph));
    cuda(cudaStreamDestroy(stream));
    return error < 1e-5 ? 0 : 1;
}
