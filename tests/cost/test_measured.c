/* Measured times: profiles that are used, profiles and device files that are refused with a reason,
 * and the fit of the constants. */
#include "cost.h"
#include "test.h"

static Arena *a;
static const char *folder;

static Graph *graph(void) {
    Diag d;
    diag_init(&d, a, NULL);
    Graph *g = ir_parse(a, &d, "test.ir",
                        "graph \"t\"\n%0 input f32[512,512] \"x\"\n%1 input f32[512,512] \"y\"\n"
                        "fwd %2 f32[512,512] \"p\" = MatMul(%0, %1) \"mm\"\n"
                        "fwd %3 f32[512,512] \"s\" = Add(%2, %0) \"add\"\n"
                        "fwd %4 f32[262144] \"v\" = Reshape(%3) {shape=[262144]} \"view\"\n"
                        "output %4\n");
    CHECK(g && ir_verify(&d, g) && op_check(&d, g));
    return g;
}

static const char *write(const char *name, const char *text) {
    const char *path = arena_printf(a, "%s/%s", folder, name);
    CHECK(file_write(path, text, strlen(text)));
    return path;
}

static const char *profile(const Graph *g, const char *target, int threads, const char *rows) {
    return arena_printf(a,
                        "{\"format\": \"dtrc-profile\", \"version\": 1, \"model\": \"m\", "
                        "\"model_sha256\": \"\", \"graph\": \"%016llx\", \"target\": \"%s\", "
                        "\"threads\": %d, \"nodes\": [%s]}",
                        (unsigned long long)ir_digest(g), target, threads, rows);
}

#define ROW(node, ns)                                                                              \
    "{\"node\": " node ", \"name\": \"n\", \"op\": \"o\", \"min_ns\": " ns ", \"median_ns\": 9}"

/* Both nodes measured: the least times count, views stay free. */
static void whole_profile(const Graph *g) {
    Diag d;
    diag_init(&d, a, NULL);
    Cost *c = cost_analytic(a, g, TARGET_CPU, 2);
    const char *p = write("whole.json", profile(g, "cpu", 2, ROW("0", "5000") ", " ROW("1", "0")));
    CHECK(cost_read_profile(a, &d, p, g, TARGET_CPU, NULL, c));
    CHECK_EQ(c->node_ns[0], 5000);
    CHECK_EQ(c->node_ns[1], 1); /* a run takes time */
    CHECK_EQ(c->node_ns[2], 0);
    CHECK_STR(d.log.at, "");
}

/* Only the product measured, at three times what the model says: the sum keeps the model's time,
 * times three. */
static void part_of_a_profile(const Graph *g) {
    Diag d;
    diag_init(&d, a, NULL);
    Cost *c = cost_analytic(a, g, TARGET_CPU, 2);
    uint64_t product = c->node_ns[0], sum = c->node_ns[1];
    const char *row =
        arena_printf(a, "{\"node\": 0, \"min_ns\": %llu}", (unsigned long long)(3 * product));
    CHECK(cost_read_profile(a, &d, write("part.json", profile(g, "cpu", 2, row)), g, TARGET_CPU, "",
                            c));
    CHECK_EQ(c->node_ns[0], 3 * product);
    CHECK_EQ(c->node_ns[1], 3 * sum);
    CHECK(strstr(d.log.at, "1 of 2 nodes are not in the profile") != NULL);
}

static void refused(const Graph *g, const char *text, const char *says) {
    Diag d;
    diag_init(&d, a, NULL);
    Cost *c = cost_analytic(a, g, TARGET_CPU, 2);
    uint64_t before = c->node_ns[0];
    CHECK(!cost_read_profile(a, &d, write("bad.json", text), g, TARGET_CPU, "abc", c));
    CHECK(d.errors >= 1);
    if (!strstr(d.log.at, says)) CHECK_STR(d.log.at, says);
    CHECK_EQ(c->node_ns[0], before);
}

static void bad_profiles(const Graph *g) {
    Text deep, wide;
    text_init(&deep, a);
    for (int i = 0; i < 100000; i++) text_char(&deep, '[');
    text_init(&wide, a);
    text_char(&wide, '[');
    for (int i = 0; i < 1 << 20; i++) text_str(&wide, "0,");
    text_str(&wide, "0]");
    refused(g, "", "not JSON");
    refused(g, "{", "not JSON");
    refused(g, deep.at, "not JSON");
    refused(g, wide.at, "more than");
    refused(g, "[]", "dtrc-profile");
    refused(g, "{\"format\": \"dtrc-profile\", \"version\": 2}", "\"version\": 1");
    refused(g, "{\"format\": \"dtrc-profile\", \"version\": 1}", "\"nodes\"");
    refused(g, "{\"format\": \"dtrc-profile\", \"version\": 1, \"nodes\": []}", "\"graph\"");
    refused(g, profile(g, "cpu", 2, ""), "no node was measured");
    refused(g, profile(g, "cpu", 2, "7"), "\"node\"");
    refused(g, profile(g, "null", 2, ROW("0", "5")), "target 'null', expected 'cpu'");
    refused(g, profile(g, "cpu", 4, ROW("0", "5")), "measured with 4 threads, but planned for 2");
    refused(g, profile(g, "cpu", 2, ROW("0", "-5")), "\"min_ns\" is -5");
    refused(g, profile(g, "cpu", 2, ROW("0", "NaN")), "not JSON");
    refused(g, profile(g, "cpu", 2, ROW("0", "1e999")), "\"min_ns\" is inf");
    refused(g, profile(g, "cpu", 2, ROW("0", "\"5\"")), "expected a number for \"min_ns\"");
    refused(g, profile(g, "cpu", 2, ROW("0", "5") ", " ROW("0", "6")), "node 0 has two rows");
    refused(g, profile(g, "cpu", 2, ROW("0.5", "5")), "number of a node");
    refused(g, profile(g, "cpu", 2, ROW("-1", "5")), "\"node\" is -1");
    refused(g, profile(g, "cpu", 2, ROW("2", "5")), "a node that runs"); /* the view */
    refused(g, profile(g, "cpu", 2, ROW("3", "5")), "a node that runs");
}

/* A profile of another graph says what differs: the model, or an operator, or the batch. */
static void other_graphs(const Graph *g) {
#define OTHER(sha, more)                                                                           \
    "{\"format\": \"dtrc-profile\", \"version\": 1, \"model\": \"m.onnx\", \"model_sha256\": "     \
    "\"" sha "\", \"command\": \"dtrc m.onnx --batch 3\", \"graph\": \"0\", \"target\": \"cpu\", " \
    "\"threads\": 2, " more "}"
    refused(g, OTHER("def", "\"nodes\": []"), "another model: 'm.onnx', sha256 def, expected abc");
    refused(g,
            OTHER("abc", "\"nodes\": [{\"node\": 0, \"name\": \"mm\", \"op\": \"MatMul\"}, "
                         "{\"node\": 1, \"name\": \"add\", \"op\": \"Sub\"}]"),
            "node 1 is 'add' (Sub) there and 'add' (Add) here");
    refused(g, OTHER("abc", "\"nodes\": [{\"node\": 9, \"name\": \"z\", \"op\": \"Sub\"}]"),
            "it has a node 9, this one has 3 nodes");
    refused(g, OTHER("abc", "\"nodes\": [], \"batch\": 3"), "the batch is 3 there and 512 here");
    refused(g, OTHER("abc", "\"nodes\": [], \"batch\": 512"), "other shapes or attributes");
    refused(g, OTHER("abc", "\"nodes\": []"), "it was compiled by: dtrc m.onnx --batch 3");
}

static void device_files(void) {
    Diag d;
    diag_init(&d, a, NULL);
    Device x = *device_default(), y;
    x.name = "one \"two\"";
    x.flops_per_ns = 12.5;
    x.factor[OP_MatMul] = 3;
    Text t;
    text_init(&t, a);
    device_print(&t, &x);
    CHECK(device_read(a, &d, write("device.json", t.at), &y));
    CHECK_STR(y.name, x.name);
    CHECK(y.flops_per_ns == 12.5 && y.factor[OP_MatMul] == 3 && y.fixed_ns == x.fixed_ns);
    static const char *const bad[][2] = {
        {"{}", "dtrc-device"},
        {"\"flops_per_ns\": 0", "\"flops_per_ns\" is 0"},
        {"\"flops_per_ns\": -1", "\"flops_per_ns\" is -1"},
        {"\"flops_per_ns\": 1e999", "\"flops_per_ns\" is inf"},
        {"\"flops_per_ns\": 40", "expected a number for \"loop_flops_per_ns\""},
        {"\"flops_per_ns\": 40, \"loop_flops_per_ns\": 9, \"bytes_per_ns\": 1, "
         "\"max_bytes_per_ns\": 1, \"fixed_ns\": -1",
         "\"fixed_ns\" is -1"},
        {"\"flops_per_ns\": 40, \"loop_flops_per_ns\": 9, \"bytes_per_ns\": 1, "
         "\"max_bytes_per_ns\": 1, \"fixed_ns\": 1, "
         "\"operators\": {\"Nope\": 1}",
         "there is no operator 'Nope'"},
        {"\"flops_per_ns\": 40, \"loop_flops_per_ns\": 9, \"bytes_per_ns\": 1, "
         "\"max_bytes_per_ns\": 1, \"fixed_ns\": 1, "
         "\"operators\": {\"Conv\": 0}",
         "\"Conv\" is 0"},
        {"\"flops_per_ns\": 40, \"loop_flops_per_ns\": 9, \"bytes_per_ns\": 1, "
         "\"max_bytes_per_ns\": 1, \"fixed_ns\": 1, "
         "\"operators\": 3",
         "expected an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Diag e;
        diag_init(&e, a, NULL);
        const char *text =
            i ? arena_printf(a, "{\"format\": \"dtrc-device\", \"version\": 1, %s}", bad[i][0])
              : bad[i][0];
        CHECK(!device_read(a, &e, write("device.json", text), &y) && e.errors == 1);
        if (!strstr(e.log.at, bad[i][1])) CHECK_STR(e.log.at, bad[i][1]);
    }
}

/* Times of a made-up device: what is fitted to them predicts the same times. The product is bounded
 * by arithmetic, the sum by bytes; neither is near the fixed part. */
static void fit(const Graph *g) {
    Device truth = {.flops_per_ns = 7,
                    .loop_flops_per_ns = 20,
                    .bytes_per_ns = 0.5,
                    .max_bytes_per_ns = 48,
                    .fixed_ns = 0};
    Cost *measured = cost_on_device(a, g, TARGET_CPU, 1, &truth);
    Device found = device_fit(g, measured, device_default(), true);
    Cost *again = cost_on_device(a, g, TARGET_CPU, 1, &found);
    for (NodeId n = 0; n < g->nnode; n++)
        CHECK_NEAR((double)again->node_ns[n], (double)measured->node_ns[n],
                   0.01 * (double)measured->node_ns[n] + 2 * found.fixed_ns);
    /* 2 * 512^3 operations at 7 a ns */
    CHECK_NEAR((double)measured->node_ns[0], 2.0 * 512 * 512 * 512 / 7, 2);
    Device kept = device_fit(g, measured, device_default(), false);
    CHECK(kept.flops_per_ns == device_default()->flops_per_ns);
    CHECK(kept.factor[OP_Conv] == device_default()->factor[OP_Conv]);
}

int main(int argc, char **argv) {
    a = arena_new();
    folder = argc > 1 ? argv[1] : ".";
    const Graph *g = graph();
    whole_profile(g);
    part_of_a_profile(g);
    bad_profiles(g);
    other_graphs(g);
    device_files();
    fit(g);
    arena_free(a);
    return test_end();
}
