/* Softmax. */
#include "layers.h"

const bench_layer bench_softmax = {BENCH_ROWWISE_SHAPES};
