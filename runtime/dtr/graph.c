/* graph.c - what follows from the primary members of a DtrGraph: the lists per storage are the
 * runs' lists turned around. Every list is enumerated twice by the same function, once to count and
 * once to fill. */
#include "block.h"
#include "dtr.h"

#include <string.h>

typedef struct {
    DtrGraph *g;
    uint32_t *mark, stamp; /* per tensor: seen in the current list */
    bool *written;         /* per storage: somebody mutates it */
    bool fill;             /* second time */
} Lister;

static bool fresh(Lister *l, uint32_t x) {
    if (l->mark[x] == l->stamp) return false;
    l->mark[x] = l->stamp;
    return true;
}

/* While filling, first[key] is where the next item goes. */
static void add(const Lister *l, DtrLists *to, uint32_t key, uint32_t item) {
    if (l->fill)
        to->at[to->first[key]++] = item;
    else
        to->first[key + 1]++;
}

static void list_users(Lister *l) {
    DtrGraph *g = l->g;
    for (uint32_t r = 0; r < g->nrun; r++) {
        l->stamp++;
        DTR_EACH(g->in, r, t) {
            uint32_t s = g->storage[t];
            if (g->is_temp[s] && fresh(l, s)) add(l, &g->users, s, r);
        }
    }
}

static void list_makers(Lister *l) {
    DtrGraph *g = l->g;
    for (uint32_t r = 0; r < g->nrun; r++) {
        l->stamp++;
        DTR_EACH(g->out, r, t)
        if (t != DTR_NONE && g->is_temp[g->storage[t]] && fresh(l, g->storage[t]))
            add(l, &g->makers, g->storage[t], r);
    }
}

static void list_views(Lister *l) {
    DtrGraph *g = l->g;
    for (uint32_t t = g->nstorage; t < g->ntensor; t++) add(l, &g->views, g->storage[t], t);
}

static void list_readers(Lister *l) {
    DtrGraph *g = l->g;
    for (uint32_t r = 0; r < g->nrun; r++) {
        l->stamp++;
        DTR_EACH(g->writes, r, s) fresh(l, s);
        DTR_EACH(g->reads, r, s)
        if (l->written[s] && fresh(l, s)) add(l, &g->readers, s, r);
    }
}

/* What a maker of s reads is a parent, s its child. */
static void list_relations(Lister *l, DtrLists *to, bool down) {
    DtrGraph *g = l->g;
    for (uint32_t s = 0; s < g->nstorage; s++) {
        if (!g->is_temp[s]) continue;
        l->stamp++;
        fresh(l, s);
        DTR_EACH(g->makers, s, r)
        DTR_EACH(g->in, r, t) {
            uint32_t q = g->storage[t];
            if (!g->is_temp[q] || !fresh(l, q)) continue;
            if (down)
                add(l, to, q, s);
            else
                add(l, to, s, q);
        }
    }
}

static void list_parents(Lister *l) {
    list_relations(l, &l->g->parents, false);
}

static void list_children(Lister *l) {
    list_relations(l, &l->g->children, true);
}

static void turn_around(Lister *l, DtrLists *to, void (*list)(Lister *)) {
    uint32_t n = l->g->nstorage;
    l->fill = false;
    list(l);
    for (uint32_t k = 0; k < n; k++) to->first[k + 1] += to->first[k];
    l->fill = true;
    list(l);
    for (uint32_t k = n; k > 0; k--) to->first[k] = to->first[k - 1];
    to->first[0] = 0;
}

/* Largest working set: operands, results and workspace of one run, less the result that may take
 * over an operand's bytes. No schedule gets below it. */
static void fill_floor(Lister *l) {
    DtrGraph *g = l->g;
    for (uint32_t r = 0; r < g->nrun; r++) {
        uint64_t bytes = g->workspace[r];
        l->stamp++;
        DTR_EACH(g->in, r, t) if (fresh(l, g->storage[t])) bytes += g->bytes[g->storage[t]];
        DTR_EACH(g->out, r, t)
        if (t != DTR_NONE && fresh(l, g->storage[t])) bytes += g->bytes[g->storage[t]];
        if (dtr_len(&g->inplace, r)) bytes -= g->bytes[g->inplace.at[g->inplace.first[r]]];
        if (bytes > g->floor_bytes) g->floor_bytes = bytes;
    }
}

static void fill_sums(DtrGraph *g) {
    g->base_ns = g->floor_bytes = g->most_outputs = 0;
    for (uint32_t r = 0; r < g->nrun; r++) {
        g->base_ns += g->ns[r];
        uint32_t n = dtr_len(&g->out, r);
        if (n > g->most_outputs) g->most_outputs = n;
    }
    for (uint32_t i = 0; i < g->noutput; i++) {
        uint32_t s = g->storage[g->output[i]];
        if (g->is_temp[s]) g->is_output[s] = true;
    }
    for (uint32_t s = 0; s < g->nstorage; s++)
        if (g->is_temp[s]) DTR_EACH(g->makers, s, r) g->cost[s] += (double)g->ns[r];
}

/* Memory for lists of at most n items. */
static DtrLists take_lists(Block *b, const DtrGraph *g, uint64_t n) {
    DtrLists l;
    l.first = block_take(b, (uint64_t)g->nstorage + 1, sizeof *l.first);
    l.at = block_take(b, n, sizeof *l.at);
    return l;
}

/* Gives the derived members their memory; also what a Lister needs. Of `to` with at == NULL only
 * the size is of interest. */
static void take_all(Block *b, DtrGraph *to, Lister *l) {
    const DtrGraph *g = to;
    uint64_t relations = 0;
    for (uint32_t r = 0; r < g->nrun; r++)
        relations += (uint64_t)dtr_len(&g->in, r) * dtr_len(&g->out, r);
    to->is_output = block_take(b, g->nstorage, sizeof *to->is_output);
    to->cost = block_take(b, g->nstorage, sizeof *to->cost);
    to->users = take_lists(b, g, g->in.first[g->nrun]);
    to->makers = take_lists(b, g, g->out.first[g->nrun]);
    to->views = take_lists(b, g, g->ntensor - g->nstorage);
    to->parents = take_lists(b, g, relations);
    to->children = take_lists(b, g, relations);
    to->readers = take_lists(b, g, g->reads.first[g->nrun]);
    l->mark = block_take(b, g->ntensor, sizeof *l->mark);
    l->written = block_take(b, g->nstorage, sizeof *l->written);
}

size_t dtr_lists_bytes(const DtrGraph *g) {
    DtrGraph copy = *g;
    Lister l = {0};
    Block b = {NULL, 0};
    take_all(&b, &copy, &l);
    return b.used;
}

void dtr_fill_lists(DtrGraph *g, void *memory) {
    Lister l = {.g = g};
    Block b = {memory, 0};
    take_all(&b, g, &l);
    for (uint32_t r = 0; r < g->nrun; r++) DTR_EACH(g->writes, r, s) l.written[s] = true;
    turn_around(&l, &g->users, list_users);
    turn_around(&l, &g->makers, list_makers);
    turn_around(&l, &g->views, list_views);
    turn_around(&l, &g->readers, list_readers);
    turn_around(&l, &g->parents, list_parents);
    turn_around(&l, &g->children, list_children);
    fill_sums(g);
    fill_floor(&l);
}
