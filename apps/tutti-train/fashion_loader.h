/* Copies rows of a dataset, in their own or a shuffled order, to the device. */
#ifndef TUTTI_TRAIN_FASHION_LOADER_H
#define TUTTI_TRAIN_FASHION_LOADER_H

#include <stdint.h>

#include "fashion_data.h"
#include "tutti/tutti.h"

typedef struct loader {
    const dataset *set;
    int64_t first, count; /* the part of the set that is used */
    int64_t *order;       /* [count], from 0; NULL: not shuffled */
    int64_t capacity;     /* most rows of a call */
    tutti_dtype dtype;
    void *pixels; /* [256] of dtype: the value of each byte, 0 to 1 */
    void *images; /* [capacity][DATA_PIXELS] of dtype, host */
    int32_t *labels;
} loader;

/* Loads images first to first + count - 1 of set, which must outlive the loader.  On failure
 * loader_free cleans up. */
int loader_create(loader *loader, const dataset *set, int64_t first, int64_t count,
                  int64_t capacity, tutti_dtype dtype);
void loader_free(loader *loader);

/* A new order, by seed and epoch alone. */
int loader_shuffle(loader *loader, uint64_t seed, int64_t epoch);

/* Copies rows row to row + rows - 1 of the order to the context's device. */
int loader_load(loader *loader, tutti_context *ctx, int64_t row, int64_t rows, void *images,
                int32_t *labels);

#endif
