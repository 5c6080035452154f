/* mend.c - repair and reduction of timelines.
 *
 * Repair: at a position over the capacity every storage that is held across it, between two uses a
 * and b, could be dropped after a and made again right before b, with whatever else has to be made
 * again for that. Taken is the one with the least time per relief, where relief is what the drop
 * takes off the excess between a and b, summed over positions. (Greedy set cover on positions; the
 * idea of scoring by time over bytes and distance is DTR's, Kirisame et al., ICLR 2021.) Reduction
 * undoes in some order each recomputation without which the capacity is kept, and what served only
 * it. */
#include "mend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Mender *mender_new(Arena *a, Timeline *t, int64_t capacity) {
    Mender *m = ARENA_NEW(a, Mender);
    *m = (Mender){.t = t, .a = a, .capacity = capacity, .rng = 0x9E3779B97F4A7C15u, .extend = true};
    m->mark = ARENA_ARRAY(a, uint32_t, t->p->nrun);
    return m;
}

/* ---- what has to be made again ---- */

/* Over the capacity at positions before the item. */
static Excess excess_before(const Mender *m, uint32_t item) {
    const Item *i = &m->t->item.at[item];
    const ChunkExcess *c = &m->before.at[m->t->chunk.at[i->chunk].order];
    return c->within == NO_ID ? c->sum : m->within.at[c->within + i->at];
}

typedef struct {
    uint32_t life; /* to be dropped */
    uint32_t b;    /* its next use */
    double cost, limit;
    double burden; /* bytes times positions over the capacity that extended operands add */
} Gap;

static bool add_run(Mender *m, Gap *g, uint32_t run, uint32_t before) {
    const Timeline *t = m->t;
    uint32_t f = t->frozen[run];
    if (f != NO_ID && timeline_key(t, t->first[f]) < timeline_key(t, before)) return false;
    g->cost += (double)t->p->ns[run];
    if (g->cost > g->limit) return false;
    VEC_PUSH(m->a, m->plan, ((Insertion){run, before}));
    return true;
}

/* A run right before b, once. */
static bool need_run(Mender *m, Gap *g, uint32_t run) {
    if (m->mark[run] == m->stamp) return true;
    m->mark[run] = m->stamp;
    return add_run(m, g, run, g->b);
}

/* May the life, which ended before b, stay until b instead of being made again? Where that is over
 * the capacity it takes from the relief, at the current price of relief. */
static bool can_extend(Mender *m, Gap *g, uint32_t life, uint32_t maker) {
    const Timeline *t = m->t;
    const Life *l = &t->life.at[life];
    if (m->rerun) return !m->rerun[maker] || l->from_key > timeline_key(t, m->rerun_after);
    if (!m->extend) return false;
    uint32_t next = timeline_next(t, l->to);
    double bytes = (double)t->p->bytes[l->tensor];
    double over = (double)excess_before(m, g->b).positions - excess_before(m, next).positions;
    m->work += 4;
    if (over > 0) {
        if (bytes * over * m->price >= (double)t->p->ns[maker]) return false;
        g->burden += bytes * over;
        return true;
    }
    return timeline_peak_between(t, next, g->b) + (int64_t)bytes <= m->capacity;
}

/* Storage x right before b. */
static bool need_storage(Mender *m, Gap *g, StorageId x) {
    const Timeline *t = m->t;
    uint32_t maker = t->p->def[x];
    if (m->mark[maker] == m->stamp) return true;
    uint32_t l = timeline_serving(t, x, g->b);
    if (l == NO_ID) return false;
    if (l != g->life && t->life.at[l].to_key >= timeline_key(t, g->b)) return true;
    if (l != g->life && can_extend(m, g, l, maker)) return true;
    return need_run(m, g, maker);
}

/* View v right before b; its storage is seen to separately. */
static bool need_view(Mender *m, Gap *g, uint32_t v) {
    const Timeline *t = m->t;
    StorageId x = t->p->storage[v];
    if (t->p->is_temp[x] && m->mark[t->p->def[x]] == m->stamp) return need_run(m, g, t->p->def[v]);
    uint32_t view = timeline_serving(t, v, g->b), l = timeline_serving(t, x, g->b);
    if (view != NO_ID && (l == NO_ID || t->life.at[view].from_key > t->life.at[l].from_key))
        return true;
    return need_run(m, g, t->p->def[v]);
}

static bool need_operands(Mender *m, Gap *g) {
    const Timeline *t = m->t;
    for (uint32_t i = 0; i < m->plan.n; i++) {
        if (m->plan.at[i].before != g->b) continue;
        uint32_t run = m->plan.at[i].run;
        EACH(t->reads, run, x) {
            m->work++;
            if (!need_storage(m, g, x)) return false;
        }
        EACH(t->views, run, v) if (!need_view(m, g, v)) return false;
    }
    return true;
}

/* View v of the dropped storage is read at u, at or after b, and ran before b. */
static bool need_view_at(Mender *m, Gap *g, uint32_t v, uint32_t u) {
    const Timeline *t = m->t;
    uint32_t run = t->p->def[v], view = timeline_serving(t, v, u);
    if (u == g->b) return need_run(m, g, run);
    if (m->mark[run] == m->stamp) return true;
    if (view != NO_ID && t->life.at[view].from_key >= timeline_key(t, g->b)) return true;
    for (uint32_t i = 0; i < m->plan.n; i++)
        if (m->plan.at[i].run == run && timeline_key(t, m->plan.at[i].before) <= timeline_key(t, u))
            return true;
    EACH(t->views, run, w)
    if (t->p->storage[w] == t->p->storage[v] && !need_view_at(m, g, w, u)) return false;
    return add_run(m, g, run, u);
}

/* Fills m->plan with what makes the life's storage again right before b; false when that cannot be,
 * or costs more than the limit. */
static bool plan_gap(Mender *m, Gap *g) {
    const Timeline *t = m->t;
    StorageId s = t->life.at[g->life].tensor;
    m->plan.n = 0;
    m->stamp++;
    g->cost = g->burden = 0;
    if (!need_run(m, g, t->p->def[s])) return false;
    EACH(t->p->views, s, v) {
        uint32_t view = timeline_serving(t, v, g->b);
        if (view == NO_ID) continue;
        const Life *l = &t->life.at[view];
        if (l->from_key < t->life.at[g->life].from_key) continue;
        uint32_t u = NO_ID;
        for (uint32_t i = l->uses.n;
             i > 0 && timeline_key(t, l->uses.at[i - 1]) >= timeline_key(t, g->b); i--)
            u = l->uses.at[i - 1];
        if (u != NO_ID && !need_view_at(m, g, v, u)) return false;
    }
    return need_operands(m, g);
}

static int insertion_cmp(const void *x, const void *y) {
    const Insertion *a = x, *b = y;
    return a->run < b->run ? -1 : a->run > b->run;
}

/* What a rerun keeps: outputs that are gone, and those that are there when nothing hangs on the
 * copy that is there: then the copy can go earlier. */
static uint64_t kept_outputs(const Timeline *t, uint32_t run, uint32_t before) {
    uint64_t kept = 0;
    for (uint32_t k = 0; k < list_len(&t->p->out, run) && k < 64; k++) {
        uint32_t x = t->p->out.at[t->p->out.first[run] + k];
        if (x == NO_ID) continue;
        uint32_t l =
            x < t->p->nstorage && t->p->is_temp[x] ? timeline_serving(t, x, before) : NO_ID;
        bool live = l != NO_ID && t->life.at[l].to_key >= timeline_key(t, before);
        if (!live || !list_len(&t->p->views, x)) kept |= (uint64_t)1 << k;
    }
    return kept;
}

/* Carries m->best out. All makers of storages that the plan drops come before the views. */
static void carry_out(Mender *m, uint32_t life) {
    Timeline *t = m->t;
    StorageId s = t->life.at[life].tensor;
    qsort(m->best.at, m->best.n, sizeof *m->best.at, insertion_cmp);
    for (uint32_t i = 0; i < m->best.n; i++) {
        Insertion x = m->best.at[i];
        uint64_t kept = kept_outputs(t, x.run, x.before);
        if (x.run == t->p->def[s]) /* this one begins a new life whatever is there */
            for (uint32_t k = 0; k < list_len(&t->p->out, x.run) && k < 64; k++)
                if (t->p->out.at[t->p->out.first[x.run] + k] == s) kept |= (uint64_t)1 << k;
        timeline_insert(t, x.run, x.before, kept);
        m->work += 50;
    }
}

bool mend_drop(Mender *m, uint32_t life, uint32_t at) {
    const Timeline *t = m->t;
    const Life *l = &t->life.at[life];
    uint32_t i = 0;
    while (timeline_key(t, l->uses.at[i]) <= timeline_key(t, at)) i++;
    Gap g = {.life = life, .b = l->uses.at[i], .limit = INFINITY};
    if (!plan_gap(m, &g)) return false;
    m->best.n = 0;
    for (uint32_t k = 0; k < m->plan.n; k++) VEC_PUSH(m->a, m->best, m->plan.at[k]);
    carry_out(m, life);
    return true;
}

/* ---- repair ---- */

/* Counts what is over the capacity. Only chunks that are over it anywhere are looked at in detail.
 */
static void fill_excess(Mender *m) {
    const Timeline *t = m->t;
    m->before.n = m->within.n = 0;
    Excess sum = {0, 0};
    for (uint32_t i = 0; i < t->order.n; i++) {
        const Chunk *c = &t->chunk.at[t->order.at[i]];
        bool any = c->most > m->capacity;
        ChunkExcess x = {sum, any ? m->within.n : NO_ID};
        VEC_PUSH(m->a, m->before, x);
        if (!any) continue;
        for (uint32_t k = 0; k < c->n; k++) {
            int64_t e = c->held[k] + c->extra[k] + c->add - m->capacity;
            VEC_PUSH(m->a, m->within, sum);
            sum.positions += e > 0;
            sum.bytes += e > 0 ? e : 0;
        }
        m->work += c->n / 4;
    }
    m->all = sum;
    m->work += t->order.n / 2;
}

static int64_t excess_at(const Mender *m, const Chunk *c, uint32_t k) {
    return c->held[k] + c->extra[k] + c->add - m->capacity;
}

/* The item at the position over the capacity before which there are `rank` such positions. */
static uint32_t nth_over(const Mender *m, uint32_t rank) {
    const Timeline *t = m->t;
    uint32_t i = t->order.n - 1;
    while (m->before.at[i].within == NO_ID || m->before.at[i].sum.positions > rank) i--;
    const Chunk *c = &t->chunk.at[t->order.at[i]];
    const Excess *x = &m->within.at[m->before.at[i].within];
    uint32_t k = 0;
    while (x[k].positions != rank || excess_at(m, c, k) <= 0) k++;
    return c->item[k];
}

static uint32_t highest(const Mender *m) {
    const Timeline *t = m->t;
    const Chunk *best = NULL;
    for (uint32_t i = 0; i < t->order.n; i++) {
        const Chunk *c = &t->chunk.at[t->order.at[i]];
        if (!best || c->most > best->most) best = c;
    }
    uint32_t k = 0;
    while (excess_at(m, best, k) + m->capacity < best->most) k++;
    return best->item[k];
}

static uint32_t choose_position(Mender *m) {
    switch (m->order) {
    case AT_PEAK: return highest(m);
    case AT_FIRST: return nth_over(m, 0);
    case AT_LAST: return nth_over(m, m->all.positions - 1);
    case AT_RANDOM: break;
    }
    return nth_over(m, mend_random(m, m->all.positions));
}

uint32_t mend_position(Mender *m) {
    fill_excess(m);
    return choose_position(m);
}

/* The first run that has not happened before item x. */
static uint32_t frontier(const Timeline *t, uint32_t x) {
    while (!t->item.at[x].first) x = timeline_next(t, x);
    return t->item.at[x].run;
}

/* One drop that helps at item x. */
static bool step(Mender *m, uint32_t x) {
    Timeline *t = m->t;
    const Problem *p = t->p;
    uint64_t key = timeline_key(t, x);
    double best = INFINITY;
    uint32_t best_life = NO_ID, now = frontier(t, x);
    for (uint32_t w = 0; w < t->wide.n; w++) {
        StorageId s = t->wide.at[w];
        m->work++;
        if (p->def[s] >= now) continue; /* not there yet */
        uint32_t life = timeline_serving(t, s, x);
        const Life *l = &t->life.at[life];
        if (l->to_key <= key) continue;
        uint32_t i = 0;
        while (timeline_key(t, l->uses.at[i]) < key) i++;
        if (l->uses.at[i] == x) continue;
        Excess a = excess_before(m, timeline_next(t, i ? l->uses.at[i - 1] : l->item)),
               b = excess_before(m, l->uses.at[i]);
        double all = (double)p->bytes[s] * (b.positions - a.positions),
               relief = (double)(b.bytes - a.bytes);
        if (all < relief) relief = all;
        if (relief <= 0) continue;
        double scale = m->noise > 0 ? exp(m->noise * (2 * mend_unit(m) - 1)) : 1;
        Gap g = {.life = life, .b = l->uses.at[i], .limit = best * relief / scale};
        if (!plan_gap(m, &g) || g.burden >= relief) continue;
        double score = (g.cost + 1) * scale / (relief - g.burden);
        if (score >= best) continue;
        best = score;
        best_life = life;
        m->best.n = 0;
        for (uint32_t k = 0; k < m->plan.n; k++) VEC_PUSH(m->a, m->best, m->plan.at[k]);
    }
    if (best_life == NO_ID) return false;
    m->price = m->price > 0 ? 0.7 * m->price + 0.3 * best : best;
    carry_out(m, best_life);
    return true;
}

bool mend(Mender *m, uint64_t cost_limit, uint32_t steps) {
    Timeline *t = m->t;
    while (timeline_peak(t) > m->capacity) {
        if (t->cost_ns > cost_limit || !steps--) return false;
        if (!step(m, mend_position(m))) return false;
    }
    return t->cost_ns <= cost_limit;
}

/* ---- reduction ---- */

static bool serves_nobody(const Timeline *t, uint32_t item) {
    const Item *i = &t->item.at[item];
    for (uint32_t k = 0; k < list_len(&t->p->out, i->run); k++) {
        const Life *l = &t->life.at[i->life + k];
        if (l->tensor != NO_ID && l->kept && l->uses.n) return false;
    }
    return true;
}

/* Views that ran again in the life that item begins, and ran in the life before it, too. */
static void list_double_views(Mender *m, uint32_t item) {
    Timeline *t = m->t;
    const Item *x = &t->item.at[item];
    for (uint32_t k = 0; k < list_len(&t->p->out, x->run); k++) {
        const Life *l = &t->life.at[x->life + k];
        if (l->tensor == NO_ID || l->tensor >= t->p->nstorage || !l->kept) continue;
        uint32_t before = timeline_serving(t, l->tensor, item);
        EACH(t->p->views, l->tensor, v) {
            uint32_t view = timeline_serving(t, v, item);
            if (view == NO_ID || t->life.at[view].from_key < t->life.at[before].from_key) continue;
            for (uint32_t i = 0; i < t->makers[v].n; i++) {
                uint32_t y = t->life.at[t->makers[v].at[i]].item;
                if (timeline_key(t, y) < timeline_key(t, item)) continue;
                if (timeline_key(t, y) > l->to_key) break;
                if (!t->item.at[y].first) VEC_PUSH(m->a, m->todo, y);
                break;
            }
        }
    }
}

static void list_operands(Mender *m, uint32_t item) {
    Timeline *t = m->t;
    uint32_t run = t->item.at[item].run;
    EACH(t->reads, run, s) {
        uint32_t l = timeline_serving(t, s, item);
        if (l != NO_ID && !t->item.at[t->life.at[l].item].first)
            VEC_PUSH(m->a, m->todo, t->life.at[l].item);
    }
    EACH(t->views, run, v) {
        uint32_t l = timeline_serving(t, v, item);
        if (l != NO_ID && !t->item.at[t->life.at[l].item].first)
            VEC_PUSH(m->a, m->todo, t->life.at[l].item);
    }
}

/* A view that ran again because its storage was made again cannot go alone. */
static bool may_go(const Timeline *t, uint32_t item) {
    const Item *x = &t->item.at[item];
    for (uint32_t k = 0; k < list_len(&t->p->out, x->run); k++) {
        const Life *l = &t->life.at[x->life + k];
        if (l->tensor == NO_ID || l->tensor < t->p->nstorage || !l->uses.n) continue;
        uint32_t before = timeline_serving(t, l->tensor, item),
                 s = timeline_serving(t, t->p->storage[l->tensor], item);
        if (s != NO_ID && t->life.at[before].from_key < t->life.at[s].from_key) return false;
    }
    return true;
}

bool mend_take_out(Mender *m, uint32_t item) {
    Timeline *t = m->t;
    if (!may_go(t, item)) return false;
    uint32_t base = m->todo.n;
    list_double_views(m, item);
    uint32_t views = m->todo.n;
    list_operands(m, item);
    timeline_remove(t, item);
    m->work += 50;
    for (uint32_t i = views; i < m->todo.n; i++) {
        uint32_t y = m->todo.at[i];
        if (t->item.at[y].there && serves_nobody(t, y)) mend_take_out(m, y);
    }
    for (uint32_t i = base; i < views; i++)
        if (t->item.at[m->todo.at[i]].there) mend_take_out(m, m->todo.at[i]);
    m->todo.n = base;
    return true;
}

bool mend_try_out(Mender *m, uint32_t item) {
    uint32_t mark = timeline_mark(m->t);
    if (!mend_take_out(m, item)) return false;
    m->work += m->t->order.n / 4;
    if (timeline_peak(m->t) <= m->capacity) return true;
    timeline_undo(m->t, mark);
    return false;
}

typedef struct {
    double key;
    uint32_t item;
} Ranked;

static int ranked_cmp(const void *x, const void *y) {
    const Ranked *a = x, *b = y;
    if (a->key != b->key) return a->key > b->key ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

static double rank(const Timeline *t, uint32_t item, ReduceOrder order) {
    const Item *i = &t->item.at[item];
    double ns = (double)t->p->ns[i->run], bytes = 1, gap = 1;
    if (order == BY_COST) return ns;
    if (order == BY_LATEST) return timeline_position(t, item);
    if (order == BY_EARLIEST) return -(double)timeline_position(t, item);
    for (uint32_t k = 0; k < list_len(&t->p->out, i->run); k++) {
        const Life *l = &t->life.at[i->life + k];
        if (l->tensor == NO_ID || !l->kept || l->tensor >= t->p->nstorage) continue;
        uint32_t b = timeline_serving(t, l->tensor, item);
        bytes += (double)t->p->bytes[l->tensor];
        gap = (double)timeline_position(t, item) - (double)timeline_position(t, t->life.at[b].to);
    }
    return ns / (bytes * (gap > 1 ? gap : 1));
}

void mend_reduce(Mender *m, ReduceOrder order) {
    Timeline *t = m->t;
    Arena *scratch = arena_new();
    for (bool any = true; any;) {
        const Numbers *l = &t->again;
        Ranked *r = ARENA_ARRAY(scratch, Ranked, (uint64_t)l->n + 1);
        uint32_t n = l->n;
        timeline_number(t);
        for (uint32_t i = 0; i < n; i++) r[i] = (Ranked){rank(t, l->at[i], order), l->at[i]};
        qsort(r, n, sizeof *r, ranked_cmp);
        any = false;
        for (uint32_t i = 0; i < n; i++)
            if (t->item.at[r[i].item].there) any |= mend_try_out(m, r[i].item);
    }
    arena_free(scratch);
}
