/* test_engine.c - the engine on hand-written PTX: collectives give what the PTX manual says, every
 * kind of finding appears where it should and not where it should not, orders are orders. Needs a C
 * compiler, no CUDA. */
#include "base.h"
#include "simt.h"
#include "test.h"

/* %t: thread; %a: thread of the grid; %base: out; %o: out + 4 * %a, where %r goes in the end; %x:
 * place of the thread in s, %y: that of its neighbour. */
static const char frame[] =
    ".visible .entry %s(.param .u64 out)\n{\n"
    ".reg .b32 %%r, %%t, %%a, %%b; .reg .b64 %%o, %%base, %%x, %%y; .reg .pred %%p, %%q;\n"
    ".shared .align 8 .b8 s[256];\n"
    "ld.param.u64 %%base, [out]; mov.u32 %%t, %%tid.x; mov.u32 %%a, %%ctaid.x;\n"
    "mov.u32 %%b, %%ntid.x; mad.lo.u32 %%a, %%a, %%b, %%t;\n"
    "mul.wide.u32 %%o, %%a, 4; add.u64 %%o, %%base, %%o;\n"
    "mul.wide.u32 %%x, %%t, 4; mov.u64 %%y, s; add.u64 %%x, %%x, %%y; xor.b64 %%y, %%x, 4;\n"
    "mov.u32 %%r, 0;\n"
    "%s\nst.global.u32 [%%o], %%r;\nret;\n}\n";

static const struct {
    const char *name, *body;
} kernels[] = {
    /* collectives */
    {"bfly", "mov.u32 %b, -1; shfl.sync.bfly.b32 %r, %t, 5, 31, %b;"},
    {"up", "shfl.sync.up.b32 %r|%p, %t, 3, 0, -1; @!%p mov.u32 %r, 99;"},
    {"down16", "shfl.sync.down.b32 %r|%p, %t, 3, 0x101f, -1; @!%p add.u32 %r, %r, 100;"},
    {"idx8", "shfl.sync.idx.b32 %r, %t, 2, 0x181f, -1;"},
    {"ballot", "setp.lt.u32 %p, %t, 5; vote.sync.ballot.b32 %r, %p, -1;"},
    {"any", "setp.eq.u32 %p, %t, 9; vote.sync.any.pred %q, %p, -1; selp.u32 %r, "
            "1, 0, %q;"},
    {"all", "setp.ne.u32 %p, %t, 9; vote.sync.all.pred %q, %p, -1; selp.u32 %r, 1, 0, %q;"},
    {"redux_add", "redux.sync.add.u32 %r, %t, -1;"},
    {"redux_min", "sub.s32 %t, %t, 10; redux.sync.min.s32 %r, %t, -1;"},
    {"count", "setp.lt.u32 %p, %t, 40; bar.red.popc.u32 %r, 0, %p;"},
    {"halves", "setp.lt.u32 %p, %t, 16; @!%p bra HI; shfl.sync.bfly.b32 %r, "
               "%t, 1, 31, 0xffff; bra END;\n"
               "HI: shfl.sync.bfly.b32 %r, %t, 2, 31, 0xffff0000; END:"},
    {"dynamic_shared",
     "mul.wide.u32 %x, %t, 4; mov.u64 %o, dynamic; add.u64 %x, %o, %x; xor.b64 %y, %x, 4;\n"
     "st.shared.u32 [%x], %t; bar.sync 0; ld.shared.u32 %r, [%y];\n"
     "mul.wide.u32 %o, %a, 4; add.u64 %o, %base, %o;"},
    {"bump", "atom.global.add.u32 %r, [counter], 1;"},
    {"order", "atom.global.add.u32 %r, [counter], 1;"},
    /* ordered by barriers, by __syncwarp, and by neither */
    {"by_barrier", "st.shared.u32 [%x], %t; bar.sync 0; ld.shared.u32 %r, [%y];"},
    {"by_warp", "st.shared.u32 [%x], %t; bar.warp.sync -1; ld.shared.u32 %r, [%y];"},
    {"by_shuffle",
     "st.shared.u32 [%x], %t; shfl.sync.idx.b32 %r, %t, 0, 31, -1; ld.shared.u32 %r, [%y];"},
    {"by_part",
     "st.shared.u32 [%x], %t; bar.sync 0; st.shared.u32 [%x], %t; setp.lt.u32 %p, %t, 16;\n"
     "@%p bar.warp.sync 0xffff; ld.shared.u32 %r, [%y];"},
    /* bytes of one word by four threads: no race; half a word by two and a byte by another: one */
    {"bytes", "cvt.u64.u32 %x, %t; mov.u64 %y, s; add.u64 %x, %x, %y; st.shared.u8 [%x], %t;"},
    {"bytes_and_halves",
     "setp.lt.u32 %p, %t, 2; mul.wide.u32 %x, %t, 2; mov.u64 %y, s; add.u64 %x, %x, %y; "
     "@%p st.shared.u16 [%x], %t;\n"
     "setp.eq.u32 %p, %t, 2; @%p st.shared.u8 [s+3], 0;"},
    /* reads by many, then a write by one after a barrier: fine; before: a race */
    {"broadcast",
     "setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [s], 1; bar.sync 0; ld.shared.u32 %r, [s];\n"
     "bar.sync 0; @%p st.shared.u32 [s], 2;"},
    {"early",
     "setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [s], 1; bar.sync 0; ld.shared.u32 %r, [s];\n"
     "setp.eq.u32 %p, %t, 40; @%p st.shared.u32 [s], 2;"},
    {"atomics", "setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [s], 0; bar.sync 0; "
                "red.shared.add.u32 [s], 1; bar.sync 0; ld.shared.u32 %r, [s];"},
    {"atomic_and_read", "setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [s], 0; bar.sync 0; "
                        "red.shared.add.u32 [s], 1; ld.shared.u32 %r, [s];"},
    /* between blocks */
    {"same_word", "st.global.u32 [%base], %t;"},
    {"block_reads", "setp.eq.u32 %p, %a, 0; @%p st.global.u32 [%base+768], %t;\n"
                    "setp.ge.u32 %p, %a, 64; @%p ld.global.u32 %r, [%base+768];"},
    {"block_atomics", "red.global.add.u32 [%base+768], 1;"},
    /* memory */
    {"shared_end", "setp.eq.u32 %p, %t, 7; @%p st.shared.u32 [s+256], %t;"},
    {"shared_before", "setp.eq.u32 %p, %t, 7; mov.u64 %x, s; @%p st.shared.u32 [%x+-4], %t;"},
    {"dynamic_end", "setp.eq.u32 %p, %t, 7; mov.u64 %x, dynamic; @%p st.shared.u32 [%x+512], %t;"},
    {"dynamic_before",
     "setp.eq.u32 %p, %t, 7; mov.u64 %x, dynamic; @%p st.shared.u32 [%x+-4], %t;"},
    {"shared_generic",
     "mov.u64 %x, s; cvta.shared.u64 %x, %x; setp.eq.u32 %p, %t, 7; @%p st.u32 [%x+252], %t;"},
    {"uninitialised", "setp.eq.u32 %p, %t, 7; @%p ld.shared.u32 %r, [s+8];"},
    {"misaligned", "setp.eq.u32 %p, %t, 7; @%p ld.global.u32 %r, [%base+2];"},
    {"null", "mov.u64 %x, 0; setp.eq.u32 %p, %t, 7; @%p ld.global.u32 %r, [%x];"},
    {"const_write", "mov.u64 %x, fixed; setp.eq.u32 %p, %t, 7; @%p st.u32 [%x], 5;"},
    {"const_end", "setp.eq.u32 %p, %t, 7; @%p ld.const.u32 %r, [fixed+8];"},
    {"local_end", ".local .align 4 .b8 l[8]; mov.u64 %x, l; add.u64 %x, %x, 8000000; "
                  "setp.eq.u32 %p, %t, 7; @%p ld.local.u32 %r, [%x];"},
    {"trap", "setp.eq.u32 %p, %t, 7; @%p trap;"},
    /* synchronisation */
    {"two_barriers", "setp.lt.u32 %p, %t, 32; @%p bra A; bar.sync 0; bra B; A:\nbar.sync 0; B:"},
    {"half_barrier", "setp.lt.u32 %p, %t, 32; @%p bra A; bar.sync 0; A:"},
    {"other_shuffle", "setp.lt.u32 %p, %t, 5; @%p bra A; shfl.sync.idx.b32 %r, %t, "
                      "0, 31, -1; bra B; A:\nshfl.sync.idx.b32 %r, %t, 0, 31, -1; B:"},
    {"crossed", "mov.u32 %b, %laneid; setp.lt.u32 %p, %b, 16; @%p bra A;\nshfl.sync.idx.b32 %r, "
                "%t, 0, 31, 0xfffffffe; bra B;\n"
                "A: shfl.sync.idx.b32 %r, %t, 0, 31, -1; B:"},
    {"endless", "setp.eq.u32 %p, %t, 3; A: @%p bra A;"},
    {"barrier_or_shuffle", "setp.lt.u32 %p, %t, 5; @%p bra A; bar.sync 0; bra B; "
                           "A:\nshfl.sync.idx.b32 %r, %t, 0, 31, -1; B:"},
    {"not_mine", "shfl.sync.idx.b32 %r, %t, 0, 31, 1;"},
    {"read_outside", "setp.lt.u32 %p, %t, 16; @%p shfl.sync.idx.b32 %r, %t, 20, "
                     "31, 0xffff;"},
};

static const char *text; /* all of them */

static void make_text(Arena *a) {
    Text t;
    text_init(&t, a);
    text_str(&t, ".version 9.0\n.target sm_75\n.address_size 64\n"
                 ".extern .shared .align 8 .b8 dynamic[];\n"
                 ".global .align 4 .u32 counter = 5;\n.const .align 4 .u32 fixed[2] = {3, 4};\n"
                 ".entry bounded(.param .u64 out)\n.maxntid 64, 1, 1\n{ ret; }\n");
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        text_add(&t, frame, kernels[i].name, kernels[i].body);
    text = t.at;
}

static SimtModule *module;
enum { THREADS = 64, BLOCKS = 2 };
static uint32_t out[4 * THREADS];

static bool in_out(void *ctx, const void *p, size_t bytes, bool write, const char **why) {
    (void)ctx, (void)write, (void)why;
    uintptr_t lo = (uintptr_t)out, at = (uintptr_t)p;
    return at >= lo && at + bytes <= lo + sizeof out;
}

static SimtFindings launch(const char *name, uint32_t blocks, uint32_t threads, SimtOptions o) {
    SimtFindings found = {0};
    uint32_t *p = out;
    void *args[] = {&p};
    o.may = in_out;
    memset(out, 0, sizeof out);
    const SimtKernel *k = simt_kernel(module, name);
    CHECK(k != NULL);
    if (k) simt_launch(k, (SimtDim){blocks, 1, 1}, (SimtDim){threads, 1, 1}, 512, args, &o, &found);
    return found;
}

/* A clean kernel: fast, checked, other orders; out[t] = want(t). */
static void good(const char *name, uint32_t threads, uint32_t (*want)(uint32_t)) {
    static const SimtOptions modes[] = {{0},
                                        {.check = true},
                                        {.check = true, .order = SIMT_DESCENDING},
                                        {.order = SIMT_SEEDED, .seed = 4}};
    for (size_t i = 0; i < 4; i++) {
        SimtFindings f = launch(name, 1, threads, modes[i]);
        if (f.total) fprintf(stderr, "%s: %s\n", name, f.list[0].text);
        CHECK_EQ(f.total, 0);
        for (uint32_t t = 0; t < threads; t++)
            if (out[t] != want(t)) {
                fprintf(stderr, "%s[%u]: %u, expected %u\n", name, t, out[t], want(t));
                CHECK(out[t] == want(t));
                break;
            }
    }
}

/* A faulty one: this kind is found in checked runs of every order, by `times` threads when that is
 * not 0. */
static void bad(const char *name, uint32_t blocks, SimtKind kind, uint64_t times) {
    for (int order = SIMT_ASCENDING; order <= SIMT_SEEDED; order++) {
        SimtFindings f = launch(name, blocks, THREADS,
                                (SimtOptions){.check = true, .order = (SimtOrder)order, .seed = 9});
        bool found = false;
        for (uint32_t i = 0; i < f.count; i++) {
            char line[400];
            simt_describe(&f.list[i], line, sizeof line);
            if (f.list[i].kind != kind) fprintf(stderr, "%s: also %s\n", name, line);
            CHECK_EQ(f.list[i].kind, kind);
            CHECK(f.list[i].line > 0);
            if (times) CHECK_EQ(f.list[i].times, times);
            found |= f.list[i].kind == kind;
        }
        if (!found) fprintf(stderr, "%s: not found in order %d\n", name, order);
        CHECK(found);
    }
}

static uint32_t want_bfly(uint32_t t) {
    return t ^ 5;
}
static uint32_t want_up(uint32_t t) {
    return t % 32 < 3 ? 99 : t - 3;
}
/* segments of 16: beyond the end of a segment its own value, and 100 */
static uint32_t want_down16(uint32_t t) {
    return t % 16 < 13 ? t + 3 : t + 100;
}
static uint32_t want_idx8(uint32_t t) {
    return t / 8 * 8 + 2;
}
static uint32_t want_ballot(uint32_t t) {
    return t < 32 ? 31 : 0;
}
static uint32_t want_any(uint32_t t) {
    return t < 32;
}
static uint32_t want_all(uint32_t t) {
    return t >= 32;
}
static uint32_t want_add(uint32_t t) {
    return t < 32 ? 31 * 32 / 2 : 31 * 32 / 2 + 32 * 32;
}
static uint32_t want_min(uint32_t t) {
    return t < 32 ? (uint32_t)-10 : 22;
}
static uint32_t want_count(uint32_t t) {
    (void)t;
    return 40;
}
static uint32_t want_halves(uint32_t t) {
    return t < 16 ? t ^ 1 : t ^ 2;
}
static uint32_t want_xor1(uint32_t t) {
    return t ^ 1;
}
static uint32_t want_one(uint32_t t) {
    (void)t;
    return 1;
}
static uint32_t want_zero(uint32_t t) {
    (void)t;
    return 0;
}
static uint32_t want_threads(uint32_t t) {
    (void)t;
    return THREADS;
}

static void run_good(void) {
    good("bfly", 64, want_bfly);
    good("up", 64, want_up);
    good("down16", 64, want_down16);
    good("idx8", 64, want_idx8);
    good("ballot", 64, want_ballot);
    good("any", 64, want_any);
    good("all", 64, want_all);
    good("redux_add", 64, want_add);
    good("redux_min", 64, want_min);
    good("count", 64, want_count);
    good("halves", 32, want_halves);
    good("dynamic_shared", 64, want_xor1);
    good("by_barrier", 64, want_xor1);
    good("by_warp", 64, want_xor1);
    good("bytes", 64, want_zero);
    good("broadcast", 64, want_one);
    good("atomics", 64, want_threads);
    good("shared_generic", 64, want_zero);
    CHECK_EQ(launch("block_atomics", BLOCKS, THREADS, (SimtOptions){.check = true}).total, 0);
    CHECK_EQ(out[192], BLOCKS * THREADS);
}

static void run_bad(void) {
    bad("by_shuffle", 1, SIMT_RACE, 0);
    bad("by_part", 1, SIMT_RACE, 0);
    bad("bytes_and_halves", 1, SIMT_RACE, 1);
    bad("early", 1, SIMT_RACE, 0);
    bad("atomic_and_read", 1, SIMT_RACE, 0);
    bad("block_reads", BLOCKS, SIMT_BLOCK_RACE, 0);
    bad("shared_end", 1, SIMT_MEMORY, 1);
    bad("shared_before", 1, SIMT_MEMORY, 1);
    bad("dynamic_end", 1, SIMT_MEMORY, 1);
    bad("dynamic_before", 1, SIMT_MEMORY, 1);
    bad("uninitialised", 1, SIMT_UNINIT_SHARED, 1);
    bad("misaligned", 1, SIMT_ALIGNMENT, 1);
    bad("null", 1, SIMT_MEMORY, 1);
    bad("const_write", 1, SIMT_MEMORY, 1);
    bad("const_end", 1, SIMT_MEMORY, 1);
    bad("local_end", 1, SIMT_MEMORY, 1);
    bad("trap", 1, SIMT_TRAP, 1);
    bad("two_barriers", 1, SIMT_SYNC, 0);
    bad("half_barrier", 1, SIMT_SYNC, 1);
    bad("other_shuffle", 1, SIMT_SYNC, 1);
    bad("barrier_or_shuffle", 1, SIMT_SYNC, 0);
    bad("crossed", 1, SIMT_DEADLOCK, 0);
    bad("endless", 1, SIMT_DEADLOCK, 1);
    bad("not_mine", 1, SIMT_SYNC, 0);
    bad("read_outside", 1, SIMT_SYNC, 0);
    /* one block: its threads race; two: the blocks also */
    SimtFindings f = launch("same_word", 1, THREADS, (SimtOptions){.check = true});
    CHECK(f.count == 1 && f.list[0].kind == SIMT_RACE);
    f = launch("same_word", 2, 1, (SimtOptions){.check = true});
    CHECK(f.count == 1 && f.list[0].kind == SIMT_BLOCK_RACE);
    CHECK_EQ(f.list[0].block.x, 1);
    /* fast runs find what blocks progress */
    f = launch("barrier_or_shuffle", 1, THREADS, (SimtOptions){0});
    CHECK(f.count == 1 && f.list[0].kind == SIMT_SYNC);
    f = launch("trap", 1, THREADS, (SimtOptions){0});
    CHECK(f.count == 1 && f.list[0].kind == SIMT_TRAP && f.list[0].thread.x == 7);
    /* a faulty grid stops after so many */
    f = launch("same_word", 1, THREADS, (SimtOptions){.check = true, .max_findings = 5});
    CHECK_EQ(f.total, 5);
}

/* counter goes up by one a thread: out holds the place of each thread in the order. */
static void run_orders(void) {
    uint32_t place[2][BLOCKS * THREADS];
    launch("order", BLOCKS, THREADS, (SimtOptions){0});
    uint32_t base = out[0];
    CHECK_EQ(out[BLOCKS * THREADS - 1], base + BLOCKS * THREADS - 1);
    launch("order", BLOCKS, THREADS, (SimtOptions){.order = SIMT_DESCENDING});
    CHECK_EQ(out[0], base + 2 * BLOCKS * THREADS - 1);
    CHECK_EQ(out[BLOCKS * THREADS - 1], base + BLOCKS * THREADS);
    for (uint32_t k = 0; k < 2; k++) {
        launch("order", BLOCKS, THREADS, (SimtOptions){.order = SIMT_SEEDED, .seed = 7 + k});
        uint64_t sum = 0;
        for (uint32_t i = 0; i < BLOCKS * THREADS; i++)
            sum += place[k][i] = out[i] - base - (2 + k) * BLOCKS * THREADS;
        CHECK_EQ(sum,
                 (uint64_t)BLOCKS * THREADS * (BLOCKS * THREADS - 1) / 2); /* each place once */
    }
    CHECK(memcmp(place[0], place[1], sizeof place[0]) != 0);
}

static void run_launches(void) {
    SimtFindings f = launch("bounded", 1, 65, (SimtOptions){0});
    CHECK(f.count == 1 && f.list[0].kind == SIMT_LAUNCH);
    f = launch("bounded", 0, 64, (SimtOptions){0});
    CHECK(f.count == 1 && f.list[0].kind == SIMT_LAUNCH);
    f = launch("bfly", 1, 1025, (SimtOptions){0});
    CHECK(f.count == 1 && f.list[0].kind == SIMT_LAUNCH);
    f = launch("bfly", 1, 32, (SimtOptions){.max_shared = 500}); /* 256 static, 512 dynamic */
    CHECK(f.count == 1 && f.list[0].kind == SIMT_LAUNCH);
    CHECK_EQ(launch("bfly", 1, 32, (SimtOptions){.max_shared = 768}).total, 0);
    CHECK_EQ(simt_kernel(module, "bounded")->max_threads, 64);
    CHECK_EQ(simt_kernel(module, "bfly")->static_shared, 256);
    CHECK(simt_kernel(module, "bfly")->collective && !simt_kernel(module, "bump")->collective);
    CHECK(!simt_kernel(module, "nothing"));
}

/* A module opened again has variables of its own, with their first values. */
static void run_variables(void) {
    char message[2000];
    SimtModule *again = simt_load(text, SIMT_FAST | SIMT_CHECKED, NULL, message, sizeof message);
    CHECK(again && again != module);
    if (!again) return;
    const SimtVariable *v = simt_variable(again, "counter"),
                       *old = simt_variable(module, "counter");
    CHECK(v && old && v->bytes == 4 && !v->constant && *(uint32_t *)v->address == 5);
    CHECK(old && *(uint32_t *)old->address > 5);
    CHECK(simt_variable(again, "fixed")->constant);
    simt_unload(again);
    CHECK(!simt_load(".version 9.0\n.target sm_75\n.address_size 64\n.entry k() { frob; }",
                     SIMT_FAST, NULL, message, sizeof message));
    CHECK(strstr(message, "line 4: frob: unknown instruction") != NULL);
}

int main(void) {
    char message[8000];
    Arena *a = arena_new();
    make_text(a);
    module = simt_load(text, SIMT_FAST | SIMT_CHECKED, NULL, message, sizeof message);
    if (!module) fprintf(stderr, "%s\n", message);
    CHECK(module != NULL);
    if (!module) return test_end();
    run_good();
    run_bad();
    run_orders();
    run_launches();
    run_variables();
    simt_unload(module);
    arena_free(a);
    return test_end();
}
