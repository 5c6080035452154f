/* inspect.c - what a model holds, before anybody buys into compiling it: operators, parameters with
 * their roles, dimensions to bind, what is unsupported and why. Also `dtrc ops`. */
#include "driver.h"

#include <string.h>

typedef struct {
    uint32_t count[ROLE_COUNT];
    uint64_t bytes[ROLE_COUNT], elements[ROLE_COUNT];
} Roles;

static Roles count_roles(const Graph *g) {
    Roles r = {0};
    for (ValueId v = 0; v < g->nvalue; v++) {
        Role k = g->value[v].role;
        r.count[k]++;
        r.bytes[k] += value_bytes(g, v);
        r.elements[k] += value_count(g, v);
    }
    return r;
}

static bool is_listed(Role r) {
    return r == ROLE_PARAM || r == ROLE_FROZEN || r == ROLE_BUFFER || r == ROLE_CONST;
}

static void print_values(Arena *a, const Graph *g, Role role, const char *title) {
    for (ValueId v = 0; v < g->nvalue; v++) {
        const Value *x = &g->value[v];
        if (x->role == role)
            printf("  %-8s %-40s %s%s\n", title, diag_name(a, x->name), dtype_name(x->dtype),
                   shape_str(a, &x->shape));
    }
}

static void print_text(Arena *a, const Options *o, const Graph *g, const OnnxInfo *x) {
    char b[32];
    printf("%s: opset %lld, ir %lld, %s, %s\n", o->model, (long long)x->opset,
           (long long)x->ir_version, x->producer ? diag_name(a, x->producer) : "unknown producer",
           format_bytes(b, x->file_bytes));
    printf("operators:");
    for (uint32_t i = 0; i < x->nop; i++)
        printf(" %s %u%s", diag_name(a, x->op_name[i]), x->op_count[i], i + 1 < x->nop ? "," : "");
    printf("\n");
    if (x->nsymbol) {
        printf("dimensions to bind:");
        for (uint32_t i = 0; i < x->nsymbol; i++) printf(" %s", diag_name(a, x->symbol[i]));
        printf("   (--batch N for the batch, --dim NAME=N for others)\n");
    }
    if (!g) return;
    print_values(a, g, ROLE_INPUT, "input");
    for (uint32_t i = 0; i < g->noutput; i++) {
        const Value *v = &g->value[g->output[i]];
        printf("  %-8s %-40s %s%s\n", "output", diag_name(a, v->name), dtype_name(v->dtype),
               shape_str(a, &v->shape));
    }
    Roles r = count_roles(g);
    for (Role k = 0; k < ROLE_COUNT; k++)
        if (is_listed(k) && r.count[k])
            printf("%s: %u tensors, %llu numbers, %s\n", role_name(k), r.count[k],
                   (unsigned long long)r.elements[k], format_bytes(b, r.bytes[k]));
    print_values(a, g, ROLE_PARAM, "param");
    print_values(a, g, ROLE_FROZEN, "frozen");
    print_values(a, g, ROLE_BUFFER, "buffer");
    print_values(a, g, ROLE_CONST, "constant");
    if (x->missing_bytes)
        printf("external weights that are not there: %s\n", format_bytes(b, x->missing_bytes));
}

static void json_values(Text *t, const Graph *g) {
    bool first = true;
    text_str(t, "[");
    for (ValueId v = 0; v < g->nvalue; v++) {
        const Value *x = &g->value[v];
        if (!is_listed(x->role) && x->role != ROLE_INPUT) continue;
        text_str(t, first ? "\n    {\"name\": " : ",\n    {\"name\": ");
        first = false;
        text_json(t, x->name);
        text_add(t, ", \"role\": \"%s\", \"dtype\": \"%s\", \"shape\": %s, \"bytes\": %llu}",
                 role_name(x->role), dtype_name(x->dtype), shape_str(t->arena, &x->shape),
                 (unsigned long long)value_bytes(g, v));
    }
    text_str(t, "]");
}

static void print_json(Arena *a, const Options *o, const Graph *g, const OnnxInfo *x) {
    Text t;
    text_init(&t, a);
    text_str(&t, "{\"model\": ");
    text_json(&t, o->model);
    text_add(&t,
             ", \"opset\": %lld, \"ir_version\": %lld, \"file_bytes\": %llu, \"missing_bytes\": "
             "%llu,\n  \"operators\": {",
             (long long)x->opset, (long long)x->ir_version, (unsigned long long)x->file_bytes,
             (unsigned long long)x->missing_bytes);
    for (uint32_t i = 0; i < x->nop; i++) {
        if (i) text_str(&t, ", ");
        text_json(&t, x->op_name[i]);
        text_add(&t, ": %u", x->op_count[i]);
    }
    text_str(&t, "},\n  \"dimensions\": [");
    for (uint32_t i = 0; i < x->nsymbol; i++) {
        if (i) text_str(&t, ", ");
        text_json(&t, x->symbol[i]);
    }
    text_str(&t, "],\n  \"unsupported\": [");
    for (uint32_t i = 0; i < x->nunsupported; i++) {
        const OnnxUnsupported *u = &x->unsupported[i];
        text_str(&t, i ? ", {\"op\": " : "{\"op\": ");
        text_json(&t, u->op ? u->op : "");
        text_str(&t, ", \"domain\": ");
        text_json(&t, u->domain ? u->domain : "");
        text_str(&t, ", \"node\": ");
        text_json(&t, u->node ? u->node : "");
        text_str(&t, ", \"why\": ");
        text_json(&t, u->why ? u->why : "");
        text_str(&t, "}");
    }
    text_str(&t, "],\n  \"notes\": [");
    for (uint32_t i = 0; i < x->nnote; i++) {
        if (i) text_str(&t, ", ");
        text_json(&t, x->note[i]);
    }
    text_str(&t, "],\n  \"tensors\": ");
    if (g)
        json_values(&t, g);
    else
        text_str(&t, "[]");
    text_str(&t, "}\n");
    fputs(t.at, stdout);
}

/* By byte sums, as published planners count. */
static int inspect_trace(Arena *a, Diag *d, const Options *o) {
    const Graph *g = trace_read(a, d, o->model);
    if (!g) return EXIT_MODEL;
    const Cost *c = cost_opaque(a, g);
    uint64_t ns = 0, persistent = plan_persistent_bytes(g, c, true),
             peak = plan_peak_without_budget(g, c, true), floor = plan_floor(g, c, true);
    uint32_t views = 0, constants = 0;
    for (NodeId n = 0; n < g->nnode; n++) {
        ns += c->node_ns[n];
        views += op_node_class(&g->node[n]) == CLS_VIEW;
    }
    for (StorageId s = 0; s < g->nstorage; s++) constants += g->storage[s].persistent;
    if (o->json) {
        printf("{\"ops\": %u, \"views\": %u, \"tensors\": %u, \"storages\": %u, \"outputs\": %u, "
               "\"base_cost\": %llu, \"const_bytes\": %llu, \"live_peak_bytes\": %llu, "
               "\"floor_bytes\": %llu}\n",
               g->nnode, views, g->nvalue, g->nstorage, g->noutput, (unsigned long long)ns,
               (unsigned long long)persistent, (unsigned long long)peak, (unsigned long long)floor);
        return EXIT_DONE;
    }
    char b1[32], b2[32], b3[32];
    printf("%s: planning trace: %u operators (%u of them views), %.3f ms\n"
           "%u tensors in %u storages; %u constants, %s; %u outputs\n"
           "live peak %s; no schedule exists below %s\n",
           o->model, g->nnode, views, (double)ns / 1e6, g->nvalue, g->nstorage, constants,
           format_bytes(b1, persistent), g->noutput, format_bytes(b2, peak),
           format_bytes(b3, floor));
    return EXIT_DONE;
}

int inspect_print(Arena *a, Diag *d, const Options *o) {
    if (trace_is(o->model)) return inspect_trace(a, d, o);
    OnnxOptions x = o->onnx;
    x.need_weights = false;
    x.inference_default = true;
    OnnxInfo info = {0};
    Graph *g = onnx_import(a, d, o->model, &x, &info);
    if (!g && !info.opset) return EXIT_MODEL;
    if (g && !train_roles(g, d, o->rule, o->nrule)) return EXIT_USAGE;
    if (o->json)
        print_json(a, o, g, &info);
    else
        print_text(a, o, g, &info);
    for (uint32_t i = 0; i < info.nnote && !o->json; i++) printf("note: %s\n", info.note[i]);
    return g ? EXIT_DONE : EXIT_MODEL;
}

void ops_print(Arena *a, FILE *out) {
    const OnnxSupport *s;
    uint32_t n = onnx_support(&s, a);
    fprintf(out, "ONNX operators, operator sets %d to %d, float32\n\n%-20s %-9s %s\n", OPSET_MIN,
            OPSET_MAX, "operator", "gradient", "where");
    for (uint32_t i = 0; i < n; i++)
        fprintf(out, "%-20s %-9s %s\n", s[i].op, s[i].gradient ? "yes" : "-",
                s[i].run ? "anywhere" : "where its inputs are constants, such as shape arithmetic");
}
