/* MLP: two calls of FusedLinear. */
#include "ops/mlp.h"

const tutti__op tutti__host_mlp = {tutti__mlp_plan, tutti__mlp_forward, tutti__mlp_backward};
