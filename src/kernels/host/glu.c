/* GLU, in pieces of rows; include/tutti/glu.h has the mathematics. */
#include "ops/glu.h"
#include "kernels/host/activation.h"

/* Columns of a piece: its rows of REALs stay in the first-level cache. */
enum { PIECE = 512 };

typedef struct glu_task {
    const tutti__glu_args *args;
    int64_t pieces; /* of a row */
} glu_task;

#define BODY "kernels/host/glu_rows.h"
#include "kernels/host/each_real.h"

static tutti_status run(const tutti__job *job, const tutti__glu_args *args, tutti__work in_f32,
                        tutti__work in_f64)
{
    const bool wide = args->dtype == TUTTI_F64;
    glu_task task = {args, (args->cols + PIECE - 1) / PIECE};
    const double cols = (double)(args->cols < PIECE ? args->cols : PIECE);
    tutti__parallel(job->ctx, args->rows * task.pieces, 20 + (wide ? 10 : 3) * cols,
                    wide ? in_f64 : in_f32, &task);
    return TUTTI_OK;
}

static tutti_status forward(const tutti__job *job, const void *args)
{
    return run(job, args, glu_forward_pieces_f32, glu_forward_pieces_f64);
}

static tutti_status backward(const tutti__job *job, const void *args)
{
    return run(job, args, glu_backward_pieces_f32, glu_backward_pieces_f64);
}

const tutti__op tutti__host_glu = {NULL, forward, backward};
