/* BCE of logits and MSE, whose forward computes the gradient too. */
#include "layers.h"

const bench_layer bench_bce_with_logits = {BENCH_ROWWISE_SHAPES, .pass = "loss+grad"};
const bench_layer bench_mse = {BENCH_ROWWISE_SHAPES, .pass = "loss+grad"};
