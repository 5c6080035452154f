/* simplify.c - the order of the passes. */
#include "passes.h"

Graph *simplify_forward(Arena *a, Diag *d, const Graph *g) {
    (void)d;
    Graph *x = simplify_clean(a, g);
    x = lower_graph(a, x);
    return simplify_clean(a, x);
}

Graph *simplify_step(Arena *a, Diag *d, const Graph *g) {
    (void)d;
    return simplify_clean(a, g);
}
