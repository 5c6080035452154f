/* parse.c - text form to graph; the inverse of print.c (syntax in README.md). One pass, recursive
 * descent, one word ahead. The text may be hostile: counts and sizes are checked before anything is
 * made of them, and each fault is reported with its line. What the text says of shapes is taken as
 * said; whether operators agree is for op_check, whether the invariants hold for ir_verify. */
#include "lex.h"

#include <assert.h>
#include <string.h>

#define DATA_MAX ((uint64_t)1 << 28) /* bytes of initial data that a text may ask for in all */
#define TOTAL_MAX ((uint64_t)1 << 60)

typedef struct {
    int64_t number; /* of the text; -1: absent */
    DType dtype;
    Shape shape;
    const char *name;
    int64_t of; /* number of the parameter it belongs to, or -1 */
} Decl;

typedef struct {
    ValueId value;
    int64_t of;
    uint32_t line;
} Pending;

typedef struct {
    Lex l;
    Arena *arena;
    Graph *g;
    Map *ids;        /* number in the text -> ValueId */
    uint64_t total;  /* bytes of all storages */
    uint64_t data;   /* and of initial data */
    VEC(Pending) of; /* "of %n" may name a later value */
} Parser;

/* ---- values ------------------------------------------------------------------------------- */

static const char *number_key(Parser *p, int64_t n) {
    return arena_printf(p->arena, "%lld", (long long)n);
}

static bool parse_use(Parser *p, ValueId *out) {
    if (lex_is(&p->l, '-')) {
        *out = NO_ID;
        return lex_next(&p->l);
    }
    if (p->l.kind != TOK_VALUE) return lex_expected(&p->l, "a value such as %3");
    *out = map_get(p->ids, number_key(p, p->l.i));
    if (*out == NO_ID)
        return lex_error(&p->l, "value %%%lld is not defined before", (long long)p->l.i);
    return lex_next(&p->l);
}

static bool parse_dtype(Parser *p, DType *out) {
    for (DType d = 0; d < DT_COUNT; d++)
        if (lex_is_word(&p->l, dtype_name(d))) {
            *out = d;
            return lex_next(&p->l);
        }
    return lex_expected(&p->l, "a dtype (f32, f64, i64, i32, u8, bool)");
}

static bool parse_shape(Parser *p, Shape *s) {
    *s = (Shape){0};
    TRY(lex_need(&p->l, '['));
    for (bool more = !lex_is(&p->l, ']'); more;) {
        if (p->l.kind != TOK_INT || p->l.i < 0) return lex_expected(&p->l, "a size");
        if (s->rank == IR_MAX_RANK)
            return lex_error(&p->l, "expected at most %d axes", IR_MAX_RANK);
        s->dim[s->rank++] = p->l.i;
        TRY(lex_next(&p->l));
        TRY(lex_take(&p->l, ',', &more));
    }
    uint64_t count;
    if (!shape_count(s, &count))
        return lex_error(&p->l, "shape %s is too large", shape_str(p->arena, s));
    return lex_need(&p->l, ']');
}

/* f32[2,3] "name" [of %1] */
static bool parse_decl_rest(Parser *p, Decl *d) {
    TRY(parse_dtype(p, &d->dtype));
    TRY(parse_shape(p, &d->shape));
    TRY(lex_need_string(&p->l, &d->name));
    d->of = -1;
    if (!lex_is_word(&p->l, "of")) return true;
    TRY(lex_next(&p->l));
    if (p->l.kind != TOK_VALUE) return lex_expected(&p->l, "a value such as %3");
    d->of = p->l.i;
    return lex_next(&p->l);
}

static bool parse_number(Parser *p, Decl *d) {
    if (p->l.kind != TOK_VALUE) return lex_expected(&p->l, "a value such as %3");
    d->number = p->l.i;
    return lex_next(&p->l);
}

/* Enters a declared value into the graph; view_of != NO_ID: a view of that value. */
static bool add_value(Parser *p, const Decl *d, Role role, ValueId view_of, ValueId *out) {
    uint64_t count = 0, bytes = 0;
    bool fits = shape_count(&d->shape, &count);
    assert(fits);
    (void)fits;
    if (view_of != NO_ID) {
        const Value *of = &p->g->value[view_of];
        if (value_count(p->g, view_of) != count || of->dtype != d->dtype)
            return lex_error(&p->l,
                             "view %%%lld must have the dtype and element count of its input",
                             (long long)d->number);
        *out = ir_view(p->g, d->name, &d->shape, view_of);
    } else {
        bytes = count * dtype_size(d->dtype);
        *out = ir_value(p->g, d->name, d->dtype, &d->shape, role);
    }
    if (!checked_add(p->total, bytes, &p->total) || p->total > TOTAL_MAX)
        return lex_error(&p->l, "the values are too large together");
    if (!map_put(p->ids, number_key(p, d->number), *out))
        return lex_error(&p->l, "value %%%lld is defined twice", (long long)d->number);
    if (d->of >= 0) VEC_PUSH(p->arena, p->of, ((Pending){*out, d->of, p->l.line}));
    return true;
}

/* ---- initial data ------------------------------------------------------------------------- */

/* The current number as element i of dtype dt. */
static bool store_element(Parser *p, DType dt, void *bytes, uint64_t i) {
    Lex *l = &p->l;
    if (l->kind != TOK_INT && l->kind != TOK_FLOAT) return lex_expected(l, "a number");
    bool is_float = dt == DT_F32 || dt == DT_F64;
    int64_t most = dt == DT_BOOL ? 1 : dt == DT_U8 ? 255 : dt == DT_I32 ? INT32_MAX : INT64_MAX;
    int64_t least = dt == DT_I32 ? INT32_MIN : dt == DT_I64 ? INT64_MIN : 0;
    if (!is_float && (l->kind != TOK_INT || l->i < least || l->i > most))
        return lex_expected(l, arena_printf(p->arena, "a number of type %s", dtype_name(dt)));
    char *at = (char *)bytes + i * dtype_size(dt);
    float f = (float)l->f;
    int32_t i32 = (int32_t)l->i;
    unsigned char u8 = (unsigned char)l->i;
    switch (dt) {
    case DT_F32: memcpy(at, &f, sizeof f); break;
    case DT_F64: memcpy(at, &l->f, sizeof l->f); break;
    case DT_I32: memcpy(at, &i32, sizeof i32); break;
    case DT_I64: memcpy(at, &l->i, sizeof l->i); break;
    default: *at = (char)u8;
    }
    return lex_next(l);
}

static bool alloc_data(Parser *p, ValueId v, char **out) {
    uint64_t bytes = value_bytes(p->g, v);
    if (bytes > DATA_MAX - p->data)
        return lex_error(&p->l, "initial data of %llu bytes is too large for a text",
                         (unsigned long long)bytes);
    p->data += bytes;
    *out = arena_alloc(p->arena, (size_t)bytes);
    Data *data = ARENA_NEW(p->arena, Data);
    *data = (Data){.bytes = *out, .n = bytes};
    p->g->value[v].data = data;
    return true;
}

static bool parse_fill(Parser *p, ValueId v) {
    char one[8] = {0}, *bytes = NULL;
    size_t size = dtype_size(p->g->value[v].dtype);
    uint64_t n = value_count(p->g, v);
    TRY(lex_next(&p->l));
    TRY(lex_need(&p->l, '('));
    TRY(alloc_data(p, v, &bytes));
    TRY(store_element(p, p->g->value[v].dtype, one, 0));
    for (uint64_t i = 0; i < n; i++) memcpy(bytes + i * size, one, size);
    return lex_need(&p->l, ')');
}

static bool parse_data(Parser *p, ValueId v) {
    char *bytes = NULL;
    uint64_t n = value_count(p->g, v);
    TRY(lex_next(&p->l));
    TRY(lex_need(&p->l, '['));
    TRY(alloc_data(p, v, &bytes));
    for (uint64_t i = 0; i < n; i++) {
        if (i) TRY(lex_need(&p->l, ','));
        TRY(store_element(p, p->g->value[v].dtype, bytes, i));
    }
    return lex_need(&p->l, ']');
}

/* %3 param f32[2,3] "w" [of %1] [fill(x) | data[..]] */
static bool parse_source(Parser *p) {
    Decl d;
    ValueId v;
    TRY(parse_number(p, &d));
    Role role = ROLE_INPUT;
    while (role < ROLE_COUNT && !lex_is_word(&p->l, role_name(role))) role++;
    if (role == ROLE_COUNT)
        return lex_expected(&p->l, "a role (input, target, param, frozen, ...)");
    TRY(lex_next(&p->l));
    TRY(parse_decl_rest(p, &d));
    TRY(add_value(p, &d, role, NO_ID, &v));
    if (lex_is_word(&p->l, "fill")) return parse_fill(p, v);
    if (lex_is_word(&p->l, "data")) return parse_data(p, v);
    return true;
}

/* ---- attributes --------------------------------------------------------------------------- */

/* 1 or [1,2,3]; one float makes all of them floats. */
static bool parse_attr_value(Parser *p, AttrKey key, Attr *out) {
    VEC(int64_t) ints = {0};
    VEC(double) floats = {0};
    bool is_float = false, list, more = true;
    TRY(lex_take(&p->l, '[', &list));
    if (list && lex_is(&p->l, ']')) more = false;
    while (more) {
        if (p->l.kind != TOK_INT && p->l.kind != TOK_FLOAT) return lex_expected(&p->l, "a number");
        is_float = is_float || p->l.kind == TOK_FLOAT;
        VEC_PUSH(p->arena, ints, p->l.i);
        VEC_PUSH(p->arena, floats, p->l.f);
        TRY(lex_next(&p->l));
        more = false;
        if (list) TRY(lex_take(&p->l, ',', &more));
    }
    *out = (Attr){.key = key, .is_float = is_float, .n = ints.n};
    if (is_float)
        out->f = floats.at;
    else
        out->i = ints.at;
    return !list || lex_need(&p->l, ']');
}

/* [{key=value, ...}] */
static bool parse_attrs(Parser *p, const Attr **out, uint32_t *n) {
    VEC(Attr) attrs = {0};
    bool there, more;
    TRY(lex_take(&p->l, '{', &there));
    for (more = there; more;) {
        AttrKey key = p->l.kind == TOK_WORD ? attr_by_name(p->l.word) : A_COUNT;
        if (key == A_COUNT) return lex_expected(&p->l, "the name of an attribute");
        if (attr_find(attrs.at, attrs.n, key))
            return lex_error(&p->l, "attribute %s is given twice", attr_name(key));
        Attr a;
        TRY(lex_next(&p->l));
        TRY(lex_need(&p->l, '='));
        TRY(parse_attr_value(p, key, &a));
        VEC_PUSH(p->arena, attrs, a);
        TRY(lex_take(&p->l, ',', &more));
    }
    if (there) TRY(lex_need(&p->l, '}'));
    *out = attrs.at;
    *n = attrs.n;
    return true;
}

static bool parse_key(Parser *p, uint32_t *key) {
    *key = 0;
    if (!lex_is_word(&p->l, "key")) return true;
    TRY(lex_next(&p->l));
    return lex_need_u32(&p->l, UINT32_MAX - 1, key);
}

static bool parse_op(Parser *p, OpCode *op) {
    *op = p->l.kind == TOK_WORD ? ir_op_by_name(p->l.word) : OP_NONE;
    if (*op == OP_NONE) return lex_expected(&p->l, "an operator");
    return lex_next(&p->l);
}

/* ---- fused bodies ------------------------------------------------------------------------- */

/* "i12" or "a12", below limit. */
static bool parse_ref(Parser *p, char letter, uint32_t limit, uint32_t *out) {
    const char *w = p->l.kind == TOK_WORD ? p->l.word : "";
    uint64_t n = 0;
    bool good = w[0] == letter && w[1];
    for (const char *s = w + 1; good && *s; s++) {
        good = *s >= '0' && *s <= '9' && n < UINT32_MAX;
        n = n * 10 + (uint64_t)(*s - '0');
    }
    if (!good || n >= limit)
        return lex_expected(&p->l, arena_printf(p->arena, "one of %u operands %c0, %c1, ...", limit,
                                                letter, letter));
    *out = (uint32_t)n;
    return lex_next(&p->l);
}

/* i2 f32 = Mul(a0, i1) {..} key 3 "name" */
static bool parse_inst(Parser *p, uint32_t nin, uint32_t index, FusedInst *f) {
    VEC(uint32_t) args = {0};
    uint32_t self;
    *f = (FusedInst){0};
    TRY(parse_ref(p, 'i', index + 1, &self));
    if (self != index) return lex_error(&p->l, "expected instruction i%u, found i%u", index, self);
    TRY(parse_dtype(p, &f->dtype));
    TRY(lex_need(&p->l, '='));
    TRY(parse_op(p, &f->op));
    TRY(lex_need(&p->l, '('));
    for (bool more = !lex_is(&p->l, ')'); more;) {
        uint32_t arg;
        if (p->l.kind == TOK_WORD && p->l.word[0] == 'i') {
            TRY(parse_ref(p, 'i', index, &arg));
            arg += nin;
        } else {
            TRY(parse_ref(p, 'a', nin, &arg));
        }
        VEC_PUSH(p->arena, args, arg);
        TRY(lex_take(&p->l, ',', &more));
    }
    TRY(lex_need(&p->l, ')'));
    f->arg = args.at;
    f->narg = args.n;
    TRY(parse_attrs(p, &f->attr, &f->nattr));
    TRY(parse_key(p, &f->key));
    return p->l.kind != TOK_STRING || lex_need_string(&p->l, &f->name);
}

/* space [8,4] { i0 .. out i0, i1.1 } */
static bool parse_body(Parser *p, uint32_t nin, uint32_t nout, FusedBody **out) {
    VEC(FusedInst) insts = {0};
    FusedBody *b = ARENA_NEW(p->arena, FusedBody);
    if (!lex_is_word(&p->l, "space")) return lex_expected(&p->l, "'space' and a body");
    TRY(lex_next(&p->l));
    TRY(parse_shape(p, &b->space));
    TRY(lex_need(&p->l, '{'));
    while (!lex_is_word(&p->l, "out")) {
        FusedInst f;
        TRY(parse_inst(p, nin, insts.n, &f));
        VEC_PUSH(p->arena, insts, f);
    }
    TRY(lex_next(&p->l));
    b->inst = insts.at;
    b->ninst = insts.n;
    b->out_inst = ARENA_ARRAY(p->arena, uint32_t, nout);
    b->out_res = ARENA_ARRAY(p->arena, uint32_t, nout);
    for (uint32_t k = 0; k < nout; k++) {
        bool dot;
        if (k) TRY(lex_need(&p->l, ','));
        TRY(parse_ref(p, 'i', insts.n, &b->out_inst[k]));
        TRY(lex_take(&p->l, '.', &dot));
        if (dot) TRY(lex_need_u32(&p->l, 2, &b->out_res[k]));
    }
    *out = b;
    return lex_need(&p->l, '}');
}

/* ---- nodes -------------------------------------------------------------------------------- */

typedef struct {
    VEC(Decl) out;
    VEC(ValueId) in;
    OpCode op;
    Phase phase;
    const Attr *attr;
    uint32_t nattr, key;
    const char *name, *onnx;
} NodeText;

/* fwd [%3 f32[2] "y", - =] Op(%1, -) {..} "name" [onnx "Op"] [key 3] */
static bool parse_head(Parser *p, NodeText *n) {
    bool more = p->l.kind == TOK_VALUE || lex_is(&p->l, '-'), any = more;
    while (more) {
        Decl d = {.number = -1};
        if (lex_is(&p->l, '-')) {
            TRY(lex_next(&p->l));
        } else {
            TRY(parse_number(p, &d));
            TRY(parse_decl_rest(p, &d));
        }
        VEC_PUSH(p->arena, n->out, d);
        TRY(lex_take(&p->l, ',', &more));
    }
    if (any) TRY(lex_need(&p->l, '='));
    TRY(parse_op(p, &n->op));
    TRY(lex_need(&p->l, '('));
    for (more = !lex_is(&p->l, ')'); more;) {
        ValueId v;
        TRY(parse_use(p, &v));
        VEC_PUSH(p->arena, n->in, v);
        TRY(lex_take(&p->l, ',', &more));
    }
    TRY(lex_need(&p->l, ')'));
    TRY(parse_attrs(p, &n->attr, &n->nattr));
    TRY(lex_need_string(&p->l, &n->name));
    if (lex_is_word(&p->l, "onnx")) {
        TRY(lex_next(&p->l));
        TRY(lex_need_string(&p->l, &n->onnx));
    }
    return parse_key(p, &n->key);
}

static bool parse_node(Parser *p, Phase phase) {
    NodeText t = {.phase = phase};
    FusedBody *body = NULL;
    TRY(parse_head(p, &t));
    if (t.op == OP_Fused) TRY(parse_body(p, t.in.n, t.out.n, &body));
    ValueId view_of = NO_ID;
    if (ir_op_class(t.op) == CLS_VIEW) {
        if (t.in.n < 1 || t.in.at[0] == NO_ID)
            return lex_error(&p->l, "%s needs an input, found none", ir_op_name(t.op));
        view_of = t.in.at[0];
    }
    NodeId id = ir_node(p->g, t.op, phase, t.name, t.in.n, t.out.n);
    ir_attr_copy(p->g, id, t.attr, t.nattr);
    for (uint32_t i = 0; i < t.in.n; i++) p->g->node[id].in[i] = t.in.at[i];
    for (uint32_t i = 0; i < t.out.n; i++) {
        ValueId v;
        if (t.out.at[i].number < 0) continue;
        TRY(add_value(p, &t.out.at[i], ROLE_TEMP, view_of, &v));
        p->g->value[v].def = id;
        p->g->node[id].out[i] = v;
    }
    p->g->node[id].onnx = t.onnx;
    p->g->node[id].key = t.key;
    p->g->node[id].body = body;
    return true;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static bool parse_output(Parser *p) {
    VEC(ValueId) out = {0};
    for (bool more = true; more;) {
        ValueId v;
        TRY(parse_use(p, &v));
        if (v == NO_ID) return lex_error(&p->l, "an output must be a value");
        VEC_PUSH(p->arena, out, v);
        TRY(lex_take(&p->l, ',', &more));
    }
    p->g->output = out.at;
    p->g->noutput = out.n;
    return true;
}

static bool parse_line(Parser *p) {
    static const char *const phase[] = {"fwd", "bwd", "upd"};
    if (p->l.kind == TOK_VALUE) return parse_source(p);
    const char *word = p->l.kind == TOK_WORD ? p->l.word : "";
    for (Phase ph = PHASE_FORWARD; ph <= PHASE_UPDATE; ph++)
        if (!strcmp(word, phase[ph])) return lex_next(&p->l) && parse_node(p, ph);
    if (!strcmp(word, "output")) return lex_next(&p->l) && parse_output(p);
    if (!strcmp(word, "loss")) return lex_next(&p->l) && parse_use(p, &p->g->loss);
    if (!strcmp(word, "logits")) return lex_next(&p->l) && parse_use(p, &p->g->logits);
    if (!strcmp(word, "keys"))
        return lex_next(&p->l) && lex_need_u32(&p->l, UINT32_MAX - 1, &p->g->next_key);
    return lex_expected(&p->l, "a value, fwd, bwd, upd, output, loss, logits or keys");
}

static bool resolve_params(Parser *p) {
    for (uint32_t i = 0; i < p->of.n; i++) {
        ValueId param = map_get(p->ids, number_key(p, p->of.at[i].of));
        p->l.line = p->of.at[i].line;
        if (param == NO_ID)
            return lex_error(&p->l, "value %%%lld is not defined", (long long)p->of.at[i].of);
        p->g->value[p->of.at[i].value].param = param;
    }
    return true;
}

static bool parse_all(Parser *p, Diag *d, const char *file, const char *text) {
    const char *name;
    TRY(lex_init(&p->l, p->arena, d, file, text));
    if (!lex_is_word(&p->l, "graph")) return lex_expected(&p->l, "'graph'");
    TRY(lex_next(&p->l));
    TRY(lex_need_string(&p->l, &name));
    p->g->file = *name ? name : NULL;
    while (p->l.kind != TOK_END) TRY(parse_line(p));
    return resolve_params(p);
}

Graph *ir_parse(Arena *a, Diag *d, const char *file, const char *text) {
    Parser p = {.arena = a, .g = ir_new(a, NULL), .ids = map_new(a)};
    return parse_all(&p, d, file, text) ? p.g : NULL;
}
