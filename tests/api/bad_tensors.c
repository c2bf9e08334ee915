/* Bad input for the layers' calls, by the table of slots: tensors that are wrong, that are missing,
 * and that the layer has no slot for. */
#include <stdio.h>
#include <string.h>

#include "bad_kinds.h"

static bool optional(int slot, bool gradient)
{
    const unsigned flags = fix.f.shapes[slot].flags;
    return flags & (gradient ? TUTTI_SLOT_GRAD_OPTIONAL : TUTTI_SLOT_OPTIONAL);
}

/* The tensor that determines the number of rows: the direction's first, inputs and outputs before
 * gradients. */
static bool sets_rows(int slot, bool gradient)
{
    const bool backward = !looked_at_by(slot, gradient, false);
    for (int of_gradients = 0; of_gradients < 2; of_gradients++)
        for (int step = 0; step < 2; step++) {
            const int role = step == of_gradients ? TUTTI_SLOT_IN : TUTTI_SLOT_OUT;
            for (int i = 0; i < fix.f.type->slot_count; i++)
                if ((int)fix.f.type->slots[i].role == role &&
                    looked_at_by(i, of_gradients, backward))
                    return i == slot && gradient == of_gradients;
        }
    return false;
}

/* Leading dimensions that no single stride describes. */
static void split_rows(tutti_tensor *t)
{
    int64_t cols = t->dims[1];
    t->ndim = 3;
    memcpy(t->dims, (int64_t[]){ROWS, 2, cols}, 3 * sizeof(int64_t));
    memcpy(t->strides, (int64_t[]){5 * cols, cols, 1}, 3 * sizeof(int64_t));
}

/* A matrix's lines as its columns. */
static void exchange(tutti_tensor *t)
{
    const int64_t lines = t->dims[1];
    t->dims[1] = t->dims[2];
    t->strides[1] = lines;
    t->dims[2] = lines;
}

/* Checks one change of the tensor `bad`, which is in its slot. */
#define CHECK_TENSOR(change)                                           \
    do {                                                               \
        bad = *good;                                                   \
        change;                                                        \
        harness_where("%s: %s with %s", f->kind->name, name, #change); \
        CHECK_FAILS(TUTTI_ERR_ARG, name, attempt());                   \
        check_place(slot_place(f, slot, gradient));                    \
        harness_where(NULL);                                           \
    } while (0)
void check_tensor(int slot, bool gradient)
{
    layer_fixture *f = &fix.f;
    tutti_tensor *good = &f->tensors[slot][gradient], bad = *good;
    char name[64];
    snprintf(name, sizeof name, ": %s ", slot_name(f, slot, gradient));
    slot_put(f, slot, gradient, &bad);
    CHECK_TENSOR(bad.dtype = bad.dtype == TUTTI_BF16 ? TUTTI_F16 : TUTTI_BF16);
    CHECK_TENSOR(bad.dtype = TUTTI_U8);
    CHECK_TENSOR(bad.dtype = (tutti_dtype)0);
    CHECK(strstr(tutti_last_error(), " is of dtype 0 (not set), want "), "%s", tutti_last_error());
    CHECK_TENSOR(bad.dtype = (tutti_dtype)99);
    CHECK_TENSOR(bad.ndim = 0);
    CHECK_TENSOR(bad.ndim = TUTTI_MAX_DIMS + 1);
    CHECK_TENSOR(bad.ndim = -1);
    CHECK_TENSOR(bad.dims[0] = -1);
    if (fix.verb != PLAN) CHECK_TENSOR(bad.data = NULL);
    CHECK_TENSOR(bad.data = (char *)bad.data + 1); /* not aligned to its elements */
    if (f->type->slots[slot].cols) {
        CHECK_TENSOR(bad.dims[1] += 1);
        CHECK_TENSOR(bad.dims[1] -= 1); /* so the strides are wrong for such rows, too */
        CHECK(strstr(tutti_last_error(), "want last dims"), "%s", tutti_last_error());
        CHECK_TENSOR(bad.dims[1] = 0);
        CHECK_TENSOR(bad.dims[1] = -bad.dims[1]);
        CHECK_TENSOR(bad.strides[bad.ndim - 1] = 2);
        CHECK_TENSOR(bad.strides[bad.ndim - 1] = -1);
        CHECK_TENSOR(bad.strides[0] = bad.dims[1] - 1); /* rows overlap */
        if (gradient || !(f->shapes[slot].flags & TUTTI_SLOT_REPEATS))
            CHECK_TENSOR(bad.strides[0] = 0);
        CHECK_TENSOR(bad.strides[0] = -bad.dims[1]);
        CHECK_TENSOR(bad.dims[0] = INT64_MAX);
        CHECK_TENSOR(bad.strides[0] = INT64_MAX);
        CHECK_TENSOR(split_rows(&bad));
    } else if (!(f->shapes[slot].flags & TUTTI_SLOT_SUM)) {
        CHECK_TENSOR(bad.strides[0] = 2);
    }
    if (f->type->slots[slot].lines) {
        CHECK_TENSOR(bad.dims[2] += 1);
        CHECK_TENSOR(bad.strides[1] = bad.dims[2] - 1); /* lines overlap */
        CHECK_TENSOR(bad.strides[1] = 0);
        CHECK_TENSOR(bad.strides[1] = INT64_MAX);
        CHECK_TENSOR(bad.strides[0] = bad.dims[2]); /* rows do, in no gap */
        CHECK_TENSOR(bad.strides[0] -= 1);
        CHECK_TENSOR(exchange(&bad));
    }
    if (sets_rows(slot, gradient)) {
        bad = *good;
        bad.dims[0]++;
        CHECK_FAILS(TUTTI_ERR_ARG, "rows", attempt()); /* differs from another tensor's */
    } else {
        CHECK_TENSOR(bad.dims[0] += 1);
    }
    const tutti_call whole = f->call;
    if (fix.verb == PLAN) { /* without y, for example, it would be a valid plan of backward only */
        memset(f->call.upstream, 0, sizeof f->call.upstream);
        memset(f->call.din, 0, sizeof f->call.din);
    }
    if (!optional(slot, gradient) && !(fix.verb == PLAN && gradient))
        CHECK_TENSOR(slot_put(f, slot, gradient, NULL));
    f->call = whole;
    slot_put(f, slot, gradient, good);
}

void check_company(void)
{
    layer_fixture *f = &fix.f;
    for (int i = 0; i < f->type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            const tutti_slot *slot = &f->type->slots[i];
            const char *with = gradient ? slot->grad_with : slot->with;
            if (!with || !looked_at(i, gradient)) continue;
            for (int j = 0; j < f->type->slot_count; j++)
                if (strcmp(slot_name(f, j, gradient), with) == 0) {
                    slot_put(f, j, gradient, NULL);
                    CHECK_FAILS(TUTTI_ERR_ARG, with, attempt());
                    check_place(slot_place(f, i, gradient));
                    slot_put(f, j, gradient, &f->tensors[j][gradient]);
                }
        }
}

void check_no_slot(void)
{
    layer_fixture *f = &fix.f;
    tutti_tensor *extra = &f->tensors[0][0];
    static const char *const names[] = {"in", "out", "upstream", "din"};
    for (int part = 0; part < 4; part++)
        for (int i = 0; i < TUTTI_MAX_SLOTS; i++) {
            const layer_fixture before = *f;
            const void *there[] = {f->call.in[i], f->call.out[i], f->call.upstream[i],
                                   f->call.din[i]};
            if (there[part]) continue;
            if (part == 0) f->call.in[i] = extra;
            if (part == 1) f->call.out[i] = extra;
            if (part == 2) f->call.upstream[i] = extra;
            if (part == 3) f->call.din[i] = extra;
            char word[32];
            snprintf(word, sizeof word, "%s[%d]", names[part], i);
            CHECK_FAILS(TUTTI_ERR_ARG, word, attempt());
            static const tutti_call_part parts[] = {TUTTI_PART_IN, TUTTI_PART_OUT,
                                                    TUTTI_PART_UPSTREAM, TUTTI_PART_DIN};
            check_place((tutti_call_place){parts[part], i});
            *f = before;
        }
}
