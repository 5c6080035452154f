/* test_sizes.c - polynomials from values on a grid, texts that become one, graphs at other sizes.
 */
#include "sizes.h"
#include "test.h"

#include <string.h>

/* A batch with base 4 and degree 1, a length with base 3 and degree 2: points (4,3), (5,3), (4,4),
 * (5,4), (4,5), (5,5). */
static Sizes two_symbols(void) {
    Sizes s = {.nsym = 2};
    s.sym[0] = (SizeSymbol){.id = "N", .base = 4, .degree = 1};
    s.sym[1] = (SizeSymbol){.id = "T", .base = 3, .degree = 2};
    sizes_grid(&s);
    return s;
}

static int64_t some(int64_t n, int64_t t) {
    return 2 * n * t * t - 7 * t + n + 5;
}

static void polynomials(Arena *a) {
    Sizes s = two_symbols();
    int64_t v[SIZES_MAX_COEFS], x;
    SizePoly p;
    Text t;
    text_init(&t, a);
    CHECK_EQ(s.ngrid, 6);
    for (uint32_t i = 0; i < s.ngrid; i++) v[i] = some(s.point[i][0], s.point[i][1]);
    CHECK(sizes_fit(&s, v, &p));
    CHECK(sizes_eval(&s, &p, (int64_t[]){100, 1000}, &x));
    CHECK_EQ(x, some(100, 1000));
    CHECK(!sizes_eval(&s, &p, (int64_t[]){1 << 30, 1 << 30}, &x)); /* 2^91 */
    CHECK(!sizes_constant(&s, &p));
    CHECK_EQ(sizes_symbols(&s, &p), 3);
    sizes_print(&t, &s, &p);
    CHECK(!strcmp(t.at, "2 * N * T * T - 7 * T + N + 5"));
    for (uint32_t i = 0; i < s.ngrid; i++) v[i] = s.point[i][1] / 2; /* 1 2 2: not whole */
    CHECK(!sizes_fit(&s, v, &p));
    for (uint32_t i = 0; i < s.ngrid; i++) v[i] = 7;
    CHECK(sizes_fit(&s, v, &p) && sizes_constant(&s, &p) && p.c[0] == 7);
}

/* Divided by four: 4 5 -> 1 1, but 8 at a check. */
static void checks_beyond_the_grid(void) {
    Sizes s = {.nsym = 1, .sym = {{.id = "N", .base = 4, .degree = 1}}};
    SizePoly p;
    sizes_grid(&s);
    s.point[s.npoint++][0] = 8;
    CHECK(sizes_fit_checked(&s, (int64_t[]){8, 10, 16}, &p));
    CHECK(!sizes_fit_checked(&s, (int64_t[]){1, 1, 2}, &p));
}

static const char *merged(Arena *a, const Sizes *s, const char *const *text, uint32_t *used) {
    Text t;
    const char *why;
    text_init(&t, a);
    *used = 0;
    return sizes_merge(a, s, text, &t, used, &why) ? t.at : why;
}

static void texts(Arena *a) {
    Sizes s = {.nsym = 1, .sym = {{.id = "N", .base = 4, .degree = 1}}};
    sizes_grid(&s);
    uint32_t used;
#define BOTH(x, y) merged(a, &s, (const char *[]){x, y}, &used)
    CHECK(!strcmp(BOTH("loop3(c, p, 64, 4);", "loop3(c, p, 64, 5);"), "loop3(c, p, 64, N);"));
    CHECK_EQ(used, 1);
    CHECK(!strcmp(BOTH("f(1, 2.5f)", "f(1, 2.5f)"), "f(1, 2.5f)"));
    CHECK_EQ(used, 0);
    CHECK(!strcmp(BOTH("{-8, x - 12}", "{-10, x - 15}"), "{-2 * N, x - (3 * N)}"));
    CHECK(!strcmp(BOTH("9 * n", "11 * n"), "(2 * N + 1) * n"));
    /* means: 1/8 and 1/10 */
    CHECK(!strcmp(BOTH("s * 0.125f", "s * 0.100000001f"), "s * (float)(1.0 / (double)(2 * N))"));
    CHECK(!strcmp(BOTH("s * 0.125", "s * 0.10000000000000001"), "s * (1.0 / (double)(2 * N))"));
    CHECK(strstr(BOTH("s * 0.3", "s * 0.7"), "no polynomial") != NULL);
    CHECK(strstr(BOTH("loop1(4)", "loop2(4)"), "'loop1' in its code becomes 'loop2'") != NULL);
    CHECK(strstr(BOTH("f(4)", "f(4, 1)"), "no polynomial") != NULL);
#undef BOTH
}

static Graph *parse(Arena *a, int n) {
    const char *text = arena_printf(a,
                                    "graph \"t\"\n"
                                    "%%0 input f32[%d,3] \"x\"\n"
                                    "%%1 param f32[3] \"w\" data[1.0,2.0,3.0]\n"
                                    "fwd %%2 f32[%d,3] \"m\" = Mul(%%0, %%1) \"mul\"\n"
                                    "fwd %%3 f32[] \"loss\" = ReduceSum(%%2) {axes=[0,1], "
                                    "keepdims=0, scale=%.17g} \"mean\"\n"
                                    "output %%3\nloss %%3\n",
                                    n, n, 1 / (3.0 * n));
    Diag d;
    diag_init(&d, a, stderr);
    return ir_parse(a, &d, "t", text);
}

/* The instance at 11 is the graph written for 11. */
static void graphs(Arena *a) {
    Sizes s = {.nsym = 1, .sym = {{.id = "N", .base = 4, .degree = 1}}};
    const char *why = NULL;
    sizes_grid(&s);
    const Graph *grid[] = {parse(a, 4), parse(a, 5)};
    CHECK(!sizes_difference(a, grid[0], grid[1]));
    Graph *g = sizes_instance(a, &s, grid, (int64_t[]){11}, NULL, &why);
    CHECK(g != NULL && ir_digest(g) == ir_digest(parse(a, 11)));
    CHECK_EQ(g->storage[g->value[0].storage].bytes, 11 * 3 * 4);
    CHECK(!sizes_instance(a, &s, grid, (int64_t[]){INT64_MAX / 2}, NULL, &why));
    CHECK(strstr(why, "too large") != NULL);
}

static void differences(Arena *a) {
    const Graph *x = parse(a, 4);
    Graph *y = parse(a, 5);
    y->node[0].op = OP_Add;
    CHECK(strstr(sizes_difference(a, x, y), "node 'mul' (Mul)") != NULL);
    y = parse(a, 5);
    y->value[1].shape.dim[0] = 2;
    CHECK(strstr(sizes_difference(a, x, y), "shape of the weight of 'w'") != NULL);
    y = parse(a, 5);
    Data data = {.bytes = "abcdefghijkl", .n = 12};
    Graph *z = parse(a, 4);
    z->value[1].role = y->value[1].role = ROLE_CONST;
    y->value[1].data = &data;
    CHECK(strstr(sizes_difference(a, z, y), "constant value of 'w'") != NULL);
}

static Value constant(uint32_t rank, int64_t d0, int64_t d1, const int32_t *v) {
    static Data data[8];
    static uint32_t n;
    Data *d = &data[n++];
    *d = (Data){v, (uint64_t)(d0 * d1) * sizeof *v};
    return (Value){
        .name = "c", .dtype = DT_I32, .role = ROLE_CONST, .shape = {rank, {d0, d1}}, .data = d};
}

/* 0 1 2 .. on each row repeats along axis 0; the larger one has the smaller as its corner. */
static void constants(Arena *a) {
    static const int32_t small[] = {0, 1, 0, 1}, large[] = {0, 1, 2, 0, 1, 2, 0, 1, 2},
                         same[] = {5, 5, 5, 5};
    Value x = constant(2, 2, 2, small), y = constant(2, 3, 3, large), z = constant(2, 2, 2, same);
    CHECK_EQ(sizes_repeated_axes(&x), 1);
    CHECK_EQ(sizes_repeated_axes(&y), 1);
    CHECK_EQ(sizes_repeated_axes(&z), 3);
    Graph g = {.nvalue = 1, .value = &x}, h = {.nvalue = 1, .value = &y},
          i = {.nvalue = 1, .value = &z};
    CHECK(!sizes_difference(a, &g, &h) && !sizes_difference(a, &h, &g));
    CHECK(strstr(sizes_difference(a, &g, &i), "constant value of 'c'") != NULL);
    CHECK(strstr(sizes_difference(a, &h, &i), "constant value of 'c'") != NULL);
}

int main(void) {
    Arena *a = arena_new();
    polynomials(a);
    checks_beyond_the_grid();
    texts(a);
    graphs(a);
    differences(a);
    constants(a);
    arena_free(a);
    return test_end();
}
