/* Offsets: tiny instances with known answers, random ones against the verifier, and a verifier that
 * must object to damaged layouts. */
#include "layout.h"
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
    for (int round = 0; round < 200; round++) {
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
    CHECK(worst < 1.3);
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
    uint64_t bound = lay_bound(a, b, n, 256), h = lay_pack(a, b, n, 256, 0, 0);
    CHECK(lay_verify(&d, b, n, 256, h));
    CHECK((double)h < 1.05 * (double)bound);
}

int main(void) {
    a = arena_new();
    diag_init(&d, a, NULL);
    tiny();
    holes();
    damaged();
    random_instances();
    large();
    arena_free(a);
    return test_end();
}
