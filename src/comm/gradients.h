/* The parameters of an exchange and their gradients. */
#ifndef TUTTI_COMM_GRADIENTS_H
#define TUTTI_COMM_GRADIENTS_H

#include "comm/comm.h"
#include "comm/ranges.h"
#include "core/layer.h"
#include "core/params.h"

/* A parameter of the exchange.  Entries are sorted by the parameter's address. */
typedef struct tutti__sync_entry {
    const tutti_param *param;
    int gradient;
    tutti_layer *layer;         /* that was declared ready, held, or NULL */
    tutti__exchanged exchanged; /* in that layer's list */
    bool ready;
    bool given; /* its leaves have been added, in a run of several */
} tutti__sync_entry;

typedef struct tutti__gradients {
    tutti__sync_entry *entries;
    int entry_count;
    tutti__gradient *list; /* in the order of the exchange */
    int *missing;          /* per gradient: parameters that are not ready yet */
    int count;
    int64_t bytes;
    int64_t gap;     /* elements of padding allowed between neighbours */
    uint64_t layout; /* tutti__ranges_layout */
} tutti__gradients;

/* Collects the parameters of the store, or of the list, in the order in which backward completes
 * their gradients, which is the order of the exchange.  Local.  To be freed even if it fails. */
tutti_status tutti__gradients_collect(tutti__gradients *own, const tutti_params *params,
                                      const tutti_param *const *list, int count);
void tutti__gradients_free(tutti__gradients *own);

/* The entry of a parameter; NULL if it is not part of the exchange. */
tutti__sync_entry *tutti__gradients_find(const tutti__gradients *own, const tutti_param *param);

/* Fails unless all ranks have the same parameters in the same order.  Collective. */
tutti_status tutti__gradients_compare(const tutti__gradients *own, tutti_comm *comm);

#endif
