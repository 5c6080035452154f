/* emit_control.c - jumps, calls, barriers and what the lanes of a warp do together. */
#include "ptx.h"

#include <string.h>

bool emit_bra(Emit *e) {
    has_mod(e, "uni");
    TRY(need_operands(e, 1));
    const Operand *o = &e->inst->operand[0];
    const Inst *label = o->name ? find_label(e->f, e->inst->scope, o->name) : NULL;
    if (!label) return fail_inst(e, "no such label");
    if (label <= e->inst) text_add(e->out, "ptx_jump_back(T, PTX_CHECK, %u); ", e->inst->line);
    text_str(e->out, "goto ");
    put_name(e->out, label->label, label->scope);
    text_char(e->out, ';');
    return true;
}

bool emit_ret(Emit *e) {
    has_mod(e, "uni");
    TRY(need_operands(e, 0));
    if (!strcmp(e->inst->op, "exit") && !e->f->entry)
        return fail_inst(e, "exit from a device function");
    text_str(e->out, "return;");
    return true;
}

bool emit_trap(Emit *e) {
    text_add(e->out, "T->calls->trap(T, %u); return;", e->inst->line);
    return true;
}

static bool put_arguments(Emit *e, const Operand *list) {
    for (uint32_t i = 0; i < list->nitem; i++) {
        const Operand *o = &list->item[i];
        if (o->kind != OPD_SYMBOL) return fail_inst(e, "arguments of calls are .param variables");
        text_str(e->out, ", (uint8_t *)");
        TRY(put_symbol_address(e, o->name));
    }
    return true;
}

/* call[.uni] [(results),] function[, (arguments)] */
bool emit_call(Emit *e) {
    has_mod(e, "uni");
    const Inst *in = e->inst;
    uint32_t at = in->noperand && in->operand[0].kind == OPD_LIST;
    const Operand *results = at ? &in->operand[0] : NULL, *arguments = NULL;
    if (at >= in->noperand || in->operand[at].kind != OPD_SYMBOL)
        return fail_inst(e, "calls through pointers are not known");
    const char *name = in->operand[at].name;
    if (at + 1 < in->noperand) arguments = &in->operand[at + 1];
    if (at + 2 < in->noperand || (arguments && arguments->kind != OPD_LIST))
        return fail_inst(e, "unexpected operands");
    if (!strcmp(name, "__assertfail")) return emit_trap(e);
    const Function *to = find_function(e->m, name);
    if (!to || !to->has_body)
        return fail_inst(e, arena_printf(e->m->arena, "%s is not in this module", name));
    if (to->params.n != (arguments ? arguments->nitem : 0) ||
        to->results.n != (results ? results->nitem : 0))
        return fail_inst(e, "another number of arguments than parameters");
    text_str(e->out, "PTX_BODY(");
    put_name(e->out, to->name, 0);
    text_str(e->out, ")(T");
    if (results) TRY(put_arguments(e, results));
    if (arguments) TRY(put_arguments(e, arguments));
    text_str(e->out, ");");
    return true;
}

static bool is_zero(const Operand *o) {
    return o->kind == OPD_INT && o->bits == 0;
}

/* bar.sync 0; bar.warp.sync MASK; bar.red.OP.TYPE d, 0, [!]p */
bool emit_bar(Emit *e) {
    const Operand *o = e->inst->operand;
    has_mod(e, "cta");
    has_mod(e, "aligned");
    if (has_mod(e, "warp")) {
        TRY(need_operands(e, 1));
        if (!has_mod(e, "sync")) return fail_inst(e, "unknown kind of barrier");
        text_str(e->out, "T->calls->warp_sync(T, ");
        TRY(put_operand(e, &o[0], TY_U32));
        text_add(e->out, ", %u);", e->inst->line);
        return true;
    }
    if (has_mod(e, "sync")) {
        TRY(need_operands(e, 1));
        if (!is_zero(&o[0])) return fail_inst(e, "only barrier 0 of all threads is known");
        text_add(e->out, "T->calls->barrier(T, false, %u);", e->inst->line);
        return true;
    }
    if (!has_mod(e, "red") || e->inst->ntype != 1) return fail_inst(e, "unknown kind of barrier");
    TRY(need_operands(e, 3));
    if (!is_zero(&o[1])) return fail_inst(e, "only barrier 0 of all threads is known");
    bool popc = has_mod(e, "popc"), all = has_mod(e, "and");
    if (!popc && !all && !has_mod(e, "or")) return fail_inst(e, "unknown reduction");
    TRY(put_assign_begin(e, &o[0], e->inst->type[0]));
    text_str(e->out, "T->calls->barrier(T, ");
    TRY(put_operand(e, &o[2], TY_PRED));
    text_add(e->out, ", %u)", e->inst->line);
    text_str(e->out, popc ? "" : all ? " == T->block_threads" : " != 0");
    put_assign_end(e);
    return true;
}

/* shfl.sync.MODE.b32 d[|p], a, b, c, mask */
bool emit_shfl(Emit *e) {
    static const char *const modes[][2] = {
        {"up", "PTX_UP"}, {"down", "PTX_DOWN"}, {"bfly", "PTX_BFLY"}, {"idx", "PTX_IDX"}};
    const char *mode = NULL;
    for (size_t i = 0; i < 4; i++)
        if (has_mod(e, modes[i][0])) mode = modes[i][1];
    TRY(need_operands(e, 5));
    const Operand *o = e->inst->operand;
    if (!has_mod(e, "sync") || !mode || e->inst->ntype != 1 || e->inst->type[0] != TY_B32)
        return fail_inst(e, "unknown kind of shuffle");
    text_add(e->out, "bool inside; uint32_t got = T->calls->shuffle(T, %s", mode);
    for (uint32_t i = 1; i < 5; i++) {
        text_str(e->out, ", ");
        TRY(put_operand(e, &o[i], TY_U32));
    }
    text_add(e->out, ", %u, &inside); ", e->inst->line);
    TRY(put_assign_begin(e, &o[0], TY_U32));
    text_str(e->out, "got");
    put_assign_end(e);
    if (!o[0].second) return true;
    TRY(put_assign_begin(e, o[0].second, TY_PRED));
    text_str(e->out, "inside");
    put_assign_end(e);
    return true;
}

/* vote.sync.{ballot.b32,all.pred,any.pred,uni.pred} d, [!]p, mask */
bool emit_vote(Emit *e) {
    TRY(need_operands(e, 3));
    const Operand *o = e->inst->operand;
    bool all = has_mod(e, "all"), any = has_mod(e, "any"), ballot = has_mod(e, "ballot");
    if (!has_mod(e, "sync") || all + any + ballot != 1 || e->inst->ntype != 1)
        return fail_inst(e, "unknown kind of vote");
    text_str(e->out, "uint32_t mask = ");
    TRY(put_operand(e, &o[2], TY_U32));
    text_str(e->out, ", voters, votes = T->calls->ballot(T, ");
    TRY(put_operand(e, &o[1], TY_PRED));
    text_add(e->out, ", mask, %u, &voters); ", e->inst->line);
    PtxType type = ballot ? TY_B32 : TY_PRED;
    TRY(put_assign_begin(e, &o[0], type));
    text_str(e->out, all ? "votes == voters" : any ? "votes != 0" : "votes");
    put_assign_end(e);
    return true;
}

/* redux.sync.OP.TYPE d, a, mask */
bool emit_redux(Emit *e) {
    static const char *const names[] = {"add", "min", "max", "and", "or", "xor"};
    TRY(need_operands(e, 3));
    const Operand *o = e->inst->operand;
    const char *op = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_mod(e, names[i])) op = names[i];
    if (!has_mod(e, "sync") || !op || e->inst->ntype != 1 ||
        ptx_types[e->inst->type[0]].bits != 32 || ptx_types[e->inst->type[0]].kind == 'f')
        return fail_inst(e, "unknown kind of reduction");
    TRY(put_assign_begin(e, &o[0], TY_U32));
    text_add(e->out, "T->calls->reduce(T, PTX_R%s, %d, ", op,
             ptx_types[e->inst->type[0]].kind == 's');
    TRY(put_operand(e, &o[1], TY_U32));
    text_str(e->out, ", ");
    TRY(put_operand(e, &o[2], TY_U32));
    text_add(e->out, ", %u)", e->inst->line);
    put_assign_end(e);
    return true;
}
