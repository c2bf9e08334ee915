/* --checkpoint: cases made of the layers of a checkpoint, with its trained weights and random
 * inputs.
 *
 * A checkpoint has names, shapes and values, but not what layers they belong to.  So the kind is
 * told by the parameters' names and dimensions: of the kinds that may have just these, the one that
 * leaves out fewest of its own.  (A kind that could be meant too often says in its own file that
 * the layer's name must tell it.)  Options that the parameters do not say have their defaults,
 * types are the masters'.  What is expected is computed in f64, with the bounds (bounds.h). */
#ifndef TUTTI_VALIDATE_TRAINED_H
#define TUTTI_VALIDATE_TRAINED_H

#include "subject.h"

typedef struct trained trained;

/* Finds the layers; reads no weights.  Not collective. */
int trained_open(const validate_options *options, trained **made);
/* Reads the weights.  Collective. */
int trained_load(trained *t, validator *v);
void trained_close(trained **t);

int trained_count(const trained *t);
const tutti_case *trained_case(const trained *t, int index);
source trained_source(const trained *t, int index);

#endif
