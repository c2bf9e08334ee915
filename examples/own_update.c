/* Teaches: an existing trainer keeps its parameters and gradients, and takes from Tutti what
 * follows backward: the global norm, clipping, and AdamW.  No layer, no store, no rank but one; the
 * same calls take memory of a GPU, and can be captured in its graph.
 *
 * Build: cc own_update.c -o own_update $(pkg-config --cflags --libs tutti) -lm
 * Run:   ./own_update */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { ROWS = 64, COLS = 3, PARAMS = 2, STEPS = 400 };

/* The trainer: y = x weight + bias is fitted to known numbers. */
static double x[ROWS][COLS], wanted[ROWS];
static double weight[COLS], bias, dweight[COLS], dbias;
static double m[COLS + 1], v[COLS + 1]; /* AdamW's, zero at the start */

static const double true_weight[COLS] = {0.5, -1.25, 2.0}, true_bias = -0.75;

static void check(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "%s\n", tutti_last_error());
    exit(2);
}

/* Gradients of the mean of (y - wanted)^2. */
static void backward(void)
{
    dbias = 0.0;
    for (int col = 0; col < COLS; col++) dweight[col] = 0.0;
    for (int row = 0; row < ROWS; row++) {
        double y = bias;
        for (int col = 0; col < COLS; col++) y += x[row][col] * weight[col];
        const double dy = 2.0 * (y - wanted[row]) / ROWS;
        for (int col = 0; col < COLS; col++) dweight[col] += dy * x[row][col];
        dbias += dy;
    }
}

int main(void)
{
    for (int row = 0; row < ROWS; row++) {
        wanted[row] = true_bias;
        for (int col = 0; col < COLS; col++) {
            x[row][col] = sin(1.0 + row * (col + 1));
            wanted[row] += x[row][col] * true_weight[col];
        }
    }

    tutti_context *ctx;
    tutti_step_block *step;
    check(tutti_context_create(&(tutti_context_desc){.backend = TUTTI_BACKEND_HOST}, &ctx));
    check(tutti_step_block_create(ctx, &step));
    const tutti_tensor grads[PARAMS] = {tutti_tensor_1d(dweight, TUTTI_F64, COLS),
                                        tutti_tensor_1d(&dbias, TUTTI_F64, 1)};
    const tutti_param w = {.value = tutti_tensor_1d(weight, TUTTI_F64, COLS),
                           .grad = grads[0],
                           .weight_decay = 1,
                           .lr_scale = 1};
    const tutti_param b = {
        .value = tutti_tensor_1d(&bias, TUTTI_F64, 1), .grad = grads[1], .lr_scale = 1};
    const tutti_tensor first[PARAMS] = {tutti_tensor_1d(m, TUTTI_F64, COLS),
                                        tutti_tensor_1d(m + COLS, TUTTI_F64, 1)};
    const tutti_tensor second[PARAMS] = {tutti_tensor_1d(v, TUTTI_F64, COLS),
                                         tutti_tensor_1d(v + COLS, TUTTI_F64, 1)};
    tutti_grad_norm_values values;
    const tutti_tensor norm = tutti_tensor_1d(&values, TUTTI_F64, 4);
    const tutti_grad_norm_desc clipping = {.clip_norm = 1, .skip_nonfinite = 1};
    const tutti_update_call update = {.params = (const tutti_param *const[]){&w, &b},
                                      .count = PARAMS,
                                      .state = {first, second},
                                      .step = step,
                                      .norm = &norm};

    for (int t = 1; t <= STEPS; t++) {
        backward();
        check(tutti_step_block_set(
            step, ctx,
            &(tutti_step_values){
                .step = t, .loss_weight = 1, .learning_rate = 0.1 * (1 - (t - 1.0) / STEPS)}));
        check(tutti_grad_norm(ctx, grads, PARAMS, step, &clipping, &norm));
        check(tutti_adamw_apply(ctx, NULL, &update));
        if (t == 1) printf("step 1: norm %.4f, clipped by %.4f\n", values.norm, values.clip);
    }

    double error = fabs(bias - true_bias);
    for (int col = 0; col < COLS; col++) error = fmax(error, fabs(weight[col] - true_weight[col]));
    printf("weight %.4f %.4f %.4f, bias %.4f\n", weight[0], weight[1], weight[2], bias);
    tutti_step_block_destroy(&step);
    tutti_context_destroy(&ctx);
    return error < 1e-4 ? 0 : 1;
}
