/* arena.c - memory of one compilation or stage: blocks taken from the system, handed out front to
 * back, given back together. A new block is twice as large as the last one up to a limit; a large
 * request gets a block of its own size. The last piece of a block grows in place. */
#include "base.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MIN ((size_t)1 << 16)
#define BLOCK_MAX ((size_t)1 << 23)

typedef struct Block Block;
struct Block {
    Block *next;
    size_t size, used; /* of the bytes after the header */
};

struct Arena {
    Block *head; /* the block that pieces are taken from; older ones behind it */
    size_t taken;
    size_t next_size;
    char *last; /* the newest piece, which may grow in place */
};

#define HEADER ((sizeof(Block) + 15) / 16 * 16)

static void (*oom_handler)(size_t bytes);
static uint64_t fail_at;

void arena_on_oom(void (*handler)(size_t bytes)) {
    oom_handler = handler;
}

void arena_fail_at(uint64_t nth) {
    fail_at = nth;
}

static _Noreturn void out_of_memory(size_t bytes) {
    if (oom_handler) oom_handler(bytes);
    fprintf(stderr, "out of memory: %zu bytes\n", bytes);
    abort();
}

static void *system_block(size_t bytes) {
    if (fail_at && --fail_at == 0) out_of_memory(bytes);
    void *p = calloc(1, bytes);
    if (!p) out_of_memory(bytes);
    return p;
}

Arena *arena_new(void) {
    Arena *a = system_block(sizeof *a);
    a->next_size = BLOCK_MIN;
    return a;
}

void arena_free(Arena *a) {
    if (!a) return;
    for (Block *b = a->head; b;) {
        Block *next = b->next;
        free(b);
        b = next;
    }
    free(a);
}

static void add_block(Arena *a, size_t bytes) {
    size_t size = a->next_size > bytes ? a->next_size : bytes;
    if (size > SIZE_MAX / 2) out_of_memory(bytes);
    Block *b = system_block(HEADER + size);
    b->size = size;
    b->next = a->head;
    a->head = b;
    a->taken += HEADER + size;
    if (a->next_size < BLOCK_MAX) a->next_size *= 2;
}

void *arena_alloc(Arena *a, size_t bytes) {
    if (bytes > SIZE_MAX / 2) out_of_memory(bytes);
    size_t need = bytes ? (bytes + 15) / 16 * 16 : 16;
    if (!a->head || a->head->size - a->head->used < need) add_block(a, need);
    a->last = (char *)a->head + HEADER + a->head->used;
    a->head->used += need;
    return a->last;
}

/* Grows the newest piece where it lies. Bytes past a piece were never written, so they are zero. */
static bool grow_in_place(Arena *a, const void *old, size_t new_bytes) {
    if (old != a->last || !old || new_bytes > SIZE_MAX / 2) return false;
    size_t start = (size_t)(a->last - ((char *)a->head + HEADER));
    size_t end = start + (new_bytes + 15) / 16 * 16;
    if (end > a->head->size) return false;
    if (end > a->head->used) a->head->used = end;
    return true;
}

void *arena_grow(Arena *a, const void *old, size_t old_bytes, size_t new_bytes) {
    assert(new_bytes >= old_bytes);
    if (grow_in_place(a, old, new_bytes)) return a->last;
    void *p = arena_alloc(a, new_bytes);
    if (old_bytes) memcpy(p, old, old_bytes);
    return p;
}

char *arena_strn(Arena *a, const char *s, size_t n) {
    char *p = arena_alloc(a, n + 1);
    memcpy(p, s, n);
    return p;
}

char *arena_str(Arena *a, const char *s) {
    return arena_strn(a, s, strlen(s));
}

char *arena_vprintf(Arena *a, const char *fmt, va_list ap) {
    assert(fmt);
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    assert(n >= 0);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *p = arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}

bool arena_owns(const Arena *a, const void *at) {
    uintptr_t x = (uintptr_t)at;
    for (const Block *b = a->head; b; b = b->next) {
        uintptr_t start = (uintptr_t)b + HEADER;
        if (x >= start && x - start < b->used) return true;
    }
    return false;
}

size_t arena_bytes(const Arena *a) {
    return a->taken;
}

size_t checked_array(uint64_t n, size_t elem) {
    uint64_t bytes;
    if (!checked_mul(n, elem, &bytes) || bytes > SIZE_MAX / 2) out_of_memory(SIZE_MAX);
    return (size_t)bytes;
}

void *vec_grow(Arena *a, void *at, uint32_t *cap, size_t elem) {
    if (*cap > (UINT32_MAX >> 2)) out_of_memory(SIZE_MAX);
    uint32_t want = *cap ? *cap * 2 : 8;
    void *p = arena_grow(a, at, checked_array(*cap, elem), checked_array(want, elem));
    *cap = want;
    return p;
}
