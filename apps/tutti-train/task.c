/* The tasks there are. */
#include "task.h"

const task_class *const task_classes[] = {&fashion_task, &bytes_task, NULL};
