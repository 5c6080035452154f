/* emit_memory.c - loads, stores and atomics. An access is one call of ptx_read, ptx_write or
 * ptx_atomic (simt_device.h), which gives the place in host memory: checks are made there, once for
 * a whole vector. Parameters need none. */
#include "ptx.h"

#include <string.h>

/* The space of an access, as a constant of simt_device.h; qualifiers about caches say nothing here.
 */
static bool access_space(Emit *e, const char **space, bool *param) {
    static const char *const ignored[] = {"nc",
                                          "ca",
                                          "cg",
                                          "cs",
                                          "lu",
                                          "cv",
                                          "wb",
                                          "wt",
                                          "volatile",
                                          "relaxed",
                                          "acquire",
                                          "release",
                                          "acq_rel",
                                          "gpu",
                                          "cta",
                                          "sys",
                                          "cluster",
                                          "weak",
                                          "L1::evict_first",
                                          "L1::no_allocate",
                                          "L2::128B"};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) has_mod(e, ignored[i]);
    *param = has_mod(e, "param");
    *space = has_mod(e, "global")   ? "PTX_GLOBAL"
             : has_mod(e, "shared") ? "PTX_SHARED"
             : has_mod(e, "local")  ? "PTX_LOCAL"
             : has_mod(e, "const")  ? "PTX_CONST"
                                    : "PTX_GENERIC";
    return !*param || !strcmp(*space, "PTX_GENERIC") || fail_inst(e, "two spaces");
}

static uint32_t vector_length(Emit *e) {
    return has_mod(e, "v2") ? 2 : has_mod(e, "v4") ? 4 : 1;
}

/* "ptx_u32 *m = ...": where n elements of the type lie. */
static bool put_place(Emit *e, const char *how, PtxType type, uint32_t n, const Operand *address) {
    const char *space;
    bool param;
    TRY(access_space(e, &space, &param));
    const char *c = ptx_types[unsigned_type(type, 0)].name;
    if (param) {
        text_add(e->out, "ptx_%s *m = (ptx_%s *)(uintptr_t)", c, c);
        TRY(put_address(e, address));
    } else {
        text_add(e->out, "ptx_%s *m = ptx_%s(T, PTX_CHECK, %s, ", c, how, space);
        TRY(put_address(e, address));
        text_add(e->out, ", %u, %u)", n * ptx_types[type].bits / 8, e->inst->line);
    }
    text_str(e->out, "; ");
    return true;
}

static const Operand *element(const Operand *o, uint32_t i) {
    return o->kind == OPD_LIST ? &o->item[i] : o;
}

static bool check_shape(Emit *e, const Operand *value, uint32_t n) {
    if (e->inst->ntype != 1) return fail_inst(e, "one type was expected");
    bool fits = n == 1 ? value->kind != OPD_LIST : value->kind == OPD_LIST && value->nitem == n;
    return fits || fail_inst(e, "the vector has another length");
}

bool emit_ld(Emit *e) {
    TRY(need_operands(e, 2));
    uint32_t n = vector_length(e);
    const Operand *d = &e->inst->operand[0];
    TRY(check_shape(e, d, n));
    PtxType type = e->inst->type[0],
            as = ptx_types[type].kind == 's' ? type : unsigned_type(type, 0);
    TRY(put_place(e, "read", type, n, &e->inst->operand[1]));
    for (uint32_t i = 0; i < n; i++) {
        TRY(put_assign_begin(e, element(d, i), as));
        text_add(e->out, "m[%u]", i);
        put_assign_end(e);
    }
    return true;
}

bool emit_st(Emit *e) {
    TRY(need_operands(e, 2));
    uint32_t n = vector_length(e);
    const Operand *value = &e->inst->operand[1];
    TRY(check_shape(e, value, n));
    PtxType type = e->inst->type[0];
    TRY(put_place(e, "write", type, n, &e->inst->operand[0]));
    for (uint32_t i = 0; i < n; i++) {
        text_add(e->out, "m[%u] = ", i);
        TRY(put_operand(e, element(value, i), unsigned_type(type, 0)));
        text_str(e->out, "; ");
    }
    return true;
}

/* What an atomic puts in place of the old value A, given B (and C). */
static const struct {
    const char *op, *kinds, *value;
} atomics[] = {
    {"add", "usf", "ptx_sum_TYPE(A, B)"},
    {"min", "us", "A < B ? A : B"},
    {"max", "us", "A > B ? A : B"},
    {"and", "b", "A & B"},
    {"or", "b", "A | B"},
    {"xor", "b", "A ^ B"},
    {"exch", "b", "B"},
    {"cas", "b", "A == B ? C : A"},
    {"inc", "u", "A >= B ? 0 : A + 1"},
    {"dec", "u", "A == 0 || A > B ? B : A - 1"},
};

/* atom.SPACE.OP.TYPE d, [a], b[, c]; red is the same without d. */
bool emit_atom(Emit *e) {
    bool has_result = !strcmp(e->inst->op, "atom"), cas = has_mod(e, "cas");
    TRY(need_operands(e, 2u + has_result + cas));
    if (e->inst->ntype != 1) return fail_inst(e, "one type was expected");
    PtxType type = e->inst->type[0];
    const Operand *address = &e->inst->operand[has_result];
    const char *value = NULL;
    for (size_t i = 0; i < sizeof atomics / sizeof *atomics; i++)
        if (has_mod(e, atomics[i].op) && strchr(atomics[i].kinds, ptx_types[type].kind))
            value = atomics[i].value;
    if (!value || ptx_types[type].bits < 32) return fail_inst(e, "unknown atomic operation");
    has_mod(e, "noftz");
    TRY(put_place(e, "atomic", type, 1, address));
    const char *c = ptx_types[type].c;
    if (ptx_types[type].kind == 'f')
        text_add(e->out, "%s A = ptx_%s(*m); ", c, ptx_types[type].name);
    else
        text_add(e->out, "%s A = (%s)*m; ", c, c);
    for (uint32_t i = 0; i < 1u + cas; i++) {
        text_add(e->out, "%s %c = ", c, (int)('B' + (int)i));
        TRY(put_operand(e, address + 1 + i, type));
        text_str(e->out, "; ");
    }
    if (!strncmp(value, "ptx_sum", 7))
        value = ptx_types[type].kind == 'f' ? "A + B" : "(int64_t)((uint64_t)A + (uint64_t)B)";
    if (ptx_types[type].kind == 'f')
        text_add(e->out, "*m = ptx_bits_%s(%s); ", ptx_types[type].name, value);
    else
        text_add(e->out, "*m = (%s)(%s); ", c, value);
    if (!has_result) return true;
    TRY(put_assign_begin(e, &e->inst->operand[0], type));
    text_char(e->out, 'A');
    put_assign_end(e);
    return true;
}
