/* --checkpoint: cases made of the layers of a checkpoint, with its trained weights and random
 * inputs.
 *
 * A checkpoint has names, shapes and values, but not the kinds of its layers.  The kind is guessed
 * from the parameters' names and dimensions: of the kinds that can have exactly these, the one that
 * leaves out fewest of its own.  (For a lookup table, the layer's name must contain the kind's,
 * too.) Options that cannot be derived from parameters have their defaults, types are the masters'.
 * Expected results are computed along with the bounds (bounds.h). */
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
