/* Tiles of a fixed grid, each a single-threaded product by OpenBLAS, in parallel. */
#include "kernels/host/gemm.h"

#include <cblas.h>
#include <pthread.h>
#include <string.h>

#include "kernels/host/activation.h"

/* Tiles have about EDGE x EDGE elements, enough for nearly full speed of OpenBLAS, or half the edge
 * if there would be few of them. */
#define EDGE 256
#define MANY_TILES 16
/* A factor that must be widened is processed in pieces this deep, which fit in a core's cache. */
#define DEPTH 512
/* OpenBLAS takes sizes as int. */
#define DEPTH_MOST (INT64_C(1) << 30)

typedef struct grid {
    int64_t tile_m, tile_n, count_m, count_n;
} grid;

/* Divides size evenly into tiles.  Avoids a division if one tile is enough: it may be a call's only
 * product. */
static void cut(int64_t size, int64_t edge, int64_t *tile, int64_t *count)
{
    const bool one = size <= edge;
    const int64_t parts = one ? 1 : (size + edge - 1) / edge;
    const int64_t even = one ? (size > 0 ? size : 1) : (size + parts - 1) / parts;
    *tile = (even + 15) / 16 * 16;
    *count = one ? size > 0 : (size + *tile - 1) / *tile;
}

static grid grid_of(int64_t m, int64_t n)
{
    int64_t edge = EDGE;
    if (((m + EDGE - 1) / EDGE) * ((n + EDGE - 1) / EDGE) < MANY_TILES) edge = EDGE / 2;
    grid g;
    cut(m, edge, &g.tile_m, &g.count_m);
    cut(n, edge, &g.tile_n, &g.count_n);
    return g;
}

/* Scratch of a thread: the tile, pieces of both factors, a row. */
typedef struct room {
    size_t tile, a, b, row, all;
} room;

static room room_of(const grid *g, int64_t k, tutti_dtype real)
{
    const size_t size = tutti_dtype_size(real);
    const int64_t depth = k < DEPTH ? k : DEPTH;
    room r;
    r.tile = 0;
    r.a = r.tile + tutti__room(g->tile_m * g->tile_n, size);
    r.b = r.a + tutti__room(g->tile_m * depth, size);
    r.row = r.b + tutti__room(g->tile_n * depth, size);
    r.all = r.row + tutti__room(g->tile_n, size);
    return r;
}

/* The type of the arithmetic and of the tiles. */
static tutti_dtype real_of(const tutti__gemm *gemm)
{
    return tutti__accumulate_dtype(gemm->a.in.dtype, gemm->b.in.dtype);
}

size_t tutti__host_gemm_scratch(const tutti_context *ctx, const tutti__gemm *gemm)
{
    const grid g = grid_of(gemm->m, gemm->n);
    return (size_t)ctx->threads * room_of(&g, gemm->k, real_of(gemm)).all;
}

/* OpenBLAS 0.3.21 has one number of threads per process.  It is 1 while any of our products runs;
 * after the last the caller's is restored. */
static pthread_mutex_t blas_lock = PTHREAD_MUTEX_INITIALIZER;
static int blas_users, blas_callers_threads;

static void blas_enter(void)
{
    pthread_mutex_lock(&blas_lock);
    if (blas_users++ == 0) {
        blas_callers_threads = openblas_get_num_threads();
        if (blas_callers_threads != 1) openblas_set_num_threads(1);
    }
    pthread_mutex_unlock(&blas_lock);
}

static void blas_leave(void)
{
    pthread_mutex_lock(&blas_lock);
    if (--blas_users == 0 && blas_callers_threads != 1)
        openblas_set_num_threads(blas_callers_threads);
    pthread_mutex_unlock(&blas_lock);
}

/* A tile of C, before its epilogue: rows [i, i + rows), columns [j, j + cols), cols apart. */
typedef struct tile {
    void *data;
    const tutti__matrix *a, *b, *c; /* the product's */
    int64_t i, j, rows, cols;
    int64_t z_row; /* of the tile's first row in all products' z */
    void *row;     /* room for cols REALs */
} tile;

#define BODY "kernels/host/gemm_rows.h"
#include "kernels/host/each_real.h"

typedef struct gemm_task {
    const tutti__gemm *gemm;
    tutti_dtype real;
    grid grid;
    room room;
    int64_t depth;
    char *scratch;
} gemm_task;

/* The matrices A, B and C of product number `batch`. */
static void move_to(int64_t batch, const tutti__gemm *gemm, tutti__matrix moved[3])
{
    const int64_t outer = batch / gemm->batch[1], inner = batch % gemm->batch[1];
    const int64_t *aparts[] = {gemm->a.apart, gemm->b.apart, gemm->c_apart};
    moved[0] = gemm->a.in;
    moved[1] = gemm->b.in;
    moved[2] = gemm->c;
    for (int i = 0; i < 3; i++)
        moved[i].data =
            tutti__at(moved[i].data, moved[i].dtype, outer * aparts[i][0] + inner * aparts[i][1]);
}

/* Whether OpenBLAS can read the matrix in place. */
static bool readable(const tutti__matrix *matrix, tutti_dtype real)
{
    return matrix->dtype == real && matrix->stride <= DEPTH_MOST;
}

/* Rows [first, first + rows) and columns [skip, skip + cols) of a matrix, as REALs; *stride:
 * between its rows. */
static const void *piece_of(const tutti__matrix *matrix, tutti_dtype real, int64_t first,
                            int64_t rows, int64_t skip, int64_t cols, void *copy, int64_t *stride)
{
    if (readable(matrix, real)) {
        *stride = matrix->stride > cols ? matrix->stride : cols;
        return tutti__at(tutti__row(matrix, first), real, skip);
    }
    *stride = cols;
    for (int64_t r = 0; r < rows; r++) {
        const void *src = tutti__at(tutti__row(matrix, first + r), matrix->dtype, skip);
        void *dst = tutti__at(copy, real, r * cols);
        if (real == TUTTI_F64)
            tutti__load_f64(dst, src, matrix->dtype, cols);
        else
            tutti__load_f32(dst, src, matrix->dtype, cols);
    }
    return copy;
}

/* tile = alpha op(A) op(B) */
static void multiply(const gemm_task *t, char *mine, const tile *to)
{
    const tutti__gemm *g = t->gemm;
    const bool ta = g->a.transposed, tb = g->b.transposed;
    const int64_t m = to->rows, n = to->cols;
    if (g->k == 0) memset(to->data, 0, (size_t)(m * n) * tutti_dtype_size(t->real));
    for (int64_t k = 0; k < g->k; k += t->depth) {
        const int64_t depth = g->k - k < t->depth ? g->k - k : t->depth;
        int64_t lda, ldb;
        const void *a_piece =
            ta ? piece_of(to->a, t->real, k, depth, to->i, m, mine + t->room.a, &lda)
               : piece_of(to->a, t->real, to->i, m, k, depth, mine + t->room.a, &lda);
        const void *b_piece =
            tb ? piece_of(to->b, t->real, to->j, n, k, depth, mine + t->room.b, &ldb)
               : piece_of(to->b, t->real, k, depth, to->j, n, mine + t->room.b, &ldb);
        const enum CBLAS_TRANSPOSE op_a = ta ? CblasTrans : CblasNoTrans;
        const enum CBLAS_TRANSPOSE op_b = tb ? CblasTrans : CblasNoTrans;
        if (t->real == TUTTI_F64)
            cblas_dgemm(CblasRowMajor, op_a, op_b, (blasint)m, (blasint)n, (blasint)depth, g->alpha,
                        a_piece, (blasint)lda, b_piece, (blasint)ldb, k > 0, to->data, (blasint)n);
        else
            cblas_sgemm(CblasRowMajor, op_a, op_b, (blasint)m, (blasint)n, (blasint)depth,
                        (float)g->alpha, a_piece, (blasint)lda, b_piece, (blasint)ldb, k > 0,
                        to->data, (blasint)n);
    }
}

static void multiply_tiles(void *data, int64_t begin, int64_t end, int thread)
{
    const gemm_task *t = data;
    const tutti__gemm *g = t->gemm;
    char *mine = t->scratch + (size_t)thread * t->room.all;
    const int64_t tiles = t->grid.count_m * t->grid.count_n; /* of a product */
    for (int64_t index = begin; index < end; index++) {
        const int64_t place = index < tiles ? index : index % tiles;
        const int64_t row = t->grid.count_n == 1 ? place : place / t->grid.count_n;
        tile to = {.data = mine + t->room.tile,
                   .a = &g->a.in,
                   .b = &g->b.in,
                   .c = &g->c,
                   .i = row * t->grid.tile_m,
                   .j = (place - row * t->grid.count_n) * t->grid.tile_n,
                   .row = mine + t->room.row};
        tutti__matrix moved[3];
        if (index >= tiles) {
            move_to(index / tiles, g, moved);
            to.a = &moved[0], to.b = &moved[1], to.c = &moved[2];
        }
        to.z_row = index / tiles * g->m + to.i;
        to.rows = g->m - to.i < t->grid.tile_m ? g->m - to.i : t->grid.tile_m;
        to.cols = g->n - to.j < t->grid.tile_n ? g->n - to.j : t->grid.tile_n;
        multiply(t, mine, &to);
        if (t->real == TUTTI_F64)
            finish_f64(g, &to);
        else
            finish_f32(g, &to);
    }
}

void tutti__host_gemm(const tutti_context *ctx, const tutti__gemm *gemm, void *scratch)
{
    TUTTI_ASSERT(gemm->beta == 0 ||
                 (!gemm->bias && !gemm->z && gemm->activation.kind == TUTTI_ACT_NONE));
    const tutti_dtype real = real_of(gemm);
    const grid g = grid_of(gemm->m, gemm->n);
    const bool direct = readable(&gemm->a.in, real) && readable(&gemm->b.in, real);
    gemm_task task = {
        .gemm = gemm,
        .real = real,
        .grid = g,
        .room = room_of(&g, gemm->k, real),
        .depth = direct ? DEPTH_MOST : DEPTH,
        .scratch = scratch,
    };
    /* about 50 multiplications and additions a nanosecond, half of that for f64 */
    const double cost =
        (double)(g.tile_m * g.tile_n) * (1 + (double)gemm->k / 50) * (real == TUTTI_F64 ? 2 : 1);
    blas_enter();
    tutti__parallel(ctx, gemm->batch[0] * gemm->batch[1] * g.count_m * g.count_n, cost,
                    multiply_tiles, &task);
    blas_leave();
}
