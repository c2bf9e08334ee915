/* Reproducible mode: gradients of a caller's own that begin anywhere. */
#include <stdlib.h>
#include <string.h>

#include "leaves.h"

/* A caller's gradients may begin at any element: the bits are those of aligned ones, whatever the
 * number of leaves in a run. */
enum { ANYWHERE_IN = 40, ANYWHERE_OUT = 24, ANYWHERE_ROWS = 7 };
typedef struct lone_layer {
    tutti_context *ctx;
    tutti_layer *layer;
    void *x, *dy, *values, *grads;
    const tutti_param *list[2];
} lone_layer;

static void lone_make(tutti_context *ctx, int shift, lone_layer *l)
{
    const int64_t sizes[] = {ANYWHERE_OUT * ANYWHERE_IN, ANYWHERE_OUT};
    *l = (lone_layer){.ctx = ctx};
    CHECK_OK(tutti_layer_create_by_name(ctx, "linear", "in=40,out=24", &l->layer));
    l->x = rows_alloc(ctx, LEAVES * ANYWHERE_ROWS * ANYWHERE_IN, 1);
    l->dy = rows_alloc(ctx, LEAVES * ANYWHERE_ROWS * ANYWHERE_OUT, 2);
    l->values = rows_alloc(ctx, sizes[0] + sizes[1], 3);
    l->grads = rows_alloc(ctx, sizes[0] + sizes[1] + shift, 4);
    for (int i = 0; i < 2; i++) {
        tutti_param *param = tutti_layer_param(l->layer, i);
        tutti_tensor value = param->value, grad = param->value;
        value.data = (float *)l->values + (i == 0 ? 0 : sizes[0]);
        grad.data = (float *)l->grads + shift + (i == 0 ? 0 : sizes[0]);
        CHECK_OK(tutti_param_bind(param, &value, &grad));
        l->list[i] = param;
    }
}

static void lone_free(lone_layer *l)
{
    void **memory[] = {&l->x, &l->dy, &l->values, &l->grads};
    tutti_layer_destroy(&l->layer);
    for (int i = 0; i < HARNESS_COUNT(memory); i++) CHECK_OK(tutti_free(l->ctx, memory[i]));
}

static void lone_backward(const lone_layer *l, tutti_grad_sync *sync, int first, int count)
{
    int64_t leaf_rows[LEAVES], first_row = (int64_t)first * ANYWHERE_ROWS;
    const int64_t rows = (int64_t)count * ANYWHERE_ROWS;
    for (int i = 0; i < count; i++) leaf_rows[i] = (int64_t)i * ANYWHERE_ROWS;
    tutti_tensor x =
        tutti_tensor_2d((float *)l->x + first_row * ANYWHERE_IN, TUTTI_F32, rows, ANYWHERE_IN);
    tutti_tensor dy =
        tutti_tensor_2d((float *)l->dy + first_row * ANYWHERE_OUT, TUTTI_F32, rows, ANYWHERE_OUT);
    const tutti_call call = {.in = {&x},
                             .upstream = {&dy},
                             .first_row = &first_row,
                             .leaves = count,
                             .leaf_rows = leaf_rows,
                             .sync = sync};
    CHECK_OK(tutti_grad_sync_leaves_begin(sync, l->ctx, first, count));
    CHECK_OK(tutti_layer_backward(l->layer, l->ctx, &call));
    CHECK_OK(tutti_grad_sync_leaves_end(sync, l->ctx));
}

void anywhere(tutti_context *ctx, tutti_comm *comm)
{
    float *want[2] = {NULL, NULL};
    for (int turn = 0; turn < 6; turn++) {
        const int shift = turn / 3, most = turn % 3 == 0 ? LEAVES : turn % 3;
        tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
        tutti_grad_sync *sync = NULL;
        lone_layer l;
        int first = 0, count = 0;
        harness_where("gradients %d elements on, runs of %d leaves", shift, most);
        lone_make(ctx, shift, &l);
        desc.leaves = LEAVES;
        CHECK_OK(tutti_grad_sync_create_list(ctx, comm, l.list, 2, &desc, &sync));
        CHECK_OK(tutti_grad_sync_own_leaves(sync, &first, &count));
        for (int leaf = first; leaf < first + count; leaf += most)
            lone_backward(&l, sync, leaf,
                          first + count - leaf < most ? first + count - leaf : most);
        CHECK_OK(tutti_grad_sync_finish(sync, ctx));
        for (int i = 0; i < 2; i++) {
            const tutti_tensor *grad = &l.list[i]->grad;
            const size_t bytes = (size_t)tutti_tensor_count(grad) * sizeof(float);
            float *got = harness_calloc(bytes, 1);
            CHECK_OK(tutti_copy(ctx, got, grad->data, bytes));
            CHECK_OK(tutti_context_synchronize(ctx));
            if (!want[i]) {
                want[i] = got;
                continue;
            }
            CHECK(memcmp(got, want[i], bytes) == 0, "the gradient of %s has other bits",
                  l.list[i]->name);
            free(got);
        }
        tutti_grad_sync_destroy(&sync);
        lone_free(&l);
    }
    harness_where(NULL);
    free(want[0]);
    free(want[1]);
}
