/* Labelled images from IDX files. */
#ifndef TUTTI_TRAIN_FASHION_DATA_H
#define TUTTI_TRAIN_FASHION_DATA_H

#include <stdint.h>

#include "common/files.h"

enum { DATA_PIXELS = 28 * 28, DATA_CLASSES = 10 };

typedef struct dataset {
    int64_t count;
    uint8_t *images; /* [count][DATA_PIXELS] */
    uint8_t *labels; /* [count], below DATA_CLASSES */
} dataset;

/* Reads <kind>-images-idx3-ubyte and <kind>-labels-idx1-ubyte, with or without .gz, from a
 * folder; kind is "train" or "t10k".  Everything is checked; a failure names the file.  APP_OK
 * or APP_FAILED. */
int dataset_load(dataset *set, const char *folder, const char *kind);

/* Adds the files that dataset_load may read to the list. */
void dataset_list(const char *folder, const char *kind, app_files *files);

void dataset_free(dataset *set);

#endif
