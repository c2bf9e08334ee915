/* A layer to time, created from its kind's table, and what is added to that for some kinds. */
#ifndef TUTTI_BENCH_LAYERS_H
#define TUTTI_BENCH_LAYERS_H

#include <stdbool.h>

#include "machine.h"
#include "pattern.h"
#include "reference/reference.h"

enum { BENCH_DIMS_MAX = 8, BENCH_DEFAULT_SHAPES = 3 };

/* Rows, then the options that the kind's table wants, in its order: 8192x4096x16384. */
typedef struct bench_shape {
    int ndim;
    int64_t dims[BENCH_DIMS_MAX];
} bench_shape;

typedef struct bench_result {
    const char *layer, *pass, *variant;
    char shape[64];
    tutti_dtype dtype, param_dtype;
    int64_t columns; /* bench_widest's */
    bench_times times;
    double amount;       /* bytes, or operations where `product` */
    bool product;        /* compared with the bare products, otherwise with a copy */
    double reference;    /* seconds of what it is compared with; 0: nothing */
    double call_seconds; /* bench_time_call's */
    double error, tolerance;
    int64_t elements;      /* that were checked: of all results of the pass */
    bool added;            /* a line beside the shapes that were asked for */
    bool faulty;           /* --inject-fault altered one of them */
    bool exchange;         /* of gradients over the ranks */
    double bus_factor;     /* bus bandwidth / algorithm bandwidth of the exchange */
    double device_seconds; /* of one of many exchanges in a graph; 0: not timed */
} bench_result;

/* A tensor of the call, or a parameter, or the gradient of either. */
typedef struct bench_tensor {
    tutti_tensor view;     /* on the device; data NULL: not in the call */
    bench_pattern pattern; /* what it was filled with, floats */
    int32_t *indices;      /* or these */
    /* of a result that bench_compare saw a part of: the largest bound there, less the rounding to
     * the tensor's type */
    bool bounded;
    double slack;
} bench_tensor;

/* --inject-fault: what is altered in the results of each pass. */
typedef enum bench_fault {
    BENCH_FAULT_NONE,
    BENCH_FAULT_LAST,      /* the last row's last column */
    BENCH_FAULT_INSIDE,    /* an element of a row that reference/ does not compute */
    BENCH_FAULT_UNWRITTEN, /* the same, which is as it was before the call */
    BENCH_FAULT_SUM        /* the last element of a sum over rows: a weight gradient */
} bench_fault;

typedef struct bench_layer bench_layer;

/* One layer of one shape, with all that its calls need. */
typedef struct bench_run {
    /* the caller's */
    bench_machine *machine;
    const tutti_layer_type *type;
    const bench_layer *own;
    const char *variant; /* "" where the kind has none */
    const char *more;    /* the options that it stands for, if it is a name; otherwise NULL */
    const char *with;    /* "residual,bias": optional tensors that are given too; or NULL */
    const char *set;     /* "zero_centered=1": more options, of kinds that have them; or NULL */
    bench_shape shape;
    tutti_dtype dtype;       /* of all its options that are types */
    tutti_dtype param_dtype; /* but those that only parameters have */
    /* types of the run under test, to which inputs and parameters are rounded */
    tutti_dtype rounded, rounded_params;
    bench_fault fault;
    bool added; /* bench_result's */

    int64_t rows;
    char shown[80];    /* the variant, and what it is with */
    char options[512]; /* of the layer */
    tutti_layer *layer;
    bench_tensor *tensors; /* slot i at 2 i, its gradient at 2 i + 1; then the parameters alike */
    int slots, params;
    tutti_step_block *step;
    int64_t first_row;
    tutti_call call; /* of both directions */
    bool backward;
    double *scratch;
    /* the same in f64 on the host, made by the first check; a twin's own is its activation */
    struct bench_run *twin;
    bool empty; /* a twin: its tensors are not filled */
} bench_run;

/* What kinds.c, or a file of the kind's own, adds to its table; zeros for a kind without. */
struct bench_layer {
    bench_shape gpu[BENCH_DEFAULT_SHAPES], host[BENCH_DEFAULT_SHAPES];
    const char *options;  /* beside the shape and the types: "period=9"; "p=0.1," before variants */
    const char *variant;  /* an option of which several values are timed */
    const char *variants; /* its default values, which --NAME of the option replaces */
    int key;              /* the letter of that command-line option, or 0 */
    /* instead, names of variants and the options of each, up to NULLs; both are the kind's own */
    const char *const (*named)[2];
    /* inputs have a mean of 0, not of 0.1: a GPU's power draw in products depends on their data */
    bool about_zero;
    /* Fills in the amount of the result, and the reference; NULL: bytes counted from the kind's
     * table. */
    void (*count)(const bench_run *run, bench_result *result, bench_reference *reference);
    bool products; /* the reference is the bare products */
    /* Checks a pass, where whole rows would take the reference too long.  NULL: some rows, and what
     * is summed over them. */
    int (*check)(bench_run *run, bench_result *result);
    /* Checks some of what is summed over rows by the formula (bench_compare); what that allows is
     * then allowed everywhere.  NULL: the roundoffs of the sums' type are. */
    int (*check_sums)(bench_run *run, bench_result *result);
    /* instead, an option of the shape: gradients of the parameters that have it as a dimension are
     * checked so at some indices of it, each by a layer in which it is 1 */
    const char *slice;
    /* the twin's call, with f64 products on the run's GPU, which the host would take seconds for
     * (linear.c); NULL: always the twin's layer */
    int (*twin_call)(bench_run *run);
};

/* bench_layer_plain for a kind that kinds.c does not have. */
const bench_layer *bench_layer_find(const char *name);
extern const bench_layer bench_layer_plain;

/* The number of options that the kind takes from a shape, and their names. */
int bench_shape_options(const tutti_layer_type *type, const char *names[BENCH_DIMS_MAX]);

/* Called for each result. */
typedef void (*bench_sink)(void *user, const bench_result *result);

/* Times and checks forward and backward.  A wrong result is left to the sink. */
int bench_layer_run(const bench_run *plan, bench_sink sink, void *user);
/* Creates the layer and no more: APP_USAGE if its options are wrong. */
int bench_layer_try(const bench_run *plan);

/* Whether a kind has an option ("name", or "name=…,…") that neither the shape, a type nor
 * `own` sets. */
bool bench_leaves_open(const tutti_layer_type *type, const bench_layer *own, const char *name);

/* Whether the kind has an option for the type of its parameters alone. */
bool bench_has_param_types(const tutti_layer_type *type);

/* The type in which a layer of dtype sums. */
tutti_dtype bench_sums(tutti_dtype dtype);
/* That of the run: f64 if its parameters are, too. */
tutti_dtype bench_run_sums(const bench_run *run);

/* Whether a comma-separated list, or NULL, has a word. */
bool bench_has_word(const char *list, const char *word);

/* Creates a run's layer; layer and tensors; sets which pass its calls are; makes one; frees
 * everything. */
int bench_create(bench_run *run);
int bench_prepare(bench_run *run);
void bench_turn(bench_run *run, bool backward);
int bench_layer_call(void *run);
void bench_release(bench_run *run);

/* For checks. */

/* Fills in error, tolerance and elements: some rows against reference/ with its bounds, then every
 * element of every result. */
int bench_check(bench_run *run, bench_result *result);

/* check_all.c: every element against the run's twin.  suspects: a flag for each row, set where
 * reference/ must judge; NULL: it cannot. */
int bench_check_all(bench_run *run, bench_result *result, bool *suspects);

/* twin.c: makes the run's twin, with a block of the run's rows; computes results of the pass for
 * rows row, row + 1, …, at most as many as the block has; frees it.  Rows must come in order: row 0
 * begins the gradients of parameters, others are added. */
int bench_twin_make(bench_run *run);
/* A layer of this kind and shape in f64 on the host, otherwise as the run's. */
int bench_twin_open(const bench_run *run, const tutti_layer_type *type, const bench_shape *shape,
                    bench_run **made);
int bench_twin_compute(bench_run *run, int64_t row, int64_t rows);
void bench_twin_release(bench_run *run);

/* linear.c.  Whether twin_call does the twin's calls: not in f64, where the run's products may be
 * the same code. */
bool bench_is_dense(const bench_run *run);
/* Completes a twin for these by its own one, whose call is the activation. */
int bench_dense_open(bench_run *run);
/* That call: act(z), or dy act'(z), for as many rows as the twin has now. */
int bench_activate(bench_run *twin);
/* Elements of a tensor of f64; NULL if the run has none of that name. */
double *bench_data_of(const bench_run *run, const char *name);
/* Makes these tensors change places; they have equally many elements. */
void bench_exchange(bench_run *a, const char *name, bench_run *b, const char *other);
/* One of the FusedLinear that a kind consists of. */
typedef struct bench_dense {
    bench_run *run;
    int64_t rows, in, out;
    const char *weight, *bias;   /* of the twin's parameters */
    const char *dweight, *dbias; /* and their gradients */
} bench_dense;
/* z = x W^T + bias */
int bench_dense_forward(const bench_dense *of, const double *x, double *z);
/* dx = dz W, dW (+)= dz^T x, and dbias (+)= the sums of dz's columns */
int bench_dense_backward(const bench_dense *of, const double *dz, const double *x, double *dx);

/* spoil.c.  Fills what the pass will write with NaN. */
int bench_spoil(const bench_run *run);
/* Alters what --inject-fault says in the results of the pass; *undo keeps what was there. */
typedef struct bench_undo {
    void *at; /* on the device; NULL: nothing was altered */
    size_t size;
    unsigned char was[8];
} bench_undo;
int bench_fault_make(bench_run *run, bench_undo *undo);
int bench_fault_undo(const bench_run *run, bench_undo *undo);

/* Elements of a row of the widest tensor. */
int64_t bench_widest(const bench_run *run);
/* Results of the pass; those that have rows. */
bool bench_is_result(const bench_run *run, int tensor);
bool bench_has_rows(const bench_run *run, int tensor);

/* "x", "dx": NULL if the run has no such tensor. */
bench_tensor *bench_find(const bench_run *run, const char *name);
/* Elements first, first + 1, … of a tensor: those it was filled with, or what the device holds. */
int bench_values(const bench_run *run, const bench_tensor *tensor, int64_t first, int64_t count,
                 double *values);
/* Room for count numbers, valid until the next call. */
int bench_scratch(bench_run *run, int64_t count, double **values);
/* Some of `count` rows or columns, the first and the last too. */
enum { BENCH_SAMPLES = 3 };
int64_t bench_sampled(int64_t count, int64_t index);
/* The number of rows that reference/ computes, and the index-th of them. */
int64_t bench_sampled_rows(const bench_run *run);
int64_t bench_sampled_row(const bench_run *run, int64_t index);
/* Keeps the error, relative to the largest value, that is the largest part of what is allowed. */
void bench_keep(bench_result *result, double error, double allowed);
/* Compares elements first, first + 1, … of a result and keeps their errors. */
int bench_compare(bench_run *run, bench_result *result, bench_tensor *tensor, int64_t first,
                  int64_t count, const double *expected, const double *bound);
/* Rows of the run as a problem for reference/, without tensors. */
reference_problem bench_problem(const bench_run *run, int64_t row, int64_t rows);

#endif
