/* A layer's internals: its kind's class, from layers/X.c, and what core derives from it. */
#ifndef TUTTI_CORE_LAYER_H
#define TUTTI_CORE_LAYER_H

#include "core/context.h"
#include "core/ready.h"
#include "tutti/layer.h"

enum { TUTTI__LAYER_PARAMS_MAX = 4, TUTTI__SLOTS_MAX = 8, TUTTI__ARGS_MAX = 640 };

/* The tensors of a call, in the order of tutti_call. */
typedef enum tutti__part {
    TUTTI__PART_IN,
    TUTTI__PART_OUT,
    TUTTI__PART_UPSTREAM,
    TUTTI__PART_DIN
} tutti__part;

/* A checked call.  Absent tensors have data NULL. */
typedef struct tutti__views {
    bool backward;
    int64_t rows, first_row;
    union {
        struct {
            tutti__matrix in[TUTTI_MAX_SLOTS], out[TUTTI_MAX_SLOTS], upstream[TUTTI_MAX_SLOTS],
                din[TUTTI_MAX_SLOTS];
        };
        tutti__matrix tensors[4][TUTTI_MAX_SLOTS]; /* by tutti__part */
    };
    /* elements from one line of a row to the next, where rows are matrices; by tutti__part */
    int64_t lines[4][TUTTI_MAX_SLOTS];
    /* of in: row i is that of i modulo this; 0: each row is its own */
    int64_t period[TUTTI_MAX_SLOTS];
    void *kept[TUTTI_MAX_SLOTS]; /* parts of saved, in the table's order; NULL without saved */
    void *value[TUTTI__LAYER_PARAMS_MAX], *grad[TUTTI__LAYER_PARAMS_MAX];
    tutti_dtype grad_dtype; /* of all gradients of parameters */
    bool accumulate;
    const tutti_step_values *step; /* on the device, or NULL */
    /* the OR of all addresses, row and line strides in bytes: its lowest bit is their common
     * alignment */
    uintptr_t bits;
    int leaves;               /* at least 1 */
    bool in_leaves;           /* the call says that its rows are leaves */
    const int64_t *leaf_rows; /* if leaves > 1 */
    /* an operation that takes leaves: how many of them it adds to one gradient, 0 or 1: none to
     * each other; bytes from a gradient to the next one */
    size_t grad_apart[TUTTI__LAYER_PARAMS_MAX];
    int grad_span[TUTTI__LAYER_PARAMS_MAX];
} tutti__views;

/* How many leaves' gradients of a parameter are added to one. */
static inline int tutti__span_of(const tutti__views *views, int param)
{
    return views->grad_span[param] > 1 ? views->grad_span[param] : 1;
}

/* Rows of a class's table of slots: the name, then other fields of tutti_slot by theirs. */
#define TUTTI__IN(...) TUTTI__SLOT(TUTTI_SLOT_IN, __VA_ARGS__)
#define TUTTI__OUT(...) TUTTI__SLOT(TUTTI_SLOT_OUT, __VA_ARGS__)
#define TUTTI__KEPT(...) TUTTI__SLOT(TUTTI_SLOT_KEPT, __VA_ARGS__)
#define TUTTI__SLOT(its_role, ...)    \
    {                                 \
        __VA_ARGS__, .role = its_role \
    }
/* The flags of most inputs: backward reads it, its gradient is optional. */
#define TUTTI__READ_GRAD (TUTTI_SLOT_READ | TUTTI_SLOT_GRAD | TUTTI_SLOT_GRAD_OPTIONAL)

/* A class's arrays options, slots and params in its type: TUTTI__TABLE(option). */
#define TUTTI__TABLE(row) .row##_count = sizeof row##s / sizeof row##s[0], .row##s = row##s
/* What follows from a class's descriptor and the name of its operation. */
#define TUTTI__OPERATION(desc, name)                                    \
    .desc_size = sizeof(desc), .op = offsetof(tutti__operations, name), \
    .args_size = sizeof(tutti__##name##_args)

typedef struct tutti__layer_class {
    tutti_layer_type type; /* public: the contract */
    size_t desc_size;
    size_t op;         /* offset in tutti__operations */
    int64_t rows_most; /* 0: no limit */
    bool any_grad;     /* gradients of parameters may be f32 or f64, whatever the arithmetic */
    /* Checks of a descriptor beyond the tables', made after them; may be NULL. */
    tutti_status (*check)(const char *name, const void *desc);
    /* Adapts a layer to its options: its slots, its parameters' init; may be NULL. */
    void (*finish)(tutti_layer *layer);
    /* Fills in all of the operation's args from a checked call. */
    void (*fill)(const tutti_layer *layer, const tutti__views *views, void *args);
    size_t args_size; /* at most TUTTI__ARGS_MAX */
    /* the backends, a bit 1 << kind each, where args may have several leaves of equally many rows:
     * rows have the bits of calls of one leaf, and each leaf has gradients of its own */
    unsigned takes_leaves;
    /* of each parameter, the backends where that operation also adds gradients of leaves 2 i and
     * 2 i + 1, with the bits of a sum of both */
    unsigned adds_pairs[TUTTI__LAYER_PARAMS_MAX];
    bool has_stages; /* the operation's backward can be called in two (tutti__stage) */
    /* Fails with the message of a fault that a kernel of the operation found in the data. */
    tutti_status (*explain)(const tutti__finding *finding);
} tutti__layer_class;

/* A slot of a layer: the table's row with the options applied. */
typedef struct tutti__slot_state {
    tutti_slot_shape shape;
    /* sets of tensors: bit i for slot i, bit 16 + i for its gradient */
    uint32_t may_be, grad_may_be;
    uint32_t with, grad_with, replaces; /* of at most one */
} tutti__slot_state;

/* A tensor that a direction uses. */
typedef struct tutti__operand {
    uint8_t part, index, slot; /* tutti__part, its index, the slot's number in the table */
    bool optional, written;
} tutti__operand;
enum { TUTTI__OPERANDS_MAX = 4 * TUTTI_MAX_SLOTS };

/* A gradient that is ready in a step of an exchange, in a list of them. */
typedef struct tutti__exchanged {
    struct tutti__exchanged *next;
    const void *grad;
} tutti__exchanged;

struct tutti_layer {
    tutti__holders holders;
    uint64_t number; /* from 1; no other layer of the process has it, nor will one */
    const tutti__layer_class *class;
    const tutti__backend *backend;
    const tutti__op *op;
    int device;
    int32_t finding;      /* the code that the layer's kernels write to a finding */
    bool reads_first_row; /* bits depend on call.first_row */
    bool reads_step;      /* and on call.step */
    uint32_t tells_row;   /* a set: with one of these tensors first_row is not read */
    int param_count;
    tutti_param params[TUTTI__LAYER_PARAMS_MAX];
    int64_t param_elements[TUTTI__LAYER_PARAMS_MAX];
    tutti__exchanged *exchanged[TUTTI__LAYER_PARAMS_MAX]; /* of each parameter */
    /* The store that they are in, or NULL, and the memory that it gave each; what of its values
     * calls wait for, by its link. */
    tutti_params *store;
    const void *stored_value[TUTTI__LAYER_PARAMS_MAX], *stored_grad[TUTTI__LAYER_PARAMS_MAX];
    int values_group;
    tutti__slot_state slots[TUTTI__SLOTS_MAX];
    /* of forward and backward; the first one sets the number of rows */
    tutti__operand operands[2][TUTTI__OPERANDS_MAX];
    int operand_count[2];
    uint8_t has_slot[4];    /* by tutti__part: one bit per index that a call may have */
    tutti_dtype accumulate; /* of the arithmetic */
    uint64_t desc_hash;
    void *desc; /* the kind's descriptor, with defaults applied */
};

/* Does the work of every tutti_X_create: checks the descriptor by the class's tables and makes the
 * layer. */
tutti_status tutti__layer_create(tutti_context *ctx, const tutti__layer_class *class,
                                 const void *desc, tutti_layer **layer);

/* Gives up a hold (tutti__hold). */
void tutti__layer_release(tutti_layer *layer);

/* The parameter of this name; NULL if the options leave it out. */
tutti_param *tutti__layer_param(tutti_layer *layer, const char *name);
/* The slot of this name. */
tutti__slot_state *tutti__layer_slot(tutti_layer *layer, const char *name);

/* Bytes of a kept slot in saved, whose parts begin on 16-byte boundaries. */
static inline size_t tutti__kept_bytes(const tutti_slot_shape *shape, int64_t rows)
{
    return ((size_t)rows * (size_t)shape->cols * tutti__size_of(shape->dtype) + 15) / 16 * 16;
}

/* The tensor of an operand, or NULL. */
static inline const tutti_tensor *tutti__operand_tensor(const tutti_call *call,
                                                        const tutti__operand *operand)
{
    switch (operand->part) {
    case TUTTI__PART_IN:
        return call->in[operand->index];
    case TUTTI__PART_OUT:
        return call->out[operand->index];
    case TUTTI__PART_UPSTREAM:
        return call->upstream[operand->index];
    default:
        return call->din[operand->index];
    }
}

/* Checks what a call has besides its tensors and does not depend on them. */
tutti_status tutti__check_common(const tutti_layer *layer, const tutti_call *call);
/* What a call points to that may change between calls. */
static inline void tutti__views_common(tutti__views *views, const tutti_call *call)
{
    views->first_row = call->first_row ? *call->first_row : 0;
    views->step = call->step ? call->step->values : NULL;
}

/* Checks a call against the layer's tables and fills in views.  plan: parameters may be unbound and
 * data NULL.  Writes no tensor. */
tutti_status tutti__check_call(const tutti_layer *layer, const tutti_call *call, bool backward,
                               bool plan, tutti__views *views);

/* The same for a call that is run, unless it equals one that the context has checked lately
 * (core/recent.c).  *views is valid until the context's next call. */
tutti_status tutti__recent_check(const tutti_layer *layer, tutti_context *ctx,
                                 const tutti_call *call, bool backward, const tutti__views **views);

/* Runs a checked call's operation, or plans it, leaf by leaf where that matters.  sink: NULL, or
 * the exchange that the call names, which a backward tells that gradients are complete. */
tutti_status tutti__layer_run(tutti_layer *layer, tutti_context *ctx, const tutti__views *views,
                              tutti__ready_sink *sink, bool plan);

/* A typed call's first check: the layer is of this class, and there is a call. */
tutti_status tutti__check_typed(const tutti_layer *layer, const tutti__layer_class *class,
                                const void *call);

/* Defines the public functions of a layer whose class is tutti__X_class, except backward.  After
 * the name come the slots of the typed call c's tensors: .in = {c->x}, … */
#define TUTTI__PUBLIC(name, ...)                                                            \
    static tutti_call generic(const tutti_##name##_call *c)                                 \
    {                                                                                       \
        return (tutti_call){__VA_ARGS__,                                                    \
                            .saved = c->saved,                                              \
                            .saved_bytes = c->saved_bytes,                                  \
                            .first_row = c->first_row,                                      \
                            .leaves = c->leaves,                                            \
                            .leaf_rows = c->leaf_rows,                                      \
                            .flags = c->flags,                                              \
                            .step = c->step,                                                \
                            .sync = c->sync};                                               \
    }                                                                                       \
    tutti_##name##_desc tutti_##name##_desc_default(void)                                   \
    {                                                                                       \
        return (tutti_##name##_desc){.size = sizeof(tutti_##name##_desc)};                  \
    }                                                                                       \
    tutti_status tutti_##name##_create(tutti_context *ctx, const tutti_##name##_desc *desc, \
                                       tutti_layer **layer)                                 \
    {                                                                                       \
        return tutti__layer_create(ctx, &tutti__##name##_class, desc, layer);               \
    }                                                                                       \
    TUTTI__PUBLIC_CALL(name, plan)                                                          \
    TUTTI__PUBLIC_CALL(name, forward)
#define TUTTI__PUBLIC_CALL(name, verb)                                         \
    tutti_status tutti_##name##_##verb(tutti_layer *layer, tutti_context *ctx, \
                                       const tutti_##name##_call *call)        \
    {                                                                          \
        TUTTI_TRY(tutti__check_typed(layer, &tutti__##name##_class, call));    \
        const tutti_call whole = generic(call);                                \
        return tutti_layer_##verb(layer, ctx, &whole);                         \
    }

/* Sets tutti_last_error_place after tutti__fail. */
void tutti__blame(tutti_call_part part, int index);

/* The kinds; NULL after the last. */
extern const tutti__layer_class *const tutti__layer_classes[];

#endif
