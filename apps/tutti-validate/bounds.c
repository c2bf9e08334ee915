/* Turns a case into a problem for reference/; bounds.h. */
#include "bounds.h"

#include <stdlib.h>

#include "common/exit_code.h"

/* One entry a tensor of the case. */
typedef struct work {
    const subject *s;
    double **values; /* inputs, parameters, upstream gradients */
    double **bounds, **references;
} work;

static int64_t elements_of(const tutti_case_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->dims[i];
    return count;
}

static int read_values(const work *w, const tutti_case_tensor *tensor, double *values)
{
    const source *source = w->s->source;
    const int64_t count = elements_of(tensor);
    if (tensor->dtype != TUTTI_I32)
        return source->read(source->self, tensor, 0, tensor->dims[0], TUTTI_F64, values);
    int32_t *whole = malloc(((size_t)count + 1) * sizeof *whole);
    if (!whole) return app_fail(APP_FAILED, "no memory for %s", tensor->name);
    const int code = source->read(source->self, tensor, 0, tensor->dims[0], TUTTI_I32, whole);
    for (int64_t i = 0; i < count; i++) values[i] = code == APP_OK ? whole[i] : 0;
    free(whole);
    return code;
}

static double *room(const tutti_case_tensor *tensor)
{
    return calloc((size_t)elements_of(tensor) + 1, sizeof(double));
}

/* Allocates room for a tensor's bound and reference, or reads its values. */
static int take(const work *w, const tutti_case_tensor *tensor, reference_tensor *place)
{
    const bool result = subject_is_result(tensor);
    if (result && tensor->has_bound) return APP_OK;
    const bool wanted = result && !w->s->source->has_reference;
    const ptrdiff_t i = tensor - w->s->test_case->tensors;
    if (result) place->bound = w->bounds[i] = room(tensor);
    if (wanted) place->value = w->references[i] = room(tensor);
    if (!result) place->given = w->values[i] = room(tensor);
    if ((result ? !place->bound : !place->given) || (wanted && !place->value))
        return app_fail(APP_FAILED, "no memory for %s", tensor->name);
    return result ? APP_OK : read_values(w, tensor, w->values[i]);
}

static int compute(const work *w)
{
    const subject *s = w->s;
    if (!reference_knows(s->test_case->layer))
        return subject_fail(s, "has results without atol and rtol, and no bound is known for %s",
                            s->test_case->layer);
    reference_problem problem = {
        .layer = s->layer,
        .options = s->test_case->options,
        .rows = s->test_case->rows,
        .first_row = s->test_case->first_row,
        .step = subject_step(s),
        .any_order = true,
        .expected_roundoff = s->source->has_reference ? 0x1p-53 : 0,
    };
    for (int i = 0; i < s->test_case->tensor_count; i++)
        APP_TRY(take(w, &s->test_case->tensors[i],
                     reference_place(&problem, s->test_case->tensors[i].name)));
    const char *wrong = reference_compute(&problem);
    return wrong ? subject_fail(s, "has results without atol and rtol: %s", wrong) : APP_OK;
}

int bounds_compute(const subject *s, double **bounds, double **references)
{
    const int count = s->test_case->tensor_count;
    bool wanted = false;
    for (int i = 0; i < count; i++)
        wanted = wanted || (subject_is_result(&s->test_case->tensors[i]) &&
                            !s->test_case->tensors[i].has_bound);
    if (!wanted) return APP_OK;
    work w = {.s = s, .bounds = bounds, .references = references};
    w.values = calloc((size_t)count + 1, sizeof *w.values);
    const int code = w.values ? compute(&w) : app_fail(APP_FAILED, "no memory for bounds");
    for (int i = 0; w.values && i < count; i++) free(w.values[i]);
    free(w.values);
    return code;
}
