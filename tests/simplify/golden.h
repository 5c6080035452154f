/* golden.h - text graph in, pass, text graph out. */
#ifndef DTRC_TEST_GOLDEN_H
#define DTRC_TEST_GOLDEN_H

#include "passes.h"
#include "test.h"

/* The text of what `pass` makes of a text graph; both graphs keep the invariants. */
static inline const char *after(Graph *(*pass)(Arena *, const Graph *), const char *text) {
    static Arena *a;
    Diag d;
    Text t;
    if (!a) a = arena_new();
    diag_init(&d, a, stderr);
    Graph *g = ir_parse(a, &d, "test", text);
    CHECK(g && ir_verify(&d, g) && op_check(&d, g));
    if (!g) return "";
    Graph *x = pass(a, g);
    CHECK(ir_verify(&d, x) && op_check(&d, x));
    text_init(&t, a);
    ir_print(&t, x);
    return t.at;
}

#endif
