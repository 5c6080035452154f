/* fuzz_ir.c - any text as a graph: what the parser accepts, the verifier can judge; what both
 * accept prints to a text that gives the same print again. */
#include "ops.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    char *text = arena_strn(a, (const char *)data, size);
    Graph *g = ir_parse(a, &d, "fuzz.ir", text);
    if (!g && !d.errors) abort();
    if (g && ir_verify(&d, g)) {
        Text once, twice;
        text_init(&once, a);
        text_init(&twice, a);
        ir_print(&once, g);
        Graph *h = ir_parse(a, &d, "again.ir", once.at ? once.at : "");
        if (!h) {
            fputs(d.log.at, stderr);
            abort();
        }
        ir_print(&twice, h);
        if (once.n != twice.n || (once.n && memcmp(once.at, twice.at, once.n))) abort();
    }
    arena_free(a);
    return 0;
}
