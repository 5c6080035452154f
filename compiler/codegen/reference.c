/* reference.c - the forward graph as imported, as tables for the reference interpreter that
 * --check-grad compares gradients with. */
#include "gen.h"

#include <string.h>

/* Numbers of all lists in one array; a list is a slice of it. */
typedef struct {
    Text text;
    uint32_t n;
} Pool;

static uint32_t pool_ids(Pool *p, const uint32_t *id, uint32_t n) {
    uint32_t at = p->n;
    for (uint32_t i = 0; i < n; i++) text_add(&p->text, " %d,", id[i] == NO_ID ? -1 : (int)id[i]);
    if (n) text_char(&p->text, '\n');
    p->n += n;
    return at;
}

typedef struct {
    Pool id, ints, floats;
    Text attr_name, attr_i, attr_f, attr_n, nodes;
    uint32_t nattr;
} Ref;

static void add_attr(Ref *r, const Attr *at, Arena *a) {
    text_char(&r->attr_name, ' ');
    text_quote(&r->attr_name, attr_name(at->key));
    text_char(&r->attr_name, ',');
    text_add(&r->attr_n, " %u,", at->n);
    if (at->is_float) {
        text_str(&r->attr_i, " 0,");
        text_add(&r->attr_f, " ref_float + %u,", r->floats.n);
        for (uint32_t i = 0; i < at->n; i++)
            text_add(&r->floats.text, " %s,", cg_number(a, at->f[i], false));
        r->floats.n += at->n;
    } else {
        text_str(&r->attr_f, " 0,");
        text_add(&r->attr_i, " ref_int + %u,", r->ints.n);
        for (uint32_t i = 0; i < at->n; i++) text_add(&r->ints.text, " %lld,", (long long)at->i[i]);
        r->ints.n += at->n;
    }
    r->nattr++;
}

/* Does the step keep the tensor that random operator `key` works on with its channels last? */
static bool keeps_channels_last(const Graph *step, uint32_t key) {
    for (NodeId n = 0; n < step->nnode; n++) {
        const Node *x = &step->node[n];
        if (op_class(x) == CLS_RANDOM && x->key == key) return ir_get_i(x, A_channels_last, 0) != 0;
        for (uint32_t k = 0; x->body && k < x->body->ninst; k++) {
            const FusedInst *in = &x->body->inst[k];
            if (op_def(in->op)->cls != CLS_RANDOM || in->key != key) continue;
            const Attr *at = attr_find(in->attr, in->nattr, A_channels_last);
            return at && at->i[0];
        }
    }
    return false;
}

static void add_node(Ref *r, const Gen *g, const Node *n) {
    uint32_t in = pool_ids(&r->id, n->in, n->nin), out = pool_ids(&r->id, n->out, n->nout);
    uint32_t first = r->nattr;
    for (uint32_t i = 0; i < n->nattr; i++) add_attr(r, &n->attr[i], g->a);
    static const int64_t one[1] = {1};
    Attr last = {.key = A_channels_last, .n = 1, .i = one};
    if (op_class(n) == CLS_RANDOM && keeps_channels_last(g->g, n->key)) add_attr(r, &last, g->a);
    text_str(&r->nodes, "    {");
    text_quote(&r->nodes, op_def(n->op)->name);
    text_str(&r->nodes, ", ");
    text_quote(&r->nodes, n->name);
    text_add(&r->nodes,
             ", %u, %u, ref_id + %u, ref_id + %u, ref_attr_name + %u, ref_attr_i + %u, "
             "ref_attr_f + %u, ref_attr_n + %u, %u, %uu},\n",
             n->nin, n->nout, in, out, first, first, first, first, r->nattr - first, n->key);
}

static void print_values(const Gen *g, Text *t) {
    text_str(t, "static const DtrtRefValue ref_value[] = {\n");
    for (ValueId v = 0; v < g->fwd->nvalue; v++) {
        const Value *x = &g->fwd->value[v];
        text_str(t, "    {");
        text_quote(t, x->name);
        text_add(t, ", %s, %u, ", cg_type_name(x->dtype), x->shape.rank);
        cg_print_dims(t, &x->shape);
        bool own = g->ref_tensor[v] == NO_ID && x->data;
        text_add(t, ", %d, %llu, %llu},\n", g->ref_tensor[v] == NO_ID ? -1 : (int)g->ref_tensor[v],
                 (unsigned long long)(own ? g->ref_offset[v] : 0),
                 (unsigned long long)(own ? x->data->n : 0));
    }
    text_str(t, "    {0}};\n\n");
}

static void print_pool(Text *t, const char *decl, const Text *rows, const char *end) {
    text_add(t, "static const %s[] = {\n%s%s};\n", decl, rows->n ? rows->at : "", end);
}

void cg_print_reference(Gen *g, Text *t) {
    Ref r = {0};
    Text *all[] = {&r.id.text, &r.ints.text, &r.floats.text, &r.attr_name,
                   &r.attr_i,  &r.attr_f,    &r.attr_n,      &r.nodes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) text_init(all[i], g->a);
    for (NodeId n = 0; n < g->fwd->nnode; n++) add_node(&r, g, &g->fwd->node[n]);
    text_str(t, "/* ---- the forward graph of the model file, for --check-grad ---- */\n");
    print_pool(t, "int32_t ref_id", &r.id.text, " -1");
    if (r.ints.n) print_pool(t, "int64_t ref_int", &r.ints.text, " 0");
    if (r.floats.n) print_pool(t, "double ref_float", &r.floats.text, " 0");
    print_pool(t, "char *const ref_attr_name", &r.attr_name, " 0");
    print_pool(t, "int64_t *const ref_attr_i", &r.attr_i, " 0");
    print_pool(t, "double *const ref_attr_f", &r.attr_f, " 0");
    print_pool(t, "uint32_t ref_attr_n", &r.attr_n, " 0");
    print_pool(t, "DtrtRefNode ref_node", &r.nodes, "    {0}");
    print_values(g, t);
}
