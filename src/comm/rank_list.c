/* Lists of ranks, for messages. */
#include "comm/rank_list.h"

#include <stdio.h>
#include <string.h>

void tutti__rank_list_add(char *text, size_t size, int rank)
{
    size_t used = strlen(text);
    if (used == 0)
        snprintf(text, size, "rank %d", rank);
    else if (used + 16 < size) {
        if (!strncmp(text, "rank ", 5)) {
            memmove(text + 5, text + 4, used - 3);
            text[4] = 's';
            used++;
        }
        snprintf(text + used, size - used, ", %d", rank);
    } else if (used + 4 < size && text[used - 1] != '.')
        strcat(text, "...");
}
