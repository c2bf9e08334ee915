/* Every result needs a bound; bounds.h. */
#include "bounds.h"

#include "common/exit_code.h"

int bounds_compute(const subject *s, void *const *alone, double **bounds)
{
    (void)alone, (void)bounds;
    for (int i = 0; i < s->which->tensor_count; i++) {
        const tutti_case_tensor *tensor = &s->which->tensors[i];
        if (subject_is_result(tensor) && !tensor->has_bound)
            return subject_fail(s, "%s/%s has no atol and rtol",
                                tutti_case_part_name(tensor->part), tensor->name);
    }
    return APP_OK;
}
