/* space.c - address space of the simulated arena. Blocks form a list in address order; free
 * neighbours are merged at once; free blocks hang in lists by power of two, so that best fit looks
 * at few of them. */
#include "space.h"

#include <assert.h>

void space_init(Space *s, Arena *a) {
    *s = (Space){.a = a};
}

static uint32_t bin_of(uint64_t bytes) {
    return 63u - (uint32_t)__builtin_clzll(bytes);
}

static void free_link(Space *s, uint32_t i) {
    uint32_t k = bin_of(s->block.at[i].bytes);
    s->block.at[i].owner = SPACE_FREE;
    s->block.at[i].fprev = NO_ID;
    s->block.at[i].fnext = s->bin[k];
    if (s->bin[k] != NO_ID) s->block.at[s->bin[k]].fprev = i;
    s->bin[k] = i;
    s->nonempty |= (uint64_t)1 << k;
}

static void free_unlink(Space *s, uint32_t i) {
    SpaceBlock *b = &s->block.at[i];
    uint32_t k = bin_of(b->bytes);
    if (b->fprev != NO_ID)
        s->block.at[b->fprev].fnext = b->fnext;
    else
        s->bin[k] = b->fnext;
    if (b->fnext != NO_ID) s->block.at[b->fnext].fprev = b->fprev;
    if (s->bin[k] == NO_ID) s->nonempty &= ~((uint64_t)1 << k);
}

static uint32_t new_block(Space *s) {
    if (s->spare == NO_ID) {
        VEC_PUSH(s->a, s->block, (SpaceBlock){0});
        return s->block.n - 1;
    }
    uint32_t i = s->spare;
    s->spare = s->block.at[i].next;
    return i;
}

void space_reset(Space *s, uint64_t capacity) {
    s->block.n = 0;
    s->spare = s->head = NO_ID;
    s->capacity = capacity;
    s->used = s->high = s->nonempty = 0;
    for (int k = 0; k < 64; k++) s->bin[k] = NO_ID;
    if (!capacity) return;
    s->head = new_block(s);
    s->block.at[s->head] = (SpaceBlock){.bytes = capacity, .prev = NO_ID, .next = NO_ID};
    free_link(s, s->head);
}

/* Cuts block i in two at `bytes`; the second part is returned and is in no free list. */
static uint32_t cut(Space *s, uint32_t i, uint64_t bytes) {
    uint32_t j = new_block(s), after = s->block.at[i].next;
    SpaceBlock *b = &s->block.at[i];
    s->block.at[j] =
        (SpaceBlock){b->offset + bytes, b->bytes - bytes, i, after, SPACE_BUSY, NO_ID, NO_ID};
    if (after != NO_ID) s->block.at[after].prev = j;
    b->next = j;
    b->bytes = bytes;
    return j;
}

/* Gives the part [from, from+bytes) of free block i to owner. */
static uint32_t carve(Space *s, uint32_t i, uint64_t from, uint64_t bytes, uint32_t owner) {
    free_unlink(s, i);
    if (from > s->block.at[i].offset) {
        uint32_t rest = cut(s, i, from - s->block.at[i].offset);
        free_link(s, i);
        i = rest;
    }
    if (s->block.at[i].bytes > bytes) free_link(s, cut(s, i, bytes));
    s->block.at[i].owner = owner;
    s->used += bytes;
    if (from + bytes > s->high) s->high = from + bytes;
    return i;
}

static uint32_t best_of_bin(const Space *s, uint32_t k, uint64_t bytes) {
    uint32_t best = NO_ID;
    for (uint32_t i = s->bin[k]; i != NO_ID; i = s->block.at[i].fnext) {
        const SpaceBlock *b = &s->block.at[i], *x = best == NO_ID ? NULL : &s->block.at[best];
        if (b->bytes < bytes) continue;
        if (!x || b->bytes < x->bytes || (b->bytes == x->bytes && b->offset < x->offset)) best = i;
    }
    return best;
}

uint32_t space_take(Space *s, uint64_t bytes, bool high_end, uint32_t owner) {
    assert(bytes);
    uint32_t best = NO_ID;
    for (uint64_t left = s->nonempty >> bin_of(bytes) << bin_of(bytes); left && best == NO_ID;
         left &= left - 1)
        best = best_of_bin(s, (uint32_t)__builtin_ctzll(left), bytes);
    if (best == NO_ID) return NO_ID;
    const SpaceBlock *b = &s->block.at[best];
    return carve(s, best, high_end ? b->offset + b->bytes - bytes : b->offset, bytes, owner);
}

uint32_t space_take_at(Space *s, uint64_t offset, uint64_t bytes, uint32_t owner) {
    for (uint64_t left = s->nonempty; left; left &= left - 1)
        for (uint32_t i = s->bin[__builtin_ctzll(left)]; i != NO_ID; i = s->block.at[i].fnext) {
            const SpaceBlock *b = &s->block.at[i];
            if (b->offset <= offset && offset + bytes <= b->offset + b->bytes)
                return carve(s, i, offset, bytes, owner);
        }
    return NO_ID;
}

/* Joins free block i with free block j right after it; both are out of the free lists. */
static void join(Space *s, uint32_t i, uint32_t j) {
    SpaceBlock *b = &s->block.at[i], *c = &s->block.at[j];
    b->bytes += c->bytes;
    b->next = c->next;
    if (b->next != NO_ID) s->block.at[b->next].prev = i;
    c->next = s->spare;
    s->spare = j;
}

void space_give(Space *s, uint32_t i) {
    s->used -= s->block.at[i].bytes;
    uint32_t p = s->block.at[i].prev, n = s->block.at[i].next;
    if (n != NO_ID && s->block.at[n].owner == SPACE_FREE) {
        free_unlink(s, n);
        join(s, i, n);
    }
    if (p != NO_ID && s->block.at[p].owner == SPACE_FREE) {
        free_unlink(s, p);
        join(s, p, i);
        i = p;
    }
    free_link(s, i);
}
