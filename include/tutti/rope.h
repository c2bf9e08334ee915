/* RotaryPositions [Su et al. 2021, RoFormer]: each pair of a head's columns is rotated by an angle
 * that is proportional to the row's position.
 *
 *     angle_i = position * base^(-2i / rotated),   i = 0 .. rotated/2 - 1,   in every head alike
 *     y_a = x_a cos(angle_i) - x_b sin(angle_i),   y_b = x_b cos(angle_i) + x_a sin(angle_i)
 *     backward:  dx from dy, by the angle's negative
 *
 * A row is cols / head_size heads, one after the other.  Pair i of a head is its columns
 * (a, b) = (i, i + rotated/2), or (2i, 2i + 1) if interleaved; those from `rotated` on are copied.
 *
 * The position is that of the tensor `positions`, where the call has one; otherwise row r is number
 * first_row + r of the global batch, and its position that modulo period.  A position outside
 * [0, max_positions) makes its row of y, or dx, NaN, and tutti_context_check reports it.
 *
 * Angles are reduced in integers, as fractions of a turn [Payne & Hanek 1983], and are right to
 * 2^-61 + position * 2^-91 (docs/numerics.md): far positions are as accurate as near ones.
 *
 * slot          tensor       shape           type
 * in[0]         x            [rows, cols]    dtype
 * in[1]         positions    [rows]          i32       optional; backward reads it: as forward's
 * out[0]        y            [rows, cols]    dtype     may be x
 * upstream[0]   dy           [rows, cols]    dtype
 * din[0]        dx           [rows, cols]    dtype     may be dy
 * saved         nothing
 * first_row     of the call: must be given unless positions is
 *
 * Arithmetic is f32, f64 for f64.  At position 0 y is x, but for an infinity's partner: y_b = x_b +
 * x_a * 0 is NaN.  A row's bits depend on its position, its content, the options and the device. */
#ifndef TUTTI_ROPE_H
#define TUTTI_ROPE_H

#include "tutti/layer.h"

TUTTI_BEGIN

typedef enum tutti_rope_pairing {
    TUTTI_ROPE_HALVES,     /* GPT-NeoX; Llama as Hugging Face stores it */
    TUTTI_ROPE_INTERLEAVED /* RoFormer, GPT-J; Llama as Meta stores it */
} tutti_rope_pairing;

typedef struct tutti_rope_desc {
    size_t size;
    int64_t cols;               /* 1 to 2^20, a multiple of head_size; must be given */
    int64_t head_size;          /* even, 2 to 2^16; must be given */
    int64_t rotated;            /* columns of a head, even; 0: head_size */
    tutti_dtype dtype;          /* 0: f32 */
    double base;                /* 1 to 2^40; 0: 10000 */
    tutti_rope_pairing pairing; /* 0: halves */
    int64_t period;             /* rows of a sequence, where there is no `positions`; 0: one only */
    int64_t max_positions;      /* of `positions`, 1 to 2^31; 0: 2^31 */
} tutti_rope_desc;
#define TUTTI_ROPE_DESC_INIT TUTTI_DESC_INIT(tutti_rope_desc)
TUTTI_API tutti_rope_desc tutti_rope_desc_default(void);

/* A layer on the context's device; the context need not outlive it.  TUTTI_ERR_ARG if desc is NULL
 * or one of its fields is not what the descriptor says. */
TUTTI_API tutti_status tutti_rope_create(tutti_context *ctx, const tutti_rope_desc *desc,
                                         tutti_layer **layer);

/* The slots above by name; what a direction does not use may be NULL or set. */
typedef struct tutti_rope_call {
    const tutti_tensor *x, *positions;
    tutti_tensor *y;
    const tutti_tensor *dy;
    tutti_tensor *dx;
    TUTTI_CALL_COMMON;
} tutti_rope_call;
/* As tutti_layer_plan, tutti_layer_forward and tutti_layer_backward. */
TUTTI_API tutti_status tutti_rope_plan(tutti_layer *layer, tutti_context *ctx,
                                       const tutti_rope_call *call);
TUTTI_API tutti_status tutti_rope_forward(tutti_layer *layer, tutti_context *ctx,
                                          const tutti_rope_call *call);
TUTTI_API tutti_status tutti_rope_backward(tutti_layer *layer, tutti_context *ctx,
                                           const tutti_rope_call *call);

TUTTI_END
#endif
