/* search.c - packing to a given capacity by tree search: sections and a capacity in, offsets out.
 *
 * Blocks are placed from the bottom up. A block lies at 0 or on top of another that shares a moment
 * with it, and blocks are placed by rising offset; every layout can be pushed down into this form.
 * So a node of the tree takes the block that can be placed lowest (of several, the first in a fixed
 * order), and has two branches: it lies there, or it does not, and then rests on something that is
 * still to come. A node fails when in some section the lowest offset that is left plus the sizes
 * that are left exceed the capacity, when a block cannot end below the capacity any more, or when a
 * block that was left out would fit entirely below the next one (then it should not have been).
 *
 * A failure has a reason, an interval of sections; going back passes over choices outside of it, so
 * that distant parts of the time line are searched independently. Restarts are short: what
 * failed is remembered as the weight of its section, and blocks of heavy sections come
 * first in the orders of later runs, which also get some noise from a counter.
 *
 * Placement from the bottom up, the section bound, the dominance and the fixed orders are those of
 * Moffitt, "MiniMalloc: A lightweight memory allocator for hardware-accelerated machine learning",
 * ASPLOS 2023; weights of failed constraints follow Boussemart et al., "Boosting systematic search
 * by weighting constraints", ECAI 2004. We differ in two branches instead of one per block, in
 * going back by intervals instead of splitting the problem, and in restarts. An interval is a rough
 * reason, so that a search which ends without a layout proves nothing. */
#include "search.h"

#include "minima.h"

#include <stdlib.h>
#include <string.h>

enum { FAR = SEARCH_FAR };

typedef struct {
    uint32_t from, to;
} Span;

typedef struct {
    uint32_t block;
    int32_t base, low; /* before the change; low > base: it was left out */
} Undo;

typedef struct {
    uint32_t block;
    uint32_t undo;  /* length of the undo list before it */
    bool is_placed; /* else it was left out, */
    Span why;       /* for this reason */
} Choice;

struct Search {
    Arena *a;
    const Sections *s;
    const LayBlock *b;
    int32_t capacity;
    int32_t *base;   /* per block: lowest offset above what is placed; FAR when itself placed */
    int32_t *low;    /* per block: no offset below is possible; FAR when placed */
    bool *left_out;  /* per block: low > base, and it must rest on something else */
    int32_t *offset; /* per block, when placed */
    Minima room;     /* per section: capacity less the sizes that are not yet placed */
    Minima key;      /* per rank: base of the blocks that may be placed now, else FAR */
    uint32_t *rank, *by_rank;
    uint32_t nplaced;
    uint32_t nout, *out, *out_at; /* the blocks that are left out, and where each of them is */
    VEC(Undo) undo;
    VEC(Choice) choice;
    Span why;            /* of the latest failure */
    double *weight;      /* per section */
    uint32_t *seen, now; /* per section: the placement that last looked at it */
    uint32_t round;      /* restarts so far */
    double limit;        /* nodes of the next run beyond one per block */
    uint64_t work;       /* elementary steps so far */
};

static Span span_of(const Sections *s, uint32_t b) {
    return (Span){s->first[b], s->last[b]};
}

static void widen(Span *x, Span y) {
    if (y.from < x->from) x->from = y.from;
    if (y.to > x->to) x->to = y.to;
}

/* ---- failures ----------------------------------------------------------------------------- */

/* Everything that is left in the section had a part in it. */
static bool fail_section(Search *x, uint32_t q) {
    const Sections *s = x->s;
    x->weight[q] += 1;
    x->why = (Span){q, q + 1};
    if (s->live_at[q + 1] > s->live_at[q]) {
        for (uint32_t k = s->live_at[q]; k < s->live_at[q + 1]; k++)
            if (x->base[s->live[k]] < FAR) widen(&x->why, span_of(s, s->live[k]));
        return false;
    }
    for (uint32_t b = 0; b < s->n; b++)
        if (s->first[b] <= q && q < s->last[b] && x->base[b] < FAR) widen(&x->why, span_of(s, b));
    x->work += s->n;
    return false;
}

static bool fail_block(Search *x, uint32_t b) {
    const Sections *s = x->s;
    uint32_t most = s->first[b];
    for (uint32_t q = most; q < s->last[b]; q++)
        if (s->load[q] > s->load[most]) most = q;
    x->weight[most] += 1;
    x->why = span_of(s, b);
    return false;
}

static bool check_section(Search *x, uint32_t q) {
    const Sections *s = x->s;
    uint32_t from = s->live_at[q], to = s->live_at[q + 1];
    if (from == to || x->room.at[q] == x->capacity || x->seen[q] == x->now) return true;
    x->seen[q] = x->now;
    int32_t least = FAR;
    for (uint32_t k = from; k < to; k++) {
        int32_t low = x->low[s->live[k]];
        if (low < least) least = low;
    }
    x->work += to - from;
    return least <= x->room.at[q] || fail_section(x, q);
}

/* Those with too little room for what lies at or above `low`. */
static bool check_sections(Search *x, Span span, int32_t low) {
    uint32_t q = span.from;
    while ((q = minima_below(&x->room, q, span.to, low, &x->work)) < span.to)
        if (!check_section(x, q++)) return false;
    return true;
}

/* Nothing will be placed below y any more. */
static bool check_floor(Search *x, int32_t y) {
    const Sections *s = x->s;
    int32_t least = FAR;
    for (uint32_t q = 0; q < s->nsection; q++)
        least = x->room.at[q] < least ? x->room.at[q] : least;
    x->work += s->nsection / 4;
    if (least >= y) return true;
    uint32_t q = 0;
    while (x->room.at[q] != least) q++;
    return fail_section(x, q);
}

/* ---- the two branches, and back ------------------------------------------------------------- */

static void set_left_out(Search *x, uint32_t b, bool yes) {
    if (x->left_out[b] == yes) return;
    x->left_out[b] = yes;
    if (yes) {
        x->out_at[b] = x->nout;
        x->out[x->nout++] = b;
    } else {
        uint32_t moved = x->out[--x->nout];
        x->out[x->out_at[b]] = moved;
        x->out_at[moved] = x->out_at[b];
    }
}

static void fill_key(Search *x, uint32_t b) {
    minima_set(&x->key, x->rank[b], x->left_out[b] ? FAR : x->base[b]);
}

static void save(Search *x, uint32_t b) {
    VEC_PUSH(x->a, x->undo, ((Undo){b, x->base[b], x->low[b]}));
}

/* b can lie no lower than `base` now. */
static void lift(Search *x, uint32_t b, int32_t base) {
    save(x, b);
    x->base[b] = base;
    if (base >= x->low[b]) {
        set_left_out(x, b, false);
        x->low[b] = base;
    }
    fill_key(x, b);
}

/* Looking at the lists of b's sections is less work than looking at all blocks. */
static bool is_short(const Sections *s, uint32_t b) {
    return s->all_live && s->live_at[s->last[b]] - s->live_at[s->first[b]] < s->n / 2;
}

/* Lifts the blocks that share a moment with b to `top`. */
static void lift_others(Search *x, uint32_t b, int32_t top) {
    const Sections *s = x->s;
    uint32_t from = s->first[b], to = s->last[b];
    if (is_short(s, b)) {
        for (uint32_t k = s->live_at[from]; k < s->live_at[to]; k++)
            if (x->base[s->live[k]] < top) lift(x, s->live[k], top);
        x->work += s->live_at[to] - s->live_at[from];
        return;
    }
    for (uint32_t c = 0; c < s->n; c += SEARCH_LANES) {
        uint8_t hit[SEARCH_LANES];
        const uint32_t *first = s->first + c, *last = s->last + c;
        const int32_t *base = x->base + c;
        for (uint32_t i = 0; i < SEARCH_LANES; i++)
            hit[i] = (uint8_t)((first[i] < to) & (last[i] > from) & (base[i] < top));
        for (uint32_t i = 0; i < SEARCH_LANES; i += 8) {
            uint64_t eight;
            memcpy(&eight, hit + i, 8);
            for (uint32_t k = i; eight && k < i + 8; k++)
                if (hit[k]) lift(x, c + k, top);
        }
    }
    x->work += s->n / 4;
}

static bool place(Search *x, uint32_t b) {
    const Sections *s = x->s;
    int32_t at = x->base[b], top = at + s->size[b];
    VEC_PUSH(x->a, x->choice, ((Choice){b, x->undo.n, true, {0, 0}}));
    x->offset[b] = at;
    x->base[b] = x->low[b] = FAR;
    fill_key(x, b);
    x->nplaced++;
    minima_add(&x->room, s->first[b], s->last[b], s->size[b]);
    uint32_t mark = x->undo.n;
    Span lifted = span_of(s, b); /* and sections around it where blocks were lifted */
    lift_others(x, b, top);
    for (uint32_t k = mark; k < x->undo.n; k++) {
        uint32_t j = x->undo.at[k].block;
        if (x->low[j] + s->size[j] > x->capacity) return fail_block(x, j);
        widen(&lifted, span_of(s, j));
    }
    x->work += 4 * (x->undo.n - mark);
    if (!check_floor(x, at)) return false;
    x->now++;
    return check_sections(x, lifted, top);
}

/* The lowest end of a block that is not placed and shares a moment with b, other than b, whose low
 * is FAR. */
static int32_t lowest_top(Search *x, uint32_t b) {
    const Sections *s = x->s;
    int32_t least = FAR;
    if (is_short(s, b)) {
        uint32_t from = s->live_at[s->first[b]], to = s->live_at[s->last[b]];
        for (uint32_t k = from; k < to; k++) {
            int32_t top = x->low[s->live[k]] + s->size[s->live[k]];
            least = top < least ? top : least;
        }
        x->work += to - from;
        return least;
    }
    for (uint32_t j = 0; j < s->n; j++) {
        bool meets = (s->first[j] < s->last[b]) & (s->last[j] > s->first[b]);
        int32_t top = meets ? x->low[j] + s->size[j] : FAR;
        least = top < least ? top : least;
    }
    x->work += s->n / 2;
    return least;
}

/* b does not lie at its base, so it rests on a block that is not yet placed. */
static bool leave_out(Search *x, uint32_t b) {
    const Sections *s = x->s;
    save(x, b);
    x->low[b] = FAR;
    int32_t low = lowest_top(x, b);
    set_left_out(x, b, true);
    x->low[b] = low;
    fill_key(x, b);
    if (low + s->size[b] > x->capacity) return fail_block(x, b);
    x->now++;
    return check_sections(x, span_of(s, b), low);
}

static void take_back(Search *x, const Choice *c) {
    const Sections *s = x->s;
    while (x->undo.n > c->undo) {
        Undo u = x->undo.at[--x->undo.n];
        x->base[u.block] = u.base;
        x->low[u.block] = u.low;
        set_left_out(x, u.block, u.low > u.base);
        fill_key(x, u.block);
        x->work += 2;
    }
    if (!c->is_placed) return;
    uint32_t b = c->block;
    x->base[b] = x->low[b] = x->offset[b];
    fill_key(x, b);
    x->nplaced--;
    minima_add(&x->room, s->first[b], s->last[b], -s->size[b]);
}

/* Back to the latest placement that bears on the failure, and into its other branch. False: there
 * is none. */
static bool go_back(Search *x) {
    while (x->choice.n) {
        Choice *c = &x->choice.at[x->choice.n - 1];
        take_back(x, c);
        Span span = span_of(x->s, c->block);
        bool bears = span.from < x->why.to && x->why.from < span.to;
        if (bears && c->is_placed) {
            widen(&x->why, span);
            c->is_placed = false;
            c->why = x->why;
            if (leave_out(x, c->block)) return true;
            widen(&x->why, c->why);
            take_back(x, c);
        } else if (bears) {
            widen(&x->why, c->why);
        }
        x->choice.n--;
    }
    return false;
}

/* ---- descents ------------------------------------------------------------------------------- */

/* The block that can lie lowest; NO_ID when one that was left out would fit below it. */
static uint32_t pick(Search *x) {
    const Sections *s = x->s;
    uint32_t k = minima_first(&x->key, &x->work);
    int32_t least = x->key.at[k];
    x->work += x->nout;
    for (uint32_t i = 0; i < x->nout; i++) {
        uint32_t b = x->out[i];
        if (x->base[b] + s->size[b] > least) continue;
        x->why = span_of(s, b);
        for (uint32_t j = 0; j < x->nout && least == FAR; j++)
            widen(&x->why, span_of(s, x->out[j]));
        return NO_ID;
    }
    return x->by_rank[k];
}

/* All blocks placed, within so many nodes and before x->work reaches `work`? */
static bool descend(Search *x, uint64_t nodes, uint64_t work) {
    for (; nodes && x->work < work; nodes--) {
        if (x->nplaced == x->s->n) return true;
        uint32_t b = pick(x);
        if ((b == NO_ID || !place(x, b)) && !go_back(x)) return false;
    }
    return x->nplaced == x->s->n;
}

typedef struct {
    double key[3];
    uint32_t block;
} Ranked;

static int ranked_cmp(const void *x, const void *y) {
    const Ranked *a = x, *b = y;
    for (int k = 0; k < 3; k++)
        if (a->key[k] != b->key[k]) return a->key[k] > b->key[k] ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

/* A number in [0, 1) that depends on both. */
static double noise(uint32_t round, uint32_t block) {
    uint64_t z = ((uint64_t)round << 32 | block) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

enum { NORDER = 9 };

static Ranked rank_block(const Search *x, uint32_t b) {
    const Sections *s = x->s;
    double length = (double)(x->b[b].end - x->b[b].begin), size = (double)s->size[b];
    double area = length * size, load = 0, most = 0, sum = 0;
    for (uint32_t q = s->first[b]; q < s->last[b]; q++) {
        if (s->load[q] > load) load = s->load[q];
        if (x->weight[q] > most) most = x->weight[q];
        sum += x->weight[q];
    }
    const double key[NORDER][3] = {
        {length, area, load},   {load, area, length},     {load, length, area},
        {sum, area, 0},         {most, area, 0},          {sum * size, area, 0},
        {most * area, area, 0}, {most * length, area, 0}, {most * size, area, 0},
    };
    const double *k = key[x->round % NORDER];
    Ranked r = {{k[0], k[1], k[2]}, b};
    if (x->round >= NORDER) r.key[0] *= 1 + noise(x->round, b);
    return r;
}

static void restart(Search *x) {
    const Sections *s = x->s;
    Arena *scratch = arena_new();
    Ranked *r = ARENA_ARRAY(scratch, Ranked, s->n);
    for (uint32_t b = 0; b < s->n; b++) {
        r[b] = rank_block(x, b);
        x->work += 4 + (s->last[b] - s->first[b]);
        x->base[b] = x->low[b] = 0;
        x->left_out[b] = false;
    }
    qsort(r, s->n, sizeof *r, ranked_cmp);
    for (uint32_t k = 0; k < s->n; k++) {
        x->by_rank[k] = r[k].block;
        x->rank[r[k].block] = k;
        minima_set(&x->key, k, 0);
    }
    arena_free(scratch);
    for (uint32_t q = 0; q < s->nsection; q++) {
        minima_set(&x->room, q, x->capacity - s->load[q]);
        x->weight[q] *= 0.9;
    }
    x->undo.n = x->choice.n = x->nplaced = x->nout = 0;
}

Search *lay_search_new(Arena *a, const LayBlock *b, const Sections *s) {
    Search *x = ARENA_NEW(a, Search);
    uint64_t n = (uint64_t)s->n + SEARCH_LANES, nq = s->nsection;
    *x = (Search){.a = a, .s = s, .b = b, .limit = 500};
    x->base = ARENA_ARRAY(a, int32_t, n);
    x->low = ARENA_ARRAY(a, int32_t, n);
    x->left_out = ARENA_ARRAY(a, bool, n);
    x->out = ARENA_ARRAY(a, uint32_t, n);
    x->out_at = ARENA_ARRAY(a, uint32_t, n);
    x->offset = ARENA_ARRAY(a, int32_t, n);
    x->key = minima_new(a, s->n);
    x->rank = ARENA_ARRAY(a, uint32_t, n);
    x->by_rank = ARENA_ARRAY(a, uint32_t, n);
    x->room = minima_new(a, s->nsection);
    x->seen = ARENA_ARRAY(a, uint32_t, nq);
    x->weight = ARENA_ARRAY(a, double, nq);
    return x;
}

bool lay_descend(Search *x, uint64_t capacity, uint64_t work, uint64_t *spent, uint64_t *offset) {
    const Sections *s = x->s;
    uint64_t start = x->work;
    x->capacity = (int32_t)(capacity / s->unit);
    restart(x);
    bool found = descend(x, s->n + (uint64_t)x->limit, start + work);
    if (++x->round % NORDER == 0) x->limit *= 1.03;
    for (uint32_t i = 0; i < s->n && found; i++) offset[i] = (uint64_t)x->offset[i] * s->unit;
    *spent = x->work - start;
    return found;
}
