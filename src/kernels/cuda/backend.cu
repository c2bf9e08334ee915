/* The table of the CUDA backend. */
#include "kernels/cuda/cuda.h"

extern "C" const tutti__backend tutti__cuda_backend = {
    .name = "cuda",
    .kind = TUTTI_BACKEND_CUDA,
    .run =
        {
            .device_count = tutti__cuda_device_count,
            .describe = tutti__cuda_describe,
            .stream_create = tutti__cuda_stream_create,
            .stream_destroy = tutti__cuda_stream_destroy,
            .stream_query = tutti__cuda_stream_query,
            .stream_synchronize = tutti__cuda_stream_synchronize,
            .stream_capturing = tutti__cuda_stream_capturing,
            .event_create = tutti__cuda_event_create,
            .event_destroy = tutti__cuda_event_destroy,
            .event_record = tutti__cuda_event_record,
            .event_query = tutti__cuda_event_query,
            .event_elapsed = tutti__cuda_event_elapsed,
            .stream_wait_event = tutti__cuda_stream_wait_event,
            .alloc = tutti__cuda_alloc,
            .free = tutti__cuda_free,
            .host_alloc = tutti__cuda_host_alloc,
            .host_free = tutti__cuda_host_free,
            .copy = tutti__cuda_copy,
            .copy_all = tutti__cuda_copy_all,
            .push = tutti__cuda_push,
            .is_pageable = tutti__cuda_is_pageable,
            .zero = tutti__cuda_zero,
            .hold = tutti__cuda_hold,
            .word_clear = tutti__cuda_word_clear,
            .words_set = tutti__cuda_words_set,
            .words_await = tutti__cuda_words_await,
            .hop = tutti__cuda_hop,
        },
    .op =
        {
#define TUTTI_X(name) .name = &tutti__cuda_##name,
            TUTTI__OPS(TUTTI_X)
#undef TUTTI_X
                .tree_sum = tutti__cuda_tree_sum,
            .hash = tutti__cuda_hash,
            .convert = tutti__cuda_convert,
            .count_labels = tutti__cuda_count_labels,
            .weigh = tutti__cuda_weigh,
            .tuning_get = tutti__cuda_tuning_get,
            .tuning_set = tutti__cuda_tuning_set,
        },
};
