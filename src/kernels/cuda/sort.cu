/* A stable sort of pairs: CUB's radix sort.  In a file of its own because CUB's headers declare
 * names of the C library that the other files use. */
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/cuda.h"

tutti_status tutti__cuda_sort_pairs(tutti_context *ctx, void *scratch, size_t *scratch_bytes,
                                    tutti__cuda_pairs *pairs, int64_t count, int bits)
{
    cub::DoubleBuffer<uint32_t> keys(pairs->keys[0], pairs->keys[1]);
    cub::DoubleBuffer<int32_t> values(pairs->values[0], pairs->values[1]);
    TUTTI_CUDA(cub::DeviceRadixSort::SortPairs(scratch, *scratch_bytes, keys, values, (int)count, 0,
                                               bits, tutti__cuda_stream(ctx)),
               "sort");
    if (!scratch) return TUTTI_OK;
    pairs->sorted_keys = keys.Current();
    pairs->sorted_values = values.Current();
    return TUTTI_OK;
}
