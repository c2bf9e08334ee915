/* The program's work between app_group_start and app_group_leave. */
#ifndef TUTTI_VALIDATE_VALIDATE_H
#define TUTTI_VALIDATE_VALIDATE_H

#include "options.h"
#include "subject.h"

/* Returns an agreed code. */
int validate(const validate_options *options, app_group *group);

#endif
