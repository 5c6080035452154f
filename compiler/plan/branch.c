/* branch.c - the cut at one point of the base order (windows.c) with whole storages: what the dual
 * leaves open because it may keep half a storage is closed by branching.
 *
 * Best first. A node of the tree fixes some storages: kept at the point (their bytes leave the
 * room), or not there (made again if needed). Its value is the dual's; the bound is the smallest
 * value of an open node, or the cost of the best choice found when that is smaller. Branches on the
 * storage that takes most bytes among those that the dual keeps in part. Land and Doig,
 * Econometrica 1960. */
#include "windows.h"

#include <math.h>

typedef struct {
    uint32_t parent; /* NO_ID: the root */
    StorageId fixed; /* at the parent's branching storage, or NO_ID */
    CutState how;
    bool open;
    double value, price;
    StorageId split; /* storage to branch on; NO_ID: none is kept in part */
} Branch;

typedef struct {
    const Problem *p;
    Cut *cut;
    BasePoint *point;
    uint32_t run, n;
    Branch *node;
    double best; /* cost of the best choice */
    double *none;
} Tree;

static StorageId partly_kept(const Problem *p, const CutResult *r) {
    StorageId most = NO_ID;
    for (StorageId s = 0; s < p->nstorage; s++) {
        if (r->kept[s] <= 0 || r->kept[s] >= 1) continue;
        if (most == NO_ID || p->bytes[s] > p->bytes[most]) most = s;
    }
    return most;
}

/* Solves the node that adds one decision to its parent's; not open: it can give nothing better. */
static void add_node(Tree *t, uint32_t parent, StorageId fixed, CutState how) {
    const Problem *p = t->p;
    CutPoint *at = &t->point->at;
    CutResult r;
    Branch *b = &t->node[t->n];
    *b = (Branch){.parent = parent, .fixed = fixed, .how = how};
    base_point_set(t->point, t->run, p->nrun);
    for (uint32_t i = t->n++; i != NO_ID; i = t->node[i].parent) {
        const Branch *x = &t->node[i];
        if (x->fixed == NO_ID) continue;
        t->point->state[x->fixed] = (uint8_t)x->how;
        if (x->how != CUT_FIXED) continue;
        if (at->capacity < p->bytes[x->fixed]) return;
        at->capacity -= p->bytes[x->fixed];
    }
    if (parent != NO_ID) at->guess = t->node[parent].price;
    at->want_ns = t->none;
    cut_solve(t->cut, at, &r);
    if (!r.feasible) return;
    if (r.cost < t->best) t->best = r.cost;
    b->open = true;
    b->value = r.value;
    if (parent != NO_ID && b->value < t->node[parent].value) b->value = t->node[parent].value;
    b->price = r.price;
    b->split = partly_kept(p, &r);
}

static uint32_t lowest(const Tree *t) {
    uint32_t low = NO_ID;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->node[i].open && (low == NO_ID || t->node[i].value < t->node[low].value)) low = i;
    return low;
}

double branch_bound(Arena *a, Cut *c, BasePoint *b, uint32_t run, double least, uint32_t nodes) {
    Tree t = {.p = b->p, .cut = c, .point = b, .run = run, .best = INFINITY};
    t.node = ARENA_ARRAY(a, Branch, (uint64_t)nodes + 2);
    t.none = ARENA_ARRAY(a, double, b->p->nstorage);
    add_node(&t, NO_ID, NO_ID, CUT_MAY_KEEP);
    for (;;) {
        uint32_t low = lowest(&t);
        if (low == NO_ID || t.node[low].value >= t.best || t.best <= least) return t.best;
        Branch *x = &t.node[low];
        if (x->split == NO_ID || t.n >= nodes) return x->value;
        x->open = false;
        add_node(&t, low, x->split, CUT_FIXED);
        add_node(&t, low, x->split, CUT_AWAY);
    }
}
