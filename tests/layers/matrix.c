/* Tests that every kind of layer runs; see matrix.h. */
#include "matrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const matrix_kind *kind;
static const tutti_layer_type *type;

static const matrix_shape shapes_of_cols[] = {
    {1, "cols=1"},       {2, "cols=1"},      {33, "cols=1"},
    {1, "cols=2"},       {33, "cols=2"},     {2, "cols=3"},
    {33, "cols=3"},      {1, "cols=7"},      {33, "cols=7"},
    {2, "cols=8"},       {33, "cols=8"},     {1, "cols=15"},
    {33, "cols=15"},     {2, "cols=31"},     {33, "cols=31"},
    {1, "cols=100"},     {33, "cols=100"},   {2, "cols=256"},
    {33, "cols=256"},    {1, "cols=513"},    {33, "cols=513"},
    {2, "cols=1023"},    {2, "cols=1024"},   {33, "cols=1024"},
    {2, "cols=1025"},    {33, "cols=1025"},  {2, "cols=4097"},
    {9, "cols=4097"},    {1, "cols=10000"},  {2, "cols=10000"},
    {2, "cols=16383"},   {2, "cols=16392"},  {3, "cols=32768"},
    {2, "cols=65537"},   {2, "cols=131072"}, {2, "cols=262144"},
    {1, "cols=1048576"}, {700, "cols=3"},    {3001, "cols=5"},
    {517, "cols=128"},   {0, NULL}};
static const matrix_shape some_of_cols[] = {{4, "cols=5"},    {37, "cols=64"},   {4, "cols=257"},
                                            {9, "cols=1027"}, {67, "cols=131"},  {11, "cols=1024"},
                                            {3, "cols=5001"}, {2, "cols=40000"}, {0, NULL}};
static const char *const types_of_one[] = {"dtype=f32", "dtype=f64", "dtype=f16", "dtype=bf16",
                                           NULL};

static const matrix_shape *all_shapes(void)
{
    return kind->shapes ? kind->shapes : shapes_of_cols;
}

static const matrix_shape *some_shapes(void)
{
    return kind->some ? kind->some : some_of_cols;
}

static const char *small_sizes(void)
{
    return kind->small ? kind->small : "cols=10";
}

static const char *const *types(void)
{
    return kind->types[0] ? kind->types : types_of_one;
}

static int count_of(const char *const *list)
{
    int count = 0;
    while (list[count]) count++;
    return count;
}

/* The approximate number of elements of a shape's tensors. */
static double work_of(const matrix_shape *shape)
{
    double cols = 0;
    for (const char *at = shape->sizes; (at = strchr(at, '=')) != NULL;) cols += atof(++at);
    return (double)shape->rows * cols;
}

/* How many of some are, from the first on. */
static int moderate_shapes(void)
{
    int count = 0;
    while (some_shapes()[count].sizes && work_of(&some_shapes()[count]) < 20000) count++;
    return count;
}

enum { SMALL = 8192, LONG = 140000 };

/* Small shapes run with every variant, large ones with the common ones, which alternate at the
 * longest; all alternate if none is common. */
static bool meets(const matrix_shape *shape, int variant, int turn)
{
    const int common = kind->common ? kind->common : count_of(kind->variants);
    if (work_of(shape) <= SMALL) return true;
    if (work_of(shape) <= LONG && kind->common) return variant < common;
    return variant == turn % common;
}

/* f32 and bf16 only: f64 is slow, f16 like bf16, pairings like one of their types. */
static bool meets_longest(const char *pairing)
{
    const char *first = strchr(pairing, '='), *last = strrchr(pairing, '=');
    return !strstr(pairing, "f64") && !strstr(pairing, "=f16") &&
           strncmp(first, last, strlen(last)) == 0;
}

static trial_desc usual(int64_t rows, const char *sizes, const char *types_here,
                        const char *variant)
{
    return trial_usual(&kind->trial, rows, "%s,%s%s%s", sizes, types_here, *variant ? "," : "",
                       variant);
}

/* Skips all but one of n when time is short. */
static bool left_out(int turn, int n)
{
    return harness_quick() && turn % n;
}

/* Slots of optional inputs and of what depends on them. */
static unsigned optional_slots(void)
{
    unsigned bits = 0;
    for (int i = 0; i < type->slot_count; i++)
        if ((type->slots[i].role == TUTTI_SLOT_IN &&
             (type->slots[i].flags & TUTTI_SLOT_OPTIONAL)) ||
            type->slots[i].with)
            bits |= 1u << i;
    return bits;
}

static void take_turns(trial_desc *c, int turn)
{
    c->accumulate = turn & 1;
    if (turn & 2) c->absent |= optional_slots();
    for (int i = 0; i < type->slot_count && (turn & 4); i++)
        if (type->slots[i].role == TUTTI_SLOT_OUT &&
            (type->slots[i].flags & TUTTI_SLOT_GRAD_OPTIONAL))
            c->absent_grads |= 1u << i;
}

/* Types */

static const tutti_layer_option *next_type(const tutti_layer_option *option)
{
    const tutti_layer_option *end = type->options + type->option_count;
    while (option < end && strcmp(option->type, "dtype") != 0) option++;
    return option < end ? option : NULL;
}

static bool allowed(const char *options)
{
    tutti_layer *layer = NULL;
    const bool made =
        tutti_layer_create_by_name(harness_context(), type->name, options, &layer) == TUTTI_OK;
    tutti_layer_destroy(&layer);
    return made;
}

static void check_pairing(const char *pairing, int number)
{
    for (int v = 0; kind->variants[v]; v++) {
        trial_desc c = usual(5, small_sizes(), pairing, kind->variants[v]);
        take_turns(&c, v + number);
        trial_case(&c);
        const matrix_shape *shape = &some_shapes()[(v + number) % moderate_shapes()];
        c = usual(shape->rows, shape->sizes, pairing, kind->variants[v]);
        take_turns(&c, v / 2 + number);
        if (!harness_quick()) trial_case(&c);
    }
}

/* Every pairing of types that the kind allows, with every variant. */
static void test_types(void)
{
    int pairings = 0, options = 0;
    for (const tutti_layer_option *o = type->options; (o = next_type(o)) != NULL; o++) options++;
    for (int code = 0; code < 1 << (2 * options); code++) {
        char pairing[120] = "", whole[200];
        int rest = code;
        for (const tutti_layer_option *o = type->options; (o = next_type(o)) != NULL; o++) {
            const size_t used = strlen(pairing);
            snprintf(pairing + used, sizeof pairing - used, "%s%s=%s", used ? "," : "", o->name,
                     tutti_dtype_name(float_dtypes[rest % 4]));
            rest /= 4;
        }
        snprintf(whole, sizeof whole, "%s,%s", small_sizes(), pairing);
        if (!allowed(whole)) continue;
        check_pairing(pairing, pairings++);
    }
    const int wanted = kind->pairings ? kind->pairings : 4;
    CHECK(pairings == wanted, "%d pairings of types, want %d", pairings, wanted);
}

static void test_shapes(void)
{
    int turn = 0;
    for (int t = 0; types()[t]; t++)
        for (int i = 0; all_shapes()[i].sizes; i++) {
            const matrix_shape *shape = &all_shapes()[i];
            if (work_of(shape) > LONG && !meets_longest(types()[t])) continue;
            if (left_out(i + t, work_of(shape) > SMALL ? 8 : 4)) continue;
            for (int v = 0; kind->variants[v]; v++) {
                if (!meets(shape, v, i + t)) continue;
                trial_desc c = usual(shape->rows, shape->sizes, types()[t], kind->variants[v]);
                take_turns(&c, turn++);
                trial_case(&c);
            }
        }
}

/* Layouts */

static void test_strides_and_alignment(void)
{
    static const layout places[] = {{3, 0}, {8, 0}, {0, 1}, {5, 1}, {1, 3}, {8, 4}, {64, 7}};
    const int variants = count_of(kind->variants);
    int turn = 0;
    for (int t = 0; types()[t]; t++)
        for (int p = 0; p < HARNESS_COUNT(places); p++)
            for (int i = 0; some_shapes()[i].sizes; i++) {
                const matrix_shape *shape = &some_shapes()[i];
                if (work_of(shape) > 20000 || left_out(i + p + t, 8)) continue;
                trial_desc c = usual(shape->rows, shape->sizes, types()[t],
                                     kind->variants[(t + p + i) % variants]);
                take_turns(&c, turn++);
                c.place = places[p];
                trial_case(&c);
            }
}

/* Rows over several dimensions, evenly spaced; or columns over two. */
static void spread(operand *o, int64_t cols, bool over_cols)
{
    const bool list = o->tensor.ndim == 1;
    const int64_t stride = list ? 1 : o->tensor.strides[0], rows = o->tensor.dims[0];
    tutti_tensor *t = &o->tensor;
    t->ndim = list ? 3 : 4;
    if (over_cols && !list) {
        memcpy(t->dims, (int64_t[]){3, rows / 3, cols / 2, 2}, sizeof t->dims);
        memcpy(t->strides, (int64_t[]){rows / 3 * stride, stride, 2, 1}, sizeof t->strides);
    } else {
        memcpy(t->dims, (int64_t[]){2, 1, rows / 2, cols}, sizeof t->dims);
        memcpy(t->strides, (int64_t[]){rows / 2 * stride, -5, stride, 1}, sizeof t->strides);
    }
}

static void test_dimensions(void)
{
    for (int over_cols = 0; over_cols < 2; over_cols++)
        for (int v = 0; kind->variants[v]; v++) {
            trial_desc c = usual(24, small_sizes(), types()[0], kind->variants[v]);
            c.place.pad = 2;
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            for (int i = 0; i < type->slot_count; i++)
                for (int g = 0; g < 2; g++)
                    if (t.slots[i][g].values && !(t.shapes[i].flags & TUTTI_SLOT_SUM))
                        spread(&t.slots[i][g], t.shapes[i].cols, (over_cols + i) & 1);
            if (trial_run(&t)) trial_check(&t);
            trial_close(&t);
        }
}

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
    for (int i = 0; i < type->slot_count; i++) {
        const unsigned flags = t->shapes[i].flags;
        if (type->slots[i].role == TUTTI_SLOT_KEPT) continue;
        if (flags & TUTTI_SLOT_OPTIONAL) list[count++] = (choice){.absent = 1u << i};
        if (flags & TUTTI_SLOT_GRAD_OPTIONAL) list[count++] = (choice){.absent_grads = 1u << i};
    }
    for (int i = 0; i < t->param_count; i++) list[count++] = (choice){.untrained = 1u << i};
    if (t->param_count > 0) list[count++] = (choice){.accumulate = true};
    if (t->saved.cols > 0) list[count++] = (choice){.forward_only = true};
    if (t->param_count > 0 && (kind->flags & MATRIX_WIDE_GRADS))
        list[count++] = (choice){.wide_grads = true};
    return count;
}

static bool is_absent(const trial_desc *c, const char *name)
{
    for (int i = 0; i < type->slot_count; i++) {
        if (strcmp(type->slots[i].name, name) == 0) return c->absent >> i & 1;
        if (name[0] == 'd' && strcmp(type->slots[i].name, name + 1) == 0)
            return c->absent_grads >> i & 1;
    }
    return true;
}

/* Applies the table's rules for tensors that need others.  Without an output that replaces an input
 * of backward there is no backward. */
static bool settle(trial_desc *c)
{
    for (int i = 0; i < type->slot_count; i++) {
        const tutti_slot *slot = &type->slots[i];
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
    bool alike = kind->flags & MATRIX_OUTPUTS_ALONE;
    for (int i = 0; i < type->slot_count; i++)
        if (type->slots[i].role == TUTTI_SLOT_IN && (c->absent >> i & 1)) alike = false;
    for (int i = 0; i < t.result_count && alike; i++)
        for (int k = 0; k < whole->result_count; k++)
            if (!t.results[i].gradient && strcmp(t.results[i].name, whole->results[k].name) == 0)
                check_same_bits(t.ctx, t.results[i].name, whole->results[k].at, t.results[i].at);
    trial_close(&t);
}

/* Every subset of the optional tensors. */
static void test_optional_tensors(void)
{
    for (int y = 0; types()[y]; y++)
        for (int v = 0; kind->variants[v]; v++) {
            const trial_desc c = usual(7, small_sizes(), types()[y], kind->variants[v]);
            choice list[CHOICES_MAX];
            trial whole;
            if (left_out(y + v, 3) || !trial_open(&whole, harness_context(), &c)) continue;
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
 * one. */
typedef struct overlap {
    int result, other; /* slots */
    bool gradient;
} overlap;

static void check_overlap(const trial_desc *c, overlap o)
{
    trial apart, t;
    const unsigned absent = o.gradient ? c->absent_grads : c->absent;
    if ((absent >> o.result | absent >> o.other) & 1) return;
    if (!trial_open(&apart, harness_context(), c) || !trial_open(&t, harness_context(), c)) return;
    operand *result = &t.slots[o.result][o.gradient], *other = &t.slots[o.other][o.gradient];
    const int index = t.shapes[o.result].index;
    const char *replaces = type->slots[o.result].replaces, *name = type->slots[o.other].name;
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
    for (int i = 0; i < type->slot_count; i++)
        for (int k = 0; k < type->slot_count; k++) {
            const char *name = type->slots[k].name;
            if (lists(type->slots[i].may_be, name, false)) check_overlap(c, (overlap){i, k, false});
            if (lists(type->slots[i].grad_may_be, name, true))
                check_overlap(c, (overlap){i, k, true});
        }
}

static void test_in_place(void)
{
    for (int t = 0; types()[t]; t++)
        for (int i = 0; some_shapes()[i].sizes; i++)
            for (int v = 0; kind->variants[v]; v++) {
                const matrix_shape *shape = &some_shapes()[i];
                if (!meets(shape, v, t + i) || left_out(t + i + v, 4)) continue;
                trial_desc c = usual(shape->rows, shape->sizes, types()[t], kind->variants[v]);
                c.place.pad = 2;
                if ((t + i + v) & 1) c.absent |= optional_slots();
                check_in_place(&c);
            }
}

/* Values */

/* A view of no rows may have no memory. */
static void test_no_rows(void)
{
    for (int y = 0; types()[y]; y++)
        for (int v = 0; kind->variants[v]; v++)
            for (int bits = 0; bits < 4; bits++) {
                if (left_out(y + v + bits, 4)) continue;
                trial_desc c = usual(0, small_sizes(), types()[y], kind->variants[v]);
                c.accumulate = bits & 1;
                trial t;
                if (!trial_open(&t, harness_context(), &c)) return;
                for (int i = 0; i < type->slot_count && (bits & 2); i++)
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
static void test_nonfinite(void)
{
    static const double special[] = {NAN, INFINITY, -INFINITY};
    const int variants = count_of(kind->variants);
    for (int y = 0; types()[y]; y++)
        for (int i = 0; some_shapes()[i].sizes; i++)
            for (int v = 0; v < variants; v++) {
                const matrix_shape *shape = &some_shapes()[i];
                const bool mine = v == (y + i) % variants;
                if ((i > 0 && !mine) || work_of(shape) > SMALL || left_out(y + i + v, 4)) continue;
                const trial_desc c =
                    usual(shape->rows, shape->sizes, types()[y], kind->variants[v]);
                trial t;
                if (!trial_open(&t, harness_context(), &c)) return;
                for (int k = 0; k < 3 * t.input_count; k++)
                    if (t.inputs[k / 3].at->buffer.dtype != TUTTI_I32)
                        check_special(&t, t.inputs[k / 3].at, special[k % 3]);
                trial_close(&t);
            }
}

/* Indices */

static unsigned optional_outputs(void)
{
    unsigned bits = 0;
    for (int i = 0; i < type->slot_count; i++)
        if (type->slots[i].role == TUTTI_SLOT_OUT && (type->slots[i].flags & TUTTI_SLOT_OPTIONAL))
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
    if (type->flags & TUTTI_LAYER_BACKWARD) check_found(&t, indices, first, last);
    trial_check(&t);
    trial_close(&t);
}

/* Found by both directions, whatever is computed; results are the reference's. */
static void test_bad_indices(void)
{
    int turn = 0, slot = 0;
    while (slot < type->slot_count && !type->slots[slot].below) slot++;
    if (slot == type->slot_count) {
        harness_skip("no input is an index");
        return;
    }
    for (int y = 0; types()[y]; y++)
        for (unsigned left = optional_outputs(), absent = left;; absent = (absent - 1) & left) {
            for (int i = 0; i < BAD_INDICES; i++, turn++) {
                const matrix_shape *shape = &some_shapes()[turn % moderate_shapes()];
                trial_desc c = usual(shape->rows, shape->sizes, types()[y], kind->variants[0]);
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

static void check_row_bits(const trial_desc *desc)
{
    static const layout places[] = {{5, 0}, {0, 1}, {3, 5}, {16, 8}};
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
static void test_row_bits(void)
{
    const int variants = count_of(kind->variants);
    if (!(type->flags & TUTTI_LAYER_ROWS_ALONE)) {
        harness_skip("a row's bits may depend on the number of rows");
        return;
    }
    for (int y = 0; types()[y]; y++)
        for (int i = 0; some_shapes()[i].sizes; i++) {
            if (left_out(y + i, 4)) continue;
            trial_desc c = usual(some_shapes()[i].rows, some_shapes()[i].sizes, types()[y],
                                 kind->variants[(y + i) % variants]);
            check_row_bits(&c);
            c.absent = optional_slots();
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
static void test_repeated(void)
{
    static const int threads[] = {2, 3, 7};
    const bool host = harness_backend() == TUTTI_BACKEND_HOST;
    const int variants = count_of(kind->variants);
    for (int y = 0; types()[y]; y++)
        for (int i = 0; some_shapes()[i].sizes; i++) {
            if (left_out(y + i, 4)) continue;
            const trial_desc c = usual(some_shapes()[i].rows, some_shapes()[i].sizes, types()[y],
                                       kind->variants[(y + i) % variants]);
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

static void test_finite_differences(void)
{
    if (!(type->flags & TUTTI_LAYER_BACKWARD)) {
        harness_skip("there is no backward");
        return;
    }
    char wide[120] = "";
    for (const tutti_layer_option *o = type->options; (o = next_type(o)) != NULL; o++)
        snprintf(wide + strlen(wide), sizeof wide - strlen(wide), "%s%s=f64", *wide ? "," : "",
                 o->name);
    for (int v = 0; kind->variants[v]; v++) {
        trial_desc c = usual(5, small_sizes(), wide, kind->variants[v]);
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

int matrix_main(int argc, char **argv, const matrix_kind *tested, const harness_test *own,
                int count)
{
    static const harness_test generic[] = {
        {"types", test_types},
        {"shapes", test_shapes},
        {"strides and misaligned pointers", test_strides_and_alignment},
        {"several dimensions", test_dimensions},
        {"optional tensors", test_optional_tensors},
        {"in place", test_in_place},
        {"no rows", test_no_rows},
        {"NaN and infinities", test_nonfinite},
        {"indices out of range", test_bad_indices},
        {"bits of a row", test_row_bits},
        {"the same call again, and threads", test_repeated},
        {"finite differences", test_finite_differences},
    };
    harness_test tests[64];
    const int shared = HARNESS_COUNT(generic);
    kind = tested;
    type = tutti_layer_type_find(kind->trial.name);
    if (!type || shared + count > HARNESS_COUNT(tests)) {
        fprintf(stderr, "matrix: no kind '%s', or %d tests are too many\n", kind->trial.name,
                count);
        return 1;
    }
    memcpy(tests, generic, sizeof generic);
    if (count > 0) memcpy(tests + shared, own, (size_t)count * sizeof *own);
    return harness_main(argc, argv, kind->trial.name, tests, shared + count);
}
