/* test_trace.c - the small traces in tests/data/planning, read and planned; numbers are derived by
 * hand from the files. Then what a reader must refuse, with the line. */
#include "trace.h"

#include "../plan/graphs.h"
#include "plan.h"
#include "test.h"

#include <zlib.h>

#define DATA "tests/data/planning/"

typedef struct {
    Arena *a;
    Diag d;
    Graph *g;
    Cost *c;
} Read;

static Read open_trace(const char *path) {
    Read r = {.a = arena_new()};
    diag_init(&r.d, r.a, NULL);
    r.g = trace_read(r.a, &r.d, path);
    if (!r.g) fputs(r.d.log.at, stderr);
    CHECK(r.g != NULL);
    if (r.g) r.c = cost_opaque(r.a, r.g);
    return r;
}

static uint64_t base_ns(const Read *r) {
    uint64_t ns = 0;
    for (NodeId n = 0; n < r->g->nnode; n++) ns += r->c->node_ns[n];
    return ns;
}

static const char *value_name(const Graph *g, ValueId v) {
    return g->value[v].name;
}

/* w is constant (300); wt = t(w), a view; x = mm (1000); xv = view(x); a, b = chunk(xv), without
 * time; y, z = wide(a) (2000, 10); n = narrow(y) (10); out = add(b, n, z) (20). What came before
 * START is not there. In use at narrow: w, x (for b), y, z, n: 300 + 1000 + 2000 + 10 + 10 = 3320;
 * at wide: 300 + 1000 + 2000 + 10, which is also the largest working set: 3310. */
static void test_views(void) {
    Read r = open_trace(DATA "views.log");
    const Graph *g = r.g;
    CHECK_EQ(g->nnode, 7);
    CHECK_EQ(g->nvalue, 10);
    CHECK_EQ(g->nstorage, 6);
    CHECK_EQ(base_ns(&r), 2 + 100 + 3 + 0 + 50 + 20 + 30);
    CHECK_EQ(plan_persistent_bytes(g, r.c, true), 300);
    CHECK_EQ(plan_peak_without_budget(g, r.c, true), 3320);
    CHECK_EQ(plan_floor(g, r.c, true), 3310);
    CHECK_EQ(op_node_class(&g->node[0]), CLS_VIEW);
    CHECK_EQ(g->node[3].nout, 2);
    CHECK_EQ(g->value[g->node[3].out[1]].storage, g->value[g->node[1].out[0]].storage);
    CHECK_EQ(g->node[5].phase, PHASE_FORWARD);
    CHECK_EQ(g->node[6].phase, PHASE_BACKWARD);
    CHECK_EQ(g->noutput, 2); /* w has its reference left, and out */
    CHECK_STR(value_name(g, g->output[0]), "w");
    CHECK_STR(value_name(g, g->output[1]), "out");
    arena_free(r.a);
}

/* At 3319 bytes, one below the peak: x has to go before narrow and comes back for b. Dropping x
 * undefines xv, a, b: mm 100, view 3, chunk 0 run again. (z, 10 bytes, would cost wide, 50, which
 * makes y beside n once more; it needs a, that is x: all the same storages, no room.) */
static void test_views_again(void) {
    Read r = open_trace(DATA "views.log");
    PlanOptions o = {.budget = 3319, .bytes_only = true, .planner = "static", .effort = 1};
    Plan *p;
    CHECK_EQ(plan_make(r.a, r.g, r.c, &o, &p), PLAN_OK);
    CHECK_EQ(p->cost_ns, 205 + 103);
    const Plan *all = plan_run_views(r.a, r.g, r.c, p);
    uint32_t chunk = 0, chunk_before = 0;
    for (uint32_t i = 0; i < p->nstep; i++)
        chunk_before += p->step[i].kind == STEP_RUN && p->step[i].id == 3;
    for (uint32_t i = 0; i < all->nstep; i++)
        chunk += all->step[i].kind == STEP_RUN && all->step[i].id == 3;
    CHECK_EQ(chunk_before, 0);
    CHECK_EQ(chunk, 2);
    CHECK_EQ(all->cost_ns, p->cost_ns);
    CHECK_EQ(all->recomputed_runs, p->recomputed_runs + 1);
    CHECK(plan_verify(&r.d, r.g, r.c, all));
    Text t;
    text_init(&t, r.a);
    plan_print_json(&t, r.g, r.c, all, NULL);
    const Plan *back = plan_parse_json(r.a, &r.d, "p.json", t.at, t.n, r.g, r.c);
    CHECK(back && plan_verify(&r.d, r.g, r.c, back));
    arena_free(r.a);
}

/* x (100) is held by two variables; add_ and relu_ on one of them make x$ and x$$ of 100 bytes each
 * while the other still holds x. At relu_: c 64 + x + x$ + x$$ = 364. y is held by `kept` last. */
static void test_mutate(void) {
    Read r = open_trace(DATA "mutate.log");
    const Graph *g = r.g;
    CHECK_EQ(g->nnode, 4);
    CHECK_EQ(base_ns(&r), 10 + 5 + 4 + 20);
    CHECK_STR(value_name(g, g->node[1].out[0]), "x$");
    CHECK_STR(value_name(g, g->node[2].out[0]), "x$$");
    CHECK_STR(value_name(g, g->node[3].in[0]), "x");
    CHECK_STR(value_name(g, g->node[3].in[1]), "x$$");
    CHECK_EQ(plan_peak_without_budget(g, r.c, true), 364);
    CHECK_EQ(plan_floor(g, r.c, true), 64 + 100 + 100 + 8);
    CHECK_EQ(g->noutput, 1);
    CHECK_STR(value_name(g, g->output[0]), "y");
    arena_free(r.a);
}

/* 0 in (100), 1 (300), 2 r (50), 3 sum (8) of 0 and 2: at 2 there are 100 + 300 + 50; the largest
 * working set is that of 1: 100 + 300. Nothing has to be there at the end. */
static void test_diamond(void) {
    Read r = open_trace(DATA "diamond.json");
    CHECK_EQ(r.g->nnode, 4);
    CHECK_EQ(base_ns(&r), 10 + 20 + 30 + 4);
    CHECK_EQ(plan_peak_without_budget(r.g, r.c, true), 450);
    CHECK_EQ(plan_floor(r.g, r.c, true), 400);
    CHECK_EQ(r.g->noutput, 0);
    CHECK_STR(r.g->node[2].name, "r");
    CHECK_STR(value_name(r.g, r.g->node[2].out[0]), "2");
    PlanOptions o = {.budget = 449, .bytes_only = true, .planner = "static", .effort = 1};
    Plan *p;
    CHECK_EQ(plan_make(r.a, r.g, r.c, &o, &p), PLAN_OK);
    CHECK_EQ(p->cost_ns, 64 + 10); /* 0 once more, after 2 */
    arena_free(r.a);
}

/* The order is a, c, b: b is operator 2. */
static void test_layered(void) {
    Read r = open_trace(DATA "layered.json");
    CHECK_STR(r.g->node[1].name, "c");
    CHECK_STR(value_name(r.g, r.g->node[2].out[0]), "b");
    CHECK_EQ(r.c->node_ns[2], 2);
    CHECK_EQ(plan_peak_without_budget(r.g, r.c, true), 60);
    arena_free(r.a);
}

/* Outputs p and q (100 each, of one operator) and z (100, of t, 100); at the end m takes 300. At
 * 300 bytes all three go before m. Made again, p brings q; z then needs t, and neither p nor q may
 * go for it: a planner that makes z last has no plan. At 400 each of the DTR family has one; static
 * makes z first. */
static void test_outputs(void) {
    static const char *const planners[] = {"dtr",  "dtr-eq", "dtr-local", "lru",
                                           "size", "msps",   "sqrt",      "static"};
    Read r = open_trace(DATA "outputs.log");
    for (size_t i = 0; i < sizeof planners / sizeof *planners; i++)
        for (uint64_t budget = 300; budget <= 400; budget += 50) {
            PlanOptions o = {.budget = budget, .bytes_only = true, .planner = planners[i]};
            Plan *p;
            bool ok = plan_make(r.a, r.g, r.c, &o, &p) == PLAN_OK; /* asserts that it verifies */
            CHECK(ok || (budget < 400 && i < 6) || !strcmp(planners[i], "sqrt"));
        }
    arena_free(r.a);
}

/* ---- our own graphs as logs ---- */

/* y (40 bytes, workspace 100) from w; v a view of y; z (20) from v and w; an update of w. */
static void test_emit(void) {
    Maker m = maker_new(arena_new(), 1);
    ValueId w = source(&m, ROLE_PARAM, "w\"\n", 16);
    ValueId y = node(&m, OP_Opaque, PHASE_FORWARD, 7, 10, 1, &w, 1);
    ir_attr_i(m.g, 0, A_workspace, 100);
    ValueId in[] = {view(&m, y), w};
    ValueId z = node(&m, OP_Opaque, PHASE_BACKWARD, 9, 5, 2, in, 1);
    update(&m, w, z);
    m.g->value[z].name = "w\"\n"; /* taken already */
    Text t;
    text_init(&t, m.a);
    trace_print_log(&t, m.g, cost_opaque(m.a, m.g));
    CHECK_STR(
        t.at,
        "{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"}\n"
        "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"w\\\"\\u000a\"}\n"
        "{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"w\\\"\\u000a\",\"MEMORY\":\"64\"}\n"
        "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"n0\",\"ARGS\":[\"w\\\"\\u000a\"],\"RESULT\":[\"v1\","
        "\"n0.workspace\"],\"TIME\":\"7\"}\n"
        "{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"v1\",\"MEMORY\":\"40\"}\n"
        "{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"v1\",\"ALIAS\":\"-1\"}\n"
        "{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"n0.workspace\",\"MEMORY\":\"100\"}\n"
        "{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"n0.workspace\",\"ALIAS\":\"-1\"}\n"
        "{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"n0.workspace\"}\n"
        "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"view\",\"ARGS\":[\"v1\"],\"RESULT\":[\"v2\"],"
        "\"TIME\":"
        "\"0\"}\n"
        "{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"v2\",\"MEMORY\":\"40\"}\n"
        "{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"v2\",\"ALIAS\":\"0\"}\n"
        "{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"v1\"}\n"
        "{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"BACKWARD\"}\n"
        "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"n2\",\"ARGS\":[\"v2\",\"w\\\"\\u000a\"],\"RESULT\":["
        "\"v3\"],\"TIME\":\"9\"}\n"
        "{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"v3\",\"MEMORY\":\"20\"}\n"
        "{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"v3\",\"ALIAS\":\"-1\"}\n"
        "{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"v2\"}\n"
        "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"n3\",\"ARGS\":[\"w\\\"\\u000a\",\"v3\"],\"RESULT\":[]"
        ","
        "\"TIME\":\"5\"}\n"
        "{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"v3\"}\n");
    arena_free(m.a);
}

/* Views that nobody reads are given 1 ns by the reader. */
static uint64_t idle_views(Arena *a, const Graph *g, const Cost *c) {
    Users u = ir_users(a, g);
    uint64_t n = 0;
    for (NodeId i = 0; i < g->nnode; i++) {
        ValueId v = g->node[i].nout ? g->node[i].out[0] : NO_ID;
        bool idle = op_node_class(&g->node[i]) == CLS_VIEW && !c->node_ns[i] &&
                    u.first[v] == u.first[v + 1];
        for (uint32_t k = 0; k < g->noutput && idle; k++) idle = g->output[k] != v;
        n += idle;
    }
    return n;
}

/* Random steps read back: the same time, constants and peak. In place is what a log cannot say. */
static void test_round_trip(void) {
    for (uint32_t seed = 1; seed <= 60; seed++) {
        Arena *a = arena_new();
        Diag d;
        diag_init(&d, a, stderr);
        Graph *g = random_step(a, seed, 10 + 3 * seed);
        for (NodeId n = 0; n < g->nnode; n++)
            if (g->node[n].op == OP_Relu) g->node[n].op = OP_Opaque;
        const Cost *c = cost_opaque(a, g);
        Text t;
        text_init(&t, a);
        trace_print_log(&t, g, c);
        const Graph *h = trace_parse(a, &d, "step.log", t.at, t.n);
        CHECK(h != NULL);
        if (!h) continue;
        const Cost *k = cost_opaque(a, h);
        uint64_t ns = 0, back = 0;
        for (NodeId n = 0; n < g->nnode; n++) ns += c->node_ns[n];
        for (NodeId n = 0; n < h->nnode; n++) back += k->node_ns[n];
        CHECK_EQ(h->nnode, g->nnode);
        CHECK_EQ(back, ns + idle_views(a, g, c));
        CHECK_EQ(plan_persistent_bytes(h, k, true), plan_persistent_bytes(g, c, true));
        CHECK_EQ(plan_peak_without_budget(h, k, true), plan_peak_without_budget(g, c, true));
        CHECK_EQ(plan_floor(h, k, true), plan_floor(g, c, true));
        arena_free(a);
    }
}

/* ---- refused ---- */

#define CONST_X                                                                                    \
    "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"x\"}\n{\"INSTRUCTION\":\"MEMORY\",\"MEMORY\":\"8\"}" \
    "\n"
#define CALL_Y                                                                                     \
    "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[\"x\"],\"RESULT\":[\"y\"],\"TIME\":\"1\"}" \
    "\n"
#define MEMORY(n) "{\"INSTRUCTION\":\"MEMORY\",\"MEMORY\":\"" n "\"}\n"
#define ALIAS(n) "{\"INSTRUCTION\":\"ALIAS\",\"ALIAS\":\"" n "\"}\n"
#define MUTATE(what)                                                                               \
    "{\"INSTRUCTION\":\"MUTATE\",\"NAME\":\"m\",\"ARGS\":[\"x\"],\"MUTATE\":" what                 \
    ",\"TIME\":\"1\"}\n"
#define GRAPH(nodes, links) "{\"graph\":{},\"nodes\":[" nodes "],\"links\":[" links "]}"
#define NODE(id, ns, bytes) "{\"id\":" id ",\"cost_cpu\":" ns ",\"cost_ram\":" bytes "}"

static void test_refused(void) {
    static const struct {
        const char *name, *text, *error;
    } row[] = {
        {"a.log", "", "error: a.log: no operators\n"},
        {"a.log", "{\n", "error: a.log: line 1: expected one JSON object\n"},
        {"a.log", "\n\n[]\n", "error: a.log: line 3: expected one JSON object\n"},
        {"a.log", "{} {}\n", "error: a.log: line 1: expected one JSON object\n"},
        {"a.log", "{}\n", "error: a.log: line 1: expected \"INSTRUCTION\" with a text\n"},
        {"a.log", "{\"INSTRUCTION\":\"JUMP\"}\n",
         "error: a.log: line 1: unknown instruction 'JUMP'\n"},
        {"a.log", "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"x\"}\n",
         "error: a.log: line 1: expected MEMORY, found the end of the file\n"},
        {"a.log", "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"x\"}\n" ALIAS("0"),
         "error: a.log: line 2: expected MEMORY, found ALIAS\n"},
        {"a.log", "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"x\"}\n" MEMORY("-1"),
         "error: a.log: line 2: expected \"MEMORY\" with a whole number from 0\n"},
        {"a.log", "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"x\"}\n" MEMORY("18446744073709551616"),
         "error: a.log: line 2: expected \"MEMORY\" with a whole number from 0\n"},
        {"a.log", "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"x\"}\n" MEMORY("2000000000000"),
         "error: a.log: line 2: tensor 'x' has 2000000000000 bytes, expected at most "
         "1099511627776\n"},
        {"a.log", "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"\"}\n" MEMORY("1"),
         "error: a.log: line 2: the name of a tensor is empty\n"},
        {"a.log", "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"a\\u0000b\"}\n" MEMORY("1"),
         "error: a.log: line 1: a name cannot hold a zero byte\n"},
        {"a.log", "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"\xff\"}\n" MEMORY("1"),
         "error: a.log: line 2: the name of a tensor is not UTF-8 text\n"},
        {"a.log", CONST_X CONST_X, "error: a.log: line 4: a second tensor 'x'\n"},
        {"a.log", CALL_Y, "error: a.log: line 1: 'x' is not defined here\n"},
        {"a.log", CONST_X CALL_Y MEMORY("8"),
         "error: a.log: line 4: expected ALIAS, found the end of the file\n"},
        {"a.log", CONST_X CALL_Y MEMORY("8") ALIAS("1"),
         "error: a.log: line 5: ALIAS 1: the operator has 1 arguments\n"},
        {"a.log", CONST_X CALL_Y MEMORY("8") ALIAS("-2"),
         "error: a.log: line 5: expected \"ALIAS\" with a whole number from -1\n"},
        {"a.log", CONST_X CALL_Y MEMORY("8") ALIAS("-1") CALL_Y MEMORY("8") ALIAS("-1"),
         "error: a.log: line 8: a second tensor 'y'\n"},
        {"a.log",
         CONST_X "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[\"x\"],\"RESULT\":[\"y\","
                 "\"z\"],\"TIME\":\"1\"}\n" MEMORY("8") ALIAS("-1") MEMORY("8") ALIAS("0"),
         "error: a.log: line 7: an operator that returns views beside results of its own, or views "
         "of several arguments, is not supported\n"},
        {"a.log",
         CONST_X "{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[],\"RESULT\":[],\"TIME\":"
                 "\"9999999999999999\"}\n",
         "error: a.log: line 3: the operators take too long together: more than 1125899906842624 "
         "ns\n"},
        {"a.log", CONST_X MUTATE("[1]"),
         "error: a.log: line 3: expected numbers of arguments in \"MUTATE\"\n"},
        {"a.log", CONST_X MUTATE("[0, 0]"), "error: a.log: line 3: a second tensor 'x$'\n"},
        {"a.log", CONST_X "{\"INSTRUCTION\":\"COPY\",\"DST\":\"y\",\"SRC\":\"z\"}\n",
         "error: a.log: line 3: 'z' is not defined here\n"},
        {"a.log", CONST_X "{\"INSTRUCTION\":\"COPY_FROM\",\"DST\":\"y\",\"SRC\":\"x\"}\n",
         "error: a.log: line 3: 'y' is not defined here\n"},
        {"a.json", "{\"nodes\":\n[,]}",
         "error: a.json: line 2: not JSON: expected a node-link "
         "graph\n"},
        {"a.json", "[]", "error: a.json: expected a node-link graph: a JSON object\n"},
        {"a.json", "{}", "error: a.json: expected \"nodes\" with a list\n"},
        {"a.json", "{\"nodes\":[{}]}",
         "error: a.json: entry 0 of \"nodes\": expected an \"id\" or a \"name\"\n"},
        {"a.json", "{\"nodes\":[]}", "error: a.json: expected \"links\" with a list\n"},
        {"a.json", GRAPH("", ""), "error: a.json: no operators\n"},
        {"a.json", GRAPH(NODE("1", "1", "1") "," NODE("\"1\"", "1", "1"), ""),
         "error: a.json: node '1': some ids are numbers and some are texts\n"},
        {"a.json", GRAPH(NODE("1", "1", "1") "," NODE("1", "1", "1"), ""),
         "error: a.json: a second node '1'\n"},
        {"a.json", GRAPH(NODE("1", "1.5", "1"), ""),
         "error: a.json: node '1': expected \"cost_cpu\" with a whole number from 0\n"},
        {"a.json", GRAPH(NODE("1", "1", "-1"), ""),
         "error: a.json: node '1': expected \"cost_ram\" with a whole number from 0\n"},
        {"a.json", GRAPH(NODE("1", "1", "1e300"), ""),
         "error: a.json: node '1': expected \"cost_ram\" with a whole number from 0\n"},
        {"a.json", GRAPH(NODE("1", "1", "1"), "{\"source\":1,\"target\":2}"),
         "error: a.json: entry 0 of \"links\": expected two nodes\n"},
        {"a.json",
         GRAPH(NODE("1", "1", "1") "," NODE("2", "1", "1"), "{\"source\":2,\"target\":1}"),
         "error: a.json: node '1' needs '2', which does not run before it\n"},
        {"a.json", GRAPH(NODE("1", "1", "1"), "{\"source\":1,\"target\":1}"),
         "error: a.json: node '1' needs '1', which does not run before it\n"},
        {"a.json", "{\"graph\":{\"order\":[1,1]},\"nodes\":[" NODE("1", "1", "1") "],\"links\":[]}",
         "error: a.json: node '1' stands in \"order\" twice\n"},
        {"a.json", "{\"graph\":{\"order\":[2]},\"nodes\":[" NODE("1", "1", "1") "],\"links\":[]}",
         "error: a.json: entry 0 of \"order\" is not a node\n"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Arena *a = arena_new();
        Diag d;
        diag_init(&d, a, NULL);
        CHECK(!trace_parse(a, &d, row[i].name, row[i].text, strlen(row[i].text)));
        CHECK_STR(d.log.at, row[i].error);
        arena_free(a);
    }
}

/* ---- compressed ---- */

static size_t zip(const char *in, size_t n, unsigned char *out, size_t cap) {
    z_stream z = {0};
    deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    z.next_in = (Bytef *)(uintptr_t)in;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    CHECK_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static const char *parse_error(const char *name, const void *bytes, size_t n) {
    static char error[512];
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    Graph *g = trace_parse(a, &d, name, bytes, n);
    snprintf(error, sizeof error, "%s", g ? "" : d.log.at);
    arena_free(a);
    return error;
}

/* A file of two members, one that ends early, one with garbage behind it, and one that would become
 * larger than any log (300 MB of zeros). */
static void test_gzip(void) {
    static const char one[] = CONST_X, two[] = CALL_Y MEMORY("8") ALIAS("-1");
    static unsigned char file[1 << 20];
    size_t n = zip(one, sizeof one - 1, file, sizeof file);
    n += zip(two, sizeof two - 1, file + n, sizeof file - n);
    CHECK_STR(parse_error("a.log.gz", file, n), "");
    CHECK_STR(parse_error("a.log.gz", file, n - 1), "error: a.log.gz: not a whole gzip file\n");
    file[n] = 'x';
    CHECK_STR(parse_error("a.log.gz", file, n + 1), "error: a.log.gz: not a whole gzip file\n");
    size_t big = (size_t)300 << 20;
    char *zeros = calloc(big, 1);
    n = zip(zeros, big, file, sizeof file);
    free(zeros);
    CHECK_STR(parse_error("a.log.gz", file, n), "error: a.log.gz: too large when decompressed\n");
}

/* A name that grows with each mutation ends at the limit of names. */
static void test_long_names(void) {
    Arena *a = arena_new();
    Text t;
    text_init(&t, a);
    text_str(&t, CONST_X);
    for (int i = 0; i < 5000; i++) text_str(&t, MUTATE("[0]"));
    CHECK_STR(parse_error("a.log", t.at, t.n),
              "error: a.log: line 4098: the name of a tensor has 4097 bytes, expected at most "
              "4096\n");
    arena_free(a);
}

int main(void) {
    test_views();
    test_views_again();
    test_mutate();
    test_diamond();
    test_layered();
    test_outputs();
    test_emit();
    test_round_trip();
    test_refused();
    test_gzip();
    test_long_names();
    return test_end();
}
