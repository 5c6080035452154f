/* Offsets: instances with known answers, some of which greedy orders miss; random ones against the
 * verifier; the limits on work; and a verifier that must object to damaged layouts. */
#include "search.h"
#include "test.h"

static Arena *a;
static Diag d;
static uint32_t seed = 1;
static uint32_t rnd(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(seed >> 8) * n) >> 24);
}

static void tiny(void) {
    /* x [0,2) 300, y [1,3) 100, z [2,4) 300: x and z share bytes, y beside them.
     * Rounded to 256: 512 + 256 = 768, which is also the load at moments 1 and 2. */
    LayBlock b[] = {{0, 2, 300, 0}, {1, 3, 100, 0}, {2, 4, 300, 0}};
    CHECK_EQ(lay_bound(a, b, 3, 256), 768);
    CHECK_EQ(lay_pack(a, b, 3, 256, 0, 1), 768);
    CHECK_EQ(b[0].offset, b[2].offset);
    CHECK(lay_verify(&d, b, 3, 256, 768));
    CHECK(!lay_verify(&d, b, 3, 256, 767 - 256)); /* an arena that is too small */
    CHECK_EQ(lay_pack(a, b, 0, 256, 0, 1), 0);
}

/* Two long blocks and short ones between them. By begin, greedy best fit leaves a hole of 1 between
 * the long ones; the packer has to find the load. */
static void holes(void) {
    LayBlock b[] = {{0, 10, 1, 0}, {0, 1, 1, 0}, {0, 10, 1, 0}, {1, 10, 2, 0}, {2, 3, 1, 0}};
    uint64_t h = lay_pack(a, b, 5, 1, 0, 1);
    CHECK_EQ(h, 5); /* at moment 2: 1 + 1 + 2 + 1 */
    CHECK(lay_verify(&d, b, 5, 1, h));
}

/* A pinwheel, moments across, bytes up:
 *
 *   3 | D C C     Loads: 3 + 1, 1 + 2 + 1, 1 + 3: always 4, so 4 is the optimum.
 *   2 | D E B     By bytes, area or root: B and D at 0, E at 0, A must lie on D at 3, C on A: 5.
 *   1 | D E B     By length: A at 0, C on A at 1, D on A at 1, B on C at 2: 5.
 *   0 | A A B     By begin: D at 0, A on D, E at 0, C on E at 2, B on C: 6. */
static void pinwheel(void) {
    LayBlock b[] = {{0, 2, 1, 0}, {2, 3, 3, 0}, {1, 3, 1, 0}, {0, 1, 3, 0}, {1, 2, 2, 0}};
    CHECK_EQ(lay_bound(a, b, 5, 1), 4);
    CHECK_EQ(lay_pack(a, b, 5, 1, 0, 0), 5); /* no search */
    CHECK_EQ(lay_pack(a, b, 5, 1, 5, 1), 5); /* no need for one */
    CHECK_EQ(lay_pack(a, b, 5, 1, 0, 1), 4);
    CHECK(lay_verify(&d, b, 5, 1, 4));
    CHECK_EQ(b[0].offset, b[1].offset); /* both at 0, or both end at 4 when upside down */
    CHECK_EQ(lay_pack(a, b, 5, 1, 3, -1), UINT64_MAX); /* below the load */
    CHECK_EQ(lay_pack(a, b, 5, 1, 4, -1), 4);
}

/* Height of stacking in this order: each block on the highest one below it that shares a moment. */
static uint64_t stack(const LayBlock *b, const uint32_t *order, uint32_t n, uint64_t *top) {
    uint64_t height = 0;
    for (uint32_t i = 0; i < n; i++) {
        const LayBlock *x = &b[order[i]];
        uint64_t at = 0;
        for (uint32_t k = 0; k < i; k++) {
            const LayBlock *y = &b[order[k]];
            if (x->begin < y->end && y->begin < x->end) at = at > top[k] ? at : top[k];
        }
        top[i] = at + x->bytes;
        height = height > top[i] ? height : top[i];
    }
    return height;
}

static uint64_t best_stack(const LayBlock *b, uint32_t *order, uint32_t from, uint32_t n) {
    uint64_t top[8], best = UINT64_MAX;
    if (from == n) return stack(b, order, n, top);
    for (uint32_t i = from; i < n; i++) {
        uint32_t x = order[from];
        order[from] = order[i], order[i] = x;
        uint64_t h = best_stack(b, order, from + 1, n);
        best = h < best ? h : best;
        order[i] = order[from], order[from] = x;
    }
    return best;
}

/* A layout pushed down is a stack in the order of its offsets, so the best of all orders is the
 * optimum. */
static void all_orders(void) {
    uint32_t n = 7, missed = 0;
    for (int round = 0; round < 300; round++) {
        LayBlock b[7];
        uint32_t order[7];
        for (uint32_t i = 0; i < n; i++) {
            uint32_t begin = rnd(5);
            b[i] = (LayBlock){begin, begin + 1 + rnd(3), 1 + rnd(9), 0};
            order[i] = i;
        }
        uint64_t best = best_stack(b, order, 0, n), h = lay_pack(a, b, n, 1, 0, 1);
        CHECK_EQ(h, best);
        CHECK(lay_verify(&d, b, n, 1, h));
        missed += lay_pack(a, b, n, 1, 0, 0) > best;
    }
    CHECK(missed > 0); /* by greedy orders */
}

/* Cuts the rectangle of moments x bytes into blocks: every moment is full, so its height is the
 * optimum. Cuts go across or up; now and then a pinwheel, which no sequence of cuts gives. */
static uint32_t dissect(LayBlock *b, uint32_t n, uint32_t from, uint32_t to, uint64_t bytes,
                        int k) {
    uint32_t moments = to - from;
    if (k == 0 || (moments < 3 && bytes < 8)) {
        b[n] = (LayBlock){from, to, bytes, 0};
        return n + 1;
    }
    if (moments > 2 && bytes > 7 && rnd(2)) {
        uint32_t x = from + 1 + rnd(moments - 2), y = x + 1 + rnd(to - x - 1);
        int inner = k > 2 ? k - 2 : 0;
        uint64_t p = 1 + rnd((uint32_t)bytes - 2), q = p + 1 + rnd((uint32_t)(bytes - p - 1));
        n = dissect(b, n, from, y, p, inner);
        n = dissect(b, n, y, to, q, inner);
        n = dissect(b, n, x, to, bytes - q, inner);
        n = dissect(b, n, from, x, bytes - p, inner);
        return dissect(b, n, x, y, q - p, inner);
    }
    if (moments > 1 && (bytes < 4 || rnd(2))) {
        uint32_t x = from + 1 + rnd(moments - 1);
        n = dissect(b, n, from, x, bytes, k - 1);
        return dissect(b, n, x, to, bytes, k - 1);
    }
    if (bytes < 2) return dissect(b, n, from, to, bytes, 0);
    uint64_t p = 1 + rnd((uint32_t)bytes - 1);
    n = dissect(b, n, from, to, p, k - 1);
    return dissect(b, n, from, to, bytes - p, k - 1);
}

static void dissections(void) {
    uint32_t met = 0, met_greedy = 0;
    for (int round = 0; round < 30; round++) {
        LayBlock b[50]; /* at most 50 after four cuts: 5 for a pinwheel, which takes two */
        uint32_t n = dissect(b, 0, 0, 40, 1000, 4);
        for (uint32_t i = n; i > 1; i--) { /* a hidden order */
            uint32_t k = rnd(i);
            LayBlock x = b[k];
            b[k] = b[i - 1], b[i - 1] = x;
        }
        CHECK_EQ(lay_bound(a, b, n, 1), 1000);
        met_greedy += lay_pack(a, b, n, 1, 0, 0) == 1000;
        uint64_t h = lay_pack(a, b, n, 1, 0, 1);
        CHECK(lay_verify(&d, b, n, 1, h));
        met += h == 1000;
    }
    CHECK(met >= 28 && met_greedy < 15);
}

/* A descent stays within its work, but for the last node. */
static void work_limit(void) {
    uint32_t n = 400;
    LayBlock *b = ARENA_ARRAY(a, LayBlock, n);
    uint64_t *bytes = ARENA_ARRAY(a, uint64_t, n), *offset = ARENA_ARRAY(a, uint64_t, n), spent;
    for (uint32_t i = 0; i < n; i++) {
        b[i].begin = rnd(200);
        b[i].end = b[i].begin + 1 + rnd(40);
        bytes[i] = b[i].bytes = 1 + rnd(1000);
    }
    uint64_t load = lay_bound(a, b, n, 1);
    const Sections *s = lay_sections(a, b, n, bytes, 2 * load);
    CHECK(s && s->nsection <= 240 && s->unit == 1);
    Search *x = lay_search_new(a, b, s);
    for (uint64_t work = 1000; work <= 1000000; work *= 10) {
        bool found = lay_descend(x, load, work, &spent, offset);
        CHECK(found || spent > 0);
        CHECK(spent < work + 100 * n);
    }
    CHECK(lay_descend(x, 2 * load, UINT64_MAX / 2, &spent, offset)); /* easy: no step back */
    for (uint32_t i = 0; i < n; i++) b[i].offset = offset[i];
    CHECK(lay_verify(&d, b, n, 1, 2 * load));
    bytes[0] = UINT64_C(1) << 50; /* too many units: no search */
    CHECK(!lay_sections(a, b, n, bytes, UINT64_C(1) << 50));
}

static void damaged(void) {
    LayBlock good[] = {{0, 2, 256, 0}, {1, 3, 256, 256}, {2, 4, 256, 0}};
    CHECK(lay_verify(&d, good, 3, 256, 512));
    LayBlock x[3];
    memcpy(x, good, sizeof good);
    x[1].offset = 0; /* on top of both */
    CHECK(!lay_verify(&d, x, 3, 256, 512));
    memcpy(x, good, sizeof good);
    x[1].offset = 128; /* not aligned */
    CHECK(!lay_verify(&d, x, 3, 256, 512));
    memcpy(x, good, sizeof good);
    x[2].begin = 1; /* now meets block 0 */
    CHECK(!lay_verify(&d, x, 3, 256, 512));
    memcpy(x, good, sizeof good);
    x[2].offset = UINT64_MAX - 255; /* the end wraps around */
    CHECK(!lay_verify(&d, x, 3, 256, 512));
    memcpy(x, good, sizeof good);
    x[0].end = 0; /* empty */
    CHECK(!lay_verify(&d, x, 3, 256, 512));
    /* a block that starts inside another one's bytes, and one that contains another */
    LayBlock in[] = {{0, 4, 1024, 0}, {1, 3, 256, 512}};
    CHECK(!lay_verify(&d, in, 2, 256, 4096));
    LayBlock out[] = {{1, 3, 256, 512}, {0, 4, 1024, 0}};
    CHECK(!lay_verify(&d, out, 2, 256, 4096));
}

static void random_instances(void) {
    double worst = 1;
    for (int round = 0; round < 40; round++) {
        uint32_t n = 1 + rnd(120), moments = 2 + rnd(60);
        LayBlock *b = ARENA_ARRAY(a, LayBlock, n);
        for (uint32_t i = 0; i < n; i++) {
            b[i].begin = rnd(moments - 1);
            b[i].end = b[i].begin + 1 + rnd(rnd(3) ? 4 : moments);
            b[i].bytes = 1 + rnd(rnd(2) ? 5000 : 500);
        }
        uint64_t bound = lay_bound(a, b, n, 256), h = lay_pack(a, b, n, 256, 0, 1);
        CHECK(h >= bound);
        CHECK(lay_verify(&d, b, n, 256, h));
        worst = fmax(worst, (double)h / (double)bound);
        LayBlock *c = ARENA_ARRAY(a, LayBlock, n);
        memcpy(c, b, n * sizeof *b);
        CHECK_EQ(lay_pack(a, c, n, 256, 0, 1), h); /* deterministic */
        CHECK(!memcmp(b, c, n * sizeof *b));
        uint64_t loose = lay_pack(a, c, n, 256, 2 * h, 1); /* a target stops the search, no more */
        CHECK(loose <= 2 * h && lay_verify(&d, c, n, 256, loose));
    }
    CHECK(worst < 1.2);
}

/* The shape of a training step: block i is made at i and used again at 2n - i. */
static void large(void) {
    uint32_t n = 20000;
    LayBlock *b = ARENA_ARRAY(a, LayBlock, n);
    for (uint32_t i = 0; i < n; i++) {
        b[i].begin = i;
        b[i].end = i % 3 ? i + 1 + rnd(6) : 2 * n - i;
        b[i].bytes = 256 * (1 + rnd(64));
    }
    uint64_t bound = lay_bound(a, b, n, 256), h = lay_pack(a, b, n, 256, 0, 1);
    CHECK(lay_verify(&d, b, n, 256, h));
    CHECK((double)h < 1.05 * (double)bound);
}

int main(void) {
    a = arena_new();
    diag_init(&d, a, NULL);
    tiny();
    holes();
    pinwheel();
    all_orders();
    dissections();
    work_limit();
    damaged();
    random_instances();
    large();
    arena_free(a);
    return test_end();
}
