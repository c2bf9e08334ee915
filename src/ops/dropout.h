/* BiasDropoutActivation; include/tutti/dropout.h has the mathematics. */
#ifndef TUTTI_OPS_DROPOUT_H
#define TUTTI_OPS_DROPOUT_H

#include "ops/activation.h"
#include "ops/philox.h"
#include "tutti/step.h"

typedef struct tutti__dropout_args {
    int64_t rows, cols, first_row;
    tutti_dtype dtype;
    tutti__activation activation;
    uint32_t dropped; /* of 2^16 elements; 0: step is not read */
    uint32_t layer_number;
    const tutti_step_values *step; /* on the device */
    tutti__matrix x;               /* backward: not for activation none */
    const void *bias;              /* optional; contiguous */
    tutti__matrix residual;        /* forward, optional; may be y */
    tutti__matrix y;               /* forward */
    tutti__matrix dy, dx;          /* backward; dx optional, may be dy */
    void *dbias;                   /* optional; f64 for f64, otherwise f32 */
    bool accumulate;
} tutti__dropout_args;

/* Exact in every type of the arithmetic. */
static inline TUTTI__ANYWHERE float tutti__dropout_p_keep(const tutti__dropout_args *args)
{
    return (float)(65536 - args->dropped) / 65536;
}

/* Bit i: column 8 group + i of a row is kept. */
static inline TUTTI__ANYWHERE uint32_t tutti__dropout_kept(const tutti__dropout_args *args,
                                                           int64_t row, int64_t group)
{
    if (args->dropped == 0) return 0xff;
    const tutti__random bits =
        tutti__random_at(args->step->seed, args->layer_number, args->step->step,
                         args->first_row + row, (uint32_t)group);
    uint32_t kept = 0;
    for (int i = 0; i < 8; i++)
        kept |= (uint32_t)((bits.word[i / 2] >> i % 2 * 16 & 0xffff) >= args->dropped) << i;
    return kept;
}

#endif
