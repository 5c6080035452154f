/* emit_alu.c - arithmetic, from a table of forms. A row: opcode, modifiers ("?rn": may be there),
 * types, the value as C text, and the type of the result when it is not that of the instruction.
 * In the C text, A B C D are the operands after the destination as values of the instruction's
 * type; uA uB uC uD are the same as unsigned numbers of at least 32 bits, so that sums and products
 * wrap; nA nB nC nD are 32-bit counts or positions; TYPE and BITS stand for "s32" and "32". The
 * first row that fits is taken: rows with more modifiers come first.
 *
 * mul.f32 and add.f32 without a rounding modifier may be fused by the assembler of the device, but
 * are not here: where a product and a sum are to be one operation, NVRTC writes fma. */
#include "ptx.h"

#include <ctype.h>
#include <string.h>

#define INT_TYPES "u16 s16 u32 s32 u64 s64"
#define WORDS "u32 s32 b32 u64 s64 b64"
#define HALVES "f16 bf16 f16x2 bf16x2"

typedef struct {
    const char *op, *mods, *types, *value, *result; /* result: NULL same, "wide", or a type */
} Form;

static const Form forms[] = {
    {"add", "cc", "u32 s32", "ptx_add_cc(uA, uB, &CC)", NULL},
    {"addc", "cc", "u32 s32", "ptx_addc_cc(uA, uB, &CC)", NULL},
    {"addc", "", "u32 s32", "uA + uB + CC", NULL},
    {"sub", "cc", "u32 s32", "ptx_sub_cc(uA, uB, &CC)", NULL},
    {"subc", "cc", "u32 s32", "ptx_subc_cc(uA, uB, &CC)", NULL},
    {"subc", "", "u32 s32", "uA - uB - CC", NULL},
    {"mad", "lo cc", "u32", "ptx_add_cc(uA * uB, uC, &CC)", NULL},
    {"mad", "hi cc", "u32", "ptx_add_cc(ptx_mulhi_u32(A, B), uC, &CC)", NULL},
    {"madc", "lo cc", "u32", "ptx_addc_cc(uA * uB, uC, &CC)", NULL},
    {"madc", "hi cc", "u32", "ptx_addc_cc(ptx_mulhi_u32(A, B), uC, &CC)", NULL},
    {"madc", "lo", "u32", "uA * uB + uC + CC", NULL},
    {"madc", "hi", "u32", "ptx_mulhi_u32(A, B) + uC + CC", NULL},

    {"add", "", INT_TYPES, "uA + uB", NULL},
    {"sub", "", INT_TYPES, "uA - uB", NULL},
    {"mul", "lo", INT_TYPES, "uA * uB", NULL},
    {"mul", "hi", INT_TYPES, "ptx_mulhi_TYPE(A, B)", NULL},
    {"mul", "wide", "u16 u32", "(uint64_t)A * (uint64_t)B", "wide"},
    {"mul", "wide", "s16 s32", "(int64_t)A * (int64_t)B", "wide"},
    {"mul24", "lo", "u32", "(A & 0xffffffu) * (B & 0xffffffu)", NULL},
    {"mul24", "lo", "s32", "ptx_s24(A) * ptx_s24(B)", NULL},
    {"mad", "lo", INT_TYPES, "uA * uB + uC", NULL},
    {"mad", "hi", INT_TYPES, "ptx_mulhi_TYPE(A, B) + uC", NULL},
    {"mad", "wide", "u16 u32", "(uint64_t)A * (uint64_t)B + wC", "wide"},
    {"mad", "wide", "s16 s32", "(uint64_t)((int64_t)A * (int64_t)B) + wC", "wide"},
    {"div", "", INT_TYPES, "ptx_div_TYPE(A, B)", NULL},
    {"rem", "", INT_TYPES, "ptx_rem_TYPE(A, B)", NULL},
    {"neg", "", "s16 s32 s64", "0 - uA", NULL},
    {"abs", "", "s16 s32 s64", "A < 0 ? 0 - uA : uA", NULL},
    {"min", "", INT_TYPES, "A < B ? A : B", NULL},
    {"max", "", INT_TYPES, "A > B ? A : B", NULL},
    {"sad", "", "u16 u32 u64 s16 s32 s64", "uC + (A < B ? uB - uA : uA - uB)", NULL},

    {"and", "", "b16 b32 b64 pred", "A & B", NULL},
    {"or", "", "b16 b32 b64 pred", "A | B", NULL},
    {"xor", "", "b16 b32 b64 pred", "A ^ B", NULL},
    {"not", "", "b16 b32 b64", "~uA", NULL},
    {"not", "", "pred", "!A", NULL},
    {"cnot", "", "b16 b32 b64", "A == 0", NULL},
    {"lop3", "", "b32", "ptx_lop3(A, B, C, nD)", NULL},
    {"shl", "", "b16 b32 b64", "nB >= BITS ? 0 : uA << nB", NULL},
    {"shr", "", "b16 b32 b64 u16 u32 u64", "nB >= BITS ? 0 : uA >> nB", NULL},
    {"shr", "", "s16 s32 s64", "A >> (nB >= BITS ? BITS - 1 : nB)", NULL},
    {"shf", "l wrap", "b32", "ptx_shf_l(A, B, nC & 31)", NULL},
    {"shf", "r wrap", "b32", "ptx_shf_r(A, B, nC & 31)", NULL},
    {"shf", "l clamp", "b32", "ptx_shf_l(A, B, nC > 32 ? 32 : nC)", NULL},
    {"shf", "r clamp", "b32", "ptx_shf_r(A, B, nC > 32 ? 32 : nC)", NULL},
    {"prmt", "", "b32", "ptx_prmt(A, B, C)", NULL},
    {"bfe", "", "u32 s32 u64 s64", "ptx_bfe_TYPE(A, nB, nC)", NULL},
    {"bfi", "", "b32 b64", "ptx_bfi_TYPE(A, B, nC, nD)", NULL},
    {"brev", "", "b32 b64", "ptx_brev_TYPE(A)", NULL},
    {"popc", "", "b32 b64", "ptx_popc(A)", "u32"},
    {"clz", "", "b32 b64", "ptx_clz_TYPE(A)", "u32"},
    {"bfind", "shiftamt", "u32 s32 u64 s64", "ptx_bfind_TYPE(A, true)", "u32"},
    {"bfind", "", "u32 s32 u64 s64", "ptx_bfind_TYPE(A, false)", "u32"},

    {"add", "rz", "f32", "ptx_add_rz(A, B)", NULL},
    {"add", "rm", "f32", "ptx_add_rm(A, B)", NULL},
    {"add", "rp", "f32", "ptx_add_rp(A, B)", NULL},
    {"sub", "rz", "f32", "ptx_add_rz(A, -B)", NULL},
    {"sub", "rm", "f32", "ptx_add_rm(A, -B)", NULL},
    {"sub", "rp", "f32", "ptx_add_rp(A, -B)", NULL},
    {"mul", "rz", "f32", "ptx_fma_rz(A, B, ptx_zero_of(A, B))", NULL},
    {"mul", "rm", "f32", "ptx_fma_rm(A, B, ptx_zero_of(A, B))", NULL},
    {"mul", "rp", "f32", "ptx_fma_rp(A, B, ptx_zero_of(A, B))", NULL},
    {"fma", "rz", "f32", "ptx_fma_rz(A, B, C)", NULL},
    {"fma", "rm", "f32", "ptx_fma_rm(A, B, C)", NULL},
    {"fma", "rp", "f32", "ptx_fma_rp(A, B, C)", NULL},
    {"add", "?rn", "f32 f64", "A + B", NULL},
    {"sub", "?rn", "f32 f64", "A - B", NULL},
    {"mul", "?rn", "f32 f64", "A * B", NULL},
    {"fma", "rn", "f32", "fmaf(A, B, C)", NULL},
    {"fma", "rn", "f64", "fma(A, B, C)", NULL},
    {"mad", "rn", "f32", "fmaf(A, B, C)", NULL},
    {"mad", "rn", "f64", "fma(A, B, C)", NULL},
    {"div", "rn", "f32 f64", "A / B", NULL},
    {"div", "approx", "f32", "A / B", NULL},
    {"div", "full", "f32", "A / B", NULL},
    {"neg", "", "f32 f64", "-A", NULL},
    {"abs", "", "f32", "fabsf(A)", NULL},
    {"abs", "", "f64", "fabs(A)", NULL},
    {"copysign", "", "f32", "copysignf(B, A)", NULL},
    {"copysign", "", "f64", "copysign(B, A)", NULL},
    {"min", "NaN", "f32", "ptx_min_nan(A, B)", NULL},
    {"max", "NaN", "f32", "ptx_max_nan(A, B)", NULL},
    {"min", "", "f32 f64", "ptx_min_TYPE(A, B)", NULL},
    {"max", "", "f32 f64", "ptx_max_TYPE(A, B)", NULL},

    {"rcp", "approx", "f64", "ptx_cut_low(1.0 / A)", NULL},
    {"rsqrt", "approx", "f64", "1.0 / sqrt(A)", NULL},
    {"rcp", "rn", "f32 f64", "1 / A", NULL},
    {"rcp", "approx", "f32", "1 / A", NULL},
    {"sqrt", "rn", "f32", "sqrtf(A)", NULL},
    {"sqrt", "rn", "f64", "sqrt(A)", NULL},
    {"sqrt", "approx", "f32", "sqrtf(A)", NULL},
    {"rsqrt", "approx", "f32", "(float)(1.0 / sqrt(A))", NULL},
    {"sin", "approx", "f32", "sinf(A)", NULL},
    {"cos", "approx", "f32", "cosf(A)", NULL},
    {"tanh", "approx", "f32", "tanhf(A)", NULL},
    {"ex2", "approx", "f32", "exp2f(A)", NULL},
    {"lg2", "approx", "f32", "log2f(A)", NULL},
    {"testp", "finite", "f32 f64", "(bool)isfinite(A)", "pred"},
    {"testp", "infinite", "f32 f64", "(bool)isinf(A)", "pred"},
    {"testp", "notanumber", "f32 f64", "(bool)isnan(A)", "pred"},
    {"testp", "number", "f32 f64", "(bool)!isnan(A)", "pred"},

    {"add", "?rn", HALVES, "ptx_add_TYPE(A, B)", NULL},
    {"sub", "?rn", HALVES, "ptx_sub_TYPE(A, B)", NULL},
    {"mul", "?rn", HALVES, "ptx_mul_TYPE(A, B)", NULL},
    {"fma", "rn", HALVES, "ptx_fma_TYPE(A, B, C)", NULL},
    {"neg", "", "f16 bf16", "A ^ 0x8000u", NULL},
    {"neg", "", "f16x2 bf16x2", "A ^ 0x80008000u", NULL},
    {"abs", "", "f16 bf16", "A & 0x7fffu", NULL},
    {"abs", "", "f16x2 bf16x2", "A & 0x7fff7fffu", NULL},
    {"min", "", HALVES, "ptx_min_TYPE(A, B)", NULL},
    {"max", "", HALVES, "ptx_max_TYPE(A, B)", NULL},
};

/* Is `word` one of the blank-separated words of `list`? */
static bool in_list(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

/* Walks the modifiers of a row; with mark, tells that they are known. */
static bool mods_fit(Emit *e, const char *mods, bool mark) {
    char word[16];
    for (const char *at = mods; *at;) {
        bool optional = *at == '?', found = false;
        at += optional;
        size_t n = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        at += n + (at[n] == ' ');
        for (uint32_t i = 0; i < e->inst->nmod; i++) {
            if (strcmp(e->inst->mod[i], word)) continue;
            found = true;
            if (mark) e->inst->used[i] = true;
        }
        if (!found && !optional) return false;
    }
    return true;
}

static const Form *find_form(Emit *e, PtxType type) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const Form *f = &forms[i];
        if (!strcmp(f->op, e->inst->op) && in_list(f->types, ptx_types[type].name) &&
            mods_fit(e, f->mods, false))
            return f;
    }
    return NULL;
}

static bool put_one(Emit *e, char prefix, char letter, PtxType type, PtxType wide, bool ftz) {
    uint32_t i = 1 + (uint32_t)(letter - 'A');
    if (i >= e->inst->noperand) return fail_inst(e, "too few operands");
    const Operand *o = &e->inst->operand[i];
    PtxType as = prefix == 'u'   ? unsigned_type(type, 32)
                 : prefix == 'n' ? TY_U32
                 : prefix == 'w' ? unsigned_type(wide, 32)
                                 : type;
    /* Narrow operands in wrapping arithmetic keep their sign: only the low bits count then. */
    text_str(e->out, ftz && type == TY_F32 ? "ptx_ftz(" : "(");
    TRY(put_operand(e, o, as));
    text_char(e->out, ')');
    return true;
}

/* The C text of a row with its operands in place. */
static bool put_value(Emit *e, const Form *f, PtxType type, PtxType wide, bool ftz) {
    for (const char *c = f->value; *c;) {
        bool start = c == f->value || !(isalnum((unsigned char)c[-1]) || c[-1] == '_');
        bool prefix = start && strchr("unw", *c) && c[1] >= 'A' && c[1] <= 'D' &&
                      !isalnum((unsigned char)c[2]);
        if (prefix) {
            TRY(put_one(e, c[0], c[1], type, wide, ftz));
            c += 2;
        } else if (start && *c >= 'A' && *c <= 'D' && !isalnum((unsigned char)c[1])) {
            TRY(put_one(e, 0, *c++, type, wide, ftz));
        } else if (!strncmp(c, "TYPE", 4)) {
            text_str(e->out, ptx_types[type].name);
            c += 4;
        } else if (!strncmp(c, "BITS", 4)) {
            text_add(e->out, "%u", ptx_types[type].bits);
            c += 4;
        } else {
            text_char(e->out, *c++);
        }
    }
    return true;
}

static PtxType wide_type(PtxType t) {
    return t == TY_U16   ? TY_U32
           : t == TY_S16 ? TY_S32
           : t == TY_U32 ? TY_U64
           : t == TY_S32 ? TY_S64
                         : t;
}

bool emit_alu(Emit *e, bool *known) {
    if (e->inst->ntype != 1) return true;
    PtxType type = e->inst->type[0], wide = wide_type(type);
    const Form *f = find_form(e, type);
    if (!f) return true;
    *known = true;
    mods_fit(e, f->mods, true);
    bool single = type == TY_F32;
    /* rcp.approx.ftz.f64 and its kin: nothing of that size is flushed that matters (20 bits good).
     */
    bool ftz = (single || type == TY_F64) && has_mod(e, "ftz");
    bool sat = single && has_mod(e, "sat");
    PtxType result = !f->result                   ? type
                     : !strcmp(f->result, "wide") ? wide
                                                  : ptx_type_named(f->result);
    if (!e->inst->noperand) return fail_inst(e, "too few operands");
    TRY(put_assign_begin(e, &e->inst->operand[0], result));
    bool wrap = ftz && result == TY_F32;
    text_str(e->out, wrap ? "ptx_ftz(" : "(");
    text_str(e->out, sat ? "ptx_sat(" : "(");
    TRY(put_value(e, f, type, wide, ftz));
    text_str(e->out, "))");
    put_assign_end(e);
    return true;
}
