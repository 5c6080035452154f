/* classes.c - the evicted neighbourhoods of h_DTR^eq: classes of evicted storages, merged when a
 * storage between them is evicted; when a member is made again its cost is taken out, but the class
 * is not split (Kirisame et al., ICLR 2021, appendix C). Instead of union-find, whose trees would
 * grow without end in a step that evicts often, every class lists its members and the smaller one
 * is renamed when two merge; a class without members is free again. */
#include "engine.h"

void dtr_classes_memory(Classes *c, Block *b, uint32_t nstorage) {
    uint32_t **arrays[] = {&c->of, &c->next, &c->prev, &c->head, &c->size, &c->spare, &c->seen};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = block_take(b, nstorage, sizeof **arrays[i]);
    c->cost = block_take(b, nstorage, sizeof *c->cost);
}

void dtr_classes_reset(Classes *c, uint32_t nstorage) {
    c->nspare = nstorage;
    c->stamp = 0;
    for (uint32_t i = 0; i < nstorage; i++) {
        c->of[i] = DTR_NONE;
        c->seen[i] = 0;
        c->spare[i] = nstorage - 1 - i;
    }
}

static void enter(Classes *c, uint32_t k, uint32_t x) {
    c->of[x] = k;
    c->prev[x] = DTR_NONE;
    c->next[x] = c->head[k];
    if (c->head[k] != DTR_NONE) c->prev[c->head[k]] = x;
    c->head[k] = x;
    c->size[k]++;
}

/* The classes of x and y become one. */
static void merge(Dtr *d, uint32_t x, uint32_t y) {
    Classes *c = &d->classes;
    uint32_t to = c->of[x], from = c->of[y];
    if (to == from) return;
    if (c->size[from] > c->size[to]) {
        to = from;
        from = c->of[x];
    }
    c->cost[to] += c->cost[from];
    for (uint32_t m = c->head[from], next; m != DTR_NONE; m = next) {
        next = c->next[m];
        enter(c, to, m);
        d->count.work++;
    }
    c->spare[c->nspare++] = from;
}

void dtr_classes_gone(Dtr *d, uint32_t x) {
    Classes *c = &d->classes;
    uint32_t k = c->spare[--c->nspare];
    c->head[k] = DTR_NONE;
    c->size[k] = 0;
    c->cost[k] = d->cost[x];
    enter(c, k, x);
    const DtrLists *near[2] = {&d->g->parents, &d->g->children};
    for (int i = 0; i < 2; i++) DTR_EACH(*near[i], x, y) if (c->of[y] != DTR_NONE) merge(d, x, y);
}

void dtr_classes_came(Dtr *d, uint32_t x) {
    Classes *c = &d->classes;
    uint32_t k = c->of[x];
    if (k == DTR_NONE) return;
    c->cost[k] -= d->cost[x];
    if (c->next[x] != DTR_NONE) c->prev[c->next[x]] = c->prev[x];
    if (c->prev[x] != DTR_NONE)
        c->next[c->prev[x]] = c->next[x];
    else
        c->head[k] = c->next[x];
    c->of[x] = DTR_NONE;
    if (!--c->size[k]) c->spare[c->nspare++] = k;
}

double dtr_classes_near(Dtr *d, uint32_t x) {
    Classes *c = &d->classes;
    double sum = 0;
    c->stamp++;
    const DtrLists *near[2] = {&d->g->parents, &d->g->children};
    for (int i = 0; i < 2; i++) DTR_EACH(*near[i], x, y) {
            if (c->of[y] == DTR_NONE) continue;
            d->count.work++;
            if (c->seen[c->of[y]] == c->stamp) continue;
            c->seen[c->of[y]] = c->stamp;
            sum += c->cost[c->of[y]];
        }
    return sum;
}
