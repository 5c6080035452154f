/* test_golden.c - each pass on the graphs of tests/simplify/cases: NAME.in, with a comment that
 * says what must happen, and NAME.out, checked by hand against it. DTRC_BLESS=1 writes the .out
 * files. */
#include "golden.h"

static Graph *images(Arena *a, const Graph *g) {
    Diag d;
    diag_init(&d, a, stderr);
    return simplify_clean(a, channels_last(a, &d, g));
}

static Graph *forward(Arena *a, const Graph *g) {
    Diag d;
    diag_init(&d, a, stderr);
    return simplify_forward(a, &d, g);
}

static Graph *sums(Arena *a, const Graph *g) {
    return simplify_clean(a, join_sums(a, g));
}

static const struct {
    const char *name;
    Graph *(*pass)(Arena *, const Graph *);
} cases[] = {
    {"image", images},
    {"shuffle", images},
    {"patches", images},
    {"plain", images},
    {"norm", forward},
    {"activations", forward},
    {"library", forward},
    {"bn_block", fuse_graph},
    {"forward", fuse_graph},
    {"memory", fuse_graph},
    {"update", fuse_graph},
    {"swish", fuse_graph},
    {"update_view", fuse_graph},
    {"factors", forward},
    {"parts", simplify_clean},
    {"sums", sums},
    {"rms", forward},
    {"tanh", forward},
    {"group", forward},
    {"attention", forward},
    {"bias", forward},
    {"bce", forward},
};

int main(void) {
    Arena *a = arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n;
        const char *in = arena_printf(a, "tests/simplify/cases/%s.in", cases[i].name);
        const char *out = arena_printf(a, "tests/simplify/cases/%s.out", cases[i].name);
        char *text = file_read(a, in, 1 << 20, &n);
        CHECK(text != NULL);
        if (!text) continue;
        const char *got = after(cases[i].pass, text);
        if (getenv("DTRC_BLESS")) CHECK(file_write(out, got, strlen(got)));
        char *want = file_read(a, out, 1 << 20, &n);
        CHECK(want != NULL);
        if (want) CHECK_STR(got, want);
    }
    arena_free(a);
    return test_end();
}
