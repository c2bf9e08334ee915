/* The parameters of an exchange and their gradients, the same on all ranks. */
#include "comm/gradients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/agree.h"
#include "comm/control.h"
#include "core/text.h"

static int by_param(const void *a, const void *b)
{
    uintptr_t p = (uintptr_t)((const tutti__sync_entry *)a)->param;
    uintptr_t q = (uintptr_t)((const tutti__sync_entry *)b)->param;
    return p < q ? -1 : p > q;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t p = (uintptr_t)(*(tutti__gradient *const *)a)->data;
    uintptr_t q = (uintptr_t)(*(tutti__gradient *const *)b)->data;
    return p < q ? -1 : p > q;
}

tutti__sync_entry *tutti__gradients_find(const tutti__gradients *own, const tutti_param *param)
{
    tutti__sync_entry key = {.param = param};
    return own->entry_count
               ? bsearch(&key, own->entries, (size_t)own->entry_count, sizeof key, by_param)
               : NULL;
}

/* This rank's parameters */

/* Adds a parameter to the exchange; a tied one shares a gradient that was added before. */
static tutti_status add(tutti__gradients *own, const tutti_param *param)
{
    const tutti_tensor *grad = &param->grad;
    int64_t count = tutti_tensor_count(grad);
    if (!grad->data || count <= 0)
        return tutti__fail(TUTTI_ERR_ARG, "grad_sync_create: parameter '%s' has no gradient bound",
                           param->name);
    TUTTI_REQUIRE(grad->dtype == TUTTI_F32 || grad->dtype == TUTTI_F64,
                  "grad_sync_create: the gradient of '%s' is %s, want f32 or f64", param->name,
                  tutti__dtype_text(grad->dtype));
    char dims[2][TUTTI__DIMS_TEXT];
    int g = 0;
    while (g < own->count && own->list[g].data != grad->data) g++;
    if (g == own->count)
        own->list[own->count++] =
            (tutti__gradient){param, grad->data, count, grad->dtype, 0, -1, -1, NULL, 0};
    else {
        const tutti_param *other = own->list[g].param;
        TUTTI_REQUIRE(own->list[g].count == count && own->list[g].dtype == grad->dtype,
                      "grad_sync_create: '%s' %s %s and '%s' %s %s share one gradient, want one "
                      "shape and type",
                      other->name, tutti_dtype_name(other->grad.dtype),
                      tutti__dims_text(&other->grad, dims[0]), param->name,
                      tutti_dtype_name(grad->dtype), tutti__dims_text(grad, dims[1]));
    }
    own->list[g].users++;
    own->entries[own->entry_count++] = (tutti__sync_entry){.param = param, .gradient = g};
    return TUTTI_OK;
}

/* Fails if gradients overlap or a parameter is listed twice. */
static tutti_status check_memory(const tutti__gradients *own)
{
    for (int i = 1; i < own->entry_count; i++)
        TUTTI_REQUIRE(own->entries[i - 1].param != own->entries[i].param,
                      "grad_sync_create: parameter '%s' is listed twice",
                      own->entries[i].param->name);
    size_t n = (size_t)own->count;
    tutti__gradient **sorted = malloc((n + 1) * sizeof(tutti__gradient *));
    if (!sorted) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    for (size_t i = 0; i < n; i++) sorted[i] = &own->list[i];
    qsort(sorted, n, sizeof *sorted, by_address);
    tutti_status status = TUTTI_OK;
    for (size_t i = 1; i < n && status == TUTTI_OK; i++) {
        const tutti__gradient *a = sorted[i - 1], *b = sorted[i];
        if (a->data + (size_t)a->count * tutti_dtype_size(a->dtype) > b->data)
            status = tutti__fail(TUTTI_ERR_ARG,
                                 "grad_sync_create: the gradients of '%s' and '%s' overlap",
                                 a->param->name, b->param->name);
    }
    free(sorted);
    return status;
}

/* A later parameter of the list shares this one's gradient, which is complete only then. */
static bool shared_later(const tutti_param *const *list, int count, int i)
{
    for (int j = i + 1; j < count; j++)
        if (list[j]->grad.data == list[i]->grad.data) return true;
    return false;
}

tutti_status tutti__gradients_collect(tutti__gradients *own, const tutti_params *params,
                                      const tutti_param *const *list, int count)
{
    size_t room = (size_t)(params ? params->entry_count : count) + 1;
    own->entries = calloc(room, sizeof *own->entries);
    own->list = calloc(room, sizeof *own->list);
    own->missing = calloc(room, sizeof *own->missing);
    if (!own->entries || !own->list || !own->missing)
        return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    /* the store's slots first: a tied one has the place of its first layer, which backward finishes
     * last */
    for (int i = 0; params && i < params->trained_slots; i++)
        TUTTI_TRY(add(own, params->slots[i].param));
    for (int i = 0; params && i < params->entry_count; i++) {
        const tutti__params_entry *entry = &params->entries[i];
        if (entry->slot < params->trained_slots && params->slots[entry->slot].param != entry->param)
            TUTTI_TRY(add(own, entry->param));
    }
    for (int late = 0; !params && late < 2; late++)
        for (int i = 0; i < count; i++)
            if (shared_later(list, count, i) == late) TUTTI_TRY(add(own, list[i]));
    qsort(own->entries, (size_t)own->entry_count, sizeof *own->entries, by_param);
    TUTTI_TRY(check_memory(own));
    for (int g = 0; g < own->count; g++) {
        own->missing[g] = own->list[g].users;
        own->bytes += own->list[g].count * (int64_t)tutti_dtype_size(own->list[g].dtype);
    }
    own->gap = params ? TUTTI_PARAM_ALIGN - 1 : 0; /* the store's padding is zero */
    return tutti__ranges_layout(own->list, own->count, own->gap, &own->layout);
}

void tutti__gradients_free(tutti__gradients *own)
{
    free(own->entries);
    free(own->list);
    free(own->missing);
}

/* The other ranks' parameters */

static uint64_t signature(const tutti__gradient *gradient)
{
    const tutti_param *param = gradient->param;
    uint64_t hash = tutti__hash(TUTTI__HASH_START, param->name, strlen(param->name) + 1);
    const int32_t numbers[] = {(int32_t)gradient->dtype, (int32_t)param->value.dtype,
                               gradient->users, param->grad.ndim};
    hash = tutti__hash(hash, numbers, sizeof numbers);
    return tutti__hash(hash, param->grad.dims, (size_t)param->grad.ndim * sizeof(int64_t));
}

static void describe(const tutti__gradients *own, int index, char *text, size_t size)
{
    if (index >= own->count) {
        snprintf(text, size, "none");
        return;
    }
    const tutti_param *param = own->list[index].param;
    char dims[TUTTI__DIMS_TEXT];
    snprintf(text, size, "'%s' %s, gradient %s %s", param->name,
             tutti_dtype_name(param->value.dtype), tutti_dtype_name(own->list[index].dtype),
             tutti__dims_text(&param->grad, dims));
}

tutti_status tutti__gradients_compare(const tutti__gradients *own, tutti_comm *comm)
{
    char ranks[160];
    int differ, first;
    int32_t mine = own->count, most = 0;
    int32_t *counts = calloc((size_t)comm->world_size, sizeof *counts);
    TUTTI_TRY(tutti_comm_agree(
        comm, counts ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory")));
    tutti_status status =
        comm->control->gather(comm, &mine, counts, sizeof mine, "grad_sync_create");
    for (int r = 0; r < comm->world_size; r++)
        if (counts[r] > most) most = counts[r];
    free(counts);
    TUTTI_TRY(status);

    uint64_t *values = calloc((size_t)most + 1, sizeof *values);
    TUTTI_TRY(tutti_comm_agree(
        comm, values ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory")));
    for (int g = 0; g < mine; g++) values[g] = signature(&own->list[g]);
    status = tutti__comm_compare(comm, values, most, "grad_sync_create", &differ, &first, ranks,
                                 sizeof ranks);
    free(values);
    TUTTI_TRY(status);
    if (differ < 0) return TUTTI_OK;
    char here[192] = "", there[192] = "";
    describe(own, differ, comm->rank == first ? there : here, sizeof here);
    TUTTI_TRY(comm->control->broadcast(comm, here, sizeof here, 0, "grad_sync_create"));
    TUTTI_TRY(comm->control->broadcast(comm, there, sizeof there, first, "grad_sync_create"));
    return tutti__fail(
        TUTTI_ERR_COMM,
        "grad_sync_create: parameter %d is %s on rank 0 and %s on rank %d (%s "
        "against rank 0); every rank must list the same parameters in the same order",
        differ, here, there, first, ranks);
}
