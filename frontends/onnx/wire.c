/* wire.c - protects and lightens the unpacking of a model. protobuf-c recurses without a limit,
 * spends a hundred times the bytes of an empty message, and copies every weight. So the wire format
 * is walked first, with limits on depth, messages and fields; on the way a shorter ModelProto is
 * written that holds only what the importer reads. raw_data is left out of it: a tensor's field
 * holds the number of a payload instead, and the payload's place in the file is noted, so that
 * weights stay where they are.
 *
 * In:  the bytes of a ModelProto, of any size. Out: Wire.
 * Format: Protocol Buffers encoding (varints, length-delimited fields), schema onnx.proto. Lengths
 * in the copy are padded to five bytes, so that they can be filled in after the contents. */
#include "import.h"

#include <string.h>

#define MAX_DEPTH 64
#define MAX_NODES (1u << 18)
#define MAX_MESSAGES (1u << 22)
#define MAX_FIELDS (1u << 24)

typedef enum {
    MSG_MODEL,
    MSG_OPSET,
    MSG_FUNCTION,
    MSG_GRAPH,
    MSG_NODE,
    MSG_ATTRIBUTE,
    MSG_TENSOR,
    MSG_SPARSE,
    MSG_VALUE,
    MSG_TYPE,
    MSG_TENSOR_TYPE,
    MSG_SHAPE,
    MSG_DIM,
    MSG_PAIR,
    MSG_TRAINING,
    MSG_COUNT
} MsgKind;

typedef enum {
    DROP,   /* left out */
    KEEP,   /* copied as it is */
    TEXT,   /* a string, copied; a zero byte would cut it short */
    ENTER,  /* a message, walked and copied */
    CHECK,  /* a message, walked but left out */
    PAYLOAD /* bytes replaced by their number */
} Action;

typedef struct {
    uint8_t action;
    uint8_t child; /* MsgKind of ENTER and CHECK */
    bool once;     /* protobuf would merge a second one; no writer makes that */
} Rule;

/* By message and field number. */
static const Rule rules[MSG_COUNT][32] = {
    [MSG_MODEL][1] = {KEEP, 0, false},                  /* ir_version */
    [MSG_MODEL][2] = {TEXT, 0, false},                  /* producer_name */
    [MSG_MODEL][3] = {TEXT, 0, false},                  /* producer_version */
    [MSG_MODEL][7] = {ENTER, MSG_GRAPH, true},          /* graph */
    [MSG_MODEL][8] = {ENTER, MSG_OPSET, false},         /* opset_import */
    [MSG_MODEL][20] = {CHECK, MSG_TRAINING, false},     /* training_info */
    [MSG_MODEL][25] = {ENTER, MSG_FUNCTION, false},     /* functions */
    [MSG_OPSET][1] = {TEXT, 0, false},                  /* domain */
    [MSG_OPSET][2] = {KEEP, 0, false},                  /* version */
    [MSG_FUNCTION][1] = {TEXT, 0, false},               /* name */
    [MSG_FUNCTION][4] = {TEXT, 0, false},               /* input */
    [MSG_FUNCTION][5] = {TEXT, 0, false},               /* output */
    [MSG_FUNCTION][6] = {TEXT, 0, false},               /* attribute */
    [MSG_FUNCTION][7] = {ENTER, MSG_NODE, false},       /* node */
    [MSG_FUNCTION][10] = {TEXT, 0, false},              /* domain */
    [MSG_FUNCTION][11] = {ENTER, MSG_ATTRIBUTE, false}, /* attribute_proto */
    [MSG_TRAINING][1] = {CHECK, MSG_GRAPH, false},      /* initialization */
    [MSG_TRAINING][2] = {CHECK, MSG_GRAPH, false},      /* algorithm */
    [MSG_GRAPH][1] = {ENTER, MSG_NODE, false},          /* node */
    [MSG_GRAPH][2] = {TEXT, 0, false},                  /* name */
    [MSG_GRAPH][5] = {ENTER, MSG_TENSOR, false},        /* initializer */
    [MSG_GRAPH][11] = {ENTER, MSG_VALUE, false},        /* input */
    [MSG_GRAPH][12] = {ENTER, MSG_VALUE, false},        /* output */
    [MSG_GRAPH][15] = {CHECK, MSG_SPARSE, false},       /* sparse_initializer */
    [MSG_NODE][1] = {TEXT, 0, false},                   /* input */
    [MSG_NODE][2] = {TEXT, 0, false},                   /* output */
    [MSG_NODE][3] = {TEXT, 0, false},                   /* name */
    [MSG_NODE][4] = {TEXT, 0, false},                   /* op_type */
    [MSG_NODE][5] = {ENTER, MSG_ATTRIBUTE, false},      /* attribute */
    [MSG_NODE][7] = {TEXT, 0, false},                   /* domain */
    [MSG_ATTRIBUTE][1] = {TEXT, 0, false},              /* name */
    [MSG_ATTRIBUTE][2] = {KEEP, 0, false},              /* f */
    [MSG_ATTRIBUTE][3] = {KEEP, 0, false},              /* i */
    [MSG_ATTRIBUTE][4] = {KEEP, 0, false},              /* s */
    [MSG_ATTRIBUTE][5] = {ENTER, MSG_TENSOR, true},     /* t */
    [MSG_ATTRIBUTE][6] = {ENTER, MSG_GRAPH, true},      /* g */
    [MSG_ATTRIBUTE][7] = {KEEP, 0, false},              /* floats */
    [MSG_ATTRIBUTE][8] = {KEEP, 0, false},              /* ints */
    [MSG_ATTRIBUTE][9] = {KEEP, 0, false},              /* strings */
    [MSG_ATTRIBUTE][10] = {CHECK, MSG_TENSOR, false},   /* tensors */
    [MSG_ATTRIBUTE][11] = {CHECK, MSG_GRAPH, false},    /* graphs */
    [MSG_ATTRIBUTE][14] = {CHECK, MSG_TYPE, true},      /* tp */
    [MSG_ATTRIBUTE][15] = {CHECK, MSG_TYPE, false},     /* type_protos */
    [MSG_ATTRIBUTE][20] = {KEEP, 0, false},             /* type */
    [MSG_ATTRIBUTE][21] = {TEXT, 0, false},             /* ref_attr_name */
    [MSG_ATTRIBUTE][22] = {CHECK, MSG_SPARSE, true},    /* sparse_tensor */
    [MSG_ATTRIBUTE][23] = {CHECK, MSG_SPARSE, false},   /* sparse_tensors */
    [MSG_TENSOR][1] = {KEEP, 0, false},                 /* dims */
    [MSG_TENSOR][2] = {KEEP, 0, false},                 /* data_type */
    [MSG_TENSOR][3] = {KEEP, 0, true},                  /* segment */
    [MSG_TENSOR][4] = {KEEP, 0, false},                 /* float_data */
    [MSG_TENSOR][5] = {KEEP, 0, false},                 /* int32_data */
    [MSG_TENSOR][7] = {KEEP, 0, false},                 /* int64_data */
    [MSG_TENSOR][8] = {TEXT, 0, false},                 /* name */
    [MSG_TENSOR][9] = {PAYLOAD, 0, true},               /* raw_data */
    [MSG_TENSOR][10] = {KEEP, 0, false},                /* double_data */
    [MSG_TENSOR][11] = {KEEP, 0, false},                /* uint64_data */
    [MSG_TENSOR][13] = {ENTER, MSG_PAIR, false},        /* external_data */
    [MSG_TENSOR][14] = {KEEP, 0, false},                /* data_location */
    [MSG_SPARSE][1] = {CHECK, MSG_TENSOR, true},        /* values */
    [MSG_SPARSE][2] = {CHECK, MSG_TENSOR, true},        /* indices */
    [MSG_VALUE][1] = {TEXT, 0, false},                  /* name */
    [MSG_VALUE][2] = {ENTER, MSG_TYPE, true},           /* type */
    [MSG_TYPE][1] = {ENTER, MSG_TENSOR_TYPE, true},     /* tensor_type */
    [MSG_TENSOR_TYPE][1] = {KEEP, 0, false},            /* elem_type */
    [MSG_TENSOR_TYPE][2] = {ENTER, MSG_SHAPE, true},    /* shape */
    [MSG_SHAPE][1] = {ENTER, MSG_DIM, false},           /* dim */
    [MSG_DIM][1] = {KEEP, 0, false},                    /* dim_value */
    [MSG_DIM][2] = {TEXT, 0, false},                    /* dim_param */
    [MSG_PAIR][1] = {TEXT, 0, false},                   /* key */
    [MSG_PAIR][2] = {TEXT, 0, false},                   /* value */
};

typedef struct {
    Arena *a;
    Diag *d;
    const char *file;
    const uint8_t *base; /* of the file */
    uint8_t *out;
    size_t n, cap;
    VEC(Span) payload;
    uint32_t nodes, messages, fields, nsparse;
} Walk;

static bool bad(const Walk *w, const uint8_t *at, const char *what) {
    return diag_error(w->d, (Place){.file = w->file}, "not a valid ONNX model: %s at byte %llu",
                      what, (unsigned long long)(at - w->base));
}

static bool over_limit(const Walk *w, const char *what, uint64_t limit) {
    return diag_error(w->d, (Place){.file = w->file}, "the model has more than %llu %s",
                      (unsigned long long)limit, what);
}

static void write_bytes(Walk *w, const void *p, size_t n) {
    if (w->cap - w->n < n) {
        size_t cap = w->cap * 2 > w->n + n ? w->cap * 2 : w->n + n;
        w->out = arena_grow(w->a, w->out, w->n, cap);
        w->cap = cap;
    }
    if (n) memcpy(w->out + w->n, p, n);
    w->n += n;
}

/* The length of a message that starts behind its five length bytes at `at`. */
static bool patch_length(Walk *w, size_t at) {
    uint64_t n = w->n - at - 5;
    if (n > INT32_MAX)
        return diag_error(w->d, (Place){.file = w->file},
                          "the model's structure takes more than 2 GiB without raw_data; re-save "
                          "with external data");
    for (int i = 0; i < 5; i++)
        w->out[at + (size_t)i] = (uint8_t)((n >> (7 * i) & 0x7F) | (i < 4 ? 0x80 : 0));
    return true;
}

static const char *read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out) {
    uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (*at == end) return "a number is cut off";
        uint8_t b = *(*at)++;
        v |= (uint64_t)(b & 0x7F) << (shift < 63 ? shift : 63);
        if (!(b & 0x80)) {
            *out = v;
            return NULL;
        }
    }
    return "a number of more than ten bytes";
}

const char *wire_field(const uint8_t **at, const uint8_t *end, WireField *f) {
    uint64_t tag = 0, n = 0;
    f->tag = *at;
    const char *fault = read_varint(at, end, &tag);
    if (fault) return fault;
    f->number = (uint32_t)(tag >> 3);
    f->wire = tag & 7;
    if (tag >> 3 == 0 || tag >> 3 > (1u << 29) - 1) return "an impossible field number";
    f->body = *at;
    switch (f->wire) {
    case WIRE_VARINT: fault = read_varint(at, end, &f->varint); break;
    case WIRE_FIXED64: n = 8; break;
    case WIRE_FIXED32: n = 4; break;
    case WIRE_BYTES:
        fault = read_varint(at, end, &n);
        f->body = *at;
        break;
    default: return "an unknown wire type";
    }
    if (fault) return fault;
    if (n > (uint64_t)(end - *at)) return "a field reaches past the end";
    *at += n;
    f->end = *at;
    return NULL;
}

static bool read_field(Walk *w, const uint8_t **at, const uint8_t *end, WireField *f) {
    const uint8_t *start = *at;
    const char *fault = wire_field(at, end, f);
    if (fault) return bad(w, start, fault);
    if (++w->fields > MAX_FIELDS) return over_limit(w, "fields", MAX_FIELDS);
    return true;
}

static bool count_message(Walk *w, MsgKind kind, uint32_t depth) {
    if (depth > MAX_DEPTH)
        return diag_error(w->d, (Place){.file = w->file},
                          "messages are nested more than %d deep; no model needs that", MAX_DEPTH);
    if (++w->messages > MAX_MESSAGES) return over_limit(w, "messages", MAX_MESSAGES);
    if (kind == MSG_NODE && ++w->nodes > MAX_NODES) return over_limit(w, "nodes", MAX_NODES);
    if (kind == MSG_SPARSE) w->nsparse++;
    return true;
}

static void write_payload(Walk *w, const WireField *f) {
    uint32_t i = w->payload.n;
    Span s = {f->body, (uint64_t)(f->end - f->body)};
    VEC_PUSH(w->a, w->payload, s);
    const uint8_t field[6] = {
        (9 << 3) | WIRE_BYTES, 4, (uint8_t)i, (uint8_t)(i >> 8), (uint8_t)(i >> 16),
        (uint8_t)(i >> 24)};
    write_bytes(w, field, sizeof field);
}

static bool walk_message(Walk *w, MsgKind kind, uint32_t depth, const uint8_t *at,
                         const uint8_t *end, bool copy) {
    TRY(count_message(w, kind, depth));
    uint32_t seen = 0;
    bool has_op = false;
    while (at < end) {
        WireField f;
        TRY(read_field(w, &at, end, &f));
        if (f.number >= 32 || rules[kind][f.number].action == DROP) continue;
        const Rule *r = &rules[kind][f.number];
        if (r->once && seen >> f.number & 1) return bad(w, f.tag, "a single field occurs twice");
        if (r->once) seen |= 1u << f.number;
        if (r->action != KEEP && f.wire != WIRE_BYTES)
            return bad(w, f.tag, "a field of the wrong type");
        has_op |= kind == MSG_NODE && f.number == 4 && f.body < f.end;
        bool inner = copy && r->action == ENTER;
        size_t length_at = 0;
        if (inner) {
            uint8_t tag[2] = {(uint8_t)(f.number << 3 | WIRE_BYTES), 0};
            if (f.number >= 16) tag[0] |= 0x80, tag[1] = (uint8_t)(f.number >> 4);
            write_bytes(w, tag, f.number >= 16 ? 2 : 1);
            length_at = w->n;
            write_bytes(w, "\0\0\0\0", 5);
        }
        if (r->action == ENTER || r->action == CHECK)
            TRY(walk_message(w, r->child, depth + 1, f.body, f.end, inner));
        if (inner) TRY(patch_length(w, length_at));
        if (r->action == TEXT && memchr(f.body, 0, (size_t)(f.end - f.body)))
            return bad(w, f.body, "a zero byte in a name");
        if (copy && (r->action == KEEP || r->action == TEXT))
            write_bytes(w, f.tag, (size_t)(f.end - f.tag));
        if (copy && r->action == PAYLOAD) write_payload(w, &f);
    }
    if (kind == MSG_NODE && !has_op) return bad(w, end, "a node without an operator");
    return true;
}

bool wire_shrink(Arena *a, Diag *d, const char *file, Span model, Wire *out) {
    Walk w = {.a = a, .d = d, .file = file, .base = model.at};
    w.cap = 4096;
    w.out = arena_alloc(a, w.cap);
    TRY(walk_message(&w, MSG_MODEL, 1, model.at, model.at + model.n, true));
    *out = (Wire){.message = {w.out, w.n},
                  .payload = w.payload.at,
                  .npayload = w.payload.n,
                  .nsparse = w.nsparse};
    return true;
}
