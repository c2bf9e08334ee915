/* The matrix: calls with and without optional tensors, and in place. */
#include "matrix_parts.h"

#include <stdio.h>
#include <string.h>

/* Optional tensors */

/* A way in which a call may differ: a missing tensor or an option. */
typedef struct choice {
    unsigned absent, absent_grads, untrained;
    bool accumulate, forward_only, wide_grads;
} choice;
enum { CHOICES_MAX = 12 };

static void apply(trial_desc *c, const choice *o)
{
    c->absent |= o->absent;
    c->absent_grads |= o->absent_grads;
    c->untrained |= o->untrained;
    c->accumulate |= o->accumulate;
    c->forward_only |= o->forward_only;
    c->wide_grads |= o->wide_grads;
}

static int choices_of(const trial *t, choice list[CHOICES_MAX])
{
    int count = 0;
    for (int i = 0; i < matrix_type->slot_count; i++) {
        const unsigned flags = t->shapes[i].flags;
        if (matrix_type->slots[i].role == TUTTI_SLOT_KEPT) continue;
        if (flags & TUTTI_SLOT_OPTIONAL) list[count++] = (choice){.absent = 1u << i};
        if (flags & TUTTI_SLOT_GRAD_OPTIONAL) list[count++] = (choice){.absent_grads = 1u << i};
    }
    for (int i = 0; i < t->param_count; i++) list[count++] = (choice){.untrained = 1u << i};
    if (t->param_count > 0) list[count++] = (choice){.accumulate = true};
    if (t->saved.cols > 0) list[count++] = (choice){.forward_only = true};
    if (t->param_count > 0 && (matrix_tested->flags & MATRIX_WIDE_GRADS))
        list[count++] = (choice){.wide_grads = true};
    return count;
}

static bool is_absent(const trial_desc *c, const char *name)
{
    for (int i = 0; i < matrix_type->slot_count; i++) {
        if (strcmp(matrix_type->slots[i].name, name) == 0) return c->absent >> i & 1;
        if (name[0] == 'd' && strcmp(matrix_type->slots[i].name, name + 1) == 0)
            return c->absent_grads >> i & 1;
    }
    return true;
}

/* Applies the table's rules for tensors that need others.  Without an output that replaces an input
 * of backward there is no backward. */
static bool settle(trial_desc *c)
{
    for (int i = 0; i < matrix_type->slot_count; i++) {
        const tutti_slot *slot = &matrix_type->slots[i];
        const bool here = !(c->absent >> i & 1), grad = !(c->absent_grads >> i & 1);
        if (slot->with && here && is_absent(c, slot->with)) return false;
        if (slot->grad_with && grad && is_absent(c, slot->grad_with)) return false;
        if (slot->replaces && slot->with && !here && !is_absent(c, slot->with))
            c->forward_only = true;
    }
    return true;
}

static void check_choices(const trial *whole, const trial_desc *c)
{
    trial t;
    if (trial_open(&t, harness_context(), c) && trial_run(&t)) trial_check(&t);
    bool alike = matrix_tested->flags & MATRIX_OUTPUTS_ALONE;
    for (int i = 0; i < matrix_type->slot_count; i++)
        if (matrix_type->slots[i].role == TUTTI_SLOT_IN && (c->absent >> i & 1)) alike = false;
    for (int i = 0; i < t.result_count && alike; i++)
        for (int k = 0; k < whole->result_count; k++)
            if (!t.results[i].gradient && strcmp(t.results[i].name, whole->results[k].name) == 0)
                check_same_bits(t.ctx, t.results[i].name, whole->results[k].at, t.results[i].at);
    trial_close(&t);
}

/* Every subset of the optional tensors. */
void matrix_test_optional_tensors(void)
{
    for (int y = 0; matrix_types()[y]; y++)
        for (int v = 0; matrix_tested->variants[v]; v++) {
            const trial_desc c =
                matrix_case(7, matrix_small(), matrix_types()[y], matrix_tested->variants[v]);
            choice list[CHOICES_MAX];
            trial whole;
            if (matrix_left_out(y + v, 3) || !trial_open(&whole, harness_context(), &c)) continue;
            trial_run(&whole);
            const int count = choices_of(&whole, list);
            for (int bits = 0; bits < 1 << count; bits++) {
                trial_desc some = c;
                for (int i = 0; i < count; i++)
                    if (bits >> i & 1) apply(&some, &list[i]);
                if (settle(&some) && !(harness_quick() && (bits & (bits - 1))))
                    check_choices(&whole, &some);
            }
            trial_close(&whole);
        }
}

/* In place */

/* Does a list of names, "x residual", have this one? */
static bool lists(const char *names, const char *name, bool gradient)
{
    char list[80], wanted[40];
    snprintf(list, sizeof list, " %s ", names ? names : "");
    snprintf(wanted, sizeof wanted, " %s%s ", gradient ? "d" : "", name);
    return strstr(list, wanted);
}

/* Two tensors that share memory: an output and its input, or an input's gradient and an upstream
 * one or an input. */
typedef struct overlap {
    int result, other; /* slots */
    bool gradient, of_gradient;
} overlap;

static void check_overlap(const trial_desc *c, overlap o)
{
    trial apart, t;
    const unsigned absent = o.gradient ? c->absent_grads : c->absent;
    const unsigned other_absent = o.of_gradient ? c->absent_grads : c->absent;
    if ((absent >> o.result | other_absent >> o.other) & 1) return;
    if (!trial_open(&apart, harness_context(), c) || !trial_open(&t, harness_context(), c)) return;
    operand *result = &t.slots[o.result][o.gradient], *other = &t.slots[o.other][o.of_gradient];
    const int index = t.shapes[o.result].index;
    const char *replaces = matrix_type->slots[o.result].replaces,
               *name = matrix_type->slots[o.other].name;
    /* backward cannot read an overwritten input, unless it reads the output instead */
    if (!o.gradient && (t.shapes[o.other].flags & TUTTI_SLOT_READ) &&
        !(replaces && strcmp(replaces, name) == 0)) {
        trial_save_nothing(&apart);
        trial_save_nothing(&t);
    }
    if (result->values && other->values && result->buffer.dtype == other->buffer.dtype) {
        if (o.gradient)
            t.call.din[index] = &other->tensor;
        else
            t.call.out[index] = &other->tensor;
        for (int i = 0; i < t.result_count; i++)
            if (t.results[i].at == result) t.results[i].at = other;
        trial_run(&apart);
        trial_run(&t);
        trial_same_bits(&apart, &t);
    }
    trial_close(&apart);
    trial_close(&t);
}

/* Tensors that may share memory give the same bits as separate ones. */
static void check_in_place(const trial_desc *c)
{
    for (int i = 0; i < matrix_type->slot_count; i++)
        for (int k = 0; k < matrix_type->slot_count; k++) {
            const char *name = matrix_type->slots[k].name;
            if (lists(matrix_type->slots[i].may_be, name, false))
                check_overlap(c, (overlap){i, k, false, false});
            if (lists(matrix_type->slots[i].grad_may_be, name, true))
                check_overlap(c, (overlap){i, k, true, true});
            if (lists(matrix_type->slots[i].grad_may_be, name, false))
                check_overlap(c, (overlap){i, k, true, false});
        }
}

void matrix_test_in_place(void)
{
    for (int t = 0; matrix_types()[t]; t++)
        for (int i = 0; matrix_some()[i].sizes; i++)
            for (int v = 0; matrix_tested->variants[v]; v++) {
                const matrix_shape *shape = &matrix_some()[i];
                if (!matrix_meets(shape, v, t + i) || matrix_left_out(t + i + v, 8)) continue;
                trial_desc c = matrix_case(shape->rows, shape->sizes, matrix_types()[t],
                                           matrix_tested->variants[v]);
                c.place.pad = 2;
                if ((t + i + v) & 1) c.absent |= matrix_optional();
                check_in_place(&c);
            }
}
