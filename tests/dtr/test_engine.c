/* The engine: steps worked out by hand, failures, and the structures below it against plain ones.
 */
#include "build.h"
#include "kinetic.h"
#include "space.h"
#include "test.h"

/* ---- events as text: "0:1@0 +2@256 -1! ..." ---- */

typedef struct {
    const DtrGraph *g;
    char text[4000];
    size_t n;
    uint32_t left; /* events until the hook says stop */
} Log;

static void say(Log *l, const char *format, unsigned a, unsigned long b, const char *c) {
    int n = snprintf(l->text + l->n, sizeof l->text - l->n, format, a, b, c);
    l->n += (size_t)n;
}

/* Run, ' when again, storages of its outputs with their offsets (~: scratch), = in place, w:
 * workspace. */
static bool log_run(void *user, const DtrRun *r) {
    Log *l = user;
    say(l, "%u%.0lu%s", r->run, 0, r->again ? "'" : "");
    for (uint32_t k = 0; k < dtr_len(&l->g->out, r->run); k++) {
        uint32_t t = l->g->out.at[l->g->out.first[r->run] + k];
        if (r->out[k].place == DTR_NOTHING) continue;
        say(l, ":%u@%lu%s", t, r->out[k].offset,
            r->out[k].place == DTR_SCRATCH ? "~"
            : !k && r->inplace != DTR_NONE ? "="
                                           : "");
    }
    if (l->g->workspace[r->run]) say(l, "w%.0u%lu%s", 0, r->workspace, "");
    say(l, "%.0u%.0lu%s", 0, 0, " ");
    return --l->left > 0;
}

/* -storage, ! when evicted. */
static bool log_drop(void *user, uint32_t storage, uint64_t offset, bool evicted) {
    Log *l = user;
    (void)offset;
    say(l, "-%u%.0lu%s ", storage, 0, evicted ? "!" : "");
    return --l->left > 0;
}

static DtrStatus play(const DtrGraph *g, DtrOptions o, Log *l) {
    Dtr *d = dtr_open(g, &o);
    uint32_t left = l->left;
    *l = (Log){.g = g, .left = left ? left : UINT32_MAX};
    DtrStatus st = dtr_step(d, &(DtrHooks){.user = l, .run = log_run, .drop = log_drop});
    dtr_close(d);
    return st;
}

/* a = f(x) 256 bytes, b = g(x) 512, t = h(b) 256, u = k(a, t) 256 is the output; x is persistent.
 * With 768 bytes a lies at 0 and b behind it. t finds no room, b is being read: a goes, t takes its
 * place, b has no further use. a is made again in the hole that b left, u behind it. */
static Build one_eviction(void) {
    Build b = build_new(16);
    uint32_t x = build_storage(&b, 0), a = build_storage(&b, 256), big = build_storage(&b, 512);
    uint32_t t = build_storage(&b, 256), u = build_storage(&b, 256);
    uint32_t in[4][2] = {{DTR_NONE, DTR_NONE}, {DTR_NONE, DTR_NONE}, {big, DTR_NONE}, {a, t}};
    uint32_t out[4] = {a, big, t, u};
    for (int r = 0; r < 4; r++) {
        for (int k = 0; k < 2; k++)
            if (in[r][k] != DTR_NONE) build_add(&b, LIST_IN, in[r][k]);
        if (r < 2) build_add(&b, LIST_READS, x);
        build_add(&b, LIST_OUT, out[r]);
        build_run(&b, r ? 100 : 7);
    }
    build_output(&b, u);
    b.g.align = 256;
    build_done(&b);
    return b;
}

static void by_hand(void) {
    Build b = one_eviction();
    Log l = {0};
    CHECK_EQ(b.g.floor_bytes, 768);
    CHECK_EQ(b.g.base_ns, 307);
    for (int h = 0; h < DTR_COUNT; h++)
        for (int k = 0; k < 4; k++) {
            DtrOptions o = {.capacity = 768,
                            .evict = true,
                            .h = (DtrHeuristic)h,
                            .gamma = 1,
                            .window = k & 1,
                            .incremental = k & 2,
                            .cost_limit = UINT64_MAX};
            CHECK_EQ(play(&b.g, o, &l), DTR_OK);
            CHECK_STR(l.text, "0:1@0 1:2@256 -1! 2:3@0 -2 0':1@256 3:4@512 -1 -3 ");
        }
    build_free(&b);
}

static void failures(void) {
    Build b = one_eviction();
    DtrOptions o = {.capacity = 768, .evict = true, .cost_limit = UINT64_MAX};
    Log l = {0};
    Dtr *d = dtr_open(&b.g, &o);
    CHECK_EQ(dtr_step(d, NULL), DTR_OK);
    CHECK_EQ(dtr_counters(d)->cost_ns, 314);
    CHECK_EQ(dtr_counters(d)->reruns, 1);
    CHECK_EQ(dtr_counters(d)->evictions, 1);
    CHECK_EQ(dtr_counters(d)->peak_bytes, 768);
    CHECK_EQ(dtr_where(d, 4), 512);
    CHECK(dtr_where(d, 1) == DTR_NOWHERE);
    o.capacity = 767; /* 512 at aligned offsets: b in the place of a, nothing beside it */
    dtr_set(d, &o);
    CHECK_EQ(dtr_step(d, NULL), DTR_NO_ROOM);
    CHECK_EQ(dtr_counters(d)->failed_run, 2);
    CHECK_EQ(dtr_counters(d)->failed_bytes, 256);
    o.capacity = 768;
    o.cost_limit = 313;
    dtr_set(d, &o);
    CHECK_EQ(dtr_step(d, NULL), DTR_TOO_DEAR);
    CHECK_EQ(dtr_counters(d)->failed_run, 3);
    o.cost_limit = UINT64_MAX;
    o.evict = false;
    dtr_set(d, &o);
    CHECK_EQ(dtr_step(d, NULL), DTR_NO_ROOM);
    dtr_close(d);
    for (uint32_t n = 1; n <= 10; n++) { /* nine events */
        l.left = n;
        o.evict = true;
        CHECK_EQ(play(&b.g, o, &l), n <= 9 ? DTR_STOPPED : DTR_OK);
        if (n <= 9) CHECK_EQ(l.left, 0);
    }
    build_free(&b);
}

/* p, q = f(x), 256 bytes each; y = g(p), 512 bytes; z = h(y, q); v = k(p, z) is the output. With
 * 1024 bytes: p 0, q 256, y 512. z (256) evicts p, since y and q are read. For v both are needed: p
 * comes with a q that nobody wants, which is scratch at the place of its own. y and q are dead. */
static void scratch(void) {
    Build b = build_new(16);
    uint32_t p = build_storage(&b, 256), q = build_storage(&b, 256), y = build_storage(&b, 512);
    uint32_t z = build_storage(&b, 256), v = build_storage(&b, 256);
    build_add(&b, LIST_OUT, p);
    build_add(&b, LIST_OUT, q);
    build_run(&b, 10);
    build_add(&b, LIST_IN, p);
    build_add(&b, LIST_OUT, y);
    build_run(&b, 10);
    build_add(&b, LIST_IN, y);
    build_add(&b, LIST_IN, q);
    build_add(&b, LIST_OUT, z);
    build_run(&b, 10);
    build_add(&b, LIST_IN, p);
    build_add(&b, LIST_IN, z);
    build_add(&b, LIST_OUT, v);
    build_run(&b, 10);
    build_output(&b, v);
    build_done(&b);
    Log l = {0};
    DtrOptions o = {.capacity = 1024, .evict = true, .cost_limit = UINT64_MAX};
    CHECK_EQ(play(&b.g, o, &l), DTR_OK);
    CHECK_STR(l.text, "0:0@0:1@256 1:2@512 -0! 2:3@0 -2 -1 0':0@256:1@512~ 3:4@512 -0 -3 ");
    build_free(&b);
}

/* w is persistent; a = f(w), then w changes, then v = g(a). With a forced drop of a after its run
 * nothing but the engine's care makes it before the update. In place: v takes over a. */
static void update(void) {
    Build b = build_new(16);
    uint32_t w = build_storage(&b, 0), a = build_storage(&b, 256), v = build_storage(&b, 256);
    build_add(&b, LIST_READS, w);
    build_add(&b, LIST_OUT, a);
    build_run(&b, 10);
    build_add(&b, LIST_READS, w);
    build_add(&b, LIST_WRITES, w);
    b.g.effect[1] = true;
    build_run(&b, 10);
    build_add(&b, LIST_IN, a);
    build_add(&b, LIST_INPLACE, a);
    build_add(&b, LIST_OUT, v);
    build_run(&b, 10);
    build_output(&b, v);
    build_done(&b);
    uint32_t first[] = {0, 1, 1, 1}, at[] = {1};
    DtrLists drop = {first, at};
    Log l = {0};
    DtrOptions o = {.capacity = 256, .evict = true, .cost_limit = UINT64_MAX, .drop_after = &drop};
    CHECK_EQ(play(&b.g, o, &l), DTR_OK);
    CHECK_STR(l.text, "0:1@0 -1 0':1@0 1 2:2@0= ");
    build_free(&b);
}

/* ---- adopting ---- */

/* Of one_eviction after its third run: t at 0, b dead at 256, a to be made again. */
static void adopt(void) {
    Build b = one_eviction();
    DtrOptions o = {.capacity = 768, .evict = true, .cost_limit = UINT64_MAX};
    uint64_t offset[5] = {DTR_NOWHERE, DTR_NOWHERE, 256, 0, DTR_NOWHERE};
    Dtr *d = dtr_open(&b.g, &o);
    Log l = {.g = &b.g, .left = UINT32_MAX};
    DtrHooks hooks = {.user = &l, .run = log_run, .drop = log_drop};
    CHECK(dtr_adopt(d, 3, offset));
    CHECK_EQ(dtr_step(d, &hooks), DTR_OK);
    CHECK_STR(l.text, "-2 0':1@256 3:4@512 -1 -3 ");
    offset[2] = 512; /* 512 bytes from there are too many */
    CHECK(!dtr_adopt(d, 3, offset));
    offset[2] = 0; /* on t */
    CHECK(!dtr_adopt(d, 3, offset));
    offset[2] = 256;
    CHECK(!dtr_adopt(d, 2, offset)); /* t is not made yet */
    CHECK(!dtr_adopt(d, 5, offset));
    l.n = 0;
    CHECK_EQ(dtr_step(d, &hooks), DTR_OK); /* from the start, after all of that */
    CHECK_STR(l.text, "0:1@0 1:2@256 -1! 2:3@0 -2 0':1@256 3:4@512 -1 -3 ");
    dtr_close(d);
    build_free(&b);
}

/* ---- structures ---- */

/* Lines that come, change and go, against looking at all of them. */
static void tournament(void) {
    enum { N = 50 };
    Kinetic k;
    Block size = {NULL, 0};
    kinetic_take_memory(&k, &size, N);
    Block b = {calloc(1, size.used), 0};
    kinetic_take_memory(&k, &b, N);
    kinetic_reset(&k);
    Line line[N];
    bool there[N] = {false};
    double t = 0;
    uint32_t wrong = 0, asked = 0;
    for (int i = 0; i < 20000; i++) {
        uint32_t x = (uint32_t)test_uniform(0, N);
        line[x] = (Line){floor(test_uniform(-5, 5)), floor(test_uniform(0, 40)), 0};
        if (test_uniform(0, 1) < 0.1) line[x] = (Line){0, 0, INFINITY};
        there[x] = test_uniform(0, 1) < 0.8;
        kinetic_set(&k, x, there[x], line[x]);
        if (test_uniform(0, 1) < 0.5) continue;
        t += floor(test_uniform(0, 3));
        uint32_t best[8], n = kinetic_best(&k, t, 8, best), rank = 0;
        bool taken[N] = {false};
        for (; rank < 8; rank++) {
            uint32_t top = KINETIC_NONE;
            for (uint32_t y = 0; y < N; y++)
                if (there[y] && !taken[y] &&
                    (top == KINETIC_NONE || line_at(&line[y], t) > line_at(&line[top], t)))
                    top = y;
            if (top == KINETIC_NONE) break;
            taken[top] = true;
            wrong += rank >= n || best[rank] != top;
        }
        wrong += n != rank;
        asked++;
    }
    CHECK_EQ(wrong, 0);
    CHECK(asked > 9000);
    free(b.at);
}

/* Best fit, lowest offset, against a map of bytes. */
static void arena(void) {
    enum { CAPACITY = 200, MOST = 60 };
    Space s;
    Block size = {NULL, 0};
    space_take_memory(&s, &size, MOST);
    Block b = {calloc(1, size.used), 0};
    space_take_memory(&s, &b, MOST);
    space_reset(&s, CAPACITY);
    uint8_t map[CAPACITY + 1] = {0};
    uint32_t block[MOST], n = 0, wrong = 0;
    map[CAPACITY] = 1;
    for (int i = 0; i < 20000; i++) {
        if (n && (n == MOST || test_uniform(0, 1) < 0.5)) {
            uint32_t x = (uint32_t)test_uniform(0, n);
            memset(map + s.block[block[x]].offset, 0, s.block[block[x]].bytes);
            space_give(&s, block[x]);
            block[x] = block[--n];
            continue;
        }
        uint64_t bytes = (uint64_t)test_uniform(1, 20), at = CAPACITY, best = CAPACITY + 1;
        for (uint64_t from = 0, to; from < CAPACITY; from = to + 1) {
            for (to = from; !map[to]; to++)
                ;
            if (to - from >= bytes && to - from < best) {
                best = to - from;
                at = from;
            }
        }
        bool high = test_uniform(0, 1) < 0.5;
        if (high && best <= CAPACITY) at += best - bytes;
        uint32_t got = space_take(&s, bytes, high, n);
        wrong += (got == SPACE_NONE) != (best > CAPACITY);
        if (got == SPACE_NONE) continue;
        wrong += s.block[got].offset != at || s.block[got].bytes != bytes;
        memset(map + at, 1, bytes);
        block[n++] = got;
    }
    CHECK_EQ(wrong, 0);
    free(b.at);
}

/* Where nothing has to be evicted one play decides, and takes what it needs of a vast capacity: a
 * 256, b 512, t 256 at the most. u comes when b is gone. */
static void choice(void) {
    Build b = one_eviction();
    DtrOptions o = {0};
    DtrChoice c;
    Dtr *d = dtr_open(&b.g, &o);
    dtr_choice_begin(&c, &b.g, "auto", UINT64_C(1) << 40);
    CHECK(dtr_choice_next(&c, &o));
    dtr_set(d, &o);
    CHECK(dtr_choice_ended(&c, dtr_step(d, &(DtrHooks){0}), dtr_counters(d)));
    CHECK_EQ(dtr_counters(d)->high_bytes, 1024);
    CHECK(!dtr_choice_next(&c, &o));
    /* under 768 bytes the play without evictions finds no room, and others follow */
    dtr_choice_begin(&c, &b.g, "size", 768);
    CHECK(dtr_choice_next(&c, &o) && !o.evict && !strcmp(c.name, "size"));
    dtr_set(d, &o);
    CHECK(!dtr_choice_ended(&c, dtr_step(d, &(DtrHooks){0}), dtr_counters(d)));
    CHECK(dtr_choice_next(&c, &o) && o.evict);
    dtr_close(d);
    build_free(&b);
}

int main(void) {
    choice();
    by_hand();
    failures();
    scratch();
    update();
    adopt();
    tournament();
    arena();
    return test_end();
}
