/* A layer of any kind with all tensors of a call, made from the library's table of the kind: drawn,
 * run, compared with the reference. */
#ifndef TESTS_LAYERS_TRIAL_H
#define TESTS_LAYERS_TRIAL_H

#include "common.h"
#include "reference/reference.h"

typedef struct trial trial;
typedef struct trial_tensor trial_tensor;

/* What the trials of a kind of layer have in common. */
typedef struct trial_kind {
    const char *name;
    double deviation;       /* of inputs; 0: 1 */
    int64_t first_row;      /* of every call */
    tutti_step_values step; /* of kinds that read one */
    /* Changes the drawn inputs: roughly normal numbers, indices uniform below their bound. */
    void (*draw)(trial *t);
    /* Must 16 ulp of this result show?  NULL: no. */
    bool (*sharp)(const trial *t, const trial_tensor *result);
} trial_kind;

typedef struct trial_desc {
    const trial_kind *kind;
    char options[160]; /* "cols=8,dtype=bf16" */
    int64_t rows, first_row;
    tutti_step_values step;
    layout place;
    unsigned absent, absent_grads; /* bits of slots: tensors that the call lacks, gradients */
    unsigned untrained;            /* bits of parameters that are bound without a gradient */
    bool accumulate;
    bool wide_grads;   /* the parameters' gradients are f64 */
    bool forward_only; /* nothing is saved */
    bool smooth;       /* for finite differences: draw keeps away from kinks */
} trial_desc;

/* What a call reads or writes. */
struct trial_tensor {
    operand *at;
    char name[TUTTI_NAME_MAX + 1];
    bool gradient, param; /* results that are gradients are backward's */
    bool by_row;          /* a row of it belongs to a row of the call */
    int index;            /* of the slot; of the parameter in the kind's table */
};
enum { TRIAL_TENSORS = 2 * REFERENCE_SLOTS + REFERENCE_PARAMS };

struct trial {
    trial_desc c;
    tutti_context *ctx;
    tutti_layer *layer;
    const tutti_layer_type *type;
    tutti_slot_shape shapes[REFERENCE_SLOTS];
    operand slots[REFERENCE_SLOTS][2], params[REFERENCE_PARAMS][2]; /* a value and its gradient */
    double *old[REFERENCE_PARAMS]; /* gradients before the call, where it adds to them */
    trial_tensor inputs[TRIAL_TENSORS], results[TRIAL_TENSORS];
    int input_count, result_count, param_count;
    harness_buffer saved;
    tutti_step_block *step;
    tutti_call call; /* with every tensor, of both directions */
};

/* The usual trial, options in the manner of printf. */
trial_desc trial_usual(const trial_kind *kind, int64_t rows, const char *options, ...)
    __attribute__((format(printf, 3, 4)));
/* False, with a failure, if the layer cannot be made. */
bool trial_open(trial *t, tutti_context *ctx, const trial_desc *desc);
void trial_close(trial *t);
/* Calls of forward alone, from now on. */
void trial_save_nothing(trial *t);

/* An operand by its name: "x", "dy", "gamma"; a failure if there is none. */
operand *trial_find(trial *t, const char *name);
/* Puts all inputs again, after the test changed their values. */
void trial_put(trial *t);
bool trial_forward(trial *t);
/* Without tensors that backward should not read; does nothing if the kind has no backward. */
bool trial_backward(trial *t);
bool trial_run(trial *t);
/* Fetches the results of a direction, and checks that nothing else was written. */
void trial_get(trial *t, bool backward);
/* Compares the results of a run with the reference. */
void trial_check(trial *t);
/* All of it for one case, on the harness's context. */
void trial_case(const trial_desc *desc);

/* Two runs have the same bits. */
void trial_same_bits(const trial *a, const trial *b);
/* Finite differences at an operand against a gradient: of the outputs, each times its upstream
 * gradient, a sum over rows times the factors of the step. */
void trial_differences(trial *t, const char *name, operand *of, const operand *gradient);

#endif
