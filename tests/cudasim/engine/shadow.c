/* shadow.c - who touched a word before: finds data races.
 *
 * Two accesses of a word by different threads, not both reads and not both atomic, race unless
 *   - the threads are of one block and a barrier of the block lies between them, or
 *   - they are of one warp and a __syncwarp of all its lanes lies between them.
 * (Shuffles and votes order nothing in memory: CUDA C++ Programming Guide, "Warp Shuffle
 * Functions".) As every thread of a block passes the same barriers, "a barrier between" is a
 * comparison of one counter, and so is "a __syncwarp between" for a warp. For each word we keep
 * three sets - who wrote, read, did an atomic - summarised so that the answer stays exact: of the
 * current epoch, one thread, or "several of one warp", or "several warps"; over the grid, one block
 * or "several". This is the idea of FastTrack (Flanagan and Freund, PLDI 2009: epochs instead of
 * vector clocks), for barriers.
 *
 * Cells are of 4 bytes; a word that is accessed in parts gets four cells of one byte instead. */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
    uint32_t block, epoch, warp_epoch, line;
    uint16_t thread;
    bool used, many_threads, many_warps, many_blocks;
} Touched;

typedef struct {
    Touched write, read, atomic;
} Cell;

enum { PAGE = 4096, WORDS = PAGE / 4 };
typedef struct {
    uint64_t number; /* address / PAGE; 0: free place of the table */
    Cell *words, *bytes;
    uint8_t *split; /* of each word */
} Page;

static Page *table;
static uint32_t table_size, table_used; /* size: a power of two */
static Page *last_page;

static Page *slot_of(Page *pages, uint32_t size, uint64_t number) {
    uint64_t h = number * 0x9e3779b97f4a7c15u >> 32;
    while (pages[h & (size - 1)].number && pages[h & (size - 1)].number != number) h++;
    return &pages[h & (size - 1)];
}

static void *must(void *p) {
    if (!p) abort(); /* a test tool: no memory for its own books */
    return p;
}

static void grow_table(void) {
    uint32_t size = table_size ? 2 * table_size : 256;
    Page *bigger = must(calloc(size, sizeof *bigger));
    for (uint32_t i = 0; i < table_size; i++)
        if (table[i].number) *slot_of(bigger, size, table[i].number) = table[i];
    free(table);
    table = bigger;
    table_size = size;
    last_page = NULL;
}

static Page *page_of(uint64_t address) {
    uint64_t number = address / PAGE;
    if (last_page && last_page->number == number) return last_page;
    if (2 * (table_used + 1) > table_size) grow_table();
    Page *p = slot_of(table, table_size, number);
    if (!p->number) {
        p->number = number;
        p->words = must(calloc(WORDS, sizeof(Cell)));
        p->split = must(calloc(WORDS, 1));
        table_used++;
    }
    return last_page = p;
}

void shadow_end(void) {
    for (uint32_t i = 0; i < table_size; i++) {
        free(table[i].words);
        free(table[i].bytes);
        free(table[i].split);
        table[i] = (Page){0};
    }
    table_used = 0;
    last_page = NULL;
    if (table_size > 65536) {
        free(table);
        table = NULL;
        table_size = 0;
    }
}

/* The access that is made now. */
typedef struct {
    Touched me;
    uint32_t warp;
    SimtThread *t;
    bool shared;
    uint64_t address;
} Access;

/* Of another block, shared memory is other memory. */
static bool is_old(const Touched *s, const Access *a) {
    return !s->used || (a->shared && s->block != a->me.block);
}

static bool races(const Touched *s, const Access *a, SimtKind *kind) {
    if (is_old(s, a)) return false;
    *kind = SIMT_BLOCK_RACE;
    if (s->many_blocks || s->block != a->me.block) return true;
    *kind = SIMT_RACE;
    if (s->epoch != a->me.epoch) return false;
    if (s->many_warps || s->thread / 32u != a->warp) return true;
    if (s->warp_epoch != a->me.warp_epoch) return false;
    return s->many_threads || s->thread != a->me.thread;
}

static void add(Touched *s, const Access *a) {
    if (is_old(s, a)) {
        *s = a->me;
    } else if (s->block != a->me.block || s->epoch != a->me.epoch) {
        bool many = s->many_blocks || s->block != a->me.block;
        *s = a->me;
        s->many_blocks = many;
    } else if (s->thread / 32u != a->warp) {
        s->many_warps = true;
    } else if (s->warp_epoch != a->me.warp_epoch) {
        s->warp_epoch = a->me.warp_epoch;
        s->thread = a->me.thread;
        s->line = a->me.line;
        s->many_threads = false;
    } else if (s->thread != a->me.thread) {
        s->many_threads = true;
    }
}

static void check_against(const Touched *s, const Access *a, const char *now, const char *before) {
    SimtKind kind;
    if (!races(s, a, &kind)) return;
    char name[100];
    if (a->shared)
        shared_name(a->address - (uint64_t)(uintptr_t)simt_now.shared, name, sizeof name);
    else
        snprintf(name, sizeof name, "global memory at 0x%llx", (unsigned long long)a->address);
    simt_report(a->t, kind, a->me.line,
                "%s %s, which thread %u of block %u %s in line %u with no barrier between", now,
                name, s->thread, s->block, before, s->line);
}

static void touch_cell(Cell *c, int how, const Access *a) {
    switch (how) {
    case PTX_READ:
        check_against(&c->write, a, "reads", "writes");
        check_against(&c->atomic, a, "reads", "changes atomically");
        add(&c->read, a);
        break;
    case PTX_WRITE:
        check_against(&c->write, a, "writes", "writes");
        check_against(&c->read, a, "writes", "reads");
        check_against(&c->atomic, a, "writes", "changes atomically");
        add(&c->write, a);
        break;
    default:
        check_against(&c->write, a, "changes atomically", "writes");
        check_against(&c->read, a, "changes atomically", "reads");
        add(&c->atomic, a);
    }
}

static void split_word(Page *p, uint32_t word) {
    if (!p->bytes) p->bytes = must(calloc(PAGE, sizeof(Cell)));
    for (uint32_t b = 0; b < 4; b++) p->bytes[4 * word + b] = p->words[word];
    p->split[word] = 1;
}

void shadow_touch(SimtThread *t, bool shared, int how, uint64_t address, uint32_t bytes,
                  uint32_t line) {
    Access a = {.me = {.block = (uint32_t)simt_now.block_number,
                       .epoch = simt_now.epoch,
                       .warp_epoch = simt_now.warps[t->warp].epoch,
                       .line = line,
                       .thread = (uint16_t)t->linear,
                       .used = true},
                .warp = t->warp,
                .t = t,
                .shared = shared};
    for (uint64_t at = address; at < address + bytes;) {
        Page *p = page_of(at);
        uint32_t word = (uint32_t)(at % PAGE / 4);
        bool whole = at % 4 == 0 && address + bytes - at >= 4;
        a.address = at;
        if (!whole && !p->split[word]) split_word(p, word);
        if (whole && !p->split[word]) {
            touch_cell(&p->words[word], how, &a);
            at += 4;
        } else {
            touch_cell(&p->bytes[at % PAGE], how, &a);
            at++;
        }
    }
}
