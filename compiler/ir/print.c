/* print.c - the text form of a graph (README.md gives the syntax). Sources first, then the nodes in
 * order, then what must be there at the end. Values are numbered in the order in which the text
 * defines them, so that a text that was read prints the same again. Initial values are printed when
 * they are one number repeated or few; larger ones are left out with a comment. */
#include "ir.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DATA_SHOWN 64 /* elements */

/* The shortest digits that read back to the same float or double; always with a mark of a float. */
static void print_float(Text *t, double v, bool single) {
    if (isnan(v)) {
        text_str(t, "nan");
        return;
    }
    char buf[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        double back = strtod(buf, NULL);
        if (back == v || (single && (double)(float)back == v)) break;
    }
    text_str(t, buf);
    if (!isinf(v) && !strpbrk(buf, ".e")) text_str(t, ".0");
}

static void print_attrs(Text *t, const Attr *attr, uint32_t n) {
    if (n == 0) return;
    text_str(t, " {");
    for (uint32_t i = 0; i < n; i++) {
        text_add(t, i ? ", %s=" : "%s=", attr_name(attr[i].key));
        if (attr[i].n != 1) text_char(t, '[');
        for (uint32_t k = 0; k < attr[i].n; k++) {
            if (k) text_char(t, ',');
            if (attr[i].is_float)
                print_float(t, attr[i].f[k], false);
            else
                text_add(t, "%lld", (long long)attr[i].i[k]);
        }
        if (attr[i].n != 1) text_char(t, ']');
    }
    text_char(t, '}');
}

static void print_type(Text *t, DType dt, const Shape *s) {
    text_add(t, "%s[", dtype_name(dt));
    for (uint32_t i = 0; i < s->rank; i++) text_add(t, i ? ",%lld" : "%lld", (long long)s->dim[i]);
    text_char(t, ']');
}

/* Element i of initial data as a number of its own kind. */
static void print_element(Text *t, DType dt, const void *bytes, uint64_t i) {
    const unsigned char *at = (const unsigned char *)bytes + i * dtype_size(dt);
    float f;
    double d;
    int32_t i32;
    int64_t i64;
    switch (dt) {
    case DT_F32:
        memcpy(&f, at, sizeof f);
        print_float(t, (double)f, true);
        break;
    case DT_F64:
        memcpy(&d, at, sizeof d);
        print_float(t, d, false);
        break;
    case DT_I32:
        memcpy(&i32, at, sizeof i32);
        text_add(t, "%ld", (long)i32);
        break;
    case DT_I64:
        memcpy(&i64, at, sizeof i64);
        text_add(t, "%lld", (long long)i64);
        break;
    default: text_add(t, "%d", *at);
    }
}

static void print_data(Text *t, const Value *v) {
    size_t size = dtype_size(v->dtype);
    const char *bytes = v->data->bytes;
    uint64_t n = v->data->n / size;
    bool same = n > 0;
    for (uint64_t i = 1; same && i < n; i++) same = !memcmp(bytes, bytes + i * size, size);
    if (same) {
        text_str(t, " fill(");
        print_element(t, v->dtype, bytes, 0);
        text_char(t, ')');
    } else if (n <= DATA_SHOWN) {
        text_str(t, " data[");
        for (uint64_t i = 0; i < n; i++) {
            if (i) text_char(t, ',');
            print_element(t, v->dtype, bytes, i);
        }
        text_char(t, ']');
    } else {
        text_add(t, " # %llu bytes of data", (unsigned long long)v->data->n);
    }
}

/* %3 f32[2,4] "y" of %1 */
static void print_output(Text *t, const Graph *g, const uint32_t *num, ValueId v) {
    if (v == NO_ID) {
        text_char(t, '-');
        return;
    }
    text_add(t, "%%%u ", num[v]);
    print_type(t, g->value[v].dtype, &g->value[v].shape);
    text_char(t, ' ');
    text_quote(t, g->value[v].name);
    if (g->value[v].param != NO_ID) text_add(t, " of %%%u", num[g->value[v].param]);
}

static void print_source(Text *t, const Graph *g, const uint32_t *num, ValueId id) {
    const Value *v = &g->value[id];
    text_add(t, "%%%u %s ", num[id], role_name(v->role));
    print_type(t, v->dtype, &v->shape);
    text_char(t, ' ');
    text_quote(t, v->name);
    if (v->param != NO_ID) text_add(t, " of %%%u", num[v->param]);
    if (v->data) print_data(t, v);
    text_char(t, '\n');
}

/* Operand k of a fused instruction: a2 is input 2 of the node, i3 the result of instruction 3. */
static void print_arg(Text *t, uint32_t nin, uint32_t k) {
    if (k == NO_ID)
        text_char(t, '-');
    else
        text_add(t, k < nin ? "a%u" : "i%u", k < nin ? k : k - nin);
}

static void print_body(Text *t, const Node *n) {
    const FusedBody *b = n->body;
    text_str(t, " space [");
    for (uint32_t i = 0; i < b->space.rank; i++)
        text_add(t, i ? ",%lld" : "%lld", (long long)b->space.dim[i]);
    text_str(t, "] {\n");
    for (uint32_t i = 0; i < b->ninst; i++) {
        const FusedInst *f = &b->inst[i];
        text_add(t, "    i%u %s = %s(", i, dtype_name(f->dtype), ir_op_name(f->op));
        for (uint32_t k = 0; k < f->narg; k++) {
            if (k) text_str(t, ", ");
            print_arg(t, n->nin, f->arg[k]);
        }
        text_char(t, ')');
        print_attrs(t, f->attr, f->nattr);
        if (f->key) text_add(t, " key %u", f->key);
        if (f->name) {
            text_char(t, ' ');
            text_quote(t, f->name);
        }
        text_char(t, '\n');
    }
    text_str(t, "    out");
    for (uint32_t k = 0; k < n->nout; k++) {
        text_add(t, k ? ", i%u" : " i%u", b->out_inst[k]);
        if (b->out_res[k]) text_add(t, ".%u", b->out_res[k]);
    }
    text_str(t, "\n}");
}

static void print_node(Text *t, const Graph *g, const uint32_t *num, const Node *n) {
    static const char *const phase[] = {"fwd", "bwd", "upd"};
    text_str(t, phase[n->phase]);
    for (uint32_t i = 0; i < n->nout; i++) {
        text_str(t, i ? ", " : " ");
        print_output(t, g, num, n->out[i]);
    }
    text_add(t, n->nout ? " = %s(" : " %s(", ir_op_name(n->op));
    for (uint32_t i = 0; i < n->nin; i++) {
        if (i) text_str(t, ", ");
        if (n->in[i] == NO_ID)
            text_char(t, '-');
        else
            text_add(t, "%%%u", num[n->in[i]]);
    }
    text_char(t, ')');
    print_attrs(t, n->attr, n->nattr);
    text_char(t, ' ');
    text_quote(t, n->name);
    if (n->onnx) {
        text_str(t, " onnx ");
        text_quote(t, n->onnx);
    }
    if (n->key) text_add(t, " key %u", n->key);
    if (n->body) print_body(t, n);
    text_char(t, '\n');
}

static bool is_source(const Value *v) {
    return v->def == NO_ID && v->role != ROLE_TEMP;
}

/* Numbers in the order of the text; values that nothing defines come last. */
static uint32_t *number_values(Arena *a, const Graph *g) {
    uint32_t *num = ARENA_ARRAY(a, uint32_t, g->nvalue), next = 0;
    for (ValueId v = 0; v < g->nvalue; v++)
        if (is_source(&g->value[v])) num[v] = next++;
    for (NodeId n = 0; n < g->nnode; n++)
        for (uint32_t i = 0; i < g->node[n].nout; i++)
            if (g->node[n].out[i] != NO_ID) num[g->node[n].out[i]] = next++;
    for (ValueId v = 0; v < g->nvalue; v++)
        if (g->value[v].def == NO_ID && g->value[v].role == ROLE_TEMP) num[v] = next++;
    return num;
}

void ir_print(Text *out, const Graph *g) {
    uint32_t *num = number_values(out->arena, g);
    text_str(out, "graph ");
    text_quote(out, g->file ? g->file : "");
    text_char(out, '\n');
    for (ValueId v = 0; v < g->nvalue; v++)
        if (is_source(&g->value[v])) print_source(out, g, num, v);
    for (NodeId n = 0; n < g->nnode; n++) print_node(out, g, num, &g->node[n]);
    if (g->noutput) {
        text_str(out, "output");
        for (uint32_t i = 0; i < g->noutput; i++)
            text_add(out, i ? ", %%%u" : " %%%u", num[g->output[i]]);
        text_char(out, '\n');
    }
    if (g->loss != NO_ID) text_add(out, "loss %%%u\n", num[g->loss]);
    if (g->logits != NO_ID) text_add(out, "logits %%%u\n", num[g->logits]);
    if (g->next_key) text_add(out, "keys %u\n", g->next_key);
}
