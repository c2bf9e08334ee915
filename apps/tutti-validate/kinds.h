/* --layers: the library's tables of the kinds of layer, for writing case files. */
#ifndef TUTTI_VALIDATE_KINDS_H
#define TUTTI_VALIDATE_KINDS_H

/* Prints a line for each option, tensor and parameter: kind of layer, role, name, then the rest. */
void kinds_list(void);

#endif
