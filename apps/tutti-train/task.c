/* The list of tasks. */
#include "task.h"

const task_class *const task_classes[] = {&fashion_task, &bytes_task, NULL};
