/* LayerNorm and RMSNorm. */
#include "layers.h"

const bench_layer bench_layernorm = {BENCH_ROWWISE_SHAPES, .options = "eps=1e-5"};
const bench_layer bench_rmsnorm = {BENCH_ROWWISE_SHAPES, .options = "eps=1e-5"};
