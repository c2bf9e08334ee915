/* Sharded stores: ranges, slices, and what a store of one shard keeps. */
#include <stdlib.h>

#include "core/params.h"

#define LAST_RANGE_BYTES ((int64_t)1 << 20) /* overlaps with no backward, so it is small */
/* By default a range is an eighth of the gradients, within these bounds: each costs the host 6 to
 * 15 us a step, but a large one is ready late. */
#define LEAST_RANGE_BYTES ((int64_t)32 << 20)
#define MOST_RANGE_BYTES ((int64_t)128 << 20)

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t divide_up(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

tutti__span tutti__shard_slice(const tutti__span *range, int shard, int shards)
{
    const int64_t each = divide_up(divide_up(range->count, TUTTI__NORM_RUN), shards);
    const int64_t begin = least(shard * each * TUTTI__NORM_RUN, range->count);
    const int64_t end = least((shard + 1) * each * TUTTI__NORM_RUN, range->count);
    return (tutti__span){range->first + begin, end - begin};
}

/* Cuts elements from `first` on into ranges of equal slices of whole runs, and what is left, of
 * which the end may be a range by itself. */
static void cut(tutti_params *params, int64_t first, int64_t end, int64_t each, int64_t last)
{
    const int64_t unit = (int64_t)params->desc.shards * TUTTI__NORM_RUN;
    while (first < end) {
        int64_t here = least(end - first, each);
        if (first + here == end && here > last)
            here = least(divide_up(here - last, unit) * unit, here);
        params->ranges[params->range_count++] = (tutti__span){first, here};
        first += here;
    }
}

/* A range's values have one type. */
static tutti_status cut_ranges(tutti_params *params)
{
    const int64_t size = (int64_t)tutti_dtype_size(params->desc.master_dtype);
    int64_t bytes = (int64_t)params->desc.range_bytes;
    if (bytes == 0) {
        bytes = least(params->trained * size / 8, MOST_RANGE_BYTES);
        if (bytes < LEAST_RANGE_BYTES) bytes = LEAST_RANGE_BYTES;
    }
    const int64_t wanted = bytes / size;
    const int64_t unit = (int64_t)params->desc.shards * TUTTI__NORM_RUN;
    const int64_t each = wanted > unit ? wanted / unit * unit : unit;
    const int64_t last = LAST_RANGE_BYTES / size;
    params->ranges = calloc((size_t)(params->trained / each) + 4, sizeof *params->ranges);
    if (!params->ranges) return tutti__fail(TUTTI_ERR_MEMORY, "params_build: no memory");
    cut(params, 0, params->rounded, each, last);
    cut(params, params->rounded, params->trained, each, last);
    return TUTTI_OK;
}

static tutti_status keep_slices(tutti_params *params)
{
    params->own = calloc((size_t)params->range_count + 1, sizeof *params->own);
    if (!params->own) return tutti__fail(TUTTI_ERR_MEMORY, "params_build: no memory");
    for (int r = 0; r < params->range_count; r++) {
        const tutti__span slice =
            tutti__shard_slice(&params->ranges[r], params->desc.shard, params->desc.shards);
        if (slice.count == 0) continue;
        params->own[params->own_count++] = (tutti__slice){.span = slice, .local = params->kept};
        params->kept += slice.count;
        if (slice.first < params->rounded) params->kept_masters += slice.count;
    }
    params->parted = params->rounded > 0;
    return TUTTI_OK;
}

tutti_status tutti__shard_lay_out(tutti_params *params)
{
    if (params->desc.shards > 0) {
        TUTTI_TRY(cut_ranges(params));
        return keep_slices(params);
    }
    params->own = calloc(1, sizeof *params->own);
    if (!params->own) return tutti__fail(TUTTI_ERR_MEMORY, "params_build: no memory");
    params->own[0].span.count = params->kept = params->trained;
    params->own_count = params->trained > 0;
    return TUTTI_OK;
}

static void *element(const tutti_params *params, int64_t at)
{
    return (char *)params->master + (size_t)at * tutti_dtype_size(params->desc.master_dtype);
}

void *tutti__masters_at(const tutti_params *params, int64_t at)
{
    if (!params->parted) return element(params, at);
    return at < params->rounded ? NULL
                                : element(params, params->kept_masters + at - params->rounded);
}

int64_t tutti__masters_count(const tutti_params *params)
{
    return params->parted ? params->kept_masters + params->count - params->rounded : params->count;
}

void tutti__shard_bind(tutti_params *params)
{
    for (int i = 0; i < params->own_count; i++) {
        tutti__slice *own = &params->own[i];
        void *whole = tutti__masters_at(params, own->span.first);
        own->master = whole ? whole : element(params, own->local);
    }
}

tutti_status tutti__params_link(const tutti_params *params, tutti__shard_link **link,
                                const char *function)
{
    *link = params->link;
    if (params->desc.shards <= 1 || params->link) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE,
                       "%s: the store is one of %d shards and has no exchange "
                       "(tutti_grad_sync_create)",
                       function, params->desc.shards);
}

tutti_status tutti__shard_refresh(tutti_params *params, tutti_context *ctx)
{
    const size_t size = tutti_dtype_size(params->working_dtype);
    const int64_t frozen = params->count - params->trained;
    tutti__shard_link *link;
    TUTTI_TRY(tutti__params_link(params, &link, "params_refresh"));
    TUTTI_TRY(tutti__values_await(params, ctx, TUTTI__VALUES_ALL));
    if (link) TUTTI_TRY(link->begin(link, ctx, false));
    for (int i = 0; i < params->own_count && params->own[i].span.first < params->rounded; i++) {
        const tutti__slice *own = &params->own[i];
        TUTTI_TRY(params->backend->op.convert(
            ctx, (char *)params->working + (size_t)own->span.first * size, params->working_dtype,
            own->master, params->desc.master_dtype, own->span.count));
    }
    if (frozen > 0)
        TUTTI_TRY(params->backend->op.convert(
            ctx, (char *)params->working + (size_t)params->trained * size, params->working_dtype,
            tutti__masters_at(params, params->trained), params->desc.master_dtype, frozen));
    return link ? link->gather(link, ctx, false) : TUTTI_OK;
}
