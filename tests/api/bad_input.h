/* Bad input: one test function for each public function, named like it.  Every argument is wrong in
 * each possible way; the call must return the status and a message that names the argument, and
 * change nothing.  For a function that cannot fail, its result for nonsense is checked. */
#ifndef TESTS_API_BAD_INPUT_H
#define TESTS_API_BAD_INPUT_H

#include "harness.h"

/* Arrays of cases, ended by a NULL name. */
extern const harness_test bad_core[], bad_param[], bad_params[], bad_adamw[], bad_sgd[];
extern const harness_test bad_update[], bad_io[];
extern const harness_test bad_layers[], bad_kinds[];
extern const harness_test bad_comm[], bad_grad_sync[], bad_interop[];

/* A context of the other backend, or NULL if there is none. */
tutti_context *foreign_context(void);

/* A LayerNorm of six columns; a parameter of the caller's, which is not bound. */
tutti_layer *small_norm(tutti_dtype dtype, tutti_dtype param);
tutti_param own_param(const char *name, tutti_dtype dtype, int64_t count);
/* A refused parameter has no memory. */
void check_has_no_memory(const tutti_param *param);
/* An empty store; a built one of one parameter "p". */
tutti_params *bare_store(void);
tutti_params *built_store(tutti_param *param);

/* A pointer that an output must still have after a failure. */
#define UNTOUCHED(type) ((type *)(uintptr_t)0x10)

/* The call fails and the output keeps its value. */
#define CHECK_FAILS_KEEPING(output, wanted, word, call)                           \
    do {                                                                          \
        CHECK_FAILS(wanted, word, call);                                          \
        CHECK((uintptr_t)(output) == 0x10, "%s: %s was written", #call, #output); \
    } while (0)

#endif
