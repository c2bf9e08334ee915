/* Writes JSON. */
#include "common/json.h"

#include <math.h>
#include <string.h>

#include "tutti/tutti.h"

/* Bytes of the text's first character if tutti_text_clean leaves it alone; otherwise 0. */
static size_t character(const char *text)
{
    char first[5];
    const unsigned char lead = (unsigned char)*text;
    const size_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    snprintf(first, bytes + 1, "%s", text);
    return strncmp(tutti_text_clean(first), text, bytes) == 0 ? bytes : 0;
}

static void put_text(FILE *file, const char *text)
{
    fputc('"', file);
    while (*text) {
        const unsigned char c = (unsigned char)*text;
        const size_t bytes = c < 0x80 ? 1 : character(text);
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < ' ' || c == 0x7f)
            fprintf(file, "\\u%04x", c);
        else if (bytes)
            fwrite(text, 1, bytes, file);
        else
            fputs("\\ufffd", file);
        text += bytes ? bytes : 1;
    }
    fputc('"', file);
}

static void end_line(const app_json *json)
{
    if (json->depth <= json->lines) fprintf(json->file, "\n%*s", 2 * json->depth, "");
}

/* Writes what precedes a value: comma, line break, key. */
static bool begin(app_json *json, const char *key)
{
    if (!json->file) return false;
    const bool own_line = json->depth > 0 && json->depth <= json->lines;
    if (json->filled && json->depth > 0) fputs(json->spaced && !own_line ? ", " : ",", json->file);
    if (own_line) end_line(json);
    if (key) put_text(json->file, key);
    if (key) fputs(json->spaced ? ": " : ":", json->file);
    json->filled = true;
    return true;
}

void app_json_open(app_json *json, const char *key, char bracket)
{
    if (!begin(json, key)) return;
    fputc(bracket, json->file);
    json->depth++;
    json->filled = false;
}

void app_json_close(app_json *json, char bracket)
{
    if (!json->file) return;
    const bool own_line = json->filled && json->depth <= json->lines;
    json->depth--;
    if (own_line) end_line(json);
    fputc(bracket, json->file);
    json->filled = true;
}

void app_json_text(app_json *json, const char *key, const char *value)
{
    if (begin(json, key)) put_text(json->file, value);
}

void app_json_int(app_json *json, const char *key, int64_t value)
{
    if (begin(json, key)) fprintf(json->file, "%lld", (long long)value);
}

void app_json_real(app_json *json, const char *key, double value)
{
    if (!begin(json, key)) return;
    if (isfinite(value))
        fprintf(json->file, "%.17g", value);
    else
        fputs("null", json->file);
}

void app_json_bool(app_json *json, const char *key, bool value)
{
    if (begin(json, key)) fputs(value ? "true" : "false", json->file);
}

void app_json_reals(app_json *json, const char *key, const double *values, int count, int stride)
{
    app_json_open(json, key, '[');
    for (int i = 0; i < count; i++) app_json_real(json, NULL, values[i * stride]);
    app_json_close(json, ']');
}
