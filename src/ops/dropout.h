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
    uint32_t number;               /* the layer's */
    uint32_t dropped;              /* of 65536: an element goes where its 16 bits are below */
    const tutti_step_values *step; /* on the device; not read where dropped is 0 */
    const void *bias;              /* optional; contiguous */
    tutti__matrix x;               /* backward: NULL for none */
    tutti__matrix y;
    tutti__matrix dy, dx; /* dx optional; may be dy */
    void *dbias;          /* optional; f64 for f64, otherwise f32 */
    bool accumulate;
} tutti__dropout_args;

/* The numbers of 8 columns from 8 * group on, and whether element i of them goes. */
static inline TUTTI__ANYWHERE tutti__random tutti__dropout_bits(const tutti__dropout_args *args,
                                                                uint64_t seed, int64_t step,
                                                                int64_t row, int64_t group)
{
    return tutti__random_at(seed, args->number, step, args->first_row + row, (uint32_t)group);
}
static inline TUTTI__ANYWHERE bool tutti__dropout_goes(const tutti__dropout_args *args,
                                                       const tutti__random *bits, int i)
{
    return (bits->word[i / 2] >> (i % 2 * 16) & 0xffff) < args->dropped;
}

/* The exact part that stays. */
static inline TUTTI__ANYWHERE float tutti__dropout_kept(const tutti__dropout_args *args)
{
    return (float)(65536 - args->dropped) / 65536;
}

#endif
