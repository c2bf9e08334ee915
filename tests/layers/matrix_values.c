/* The matrix: special values, bits, finite differences, what some kinds alone have. */
#include "matrix_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values */

/* A view of no rows may have no memory. */
void matrix_test_no_rows(void)
{
    for (int y = 0; matrix_types()[y]; y++)
        for (int v = 0; matrix_tested->variants[v]; v++)
            for (int bits = 0; bits < 4; bits++) {
                if (matrix_left_out(y + v + bits, 4)) continue;
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

/* One special value in two places of an input, where it may be a fault in the data. */
static void check_special(trial *t, const trial_tensor *input, double special)
{
    operand *o = input->at;
    const tutti_slot *slot = input->param ? NULL : &matrix_type->slots[input->index];
    const int64_t places[] = {o->count / 3, o->count - 1};
    double old[2];
    for (int i = 0; i < 2; i++) old[i] = o->values[places[i]];
    for (int i = 0; i < 2; i++) o->values[places[i]] = special;
    operand_put(t->ctx, o);
    if (trial_run(t)) trial_check(t);
    if (slot && slot->least < slot->most)
        CHECK_FAILS(TUTTI_ERR_DATA, "row ", tutti_context_check(t->ctx));
    for (int i = 0; i < 2; i++) o->values[places[i]] = old[i];
    operand_put(t->ctx, o);
}

/* In every input, one after the other. */
void matrix_test_nonfinite(void)
{
    static const double special[] = {NAN, INFINITY, -INFINITY};
    const int variants = matrix_count(matrix_tested->variants);
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
                        check_special(&t, &t.inputs[k / 3], special[k % 3]);
                trial_close(&t);
            }
}

/* Indices */

static unsigned optional_outputs(void)
{
    unsigned bits = 0;
    for (int i = 0; i < matrix_type->slot_count; i++)
        if (matrix_type->slots[i].role == TUTTI_SLOT_OUT &&
            (matrix_type->slots[i].flags & TUTTI_SLOT_OPTIONAL))
            bits |= 1u << i;
    return bits;
}

/* One index out of range is reported, once: on the host the first. */
static void check_found(const trial *t, const operand *indices, int64_t first, int64_t last)
{
    CHECK_FAILS(TUTTI_ERR_DATA, "row ", tutti_context_check(t->ctx));
    const char *found = tutti_last_error(), *place = strstr(found, "row ");
    const int64_t row = place ? strtoll(place + 4, NULL, 10) : -1;
    const bool on_host = harness_backend() == TUTTI_BACKEND_HOST;
    char value[32];
    if (!CHECK(row == first || (row == last && !on_host), "'%s' names another row", found)) return;
    snprintf(value, sizeof value, " %.0f", indices->values[row]);
    CHECK(strstr(found, value), "'%s' does not name%s", found, value);
    CHECK_OK(tutti_context_check(t->ctx));
}

enum { BAD_INDICES = 7 };
static void check_index(const trial_desc *c, int slot, int i)
{
    trial t;
    if (!trial_open(&t, harness_context(), c)) return;
    const double below = (double)t.shapes[slot].below;
    const double bad[BAD_INDICES] = {below, below + 1, -1, -2, 1 << 20, INT32_MIN, INT32_MAX};
    const int64_t first = c->rows / 4, last = c->rows - 1;
    operand *indices = &t.slots[slot][0];
    indices->values[first] = bad[i];
    indices->values[last] = bad[(i + 1) % BAD_INDICES];
    trial_put(&t);
    trial_forward(&t);
    check_found(&t, indices, first, last);
    trial_backward(&t);
    if (matrix_type->flags & TUTTI_LAYER_BACKWARD) check_found(&t, indices, first, last);
    trial_check(&t);
    trial_close(&t);
}

/* Found by both directions, whatever is computed; results are the reference's. */
void matrix_test_bad_indices(void)
{
    int turn = 0, slot = 0;
    while (slot < matrix_type->slot_count && !matrix_type->slots[slot].below) slot++;
    if (slot == matrix_type->slot_count) {
        harness_skip("no input is an index");
        return;
    }
    for (int y = 0; matrix_types()[y]; y++)
        for (unsigned left = optional_outputs(), absent = left;; absent = (absent - 1) & left) {
            for (int i = 0; i < BAD_INDICES; i++, turn++) {
                const matrix_shape *shape = &matrix_some()[turn % matrix_moderate()];
                trial_desc c = matrix_case(shape->rows, shape->sizes, matrix_types()[y],
                                           matrix_tested->variants[0]);
                c.absent = absent;
                c.accumulate = turn & 1;
                check_index(&c, slot, i);
            }
            if (absent == 0) break;
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
    /* odd, so that rows have every place in a group that a kernel may form */
    const int64_t step = harness_quick() && t->c.rows > 16 ? t->c.rows / 4 | 1 : 3;
    for (int64_t row = 0; row < t->c.rows; row += step) {
        copy_row(&alone, t, row);
        trial_run(&alone);
        for (int i = 0; i < t->result_count; i++)
            if (t->results[i].by_row)
                check_same_row(t->ctx, t->results[i].name, t->results[i].at, row,
                               alone.results[i].at);
    }
    trial_close(&alone);
}

static void check_row_bits(const trial_desc *desc)
{
    static const layout places[] = {{5, 0, 0}, {0, 1, 0}, {3, 5, 2}, {16, 8, 0}};
    trial_desc c = *desc;
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

/* A row's bits depend neither on how many rows the call has nor on where they lie. */
void matrix_test_row_bits(void)
{
    const int variants = matrix_count(matrix_tested->variants);
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
            check_row_bits(&c);
            c.absent = matrix_optional();
            if (c.absent) check_row_bits(&c);
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

/* In a context whose scratch was sized by this call, and that has a plan for fewer rows. */
static void check_elsewhere(const trial *t, int threads)
{
    tutti_context *ctx = harness_new_context(0, threads);
    trial_desc c = t->c;
    c.rows = 2;
    trial few;
    if (trial_open(&few, ctx, &c)) trial_run(&few);
    trial_close(&few);
    check_again(t, ctx);
    tutti_context_destroy(&ctx);
}

/* The same call gives the same bits: again, and on any number of host threads. */
void matrix_test_repeated(void)
{
    static const int threads[] = {2, 3, 7};
    const bool host = harness_backend() == TUTTI_BACKEND_HOST;
    const int variants = matrix_count(matrix_tested->variants);
    for (int y = 0; matrix_types()[y]; y++)
        for (int i = 0; matrix_some()[i].sizes; i++) {
            if (matrix_left_out(y + i, 4)) continue;
            const trial_desc c =
                matrix_case(matrix_some()[i].rows, matrix_some()[i].sizes, matrix_types()[y],
                            matrix_tested->variants[(y + i) % variants]);
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            trial_run(&t);
            check_again(&t, harness_context());
            for (int k = 0; k < HARNESS_COUNT(threads) && host; k++)
                check_elsewhere(&t, threads[k]);
            trial_close(&t);
        }
}

/* Finite differences */

/* A loss has no backward: its forward writes the gradients, with the factors of the step. */
static bool is_loss(void)
{
    return (matrix_type->flags & (TUTTI_LAYER_STEP | TUTTI_LAYER_BACKWARD)) == TUTTI_LAYER_STEP;
}

void matrix_test_finite_differences(void)
{
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
        trial_get(&t, !is_loss());
        int compared = 0;
        for (int i = 0; i < t.result_count; i++) {
            const trial_tensor *r = &t.results[i];
            if (!r->gradient && !(is_loss() && r->name[0] == 'd')) continue;
            trial_differences(&t, r->name, trial_find(&t, r->name + 1), r->at);
            compared++;
        }
        CHECK(compared > 0, "there is no gradient");
        trial_close(&t);
    }
}

/* Losses of rows */

bool matrix_loss_is_sharp(const trial *t, const trial_tensor *result)
{
    const int64_t cols = t->shapes[0].cols;
    return !(t->shapes[result->index].flags & TUTTI_SLOT_SUM) && cols >= 8 && cols <= 256 &&
           t->c.rows >= 4 && result->at->buffer.dtype != TUTTI_F64;
}

/* The last factors are those of a call without a step block. */
void matrix_test_step_factors(void)
{
    static const double factors[][2] = {{1.0 / 256, 1}, {0.01, 1024}, {3, 0.5}, {1, 1}, {1, 1}};
    const int variants = matrix_count(matrix_tested->variants);
    if (!is_loss()) {
        harness_skip("not a loss");
        return;
    }
    for (int y = 0; matrix_types()[y]; y++)
        for (int f = 0; f < HARNESS_COUNT(factors); f++)
            for (int i = 0; i < matrix_moderate(); i++) {
                const matrix_shape *shape = &matrix_some()[i];
                if (matrix_left_out(y + f + i, 2)) continue;
                trial_desc c = matrix_case(shape->rows, shape->sizes, matrix_types()[y],
                                           matrix_tested->variants[(y + i) % variants]);
                c.step.loss_weight = factors[f][0];
                c.step.loss_scale = factors[f][1];
                trial t;
                if (!trial_open(&t, harness_context(), &c)) return;
                if (f == 4) t.call.step = NULL;
                if (trial_run(&t)) trial_check(&t);
                trial_close(&t);
            }
}

/* TF32 */

static bool has_option(const char *name)
{
    for (int i = 0; i < matrix_type->option_count; i++)
        if (strcmp(matrix_type->options[i].name, name) == 0) return true;
    return false;
}

/* allow_tf32 may round the factors of f32 products to 11 bits, and nothing else; on the host it
 * changes nothing.  Sizes are multiples of 8, for which a GPU has such products. */
void matrix_test_tf32(void)
{
    static const int sizes[] = {96, 72, 48};
    char text[80] = "";
    if (!has_option("allow_tf32")) {
        harness_skip("no option allow_tf32");
        return;
    }
    for (int i = 0, size = 0; i < matrix_type->option_count; i++)
        if (!matrix_type->options[i].default_value)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=%d", *text ? "," : "",
                     matrix_type->options[i].name, sizes[size++ % HARNESS_COUNT(sizes)]);
    const trial_desc without = matrix_case(40, text, "dtype=f32", "allow_tf32=0");
    const trial_desc with = matrix_case(40, text, "dtype=f32", "allow_tf32=1");
    trial s, t;
    if (!trial_open(&s, harness_context(), &without) || !trial_open(&t, harness_context(), &with))
        return;
    for (int i = 0; i < s.input_count; i++)
        memcpy(t.inputs[i].at->values, s.inputs[i].at->values,
               (size_t)s.inputs[i].at->count * sizeof(double));
    trial_put(&t);
    if (trial_run(&s)) trial_check(&s);
    if (trial_run(&t)) trial_check(&t);
    if (harness_backend() == TUTTI_BACKEND_HOST) trial_same_bits(&s, &t);
    trial_close(&s);
    trial_close(&t);
}
