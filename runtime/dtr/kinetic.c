/* kinetic.c - a kinetic tournament: a binary tree whose nodes keep the better of their children's
 * winners and the time when the other one overtakes it. As time goes on only nodes whose time has
 * come are played again; a change plays the path to the root again, once for all changes since the
 * last question. (Basch, Guibas, Hershberger, "Data Structures for Mobile Data", J. Algorithms 31,
 * 1999.) Times of overtaking are taken a little early, so that rounding can not hide one. */
#include "kinetic.h"

#include <math.h>

#define EARLY 1e-9 /* relative */

static const Line absent = {0, 0, -INFINITY};

void kinetic_take_memory(Kinetic *k, Block *b, uint32_t nitem) {
    k->leaves = 1;
    while (k->leaves < nitem) k->leaves *= 2;
    k->line = block_take(b, k->leaves, sizeof *k->line);
    k->match = block_take(b, 2 * (uint64_t)k->leaves, sizeof *k->match);
}

void kinetic_reset(Kinetic *k) {
    for (uint32_t i = 0; i < 2 * k->leaves; i++) k->match[i] = (Match){INFINITY, KINETIC_NONE};
    for (uint32_t i = 0; i < k->leaves; i++) k->line[i] = absent;
}

static bool is_same(const Line *a, const Line *b) {
    return a->slope == b->slope && a->zero == b->zero && a->level == b->level;
}

void kinetic_set(Kinetic *k, uint32_t item, bool there, Line line) {
    uint32_t node = k->leaves + item;
    if (there == kinetic_has(k, item) && (!there || is_same(&k->line[item], &line))) return;
    k->line[item] = there ? line : absent;
    k->match[node].win = there ? item : KINETIC_NONE;
    for (node /= 2; node && k->match[node].fail != -INFINITY; node /= 2)
        k->match[node].fail = -INFINITY;
}

/* The better one of x and y at t, and when the other one overtakes it. */
static Match compare(const Kinetic *k, uint32_t x, uint32_t y, double t) {
    double at_x = line_at(&k->line[x], t), at_y = line_at(&k->line[y], t);
    bool first = at_x > at_y || (at_x == at_y && x < y);
    const Line *a = &k->line[first ? x : y], *b = &k->line[first ? y : x];
    Match m = {INFINITY, first ? x : y};
    if (!(b->slope > a->slope) || isinf(a->level)) return m;
    double when = t + fabs(at_x - at_y) / (b->slope - a->slope);
    m.fail = when - EARLY * fabs(when);
    return m;
}

/* Plays again what may be wrong at t, at the node and below. */
static void play(Kinetic *k, uint32_t node, double t) {
    Match *m = &k->match[node], *left = &k->match[2 * node], *right = left + 1;
    double fail = INFINITY;
    if (2 * node < k->leaves) {
        if (left->fail <= t) play(k, 2 * node, t);
        if (right->fail <= t) play(k, 2 * node + 1, t);
        fail = left->fail < right->fail ? left->fail : right->fail;
    }
    if (left->win == KINETIC_NONE || right->win == KINETIC_NONE)
        *m = (Match){INFINITY, left->win == KINETIC_NONE ? right->win : left->win};
    else
        *m = compare(k, left->win, right->win, t);
    if (fail < m->fail) m->fail = fail;
}

/* Subtrees not yet looked into, best winner first; more than are asked for can not be of use. */
typedef struct {
    double value[KINETIC_MOST];
    uint32_t node[KINETIC_MOST], n, most;
} Open;

static void add_open(const Kinetic *k, Open *o, uint32_t node, double t) {
    uint32_t x = k->match[node].win, i = o->n;
    if (x == KINETIC_NONE) return;
    double value = line_at(&k->line[x], t);
    while (i > 0 && (value > o->value[i - 1] ||
                     (value == o->value[i - 1] && x < k->match[o->node[i - 1]].win)))
        i--;
    if (i == o->most) return;
    if (o->n < o->most) o->n++;
    for (uint32_t j = o->n - 1; j > i; j--) {
        o->value[j] = o->value[j - 1];
        o->node[j] = o->node[j - 1];
    }
    o->value[i] = value;
    o->node[i] = node;
}

uint32_t kinetic_best(Kinetic *k, double t, uint32_t most, uint32_t *item) {
    Open o = {.most = most};
    uint32_t found = 0;
    if (k->leaves > 1 && k->match[1].fail <= t) play(k, 1, t);
    add_open(k, &o, 1, t);
    while (o.n) {
        uint32_t at = o.node[0], x = k->match[at].win;
        item[found++] = x;
        o.n--;
        for (uint32_t i = 0; i < o.n; i++) {
            o.value[i] = o.value[i + 1];
            o.node[i] = o.node[i + 1];
        }
        o.most = most - found;
        if (o.n > o.most) o.n = o.most;
        for (; at < k->leaves && o.most; at = 2 * at + (k->match[2 * at].win != x))
            add_open(k, &o, 2 * at + (k->match[2 * at].win == x), t);
    }
    return found;
}
