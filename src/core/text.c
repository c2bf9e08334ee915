/* Text of messages: types and shapes; what is of unknown origin (a file, another rank, a command
 * line) is made safe for a terminal. */
#include "core/text.h"

#include <stdio.h>

const char *tutti__dtype_text(tutti_dtype dtype)
{
    return dtype ? tutti_dtype_name(dtype) : "of dtype 0 (not set)";
}

const char *tutti__dims_text(const tutti_tensor *tensor, char text[TUTTI__DIMS_TEXT])
{
    if (tensor->ndim < 1 || tensor->ndim > TUTTI_MAX_DIMS) {
        snprintf(text, TUTTI__DIMS_TEXT, "of %d dimensions", tensor->ndim);
        return text;
    }
    int used = 0;
    for (int i = 0; i < tensor->ndim; i++)
        used += snprintf(text + used, TUTTI__DIMS_TEXT - (size_t)used, "%s%lld", i ? ", " : "[",
                         (long long)tensor->dims[i]);
    snprintf(text + used, TUTTI__DIMS_TEXT - (size_t)used, "]");
    return text;
}

/* False for control characters, line separators and marks that change the writing direction. */
static int is_shown(uint32_t letter)
{
    const int direction = (letter >= 0x200e && letter <= 0x200f) ||
                          (letter >= 0x2028 && letter <= 0x202e) ||
                          (letter >= 0x2066 && letter <= 0x2069);
    return letter >= 0x20 && !(letter >= 0x7f && letter < 0xa0) && !direction;
}

/* Bytes of the UTF-8 character at the beginning of a text; 0 if it is invalid or not to be
 * shown. */
static int letter_bytes(const unsigned char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char c = text[0];
    const int count = c < 0x80             ? 1
                      : (c & 0xe0) == 0xc0 ? 2
                      : (c & 0xf0) == 0xe0 ? 3
                      : (c & 0xf8) == 0xf0 ? 4
                                           : 0;
    uint32_t letter = count > 1 ? c & (0x7fu >> count) : c;
    for (int i = 1; i < count; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        letter = letter << 6 | (text[i] & 0x3f);
    }
    const int valid = count > 0 && letter >= least[count] && letter <= 0x10ffff &&
                      !(letter >= 0xd800 && letter <= 0xdfff);
    return valid && is_shown(letter) ? count : 0;
}

char *tutti_text_clean(char *text)
{
    for (char *at = text; at && *at;) {
        const int bytes = letter_bytes((const unsigned char *)at);
        if (bytes == 0) *at = '?';
        at += bytes > 0 ? bytes : 1;
    }
    return text;
}
