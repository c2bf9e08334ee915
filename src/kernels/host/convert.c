/* Conversion of flat buffers: dst[i] = src[i], rounded to nearest even. */
#include <string.h>

#include "kernels/host/host.h"

typedef struct convert_task {
    void *dst;
    tutti_dtype dst_dtype;
    const void *src;
    tutti_dtype src_dtype;
} convert_task;

static void convert_range(void *data, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const convert_task *t = data;
    const void *src = tutti__at(t->src, t->src_dtype, begin);
    void *dst = tutti__at(t->dst, t->dst_dtype, begin);
    if (t->src_dtype == t->dst_dtype) {
        if (dst != src) memcpy(dst, src, (size_t)(end - begin) * tutti_dtype_size(t->src_dtype));
        return;
    }
    if (t->src_dtype == TUTTI_F32) {
        tutti__store_f32(dst, t->dst_dtype, src, end - begin);
        return;
    }
    if (t->src_dtype == TUTTI_F64) {
        tutti__store_f64(dst, t->dst_dtype, src, end - begin);
        return;
    }
    /* from 16 bits, via floats, which hold both types exactly */
    enum { WIDTH = 1024 };
    float row[WIDTH];
    for (int64_t i = begin; i < end; i += WIDTH) {
        int64_t width = end - i < WIDTH ? end - i : WIDTH;
        tutti__load_f32(row, tutti__at(t->src, t->src_dtype, i), t->src_dtype, width);
        tutti__store_f32(tutti__at(t->dst, t->dst_dtype, i), t->dst_dtype, row, width);
    }
}

tutti_status tutti__host_convert(tutti_context *ctx, void *dst, tutti_dtype dst_dtype,
                                 const void *src, tutti_dtype src_dtype, int64_t count)
{
    convert_task task = {dst, dst_dtype, src, src_dtype};
    tutti__parallel(ctx, count, 0.5, convert_range, &task);
    return TUTTI_OK;
}
