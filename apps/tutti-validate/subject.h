/* A case that is ready to be run: its layer, and which tensor of the case goes into which slot of
 * the layer's call. */
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

/* Where a case's values come from: a file, or the weights of a checkpoint and random inputs. */
typedef struct source {
    const char *name; /* for messages */
    int (*read)(const void *self, const tutti_case_tensor *tensor, int64_t first, int64_t count,
                tutti_dtype dtype, void *data);
    const void *self;
    bool has_reference; /* what is expected can be read */
} source;

/* A slot of the layer, and what goes into it. */
typedef struct subject_slot {
    tutti_slot_role role;
    tutti_slot_shape shape;
    const tutti_case_tensor *value, *grad; /* NULL: the case has none */
    bool asked, grad_asked; /* the call has one, be it for memory that nobody looks at */
    int replaces; /* index of the input in whose place backward gets this output; -1: none */
} subject_slot;

typedef struct subject {
    const source *source;
    const tutti_case *which;
    tutti_layer *layer;
    const tutti_layer_type *type; /* the layer's */
    tutti_step_block *step;
    bool backward;
    bool same_bits; /* rows are computed alone: the same bits however many a call has */
    subject_slot slots[SLOTS_MAX]; /* in the type's order */
    int param_count;
    const tutti_case_tensor *param[PARAMS_MAX];
    const tutti_case_tensor *grad[PARAMS_MAX]; /* NULL: not wanted */
} subject;

/* Makes the layer, matches tensors and slots, and asks the layer, by a call without rows, whether
 * types and shapes are right.  Whatever is wrong is named with file and case. */
int subject_make(validator *v, const source *source, const tutti_case *which, subject *s);
void subject_drop(subject *s);

/* Fails with a message after file and case. */
int subject_fail(const subject *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts file and case before the message of a failure that is under way. */
int subject_explain(const subject *s, int code);

/* Elements of a row (of the whole tensor, if it has no rows); whether the first dimension counts
 * rows. */
int64_t subject_row(const subject *s, const tutti_case_tensor *tensor);
/* Its values are sums over rows, which add up over calls and ranks. */
bool subject_is_sum(const subject *s, const tutti_case_tensor *tensor);
bool subject_has_rows(const subject *s, const tutti_case_tensor *tensor);
/* Rows that are read of it when the case has `count`. */
int64_t subject_rows_of(const subject *s, const tutti_case_tensor *tensor, int64_t count);
bool subject_is_result(const tutti_case_tensor *tensor);
/* What the step block says in its calls. */
tutti_step_values subject_step(const subject *s);

#endif
