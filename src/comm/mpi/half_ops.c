/* MPI operators for f16 and bf16, which travel as 16-bit integers: each pair is widened to f32,
 * combined and rounded once. */
#include "comm/mpi/channel.h"
#include "core/half.h"

#define HALF_OP(name, widen, narrow, expression)                            \
    static void name(void *in, void *inout, int *count, MPI_Datatype *type) \
    {                                                                       \
        const uint16_t *from = in;                                          \
        uint16_t *to = inout;                                               \
        (void)type;                                                         \
        for (int i = 0; i < *count; i++) {                                  \
            float a = widen(to[i]), b = widen(from[i]);                     \
            to[i] = narrow(expression);                                     \
        }                                                                   \
    }

/* a NaN on either side is kept */
#define LEAST (a != a || a < b ? a : b)
#define GREATEST (a != a || a > b ? a : b)

HALF_OP(f16_sum, tutti__f16_to_float, tutti__float_to_f16, a + b)
HALF_OP(f16_min, tutti__f16_to_float, tutti__float_to_f16, LEAST)
HALF_OP(f16_max, tutti__f16_to_float, tutti__float_to_f16, GREATEST)
HALF_OP(bf16_sum, tutti__bf16_to_float, tutti__float_to_bf16, a + b)
HALF_OP(bf16_min, tutti__bf16_to_float, tutti__float_to_bf16, LEAST)
HALF_OP(bf16_max, tutti__bf16_to_float, tutti__float_to_bf16, GREATEST)

static MPI_User_function *const functions[2][3] = {{f16_sum, f16_min, f16_max},
                                                   {bf16_sum, bf16_min, bf16_max}};

tutti_status tutti__half_ops_create(MPI_Op ops[2][3])
{
    for (int i = 0; i < 6; i++)
        if (MPI_Op_create(functions[i / 3][i % 3], 1, &ops[i / 3][i % 3]) != MPI_SUCCESS)
            return tutti__fail(TUTTI_ERR_COMM, "comm_create: MPI_Op_create failed");
    return TUTTI_OK;
}

void tutti__half_ops_free(MPI_Op ops[2][3])
{
    for (int i = 0; i < 6; i++)
        if (ops[i / 3][i % 3] != MPI_OP_NULL) MPI_Op_free(&ops[i / 3][i % 3]);
}
