/* Inside of a layer: what layers/X.c fills in. */
#ifndef TUTTI_CORE_LAYER_H
#define TUTTI_CORE_LAYER_H

#include "core/context.h"
#include "tutti/layer.h"

#define TUTTI__LAYER_PARAMS_MAX 2

/* An option of a descriptor: the public names and where the value lies. */
typedef enum tutti__option_kind {
    TUTTI__OPTION_INT64,
    TUTTI__OPTION_INT32,
    TUTTI__OPTION_BOOL, /* an int, 0 or 1 */
    TUTTI__OPTION_REAL,
    TUTTI__OPTION_CHOICE, /* an enum; the option's type lists its words, split by |, from 0 */
    TUTTI__OPTION_DTYPE
} tutti__option_kind;
typedef struct tutti__option_place {
    tutti__option_kind kind;
    size_t offset; /* in the descriptor */
} tutti__option_place;

typedef struct tutti__layer_class {
    tutti_layer_type type;                    /* public: name, options, slots */
    const tutti__option_place *option_places; /* beside type.options */
    size_t desc_size;
    const void *desc_default;
    tutti_status (*create)(tutti_context *ctx, const void *desc, tutti_layer **layer);
    tutti_status (*plan)(tutti_layer *layer, tutti_context *ctx, int64_t rows);
    tutti_status (*forward)(tutti_layer *layer, tutti_context *ctx, const tutti_call *call);
    tutti_status (*backward)(tutti_layer *layer, tutti_context *ctx, const tutti_call *call);
    size_t (*saved_bytes)(const tutti_layer *layer, int64_t rows);
    void (*destroy)(tutti_layer *layer); /* what the layer holds beside itself; may be NULL */
} tutti__layer_class;

/* Every layer struct begins with this. */
struct tutti_layer {
    const tutti__layer_class *class;
    const tutti__backend *backend;
    int device;
    int param_count;
    tutti_param params[TUTTI__LAYER_PARAMS_MAX];
};

/* Zeroed memory for a layer struct of `size` bytes with its head filled in. */
tutti_status tutti__layer_new(tutti_context *ctx, const tutti__layer_class *class, size_t size,
                              tutti_layer **layer);

/* Appends a parameter: shape, type, how it starts and whether it decays. */
tutti_param *tutti__layer_add_param(tutti_layer *layer, const char *name, tutti_dtype dtype,
                                    int ndim, const int64_t *dims, tutti_param_init init,
                                    double init_bound, double weight_decay);

/* Sees a tensor as rows of `cols` contiguous elements.  what: "rmsnorm: x", for the message.  *rows < 0: takes
 * the tensor's; otherwise it must have that many.  Checks type, shape, strides, alignment and NULL. */
tutti_status tutti__as_rows(const tutti_tensor *tensor, const char *what, tutti_dtype dtype,
                            int64_t cols, int64_t *rows, tutti__matrix *matrix);
/* The same for a tensor that may be NULL: matrix->data is NULL then. */
tutti_status tutti__as_rows_if(const tutti_tensor *tensor, const char *what, tutti_dtype dtype,
                               int64_t cols, int64_t *rows, tutti__matrix *matrix);

/* Refuses outputs that share memory with another tensor of the call.  equal_ok: they may be the very same rows. */
tutti_status tutti__check_apart(const tutti__matrix *a, const char *what_a, int64_t cols_a,
                                const tutti__matrix *b, const char *what_b, int64_t cols_b,
                                int64_t rows, bool equal_ok);

/* A typed wrapper's first check: the layer is of this class. */
tutti_status tutti__check_class(const tutti_layer *layer, const tutti__layer_class *class);

/* TUTTI_ERR_UNSUPPORTED for an operation that the backend lacks. */
tutti_status tutti__unsupported(const tutti_layer *layer, const char *operation);

/* The kinds: one line each in layers/classes.c. */
extern const tutti__layer_class *const tutti__layer_classes[];

extern const tutti__layer_class tutti__layernorm_class, tutti__rmsnorm_class, tutti__softmax_class,
    tutti__linear_class, tutti__cross_entropy_class, tutti__embedding_class;

#endif
