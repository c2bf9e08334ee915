/* Tutti: data-parallel training layers.  Includes everything but cuda.h, mpi.h and nccl.h, which
 * need the headers of those libraries. */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include "tutti/activation.h"
#include "tutti/adamw.h"
#include "tutti/api.h"
#include "tutti/bce_with_logits.h"
#include "tutti/checkpoint.h"
#include "tutti/comm.h"
#include "tutti/context.h"
#include "tutti/cross_entropy.h"
#include "tutti/dropout.h"
#include "tutti/embedding.h"
#include "tutti/glu.h"
#include "tutti/grad_sync.h"
#include "tutti/layer.h"
#include "tutti/layernorm.h"
#include "tutti/linear.h"
#include "tutti/log.h"
#include "tutti/matmul.h"
#include "tutti/mlp.h"
#include "tutti/mse.h"
#include "tutti/param.h"
#include "tutti/rmsnorm.h"
#include "tutti/rope.h"
#include "tutti/sgd.h"
#include "tutti/softmax.h"
#include "tutti/status.h"
#include "tutti/step.h"
#include "tutti/tensor.h"
#include "tutti/update.h"

#endif
