/* emit_convert.c - mov, cvt, cvta, comparisons and selections. */
#include "ptx.h"

#include <string.h>

/* mov.b64 %rd, {%r1, %r2}: the first is the low part. */
static bool pack(Emit *e, PtxType whole) {
    const Operand *d = &e->inst->operand[0], *list = &e->inst->operand[1];
    uint32_t part = ptx_types[whole].bits / list->nitem;
    TRY(put_assign_begin(e, d, whole));
    for (uint32_t i = 0; i < list->nitem; i++) {
        text_add(e->out, "%s((uint64_t)", i ? " | " : "");
        TRY(put_operand(e, &list->item[i],
                        unsigned_type(part == 8    ? TY_U8
                                      : part == 16 ? TY_U16
                                                   : TY_U32,
                                      0)));
        text_add(e->out, " << %u)", i * part);
    }
    put_assign_end(e);
    return true;
}

static bool unpack(Emit *e, PtxType whole) {
    const Operand *list = &e->inst->operand[0];
    uint32_t part = ptx_types[whole].bits / list->nitem;
    PtxType type = part == 8 ? TY_U8 : part == 16 ? TY_U16 : TY_U32;
    text_str(e->out, "uint64_t whole = ");
    TRY(put_operand(e, &e->inst->operand[1], whole));
    text_str(e->out, "; ");
    for (uint32_t i = 0; i < list->nitem; i++) {
        TRY(put_assign_begin(e, &list->item[i], type));
        text_add(e->out, "whole >> %u", i * part);
        put_assign_end(e);
    }
    return true;
}

bool emit_mov(Emit *e) {
    TRY(need_operands(e, 2));
    if (e->inst->ntype != 1) return fail_inst(e, "one type was expected");
    PtxType type = e->inst->type[0];
    if (type != TY_PRED) type = unsigned_type(type, 0);
    const Operand *d = &e->inst->operand[0], *s = &e->inst->operand[1];
    if (d->kind == OPD_LIST || s->kind == OPD_LIST) {
        uint32_t n = d->kind == OPD_LIST ? d->nitem : s->nitem;
        if (n != 2 && n != 4) return fail_inst(e, "two or four parts were expected");
        return d->kind == OPD_LIST ? unpack(e, type) : pack(e, type);
    }
    TRY(put_assign_begin(e, d, type));
    TRY(put_operand(e, s, type));
    put_assign_end(e);
    return true;
}

static bool is_int(PtxType t) {
    return ptx_types[t].kind == 'u' || ptx_types[t].kind == 's' || ptx_types[t].kind == 'b';
}

/* Half types are held as bits: "ptx_from_f16(" makes a float of them. */
static bool put_as_float(Emit *e, const Operand *o, PtxType type, bool ftz) {
    if (ptx_types[type].kind == 'h')
        text_add(e->out, "ptx_from_%s(", ptx_types[type].name);
    else
        text_str(e->out, ftz && type == TY_F32 ? "ptx_ftz(" : "(");
    TRY(put_operand(e, o, type));
    text_char(e->out, ')');
    return true;
}

/* float -> integer: rounded as said, saturated, NaN is 0. */
static bool cvt_to_int(Emit *e, PtxType to, PtxType from, const char *rounding, bool ftz) {
    if (!*rounding) return fail_inst(e, "a rounding is needed");
    TRY(put_assign_begin(e, &e->inst->operand[0], to));
    text_add(e->out, "ptx_to_%s(%s(", ptx_types[to].name, rounding);
    TRY(put_as_float(e, &e->inst->operand[1], from, ftz));
    text_str(e->out, "))");
    put_assign_end(e);
    return true;
}

static bool cvt_to_float(Emit *e, PtxType to, PtxType from, const char *whole, bool ftz) {
    const Operand *d = &e->inst->operand[0];
    bool half = ptx_types[to].kind == 'h', sat = has_mod(e, "sat"), relu = has_mod(e, "relu");
    if (relu || (sat && (to != TY_F32 || is_int(from))))
        return fail_inst(e, ".sat and .relu are known for results of f32 only");
    TRY(put_assign_begin(e, d, to));
    if (half) text_add(e->out, "ptx_to_%s(", ptx_types[to].name);
    text_str(e->out, sat ? "ptx_sat(" : "(");
    text_str(e->out, ftz && to == TY_F32 ? "ptx_ftz(" : "(");
    if (!half) text_add(e->out, "(%s)", ptx_types[to].c);
    text_add(e->out, "%s(", whole);
    if (is_int(from))
        TRY(put_operand(e, &e->inst->operand[1], from));
    else
        TRY(put_as_float(e, &e->inst->operand[1], from, ftz));
    text_str(e->out, half ? "))))" : ")))");
    put_assign_end(e);
    return true;
}

/* cvt.rn.bf16x2.f32 d, a, b: a is the high half. */
static bool cvt_pair(Emit *e, PtxType to) {
    const char *half = to == TY_F16X2 ? "f16" : "bf16";
    TRY(need_operands(e, 3));
    TRY(put_assign_begin(e, &e->inst->operand[0], TY_B32));
    for (uint32_t i = 1; i < 3; i++) {
        text_add(e->out, "%s(uint32_t)ptx_to_%s(", i == 2 ? " << 16 | " : "", half);
        TRY(put_operand(e, &e->inst->operand[i], TY_F32));
        text_char(e->out, ')');
    }
    put_assign_end(e);
    return true;
}

bool emit_cvt(Emit *e) {
    if (e->inst->ntype != 2) return fail_inst(e, "two types were expected");
    PtxType to = e->inst->type[0], from = e->inst->type[1];
    bool ftz = has_mod(e, "ftz");
    /* The C functions whose result is rounded to a whole number. */
    const char *whole = has_mod(e, "rni")   ? "rint"
                        : has_mod(e, "rzi") ? "trunc"
                        : has_mod(e, "rmi") ? "floor"
                        : has_mod(e, "rpi") ? "ceil"
                                            : "";
    bool nearest = has_mod(e, "rn");
    if (to == TY_F16X2 || to == TY_BF16X2)
        return from == TY_F32 && nearest ? cvt_pair(e, to) : fail_inst(e, "unknown conversion");
    TRY(need_operands(e, 2));
    if (is_int(to) && is_int(from)) {
        if (has_mod(e, "sat")) return fail_inst(e, ".sat between integers is not known");
        TRY(put_assign_begin(e, &e->inst->operand[0], to));
        TRY(put_operand(e, &e->inst->operand[1], from));
        put_assign_end(e);
        return true;
    }
    if (is_int(to)) return cvt_to_int(e, to, from, whole, ftz);
    return cvt_to_float(e, to, from, whole, ftz);
}

/* Generic addresses are those of the host: only shared memory, whose own addresses are offsets, has
 * another one. */
bool emit_cvta(Emit *e) {
    TRY(need_operands(e, 2));
    bool to = has_mod(e, "to"), shared = has_mod(e, "shared");
    bool other =
        has_mod(e, "global") || has_mod(e, "const") || has_mod(e, "local") || has_mod(e, "param");
    if (shared == other) return fail_inst(e, "one space was expected");
    TRY(put_assign_begin(e, &e->inst->operand[0], TY_U64));
    TRY(put_operand(e, &e->inst->operand[1], TY_U64));
    if (shared)
        text_str(e->out,
                 to ? " - (uint64_t)(uintptr_t)T->shared" : " + (uint64_t)(uintptr_t)T->shared");
    put_assign_end(e);
    return true;
}

/* Comparisons of floats are "ordered" (false with NaN) but for those ending in u, ne excepted: PTX
 * ne is ordered, neu not. The C text has A and B for the two sides. */
static const struct {
    const char *name, *ints, *floats;
} comparisons[] = {
    {"eq", "A == B", "A == B"},
    {"ne", "A != B", "(A < B || A > B)"},
    {"lt", "A < B", "A < B"},
    {"le", "A <= B", "A <= B"},
    {"gt", "A > B", "A > B"},
    {"ge", "A >= B", "A >= B"},
    {"lo", "A < B", NULL},
    {"ls", "A <= B", NULL},
    {"hi", "A > B", NULL},
    {"hs", "A >= B", NULL},
    {"equ", NULL, "!(A < B || A > B)"},
    {"neu", NULL, "A != B"},
    {"ltu", NULL, "!(A >= B)"},
    {"leu", NULL, "!(A > B)"},
    {"gtu", NULL, "!(A <= B)"},
    {"geu", NULL, "!(A < B)"},
    {"num", NULL, "(A == A && B == B)"},
    {"nan", NULL, "(A != A || B != B)"},
};

/* "bool yes = A < B;" with the operands 'first' and the one after it. */
static bool put_comparison(Emit *e, PtxType type, uint32_t first) {
    bool ftz = has_mod(e, "ftz"), floating = ptx_types[type].kind == 'f';
    bool half = ptx_types[type].kind == 'h';
    const char *text = NULL;
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons && !text; i++)
        if (has_mod(e, comparisons[i].name))
            text = floating || half ? comparisons[i].floats : comparisons[i].ints;
    if (!text || type == TY_F16X2 || type == TY_BF16X2) return fail_inst(e, "unknown comparison");
    for (uint32_t i = 0; i < 2; i++) {
        const char *c = half ? "float" : type == TY_PRED ? "bool" : ptx_types[type].c;
        text_add(e->out, "%s %c = ", c, (int)('A' + (int)i));
        TRY(put_as_float(e, &e->inst->operand[first + i], type, ftz));
        text_str(e->out, "; ");
    }
    text_add(e->out, "bool yes = %s; ", text);
    return true;
}

/* setp.CMP[.BOOL].TYPE p[|q], a, b[, c]: p = (a CMP b) BOOL c, q = !(a CMP b) BOOL c */
bool emit_setp(Emit *e) {
    const char *with = has_mod(e, "and")   ? " & "
                       : has_mod(e, "or")  ? " | "
                       : has_mod(e, "xor") ? " ^ "
                                           : NULL;
    if (e->inst->ntype != 1) return fail_inst(e, "one type was expected");
    TRY(need_operands(e, with ? 4 : 3));
    TRY(put_comparison(e, e->inst->type[0], 1));
    if (with) {
        text_str(e->out, "bool other = ");
        TRY(put_operand(e, &e->inst->operand[3], TY_PRED));
        text_str(e->out, "; ");
    }
    const Operand *d = &e->inst->operand[0];
    for (int negated = 0; d; d = d->second, negated++) {
        TRY(put_assign_begin(e, d, TY_PRED));
        text_add(e->out, "%syes%s%s", negated ? "!" : "", with ? with : "", with ? "other" : "");
        put_assign_end(e);
    }
    return true;
}

/* set.CMP.DEST.SOURCE: all ones or 1.0 */
bool emit_set(Emit *e) {
    if (e->inst->ntype != 2) return fail_inst(e, "two types were expected");
    PtxType to = e->inst->type[0];
    if (to != TY_U32 && to != TY_S32 && to != TY_F32) return fail_inst(e, "unknown type of result");
    TRY(need_operands(e, 3));
    TRY(put_comparison(e, e->inst->type[1], 1));
    TRY(put_assign_begin(e, &e->inst->operand[0], TY_B32));
    text_str(e->out, to == TY_F32 ? "yes ? 0x3f800000u : 0u" : "yes ? 0xffffffffu : 0u");
    put_assign_end(e);
    return true;
}

static bool select_between(Emit *e, PtxType type, const char *condition) {
    const Operand *o = e->inst->operand;
    PtxType as = unsigned_type(type, 0);
    text_add(e->out, "bool yes = %s", condition);
    TRY(put_operand(e, &o[3], strcmp(condition, "") ? e->inst->type[1] : TY_PRED));
    text_str(e->out, "; ");
    TRY(put_assign_begin(e, &o[0], as));
    text_str(e->out, "yes ? ");
    TRY(put_operand(e, &o[1], as));
    text_str(e->out, " : ");
    TRY(put_operand(e, &o[2], as));
    put_assign_end(e);
    return true;
}

bool emit_selp(Emit *e) {
    TRY(need_operands(e, 4));
    return e->inst->ntype == 1 ? select_between(e, e->inst->type[0], "")
                               : fail_inst(e, "one type was expected");
}

/* slct.TYPE.SIGN d, a, b, c: c >= 0 ? a : b */
bool emit_slct(Emit *e) {
    TRY(need_operands(e, 4));
    has_mod(e, "ftz");
    return e->inst->ntype == 2 ? select_between(e, e->inst->type[0], "0 <= ")
                               : fail_inst(e, "two types were expected");
}
