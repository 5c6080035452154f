/* The analytic cost model: the packed rule, sizes asked of the runtime, times; and traces. */
#include "cost.h"
#include "test.h"

static Arena *a;
static Diag d;

static Graph *parse(const char *body) {
    Graph *g = ir_parse(a, &d, "test.ir", body);
    if (!g) fprintf(stderr, "%s\n", d.log.at);
    CHECK(g && ir_verify(&d, g));
    return g;
}

static ValueId find(const Graph *g, const char *name) {
    for (ValueId v = 0; v < g->nvalue; v++)
        if (!strcmp(g->value[v].name, name)) return v;
    CHECK(name == NULL); /* no such value */
    return 0;
}

#define SOURCES                                                                                    \
    "%0 input f32[2,8,8,16] \"x\"\n%1 param f32[16,16,3,3] \"w\"\n%2 input f32[2,8,8,16] \"dy\"\n" \
    "%3 state f32[16,16,3,3] \"m\" of %1\n"
#define CONV(out, w)                                                                               \
    "fwd %" out " f32[2,8,8,16] \"y" out "\" = Conv(%0, %" w                                       \
    ") {kernel=[3,3], pads=[1,1,1,1], channels_last=1} \"c" out "\"\n"
#define GRADS                                                                                      \
    "bwd %10 f32[16,16,3,3] \"dw\" = ConvGradW(%2, %0) {kernel=[3,3], pads=[1,1,1,1], "            \
    "channels_last=1, shape=[16,16,3,3]} \"gw\"\n"                                                 \
    "bwd %11 f32[2,8,8,16] \"dx\" = ConvGradX(%2, %1) {kernel=[3,3], pads=[1,1,1,1], "             \
    "channels_last=1, shape=[2,8,8,16]} \"gx\"\n"

/* w is read by its convolution, the gradient of the image and its update: w, its gradient and its
 * state are packed, with equal bytes that hold at least 16 * 16 * 9 floats. */
static void packed_weight(void) {
    Graph *g = parse("graph \"t\"\n" SOURCES CONV("4", "1") GRADS
                     "upd Sgd(%1, %10, %3) \"u\"\noutput %4\noutput %11\n");
    if (!g) return;
    Cost *c = cost_analytic(a, g, TARGET_CPU, 2);
    ValueId w = find(g, "w"), dw = find(g, "dw"), m = find(g, "m");
    CHECK(c->packed[w] && c->packed[dw] && c->packed[m]);
    CHECK(!c->packed[find(g, "x")] && !c->packed[find(g, "y4")] && !c->packed[find(g, "dx")]);
    uint64_t bytes = c->storage_bytes[g->value[w].storage];
    CHECK(bytes >= 16 * 16 * 9 * 4);
    CHECK_EQ(c->storage_bytes[g->value[dw].storage], bytes);
    CHECK_EQ(c->storage_bytes[g->value[m].storage], bytes);
    Cost *n = cost_analytic(a, g, TARGET_NULL, 2); /* only the CPU runtime packs */
    CHECK(!n->packed[w] && n->storage_bytes[g->value[w].storage] == 16 * 16 * 9 * 4);
}

static void not_packed(const char *text) {
    Graph *g = parse(text);
    if (!g) return;
    Cost *c = cost_analytic(a, g, TARGET_CPU, 2);
    ValueId w = find(g, "w");
    CHECK(!c->packed[w]);
    CHECK_EQ(c->storage_bytes[g->value[w].storage], 16 * 16 * 9 * 4);
}

static void plain_weights(void) {
    /* somebody else reads the weight */
    not_packed("graph \"t\"\n" SOURCES CONV(
        "4", "1") "fwd %5 f32[16,16,3,3] \"b\" = Abs(%1) \"abs\"\noutput %4\noutput %5\n");
    /* somebody else reads the gradient */
    not_packed("graph \"t\"\n" SOURCES CONV("4", "1") GRADS
               "bwd %12 f32[16,16,3,3] \"n\" = Neg(%10) \"neg\"\nupd Sgd(%1, %10, %3) "
               "\"u\"\noutput %4\noutput %11\noutput %12\n");
    /* the gradient is a sum */
    not_packed("graph \"t\"\n" SOURCES CONV("4", "1") GRADS
               "bwd %12 f32[16,16,3,3] \"n\" = Neg(%10) \"neg\"\nupd Sgd(%1, %12, %3) "
               "\"u\"\noutput %4\noutput %11\n");
    /* two geometries */
    not_packed(
        "graph \"t\"\n" SOURCES CONV("4", "1") "fwd %5 f32[2,4,4,16] \"z\" = Conv(%0, %1) "
                                               "{kernel=[3,3], pads=[1,1,1,1], strides=[2,2], "
                                               "channels_last=1} \"c5\"\noutput %4\noutput %5\n");
}

/* A 2x2 pool of [1,4,4,1] has 4 outputs: 4 bytes of indices, one each. A column sum over 100 rows
 * of 8 with 3 threads keeps 3 * 1 * 8 doubles. Views take no time, everything else some. */
static void sizes(void) {
    Graph *g = parse("graph \"t\"\n%0 input f32[1,4,4,1] \"x\"\n%1 input f32[100,8] \"r\"\n"
                     "fwd %2 f32[1,2,2,1] \"p\", %3 u8[1,2,2,1] \"i\" = MaxPool(%0) {kernel=[2,2], "
                     "strides=[2,2], "
                     "channels_last=1} \"mp\"\n"
                     "fwd %4 f32[8] \"s\" = ReduceSum(%1) {axes=[0], keepdims=0} \"sum\"\n"
                     "fwd %5 f32[4] \"v\" = Reshape(%2) {shape=[4]} \"view\"\n"
                     "fwd %6 f32[4] \"q\" = Opaque(%5) {cost_ns=77, workspace=500} \"op\"\noutput "
                     "%4\noutput %6\n");
    if (!g) return;
    Cost *c = cost_analytic(a, g, TARGET_CPU, 3);
    CHECK_EQ(c->storage_bytes[g->value[find(g, "i")].storage], 4);
    CHECK_EQ(c->node_workspace[1], op_loop_workspace(g, &g->node[1], 3));
    CHECK_EQ(c->node_workspace[1], 3 * 8 * 8);
    CHECK(c->node_ns[0] > 0 && c->node_ns[1] > 0);
    CHECK_EQ(c->node_ns[2], 0);
    CHECK_EQ(c->node_ns[3], 77);
    CHECK_EQ(c->node_workspace[3], 500);
    Cost *t = cost_opaque(a, g);
    CHECK(t->node_ns[3] == 77 && t->node_workspace[3] == 500 && t->node_ns[2] == 0 &&
          t->node_ns[0] == 1);
}

/* More arithmetic takes longer, more threads take less. */
static void times(void) {
    Graph *g = parse("graph \"t\"\n%0 input f32[512,512] \"x\"\n%1 input f32[512,512] \"y\"\n"
                     "fwd %2 f32[512,512] \"p\" = MatMul(%0, %1) \"mm\"\n"
                     "fwd %3 f32[512,512] \"s\" = Add(%2, %0) \"add\"\noutput %3\n");
    if (!g) return;
    Cost *one = cost_analytic(a, g, TARGET_CPU, 1), *two = cost_analytic(a, g, TARGET_CPU, 2);
    CHECK(one->node_ns[0] > 2 * one->node_ns[1]);
    CHECK(two->node_ns[0] < one->node_ns[0]);
    CHECK_EQ(one->threads, 1);
}

int main(void) {
    a = arena_new();
    diag_init(&d, a, NULL);
    packed_weight();
    plain_weights();
    sizes();
    times();
    arena_free(a);
    return test_end();
}
