/* What holds for every kind of layer, by the tables: descriptors, leaves, plans, the
 * memory of both; and tensors in each other's gaps. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layer_fixture.h"

/* Leaves */

enum { BATCH = 23, SUMS = PARAMS + SLOTS };

/* A fixture's sums over rows: gradients of parameters, and outputs. */
static int sums_of(layer_fixture *f, harness_buffer *sums[SUMS])
{
    int count = 0;
    for (int i = 0; f->kind->backward && i < tutti_layer_param_count(f->layer); i++)
        sums[count++] = &f->grads[i];
    for (int i = 0; i < f->type->slot_count; i++)
        if (f->shapes[i].flags & TUTTI_SLOT_SUM) sums[count++] = &f->buffers[i][0];
    return count;
}

/* A sum as doubles, which hold f32 too. */
static double *sum_get(const layer_fixture *f, const harness_buffer *sum)
{
    double *values = harness_calloc((size_t)sum->cols, sizeof *values);
    harness_buffer_get(f->ctx, sum, values);
    return values;
}

/* a += b, as the sum's type does. */
static void add(tutti_dtype dtype, double *a, const double *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        a[i] = dtype == TUTTI_F64 ? a[i] + b[i] : (double)((float)a[i] + (float)b[i]);
}

/* Rows [from, to) of each of a fixture's tensors, in its call. */
static void cut(layer_fixture *f, int64_t from, int64_t to)
{
    for (int i = 0; i < f->type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            if (!slot_has(f, i, gradient) || (f->shapes[i].flags & TUTTI_SLOT_SUM)) continue;
            tutti_tensor *t = &f->tensors[i][gradient];
            const harness_buffer *whole = &f->buffers[i][gradient];
            const int64_t step = f->type->slots[i].cols ? whole->stride : 1;
            t->data = (char *)whole->data + from * step * (int64_t)tutti_dtype_size(t->dtype);
            t->dims[0] = to - from;
        }
}

/* A call of several leaves has the bits of calls of one leaf each, its sums those of the tree over
 * theirs. */
static void check_leaves(const layer_kind *kind, const char *options, int64_t rows, int leaves,
                         const int64_t *leaf_rows, bool accumulate)
{
    layer_fixture whole, part;
    tutti_context *ctx = harness_context();
    open_layer(&whole, ctx, kind->name, options, rows, true);
    open_layer(&part, ctx, kind->name, options, rows, true);
    fill_all(&whole, 3);
    fill_all(&part, 3);
    harness_buffer *sums[SUMS], *part_sums[SUMS];
    double *want[TUTTI_CALL_LEAVES_MAX][SUMS], *old[SUMS];
    const int count = sums_of(&whole, sums);
    sums_of(&part, part_sums);
    for (int s = 0; s < count; s++) old[s] = sum_get(&whole, sums[s]);

    part.call.leaves = 1;
    for (int leaf = 0; leaf < leaves; leaf++) {
        const int64_t end = leaf + 1 < leaves ? leaf_rows[leaf + 1] : rows;
        cut(&part, leaf_rows[leaf], end);
        part.first_row = 5 + leaf_rows[leaf];
        run_both(&part);
        for (int s = 0; s < count; s++) want[leaf][s] = sum_get(&part, part_sums[s]);
    }
    for (int apart = 1; apart < leaves; apart *= 2)
        for (int leaf = 0; leaf + apart < leaves; leaf += 2 * apart)
            for (int s = 0; s < count; s++)
                add(sums[s]->dtype, want[leaf][s], want[leaf + apart][s], sums[s]->cols);

    whole.first_row = 5;
    whole.call.leaves = leaves;
    whole.call.leaf_rows = leaf_rows;
    whole.call.flags = accumulate ? TUTTI_GRAD_ACCUMULATE : 0;
    run_both(&whole);
    check_same_results(&whole, &part, false);
    for (int s = 0; s < count; s++) {
        const bool adds = accumulate && s < tutti_layer_param_count(whole.layer);
        if (adds) add(sums[s]->dtype, want[0][s], old[s], sums[s]->cols);
        double *got = sum_get(&whole, sums[s]);
        CHECK(memcmp(got, want[0][s], (size_t)sums[s]->cols * sizeof *got) == 0,
              "sum %d of %d leaves from %lld, %lld%s has other bits", s, leaves,
              (long long)leaf_rows[0], (long long)leaf_rows[1], adds ? ", added," : "");
        free(got);
        free(old[s]);
        for (int leaf = 0; leaf < leaves; leaf++) free(want[leaf][s]);
    }
    close_layer(&whole);
    close_layer(&part);
}

static void leaves_of(const layer_kind *kind, const char *options)
{
    static const struct {
        int leaves;
        int64_t rows[8];
    } cuts[] = {
        {2, {0, 12}},
        {2, {0, 0}},     /* the first one is empty */
        {2, {0, BATCH}}, /* the last one */
        {4, {0, 4, 8, 12}},
        {4, {0, 1, 1, 20}},
        {8, {0, 3, 6, 9, 12, 15, 18, 21}},
        {8, {0, 0, 0, 7, 7, 8, BATCH, BATCH}},
        {3, {0, 8, 16}}, /* no power of two */
        {5, {0, 1, 9, 9, 20}},
        {7, {0, 3, 6, 9, 12, 15, 18}},
    };
    for (int i = 0; i < HARNESS_COUNT(cuts); i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_leaves(kind, options, BATCH, cuts[i].leaves, cuts[i].rows, accumulate);
    int64_t most[TUTTI_CALL_LEAVES_MAX];
    for (int i = 0; i < BATCH; i++) most[i] = i; /* equal leaves, which some kinds take at once */
    check_leaves(kind, options, BATCH, BATCH, most, false);
    if (harness_quick()) return;
    for (int i = 0; i < TUTTI_CALL_LEAVES_MAX; i++) most[i] = i * BATCH / TUTTI_CALL_LEAVES_MAX;
    check_leaves(kind, options, BATCH, TUTTI_CALL_LEAVES_MAX, most, false);
}

/* Where a leaf is the work of several thread blocks, of each kind of kernel. */
static void large_leaves(void)
{
    static const struct {
        const char *name, *options;
    } large[] = {
        {"rmsnorm", "cols=2048,x_dtype=bf16,y_dtype=bf16"},
        {"layernorm", "cols=400,x_dtype=f16,y_dtype=f16"},
        {"layernorm", "cols=1030"},
        {"linear", "in=264,out=520,dtype=bf16,activation=gelu"},
        {"linear", "in=131,out=67,dtype=f16"},
        {"rmsnorm", "cols=20000"}, /* to the host as 2048 */
    };
    const int count = HARNESS_COUNT(large) - (harness_backend() == TUTTI_BACKEND_HOST);
    static const int64_t equal[] = {0, 160, 320, 480}, unequal[] = {0, 100, 260, 270};
    for (int i = 0; i < count; i++)
        for (int k = 0; k < layer_kind_count; k++) {
            if (strcmp(layer_kinds[k].name, large[i].name) != 0) continue;
            harness_where("%s %s", large[i].name, large[i].options);
            check_leaves(&layer_kinds[k], large[i].options, 640, 4, equal, false);
            check_leaves(&layer_kinds[k], large[i].options, 640, 4, unequal, false);
        }
    harness_where(NULL);
}

static void test_leaves(void)
{
    for_all(leaves_of);
    large_leaves();
}

/* Descriptors */

/* The layer of a descriptor has the results of one by name. */
static void check_plain(const layer_kind *kind, const void *desc, const char *options)
{
    tutti_context *ctx = harness_context();
    tutti_layer *layer = NULL;
    layer_fixture plain, made;
    if (!CHECK_OK(kind->create(ctx, desc, &layer))) return;
    open_layer(&plain, ctx, kind->name, options, 7, true);
    open_made(&made, ctx, layer, 7, true);
    fill_all(&plain, 4);
    fill_all(&made, 4);
    CHECK(tutti_layer_param_count(plain.layer) == tutti_layer_param_count(layer), "%d parameters",
          tutti_layer_param_count(layer));
    run_both(&plain);
    run_both(&made);
    check_same_results(&plain, &made, true);
    close_layer(&plain);
    close_layer(&made);
}

/* Sets required fields, and returns where the optional ones begin. */
static size_t put_required(const tutti_layer_type *type, char *desc)
{
    size_t end = sizeof(size_t);
    for (int i = 0; i < type->option_count; i++) {
        const tutti_layer_option *option = &type->options[i];
        if (option->default_value) continue;
        *(int64_t *)(desc + option->offset) = 6;
        if (option->offset + sizeof(int64_t) > end) end = option->offset + sizeof(int64_t);
    }
    return end;
}

/* Every option as the table has it: "cols=6, eps=1e-6". */
static void write_out(const tutti_layer_type *type, char text[512])
{
    text[0] = 0;
    for (int i = 0; i < type->option_count; i++) {
        const size_t used = strlen(text);
        const char *value = type->options[i].default_value;
        snprintf(text + used, 512 - used, "%s%s=%s", i ? ", " : "", type->options[i].name,
                 value ? value : "6");
    }
}

static void test_descriptors(void)
{
    for (int k = 0; k < layer_kind_count; k++) {
        const layer_kind *kind = &layer_kinds[k];
        const tutti_layer_type *type = tutti_layer_type_find(kind->name);
        char options[512], *desc = harness_calloc(2, kind->desc_size);
        char *init = harness_calloc(2, kind->desc_size);
        size_t *size = (size_t *)desc;
        harness_where("%s", kind->name);
        write_out(type, options);
        kind->put_default(desc);
        kind->put_init(init);
        CHECK(*size == kind->desc_size && *(size_t *)init == kind->desc_size, "size is %zu", *size);
        CHECK(memcmp(desc, init, kind->desc_size) == 0, "INIT is not what _default gives");
        for (size_t i = sizeof(size_t); i < kind->desc_size; i++)
            CHECK(desc[i] == 0, "byte %zu of the default is %d", i, desc[i]);
        memset(desc, 0, kind->desc_size);
        const size_t end = put_required(type, desc);
        check_plain(kind, desc, options);
        *size = kind->desc_size;
        check_plain(kind, desc, options);
        *size = 2 * kind->desc_size; /* a newer program's, with unknown fields unset */
        check_plain(kind, desc, options);
        memset(desc + end, -1, 2 * kind->desc_size - end); /* an older program's */
        *size = end;
        check_plain(kind, desc, options);
        free(desc);
        free(init);
    }
    harness_where(NULL);
}

/* The number 0 for a field whose 0 means another default, and its effect. */
static void test_zero(void)
{
    for (int k = 0; k < layer_kind_count; k++) {
        const layer_kind *kind = &layer_kinds[k];
        const tutti_layer_type *type = tutti_layer_type_find(kind->name);
        for (int i = 0; i < type->option_count; i++) {
            const tutti_layer_option *o = &type->options[i];
            const bool real = strcmp(o->type, "real") == 0;
            const bool choice = strchr(o->type, '|');
            if (!real && !choice && strcmp(o->type, "int32") != 0) continue;
            if (o->least > 0) continue; /* 0 is out of range */
            char options[512], *desc = harness_calloc(1, kind->desc_size);
            options[0] = 0;
            put_required(type, desc);
            for (int j = 0; j < type->option_count; j++)
                if (!type->options[j].default_value)
                    snprintf(options + strlen(options), 64, "%s=6, ", type->options[j].name);
            const char *zero = choice ? o->type : "0"; /* an enum's word 0 is its first */
            snprintf(options + strlen(options), 64, "%s=%.*s", o->name, (int)strcspn(zero, "|"),
                     zero);
            if (real)
                *(double *)(desc + o->offset) = TUTTI_ZERO;
            else
                *(int32_t *)(desc + o->offset) = TUTTI_ZERO_INT32;
            harness_where("%s %s", kind->name, options);
            check_plain(kind, desc, options);
            free(desc);
        }
    }
    harness_where(NULL);

    tutti_context *ctx = harness_context();
    layer_fixture f;
    double y[4];
    for (int zero = 0; zero < 2; zero++) {
        open_layer(&f, ctx, "rmsnorm", zero ? "cols=4, no_gamma=1, eps=0" : "cols=4, no_gamma=1", 1,
                   true);
        fill_all(&f, 1);
        harness_buffer_put(ctx, &f.buffers[0][0], (double[]){0, 0, 0, 0});
        slot_put(&f, 1, false, NULL); /* no residual, and no sum */
        slot_put(&f, 3, false, NULL);
        CHECK_OK(tutti_layer_forward(f.layer, ctx, &f.call));
        harness_buffer_get(ctx, &f.buffers[2][0], y);
        CHECK(zero ? isnan(y[0]) : y[0] == 0, "eps=0 is %d, 0 becomes %g", zero, y[0]);
        close_layer(&f);
        open_layer(&f, ctx, "softmax", zero ? "cols=4, scale=0" : "cols=4", 1, true);
        harness_buffer_put(ctx, &f.buffers[0][0], (double[]){0, 1, 2, 3});
        slot_put(&f, 1, false, NULL); /* no lengths, and no bias */
        slot_put(&f, 2, false, NULL);
        CHECK_OK(tutti_layer_forward(f.layer, ctx, &f.call));
        harness_buffer_get(ctx, &f.buffers[3][0], y);
        CHECK((y[0] == 0.25) == zero, "scale=0 is %d, y[0] is %g", zero, y[0]);
        close_layer(&f);
        open_layer(&f, ctx, "cross_entropy", zero ? "cols=4, ignore_label=0" : "cols=4", 1, true);
        harness_buffer_put(ctx, &f.buffers[0][0], (double[]){0, 0, 0, 0});
        harness_buffer_put(ctx, &f.buffers[1][0], (double[]){0});
        CHECK_OK(tutti_layer_forward(f.layer, ctx, &f.call));
        harness_buffer_get(ctx, &f.buffers[2][0], y);
        CHECK((y[0] == 0) == zero, "ignore_label=0 is %d, the loss of class 0 is %g", zero, y[0]);
        close_layer(&f);
    }
}

/* Plans */

/* Bytes of the host's heap in use.  main turns off glibc's caches of freed memory, which would
 * count. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));
static size_t heap_in_use(void)
{
    if (__sanitizer_get_current_allocated_bytes) return __sanitizer_get_current_allocated_bytes();
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void without_data(layer_fixture *f, bool without)
{
    for (int i = 0; i < f->type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++)
            if (slot_has(f, i, gradient))
                f->tensors[i][gradient].data = without ? NULL : f->buffers[i][gradient].data;
}

/* A plan needs no memory or bound parameters; afterwards calls of that shape allocate nothing. */
static void check_plan(const layer_kind *kind, const char *options, int64_t rows, bool typed,
                       int leaves)
{
    tutti_context *ctx = harness_new_context(0, 1);
    layer_fixture unbound, f;
    const int64_t leaf_rows[4] = {0, rows / 3, rows / 2, rows / 2};
    open_layer(&f, ctx, kind->name, options, rows, true);
    open_layer(&unbound, ctx, kind->name, options, rows, false);
    fill_all(&f, 5);
    layer_fixture *both[] = {&unbound, &f};
    for (int i = 0; i < 2; i++) {
        both[i]->call.leaves = leaves;
        both[i]->call.leaf_rows = leaf_rows;
    }
    without_data(&unbound, true);
    unbound.call.saved = NULL;
    void *call = typed_call(kind, &unbound.call);
    CHECK_OK(typed ? kind->plan(unbound.layer, ctx, call)
                   : tutti_layer_plan(unbound.layer, ctx, &unbound.call));
    free(call);
    const size_t before = heap_in_use();
    run_both(&f);
    const size_t after = heap_in_use();
    if (harness_backend() == TUTTI_BACKEND_HOST)
        CHECK(before == after, "calls that were planned took %lld bytes",
              (long long)after - (long long)before);
    close_layer(&unbound);
    close_layer(&f);
    tutti_context_destroy(&ctx);
}

static void plans_of(const layer_kind *kind, const char *options)
{
    static const int64_t rows[] = {0, 1, 64, 1000};
    for (int i = 0; i < (harness_quick() ? 2 : HARNESS_COUNT(rows)); i++)
        for (int typed = 0; typed < 2; typed++)
            for (int leaves = 0; leaves <= 4; leaves += 4)
                check_plan(kind, options, rows[i], typed, leaves);
}

static void test_plan(void)
{
    /* warm-up: the first call starts threads */
    check_plan(find_kind("linear"), "in=6,out=4", 2, false, 0);
    for_all(plans_of);
}

/* With long rows, repeatedly, on several contexts. */
static void test_plan_again(void)
{
    tutti_context *ctx = harness_context(), *other = harness_new_context(0, 1);
    static const char *const options[][2] = {{"layernorm", "cols=100,x_dtype=bf16,y_dtype=bf16"},
                                             {"rmsnorm", "cols=70000"},
                                             {"softmax", "cols=70000,log=1"},
                                             {"linear", "in=30,out=50,activation=silu,dtype=f16"},
                                             {"matmul", "m=30,n=50,k=20,dtype=f16"},
                                             {"cross_entropy", "cols=50000"},
                                             {"embedding", "vocab=1000,cols=5000"}};
    static const int64_t rows[] = {0, 1, 64, 1, 1000, 0};
    for (int i = 0; i < HARNESS_COUNT(options); i++) {
        layer_fixture f;
        harness_where("%s %s", options[i][0], options[i][1]);
        open_layer(&f, ctx, options[i][0], options[i][1], 0, false);
        for (int r = 0; r < HARNESS_COUNT(rows); r++) {
            for (int s = 0; s < f.type->slot_count; s++)
                for (int gradient = 0; gradient < 2; gradient++)
                    if (slot_has(&f, s, gradient) && !(f.shapes[s].flags & TUTTI_SLOT_SUM)) {
                        f.tensors[s][gradient].dims[0] = rows[r];
                        f.tensors[s][gradient].data = NULL;
                    }
            f.call.saved = NULL;
            CHECK_OK(tutti_layer_plan(f.layer, ctx, &f.call));
            CHECK_OK(tutti_layer_plan(f.layer, other, &f.call));
        }
        close_layer(&f);
    }
    tutti_context_destroy(&other);
}

/* A backward is planned by its own call, with what it reads and nothing else. */
static void test_plan_backward(void)
{
    for (int k = 0; k < layer_kind_count; k++) {
        if (!layer_kinds[k].backward) continue;
        const char *options;
        for (int o = 0; (options = kind_options(&layer_kinds[k], o)); o++) {
            layer_fixture f;
            harness_where("%s %s", layer_kinds[k].name, options);
            open_layer(&f, harness_context(), layer_kinds[k].name, options, 5, true);
            for (int i = 0; i < f.type->slot_count; i++)
                if (slot_has(&f, i, false) && !slot_read(&f, i, false, true))
                    slot_put(&f, i, false, NULL);
            CHECK_OK(tutti_layer_plan(f.layer, f.ctx, &f.call));
            close_layer(&f);
        }
    }
    harness_where(NULL);
}

/* Backward, and plans, that name a reproducible exchange which has none of their parameters, with
 * leaves or without. */
static void beside_exchange(const layer_kind *kind, const char *options)
{
    if (!kind->backward) return;
    tutti_context *ctx = harness_context();
    tutti_comm_desc one = TUTTI_COMM_DESC_INIT;
    tutti_grad_sync_desc desc = TUTTI_GRAD_SYNC_DESC_INIT;
    tutti_comm *comm = NULL;
    tutti_grad_sync *sync = NULL;
    one.transport = TUTTI_TRANSPORT_SELF;
    desc.leaves = 4;
    layer_fixture f, other; /* another layer, which is exchanged */
    open_layer(&other, ctx, "rmsnorm", "cols=3", 1, true);
    const tutti_param *exchanged = tutti_layer_param(other.layer, 0);
    CHECK_OK(tutti_comm_create(ctx, &one, &comm));
    CHECK_OK(tutti_grad_sync_create_list(ctx, comm, &exchanged, 1, &desc, &sync));
    static const int64_t leaf_rows[2] = {0, 3};
    for (int leaves = 0; leaves <= 2; leaves++) {
        open_layer(&f, ctx, kind->name, options, 6, true);
        fill_all(&f, 3);
        f.call.leaves = leaves;
        f.call.leaf_rows = leaves > 1 ? leaf_rows : NULL;
        f.call.sync = sync;
        CHECK_OK(tutti_layer_plan(f.layer, ctx, &f.call));
        for (int p = 0; p < tutti_layer_param_count(f.layer); p++) {
            tutti_param *param = tutti_layer_param(f.layer, p);
            const tutti_tensor value = param->value;
            CHECK_OK(tutti_param_bind(param, &value, NULL));
        }
        if (leaves == 0) {
            if (tutti_layer_param_count(f.layer) > 0)
                CHECK_FAILS(TUTTI_ERR_STATE, "no leaf has begun",
                            tutti_layer_backward(f.layer, ctx, &f.call));
            CHECK_OK(tutti_grad_sync_leaves_begin(sync, ctx, 0, 2));
        }
        run_both(&f);
        close_layer(&f);
    }
    tutti_grad_sync_destroy(&sync);
    tutti_comm_destroy(&comm);
    close_layer(&other);
}

static void test_beside_exchange(void)
{
    for_all(beside_exchange);
}

/* A trim frees the context's memory; then everything is planned again, with the same results. */
static void trims_of(const layer_kind *kind, const char *options)
{
    tutti_context *ctx = harness_new_context(0, 1);
    layer_fixture kept, f;
    open_layer(&kept, harness_context(), kind->name, options, 70, true);
    open_layer(&f, ctx, kind->name, options, 70, true);
    static const int64_t leaf_rows[2] = {0, 35};
    kept.call.leaves = f.call.leaves = 2;
    kept.call.leaf_rows = f.call.leaf_rows = leaf_rows;
    fill_all(&kept, 6);
    run_both(&kept);
    const size_t before = heap_in_use();
    for (int i = 0; i < 3; i++) {
        fill_all(&f, 6);
        run_both(&f);
        check_same_results(&kept, &f, true);
        CHECK_OK(tutti_context_trim(ctx));
        CHECK_OK(tutti_context_trim(ctx));
        if (harness_backend() == TUTTI_BACKEND_HOST)
            CHECK(heap_in_use() == before, "a context that was trimmed has %lld bytes",
                  (long long)heap_in_use() - (long long)before);
    }
    close_layer(&kept);
    close_layer(&f);
    tutti_context_destroy(&ctx);
}

static void test_trim(void)
{
    for_all(trims_of);
}

/* Batches of 3000 different lengths: memory of plans stays bounded, and every result is right. */
static void test_many_shapes(void)
{
    enum { MOST = 3000, PLANS = 1024 };
    tutti_context *ctx = harness_new_context(0, 1);
    static const char *const kinds[][2] = {{"rmsnorm", "cols=6"}, {"softmax", "cols=6"}};
    for (int k = 0; k < HARNESS_COUNT(kinds); k++) {
        layer_fixture all, f;
        harness_where("%s", kinds[k][0]);
        open_layer(&all, harness_context(), kinds[k][0], kinds[k][1], MOST, true);
        open_layer(&f, ctx, kinds[k][0], kinds[k][1], MOST, true);
        fill_all(&all, 7);
        fill_all(&f, 7);
        run_both(&all);
        run_both(&f); /* the longest first: later ones reuse its scratch */
        size_t full = 0;
        for (int64_t rows = MOST - 1; rows >= 0; rows--) {
            cut(&f, 0, rows);
            run_both(&f);
            if (rows == MOST - PLANS - 1) full = heap_in_use();
        }
        /* some more, as the allocator does not split what is hardly larger than asked for: far less
         * than a byte for each of the plans that came */
        if (harness_backend() == TUTTI_BACKEND_HOST)
            CHECK(heap_in_use() < full + 256, "%lld bytes more for plans beyond %d",
                  (long long)heap_in_use() - (long long)full, PLANS);
        check_same_results(&all, &f, false);
        cut(&f, 0, MOST); /* its plan was dropped */
        run_both(&f);
        check_same_results(&all, &f, true);
        close_layer(&all);
        close_layer(&f);
    }
    harness_where(NULL);
    tutti_context_destroy(&ctx);
}

/* An output and an input that lie in each other's gaps. */
static void test_gaps(void)
{
    tutti_context *ctx = harness_context();
    harness_buffer wide = harness_buffer_make(ctx, TUTTI_F32, 4, 12, 0, 0);
    harness_buffer other = harness_buffer_make(ctx, TUTTI_F32, 4, 12, 0, 0);
    double zeros[48] = {0};
    harness_buffer_put(ctx, &wide, zeros);
    harness_buffer_put(ctx, &other, zeros);
    float *data = wide.data;
    tutti_layer *softmax = NULL, *matmul = NULL;
    CHECK_OK(tutti_layer_create_by_name(ctx, "softmax", "cols=6", &softmax));
    CHECK_OK(tutti_layer_create_by_name(ctx, "matmul", "m=1,n=4,k=3", &matmul));

    tutti_tensor x = tutti_tensor_2d(other.data, TUTTI_F32, 4, 6), y = x, bias = x;
    y.data = data, y.strides[0] = 12;
    bias.data = data + 6, bias.strides[0] = 0; /* in the gap behind the first row of y */
    const tutti_softmax_call row = {.x = &x, .bias = &bias, .y = &y};
    CHECK_OK(tutti_softmax_forward(softmax, ctx, &row));
    bias.data = data + 5;
    CHECK_FAILS(TUTTI_ERR_ARG, "bias", tutti_softmax_forward(softmax, ctx, &row));

    tutti_tensor a = tutti_tensor_make(other.data, TUTTI_F32, 3, (int64_t[]){1, 1, 3});
    tutti_tensor b = tutti_tensor_make(data, TUTTI_F32, 3, (int64_t[]){1, 3, 4});
    tutti_tensor c = tutti_tensor_make(data + 4, TUTTI_F32, 3, (int64_t[]){1, 1, 4});
    b.strides[0] = 24, b.strides[1] = 8;
    const tutti_matmul_call product = {.a = &a, .b = &b, .c = &c};
    CHECK_OK(tutti_matmul_forward(matmul, ctx, &product));
    c.data = data + 5;
    CHECK_FAILS(TUTTI_ERR_ARG, "c", tutti_matmul_forward(matmul, ctx, &product));
    CHECK_OK(tutti_context_synchronize(ctx));
    tutti_layer_destroy(&softmax);
    tutti_layer_destroy(&matmul);
    harness_buffer_free(ctx, &wide);
    harness_buffer_free(ctx, &other);
}

int main(int argc, char **argv)
{
    if (!getenv("GLIBC_TUNABLES")) {
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    static const harness_test tests[] = {
        {"descriptors", test_descriptors},
        {"the number 0", test_zero},
        {"leaves", test_leaves},
        {"plans", test_plan},
        {"plans of long rows", test_plan_again},
        {"plans of backward alone", test_plan_backward},
        {"trim", test_trim},
        {"many shapes", test_many_shapes},
        {"gaps", test_gaps},
        {"beside an exchange", test_beside_exchange},
    };
    return harness_main(argc, argv, "kinds of layer", tests, HARNESS_COUNT(tests));
}
