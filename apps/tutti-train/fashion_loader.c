/* Copies rows of a dataset to the device. */
#include "fashion_loader.h"

#include <stdlib.h>

#include "common/exit_code.h"
#include "common/report.h"

int loader_create(loader *loader, const dataset *set, int64_t first, int64_t count,
                  int64_t capacity, tutti_dtype dtype)
{
    *loader = (struct loader){
        .set = set, .first = first, .count = count, .capacity = capacity, .dtype = dtype};
    const size_t size = tutti_dtype_size(dtype), rows = capacity > 0 ? (size_t)capacity : 1;
    loader->pixels = malloc(256 * size);
    loader->images = malloc(rows * DATA_PIXELS * size);
    loader->labels = malloc(rows * sizeof *loader->labels);
    if (!loader->pixels || !loader->images || !loader->labels)
        return app_fail(APP_FAILED, "no memory for %lld rows of images", (long long)capacity);
    double values[256];
    for (int i = 0; i < 256; i++) values[i] = i / 255.0;
    return app_check(tutti_convert(loader->pixels, dtype, values, TUTTI_F64, 256));
}

void loader_free(loader *loader)
{
    free(loader->order);
    free(loader->pixels);
    free(loader->images);
    free(loader->labels);
    *loader = (struct loader){0};
}

/* [Steele, Lea & Flood 2014] */
static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int loader_shuffle(loader *loader, uint64_t seed, int64_t epoch)
{
    if (!loader->order) loader->order = malloc((size_t)loader->count * sizeof *loader->order);
    if (!loader->order)
        return app_fail(APP_FAILED, "no memory for the order of %lld images",
                        (long long)loader->count);
    uint64_t state = seed;
    state = splitmix64(&state) ^ (uint64_t)epoch;
    for (int64_t i = 0; i < loader->count; i++) loader->order[i] = i;
    for (int64_t i = loader->count - 1; i > 0; i--) {
        /* an IDX file has less than 2^32 images: the high half of the product is nearly uniform
         * below i + 1 */
        const int64_t j = (int64_t)((splitmix64(&state) >> 32) * (uint64_t)(i + 1) >> 32);
        const int64_t kept = loader->order[i];
        loader->order[i] = loader->order[j];
        loader->order[j] = kept;
    }
    return APP_OK;
}

/* dst[i] = table[src[i]] for one element size. */
#define LOOK_UP(type)                                                  \
    do {                                                               \
        const type *table = loader->pixels;                            \
        type *to = (type *)loader->images + row * DATA_PIXELS;         \
        for (int i = 0; i < DATA_PIXELS; i++) to[i] = table[image[i]]; \
    } while (0)

static void look_up(loader *loader, int64_t row, const uint8_t *image)
{
    switch (tutti_dtype_size(loader->dtype)) {
    case 2:
        LOOK_UP(uint16_t);
        break;
    case 4:
        LOOK_UP(uint32_t);
        break;
    default:
        LOOK_UP(uint64_t);
        break;
    }
}

int loader_load(loader *loader, tutti_context *ctx, int64_t row, int64_t rows, void *images,
                int32_t *labels)
{
    if (rows == 0) return APP_OK;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = loader->first + (loader->order ? loader->order[row + i] : row + i);
        look_up(loader, i, loader->set->images + at * DATA_PIXELS);
        loader->labels[i] = loader->set->labels[at];
    }
    const size_t bytes = (size_t)rows * DATA_PIXELS * tutti_dtype_size(loader->dtype);
    APP_CHECK(tutti_copy(ctx, images, loader->images, bytes));
    APP_CHECK(tutti_copy(ctx, labels, loader->labels, (size_t)rows * sizeof *labels));
    return APP_OK;
}
