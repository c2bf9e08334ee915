/* Matrix products on OpenBLAS whose bits do not depend on the number of threads: tiles of a fixed
 * grid, each a single-threaded product, handed to the threads of our own loop. */
#include "kernels/host/gemm.h"

#include <cblas.h>
#include <pthread.h>
#include <string.h>

/* Tiles are of about EDGE x EDGE elements: large enough for nearly OpenBLAS's full speed, and of
 * half the edge where there would be few of them. */
#define EDGE 256
#define MANY_TILES 16
/* A factor that must be widened is taken in pieces this deep, which stay in a core's cache. */
#define DEPTH 512
/* OpenBLAS counts in int. */
#define DEPTH_MOST (INT64_C(1) << 30)

typedef struct grid {
    int64_t tile_m, tile_n, count_m, count_n;
} grid;

static int64_t even_tile(int64_t size, int64_t edge)
{
    int64_t parts = (size + edge - 1) / edge;
    int64_t tile = parts > 0 ? (size + parts - 1) / parts : 1;
    return (tile + 15) / 16 * 16;
}

static grid grid_of(int64_t m, int64_t n)
{
    int64_t edge = EDGE;
    if (((m + EDGE - 1) / EDGE) * ((n + EDGE - 1) / EDGE) < MANY_TILES) edge = EDGE / 2;
    grid g = {.tile_m = even_tile(m, edge), .tile_n = even_tile(n, edge)};
    g.count_m = (m + g.tile_m - 1) / g.tile_m;
    g.count_n = (n + g.tile_n - 1) / g.tile_n;
    return g;
}

/* A thread's room: the tile, pieces of both factors, a row. */
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

size_t tutti__product_scratch(const tutti_context *ctx, int64_t m, int64_t n, int64_t k,
                              tutti_dtype real)
{
    grid g = grid_of(m, n);
    return (size_t)ctx->threads * room_of(&g, k, real).all;
}

/* OpenBLAS 0.3.21 knows one number of threads, the process's.  While any product of ours runs it is
 * 1; the caller's comes back after the last. */
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

typedef struct product_task {
    const tutti__product *product;
    grid grid;
    room room;
    int64_t depth;
    char *scratch;
} product_task;

/* OpenBLAS can read the factor where it is. */
static bool readable(const tutti__factor *factor, tutti_dtype real)
{
    return factor->in.dtype == real && factor->in.stride <= DEPTH_MOST;
}

/* [outer, outer + count) x [k, k + depth) of a factor, as REALs; *stride: between its rows. */
static const void *piece_of(const tutti__factor *factor, tutti_dtype real, int64_t outer,
                            int64_t count, int64_t k, int64_t depth, void *copy, int64_t *stride)
{
    const int64_t first = factor->transposed ? k : outer, rows = factor->transposed ? depth : count;
    const int64_t skip = factor->transposed ? outer : k, cols = factor->transposed ? count : depth;
    if (readable(factor, real)) {
        *stride = factor->in.stride > cols ? factor->in.stride : cols;
        return tutti__at(tutti__row(&factor->in, first), real, skip);
    }
    *stride = cols;
    for (int64_t r = 0; r < rows; r++) {
        const void *src = tutti__at(tutti__row(&factor->in, first + r), factor->in.dtype, skip);
        void *dst = tutti__at(copy, real, r * cols);
        if (real == TUTTI_F64)
            tutti__load_f64(dst, src, factor->in.dtype, cols);
        else
            tutti__load_f32(dst, src, factor->in.dtype, cols);
    }
    return copy;
}

static void multiply_tiles(void *data, int64_t begin, int64_t end, int thread)
{
    const product_task *t = data;
    const tutti__product *p = t->product;
    char *mine = t->scratch + (size_t)thread * t->room.all;
    void *c = mine + t->room.tile;
    for (int64_t index = begin; index < end; index++) {
        const int64_t i = index / t->grid.count_n * t->grid.tile_m;
        const int64_t j = index % t->grid.count_n * t->grid.tile_n;
        const int64_t m = p->m - i < t->grid.tile_m ? p->m - i : t->grid.tile_m;
        const int64_t n = p->n - j < t->grid.tile_n ? p->n - j : t->grid.tile_n;
        if (p->k == 0) memset(c, 0, (size_t)(m * n) * tutti_dtype_size(p->real));
        for (int64_t k = 0; k < p->k; k += t->depth) {
            const int64_t depth = p->k - k < t->depth ? p->k - k : t->depth;
            int64_t lda, ldb;
            const void *a = piece_of(&p->a, p->real, i, m, k, depth, mine + t->room.a, &lda);
            const void *b = piece_of(&p->b, p->real, j, n, k, depth, mine + t->room.b, &ldb);
            const enum CBLAS_TRANSPOSE ta = p->a.transposed ? CblasTrans : CblasNoTrans;
            const enum CBLAS_TRANSPOSE tb = p->b.transposed ? CblasNoTrans : CblasTrans;
            if (p->real == TUTTI_F64)
                cblas_dgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)depth, 1, a,
                            (blasint)lda, b, (blasint)ldb, k > 0, c, (blasint)n);
            else
                cblas_sgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)depth, 1, a,
                            (blasint)lda, b, (blasint)ldb, k > 0, c, (blasint)n);
        }
        p->finish(p->data, &(tutti__tile){c, i, j, m, n, mine + t->room.row});
    }
}

void tutti__product_run(const tutti_context *ctx, const tutti__product *product, void *scratch)
{
    const grid g = grid_of(product->m, product->n);
    const bool direct =
        readable(&product->a, product->real) && readable(&product->b, product->real);
    product_task task = {
        .product = product,
        .grid = g,
        .room = room_of(&g, product->k, product->real),
        .depth = direct ? DEPTH_MOST : DEPTH,
        .scratch = scratch,
    };
    /* about 50 multiplications and additions a nanosecond, half of that for f64 */
    const double cost = (double)(g.tile_m * g.tile_n) * (1 + (double)product->k / 50) *
                        (product->real == TUTTI_F64 ? 2 : 1);
    blas_enter();
    tutti__parallel(ctx, g.count_m * g.count_n, cost, multiply_tiles, &task);
    blas_leave();
}
