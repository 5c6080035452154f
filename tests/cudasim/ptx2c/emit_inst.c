/* emit_inst.c - one instruction: its guard, the family that writes it, and the check that every
 * modifier was understood. Also what all families share: operands and destinations. */
#include "ptx.h"

#include <string.h>

bool fail_inst(Emit *e, const char *what) {
    return ptx_fail(e->m, e->inst->line, "%s: %s", e->inst->text, what);
}

bool has_mod(Emit *e, const char *mod) {
    for (uint32_t i = 0; i < e->inst->nmod; i++)
        if (!strcmp(e->inst->mod[i], mod)) return e->inst->used[i] = true;
    return false;
}

bool need_operands(Emit *e, uint32_t n) {
    return e->inst->noperand == n || fail_inst(e, "unexpected number of operands");
}

PtxType unsigned_type(PtxType t, uint32_t at_least_bits) {
    uint32_t bits = ptx_types[t].bits;
    if (bits < at_least_bits) bits = at_least_bits;
    return bits <= 8 ? TY_U8 : bits <= 16 ? TY_U16 : bits <= 32 ? TY_U32 : TY_U64;
}

/* %tid.x and its kin, as 32 bits. */
static bool put_special(Emit *e, const char *name) {
    static const char *const triples[][2] = {
        {"%tid.", "tid"}, {"%ntid.", "ntid"}, {"%ctaid.", "ctaid"}, {"%nctaid.", "nctaid"}};
    for (size_t i = 0; i < sizeof triples / sizeof *triples; i++) {
        size_t n = strlen(triples[i][0]);
        if (strncmp(name, triples[i][0], n) || !strchr("xyz", name[n]) || name[n + 1]) continue;
        text_add(e->out, "T->%s.%c", triples[i][1], name[n]);
        return true;
    }
    if (!strcmp(name, "%laneid"))
        text_str(e->out, "T->lane");
    else if (!strcmp(name, "%warpid"))
        text_str(e->out, "T->warp");
    else
        return fail_inst(e, arena_printf(e->m->arena, "unknown register %s", name));
    return true;
}

bool put_symbol_address(Emit *e, const char *name) {
    const Variable *v = find_variable(e->m, e->f, e->inst->scope, name);
    if (!v) return fail_inst(e, arena_printf(e->m->arena, "unknown name %s", name));
    if (v->space == SP_SHARED) {
        if (v->external)
            text_str(e->out, "(uint64_t)T->dynamic_offset");
        else
            text_add(e->out, "(%lluull + PTX_CHECK * %u * PTX_GAP)", (unsigned long long)v->offset,
                     v->number);
        return true;
    }
    text_str(e->out, "(uint64_t)(uintptr_t)");
    if (v->space == SP_LOCAL) {
        text_add(e->out, "(local + %llu)", (unsigned long long)v->offset);
    } else if (v->space == SP_PARAM && v->scope == 0 && e->f->entry) {
        text_add(e->out, "(P + %llu)", (unsigned long long)v->offset);
    } else {
        text_str(e->out, v->space == SP_PARAM ? "" : "v_");
        put_name(e->out, v->name, v->scope);
    }
    return true;
}

static bool put_register(Emit *e, const Register *r, PtxType type) {
    const PtxTypeInfo *t = &ptx_types[type];
    if (t->kind == 'p' && r->type != TY_PRED) return fail_inst(e, "a predicate was expected");
    if (t->kind != 'p' && r->type == TY_PRED)
        return fail_inst(e, "a predicate where a value should be");
    if (t->kind == 'f')
        text_add(e->out, "ptx_%s((%s)", t->name, t->bits == 32 ? "uint32_t" : "uint64_t");
    else
        text_add(e->out, "(%s)", t->c);
    put_name(e->out, r->name, r->scope);
    if (t->kind == 'f') text_char(e->out, ')');
    return true;
}

bool put_operand(Emit *e, const Operand *o, PtxType type) {
    const PtxTypeInfo *t = &ptx_types[type];
    if (o->negated) text_char(e->out, '!');
    if (o->negated && type != TY_PRED) return fail_inst(e, "! before a value");
    if (o->kind == OPD_REG || o->kind == OPD_SYMBOL) {
        const Register *r = find_register(e->f, e->inst->scope, o->name);
        if (r) return put_register(e, r, type);
        if (o->kind == OPD_REG)
            return fail_inst(e, arena_printf(e->m->arena, "unknown register %s", o->name));
        text_add(e->out, "(%s)(", t->c);
        TRY(put_symbol_address(e, o->name));
        text_char(e->out, ')');
        return true;
    }
    bool number = o->kind == OPD_INT || o->kind == OPD_F32 || o->kind == OPD_F64;
    if (o->kind == OPD_SPECIAL) {
        text_add(e->out, "(%s)", t->c);
        return put_special(e, o->name);
    }
    if (!number) return fail_inst(e, "unexpected kind of operand");
    if (t->kind == 'f' && o->kind == OPD_INT)
        return fail_inst(e, "a whole number where a float should be");
    if (o->kind == OPD_F64 && t->bits != 64)
        return fail_inst(e, "a double where less bits should be");
    if (t->kind == 'f' && t->bits == 64 && o->kind == OPD_F32)
        return fail_inst(e, "a float where a double should be");
    if (t->kind == 'f')
        text_add(e->out, "ptx_%s(0x%llxu)", t->name, (unsigned long long)o->bits);
    else
        text_add(e->out, "(%s)0x%llxull", t->c, (unsigned long long)o->bits);
    return true;
}

bool put_assign_begin(Emit *e, const Operand *dest, PtxType type) {
    const PtxTypeInfo *t = &ptx_types[type];
    if (dest->kind == OPD_SINK) {
        text_str(e->out, "(void)(");
        return true;
    }
    const Register *r = dest->name ? find_register(e->f, e->inst->scope, dest->name) : NULL;
    if (!r) return fail_inst(e, "the destination is no register");
    if ((r->type == TY_PRED) != (type == TY_PRED))
        return fail_inst(e, "a predicate and a value mixed");
    put_name(e->out, r->name, r->scope);
    text_add(e->out, " = (%s)", ptx_types[r->type].storage);
    if (t->kind == 's')
        text_add(e->out, "(int64_t)(%s)(", t->c); /* wider registers get the sign */
    else if (t->kind == 'f')
        text_add(e->out, "ptx_bits_%s(", t->name);
    else
        text_add(e->out, "(%s)(", t->c);
    return true;
}

void put_assign_end(Emit *e) {
    text_str(e->out, ");");
}

bool put_address(Emit *e, const Operand *address) {
    if (address->kind != OPD_ADDRESS) return fail_inst(e, "an address was expected");
    const Operand *base = address->item;
    bool symbol = base->kind == OPD_SYMBOL && !find_register(e->f, e->inst->scope, base->name);
    text_char(e->out, '(');
    if (symbol)
        TRY(put_symbol_address(e, base->name));
    else
        TRY(put_operand(e, base, TY_U64));
    if (address->offset) text_add(e->out, " + (uint64_t)%lldll", (long long)address->offset);
    text_char(e->out, ')');
    return true;
}

bool emit_nothing(Emit *e) {
    for (uint32_t i = 0; i < e->inst->nmod; i++) e->inst->used[i] = true;
    return true;
}

/* membar, fence: one host thread runs all, in program order. */
static const struct {
    const char *op;
    bool (*emit)(Emit *);
} families[] = {{"mov", emit_mov},          {"cvt", emit_cvt},
                {"cvta", emit_cvta},        {"setp", emit_setp},
                {"set", emit_set},          {"selp", emit_selp},
                {"slct", emit_slct},        {"ld", emit_ld},
                {"ldu", emit_ld},           {"st", emit_st},
                {"atom", emit_atom},        {"red", emit_atom},
                {"bra", emit_bra},          {"call", emit_call},
                {"ret", emit_ret},          {"exit", emit_ret},
                {"trap", emit_trap},        {"bar", emit_bar},
                {"barrier", emit_bar},      {"shfl", emit_shfl},
                {"vote", emit_vote},        {"redux", emit_redux},
                {"membar", emit_nothing},   {"fence", emit_nothing},
                {"prefetch", emit_nothing}, {"prefetchu", emit_nothing}};

static bool emit_family(Emit *e) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].op, e->inst->op)) return families[i].emit(e);
    bool known = false;
    TRY(emit_alu(e, &known));
    return known || fail_inst(e, "unknown instruction or combination of modifiers and types");
}

bool emit_instruction(Emit *e) {
    Inst *in = e->inst;
    if (in->label) {
        put_name(e->out, in->label, in->scope);
        text_str(e->out, ":;\n");
        return true;
    }
    text_str(e->out, "    ");
    if (in->guard) {
        const Operand guard = {.kind = OPD_REG, .name = in->guard, .negated = in->guard_negated};
        text_str(e->out, "if (");
        TRY(put_operand(e, &guard, TY_PRED));
        text_str(e->out, ") ");
    }
    text_str(e->out, "{ ");
    TRY(emit_family(e));
    text_add(e->out, " } /* %u %s */\n", in->line, in->text);
    for (uint32_t i = 0; i < in->nmod; i++)
        if (!in->used[i])
            return fail_inst(e, arena_printf(e->m->arena, "unknown modifier .%s", in->mod[i]));
    return true;
}
