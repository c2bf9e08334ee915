/* --layers: what the library's tables say of each kind of layer, for who writes a case file. */
#ifndef TUTTI_VALIDATE_KINDS_H
#define TUTTI_VALIDATE_KINDS_H

/* A line an option, tensor and parameter: the kind, what it is, its name, then the rest. */
void kinds_list(void);

#endif
