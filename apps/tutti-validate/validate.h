/* All that happens between start and leave. */
#ifndef TUTTI_VALIDATE_VALIDATE_H
#define TUTTI_VALIDATE_VALIDATE_H

#include "options.h"
#include "subject.h"

/* The code that the ranks agreed on: 0, APP_MISMATCH or APP_FAILED. */
int validate(const validate_options *options, app_group *group);

#endif
