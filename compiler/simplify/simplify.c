/* simplify.c - the order of the passes. */
#include "passes.h"

static const Graph *forward(Arena *a, Diag *d, const Graph *g) {
    const Graph *x = group_norms(a, join_biases(a, simplify_clean(a, g)));
    x = channels_last(a, d, simplify_clean(a, x));
    x = simplify_clean(a, lower_graph(a, x));
    x = simplify_clean(a, match_patterns(a, x));
    return simplify_clean(a, join_entropies(a, join_attention(a, x)));
}

/* All graphs on the way together are many times as large as the last one. */
Graph *simplify_forward(Arena *a, Diag *d, const Graph *g) {
    Arena *scratch = arena_new();
    Graph *x = ir_copy(a, forward(scratch, d, g), scratch);
    arena_free(scratch);
    return x;
}

Graph *simplify_step(Arena *a, const Graph *g) {
    Arena *scratch = arena_new();
    const Graph *x = fuse_graph(scratch, simplify_clean(scratch, join_sums(scratch, g)));
    Graph *out = ir_copy(a, x, scratch);
    arena_free(scratch);
    return out;
}
