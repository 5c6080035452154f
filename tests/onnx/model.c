/* model.c - see model.h. Field numbers are those of onnx.proto. */
#include "model.h"

#include <string.h>

OnnxOptions test_options = {.batch = 2, .dropout = true, .need_weights = true};

static Arena *buffers; /* all Bufs, for the life of the process */

void put(Buf *b, const void *p, size_t n) {
    if (!buffers) buffers = arena_new();
    if (b->cap - b->n < n) {
        b->cap = 2 * (b->n + n) + 64;
        b->at = arena_grow(buffers, b->at, b->n, b->cap);
    }
    if (n) memcpy(b->at + b->n, p, n);
    b->n += n;
}

void put_varint(Buf *b, uint64_t v) {
    do {
        uint8_t byte = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
        put(b, &byte, 1);
    } while (v >>= 7);
}

void field_int(Buf *b, uint32_t field, int64_t v) {
    put_varint(b, field << 3);
    put_varint(b, (uint64_t)v);
}

void field_bytes(Buf *b, uint32_t field, const void *p, size_t n) {
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    put(b, p, n);
}

void field_str(Buf *b, uint32_t field, const char *s) {
    field_bytes(b, field, s, strlen(s));
}

void field_buf(Buf *b, uint32_t field, const Buf *child) {
    field_bytes(b, field, child->at, child->n);
}

/* ---- attributes ---- */

static void put_attr(Buf *b, Buf *a, int type) {
    field_int(a, 20, type);
    field_buf(b, 5, a);
}

static Buf named_attr(const char *name) {
    Buf a = {0};
    field_str(&a, 1, name);
    return a;
}

void attr_put_int(Buf *b, const char *name, int64_t v) {
    Buf a = named_attr(name);
    field_int(&a, 3, v);
    put_attr(b, &a, 2);
}

void attr_put_real(Buf *b, const char *name, float v) {
    Buf a = named_attr(name);
    put_varint(&a, 2 << 3 | 5);
    put(&a, &v, 4);
    put_attr(b, &a, 1);
}

void attr_put_text(Buf *b, const char *name, const char *v) {
    Buf a = named_attr(name);
    field_str(&a, 4, v);
    put_attr(b, &a, 3);
}

void attr_put_ints(Buf *b, const char *name, const char *list) {
    Buf a = named_attr(name);
    for (char *end; *list; list = *end ? end + 1 : end) field_int(&a, 8, strtoll(list, &end, 10));
    put_attr(b, &a, 7);
}

void attr_put_tensor(Buf *b, const char *name, const Buf *tensor) {
    Buf a = named_attr(name);
    field_buf(&a, 5, tensor);
    put_attr(b, &a, 4);
}

/* ---- tensors ---- */

static Buf tensor_head(const char *name, int elem, const char *dims, uint64_t *count) {
    Buf t = {0};
    *count = 1;
    for (char *end; *dims; dims = *end ? end + 1 : end) {
        int64_t d = strtoll(dims, &end, 10);
        field_int(&t, 1, d);
        *count *= (uint64_t)d;
    }
    field_int(&t, 2, elem);
    field_str(&t, 8, name);
    return t;
}

Buf tensor_raw(const char *name, int elem, const char *dims, const void *data, size_t bytes) {
    uint64_t count;
    Buf t = tensor_head(name, elem, dims, &count);
    field_bytes(&t, 9, data, bytes);
    return t;
}

Buf tensor_f32(const char *name, const char *dims, const float *v) {
    uint64_t count;
    Buf t = tensor_head(name, F32, dims, &count);
    field_bytes(&t, 9, v, count * sizeof *v);
    return t;
}

Buf tensor_i64(const char *name, const char *dims, const char *values) {
    uint64_t count;
    Buf t = tensor_head(name, I64, dims, &count), data = {0};
    for (char *end; *values; values = *end ? end + 1 : end) {
        int64_t v = strtoll(values, &end, 10);
        put(&data, &v, 8);
    }
    field_buf(&t, 9, &data);
    return t;
}

Buf tensor_zeros(const char *name, const char *dims) {
    uint64_t count;
    Buf t = tensor_head(name, F32, dims, &count);
    float zero[256] = {0};
    field_bytes(&t, 9, zero, count * sizeof *zero);
    return t;
}

/* ---- models ---- */

Model model_new(int64_t opset) {
    return (Model){.ir = 8, .opset = opset};
}

static void put_dim(Buf *shape, const char *text, size_t n) {
    Buf d = {0};
    char *end;
    int64_t v = strtoll(text, &end, 10);
    if (end == text + n)
        field_int(&d, 1, v);
    else if (!(n == 1 && *text == '?'))
        field_bytes(&d, 2, text, n);
    field_buf(shape, 1, &d);
}

static Buf value_info(const char *name, int elem, const char *dims) {
    Buf shape = {0}, tensor = {0}, type = {0}, v = {0};
    while (dims && *dims) {
        size_t n = strcspn(dims, ",");
        put_dim(&shape, dims, n);
        dims += n + (dims[n] == ',');
    }
    field_int(&tensor, 1, elem);
    field_buf(&tensor, 2, &shape);
    field_buf(&type, 1, &tensor);
    field_str(&v, 1, name);
    field_buf(&v, 2, &type);
    return v;
}

void model_input(Model *m, const char *name, int elem, const char *dims) {
    Buf v = value_info(name, elem, dims);
    field_buf(&m->graph, 11, &v);
}

void model_output(Model *m, const char *name) {
    Buf v = value_info(name, F32, NULL);
    field_buf(&m->graph, 12, &v);
}

void model_init(Model *m, Buf tensor) {
    field_buf(&m->graph, 5, &tensor);
}

static void put_names(Buf *b, uint32_t field, const char *list) {
    while (*list) {
        size_t n = strcspn(list, ",");
        field_bytes(b, field, list, n);
        list += n + (list[n] == ',');
    }
}

void model_node(Model *m, const char *op, const char *name, const char *in, const char *out,
                const Buf *attr) {
    Buf n = {0};
    put_names(&n, 1, in);
    put_names(&n, 2, out);
    field_str(&n, 3, name);
    field_str(&n, 4, op);
    if (attr) put(&n, attr->at, attr->n);
    field_buf(&m->graph, 1, &n);
}

void model_const(Model *m, const char *out, const char *dims, const char *values) {
    Buf attr = {0}, t = tensor_i64("", dims, values);
    attr_put_tensor(&attr, "value", &t);
    model_node(m, "Constant", out, "", out, &attr);
}

Buf model_bytes(const Model *m) {
    Buf b = {0}, opset = {0};
    field_int(&b, 1, m->ir);
    field_str(&opset, 1, "");
    field_int(&opset, 2, m->opset);
    field_buf(&b, 8, &opset);
    field_buf(&b, 7, &m->graph);
    return b;
}

/* ---- importing ---- */

Imported import_buf(Buf bytes) {
    Imported i = {.a = arena_new()};
    diag_init(&i.d, i.a, NULL);
    Span span = {bytes.at, bytes.n};
    i.g = import_bytes(i.a, &i.d, "test.onnx", NULL, span, &test_options, &i.info);
    if (i.g) CHECK(ir_verify(&i.d, i.g));
    return i;
}

/* The bytes stay: values point into them. */
Imported import_model(const Model *m) {
    return import_buf(model_bytes(m));
}

void imported_free(Imported *i) {
    arena_free(i->a);
}

static void add_attr(Text *t, const Attr *a) {
    text_add(t, " %s=", attr_name(a->key));
    for (uint32_t k = 0; k < a->n; k++)
        a->is_float ? text_add(t, k ? ",%g" : "%g", a->f[k])
                    : text_add(t, k ? ",%lld" : "%lld", (long long)a->i[k]);
}

const char *nodes_text(Imported *i) {
    Text t;
    text_init(&t, i->a);
    text_str(&t, i->g ? "" : i->d.log.at);
    for (NodeId n = 0; i->g && n < i->g->nnode; n++) {
        const Node *x = &i->g->node[n];
        text_add(&t, "%s(", ir_op_name(x->op));
        for (uint32_t k = 0; k < x->nin; k++)
            text_add(&t, k ? ",%s" : "%s", x->in[k] == NO_ID ? "" : i->g->value[x->in[k]].name);
        text_str(&t, ")");
        for (uint32_t k = 0; k < x->nattr; k++) add_attr(&t, &x->attr[k]);
        const Value *y = &i->g->value[x->out[0]];
        text_add(&t, " -> %s%s\n", y->name, shape_str(i->a, &y->shape));
    }
    return t.at;
}

bool says(const Imported *i, const char *part) {
    if (strstr(i->d.log.at, part)) return true;
    fprintf(stderr, "diagnostics lack \"%s\":\n%s", part, i->d.log.at);
    return false;
}

bool notes(const Imported *i, const char *part) {
    for (uint32_t k = 0; k < i->info.nnote; k++)
        if (strstr(i->info.note[k], part)) return true;
    return false;
}

ValueId value_named(const Graph *g, const char *name) {
    for (ValueId v = 0; v < g->nvalue; v++)
        if (!strcmp(g->value[v].name, name)) return v;
    return NO_ID;
}
