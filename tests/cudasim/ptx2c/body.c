/* body.c - the body of a function: scopes, declarations, labels and instructions. Braces nest
 * (call sequences, inline assembly) and names declared inside hide those outside. */
#include "ptx.h"

#include <string.h>

/* Modifiers may hold "::" (".shared::cta") where only the last part matters to us: refused later.
 */
static bool split_opcode(Lexer *l, Inst *in) {
    char *text = arena_str(l->m->arena, in->text);
    char *part = strtok(text, ".");
    in->op = part;
    while ((part = strtok(NULL, "."))) {
        PtxType type = ptx_type_named(part);
        if (type) {
            if (in->ntype == 3) return ptx_fail(l->m, in->line, "%s: too many types", in->text);
            in->type[in->ntype++] = type;
        } else {
            if (in->nmod == MAX_MODS)
                return ptx_fail(l->m, in->line, "%s: too many modifiers", in->text);
            in->mod[in->nmod++] = part;
        }
    }
    return true;
}

static bool is_special(const char *name) {
    static const char *const names[] = {"%tid.",        "%ntid.",     "%ctaid.", "%nctaid.",
                                        "%laneid",      "%warpid",    "%clock",  "%clock64",
                                        "%globaltimer", "%lanemask_", "%smid",   "%nwarpid"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(name, names[i], strlen(names[i]))) return true;
    return false;
}

static bool parse_operand(Lexer *l, Operand *o);

static bool parse_list(Lexer *l, Operand *o, char close) {
    o->kind = OPD_LIST;
    VEC(Operand) items = {0};
    while (!lex_is(l, close)) {
        Operand item;
        TRY(parse_operand(l, &item));
        VEC_PUSH(l->m->arena, items, item);
        if (!lex_skip(l, ',')) break;
    }
    o->item = items.at;
    o->nitem = items.n;
    return lex_expect(l, close);
}

/* [NAME], [NAME+8], [%rd1+-8], [%rd1-8] */
static bool parse_address(Lexer *l, Operand *o) {
    o->kind = OPD_ADDRESS;
    o->item = ARENA_NEW(l->m->arena, Operand);
    o->nitem = 1;
    TRY(parse_operand(l, o->item));
    bool plus = lex_skip(l, '+');
    if (plus || l->token.kind == TOK_NUMBER) {
        uint64_t n;
        TRY(lex_number(l, &n));
        o->offset = (int64_t)n;
    }
    return lex_expect(l, ']');
}

static bool parse_operand(Lexer *l, Operand *o) {
    *o = (Operand){.kind = OPD_REG};
    if (lex_skip(l, '{')) return parse_list(l, o, '}');
    if (lex_skip(l, '(')) return parse_list(l, o, ')');
    if (lex_skip(l, '[')) return parse_address(l, o);
    o->negated = lex_skip(l, '!');
    if (l->token.kind == TOK_NUMBER) {
        o->kind = l->token.form == 'f' ? OPD_F32 : l->token.form == 'd' ? OPD_F64 : OPD_INT;
        o->bits = l->token.bits;
        lex_next(l);
        return true;
    }
    TRY(lex_word(l, &o->name));
    if (!strcmp(o->name, "_")) {
        o->kind = OPD_SINK;
    } else if (is_special(o->name)) {
        o->kind = OPD_SPECIAL;
    } else if (o->name[0] != '%') {
        o->kind = OPD_SYMBOL; /* or a register without a percent sign: find_register decides */
    }
    if (!lex_skip(l, '|')) return true;
    o->second = ARENA_NEW(l->m->arena, Operand);
    return parse_operand(l, o->second);
}

/* After the opcode: operands up to the semicolon. */
static bool parse_operands(Lexer *l, Inst *in) {
    while (!lex_is(l, ';')) {
        if (in->noperand == MAX_OPERANDS)
            return ptx_fail(l->m, in->line, "%s: too many operands", in->text);
        TRY(parse_operand(l, &in->operand[in->noperand++]));
        if (!lex_skip(l, ',')) break;
    }
    return lex_expect(l, ';');
}

static bool is_collective(const Inst *in) {
    static const char *const ops[] = {"bar", "barrier", "shfl", "vote", "match", "redux"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(in->op, ops[i])) return true;
    return false;
}

static bool parse_instruction(Lexer *l, Function *f, uint32_t scope) {
    Inst in = {.line = l->token.line, .scope = scope};
    if (lex_skip(l, '@')) {
        in.guard_negated = lex_skip(l, '!');
        TRY(lex_word(l, &in.guard));
    }
    TRY(lex_word(l, &in.text));
    if (!in.guard && lex_skip(l, ':')) {
        in.label = in.text;
        VEC_PUSH(l->m->arena, f->body, in);
        return true;
    }
    TRY(split_opcode(l, &in));
    TRY(parse_operands(l, &in));
    f->collective |= is_collective(&in);
    VEC_PUSH(l->m->arena, f->body, in);
    return true;
}

static void add_register(Lexer *l, Function *f, uint32_t scope, const char *name, PtxType type) {
    Register r = {name, scope, type};
    map_put(f->reg_index, arena_printf(l->m->arena, "%u %s", scope, name), f->regs.n);
    VEC_PUSH(l->m->arena, f->regs, r);
}

/* .reg .b32 %r<10>, %a; */
static bool parse_registers(Lexer *l, Function *f, uint32_t scope) {
    const char *word, *name;
    TRY(lex_word(l, &word));
    PtxType type = ptx_type_named(word + 1);
    if (!type) return ptx_fail(l->m, l->token.line, "unknown type %s of a register", word);
    do {
        TRY(lex_word(l, &name));
        if (!lex_skip(l, '<')) {
            add_register(l, f, scope, name, type);
            continue;
        }
        uint64_t n;
        TRY(lex_number(l, &n));
        if (n > 1000000) return ptx_fail(l->m, l->token.line, "too many registers");
        for (uint64_t i = 0; i < n; i++)
            add_register(l, f, scope, arena_printf(l->m->arena, "%s%u", name, (unsigned)i), type);
        TRY(lex_expect(l, '>'));
    } while (lex_skip(l, ','));
    return lex_expect(l, ';');
}

static bool skip_directive(Lexer *l) {
    while (!lex_is(l, ';') && l->token.kind != TOK_END) lex_next(l);
    return lex_expect(l, ';');
}

/* A declaration or a directive, which begin with a dot. */
static bool parse_directive(Lexer *l, Function *f, uint32_t scope) {
    const char *word;
    uint32_t line = l->token.line;
    TRY(lex_word(l, &word));
    if (!strcmp(word, ".reg")) return parse_registers(l, f, scope);
    if (!strcmp(word, ".pragma")) return skip_directive(l);
    if (!strcmp(word, ".loc")) { /* .loc FILE LINE COLUMN: no semicolon */
        while (l->token.kind == TOK_NUMBER) lex_next(l);
        return true;
    }
    PtxSpace space = !strcmp(word, ".param")    ? SP_PARAM
                     : !strcmp(word, ".shared") ? SP_SHARED
                     : !strcmp(word, ".local")  ? SP_LOCAL
                                                : SP_NONE;
    if (!space) return ptx_fail(l->m, line, "unknown directive %s", word);
    Variable v;
    TRY(parse_variable(l, space, scope, &v));
    VEC_PUSH(l->m->arena, f->vars, v);
    return lex_expect(l, ';');
}

static bool parse_scope(Lexer *l, Function *f, uint32_t parent) {
    uint32_t scope = f->parent.n;
    VEC_PUSH(l->m->arena, f->parent, parent);
    TRY(lex_expect(l, '{'));
    while (!lex_is(l, '}')) {
        if (l->m->failed || l->token.kind == TOK_END)
            return ptx_fail(l->m, l->token.line, "%s ends early", f->name);
        if (lex_is(l, '{')) {
            TRY(parse_scope(l, f, scope));
        } else if (lex_skip(l, ';')) {
            continue;
        } else if (l->token.kind == TOK_WORD && l->token.text[0] == '.') {
            TRY(parse_directive(l, f, scope));
        } else {
            TRY(parse_instruction(l, f, scope));
        }
    }
    return lex_expect(l, '}');
}

bool parse_body(Lexer *l, Function *f) {
    f->reg_index = map_new(l->m->arena);
    VEC_PUSH(l->m->arena, f->parent, 0); /* scope 0: parameters */
    return parse_scope(l, f, 0);
}
