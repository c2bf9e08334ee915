/* The stores that are built and not destroyed, since a parameter does not know its store. */
#include <pthread.h>

#include "core/params.h"

static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static tutti_params *all_built;

void tutti__stores_add(tutti_params *params)
{
    pthread_mutex_lock(&listing);
    params->next_built = all_built;
    all_built = params;
    pthread_mutex_unlock(&listing);
}

void tutti__stores_remove(const tutti_params *params)
{
    pthread_mutex_lock(&listing);
    tutti_params **at = &all_built;
    while (*at && *at != params) at = &(*at)->next_built;
    if (*at) *at = params->next_built;
    pthread_mutex_unlock(&listing);
}

tutti_status tutti__param_unstored(const tutti_param *param, const char *function)
{
    bool stored = false;
    pthread_mutex_lock(&listing);
    for (const tutti_params *p = all_built; p && !stored; p = p->next_built)
        stored = tutti__params_entry_of(p, param) >= 0;
    pthread_mutex_unlock(&listing);
    if (!stored) return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE,
                       "%s: %s has the memory of its store, which is built; want a parameter of "
                       "no such store",
                       function, param->name);
}
