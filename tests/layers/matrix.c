/* Tests that every kind of layer runs; see matrix.h. */
#include "matrix_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const matrix_kind *matrix_tested;
const tutti_layer_type *matrix_type;

static const matrix_shape shapes_of_cols[] = {
    {1, "cols=1"},      {2, "cols=1"},       {33, "cols=1"},
    {1, "cols=2"},      {33, "cols=2"},      {2, "cols=3"},
    {33, "cols=3"},     {1, "cols=7"},       {33, "cols=7"},
    {2, "cols=8"},      {33, "cols=8"},      {1, "cols=15"},
    {33, "cols=15"},    {2, "cols=31"},      {33, "cols=31"},
    {1, "cols=100"},    {33, "cols=100"},    {2, "cols=256"},
    {33, "cols=256"},   {1, "cols=513"},     {33, "cols=513"},
    {2, "cols=1023"},   {2, "cols=1024"},    {33, "cols=1024"},
    {2, "cols=1025"},   {33, "cols=1025"},   {2, "cols=2175"},
    {2, "cols=2177"},   {2, "cols=4351"},    {2, "cols=4353"},
    {2, "cols=4097"},   {9, "cols=4097"},    {1, "cols=10000"},
    {2, "cols=10000"},  {2, "cols=16383"},   {2, "cols=16392"},
    {3, "cols=32768"},  {2, "cols=65537"},   {2, "cols=131072"},
    {2, "cols=262144"}, {1, "cols=1048576"}, {700, "cols=3"},
    {3001, "cols=5"},   {517, "cols=128"},   {0, NULL}};
static const matrix_shape some_of_cols[] = {{4, "cols=5"},    {37, "cols=64"},   {4, "cols=257"},
                                            {9, "cols=1027"}, {67, "cols=131"},  {11, "cols=1024"},
                                            {3, "cols=5001"}, {2, "cols=40000"}, {0, NULL}};
static const char *const types_of_one[] = {"dtype=f32", "dtype=f64", "dtype=f16", "dtype=bf16",
                                           NULL};

static const matrix_shape *all_shapes(void)
{
    return matrix_tested->shapes ? matrix_tested->shapes : shapes_of_cols;
}

const matrix_shape *matrix_some(void)
{
    return matrix_tested->some ? matrix_tested->some : some_of_cols;
}

const char *matrix_small(void)
{
    return matrix_tested->small ? matrix_tested->small : "cols=10";
}

const char *const *matrix_types(void)
{
    return matrix_tested->types[0] ? matrix_tested->types : types_of_one;
}

int matrix_count(const char *const *list)
{
    int count = 0;
    while (list[count]) count++;
    return count;
}

/* The approximate number of elements of a shape's tensors. */
double matrix_work(const matrix_shape *shape)
{
    double cols = 0;
    for (const char *at = shape->sizes; (at = strchr(at, '=')) != NULL;) cols += atof(++at);
    return (double)shape->rows * cols;
}

/* How many of some are, from the first on. */
int matrix_moderate(void)
{
    int count = 0;
    while (matrix_some()[count].sizes && matrix_work(&matrix_some()[count]) < 20000) count++;
    return count;
}

enum { LONG = 140000 };

/* Small shapes run with every variant, large ones with the common ones, which alternate at the
 * longest; all alternate if none is common. */
bool matrix_meets(const matrix_shape *shape, int variant, int turn)
{
    const int common =
        matrix_tested->common ? matrix_tested->common : matrix_count(matrix_tested->variants);
    if (matrix_work(shape) <= MATRIX_SMALL) return true;
    if (matrix_work(shape) <= LONG && matrix_tested->common) return variant < common;
    return variant == turn % common;
}

/* f32 and bf16 only: f64 is slow, f16 like bf16, pairings like one of their types. */
static bool meets_longest(const char *pairing)
{
    const char *first = strchr(pairing, '='), *last = strrchr(pairing, '=');
    return !strstr(pairing, "f64") && !strstr(pairing, "=f16") &&
           strncmp(first, last, strlen(last)) == 0;
}

trial_desc matrix_case(int64_t rows, const char *sizes, const char *types_here, const char *variant)
{
    return trial_usual(&matrix_tested->trial, rows, "%s,%s%s%s", sizes, types_here,
                       *variant ? "," : "", variant);
}

/* Skips all but one of n when time is short. */
bool matrix_left_out(int turn, int n)
{
    return harness_quick() && turn % n;
}

/* Slots of optional inputs and of what depends on them. */
unsigned matrix_optional(void)
{
    unsigned bits = 0;
    for (int i = 0; i < matrix_type->slot_count; i++)
        if ((matrix_type->slots[i].role == TUTTI_SLOT_IN &&
             (matrix_type->slots[i].flags & TUTTI_SLOT_OPTIONAL)) ||
            matrix_type->slots[i].with)
            bits |= 1u << i;
    return bits;
}

static void take_turns(trial_desc *c, int turn)
{
    c->accumulate = turn & 1;
    if (turn & 2) c->absent |= matrix_optional();
    for (int i = 0; i < matrix_type->slot_count && (turn & 2); i++)
        if (matrix_type->slots[i].role == TUTTI_SLOT_IN && (c->absent >> i & 1) &&
            (matrix_type->slots[i].flags & TUTTI_SLOT_GRAD_OPTIONAL))
            c->absent_grads |= 1u << i;
    for (int i = 0; i < matrix_type->slot_count && (turn & 4); i++)
        if (matrix_type->slots[i].role == TUTTI_SLOT_OUT &&
            (matrix_type->slots[i].flags & TUTTI_SLOT_GRAD_OPTIONAL))
            c->absent_grads |= 1u << i;
}

/* Types */

const tutti_layer_option *matrix_next_type(const tutti_layer_option *option)
{
    const tutti_layer_option *end = matrix_type->options + matrix_type->option_count;
    while (option < end && strcmp(option->type, "dtype") != 0) option++;
    return option < end ? option : NULL;
}

static bool allowed(const char *options)
{
    tutti_layer *layer = NULL;
    const bool made = tutti_layer_create_by_name(harness_context(), matrix_type->name, options,
                                                 &layer) == TUTTI_OK;
    tutti_layer_destroy(&layer);
    return made;
}

static void check_pairing(const char *pairing, int number)
{
    for (int v = 0; matrix_tested->variants[v]; v++) {
        trial_desc c = matrix_case(5, matrix_small(), pairing, matrix_tested->variants[v]);
        take_turns(&c, v + number);
        trial_case(&c);
        const matrix_shape *shape = &matrix_some()[(v + number) % matrix_moderate()];
        c = matrix_case(shape->rows, shape->sizes, pairing, matrix_tested->variants[v]);
        take_turns(&c, v / 2 + number);
        if (!harness_quick()) trial_case(&c);
    }
}

/* Every pairing of types that the kind allows, with every variant. */
static void test_types(void)
{
    int pairings = 0, options = 0;
    for (const tutti_layer_option *o = matrix_type->options; (o = matrix_next_type(o)) != NULL; o++)
        options++;
    for (int code = 0; code < 1 << (2 * options); code++) {
        char pairing[120] = "", whole[200];
        int rest = code;
        for (const tutti_layer_option *o = matrix_type->options; (o = matrix_next_type(o)) != NULL;
             o++) {
            const size_t used = strlen(pairing);
            snprintf(pairing + used, sizeof pairing - used, "%s%s=%s", used ? "," : "", o->name,
                     tutti_dtype_name(float_dtypes[rest % 4]));
            rest /= 4;
        }
        snprintf(whole, sizeof whole, "%s,%s", matrix_small(), pairing);
        if (!allowed(whole)) continue;
        check_pairing(pairing, pairings++);
    }
    const int wanted = matrix_tested->pairings ? matrix_tested->pairings : 4;
    CHECK(pairings == wanted, "%d pairings of types, want %d", pairings, wanted);
}

static void test_shapes(void)
{
    int turn = 0;
    for (int t = 0; matrix_types()[t]; t++)
        for (int i = 0; all_shapes()[i].sizes; i++) {
            const matrix_shape *shape = &all_shapes()[i];
            if (matrix_work(shape) > LONG && !meets_longest(matrix_types()[t])) continue;
            if (matrix_left_out(i + t, matrix_work(shape) > MATRIX_SMALL ? 8 : 4)) continue;
            for (int v = 0; matrix_tested->variants[v]; v++) {
                if (!matrix_meets(shape, v, i + t)) continue;
                trial_desc c = matrix_case(shape->rows, shape->sizes, matrix_types()[t],
                                           matrix_tested->variants[v]);
                take_turns(&c, turn++);
                trial_case(&c);
            }
        }
}

/* Layouts */

static void test_strides_and_alignment(void)
{
    static const layout places[] = {{3, 0, 0}, {8, 0, 0}, {0, 1, 0}, {5, 1, 0},
                                    {1, 3, 1}, {8, 4, 0}, {64, 7, 0}};
    const int variants = matrix_count(matrix_tested->variants);
    int turn = 0;
    for (int t = 0; matrix_types()[t]; t++)
        for (int p = 0; p < HARNESS_COUNT(places); p++)
            for (int i = 0; matrix_some()[i].sizes; i++) {
                const matrix_shape *shape = &matrix_some()[i];
                if (matrix_work(shape) > 20000 || matrix_left_out(i + p + t, 8)) continue;
                trial_desc c = matrix_case(shape->rows, shape->sizes, matrix_types()[t],
                                           matrix_tested->variants[(t + p + i) % variants]);
                take_turns(&c, turn++);
                c.place = places[p];
                trial_case(&c);
            }
}

/* The same for rows that are matrices: rows over two dimensions, or columns. */
static void spread_matrices(tutti_tensor *t, bool over_cols)
{
    const int64_t items = t->dims[0], lines = t->dims[1], cols = t->dims[2];
    const int64_t item = t->strides[0], line = t->strides[1];
    t->ndim = 4;
    if (over_cols) {
        memcpy(t->dims, (int64_t[]){items, lines, cols / 2, 2}, sizeof t->dims);
        memcpy(t->strides, (int64_t[]){item, line, 2, 1}, sizeof t->strides);
    } else {
        memcpy(t->dims, (int64_t[]){2, items / 2, lines, cols}, sizeof t->dims);
        memcpy(t->strides, (int64_t[]){items / 2 * item, item, line, 1}, sizeof t->strides);
    }
}

/* Rows over several dimensions, evenly spaced; or columns over two. */
static void spread(operand *o, int64_t cols, bool over_cols)
{
    const bool list = o->tensor.ndim == 1;
    if (o->tensor.ndim == 3) {
        spread_matrices(&o->tensor, over_cols);
        return;
    }
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
        for (int v = 0; matrix_tested->variants[v]; v++) {
            trial_desc c =
                matrix_case(24, matrix_small(), matrix_types()[0], matrix_tested->variants[v]);
            c.place.pad = 2;
            trial t;
            if (!trial_open(&t, harness_context(), &c)) return;
            for (int i = 0; i < matrix_type->slot_count; i++)
                for (int g = 0; g < 2; g++)
                    if (t.slots[i][g].values && !(t.shapes[i].flags & TUTTI_SLOT_SUM))
                        spread(&t.slots[i][g], t.shapes[i].cols, (over_cols + i) & 1);
            if (trial_run(&t)) trial_check(&t);
            trial_close(&t);
        }
}

/* Whether a text of options, "a=1,b=2", sets this one. */
static bool sets(const char *options, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = options; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && at[length] == '=') return true;
    return false;
}

/* Every option is set by a variant, but sizes and types. */
static void test_options(void)
{
    for (int i = 0; i < matrix_type->option_count; i++) {
        const tutti_layer_option *option = &matrix_type->options[i];
        bool set = !option->default_value || strcmp(option->type, "dtype") == 0;
        for (int v = 0; matrix_tested->variants[v]; v++)
            set = set || sets(matrix_tested->variants[v], option->name);
        CHECK(set, "no variant of the test's record sets %s", option->name);
    }
}

int matrix_main(int argc, char **argv, const matrix_kind *tested, const harness_test *own,
                int count)
{
    static const harness_test generic[] = {
        {"options", test_options},
        {"types", test_types},
        {"shapes", test_shapes},
        {"strides and misaligned pointers", test_strides_and_alignment},
        {"several dimensions", test_dimensions},
        {"optional tensors", matrix_test_optional_tensors},
        {"in place", matrix_test_in_place},
        {"no rows", matrix_test_no_rows},
        {"NaN and infinities", matrix_test_nonfinite},
        {"indices out of range", matrix_test_bad_indices},
        {"bits of a row", matrix_test_row_bits},
        {"the same call again, and threads", matrix_test_repeated},
        {"finite differences", matrix_test_finite_differences},
        {"factors of the step", matrix_test_step_factors},
        {"TF32", matrix_test_tf32},
    };
    harness_test tests[64];
    const int shared = HARNESS_COUNT(generic);
    matrix_tested = tested;
    matrix_type = tutti_layer_type_find(matrix_tested->trial.name);
    if (!matrix_type || shared + count > HARNESS_COUNT(tests)) {
        fprintf(stderr, "matrix: no kind '%s', or %d tests are too many\n",
                matrix_tested->trial.name, count);
        return 1;
    }
    memcpy(tests, generic, sizeof generic);
    if (count > 0) memcpy(tests + shared, own, (size_t)count * sizeof *own);
    return harness_main(argc, argv, matrix_tested->trial.name, tests, shared + count);
}
