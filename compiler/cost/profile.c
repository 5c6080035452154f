/* profile.c - times that a trainer measured (--profile FILE) instead of modelled ones.
 *
 * All runs of a node do the same work, recomputed ones too, so the file has one row for each node.
 * Of its times the least one counts: whatever disturbs a run (other programs, pages that are
 * touched for the first time, cold caches) only adds to it, so the least of even two runs is steady
 * where their median is not. The digest of the step graph says whether node numbers mean the same.
 */
#include "measured.h"

#include <stdlib.h>
#include <string.h>

#define NS_MAX 1e15 /* 11 days */

typedef struct {
    Arena *a;
    Diag *d;
    const char *file;
    const Graph *g;
    const Cost *c;
    const cJSON *rows;
} Profile;

static bool row_node(const Profile *p, const cJSON *row, NodeId *out) {
    double node;
    TRY(json_number(p->d, p->file, row, "node", 0, (double)UINT32_MAX - 1, &node));
    *out = (NodeId)node;
    return (double)*out == node ||
           diag_error(p->d, (Place){.file = p->file}, "\"node\" takes the number of a node");
}

static const char *op_of(const Node *n) {
    return n->onnx ? n->onnx : op_def(n->op)->name;
}

/* First axis of the first input; 0: none. */
static int64_t batch_of(const Graph *g) {
    for (ValueId v = 0; v < g->nvalue; v++)
        if (g->value[v].role == ROLE_INPUT)
            return g->value[v].shape.rank ? g->value[v].shape.dim[0] : 0;
    return 0;
}

/* By what one sees that the rows belong to another step graph; NULL after reporting. */
static const char *difference(const Profile *p, const cJSON *root) {
    const cJSON *row, *batch = cJSON_GetObjectItemCaseSensitive(root, "batch");
    cJSON_ArrayForEach(row, p->rows) {
        NodeId n;
        const char *name = json_string(row, "name"), *op = json_string(row, "op");
        if (!row_node(p, row, &n)) return NULL;
        if (n >= p->g->nnode)
            return arena_printf(p->a, "it has a node %u, this one has %u nodes", n, p->g->nnode);
        const Node *x = &p->g->node[n];
        if (name && !strcmp(name, x->name) && op && !strcmp(op, op_of(x))) continue;
        return arena_printf(p->a, "node %u is '%s' (%s) there and '%s' (%s) here", n,
                            diag_name(p->a, name), diag_name(p->a, op), diag_name(p->a, x->name),
                            op_of(x));
    }
    if (cJSON_IsNumber(batch) && batch->valuedouble != (double)batch_of(p->g))
        return arena_printf(p->a, "the batch is %g there and %lld here", batch->valuedouble,
                            (long long)batch_of(p->g));
    return "operators are the same, but other shapes or attributes";
}

static bool other_graph(const Profile *p, const cJSON *root, const char *sha256) {
    const char *theirs = json_string(root, "model_sha256"), *model = json_string(root, "model"),
               *command = json_string(root, "command");
    Place at = {.file = p->file};
    if (theirs && *theirs && sha256 && *sha256 && strcmp(theirs, sha256)) {
        diag_error(p->d, at, "measured with another model: '%s', sha256 %.12s, expected %.12s",
                   diag_name(p->a, model), diag_name(p->a, theirs), sha256);
    } else {
        const char *what = difference(p, root);
        if (!what) return false;
        diag_error(p->d, at, "measured with another training step of this model: %s", what);
    }
    if (command) diag_hint(p->d, "it was compiled by: %s", diag_name(p->a, command));
    diag_hint(p->d, "give the same model, --batch, --dim, --loss, --optimizer, --freeze, --train "
                    "and --dropout");
    return false;
}

static bool check_header(const Profile *p, const cJSON *root, Target t, const char *sha256,
                         int threads) {
    Place at = {.file = p->file};
    const char *graph = json_string(root, "graph"), *target = json_string(root, "target");
    double measured;
    if (!cJSON_IsArray(p->rows)) return diag_error(p->d, at, "expected \"nodes\" with a list");
    if (!graph) return diag_error(p->d, at, "expected \"graph\" with the digest of a step graph");
    char here[32];
    snprintf(here, sizeof here, "%016llx", (unsigned long long)ir_digest(p->g));
    if (strcmp(graph, here)) return other_graph(p, root, sha256);
    if (!target || strcmp(target, target_name(t)))
        return diag_error(p->d, at, "measured for target '%s', expected '%s'",
                          diag_name(p->a, target), target_name(t));
    TRY(json_number(p->d, p->file, root, "threads", 1, 1e6, &measured));
    if ((int)measured == threads) return true;
    diag_error(p->d, at, "measured with %g threads, but planned for %d", measured, threads);
    diag_hint(p->d, "give --threads %g, or measure again with the trainer's --threads %d", measured,
              threads);
    return false;
}

/* least: per node, 0 where nothing was measured. */
static bool read_rows(const Profile *p, uint64_t *least) {
    const cJSON *row;
    cJSON_ArrayForEach(row, p->rows) {
        NodeId n;
        double ns;
        TRY(row_node(p, row, &n));
        if (n >= p->g->nnode || !p->c->node_ns[n]) /* views that cost nothing do not run */
            return diag_error(p->d, (Place){.file = p->file},
                              "\"node\" takes the number of a node that runs");
        TRY(json_number(p->d, p->file, row, "min_ns", 0, NS_MAX, &ns));
        if (least[n]) return diag_error(p->d, (Place){.file = p->file}, "node %u has two rows", n);
        least[n] = ns < 1 ? 1 : (uint64_t)ns;
    }
    return true;
}

static int by_double(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static void use_times(const Profile *p, const uint64_t *least, Cost *c) {
    const Graph *g = p->g;
    double *ratio = ARENA_ARRAY(p->a, double, g->nnode + 1);
    uint32_t n = 0, missing = 0;
    for (NodeId i = 0; i < g->nnode; i++)
        if (least[i]) ratio[n++] = (double)least[i] / (double)c->node_ns[i];
    qsort(ratio, n, sizeof *ratio, by_double);
    double scale = ratio[n / 2];
    for (NodeId i = 0; i < g->nnode; i++) {
        if (!c->node_ns[i]) continue;
        double modelled = (double)c->node_ns[i] * scale;
        missing += !least[i];
        c->node_ns[i] = least[i] ? least[i] : modelled < 1 ? 1 : (uint64_t)modelled;
    }
    if (missing)
        diag_warn(p->d, (Place){.file = p->file},
                  "%u of %u nodes are not in the profile: they keep the model's times, times %.3g",
                  missing, missing + n, scale);
}

bool cost_read_profile(Arena *a, Diag *d, const char *file, const Graph *g, Target t,
                       const char *model_sha256, Cost *c) {
    Arena *scratch = arena_new();
    cJSON *root = json_open(a, d, file, "dtrc-profile");
    Profile p = {a, d, file, g, c, cJSON_GetObjectItemCaseSensitive(root, "nodes")};
    uint64_t *least = ARENA_ARRAY(scratch, uint64_t, g->nnode + 1);
    bool ok = root && check_header(&p, root, t, model_sha256, c->threads) && read_rows(&p, least);
    if (ok && !cJSON_GetArraySize(p.rows))
        ok = diag_error(d, (Place){.file = file}, "no node was measured");
    if (ok) use_times(&p, least, c);
    cJSON_Delete(root);
    arena_free(scratch);
    return ok;
}
