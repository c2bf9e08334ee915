/* Cutting gradients into ranges.  A range grows over neighbours in memory, upwards or downwards,
 * until it is full; a large gradient is cut inside, at multiples of CUT elements, so that every
 * piece stays aligned. */
#include "comm/ranges.h"

#include <stdlib.h>

#define CUT TUTTI_PARAM_ALIGN
#define PIECE_MAX ((int64_t)1 << 30) /* elements; MPI counts are int */

typedef struct cutter {
    tutti__range *ranges;
    int count, room;
    bool open; /* the last range may grow */
} cutter;

static tutti_status open_range(cutter *cut, tutti_dtype dtype)
{
    if (cut->count == cut->room) {
        int room = cut->room ? 2 * cut->room : 16;
        tutti__range *grown = realloc(cut->ranges, (size_t)room * sizeof *grown);
        if (!grown) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
        cut->ranges = grown;
        cut->room = room;
    }
    cut->ranges[cut->count++] = (tutti__range){.dtype = dtype, .last_gradient = -1};
    cut->open = true;
    return TUTTI_OK;
}

/* Elements that a range may have, for about this many bytes. */
static int64_t elements(size_t bytes, size_t size)
{
    int64_t count = bytes / size > (size_t)PIECE_MAX ? PIECE_MAX : (int64_t)(bytes / size);
    return count < CUT ? CUT : count / CUT * CUT;
}

/* Bytes at the end that make up the last range: whole gradients as far as they fit, otherwise a
 * piece of the last. */
static size_t tail_bytes(const tutti__gradient *gradients, int count, size_t limit)
{
    size_t tail = 0;
    for (int i = count - 1; i >= 0; i--) {
        size_t bytes = (size_t)gradients[i].count * tutti_dtype_size(gradients[i].dtype);
        if (gradients[i].dtype != gradients[count - 1].dtype || tail + bytes > limit) break;
        tail += bytes;
    }
    if (tail || count == 0) return tail;
    const tutti__gradient *last = &gradients[count - 1];
    size_t size = tutti_dtype_size(last->dtype);
    int64_t room = elements(limit, size);
    int64_t head = last->count > room ? (last->count - room + CUT - 1) / CUT * CUT : 0;
    return (size_t)(last->count - head) * size;
}

/* Where the rest [lo, hi) of a gradient joins a range: 1 above it, -1 below it, 0 nowhere. */
static int side(const tutti__range *range, const char *lo, const char *hi, int64_t gap)
{
    if (gap < 0) return 0;
    size_t size = tutti_dtype_size(range->dtype);
    const char *end = range->data + (size_t)range->count * size;
    size_t slack = (size_t)gap * size;
    if (lo >= end && (size_t)(lo - end) <= slack) return 1;
    if (hi <= range->data && (size_t)(range->data - hi) <= slack) return -1;
    return 0;
}

/* Puts `take` elements of gradient i's rest [*lo, *hi) into the last range. */
static void grow(cutter *cut, int i, char **lo, char **hi, int64_t take, int at)
{
    tutti__range *range = &cut->ranges[cut->count - 1];
    size_t size = tutti_dtype_size(range->dtype), bytes = (size_t)take * size;
    char *piece = at < 0 ? *hi - bytes : *lo;
    if (!range->data) {
        range->data = piece;
        range->count = take;
    } else if (at > 0)
        range->count = (int64_t)((size_t)(piece - range->data) / size) + take;
    else {
        range->count += (int64_t)((size_t)(range->data - piece) / size);
        range->data = piece;
    }
    if (at < 0)
        *hi = piece;
    else
        *lo = piece + bytes;
    if (range->last_gradient != i) range->gradients++;
    range->last_gradient = i;
}

static size_t bytes_of(const tutti__gradient *gradient)
{
    return (size_t)gradient->count * tutti_dtype_size(gradient->dtype);
}

/* True if b follows a in memory, with at most `gap` elements between them. */
static bool follows(const tutti__gradient *a, const tutti__gradient *b, int64_t gap)
{
    const char *end = a->data + bytes_of(a);
    return gap >= 0 && a->dtype == b->dtype && b->data >= end &&
           (size_t)(b->data - end) <= (size_t)gap * tutti_dtype_size(a->dtype);
}

static int by_address(const void *a, const void *b)
{
    uintptr_t p = (uintptr_t)(*(const tutti__gradient *const *)a)->data;
    uintptr_t q = (uintptr_t)(*(const tutti__gradient *const *)b)->data;
    return p < q ? -1 : p > q;
}

tutti_status tutti__ranges_layout(const tutti__gradient *gradients, int count, int64_t gap,
                                  uint64_t *layout)
{
    /* per gradient: the list index of the first one of its block, and the distance from it */
    const size_t n = (size_t)count;
    const tutti__gradient **sorted = malloc((n + 1) * sizeof *sorted);
    int64_t(*places)[2] = malloc((n + 1) * sizeof *places);
    *layout = TUTTI__HASH_START;
    if (sorted && places) {
        for (size_t i = 0; i < n; i++) sorted[i] = &gradients[i];
        qsort(sorted, n, sizeof *sorted, by_address);
        const tutti__gradient *first = NULL;
        for (size_t i = 0; i < n; i++) {
            if (i == 0 || !follows(sorted[i - 1], sorted[i], gap)) first = sorted[i];
            places[sorted[i] - gradients][0] = first - gradients;
            places[sorted[i] - gradients][1] = sorted[i]->data - first->data;
        }
        *layout = tutti__hash(*layout, places, n * sizeof *places);
    }
    bool made = sorted && places;
    free(sorted);
    free(places);
    return made ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
}

tutti_status tutti__ranges_cut(tutti__gradient *gradients, int count, int64_t gap,
                               size_t range_bytes, size_t last_range_bytes, tutti__range **ranges,
                               int *range_count)
{
    size_t limit = last_range_bytes < range_bytes ? last_range_bytes : range_bytes;
    size_t rest_bytes = 0, tail = tail_bytes(gradients, count, limit);
    for (int i = 0; i < count; i++)
        rest_bytes += (size_t)gradients[i].count * tutti_dtype_size(gradients[i].dtype);
    cutter cut = {NULL, 0, 0, false};
    for (int i = 0; i < count; i++) {
        tutti__gradient *g = &gradients[i];
        size_t size = tutti_dtype_size(g->dtype);
        char *lo = g->data, *hi = lo + (size_t)g->count * size;
        int64_t full = elements(range_bytes, size);
        /* when gradients descend in memory, a piece is cut from the upper end, so that the next
         * joins it */
        int direction = i + 1 < count && follows(&gradients[i + 1], g, gap) ? -1 : 1;
        g->first_range = -1;
        while (lo < hi) {
            tutti__range *last = cut.open ? &cut.ranges[cut.count - 1] : NULL;
            int at =
                last && last->dtype == g->dtype && last->count < full ? side(last, lo, hi, gap) : 0;
            int64_t room = full;
            if (at) {
                const char *edge = at > 0 ? last->data + (size_t)last->count * size : hi;
                const char *from = at > 0 ? lo : last->data;
                room = full - last->count - (int64_t)((size_t)(from - edge) / size);
            }
            if (!at || room <= 0) {
                tutti_status status = open_range(&cut, g->dtype);
                if (status != TUTTI_OK) {
                    free(cut.ranges);
                    return status;
                }
                at = direction;
                room = full;
            }
            int64_t take = (int64_t)((size_t)(hi - lo) / size);
            if (take > room) take = room;
            /* the last range begins where the tail does */
            if (rest_bytes > tail && rest_bytes - (size_t)take * size < tail)
                take = (int64_t)((rest_bytes - tail) / size);
            if (g->first_range < 0) g->first_range = cut.count - 1;
            g->last_range = cut.count - 1;
            grow(&cut, i, &lo, &hi, take, at);
            rest_bytes -= (size_t)take * size;
            if (rest_bytes == tail) cut.open = false;
        }
    }
    *ranges = cut.ranges;
    *range_count = cut.count;
    return TUTTI_OK;
}

static int64_t overlap(const tutti__range *range, const char *range_end, const char *data,
                       const char *end)
{
    return (end < range_end ? end : range_end) - (data > range->data ? data : range->data);
}

tutti_status tutti__ranges_of_store(const tutti_params *params, tutti__gradient *gradients,
                                    int count, tutti__range **ranges, int *range_count)
{
    const tutti_dtype dtype = params->desc.master_dtype;
    const int64_t size = (int64_t)tutti_dtype_size(dtype);
    tutti__range *made = calloc((size_t)params->range_count + 1, sizeof *made);
    if (!made) return tutti__fail(TUTTI_ERR_MEMORY, "grad_sync_create: no memory");
    for (int g = 0; g < count; g++) gradients[g].first_range = -1;
    for (int r = 0; r < params->range_count; r++) {
        const tutti__span *span = &params->ranges[r];
        made[r] = (tutti__range){.data = (char *)params->grad + span->first * size,
                                 .count = span->count,
                                 .dtype = dtype};
        const char *end = made[r].data + span->count * size;
        int64_t padding = span->count * size;
        for (int g = 0; g < count; g++) {
            tutti__gradient *gradient = &gradients[g];
            if (gradient->data >= end || gradient->data + gradient->count * size <= made[r].data)
                continue;
            if (gradient->first_range < 0) gradient->first_range = r;
            gradient->last_range = r;
            made[r].last_gradient = g;
            made[r].gradients++;
            padding -=
                overlap(&made[r], end, gradient->data, gradient->data + gradient->count * size);
        }
        made[r].whole = padding == 0;
    }
    *ranges = made;
    *range_count = params->range_count;
    return TUTTI_OK;
}
