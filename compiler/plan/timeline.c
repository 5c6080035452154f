/* timeline.c - the changeable schedule. Sequence in, bytes at every position out, kept up to date
 * under insertion and removal.
 *
 * Positions stand in chunks of at most TL_CHUNK (square-root decomposition): adding bytes to a
 * range touches whole chunks by one number and at most two chunks item by item. Order is decided by
 * keys with gaps; when a gap is used up all keys are dealt anew. */
#include "timeline.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BITS = 62 };

/* ---- sorted lists of items ---- */

static uint64_t key_of(const Timeline *t, uint32_t item) {
    return t->item.at[item].key;
}

/* First entry whose key is not below `key`. */
static uint32_t lower(const Timeline *t, const Numbers *l, uint64_t key) {
    uint32_t lo = 0, hi = l->n;
    if (hi && key_of(t, l->at[hi - 1]) < key) return hi;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (key_of(t, l->at[mid]) < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void list_add(Timeline *t, Numbers *l, uint32_t item) {
    uint32_t i = lower(t, l, key_of(t, item));
    VEC_PUSH(t->a, *l, item);
    memmove(l->at + i + 1, l->at + i, (l->n - 1 - i) * sizeof *l->at);
    l->at[i] = item;
}

static void list_remove(Timeline *t, Numbers *l, uint32_t item) {
    uint32_t i = lower(t, l, key_of(t, item));
    assert(i < l->n && l->at[i] == item);
    memmove(l->at + i, l->at + i + 1, (l->n - 1 - i) * sizeof *l->at);
    l->n--;
}

/* ---- chunks ---- */

static void find_most(Chunk *c) {
    int64_t most = INT64_MIN / 2;
    for (uint32_t i = 0; i < c->n; i++) {
        int64_t v = c->held[i] + c->extra[i];
        most = v > most ? v : most;
    }
    c->most = most + c->add;
}

static uint32_t new_chunk(Timeline *t, uint32_t order) {
    uint32_t id;
    if (t->spare_chunk.n) {
        id = t->spare_chunk.at[--t->spare_chunk.n];
    } else {
        id = t->chunk.n;
        Chunk none = {0};
        VEC_PUSH(t->a, t->chunk, none);
    }
    Chunk *c = &t->chunk.at[id];
    c->n = 0;
    c->add = 0;
    find_most(c);
    VEC_PUSH(t->a, t->order, id);
    memmove(t->order.at + order + 1, t->order.at + order,
            (t->order.n - 1 - order) * sizeof *t->order.at);
    t->order.at[order] = id;
    for (uint32_t i = order; i < t->order.n; i++) t->chunk.at[t->order.at[i]].order = i;
    return id;
}

static void split_chunk(Timeline *t, uint32_t id) {
    uint32_t to = new_chunk(t, t->chunk.at[id].order + 1);
    Chunk *a = &t->chunk.at[id], *b = &t->chunk.at[to];
    /* Sequences are built from their beginning: a full last chunk stays nearly full. */
    uint32_t half = b->order + 1 == t->order.n ? a->n - 1 : a->n / 2;
    b->n = a->n - half;
    memcpy(b->item, a->item + half, b->n * sizeof *b->item);
    memcpy(b->held, a->held + half, b->n * sizeof *b->held);
    memcpy(b->extra, a->extra + half, b->n * sizeof *b->extra);
    b->add = a->add;
    a->n = half;
    for (uint32_t i = 0; i < b->n; i++) {
        t->item.at[b->item[i]].chunk = to;
        t->item.at[b->item[i]].at = i;
    }
    find_most(a);
    find_most(b);
}

/* Room for an item at place `at` of a chunk. */
static void chunk_insert(Timeline *t, uint32_t id, uint32_t at, uint32_t item, int64_t held) {
    if (t->chunk.at[id].n == TL_CHUNK) {
        split_chunk(t, id);
        if (at > t->chunk.at[id].n) {
            at -= t->chunk.at[id].n;
            id = t->order.at[t->chunk.at[id].order + 1];
        }
    }
    Chunk *c = &t->chunk.at[id];
    uint32_t rest = c->n - at;
    memmove(c->item + at + 1, c->item + at, rest * sizeof *c->item);
    memmove(c->held + at + 1, c->held + at, rest * sizeof *c->held);
    memmove(c->extra + at + 1, c->extra + at, rest * sizeof *c->extra);
    c->n++;
    c->item[at] = item;
    c->held[at] = held - c->add;
    c->extra[at] = 0;
    for (uint32_t i = at + 1; i < c->n; i++) t->item.at[c->item[i]].at = i;
    t->item.at[item].chunk = id;
    t->item.at[item].at = at;
    if (held > c->most) c->most = held;
}

static void chunk_remove(Timeline *t, uint32_t item) {
    uint32_t id = t->item.at[item].chunk, at = t->item.at[item].at;
    Chunk *c = &t->chunk.at[id];
    uint32_t rest = c->n - 1 - at;
    memmove(c->item + at, c->item + at + 1, rest * sizeof *c->item);
    memmove(c->held + at, c->held + at + 1, rest * sizeof *c->held);
    memmove(c->extra + at, c->extra + at + 1, rest * sizeof *c->extra);
    c->n--;
    for (uint32_t i = at; i < c->n; i++) t->item.at[c->item[i]].at = i;
    find_most(c);
    if (c->n || t->order.n == 1) return;
    memmove(t->order.at + c->order, t->order.at + c->order + 1,
            (t->order.n - 1 - c->order) * sizeof *t->order.at);
    t->order.n--;
    for (uint32_t i = c->order; i < t->order.n; i++) t->chunk.at[t->order.at[i]].order = i;
    VEC_PUSH(t->a, t->spare_chunk, id);
}

static void add_part(Chunk *c, uint32_t from, uint32_t to, int64_t bytes) {
    for (uint32_t i = from; i < to; i++) c->held[i] += bytes;
    find_most(c);
}

/* Adds bytes after item `from` (or at it, too) up to and including item `to`. */
static void range_add(Timeline *t, uint32_t from, bool included, uint32_t to, int64_t bytes) {
    if (!bytes) return;
    const Item *x = &t->item.at[from], *y = &t->item.at[to];
    uint32_t begin = x->at + !included, end = y->at + 1;
    Chunk *first = &t->chunk.at[x->chunk], *last = &t->chunk.at[y->chunk];
    if (first == last) {
        if (begin < end) add_part(first, begin, end, bytes);
        return;
    }
    assert(first->order < last->order);
    add_part(first, begin, first->n, bytes);
    for (uint32_t i = first->order + 1; i < last->order; i++) {
        Chunk *c = &t->chunk.at[t->order.at[i]];
        c->add += bytes;
        c->most += bytes;
    }
    add_part(last, 0, end, bytes);
}

static int64_t held_at(const Timeline *t, uint32_t item) {
    const Item *i = &t->item.at[item];
    const Chunk *c = &t->chunk.at[i->chunk];
    return c->held[i->at] + c->add;
}

uint32_t timeline_head(const Timeline *t) {
    return t->chunk.at[t->order.at[0]].item[0];
}

uint32_t timeline_next(const Timeline *t, uint32_t item) {
    const Item *i = &t->item.at[item];
    const Chunk *c = &t->chunk.at[i->chunk];
    if (i->at + 1 < c->n) return c->item[i->at + 1];
    return c->order + 1 < t->order.n ? t->chunk.at[t->order.at[c->order + 1]].item[0] : NO_ID;
}

static uint32_t previous(const Timeline *t, uint32_t item) {
    const Item *i = &t->item.at[item];
    const Chunk *c = &t->chunk.at[i->chunk];
    if (i->at) return c->item[i->at - 1];
    if (!c->order) return NO_ID;
    c = &t->chunk.at[t->order.at[c->order - 1]];
    return c->item[c->n - 1];
}

void timeline_number(Timeline *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->order.n; i++) {
        t->chunk.at[t->order.at[i]].start = n;
        n += t->chunk.at[t->order.at[i]].n;
    }
}

/* ---- keys ---- */

static int key_cmp(const void *x, const void *y) {
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

/* The i-th of n fresh keys: as far from each other as can be. */
static uint64_t fresh_key(uint32_t i, uint32_t n) {
    return ((uint64_t)i + 1) * (((uint64_t)1 << KEY_BITS) / ((uint64_t)n + 1));
}

static uint64_t dealt(const uint64_t *old, uint32_t n, uint64_t key) {
    const uint64_t *at = bsearch(&key, old, n, sizeof key, key_cmp);
    return fresh_key((uint32_t)(at - old), n);
}

/* Fresh keys in the old order; also for what the journal remembers as removed. */
static void deal_keys(Timeline *t) {
    Arena *a = arena_new();
    uint64_t *old = ARENA_ARRAY(a, uint64_t, (uint64_t)t->nitem + t->journal.n);
    uint32_t n = 0, distinct = 0;
    for (uint32_t i = timeline_head(t); i != NO_ID; i = timeline_next(t, i))
        old[n++] = key_of(t, i);
    for (uint32_t i = 0; i < t->journal.n; i++) old[n++] = t->journal.at[i].key;
    qsort(old, n, sizeof *old, key_cmp);
    for (uint32_t i = 0; i < n; i++)
        if (!i || old[i] != old[distinct - 1]) old[distinct++] = old[i];
    for (uint32_t i = timeline_head(t); i != NO_ID; i = timeline_next(t, i))
        t->item.at[i].key = dealt(old, distinct, key_of(t, i));
    for (uint32_t i = 0; i < t->journal.n; i++)
        t->journal.at[i].key = dealt(old, distinct, t->journal.at[i].key);
    for (uint32_t i = 0; i < t->life.n; i++) {
        t->life.at[i].from_key = key_of(t, t->life.at[i].item);
        t->life.at[i].to_key = key_of(t, t->life.at[i].to);
    }
    arena_free(a);
}

/* A key between the item before `before` and it, nearer to the former: what is inserted next tends
 * to stand between this one and `before`. The journal may remember the same key as removed: when
 * that one comes back, this one is gone. */
static uint64_t key_before(Timeline *t, uint32_t before) {
    uint32_t prev = previous(t, before);
    uint64_t low = prev == NO_ID ? 0 : key_of(t, prev), gap = key_of(t, before) - low;
    if (gap >= 64) return low + gap / 16;
    deal_keys(t);
    return key_before(t, before);
}

/* ---- lives ---- */

/* First life of the list whose item does not stand before `key`. */
static uint32_t lower_life(const Timeline *t, const Numbers *l, uint64_t key) {
    uint32_t lo = 0, hi = l->n;
    while (lo < hi) {
        uint32_t mid = hi - 1 - (hi - 1 - lo) / 2; /* lists are short, the last one is likely */
        if (t->life.at[l->at[mid]].from_key < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint32_t timeline_serving(const Timeline *t, uint32_t tensor, uint32_t item) {
    const Numbers *l = &t->makers[tensor];
    uint32_t i = lower_life(t, l, key_of(t, item));
    return i ? l->at[i - 1] : NO_ID;
}

static int64_t bytes_of(const Timeline *t, const Life *l) {
    return l->tensor < t->p->nstorage ? (int64_t)t->p->bytes[l->tensor] : 0;
}

static void touch(Timeline *t, uint32_t item) {
    VEC_PUSH(t->a, t->touched, item);
}

static void set_to(Timeline *t, uint32_t life, uint32_t to) {
    Life *l = &t->life.at[life];
    int64_t bytes = bytes_of(t, l);
    if (l->to == to) return;
    if (bytes && !t->is_wide[l->tensor] && timeline_next(t, l->item) != to) {
        t->is_wide[l->tensor] = true;
        VEC_PUSH(t->a, t->wide, l->tensor);
    }
    if (key_of(t, to) > key_of(t, l->to))
        range_add(t, l->to, false, to, bytes);
    else
        range_add(t, to, false, l->to, -bytes);
    touch(t, l->to);
    touch(t, to);
    l->to = to;
    l->to_key = key_of(t, to);
}

static uint32_t last_use(const Life *l) {
    return l->uses.n ? l->uses.at[l->uses.n - 1] : l->item;
}

/* The operand whose bytes output 0 takes over, or NO_ID. */
StorageId timeline_inplace(const Timeline *t, uint32_t item) {
    const Item *i = &t->item.at[item];
    if (i->run == t->p->nrun || !list_len(&t->p->inplace, i->run)) return NO_ID;
    if (!t->life.at[i->life].kept) return NO_ID;
    EACH(t->p->inplace, i->run, x) {
        uint32_t l = timeline_serving(t, x, item);
        if (l != NO_ID && t->life.at[l].to == item) return x;
    }
    return NO_ID;
}

static void refresh_extra(Timeline *t, uint32_t item) {
    const Problem *p = t->p;
    const Item *i = &t->item.at[item];
    if (!i->there) return;
    int64_t extra = i->run < p->nrun ? (int64_t)p->workspace[i->run] : 0;
    if (i->run < p->nrun && !i->first)
        for (uint32_t k = 0; k < list_len(&p->out, i->run); k++) {
            const Life *l = &t->life.at[i->life + k];
            if (l->tensor != NO_ID && !l->kept) extra += bytes_of(t, l);
        }
    StorageId over = timeline_inplace(t, item);
    if (over != NO_ID) extra -= (int64_t)p->bytes[over];
    Chunk *c = &t->chunk.at[i->chunk];
    if (c->extra[i->at] == extra) return;
    c->extra[i->at] = extra;
    find_most(c);
}

static void settle(Timeline *t) {
    for (uint32_t i = 0; i < t->touched.n; i++) refresh_extra(t, t->touched.at[i]);
    t->touched.n = 0;
}

static void add_use(Timeline *t, uint32_t life, uint32_t item) {
    if (life == NO_ID) return;
    list_add(t, &t->life.at[life].uses, item);
    set_to(t, life, last_use(&t->life.at[life]));
}

static void remove_use(Timeline *t, uint32_t life, uint32_t item) {
    if (life == NO_ID) return;
    list_remove(t, &t->life.at[life].uses, item);
    set_to(t, life, last_use(&t->life.at[life]));
}

static void add_reads(Timeline *t, uint32_t item) {
    uint32_t run = t->item.at[item].run;
    EACH(t->reads, run, s) add_use(t, timeline_serving(t, s, item), item);
    EACH(t->views, run, v) add_use(t, timeline_serving(t, v, item), item);
}

/* A new life of the tensor takes the uses after its item from the life before. */
static void begin_life(Timeline *t, uint32_t life) {
    Life *l = &t->life.at[life];
    uint32_t before = timeline_serving(t, l->tensor, l->item);
    range_add(t, l->item, true, l->item, bytes_of(t, l));
    Numbers *makers = &t->makers[l->tensor];
    uint32_t at = lower_life(t, makers, l->from_key);
    VEC_PUSH(t->a, *makers, life);
    memmove(makers->at + at + 1, makers->at + at, (makers->n - 1 - at) * sizeof *makers->at);
    makers->at[at] = life;
    if (before == NO_ID) return;
    Life *b = &t->life.at[before];
    uint32_t from = lower(t, &b->uses, key_of(t, l->item));
    for (uint32_t i = from; i < b->uses.n; i++) VEC_PUSH(t->a, l->uses, b->uses.at[i]);
    b->uses.n = from;
    set_to(t, before, last_use(b));
    set_to(t, life, last_use(l));
}

static void end_life(Timeline *t, uint32_t life) {
    Life *l = &t->life.at[life];
    uint32_t before = timeline_serving(t, l->tensor, l->item), to = l->to;
    range_add(t, l->item, true, to, -bytes_of(t, l));
    Numbers *makers = &t->makers[l->tensor];
    uint32_t at = lower_life(t, makers, l->from_key);
    memmove(makers->at + at, makers->at + at + 1, (makers->n - 1 - at) * sizeof *makers->at);
    makers->n--;
    if (before == NO_ID) return;
    Life *b = &t->life.at[before];
    for (uint32_t i = 0; i < l->uses.n; i++) VEC_PUSH(t->a, b->uses, l->uses.at[i]);
    l->uses.n = 0;
    touch(t, to);
    set_to(t, before, last_use(b));
}

/* ---- items ---- */

static uint32_t new_item(Timeline *t, uint32_t run) {
    if (t->spare[run].n) return t->spare[run].at[--t->spare[run].n];
    uint32_t id = t->item.n, nout = run < t->p->nrun ? list_len(&t->p->out, run) : 0;
    VEC_PUSH(t->a, t->item, ((Item){.run = run, .life = t->life.n}));
    for (uint32_t k = 0; k < nout; k++) {
        uint32_t tensor = t->p->out.at[t->p->out.first[run] + k];
        if (tensor < t->p->nstorage && !t->p->is_temp[tensor]) tensor = NO_ID;
        VEC_PUSH(t->a, t->life, ((Life){.tensor = tensor, .item = id, .to = id}));
    }
    return id;
}

/* Bytes that stay after the item has run. */
static int64_t held_after(const Timeline *t, uint32_t item) {
    int64_t held = held_at(t, item);
    const Item *i = &t->item.at[item];
    EACH(t->reads, i->run, s) {
        uint32_t l = timeline_serving(t, s, item);
        if (l != NO_ID && t->life.at[l].to == item) held -= (int64_t)t->p->bytes[s];
    }
    if (i->run == t->p->nrun) return held;
    for (uint32_t k = 0; k < list_len(&t->p->out, i->run); k++) {
        const Life *l = &t->life.at[i->life + k];
        if (l->tensor != NO_ID && l->kept && l->to == item) held -= bytes_of(t, l);
    }
    return held;
}

static uint32_t insert(Timeline *t, uint32_t run, uint32_t before, uint64_t key, uint64_t kept,
                       bool first) {
    uint32_t id = new_item(t, run), prev = before == NO_ID ? NO_ID : previous(t, before);
    int64_t held = prev == NO_ID ? 0 : held_after(t, prev);
    Item *i = &t->item.at[id];
    i->key = key;
    i->first = first;
    i->there = true;
    t->nitem++;
    if (!first) {
        i->again = t->again.n;
        VEC_PUSH(t->a, t->again, id);
    }
    if (before == NO_ID)
        chunk_insert(t, new_chunk(t, 0), 0, id, 0);
    else
        chunk_insert(t, t->item.at[before].chunk, t->item.at[before].at, id, held);
    if (run == t->p->nrun) return id;
    t->cost_ns += t->p->ns[run];
    add_reads(t, id);
    for (uint32_t k = 0; k < list_len(&t->p->out, run); k++) {
        Life *l = &t->life.at[i->life + k];
        l->kept = l->tensor != NO_ID && (first || (k < 64 && kept >> k & 1));
        l->to = id;
        l->from_key = l->to_key = key;
        if (l->kept) begin_life(t, i->life + k);
    }
    touch(t, id);
    settle(t);
    return id;
}

uint32_t timeline_insert(Timeline *t, uint32_t run, uint32_t before, uint64_t kept) {
    uint64_t key = key_before(t, before);
    uint32_t id = insert(t, run, before, key, kept, false);
    VEC_PUSH(t->a, t->journal, ((Change){true, id, run, key, kept}));
    return id;
}

void timeline_remove(Timeline *t, uint32_t id) {
    Item *i = &t->item.at[id];
    uint32_t run = i->run;
    uint64_t kept = 0;
    assert(i->there && !i->first);
    for (uint32_t k = list_len(&t->p->out, run); k-- > 0;) {
        Life *l = &t->life.at[i->life + k];
        if (!l->kept) continue;
        end_life(t, i->life + k);
        l->kept = false;
        if (k < 64) kept |= (uint64_t)1 << k;
    }
    EACH(t->reads, run, s) remove_use(t, timeline_serving(t, s, id), id);
    EACH(t->views, run, v) remove_use(t, timeline_serving(t, v, id), id);
    i->there = false;
    t->again.at[i->again] = t->again.at[--t->again.n];
    t->item.at[t->again.at[i->again]].again = i->again;
    chunk_remove(t, id);
    t->nitem--;
    t->cost_ns -= t->p->ns[run];
    settle(t);
    VEC_PUSH(t->a, t->spare[run], id);
    if (!t->undoing) VEC_PUSH(t->a, t->journal, ((Change){false, id, run, i->key, kept}));
}

/* The item that now stands at or after a key. */
static uint32_t item_from(const Timeline *t, uint64_t key) {
    uint32_t lo = 0, hi = t->order.n - 1;
    while (lo < hi) { /* first chunk whose last key is not below */
        uint32_t mid = lo + (hi - lo) / 2;
        const Chunk *c = &t->chunk.at[t->order.at[mid]];
        if (key_of(t, c->item[c->n - 1]) < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    const Chunk *c = &t->chunk.at[t->order.at[lo]];
    uint32_t i = 0;
    while (key_of(t, c->item[i]) < key) i++;
    return c->item[i];
}

void timeline_undo(Timeline *t, uint32_t mark) {
    t->undoing = true;
    while (t->journal.n > mark) {
        Change c = t->journal.at[--t->journal.n];
        if (c.inserted)
            timeline_remove(t, c.item);
        else
            insert(t, c.run, item_from(t, c.key), c.key, c.kept, false);
    }
    t->undoing = false;
}

/* ---- building ---- */

static Lists reads_of(Arena *a, const Problem *p, bool views) {
    Lists l = {ARENA_ARRAY(a, uint32_t, (uint64_t)p->nrun + 2),
               ARENA_ARRAY(a, uint32_t, (uint64_t)p->in.first[p->nrun] + p->noutput)};
    uint32_t *mark = ARENA_ARRAY(a, uint32_t, p->ntensor), n = 0;
    for (uint32_t r = 0; r <= p->nrun; r++) {
        uint32_t nin = r < p->nrun ? list_len(&p->in, r) : p->noutput;
        const uint32_t *in = !nin ? NULL : r < p->nrun ? p->in.at + p->in.first[r] : p->output;
        for (uint32_t i = 0; i < nin; i++) {
            uint32_t x = views ? in[i] : p->storage[in[i]];
            if (views ? x < p->nstorage : !p->is_temp[x]) continue;
            if (mark[x] == r + 1) continue;
            mark[x] = r + 1;
            l.at[n++] = x;
        }
        l.first[r + 1] = n;
    }
    return l;
}

static void clear(Timeline *t) {
    const Problem *p = t->p;
    t->item.n = t->life.n = t->chunk.n = t->order.n = t->spare_chunk.n = t->touched.n = 0;
    t->journal.n = t->again.n = t->wide.n = 0;
    t->cost_ns = t->nitem = 0;
    memset(t->is_wide, 0, p->nstorage * sizeof *t->is_wide);
    for (uint32_t x = 0; x < p->ntensor; x++) t->makers[x].n = 0;
    for (uint32_t r = 0; r <= p->nrun; r++) {
        t->spare[r].n = 0;
        t->first[r] = NO_ID;
    }
    t->first[p->nrun] = insert(t, p->nrun, NO_ID, (uint64_t)1 << KEY_BITS, 0, true);
}

void timeline_restore(Timeline *t, const Sequence *s) {
    clear(t);
    uint32_t end = t->first[t->p->nrun];
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t r = s->run[i];
        bool first = t->first[r] == NO_ID;
        uint32_t id = insert(t, r, end, fresh_key(i, s->n), s->kept[i], first);
        if (first) t->first[r] = id;
    }
    add_reads(t, end);
    settle(t);
}

Timeline *timeline_new(Arena *a, const Problem *p) {
    Timeline *t = ARENA_NEW(a, Timeline);
    *t = (Timeline){.p = p, .a = a};
    t->first = ARENA_ARRAY(a, uint32_t, (uint64_t)p->nrun + 1);
    t->spare = ARENA_ARRAY(a, Numbers, (uint64_t)p->nrun + 1);
    t->is_wide = ARENA_ARRAY(a, bool, p->nstorage);
    t->makers = ARENA_ARRAY(a, Numbers, p->ntensor);
    t->reads = reads_of(a, p, false);
    t->views = reads_of(a, p, true);
    t->frozen = problem_frozen(a, p);
    Arena *scratch = arena_new();
    Sequence base = sequence_base(scratch, p);
    timeline_restore(t, &base);
    arena_free(scratch);
    return t;
}

/* ---- questions ---- */

int64_t timeline_peak(const Timeline *t) {
    int64_t most = 0;
    for (uint32_t i = 0; i < t->order.n; i++) {
        int64_t v = t->chunk.at[t->order.at[i]].most;
        most = v > most ? v : most;
    }
    return most;
}

int64_t timeline_bytes_at(const Timeline *t, uint32_t item) {
    const Item *i = &t->item.at[item];
    const Chunk *c = &t->chunk.at[i->chunk];
    return c->held[i->at] + c->extra[i->at] + c->add;
}

static int64_t most_of(const Chunk *c, uint32_t from, uint32_t to) {
    int64_t most = INT64_MIN / 2;
    for (uint32_t i = from; i < to; i++) {
        int64_t v = c->held[i] + c->extra[i];
        most = v > most ? v : most;
    }
    return most + c->add;
}

int64_t timeline_peak_between(const Timeline *t, uint32_t from, uint32_t to) {
    const Item *x = &t->item.at[from], *y = &t->item.at[to];
    const Chunk *first = &t->chunk.at[x->chunk], *last = &t->chunk.at[y->chunk];
    if (first == last) return most_of(first, x->at, y->at + 1);
    int64_t most = most_of(first, x->at, first->n), m = most_of(last, 0, y->at + 1);
    if (m > most) most = m;
    for (uint32_t i = first->order + 1; i < last->order; i++) {
        m = t->chunk.at[t->order.at[i]].most;
        if (m > most) most = m;
    }
    return most;
}

static bool is_legal(const Timeline *t, uint32_t item) {
    const Item *i = &t->item.at[item];
    if (i->run < t->p->nrun && !i->first) {
        uint32_t f = t->frozen[i->run];
        if (f != NO_ID && key_of(t, t->first[f]) < i->key) return false;
    }
    EACH(t->reads, i->run, s) if (timeline_serving(t, s, item) == NO_ID) return false;
    EACH(t->views, i->run, v) {
        uint32_t view = timeline_serving(t, v, item),
                 s = timeline_serving(t, t->p->storage[v], item);
        if (!t->p->is_temp[t->p->storage[v]]) continue; /* a view of what is always there */
        if (view == NO_ID || s == NO_ID) return false;
        if (key_of(t, t->life.at[view].item) < key_of(t, t->life.at[s].item)) return false;
    }
    return true;
}

bool timeline_is_legal(const Timeline *t) {
    for (uint32_t i = timeline_head(t); i != NO_ID; i = timeline_next(t, i))
        if (!is_legal(t, i)) return false;
    return true;
}
