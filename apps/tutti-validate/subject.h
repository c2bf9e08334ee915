/* A case prepared for running: its layer, and the tensors of the case by slots of the layer. */
#ifndef TUTTI_VALIDATE_SUBJECT_H
#define TUTTI_VALIDATE_SUBJECT_H

#include "cases.h"
#include "common/group.h"
#include "common/report.h"
#include "options.h"
#include "reference/reference.h"

enum { PARAMS_MAX = REFERENCE_PARAMS, SLOTS_MAX = REFERENCE_SLOTS };

typedef struct validator {
    const validate_options *options;
    app_group *group;
    tutti_context *ctx;
    tutti_comm *comm;
} validator;

/* The source of a case's values: a file, or the weights of a checkpoint and random inputs. */
typedef struct source {
    const char *name; /* for messages */
    int (*read)(const void *self, const tutti_case_tensor *tensor, int64_t first, int64_t count,
                tutti_dtype dtype, void *data);
    const void *self;
    bool has_reference; /* expected results can be read */
} source;

/* A slot of the layer and its tensors. */
typedef struct subject_slot {
    tutti_slot_role role;
    tutti_slot_shape shape;
    const tutti_case_tensor *value, *grad; /* NULL: the case has none */
    bool asked, grad_asked;                /* the call has one, even if it is not compared */
    int replaces; /* index of the input that this output replaces in backward; -1: none */
} subject_slot;

typedef struct subject {
    const source *source;
    const tutti_case *test_case;
    tutti_layer *layer;
    const tutti_layer_type *type; /* the layer's */
    tutti_step_block *step;
    bool backward;
    bool same_bits; /* rows are independent: the same bits for any number of rows in a call */
    subject_slot slots[SLOTS_MAX]; /* in the type's order */
    int param_count;
    const tutti_case_tensor *param[PARAMS_MAX];
    const tutti_case_tensor *grad[PARAMS_MAX]; /* NULL: not wanted */
} subject;

/* Creates the layer, matches tensors and slots, and lets the layer check types and shapes by a call
 * without rows.  Messages name file and case. */
int subject_make(validator *v, const source *source, const tutti_case *test_case, subject *s);
void subject_drop(subject *s);

/* Fails with a message after file and case. */
int subject_fail(const subject *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts file and case before the message of the current failure. */
int subject_explain(const subject *s, int code);

/* Elements of a row, or of the whole tensor if it has no rows. */
int64_t subject_row(const subject *s, const tutti_case_tensor *tensor);
/* Whether it is an output summed over rows, to be added over calls and ranks. */
bool subject_is_sum(const subject *s, const tutti_case_tensor *tensor);
/* Whether the first dimension counts rows. */
bool subject_has_rows(const subject *s, const tutti_case_tensor *tensor);
/* `count` if the tensor has rows, otherwise its first dimension. */
int64_t subject_rows_of(const subject *s, const tutti_case_tensor *tensor, int64_t count);
bool subject_is_result(const tutti_case_tensor *tensor);
/* The step block's values in its calls. */
tutti_step_values subject_step(const subject *s);

#endif
