/* packed.h - which values are kept in the library's packed weight layout. Internal to the room. */
#ifndef DTRC_PACKED_H
#define DTRC_PACKED_H

#include "ops.h"

/* Sets packed[v] for every weight that qualifies, its gradient and its optimizer states. */
void fill_packed(Arena *scratch, const Graph *g, bool *packed);

#endif
