/* passes.h - the passes of this room, each a graph to a new graph. */
#ifndef DTRC_PASSES_H
#define DTRC_PASSES_H

#include "rewrite.h"

Graph *lower_graph(Arena *a, const Graph *g); /* lower.c */

#endif
