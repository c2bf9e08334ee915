/* Bad input for the layers' calls: memory that overlaps what is written. */
#include <stdio.h>
#include <string.h>

#include "bad_kinds.h"

/* A range of memory that a call accesses. */
typedef struct span {
    char name[TUTTI_NAME_MAX + 1];
    char *data;
    size_t bytes;
    tutti_call_place place;
    int slot; /* -1: none */
    bool gradient, written;
} span;

static int spans_of(span *spans)
{
    layer_fixture *f = &fix.f;
    const bool backward = fix.verb == BACKWARD;
    int count = 0;
    for (int i = 0; i < f->type->slot_count; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            if (!looked_at(i, gradient)) continue;
            const tutti_tensor *t = &f->tensors[i][gradient];
            span *s = &spans[count++];
            *s = (span){"",
                        t->data,
                        (size_t)tutti_tensor_count(t) * tutti_dtype_size(t->dtype),
                        slot_place(f, i, gradient),
                        i,
                        gradient,
                        slot_written(f, i, gradient, backward)};
            snprintf(s->name, sizeof s->name, "%s", slot_name(f, i, gradient));
        }
    for (int i = 0; i < tutti_layer_param_count(f->layer); i++)
        for (int gradient = 0; gradient <= backward; gradient++) {
            const tutti_param *param = tutti_layer_param(f->layer, i);
            const tutti_tensor *t = gradient ? &param->grad : &param->value;
            span *s = &spans[count++];
            *s = (span){"",
                        t->data,
                        (size_t)tutti_tensor_count(t) * tutti_dtype_size(t->dtype),
                        {gradient ? TUTTI_PART_PARAM_GRAD : TUTTI_PART_PARAM, i},
                        -1,
                        gradient,
                        gradient};
            snprintf(s->name, sizeof s->name, "%s%s", gradient ? "d" : "", param->name);
        }
    if (f->call.saved)
        spans[count++] =
            (span){"saved", f->call.saved, f->call.saved_bytes, {TUTTI_PART_SAVED, 0}, -1,
                   false,   !backward};
    return count;
}

/* Moves a range to other memory, and back. */
static void move(const span *s, void *data)
{
    layer_fixture *f = &fix.f;
    if (s->slot >= 0)
        f->tensors[s->slot][s->gradient].data = data;
    else if (s->place.part == TUTTI_PART_SAVED)
        f->call.saved = data;
    else {
        tutti_param *param = tutti_layer_param(f->layer, s->place.index);
        tutti_tensor value = param->value, grad = param->grad;
        *(s->gradient ? &grad.data : &value.data) = data;
        CHECK_OK(tutti_param_bind(param, &value, &grad));
    }
}

/* True if `name` is a word of `names`. */
static bool lists(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = names; at && (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ')) return true;
    return false;
}

/* True if one may alias the other, row by row.  Backward reads inputs that forward keeps, unless an
 * output replaces them. */
static bool may_be(const span *a, const span *b)
{
    const tutti_slot *slots = fix.f.type->slots;
    if (a->slot < 0 || b->slot < 0) return false;
    const tutti_slot *slot = &slots[a->slot];
    if (!lists(a->gradient ? slot->grad_may_be : slot->may_be, b->name)) return false;
    const bool kept = fix.verb == FORWARD && fix.f.call.saved &&
                      slots[b->slot].role == TUTTI_SLOT_IN &&
                      (fix.f.shapes[b->slot].flags & TUTTI_SLOT_READ);
    return !kept || (slot->replaces && strcmp(slot->replaces, b->name) == 0);
}

static void check_shared(const span *a, const span *b)
{
    CHECK_FAILS(TUTTI_ERR_ARG, "share memory", attempt());
    CHECK(strstr(tutti_last_error(), a->name) && strstr(tutti_last_error(), b->name),
          "'%s' names not both %s and %s", tutti_last_error(), a->name, b->name);
    const tutti_call_place got = tutti_last_error_place();
    const bool about_a = got.part == a->place.part && got.index == a->place.index;
    const bool about_b = got.part == b->place.part && got.index == b->place.index;
    CHECK(about_a || (b->written && about_b), "'%s' is about part %d, %d", tutti_last_error(),
          got.part, got.index);
}

void check_memory(void)
{
    layer_fixture *f = &fix.f;
    span spans[2 * SLOTS + 2 * PARAMS + 1];
    const int count = spans_of(spans);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            const span *a = &spans[i], *b = &spans[j];
            if (i == j || !a->written) continue;
            harness_where("%s: %s over %s", f->kind->name, a->name, b->name);
            if (!may_be(a, b) && !may_be(b, a)) {
                move(a, b->data);
                check_shared(a, b);
            }
            if (a->place.part != TUTTI_PART_SAVED && b->bytes > 8) { /* not on a 16-byte boundary */
                move(a, b->data + 8);
                check_shared(a, b);
            }
            move(a, a->data);
            if (a->slot < 0 || b->slot < 0 || !f->type->slots[a->slot].cols) continue;
            tutti_tensor *tensor = &f->tensors[a->slot][a->gradient];
            move(a, b->data);
            tensor->strides[0]++; /* aliased, but with other rows */
            check_shared(a, b);
            tensor->strides[0]--;
            move(a, a->data);
        }
    harness_where(NULL);
}
