/* space.c - address space of the arena. Blocks form a list in address order; free
 * neighbours are merged at once; free blocks hang in lists by power of two, so that best fit looks
 * at few of them. */
#include "space.h"

#include <assert.h>

/* Free neighbours are merged, so between blocks with owners there is one free block at most. */
void space_take_memory(Space *s, Block *b, uint64_t most) {
    s->block = block_take(b, 2 * most + 1, sizeof *s->block);
}

static uint32_t bin_of(uint64_t bytes) {
    return 63u - (uint32_t)__builtin_clzll(bytes);
}

static void free_link(Space *s, uint32_t i) {
    uint32_t k = bin_of(s->block[i].bytes);
    s->block[i].owner = SPACE_FREE;
    s->block[i].fprev = SPACE_NONE;
    s->block[i].fnext = s->bin[k];
    if (s->bin[k] != SPACE_NONE) s->block[s->bin[k]].fprev = i;
    s->bin[k] = i;
    s->nonempty |= (uint64_t)1 << k;
}

static void free_unlink(Space *s, uint32_t i) {
    SpaceBlock *b = &s->block[i];
    uint32_t k = bin_of(b->bytes);
    if (b->fprev != SPACE_NONE)
        s->block[b->fprev].fnext = b->fnext;
    else
        s->bin[k] = b->fnext;
    if (b->fnext != SPACE_NONE) s->block[b->fnext].fprev = b->fprev;
    if (s->bin[k] == SPACE_NONE) s->nonempty &= ~((uint64_t)1 << k);
}

static uint32_t new_block(Space *s) {
    if (s->spare == SPACE_NONE) return s->nblock++;
    uint32_t i = s->spare;
    s->spare = s->block[i].next;
    return i;
}

void space_reset(Space *s, uint64_t capacity) {
    s->nblock = 0;
    s->spare = s->head = SPACE_NONE;
    s->used = s->high = s->nonempty = 0;
    for (int k = 0; k < 64; k++) s->bin[k] = SPACE_NONE;
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

static uint32_t best_of_bin(const Space *s, uint32_t k, uint64_t bytes) {
    uint32_t best = SPACE_NONE;
    for (uint32_t i = s->bin[k]; i != SPACE_NONE; i = s->block[i].fnext) {
        const SpaceBlock *b = &s->block[i], *x = best == SPACE_NONE ? NULL : &s->block[best];
        if (b->bytes < bytes) continue;
        if (!x || b->bytes < x->bytes || (b->bytes == x->bytes && b->offset < x->offset)) best = i;
    }
    return best;
}

uint32_t space_take(Space *s, uint64_t bytes, bool high_end, uint32_t owner) {
    assert(bytes);
    uint32_t best = SPACE_NONE;
    for (uint64_t left = s->nonempty >> bin_of(bytes) << bin_of(bytes); left && best == SPACE_NONE;
         left &= left - 1)
        best = best_of_bin(s, (uint32_t)__builtin_ctzll(left), bytes);
    if (best == SPACE_NONE) return SPACE_NONE;
    const SpaceBlock *b = &s->block[best];
    return carve(s, best, high_end ? b->offset + b->bytes - bytes : b->offset, bytes, owner);
}

uint32_t space_take_at(Space *s, uint64_t offset, uint64_t bytes, uint32_t owner) {
    for (uint64_t left = s->nonempty; left; left &= left - 1)
        for (uint32_t i = s->bin[__builtin_ctzll(left)]; i != SPACE_NONE; i = s->block[i].fnext) {
            const SpaceBlock *b = &s->block[i];
            if (b->offset <= offset && offset + bytes <= b->offset + b->bytes)
                return carve(s, i, offset, bytes, owner);
        }
    return SPACE_NONE;
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
