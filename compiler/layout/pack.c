/* pack.c - offset assignment: live ranges in, offsets in one arena out.
 *
 * Greedy best fit in several orders: each block goes into the smallest gap between the blocks that
 * are already placed and live at some common moment, else on top of them. Where the best of these
 * misses the target, the tree search of search.c tries to meet it, or to get as near as it can.
 * Orders and greedy-by-size are those of Pisarchyk and Lee, "Efficient memory management for deep
 * neural net inference", MLSys 2020; the square root of the length is ours.
 *
 * Placed blocks are kept by offset in chunks that know their time span, so that a scan skips most
 * of them: 20k blocks take a fraction of a second per order. */
#include "search.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 128 };

typedef struct {
    uint32_t n, begin, end; /* time span of its blocks */
    uint64_t low[CHUNK], high[CHUNK];
    uint32_t from[CHUNK], to[CHUNK];
} Chunk;

typedef struct {
    const LayBlock *b;
    uint32_t n;
    uint64_t *bytes; /* rounded up */
    Chunk *pool;
    uint32_t npool;
    Chunk **chunk; /* by offset */
    uint32_t nchunk;
    uint64_t *offset; /* of the order being tried */
} Packer;

/* Which of the chunk's blocks live at some moment of [from, to): one byte each, in plain loops that
 * compilers vectorise. Entries past k->n may say anything. */
static void fill_hits(const Chunk *k, uint32_t from, uint32_t to, uint8_t *hit) {
    for (uint32_t i = 0; i < CHUNK; i++) hit[i] = (uint8_t)((k->from[i] < to) & (k->to[i] > from));
}

/* Smallest gap that holds `bytes` among the placed blocks that live in [from, to), else on top. */
static uint64_t find_gap(const Packer *p, uint32_t from, uint32_t to, uint64_t bytes) {
    uint64_t cover = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
    for (uint32_t c = 0; c < p->nchunk; c++) {
        const Chunk *k = p->chunk[c];
        if (k->begin >= to || k->end <= from) continue;
        uint8_t hit[CHUNK];
        fill_hits(k, from, to, hit);
        for (uint32_t i = 0; i < k->n; i++) {
            uint64_t eight;
            memcpy(&eight, hit + (i & ~7u), 8);
            if (!eight) {
                i |= 7; /* none of these eight */
                continue;
            }
            if (!hit[i]) continue;
            if (k->low[i] > cover && k->low[i] - cover >= bytes && k->low[i] - cover < best_gap) {
                best_gap = k->low[i] - cover;
                best = cover;
            }
            if (k->high[i] > cover) cover = k->high[i];
        }
    }
    return best == UINT64_MAX ? cover : best;
}

static void split(Packer *p, uint32_t c) {
    Chunk *a = p->chunk[c], *b = &p->pool[p->npool++];
    uint32_t half = a->n / 2, rest = a->n - half;
    memcpy(b->low, a->low + half, rest * sizeof *b->low);
    memcpy(b->high, a->high + half, rest * sizeof *b->high);
    memcpy(b->from, a->from + half, rest * sizeof *b->from);
    memcpy(b->to, a->to + half, rest * sizeof *b->to);
    b->n = rest;
    b->begin = a->begin; /* not tight, but never too small */
    b->end = a->end;
    a->n = half;
    memmove(p->chunk + c + 2, p->chunk + c + 1, (p->nchunk - c - 1) * sizeof *p->chunk);
    p->chunk[c + 1] = b;
    p->nchunk++;
}

static void insert(Packer *p, uint32_t from, uint32_t to, uint64_t low, uint64_t high) {
    uint32_t lo = 0, hi = p->nchunk - 1; /* last chunk that starts at or below `low` */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo + 1) / 2;
        if (p->chunk[mid]->n && p->chunk[mid]->low[0] <= low)
            lo = mid;
        else
            hi = mid - 1;
    }
    if (p->chunk[lo]->n == CHUNK) {
        split(p, lo);
        if (p->chunk[lo + 1]->low[0] <= low) lo++;
    }
    Chunk *k = p->chunk[lo];
    uint32_t i = k->n;
    for (; i > 0 && k->low[i - 1] > low; i--) {
        k->low[i] = k->low[i - 1];
        k->high[i] = k->high[i - 1];
        k->from[i] = k->from[i - 1];
        k->to[i] = k->to[i - 1];
    }
    k->low[i] = low;
    k->high[i] = high;
    k->from[i] = from;
    k->to[i] = to;
    if (!k->n++) k->begin = UINT32_MAX, k->end = 0;
    if (from < k->begin) k->begin = from;
    if (to > k->end) k->end = to;
}

/* Packs in the given order; gives up at the first block that ends above `limit`. Returns the
 * height. */
static uint64_t pack_order(Packer *p, const uint32_t *order, uint64_t limit) {
    p->npool = 1;
    p->pool[0].n = 0;
    p->chunk[0] = &p->pool[0];
    p->nchunk = 1;
    uint64_t height = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t k = order[i];
        const LayBlock *b = &p->b[k];
        uint64_t at = find_gap(p, b->begin, b->end, p->bytes[k]), end = at + p->bytes[k];
        if (end >= limit) return UINT64_MAX;
        p->offset[k] = at;
        if (end > height) height = end;
        insert(p, b->begin, b->end, at, end);
    }
    return height;
}

typedef enum { BY_BYTES, BY_AREA, BY_ROOT, BY_LENGTH, BY_BEGIN, NKEY } Key;
typedef struct {
    double key;
    uint64_t bytes;
    uint32_t id;
} Ranked;

static int ranked_cmp(const void *x, const void *y) {
    const Ranked *a = x, *b = y;
    if (a->key != b->key) return a->key > b->key ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void fill_order(const Packer *p, Key key, Ranked *r, uint32_t *order) {
    for (uint32_t i = 0; i < p->n; i++) {
        double len = (double)(p->b[i].end - p->b[i].begin), bytes = (double)p->bytes[i];
        double k = key == BY_BYTES    ? bytes
                   : key == BY_AREA   ? bytes * len
                   : key == BY_ROOT   ? bytes * sqrt(len)
                   : key == BY_LENGTH ? len
                                      : -(double)p->b[i].begin;
        r[i] = (Ranked){k, p->bytes[i], i};
    }
    qsort(r, p->n, sizeof *r, ranked_cmp);
    for (uint32_t i = 0; i < p->n; i++) order[i] = r[i].id;
}

typedef struct {
    uint64_t height;
    uint64_t *offset;
} Best;

static void take(const Packer *p, uint64_t height, Best *best) {
    best->height = height;
    memcpy(best->offset, p->offset, p->n * sizeof *p->offset);
}

enum { AT_STOP = 10 }; /* one of so many descents of a search for the best tries to meet `stop` */

/* Descent after descent, each with the capacity lowered after a success and raised a little,
 * towards the best height known, after a failure. only_stop: all that counts is a layout of `stop`
 * bytes. */
static void search(Packer *p, Arena *scratch, Best *best, uint64_t stop, bool only_stop,
                   uint64_t work) {
    const Sections *s = lay_sections(scratch, p->b, p->n, p->bytes, best->height);
    if (!s) return;
    Search *x = lay_search_new(scratch, p->b, s);
    double part = 0.5; /* of what lies between stop and the best */
    for (uint32_t r = 1; work && best->height > stop; r++) {
        bool at_stop = only_stop || r % AT_STOP == 0;
        uint64_t above = (uint64_t)((double)(best->height - stop - 1) * part), spent, height = 0;
        if (lay_descend(x, at_stop ? stop : stop + above, work, &spent, p->offset)) {
            for (uint32_t i = 0; i < p->n; i++)
                if (p->offset[i] + p->bytes[i] > height) height = p->offset[i] + p->bytes[i];
            take(p, height, best);
            part = 0.7;
        } else if (!at_stop) {
            part += (1 - part) / 10;
        }
        work -= spent < work ? spent : work;
    }
}

uint64_t lay_pack(Arena *scratch, LayBlock *b, uint32_t n, uint64_t align, uint64_t target,
                  int effort) {
    if (!n) return 0;
    uint64_t stop = lay_bound(scratch, b, n, align);
    if (target > stop) stop = target;
    Packer p = {.b = b, .n = n};
    p.bytes = ARENA_ARRAY(scratch, uint64_t, n);
    p.offset = ARENA_ARRAY(scratch, uint64_t, n);
    p.pool = ARENA_ARRAY(scratch, Chunk, n / (CHUNK / 2) + 2);
    p.chunk = ARENA_ARRAY(scratch, Chunk *, n / (CHUNK / 2) + 2);
    for (uint32_t i = 0; i < n; i++) {
        assert(b[i].begin < b[i].end && b[i].bytes);
        p.bytes[i] = round_up(b[i].bytes, align);
    }
    if (effort < 0 && stop > target) return UINT64_MAX;
    Best best = {UINT64_MAX, ARENA_ARRAY(scratch, uint64_t, n)};
    Ranked *r = ARENA_ARRAY(scratch, Ranked, n);
    uint32_t *order = ARENA_ARRAY(scratch, uint32_t, n);
    for (Key key = 0; key < NKEY && best.height > stop; key++) {
        fill_order(&p, key, r, order);
        uint64_t height = pack_order(&p, order, best.height);
        if (height < best.height) take(&p, height, &best);
    }
    int times = effort < 0 ? -effort : effort;
    if (best.height > stop && times)
        search(&p, scratch, &best, stop, effort < 0, lay_work(n, times));
    if (effort < 0 && best.height > target) return UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) b[i].offset = best.offset[i];
    return best.height;
}
