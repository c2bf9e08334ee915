/* Lists of ranks, for messages. */
#ifndef TUTTI_COMM_RANK_LIST_H
#define TUTTI_COMM_RANK_LIST_H

#include <stddef.h>

/* Appends a number to a list "rank 2" -> "ranks 2, 5". */
void tutti__rank_list_add(char *text, size_t size, int rank);

#endif
