/* passes.h - the passes of this room, each a graph to a new graph. */
#ifndef DTRC_PASSES_H
#define DTRC_PASSES_H

#include "rewrite.h"

/* g itself when it has no group normalization */
const Graph *group_norms(Arena *a, const Graph *g);
/* g itself when it has no softmax */
const Graph *join_attention(Arena *a, const Graph *g);
/* g itself when it has no logarithm */
const Graph *join_entropies(Arena *a, const Graph *g);
Graph *join_biases(Arena *a, const Graph *g);
/* g itself when it has no images */
const Graph *channels_last(Arena *a, Diag *d, const Graph *g);
Graph *lower_graph(Arena *a, const Graph *g);
Graph *match_patterns(Arena *a, const Graph *g);
Graph *join_sums(Arena *a, const Graph *g);
Graph *fuse_graph(Arena *a, const Graph *g);

#endif
