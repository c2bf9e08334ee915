/* CrossEntropy, whose forward computes the gradient too. */
#include "layers.h"

const bench_layer bench_cross_entropy = {BENCH_ROWWISE_SHAPES, .pass = "loss+grad",
                                         .variant = "label_smoothing", .variants = "0,0.1"};
