/* The update of a list of parameters; include/tutti/update.h says what is checked. */
#ifndef TUTTI_OPTIM_APPLY_H
#define TUTTI_OPTIM_APPLY_H

#include "core/context.h"
#include "ops/update.h"

/* states: how many of call->state there must be.  function: for the message. */
tutti_status tutti__apply(tutti_context *ctx, const tutti__update_options *options, int states,
                          const tutti_update_call *call, const char *function);

#endif
