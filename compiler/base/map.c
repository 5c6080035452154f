/* map.c - names to 32-bit numbers. An open-addressing table of key indices finds the keys; nobody
 * can walk it, so that no result depends on the hash. Hash: FNV-1a (Fowler, Noll, Vo). */
#include "base.h"

#include <string.h>

struct Map {
    Arena *arena;
    uint32_t count, key_cap, slots; /* slots: a power of two, more than twice the count */
    uint32_t *slot;                 /* key index + 1; 0: free */
    const char **key;
    uint32_t *val;
};

static uint64_t hash(const char *s) {
    uint64_t h = 14695981039346656037u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h ^ (h >> 32);
}

/* The slot that holds key, or the free one where it belongs. */
static uint32_t find(const Map *m, const char *key) {
    uint32_t at = (uint32_t)hash(key) & (m->slots - 1);
    while (m->slot[at] && strcmp(m->key[m->slot[at] - 1], key)) at = (at + 1) & (m->slots - 1);
    return at;
}

Map *map_new(Arena *a) {
    Map *m = ARENA_NEW(a, Map);
    m->arena = a;
    m->slots = 16;
    m->slot = ARENA_ARRAY(a, uint32_t, m->slots);
    return m;
}

static void rehash(Map *m) {
    m->slots *= 2;
    m->slot = ARENA_ARRAY(m->arena, uint32_t, m->slots);
    for (uint32_t i = 0; i < m->count; i++) m->slot[find(m, m->key[i])] = i + 1;
}

uint32_t map_get(const Map *m, const char *key) {
    uint32_t at = m->slot[find(m, key)];
    return at ? m->val[at - 1] : NO_ID;
}

bool map_put(Map *m, const char *key, uint32_t val) {
    uint32_t at = find(m, key);
    if (m->slot[at]) {
        m->val[m->slot[at] - 1] = val;
        return false;
    }
    if (m->count == m->key_cap) {
        uint32_t cap = m->key_cap;
        m->key = vec_grow(m->arena, (void *)m->key, &m->key_cap, sizeof *m->key);
        m->val = vec_grow(m->arena, m->val, &cap, sizeof *m->val);
    }
    m->key[m->count] = arena_str(m->arena, key);
    m->val[m->count] = val;
    m->slot[at] = ++m->count;
    if (m->count * 2 >= m->slots) rehash(m);
    return true;
}

uint32_t map_count(const Map *m) {
    return m->count;
}
