/* Sharded stores: ranges, slices, and what a store of one shard keeps. */
#include <stdlib.h>

#include "core/params.h"

#define LAST_RANGE_BYTES ((int64_t)1 << 20) /* overlaps with no backward, so it is small */

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

/* Ranges of equal slices of whole runs, then what is left, of which the end is a range by itself.
 */
static tutti_status cut_ranges(tutti_params *params)
{
    const int64_t size = (int64_t)tutti_dtype_size(params->desc.master_dtype);
    const int64_t wanted = (int64_t)(params->desc.range_bytes ? params->desc.range_bytes
                                                              : (size_t)32 << 20) /
                           size;
    const int64_t unit = params->desc.shards * TUTTI__NORM_RUN, count = params->trained;
    const int64_t each = wanted > unit ? wanted / unit * unit : unit;
    const int64_t last = LAST_RANGE_BYTES / size;
    params->ranges = calloc((size_t)(count / each) + 2, sizeof *params->ranges);
    if (!params->ranges) return tutti__fail(TUTTI_ERR_MEMORY, "params_build: no memory");
    for (int64_t first = 0; first < count;) {
        int64_t here = least(count - first, each);
        if (first + here == count && here > last) here = divide_up(here - last, unit) * unit;
        if (here > count - first) here = count - first;
        params->ranges[params->range_count++] = (tutti__span){first, here};
        first += here;
    }
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
    }
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

void *tutti__masters_at(const tutti_params *params, int64_t element)
{
    return (char *)params->master + (size_t)element * tutti_dtype_size(params->desc.master_dtype);
}

tutti_status tutti__shard_refresh(tutti_params *params, tutti_context *ctx)
{
    const size_t size = tutti_dtype_size(params->working_dtype);
    const int64_t frozen = params->count - params->trained;
    tutti__shard_link *link;
    TUTTI_TRY(tutti__params_link(params, &link, "params_refresh"));
    for (int i = 0; i < params->own_count; i++) {
        const tutti__slice *own = &params->own[i];
        TUTTI_TRY(params->backend->op.convert(
            ctx, (char *)params->working + (size_t)own->span.first * size, params->working_dtype,
            own->master, params->desc.master_dtype, own->span.count));
    }
    if (frozen > 0)
        TUTTI_TRY(params->backend->op.convert(
            ctx, (char *)params->working + (size_t)params->trained * size, params->working_dtype,
            tutti__masters_at(params, params->kept), params->desc.master_dtype, frozen));
    return link ? link->gather(link, ctx) : TUTTI_OK;
}
