/* The matrix: no rows, NaN and infinities, bits, finite differences; see matrix.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "matrix_parts.h"

/* A view of no rows may have no memory. */
void matrix_test_no_rows(void)
{
    for (int y = 0; matrix_types()[y]; y++)
        for (int v = 0; matrix_tested->variants[v]; v++)
            for (int bits = 0; bits < 4; bits++) {
                trial_desc c =
                    matrix_case(0, matrix_small(), matrix_types()[y], matrix_tested->variants[v]);
                c.accumulate = bits & 1;
                trial t;
                if (!trial_open(&t, harness_context(), &c)) return;
                for (int i = 0; i < matrix_type->slot_count && (bits & 2); i++)
                    if (!(t.shapes[i].flags & TUTTI_SLOT_SUM))
                        t.slots[i][0].tensor.data = t.slots[i][1].tensor.data = NULL;
                if (trial_run(&t)) trial_check(&t);
                trial_close(&t);
            }
}

/* One special value in two places of an input. */
static void check_special(trial *t, operand *o, double special)
{
    const int64_t places[] = {o->count / 3, o->count - 1};
    double old[2];
    for (int i = 0; i < 2; i++) old[i] = o->values[places[i]];
    for (int i = 0; i < 2; i++) o->values[places[i]] = special;
    operand_put(t->ctx, o);
    if (trial_run(t)) trial_check(t);
    for (int i = 0; i < 2; i++) o->values[places[i]] = old[i];
    operand_put(t->ctx, o);
}

/* In every input, one after the other. */
void matrix_test_nonfinite(void)
{
    static const double special[] = {NAN, INFINITY, -INFINITY};
    const int variants = matrix_variants();
    for (int y = 0; matrix_types()[y]; y++)
        for (int i = 0; matrix_some()[i].sizes; i++)
            for (int v = 0; v < variants; v++) {
                const matrix_shape *shape = &matrix_some()[i];
                const bool mine = v == (y + i) % variants;
                if ((i > 0 && !mine) || matrix_work(shape) > MATRIX_SMALL ||
                    matrix_left_out(y + i + v, 4))
                    continue;
                const trial_desc c = matrix_case(shape->rows, shape->sizes, matrix_types()[y],
                                                 matrix_tested->variants[v]);
                trial t;
                if (!trial_open(&t, harness_context(), &c)) return;
                for (int k = 0; k < 3 * t.input_count; k++)
                    if (t.inputs[k / 3].at->buffer.dtype != TUTTI_I32)
                        check_special(&t, t.inputs[k / 3].at, special[k % 3]);
                trial_close(&t);
            }
}

/* Bits */

/* Row `from` of a call's inputs as the only row of another's. */
static void copy_row(trial *to, const trial *from, int64_t row)
{
    for (int i = 0; i < from->input_count; i++) {
        const operand *a = from->inputs[i].at, *b = to->inputs[i].at;
        const int64_t first = from->inputs[i].by_row ? row * b->count : 0;
        memcpy(b->values, a->values + first, (size_t)b->count * sizeof *b->values);
    }
    to->c.first_row = from->c.first_row + row;
    trial_put(to);
}

static void check_rows_alone(const trial *t)
{
    trial_desc c = t->c;
    c.rows = 1;
    trial alone;
    if (!trial_open(&alone, t->ctx, &c)) return;
    for (int64_t row = 0; row < t->c.rows; row += 4) {
        copy_row(&alone, t, row);
        trial_run(&alone);
        for (int i = 0; i < t->result_count; i++)
            if (t->results[i].by_row)
                check_same_row(t->ctx, t->results[i].name, t->results[i].at, row,
                               alone.results[i].at);
    }
    trial_close(&alone);
}

/* However many rows the call has, and wherever they lie. */
void matrix_test_row_bits(void)
{
    static const layout places[] = {{5, 0}, {0, 1}, {3, 5}, {16, 8}};
    const int variants = matrix_variants();
    if (!(matrix_type->flags & TUTTI_LAYER_ROWS_ALONE)) {
        harness_skip("a row's bits may depend on the number of rows");
        return;
    }
    for (int y = 0; matrix_types()[y]; y++)
        for (int i = 0; matrix_some()[i].sizes; i++) {
            if (matrix_left_out(y + i, 4)) continue;
            trial_desc c =
                matrix_case(matrix_some()[i].rows, matrix_some()[i].sizes, matrix_types()[y],
                            matrix_tested->variants[(y + i) % variants]);
            trial t, moved;
            if (!trial_open(&t, harness_context(), &c)) return;
            trial_run(&t);
            for (int p = 0; p < HARNESS_COUNT(places); p++) {
                c.place = places[p];
                if (!trial_open(&moved, harness_context(), &c)) return;
                trial_run(&moved);
                trial_same_bits(&t, &moved);
                trial_close(&moved);
            }
            check_rows_alone(&t);
            trial_close(&t);
        }
}

/* The same call on another context. */
static void check_again(const trial *t, tutti_context *ctx)
{
    trial again;
    if (!trial_open(&again, ctx, &t->c)) return;
    CHECK_OK(tutti_layer_plan(again.layer, ctx, &again.call));
    trial_run(&again);
    CHECK_OK(tutti_context_synchronize(ctx));
    trial_same_bits(t, &again);
    trial_close(&again);
}

/* The same call gives the same bits: again, and on any number of host threads. */
void matrix_test_repeated(void)
{
    const bool host = harness_backend() == TUTTI_BACKEND_HOST;
    const int variants = matrix_variants();
    tutti_context *several[3] = {NULL};
    for (int i = 0; i < 3 && host; i++) several[i] = harness_new_context(0, (int[]){2, 3, 7}[i]);
    for (int y = 0; matrix_types()[y]; y++)
        for (int i = 0; matrix_some()[i].sizes; i++) {
            const trial_desc c =
                matrix_case(matrix_some()[i].rows, matrix_some()[i].sizes, matrix_types()[y],
                            matrix_tested->variants[(y + i) % variants]);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            trial_run(&t);
            check_again(&t, harness_context());
            for (int k = 0; k < 3 && host; k++) check_again(&t, several[k]);
            trial_close(&t);
        }
    for (int i = 0; i < 3; i++) tutti_context_destroy(&several[i]);
}

/* Finite differences */

void matrix_test_finite_differences(void)
{
    if (!(matrix_type->flags & TUTTI_LAYER_BACKWARD)) {
        harness_skip("there is no backward");
        return;
    }
    char wide[120] = "";
    for (const tutti_layer_option *o = matrix_type->options; (o = matrix_next_type(o)) != NULL; o++)
        snprintf(wide + strlen(wide), sizeof wide - strlen(wide), "%s%s=f64", *wide ? "," : "",
                 o->name);
    for (int v = 0; matrix_tested->variants[v]; v++) {
        trial_desc c = matrix_case(5, matrix_small(), wide, matrix_tested->variants[v]);
        c.smooth = true;
        trial t;
        if (!trial_open(&t, harness_context(), &c)) return;
        trial_run(&t);
        trial_get(&t, true);
        for (int i = 0; i < t.result_count; i++) {
            const trial_tensor *r = &t.results[i];
            if (!r->gradient) continue;
            trial_differences(&t, r->name, trial_find(&t, r->name + 1), r->at);
        }
        trial_close(&t);
    }
}
