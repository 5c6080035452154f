/* build.h - graphs for the engine by hand: persistent and temporary storages, runs in order. */
#ifndef TEST_DTR_BUILD_H
#define TEST_DTR_BUILD_H

#include "dtr.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_IN, LIST_OUT, LIST_INPLACE, LIST_WRITES, LIST_READS, LIST_COUNT };

typedef struct {
    DtrGraph g;
    uint32_t most; /* runs, storages, and items of each list */
    void *lists;
} Build;

static inline void *build_array(uint64_t n, size_t element) {
    void *at = calloc(n + 1, element);
    if (!at) abort();
    return at;
}

static inline DtrLists *build_list(DtrGraph *g, int which) {
    DtrLists *all[LIST_COUNT] = {&g->in, &g->out, &g->inplace, &g->writes, &g->reads};
    return all[which];
}

/* At most `most` runs, storages, and items of each list. */
static inline Build build_new(uint32_t most) {
    Build b = {.g = {.align = 1}, .most = most};
    DtrGraph *g = &b.g;
    g->effect = build_array(most, sizeof *g->effect);
    g->ns = build_array(most, sizeof *g->ns);
    g->workspace = build_array(most, sizeof *g->workspace);
    g->bytes = build_array(most, sizeof *g->bytes);
    g->is_temp = build_array(most, sizeof *g->is_temp);
    g->storage = build_array(most, sizeof *g->storage);
    g->def = build_array(most, sizeof *g->def);
    g->output = build_array(most, sizeof *g->output);
    for (int k = 0; k < LIST_COUNT; k++) {
        DtrLists *l = build_list(g, k);
        l->first = build_array(most, sizeof *l->first);
        l->at = build_array(most, sizeof *l->at);
    }
    return b;
}

static inline void build_free(Build *b) {
    DtrGraph *g = &b->g;
    void *all[] = {g->effect,  g->ns,  g->workspace, g->bytes, g->is_temp,
                   g->storage, g->def, g->output,    b->lists};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    for (int k = 0; k < LIST_COUNT; k++) {
        free(build_list(g, k)->first);
        free(build_list(g, k)->at);
    }
}

static inline void build_add(Build *b, int which, uint32_t item) {
    DtrLists *l = build_list(&b->g, which);
    l->at[l->first[b->g.nrun]++] = item;
}

/* bytes 0: persistent. */
static inline uint32_t build_storage(Build *b, uint64_t bytes) {
    DtrGraph *g = &b->g;
    uint32_t s = g->nstorage++;
    g->ntensor = g->nstorage;
    g->bytes[s] = bytes;
    g->is_temp[s] = bytes > 0;
    g->storage[s] = s;
    g->def[s] = DTR_NONE;
    return s;
}

/* Ends the run whose lists were filled with build_add; the next one begins. */
static inline uint32_t build_run(Build *b, uint64_t ns) {
    DtrGraph *g = &b->g;
    uint32_t r = g->nrun++;
    g->ns[r] = ns;
    for (int k = 0; k < LIST_COUNT; k++) {
        DtrLists *l = build_list(g, k);
        l->first[r + 1] = l->first[r]; /* so far the end of r's items; build_done shifts */
    }
    for (uint32_t i = r ? g->out.first[r - 1] : 0; i < g->out.first[r]; i++)
        if (g->out.at[i] != DTR_NONE) g->def[g->out.at[i]] = r;
    return r;
}

static inline void build_output(Build *b, uint32_t tensor) {
    b->g.output[b->g.noutput++] = tensor;
}

static inline void build_done(Build *b) {
    DtrGraph *g = &b->g;
    for (int k = 0; k < LIST_COUNT; k++) {
        DtrLists *l = build_list(g, k);
        memmove(l->first + 1, l->first, g->nrun * sizeof *l->first);
        l->first[0] = 0;
    }
    b->lists = build_array(dtr_lists_bytes(g), 1);
    dtr_fill_lists(g, b->lists);
}

/* A training step of n layers: x[i] from x[i-1], then gradients g[i] from g[i+1] and x[i-1]. All
 * of `bytes` bytes and 1000 ns. The input is persistent; the first gradient reads x[n-1] and x[n].
 * The last one is the output. */
static inline Build build_chain(uint32_t n, uint64_t bytes) {
    Build b = build_new(5 * n + 8);
    uint32_t *x = build_array((uint64_t)n + 1, sizeof *x);
    x[0] = build_storage(&b, 0);
    for (uint32_t i = 1; i <= n; i++) {
        if (i > 1) build_add(&b, LIST_IN, x[i - 1]);
        x[i] = build_storage(&b, bytes);
        build_add(&b, LIST_OUT, x[i]);
        build_run(&b, 1000);
    }
    uint32_t grad = x[n];
    for (uint32_t i = n; i >= 1; i--) {
        build_add(&b, LIST_IN, grad);
        if (i > 1) build_add(&b, LIST_IN, x[i - 1]);
        grad = build_storage(&b, bytes);
        build_add(&b, LIST_OUT, grad);
        build_run(&b, 1000);
    }
    build_output(&b, grad);
    build_done(&b);
    free(x);
    return b;
}

#endif
