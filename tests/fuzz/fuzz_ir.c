/* fuzz_ir.c - any text as a graph: what the parser accepts, the verifier can judge; what both
 * accept prints to a text that gives the same print again. A forward graph that inference
 * agrees with is simplified, and the result must be right too. */
#include "simplify.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_again(Arena *a, Diag *d, const Graph *g) {
    Text once, twice;
    text_init(&once, a);
    text_init(&twice, a);
    ir_print(&once, g);
    Graph *h = ir_parse(a, d, "again.ir", once.at ? once.at : "");
    if (!h) {
        fputs(d->log.at, stderr);
        abort();
    }
    ir_print(&twice, h);
    if (once.n != twice.n || (once.n && memcmp(once.at, twice.at, once.n))) abort();
}

static bool is_forward(const Graph *g) {
    bool is = g->loss == NO_ID;
    for (NodeId n = 0; n < g->nnode; n++) is = is && g->node[n].phase == PHASE_FORWARD;
    return is;
}

static void simplify(Arena *a, Diag *d, const Graph *g) {
    const Graph *s = simplify_forward(a, d, g);
    if (s ? ir_verify(d, s) && op_check(d, s) : d->errors > 0) return;
    fputs(d->log.at, stderr);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    char *text = arena_strn(a, (const char *)data, size);
    Graph *g = ir_parse(a, &d, "fuzz.ir", text);
    if (!g && !d.errors) abort();
    if (g && ir_verify(&d, g)) {
        print_again(a, &d, g);
        if (op_check(&d, g) && is_forward(g)) simplify(a, &d, g);
    }
    arena_free(a);
    return 0;
}
