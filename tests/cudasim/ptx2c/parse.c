/* parse.c - the outer level of a PTX module: variables with their first values, functions and
 * kernels with parameters and launch bounds. Bodies: body.c. */
#include "ptx.h"

#include <string.h>

const PtxTypeInfo ptx_types[TY_COUNT] = {
    [TY_NONE] = {"", 0, 0, "", ""},
    [TY_PRED] = {"pred", 1, 'p', "bool", "bool"},
    [TY_B8] = {"b8", 8, 'b', "uint8_t", "uint8_t"},
    [TY_U8] = {"u8", 8, 'u', "uint8_t", "uint8_t"},
    [TY_S8] = {"s8", 8, 's', "int8_t", "uint8_t"},
    [TY_B16] = {"b16", 16, 'b', "uint16_t", "uint16_t"},
    [TY_U16] = {"u16", 16, 'u', "uint16_t", "uint16_t"},
    [TY_S16] = {"s16", 16, 's', "int16_t", "uint16_t"},
    [TY_F16] = {"f16", 16, 'h', "uint16_t", "uint16_t"},
    [TY_BF16] = {"bf16", 16, 'h', "uint16_t", "uint16_t"},
    [TY_B32] = {"b32", 32, 'b', "uint32_t", "uint32_t"},
    [TY_U32] = {"u32", 32, 'u', "uint32_t", "uint32_t"},
    [TY_S32] = {"s32", 32, 's', "int32_t", "uint32_t"},
    [TY_F32] = {"f32", 32, 'f', "float", "uint32_t"},
    [TY_F16X2] = {"f16x2", 32, 'h', "uint32_t", "uint32_t"},
    [TY_BF16X2] = {"bf16x2", 32, 'h', "uint32_t", "uint32_t"},
    [TY_B64] = {"b64", 64, 'b', "uint64_t", "uint64_t"},
    [TY_U64] = {"u64", 64, 'u', "uint64_t", "uint64_t"},
    [TY_S64] = {"s64", 64, 's', "int64_t", "uint64_t"},
    [TY_F64] = {"f64", 64, 'f', "double", "uint64_t"},
};

PtxType ptx_type_named(const char *name) {
    for (int t = TY_PRED; t < TY_COUNT; t++)
        if (!strcmp(ptx_types[t].name, name)) return (PtxType)t;
    return TY_NONE;
}

static PtxSpace space_named(const char *directive) {
    static const char *const names[] = {[SP_PARAM] = ".param",
                                        [SP_GLOBAL] = ".global",
                                        [SP_CONST] = ".const",
                                        [SP_SHARED] = ".shared",
                                        [SP_LOCAL] = ".local"};
    for (int s = SP_PARAM; s <= SP_LOCAL; s++)
        if (!strcmp(directive, names[s])) return (PtxSpace)s;
    return SP_NONE;
}

/* = {8, 93, 0f3F800000, ...} or = 5: elements of the variable's type, the rest zero. */
static bool parse_initial(Lexer *l, Variable *v) {
    uint32_t size = ptx_types[v->type].bits / 8;
    uint8_t *bytes = ARENA_ARRAY(l->m->arena, uint8_t, v->bytes);
    bool list = lex_skip(l, '{');
    for (uint64_t at = 0;; at += size) {
        if (l->token.kind != TOK_NUMBER)
            return ptx_fail(l->m, l->token.line, "%s: only numbers are known as first values",
                            v->name);
        if (at + size > v->bytes)
            return ptx_fail(l->m, l->token.line, "%s: more first values than elements", v->name);
        for (uint32_t b = 0; b < size; b++) bytes[at + b] = (uint8_t)(l->token.bits >> 8 * b);
        lex_next(l);
        if (!list || !lex_skip(l, ',')) break;
    }
    v->init = bytes;
    return !list || lex_expect(l, '}');
}

/* After the space: [.align N] .TYPE [.ptr [.SPACE] [.align N]] NAME ["[" [N] "]"]... [= VALUES] */
bool parse_variable(Lexer *l, PtxSpace space, uint32_t scope, Variable *v) {
    *v = (Variable){.space = space, .scope = scope};
    const char *word;
    while (l->token.kind == TOK_WORD && l->token.text[0] == '.') {
        TRY(lex_word(l, &word));
        uint64_t n;
        PtxType type = ptx_type_named(word + 1);
        if (type) {
            v->type = type;
        } else if (!strcmp(word, ".align")) {
            TRY(lex_number(l, &n));
            if (!v->align) v->align = (uint32_t)n;
        } else if (!strcmp(word, ".ptr")) {
            v->align = 8; /* a pointer: what follows is about what it points to */
        } else if (strcmp(word, ".global") && strcmp(word, ".shared") && strcmp(word, ".const") &&
                   strcmp(word, ".local")) {
            return ptx_fail(l->m, l->token.line, "unknown attribute %s of a variable", word);
        }
    }
    TRY(lex_word(l, &v->name));
    if (!v->type) return ptx_fail(l->m, l->token.line, "%s has no type", v->name);
    v->bytes = ptx_types[v->type].bits / 8;
    if (!v->align) v->align = (uint32_t)v->bytes;
    while (lex_skip(l, '[')) {
        uint64_t n = 0;
        if (!lex_is(l, ']')) TRY(lex_number(l, &n));
        TRY(lex_expect(l, ']'));
        if (!checked_mul(v->bytes, n, &v->bytes) || v->bytes > UINT32_MAX)
            return ptx_fail(l->m, l->token.line, "%s is too large", v->name);
    }
    return !lex_skip(l, '=') || parse_initial(l, v);
}

/* (.param .u64 a, .param .b32 b) */
static bool parse_params(Lexer *l, Variables *out) {
    TRY(lex_expect(l, '('));
    while (!lex_is(l, ')')) {
        Variable v;
        if (!lex_is_word(l, ".param")) return ptx_fail(l->m, l->token.line, "expected a .param");
        lex_next(l);
        TRY(parse_variable(l, SP_PARAM, 0, &v));
        VEC_PUSH(l->m->arena, *out, v);
        if (!lex_skip(l, ',')) break;
    }
    return lex_expect(l, ')');
}

/* .maxntid 256, 1, 1 and its kin, between the parameters and the body. */
static bool parse_bounds(Lexer *l, Function *f) {
    while (l->token.kind == TOK_WORD && l->token.text[0] == '.') {
        const char *word;
        TRY(lex_word(l, &word));
        bool threads = !strcmp(word, ".maxntid") || !strcmp(word, ".reqntid");
        if (!threads && strcmp(word, ".minnctapersm") && strcmp(word, ".maxnreg") &&
            strcmp(word, ".noreturn"))
            return ptx_fail(l->m, l->token.line, "unknown bound %s", word);
        uint64_t product = 1, n;
        while (l->token.kind == TOK_NUMBER) {
            TRY(lex_number(l, &n));
            product *= n;
            if (!lex_skip(l, ',')) break;
        }
        if (threads) f->max_threads = (uint32_t)product;
    }
    return true;
}

static bool parse_function(Lexer *l, bool entry) {
    Function f = {.entry = entry, .line = l->token.line};
    if (!entry && lex_is(l, '(')) TRY(parse_params(l, &f.results));
    TRY(lex_word(l, &f.name));
    if (lex_is(l, '(')) TRY(parse_params(l, &f.params));
    TRY(parse_bounds(l, &f));
    if (!lex_skip(l, ';')) {
        f.has_body = true;
        TRY(parse_body(l, &f));
    }
    /* A declaration may come before; the definition takes its place. */
    for (uint32_t i = 0; i < l->m->functions.n; i++) {
        Function *old = &l->m->functions.at[i];
        if (strcmp(old->name, f.name)) continue;
        if (old->has_body && f.has_body)
            return ptx_fail(l->m, f.line, "%s is defined twice", f.name);
        if (f.has_body) *old = f;
        return true;
    }
    VEC_PUSH(l->m->arena, l->m->functions, f);
    return true;
}

static bool parse_top(Lexer *l) {
    const char *word;
    bool external = false;
    TRY(lex_word(l, &word));
    while (!strcmp(word, ".visible") || !strcmp(word, ".extern") || !strcmp(word, ".weak") ||
           !strcmp(word, ".common")) {
        external |= !strcmp(word, ".extern");
        TRY(lex_word(l, &word));
    }
    if (!strcmp(word, ".version") || !strcmp(word, ".address_size")) {
        if (!strcmp(word, ".address_size") && l->token.bits != 64)
            return ptx_fail(l->m, l->token.line, "only addresses of 64 bits are known");
        lex_next(l);
        return true;
    }
    if (!strcmp(word, ".target")) return lex_word(l, &l->m->target);
    if (!strcmp(word, ".entry")) return parse_function(l, true);
    if (!strcmp(word, ".func")) return parse_function(l, false);
    PtxSpace space = space_named(word);
    if (space != SP_GLOBAL && space != SP_CONST && space != SP_SHARED)
        return ptx_fail(l->m, l->token.line, "unknown directive %s", word);
    Variable v;
    TRY(parse_variable(l, space, 0, &v));
    v.external = external;
    if (external && space != SP_SHARED)
        return ptx_fail(l->m, l->token.line, "%s is of another module", v.name);
    VEC_PUSH(l->m->arena, l->m->vars, v);
    return lex_expect(l, ';');
}

bool ptx_parse(PtxModule *m, const char *text) {
    Lexer l;
    lex_start(&l, m, text);
    while (l.token.kind != TOK_END && !m->failed) TRY(parse_top(&l));
    return !m->failed;
}
