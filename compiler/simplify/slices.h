/* slices.h - private to clean.c and slices.c. */
#ifndef DTRC_SLICES_H
#define DTRC_SLICES_H

#include "rewrite.h"

/* The same elements taken from where they come from (in up to three nodes); NO_ID: they are made
 * right there. */
ValueId clean_slice(Rewrite *r, const Node *n);

#endif
