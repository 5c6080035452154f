/* digest.c - a number that tells one graph from another: operators, operands, attributes, shapes,
 * roles, names and phases; not the file's path and not the values of weights. A profile says with
 * it which graph was measured. FNV-1a (Fowler, Noll, Vo; 64 bits): against mix-ups, not malice. */
#include "ir.h"

#include <string.h>

static void add(uint64_t *h, const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) *h = (*h ^ b[i]) * UINT64_C(0x100000001B3);
}

static void add_u64(uint64_t *h, uint64_t x) {
    unsigned char b[8];
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)(x >> 8 * i);
    add(h, b, sizeof b);
}

static void add_str(uint64_t *h, const char *s) {
    add(h, s, strlen(s) + 1);
}

static void add_ids(uint64_t *h, const uint32_t *id, uint32_t n) {
    add_u64(h, n);
    for (uint32_t i = 0; i < n; i++) add_u64(h, id[i]);
}

static void add_shape(uint64_t *h, const Shape *s) {
    add_u64(h, s->rank);
    for (uint32_t i = 0; i < s->rank; i++) add_u64(h, (uint64_t)s->dim[i]);
}

static void add_attrs(uint64_t *h, const Attr *attr, uint32_t n) {
    add_u64(h, n);
    for (uint32_t i = 0; i < n; i++) {
        add_str(h, attr_name(attr[i].key));
        add_u64(h, attr[i].n);
        for (uint32_t k = 0; k < attr[i].n; k++) {
            uint64_t bits = attr[i].is_float ? 0 : (uint64_t)attr[i].i[k];
            if (attr[i].is_float) memcpy(&bits, &attr[i].f[k], sizeof bits);
            add_u64(h, bits);
        }
    }
}

static void add_body(uint64_t *h, const FusedBody *b, uint32_t nout) {
    add_shape(h, &b->space);
    for (uint32_t i = 0; i < b->ninst; i++) {
        add_str(h, ir_op_name(b->inst[i].op));
        add_attrs(h, b->inst[i].attr, b->inst[i].nattr);
        add_ids(h, b->inst[i].arg, b->inst[i].narg);
    }
    add_ids(h, b->out_inst, nout);
    add_ids(h, b->out_res, nout);
}

uint64_t ir_digest(const Graph *g) {
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (ValueId v = 0; v < g->nvalue; v++) {
        const Value *x = &g->value[v];
        add_str(&h, x->name);
        add_str(&h, dtype_name(x->dtype));
        add_str(&h, role_name(x->role));
        add_shape(&h, &x->shape);
        add_u64(&h, x->storage);
    }
    for (NodeId n = 0; n < g->nnode; n++) {
        const Node *x = &g->node[n];
        add_str(&h, ir_op_name(x->op));
        add_str(&h, x->name);
        add_u64(&h, x->phase);
        add_ids(&h, x->in, x->nin);
        add_ids(&h, x->out, x->nout);
        add_attrs(&h, x->attr, x->nattr);
        if (x->body) add_body(&h, x->body, x->nout);
    }
    add_ids(&h, g->output, g->noutput);
    return h;
}
