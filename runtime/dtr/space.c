/* space.c - address space of the arena. Blocks form a list in address order; free neighbours are
 * merged at once; free blocks hang in a treap by bytes and offset (Seidel, Aragon, "Randomized
 * Search Trees", Algorithmica 16, 1996), whose priorities are hashed block numbers: no chance. */
#include "space.h"

#include <assert.h>

/* Free neighbours are merged, so between blocks with owners there is one free block at most. */
void space_take_memory(Space *s, Block *b, uint64_t most) {
    s->block = block_take(b, 2 * most + 1, sizeof *s->block);
}

/* ---- free blocks ---- */

static uint32_t priority(uint32_t i) {
    return (i + 1) * 2654435761u; /* Knuth, TAOCP vol. 3, 6.4: a permutation of the numbers */
}

static bool is_before(const SpaceBlock *x, const SpaceBlock *y) {
    return x->bytes < y->bytes || (x->bytes == y->bytes && x->offset < y->offset);
}

/* Parts tree t at block i: what is before it, and the rest. */
static void split(Space *s, uint32_t t, uint32_t i, uint32_t *before, uint32_t *rest) {
    while (t != SPACE_NONE) {
        SpaceBlock *b = &s->block[t];
        if (is_before(b, &s->block[i])) {
            *before = t;
            before = &b->right;
            t = b->right;
        } else {
            *rest = t;
            rest = &b->left;
            t = b->left;
        }
    }
    *before = *rest = SPACE_NONE;
}

static void free_link(Space *s, uint32_t i) {
    uint32_t *at = &s->root;
    SpaceBlock *b = &s->block[i];
    b->owner = SPACE_FREE;
    while (*at != SPACE_NONE && priority(*at) > priority(i))
        at = is_before(&s->block[*at], b) ? &s->block[*at].right : &s->block[*at].left;
    split(s, *at, i, &b->left, &b->right);
    *at = i;
}

static void free_unlink(Space *s, uint32_t i) {
    uint32_t *at = &s->root, x = s->block[i].left, y = s->block[i].right;
    while (*at != i)
        at = is_before(&s->block[*at], &s->block[i]) ? &s->block[*at].right : &s->block[*at].left;
    while (x != SPACE_NONE && y != SPACE_NONE) { /* all of x is before all of y */
        bool low = priority(x) > priority(y);
        *at = low ? x : y;
        at = low ? &s->block[x].right : &s->block[y].left;
        *(low ? &x : &y) = *at;
    }
    *at = x == SPACE_NONE ? y : x;
}

/* The smallest free block with enough bytes; of those the one at the lowest offset. */
static uint32_t best_fit(const Space *s, uint64_t bytes) {
    uint32_t best = SPACE_NONE;
    for (uint32_t t = s->root; t != SPACE_NONE;) {
        bool enough = s->block[t].bytes >= bytes;
        if (enough) best = t;
        t = enough ? s->block[t].left : s->block[t].right;
    }
    return best;
}

/* The free block in tree t that holds [offset, offset + bytes). */
static uint32_t hole_around(const Space *s, uint32_t t, uint64_t offset, uint64_t bytes) {
    while (t != SPACE_NONE) {
        const SpaceBlock *b = &s->block[t];
        if (b->bytes < bytes) {
            t = b->right;
            continue;
        }
        if (b->offset <= offset && offset - b->offset <= b->bytes - bytes) return t;
        uint32_t found = hole_around(s, b->left, offset, bytes);
        if (found != SPACE_NONE) return found;
        t = b->right;
    }
    return SPACE_NONE;
}

static uint32_t list_largest(const Space *s, uint32_t t, uint32_t most, uint32_t *block) {
    if (t == SPACE_NONE || !most) return 0;
    uint32_t n = list_largest(s, s->block[t].right, most, block);
    if (n < most) block[n++] = t;
    return n + list_largest(s, s->block[t].left, most - n, block + n);
}

uint32_t space_holes(const Space *s, uint32_t most, uint32_t *block) {
    return list_largest(s, s->root, most, block);
}

/* ---- blocks ---- */

static uint32_t new_block(Space *s) {
    if (s->spare == SPACE_NONE) return s->nblock++;
    uint32_t i = s->spare;
    s->spare = s->block[i].next;
    return i;
}

void space_reset(Space *s, uint64_t capacity) {
    s->nblock = 0;
    s->spare = s->head = SPACE_NONE;
    s->used = s->high = 0;
    s->root = SPACE_NONE;
    if (!capacity) return;
    s->head = new_block(s);
    s->block[s->head] = (SpaceBlock){.bytes = capacity, .prev = SPACE_NONE, .next = SPACE_NONE};
    free_link(s, s->head);
}

/* Cuts block i in two at `bytes`; the second part is returned and is in no free list. */
static uint32_t cut(Space *s, uint32_t i, uint64_t bytes) {
    uint32_t j = new_block(s), after = s->block[i].next;
    SpaceBlock *b = &s->block[i];
    s->block[j] = (SpaceBlock){b->offset + bytes, b->bytes - bytes, i,         after,
                               SPACE_BUSY,        SPACE_NONE,       SPACE_NONE};
    if (after != SPACE_NONE) s->block[after].prev = j;
    b->next = j;
    b->bytes = bytes;
    return j;
}

/* Gives the part [from, from+bytes) of free block i to owner. */
static uint32_t carve(Space *s, uint32_t i, uint64_t from, uint64_t bytes, uint32_t owner) {
    free_unlink(s, i);
    if (from > s->block[i].offset) {
        uint32_t rest = cut(s, i, from - s->block[i].offset);
        free_link(s, i);
        i = rest;
    }
    if (s->block[i].bytes > bytes) free_link(s, cut(s, i, bytes));
    s->block[i].owner = owner;
    s->used += bytes;
    if (from + bytes > s->high) s->high = from + bytes;
    return i;
}

uint32_t space_take(Space *s, uint64_t bytes, bool high_end, uint32_t owner) {
    assert(bytes);
    uint32_t best = best_fit(s, bytes);
    if (best == SPACE_NONE) return SPACE_NONE;
    const SpaceBlock *b = &s->block[best];
    return carve(s, best, high_end ? b->offset + b->bytes - bytes : b->offset, bytes, owner);
}

uint32_t space_take_at(Space *s, uint64_t offset, uint64_t bytes, uint32_t owner) {
    uint32_t i = hole_around(s, s->root, offset, bytes);
    return i == SPACE_NONE ? SPACE_NONE : carve(s, i, offset, bytes, owner);
}

/* Joins free block i with free block j right after it; both are out of the free lists. */
static void join(Space *s, uint32_t i, uint32_t j) {
    SpaceBlock *b = &s->block[i], *c = &s->block[j];
    b->bytes += c->bytes;
    b->next = c->next;
    if (b->next != SPACE_NONE) s->block[b->next].prev = i;
    c->next = s->spare;
    s->spare = j;
}

void space_give(Space *s, uint32_t i) {
    s->used -= s->block[i].bytes;
    uint32_t p = s->block[i].prev, n = s->block[i].next;
    if (n != SPACE_NONE && s->block[n].owner == SPACE_FREE) {
        free_unlink(s, n);
        join(s, i, n);
    }
    if (p != SPACE_NONE && s->block[p].owner == SPACE_FREE) {
        free_unlink(s, p);
        join(s, p, i);
        i = p;
    }
    free_link(s, i);
}
