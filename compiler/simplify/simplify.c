/* simplify.c - the order of the passes. */
#include "passes.h"

Graph *simplify_forward(Arena *a, Diag *d, const Graph *g) {
    const Graph *x = group_norms(a, join_biases(a, simplify_clean(a, g)));
    x = channels_last(a, d, simplify_clean(a, x));
    x = simplify_clean(a, lower_graph(a, x));
    x = simplify_clean(a, match_patterns(a, x));
    return simplify_clean(a, join_entropies(a, join_attention(a, x)));
}

Graph *simplify_step(Arena *a, const Graph *g) {
    return fuse_graph(a, simplify_clean(a, join_sums(a, g)));
}
