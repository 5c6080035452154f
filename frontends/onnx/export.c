/* export.c - the model's file again, with trained weights, in inference form. What comes out is a
 * list of pieces: bytes of the file as they are, and places where the elements of a value go. So a
 * training program can write the file without knowing the format, and all that dtrc does not
 * understand (documentation, metadata, types) stays as it was.
 *
 * Changed are: initializers that are weights or statistics of the graph (their elements become
 * raw_data); initializers in external files (they move into this one, which stands alone); private
 * copies that the import made of merged weights (repair.c: they become initializers, and the
 * Identity that stood for the copy goes); BatchNormalization and Dropout in training mode (they
 * lose the attribute, the outputs and the input that only training has). Sub-graphs keep their
 * form, and so does a normalization whose new statistics something reads.
 *
 * The file was checked by wire.c before. Format: Protocol Buffers encoding, schema onnx.proto. */
#include "import.h"

#include <string.h>

#define EXPORT_MAX INT32_MAX /* of a Protocol Buffers message */
#define DEPTH_MAX 64

/* Field numbers. */
enum {
    MODEL_GRAPH = 7,
    MODEL_FUNCTIONS = 25,
    FUNCTION_OUTPUT = 5,
    FUNCTION_NODE = 7,
    GRAPH_NODE = 1,
    GRAPH_INITIALIZER = 5,
    GRAPH_OUTPUT = 12,
    NODE_INPUT = 1,
    NODE_OUTPUT,
    NODE_NAME,
    NODE_OP,
    NODE_ATTRIBUTE,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_G = 6,
    VALUE_NAME = 1,
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9,
    TENSOR_LOCATION = 14
};

typedef VEC(OnnxPiece) Pieces;

typedef struct {
    Arena *a;
    const Graph *g;
    Map *value;     /* names of values whose elements may differ from the file's */
    Bits placed;    /* per value: the file has a place for it */
    Map *elem;      /* element types of initializers */
    Map *read;      /* names that something reads, or that the model gives */
    Sources src;    /* of external data */
    Diag quiet;     /* its messages were said when the model was imported */
    Pieces tensors; /* new initializers */
    const char *none;
} Export;

static bool none(Export *x, const char *why) {
    if (!x->none) x->none = why;
    return false;
}

/* ---- pieces ---- */

static void put(Export *x, Pieces *p, const void *at, uint64_t n) {
    OnnxPiece *last = p->n ? &p->at[p->n - 1] : NULL;
    if (last && last->value == NO_ID && (const uint8_t *)last->bytes + last->n == at) {
        last->n += n;
        return;
    }
    OnnxPiece piece = {at, n, NO_ID, ONNX_AS_IT_IS};
    if (n) VEC_PUSH(x->a, *p, piece);
}

static void put_field(Export *x, Pieces *p, const WireField *f) {
    put(x, p, f->tag, (uint64_t)(f->end - f->tag));
}

static uint64_t bytes_of(const Pieces *p) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) n += p->at[i].n;
    return n;
}

static uint32_t write_varint(uint8_t *to, uint64_t v) {
    uint32_t n = 0;
    for (; v >= 0x80; v >>= 7) to[n++] = (uint8_t)(v | 0x80);
    to[n++] = (uint8_t)v;
    return n;
}

/* The head of a field of n bytes, or, for WIRE_VARINT, of the number n. */
static void put_head(Export *x, Pieces *p, uint32_t number, uint32_t wire, uint64_t n) {
    uint8_t *to = arena_alloc(x->a, 20);
    uint32_t k = write_varint(to, number << 3 | wire);
    k += write_varint(to + k, n);
    put(x, p, to, k);
}

static void put_text(Export *x, Pieces *p, uint32_t number, const char *s) {
    put_head(x, p, number, WIRE_BYTES, strlen(s));
    put(x, p, s, strlen(s));
}

static void put_all(Export *x, Pieces *p, const Pieces *more) {
    for (uint32_t i = 0; i < more->n; i++) {
        if (more->at[i].value == NO_ID)
            put(x, p, more->at[i].bytes, more->at[i].n);
        else
            VEC_PUSH(x->a, *p, more->at[i]);
    }
}

static void put_message(Export *x, Pieces *p, uint32_t number, const Pieces *inner) {
    put_head(x, p, number, WIRE_BYTES, bytes_of(inner));
    put_all(x, p, inner);
}

/* ---- reading ---- */

static bool next(Export *x, const uint8_t **at, const uint8_t *end, WireField *f) {
    return *at < end && (!wire_field(at, end, f) || none(x, "the model's file is damaged"));
}

static char *text_of(Export *x, const WireField *f) {
    return arena_strn(x->a, (const char *)f->body, (size_t)(f->end - f->body));
}

/* The first field of that number as a text; "" where there is none. */
static const char *text_in(Export *x, const WireField *message, uint32_t number) {
    const uint8_t *at = message->body;
    for (WireField f; next(x, &at, message->end, &f);)
        if (f.number == number) return text_of(x, &f);
    return "";
}

static uint64_t number_in(Export *x, const WireField *message, uint32_t number) {
    uint64_t v = 0;
    const uint8_t *at = message->body;
    for (WireField f; next(x, &at, message->end, &f);)
        if (f.number == number && f.wire == WIRE_VARINT) v = f.varint;
    return v;
}

static void list_reads(Export *x, const WireField *graph, int depth);

static void list_node_reads(Export *x, const WireField *node, int depth) {
    const uint8_t *at = node->body;
    for (WireField f; next(x, &at, node->end, &f);) {
        if (f.number == NODE_INPUT) map_put(x->read, text_of(x, &f), 0);
        if (f.number != NODE_ATTRIBUTE || depth == DEPTH_MAX) continue;
        const uint8_t *in = f.body;
        for (WireField g; next(x, &in, f.end, &g);)
            if (g.number == ATTRIBUTE_G) list_reads(x, &g, depth + 1);
    }
}

/* What nodes read, those of sub-graphs too, and what the graph gives. */
static void list_reads(Export *x, const WireField *graph, int depth) {
    const uint8_t *at = graph->body;
    for (WireField f; next(x, &at, graph->end, &f);) {
        if (f.number == GRAPH_NODE) list_node_reads(x, &f, depth);
        if (f.number == GRAPH_OUTPUT) map_put(x->read, text_in(x, &f, VALUE_NAME), 0);
    }
}

/* ---- tensors ---- */

/* How a value's elements become those of an ONNX type; false: they cannot, and did not change. */
static bool elements(const Value *v, uint64_t elem, OnnxElements *as, uint64_t *size) {
    *as = ONNX_AS_IT_IS;
    *size = dtype_size(v->dtype);
    if (v->dtype == DT_F64) return elem == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE;
    if (v->dtype != DT_F32) return false;
    if (elem == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) return true;
    *as = elem == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16 ? ONNX_AS_F16 : ONNX_AS_BF16;
    *size = 2;
    return elem == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16 ||
           elem == ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16;
}

/* The value of that name that still needs a place; NO_ID: none. */
static ValueId wanted(const Export *x, const char *name) {
    ValueId v = map_get(x->value, name);
    return v == NO_ID || bits_get(x->placed, v) ? NO_ID : v;
}

/* raw_data with the elements of v as the ONNX type; false: not that type. */
static bool put_elements(Export *x, Pieces *p, ValueId v, uint64_t elem) {
    uint64_t size, count;
    OnnxPiece piece = {NULL, 0, v, ONNX_AS_IT_IS};
    if (!elements(&x->g->value[v], elem, &piece.as, &size)) return false;
    shape_count(&x->g->value[v].shape, &count);
    piece.n = count * size;
    put_head(x, p, TENSOR_RAW, WIRE_BYTES, piece.n);
    if (piece.n) VEC_PUSH(x->a, *p, piece);
    bits_set(x->placed, v);
    return true;
}

static bool is_elements_field(uint32_t number) {
    return (number >= 3 && number <= 7) ||
           (number >= TENSOR_RAW && number <= TENSOR_LOCATION && number != 12 /* doc_string */);
}

/* Everything of a tensor but its elements. */
static void put_description(Export *x, Pieces *p, const WireField *tensor) {
    const uint8_t *at = tensor->body;
    for (WireField f; next(x, &at, tensor->end, &f);)
        if (!is_elements_field(f.number)) put_field(x, p, &f);
}

/* raw_data with the bytes that lie in an external file. */
static bool put_external(Export *x, Pieces *p, const WireField *tensor) {
    TensorProto *t =
        onnx__tensor_proto__unpack(NULL, (size_t)(tensor->end - tensor->body), tensor->body);
    if (!t) return none(x, "the model's file is damaged");
    Span bytes = {NULL, 0};
    bool missing = false, ok = tensor_external(x->a, &x->quiet, &x->src, t, &bytes, &missing);
    onnx__tensor_proto__free_unpacked(t, NULL);
    if (!ok || missing) return none(x, "an external file of the model is not there");
    put_head(x, p, TENSOR_RAW, WIRE_BYTES, bytes.n);
    put(x, p, bytes.at, bytes.n);
    return true;
}

static void put_initializer(Export *x, Pieces *graph, const WireField *tensor) {
    Pieces p = {0};
    ValueId v = wanted(x, text_in(x, tensor, TENSOR_NAME));
    put_description(x, &p, tensor);
    bool changed = v != NO_ID && put_elements(x, &p, v, number_in(x, tensor, TENSOR_TYPE));
    if (!changed &&
        number_in(x, tensor, TENSOR_LOCATION) == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        changed = put_external(x, &p, tensor);
    if (changed)
        put_message(x, graph, GRAPH_INITIALIZER, &p);
    else
        put_field(x, graph, tensor);
}

/* A new initializer for a private copy of `of`. */
static bool add_copy(Export *x, ValueId v, const char *of) {
    const Value *val = &x->g->value[v];
    Pieces p = {0};
    uint32_t elem = map_get(x->elem, of);
    if (elem == NO_ID) return false;
    for (uint32_t i = 0; i < val->shape.rank; i++)
        put_head(x, &p, TENSOR_DIMS, WIRE_VARINT, (uint64_t)val->shape.dim[i]);
    put_head(x, &p, TENSOR_TYPE, WIRE_VARINT, elem);
    put_text(x, &p, TENSOR_NAME, val->name);
    TRY(put_elements(x, &p, v, elem));
    put_message(x, &x->tensors, GRAPH_INITIALIZER, &p);
    map_put(x->elem, val->name, elem); /* there may be a copy of the copy */
    return true;
}

/* ---- nodes ---- */

typedef struct {
    const char *op, *name;
    const char *in[5], *out[2]; /* the first ones */
    uint32_t nin, nout;
    bool more_read; /* somebody reads an output behind the first */
} NodeView;

static void view_node(Export *x, const WireField *node, uint32_t at_node, NodeView *v) {
    *v = (NodeView){.op = "", .name = ""};
    const uint8_t *at = node->body;
    for (WireField f; next(x, &at, node->end, &f);) {
        if (f.number == NODE_OP) v->op = text_of(x, &f);
        if (f.number == NODE_NAME) v->name = text_of(x, &f);
        if (f.number == NODE_INPUT && v->nin++ < 5) v->in[v->nin - 1] = text_of(x, &f);
        if (f.number == NODE_OUTPUT && v->nout++ < 2) v->out[v->nout - 1] = text_of(x, &f);
        if (f.number == NODE_OUTPUT && v->nout > 1)
            v->more_read |= map_get(x->read, text_of(x, &f)) != NO_ID;
    }
    if (!*v->name) v->name = arena_printf(x->a, "#%u", at_node);
}

/* What is in the place of input i, or NULL: the input itself. */
static const char *other_input(Export *x, const NodeView *v, uint32_t i) {
    if (strcmp(v->op, "BatchNormalization") != 0 || (i != 3 && i != 4) || !v->in[i]) return NULL;
    const char *name = arena_printf(x->a, "%s.%s", v->name, i == 3 ? "mean" : "var");
    ValueId copy = wanted(x, name);
    return copy != NO_ID && add_copy(x, copy, v->in[i]) ? name : NULL;
}

static bool is_training_field(Export *x, const NodeView *v, const WireField *f, uint32_t in,
                              uint32_t out) {
    if (!strcmp(v->op, "Dropout")) return f->number == NODE_INPUT && in == 2;
    if (strcmp(v->op, "BatchNormalization") != 0 || v->more_read) return false;
    if (f->number == NODE_OUTPUT) return out > 0;
    return f->number == NODE_ATTRIBUTE && !strcmp(text_in(x, f, ATTRIBUTE_NAME), "training_mode");
}

static void put_node(Export *x, Pieces *to, uint32_t number, const WireField *node, uint32_t n) {
    NodeView v;
    Pieces p = {0};
    view_node(x, node, n, &v);
    if (!strcmp(v.op, "Identity") && v.nin == 1 && v.nout == 1) {
        ValueId copy = wanted(x, v.out[0]);
        if (copy != NO_ID && add_copy(x, copy, v.in[0])) return;
    }
    if (strcmp(v.op, "BatchNormalization") != 0 && strcmp(v.op, "Dropout") != 0) {
        put_field(x, to, node);
        return;
    }
    uint32_t in = 0, out = 0;
    const uint8_t *at = node->body;
    for (WireField f; next(x, &at, node->end, &f);) {
        const char *other = f.number == NODE_INPUT ? other_input(x, &v, in) : NULL;
        if (other)
            put_text(x, &p, NODE_INPUT, other);
        else if (!is_training_field(x, &v, &f, in, out))
            put_field(x, &p, &f);
        in += f.number == NODE_INPUT;
        out += f.number == NODE_OUTPUT;
    }
    put_message(x, to, number, &p);
}

/* ---- the file ---- */

static void list_initializers(Export *x, const WireField *graph) {
    const uint8_t *at = graph->body;
    for (WireField f; next(x, &at, graph->end, &f);)
        if (f.number == GRAPH_INITIALIZER)
            map_put(x->elem, text_in(x, &f, TENSOR_NAME), (uint32_t)number_in(x, &f, TENSOR_TYPE));
}

static void put_function(Export *x, Pieces *to, const WireField *function) {
    Pieces p = {0};
    x->read = map_new(x->a); /* names of its own */
    const uint8_t *at = function->body;
    for (WireField f; next(x, &at, function->end, &f);) {
        if (f.number == FUNCTION_NODE) list_node_reads(x, &f, 0);
        if (f.number == FUNCTION_OUTPUT) map_put(x->read, text_of(x, &f), 0);
    }
    at = function->body;
    for (WireField f; next(x, &at, function->end, &f);) {
        if (f.number == FUNCTION_NODE)
            put_node(x, &p, FUNCTION_NODE, &f, NO_ID);
        else
            put_field(x, &p, &f);
    }
    put_message(x, to, MODEL_FUNCTIONS, &p);
}

/* Initializers first: a name that one of them has is no copy's. */
static void put_graph(Export *x, Pieces *to, const WireField *graph) {
    Pieces p = {0};
    uint32_t node = 0;
    x->read = map_new(x->a);
    list_initializers(x, graph);
    list_reads(x, graph, 0);
    const uint8_t *at = graph->body;
    for (WireField f; next(x, &at, graph->end, &f);)
        if (f.number == GRAPH_INITIALIZER) put_initializer(x, &x->tensors, &f);
    at = graph->body;
    for (WireField f; next(x, &at, graph->end, &f);) {
        if (f.number == GRAPH_NODE)
            put_node(x, &p, GRAPH_NODE, &f, node++);
        else if (f.number != GRAPH_INITIALIZER)
            put_field(x, &p, &f);
    }
    put_all(x, &p, &x->tensors);
    put_message(x, to, MODEL_GRAPH, &p);
}

static void list_values(Export *x) {
    for (ValueId v = 0; v < x->g->nvalue; v++) {
        Role r = x->g->value[v].role;
        if (r == ROLE_PARAM || r == ROLE_FROZEN || r == ROLE_BUFFER)
            map_put(x->value, x->g->value[v].name, v);
    }
}

/* Weights that changed, and those that dtrc made up because their file is missing. */
static bool all_placed(Export *x, const OnnxInfo *info) {
    for (ValueId v = 0; v < x->g->nvalue; v++) {
        const Value *val = &x->g->value[v];
        bool changes = val->role == ROLE_PARAM || val->role == ROLE_BUFFER ||
                       (val->role == ROLE_FROZEN && info->missing_bytes);
        if (changes && !bits_get(x->placed, v))
            return none(x, arena_printf(x->a, "the model's file has no place for '%s'",
                                        diag_name(x->a, val->name)));
    }
    return true;
}

void onnx_export(Arena *a, const char *path, const OnnxInfo *info, const Graph *g,
                 OnnxExport *out) {
    Export x = {.a = a,
                .g = g,
                .value = map_new(a),
                .placed = bits_new(a, g->nvalue),
                .elem = map_new(a),
                .src = {.file = path, .folder = import_folder(a, path)}};
    Pieces p = {0};
    diag_init(&x.quiet, a, NULL);
    list_values(&x);
    const uint8_t *at = info->bytes, *end = at + info->file_bytes;
    for (WireField f; next(&x, &at, end, &f);) {
        if (f.number == MODEL_GRAPH)
            put_graph(&x, &p, &f);
        else if (f.number == MODEL_FUNCTIONS)
            put_function(&x, &p, &f);
        else
            put_field(&x, &p, &f);
    }
    if (all_placed(&x, info) && bytes_of(&p) > EXPORT_MAX)
        none(&x, "the file would have more than 2 GiB, which the format does not allow");
    *out = (OnnxExport){.none = x.none};
    if (!x.none) *out = (OnnxExport){.n = p.n, .piece = p.at};
}
