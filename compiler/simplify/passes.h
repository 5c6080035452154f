/* passes.h - the passes of this room, each a graph to a new graph. */
#ifndef DTRC_PASSES_H
#define DTRC_PASSES_H

#include "rewrite.h"

const Graph *channels_last(Arena *a, Diag *d,
                           const Graph *g);   /* channels_last.c; g itself without images */
Graph *lower_graph(Arena *a, const Graph *g); /* lower.c */
Graph *fuse_graph(Arena *a, const Graph *g);  /* fuse.c */

#endif
