/* MLP: two calls of FusedLinear. */
#include "ops/mlp.h"

extern "C" const tutti__op tutti__cuda_mlp = {tutti__mlp_plan, tutti__mlp_forward,
                                              tutti__mlp_backward};
