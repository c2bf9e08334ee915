/* Writes JSON.  Texts are escaped, and bytes that are not UTF-8 become U+FFFD; a number that is not
 * finite becomes null.  Write errors are left to whoever closes the file. */
#ifndef TUTTI_APPS_JSON_H
#define TUTTI_APPS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct app_json {
    FILE *file;  /* NULL: the calls do nothing */
    int lines;   /* outer levels in which each value has a line of its own */
    bool spaced; /* blanks after : and , */
    /* private */
    int depth;
    bool filled; /* the innermost level has a value */
} app_json;

/* key: NULL in an array and for the outermost value.  bracket: '{' or '['. */
void app_json_open(app_json *json, const char *key, char bracket);
void app_json_close(app_json *json, char bracket);
void app_json_text(app_json *json, const char *key, const char *value);
void app_json_int(app_json *json, const char *key, int64_t value);
void app_json_real(app_json *json, const char *key, double value);
void app_json_bool(app_json *json, const char *key, bool value);
/* An array of values that lie `stride` apart. */
void app_json_reals(app_json *json, const char *key, const double *values, int count, int stride);

#endif
