/* trace_test.c - the whole way from an ONNX file to gradients, in double precision: each recorded
 * training run of tests/data/traces is imported, simplified, given its loss and differentiated; the
 * test interpreter runs the first step, before fusion and after it, and the loss and every gradient
 * must be those that PyTorch found in float64. No kernel and no generated code takes part. */
#include "interp.h"
#include "onnx.h"
#include "simplify.h"
#include "test.h"
#include "train.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "core.h"

#define TRACES "tests/data/traces"

/* ---- arrays of an npz file ---- */
typedef struct {
    int fd;
    Zip zip;
} Npz;

static bool npz_open(Npz *z, const char *path) {
    z->fd = open(path, O_RDONLY);
    return z->fd >= 0 && dtrt_zip_read(z->fd, path, &z->zip) == 0;
}
static void npz_close(Npz *z) {
    dtrt_zip_free(&z->zip);
    close(z->fd);
}

static double element(DataType t, const void *p, uint64_t i) {
    switch (t) {
    case D_F32: return (double)((const float *)p)[i];
    case D_F64: return ((const double *)p)[i];
    case D_I64: return (double)((const int64_t *)p)[i];
    case D_I32: return ((const int32_t *)p)[i];
    case D_BOOL: return ((const uint8_t *)p)[i];
    default: return NAN;
    }
}

/* Elements 0..n-1 of array `name` as doubles; false when it is not there or too short. */
static bool npz_read(Arena *a, const Npz *z, const char *name, double *out, uint64_t n) {
    const char *entry = arena_printf(a, "%s.npy", name);
    for (uint32_t i = 0; i < z->zip.n; i++) {
        const ZipEntry *e = &z->zip.entry[i];
        int fd;
        uint64_t at;
        NpyHeader h;
        if (strcmp(e->name, entry)) continue;
        if (dtrt_zip_open(z->fd, "npz", e, &fd, &at)) return false;
        bool ok = dtrt_npy_read(fd, at, e->bytes, name, &h) == 0;
        uint64_t bytes = ok ? n * dtrt_data_size(h.type) : 0;
        void *buf = arena_alloc(a, bytes + 1);
        ok = ok && bytes <= h.bytes &&
             pread(fd, buf, bytes, (off_t)(at + h.offset)) == (ssize_t)bytes;
        for (uint64_t k = 0; ok && k < n; k++) out[k] = element(h.type, buf, k);
        if (fd != z->fd) close(fd);
        return ok;
    }
    return false;
}

/* ---- trace.json ---- */
static cJSON *read_json(Arena *a, const char *path) {
    size_t n;
    char *text = file_read(a, path, 1 << 26, &n);
    return text ? cJSON_ParseWithLength(text, n) : NULL;
}

/* "cross-entropy:class_axis=1,..." of the trace's loss */
static const char *loss_spec(Arena *a, const cJSON *trace) {
    static const char *const kinds[][2] = {
        {"cross_entropy", "cross-entropy"}, {"nll", "nll"},      {"mse", "mse"}, {"l1", "l1"},
        {"bce_with_logits", "bce-logits"},  {"output", "output"}};
    static const char *const keys[] = {"class_axis", "ignore_index", "label_smoothing"};
    const cJSON *loss = cJSON_GetObjectItem(trace, "loss");
    const char *kind = cJSON_GetObjectItem(loss, "kind")->valuestring;
    Text t;
    text_init(&t, a);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i][0], kind)) text_str(&t, kinds[i][1]);
    text_add(&t, ":output=%s", cJSON_GetObjectItem(loss, "output")->valuestring);
    bool classes = !strcmp(kind, "cross_entropy") || !strcmp(kind, "nll");
    for (size_t i = 0; classes && i < sizeof keys / sizeof *keys; i++) {
        const cJSON *v = cJSON_GetObjectItem(loss, keys[i]);
        if (cJSON_IsNumber(v)) text_add(&t, ",%s=%.17g", keys[i], v->valuedouble);
    }
    return t.at;
}

/* --freeze for each weight that the trace does not train */
static bool freeze(Arena *a, Diag *d, Graph *g, const cJSON *trace) {
    const cJSON *name;
    bool ok = true;
    cJSON_ArrayForEach(name, cJSON_GetObjectItem(trace, "frozen")) {
        Text t;
        text_init(&t, a);
        for (const char *s = name->valuestring; *s; s++) {
            if (strchr("*?[]\\", *s)) text_char(&t, '\\');
            text_char(&t, *s);
        }
        RoleRule r = {false, t.at};
        ok = train_roles(g, d, &r, 1) && ok;
    }
    return ok;
}

/* ---- one graph ---- */
static double norm(const double *x, uint64_t n) {
    double s = 0;
    for (uint64_t i = 0; i < n; i++) s += x[i] * x[i];
    return sqrt(s);
}

/* What the update of the weight reads: weights with equal gradients (two biases that are added)
 * share one. */
static ValueId gradient_named(const Graph *g, const char *w) {
    for (NodeId n = 0; n < g->nnode; n++) {
        const Node *x = &g->node[n];
        bool update = x->op == OP_Sgd || x->op == OP_Adam || x->op == OP_AdamW;
        if (update && !strcmp(g->value[x->in[0]].name, w)) return x->in[1];
    }
    return NO_ID;
}

static void check_gradients(Arena *a, const Graph *g, const Ten *val, const cJSON *trace,
                            const Npz *grads, const char *what) {
    double total = cJSON_GetObjectItem(trace, "grad_step0_total_l2")->valuedouble;
    const cJSON *p;
    cJSON_ArrayForEach(p, cJSON_GetObjectItem(trace, "params")) {
        ValueId v = gradient_named(g, p->string);
        test_checks++;
        if (v == NO_ID) {
            test_failed++;
            fprintf(stderr, "%s: %s has no gradient\n", what, p->string);
            continue;
        }
        uint64_t n = ten_count(&val[v].s);
        double *want = ARENA_ARRAY(a, double, n);
        CHECK(npz_read(a, grads, p->string, want, n));
        double ref = norm(want, n), allowed = 3e-6 * fmax(ref, 1e-3 * total);
        for (uint64_t i = 0; i < n; i++) want[i] -= val[v].x[i];
        if (norm(want, n) <= allowed) continue;
        test_failed++;
        fprintf(stderr, "%s: gradient of %s: off by %g of %g\n", what, p->string, norm(want, n),
                ref);
    }
}

static void check_step(Arena *a, const Graph *g, const cJSON *trace, const Npz *data,
                       const Npz *grads, const char *what) {
    Ten *val = interp_new(a, g);
    for (ValueId v = 0; v < g->nvalue; v++) {
        if (g->value[v].role != ROLE_INPUT && g->value[v].role != ROLE_TARGET) continue;
        test_checks++;
        if (npz_read(a, data, g->value[v].name, val[v].x, ten_count(&val[v].s))) continue;
        test_failed++;
        fprintf(stderr, "%s: no data for %s\n", what, g->value[v].name);
    }
    interp_run(g, val, 0, g->nnode);
    double want = cJSON_GetObjectItem(trace, "losses")->child->valuedouble;
    test_checks++;
    if (!(fabs(val[g->loss].x[0] - want) <= 2e-7 * fabs(want))) {
        test_failed++;
        fprintf(stderr, "%s: loss %.12g, expected %.12g\n", what, val[g->loss].x[0], want);
    }
    check_gradients(a, g, val, trace, grads, what);
}

/* ---- one trace ---- */
static void run_trace(const char *name) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, stderr);
    const char *dir = arena_printf(a, TRACES "/%s", name);
    cJSON *trace = read_json(a, arena_printf(a, "%s/trace.json", dir));
    Npz data, grads;
    CHECK(trace && npz_open(&data, arena_printf(a, "%s/data.npz", dir)));
    CHECK(npz_open(&grads, arena_printf(a, "%s/grad0.npz", dir)));
    const cJSON *in = cJSON_GetObjectItem(trace, "inputs")->child;
    OnnxOptions o = {.dropout = true, .need_weights = true};
    if (cJSON_IsTrue(cJSON_GetObjectItem(trace, "dynamic_batch")))
        o.batch = cJSON_GetObjectItem(in, "shape")->child->valueint;
    LossSpec loss;
    OptSpec opt = {.kind = OPT_SGD};
    Graph *g = onnx_import(a, &d, arena_printf(a, "%s/model.onnx", dir), &o, NULL);
    bool ok = g && train_parse_loss(&d, a, loss_spec(a, trace), &loss) && freeze(a, &d, g, trace);
    Graph *net = ok ? simplify_forward(a, &d, g) : NULL;
    Graph *step = net ? train_build(a, &d, net, &loss, &opt) : NULL;
    Graph *fused = step ? simplify_step(a, step) : NULL;
    CHECK(fused && ir_verify(&d, step) && ir_verify(&d, fused));
    if (fused) {
        check_step(a, step, trace, &data, &grads, name);
        check_step(a, fused, trace, &data, &grads, arena_printf(a, "%s, fused", name));
    }
    npz_close(&data);
    npz_close(&grads);
    cJSON_Delete(trace);
    arena_free(a);
}

static int is_case(const struct dirent *e) {
    return e->d_name[0] != '.' && !strchr(e->d_name, '.') && strcmp(e->d_name, "dropout_stats");
}

int main(int argc, char **argv) {
    struct dirent **e;
    int n = scandir(TRACES, &e, is_case, alphasort);
    CHECK(n > 0);
    for (int i = 0; i < n; i++) {
        if (argc < 3 || !strcmp(argv[2], e[i]->d_name)) run_trace(e[i]->d_name);
        free(e[i]);
    }
    if (n >= 0) free(e);
    return test_end();
}
