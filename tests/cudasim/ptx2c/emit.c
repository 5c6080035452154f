/* emit.c - the frame of the C file: variables, layout of shared and local memory and parameters,
 * the functions with their registers, the tables. Every body is written once; the file includes
 * itself for each kind of body (PTX_CHECK 0, 1) that SIMT_BODIES asks for. */
#include "ptx.h"

#include <string.h>

static uint64_t place(uint64_t *end, Variable *v) {
    *end = round_up(*end, v->align ? v->align : 1);
    v->offset = *end;
    *end += v->bytes;
    return v->offset;
}

typedef VEC(const Variable *) Arrays;

static void place_shared(PtxModule *m, Variables *vars, uint64_t *end, Arrays *arrays) {
    for (uint32_t i = 0; i < vars->n; i++) {
        Variable *v = &vars->at[i];
        if (v->space != SP_SHARED || v->external) continue;
        place(end, v);
        VEC_PUSH(m->arena, *arrays, v);
        v->number = arrays->n;
    }
}

/* Shared memory of the module and of device functions lies before that of a kernel, at the same
 * place in all kernels. */
static uint64_t place_module(PtxModule *m, Arrays *arrays) {
    uint64_t shared = 0;
    place_shared(m, &m->vars, &shared, arrays);
    for (uint32_t i = 0; i < m->functions.n; i++)
        if (!m->functions.at[i].entry) place_shared(m, &m->functions.at[i].vars, &shared, arrays);
    return shared;
}

static uint64_t place_space(Function *f, PtxSpace space, uint64_t end) {
    for (uint32_t k = 0; k < f->vars.n; k++)
        if (f->vars.at[k].space == space) place(&end, &f->vars.at[k]);
    return end;
}

/* A function that calls one with barriers has barriers. */
static void mark_collective(PtxModule *m) {
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < m->functions.n; i++) {
            Function *f = &m->functions.at[i];
            for (uint32_t k = 0; k < f->body.n && !f->collective; k++) {
                const Inst *in = &f->body.at[k];
                for (uint32_t o = 0; in->op && !strcmp(in->op, "call") && o < in->noperand; o++) {
                    if (in->operand[o].kind != OPD_SYMBOL) continue;
                    const Function *to = find_function(m, in->operand[o].name);
                    if (to && to->collective) f->collective = changed = true;
                }
            }
        }
    }
}

static void put_variables(PtxModule *m, Text *out) {
    for (uint32_t i = 0; i < m->vars.n; i++) {
        Variable *v = &m->vars.at[i];
        if (v->space == SP_SHARED) continue;
        text_add(out, "static uint8_t v_");
        put_name(out, v->name, 0);
        text_add(out, "[%llu] __attribute__((aligned(%u)))", (unsigned long long)v->bytes,
                 v->align < 16 ? 16 : v->align);
        for (uint64_t b = 0; v->init && b < v->bytes; b++)
            text_add(out, "%s%u", b ? "," : " = {", v->init[b]);
        text_str(out, v->init ? "};\n" : ";\n");
    }
}

/* void PTX_BODY(NAME)(SimtThread *T, uint8_t *RESULT, uint8_t *PARAM...) */
static void put_signature(const Function *f, Text *out) {
    text_str(out, "static void PTX_BODY(");
    put_name(out, f->name, 0);
    text_str(out, ")(SimtThread *T");
    if (!f->entry) {
        for (uint32_t i = 0; i < f->results.n + f->params.n; i++) {
            text_str(out, ", uint8_t *");
            put_name(out,
                     i < f->results.n ? f->results.at[i].name : f->params.at[i - f->results.n].name,
                     0);
        }
    }
    text_str(out, ")");
}

static void put_declarations(const Function *f, uint64_t local, Text *out) {
    if (f->entry) text_str(out, "    const uint8_t *P = T->params;\n");
    if (local)
        text_add(out, "    uint8_t local[%llu] __attribute__((aligned(16)));\n",
                 (unsigned long long)local);
    text_str(out, "    uint32_t CC = 0;\n");
    for (uint32_t i = 0; i < f->regs.n; i++) {
        const Register *r = &f->regs.at[i];
        bool more = i % 8 && f->regs.at[i - 1].type == r->type; /* eight a line */
        text_add(out, "%s%s ",
                 more ? ","
                 : i  ? ";\n    "
                      : "    ",
                 more ? "" : ptx_types[r->type].storage);
        put_name(out, r->name, r->scope);
        text_str(out, " = 0");
    }
    if (f->regs.n) text_str(out, ";\n");
    for (uint32_t i = 0; i < f->vars.n; i++) {
        const Variable *v = &f->vars.at[i];
        if (v->space != SP_PARAM) continue;
        text_str(out, "    uint8_t ");
        put_name(out, v->name, v->scope);
        text_add(out, "[%llu] __attribute__((aligned(16)));\n", (unsigned long long)v->bytes);
    }
}

static bool put_function(PtxModule *m, Function *f, uint64_t local, Text *out) {
    put_signature(f, out);
    text_str(out, " {\n");
    put_declarations(f, local, out);
    Emit e = {.m = m, .f = f, .out = out};
    for (uint32_t i = 0; i < f->body.n; i++) {
        e.inst = &f->body.at[i];
        TRY(emit_instruction(&e));
    }
    text_str(out, "    return;\n}\n\n");
    return true;
}

static bool put_bodies(PtxModule *m, const uint64_t *local, Text *out) {
    text_str(out, "#else /* the bodies, for one value of PTX_CHECK */\n\n");
    for (uint32_t i = 0; i < m->functions.n; i++) {
        const Function *f = &m->functions.at[i];
        if (!f->has_body) continue;
        put_signature(f, out);
        text_str(out, ";\n");
    }
    text_str(out, "\n");
    for (uint32_t i = 0; i < m->functions.n; i++)
        if (m->functions.at[i].has_body) TRY(put_function(m, &m->functions.at[i], local[i], out));
    text_str(out, "#endif\n");
    return true;
}

static void put_params(PtxModule *m, Text *out) {
    for (uint32_t i = 0; i < m->functions.n; i++) {
        const Function *f = &m->functions.at[i];
        if (!f->entry || !f->params.n) continue;
        text_str(out, "static const SimtParam p_");
        put_name(out, f->name, 0);
        text_str(out, "[] = {");
        for (uint32_t k = 0; k < f->params.n; k++) {
            const Variable *v = &f->params.at[k];
            text_add(out, "{%llu, %llu, %u}, ", (unsigned long long)v->offset,
                     (unsigned long long)v->bytes, v->align);
        }
        text_str(out, "};\n");
    }
}

static void put_arrays(const Function *f, const Arrays *arrays, Text *out) {
    if (!arrays->n) return;
    text_str(out, "static const SimtShared s_");
    put_name(out, f->name, 0);
    text_str(out, "[] = {");
    for (uint32_t i = 0; i < arrays->n; i++) {
        text_str(out, "{");
        text_quote(out, arrays->at[i]->name);
        text_add(out, ", %llu, %llu}, ", (unsigned long long)arrays->at[i]->offset,
                 (unsigned long long)arrays->at[i]->bytes);
    }
    text_str(out, "};\n");
}

static void put_kernel(const Function *f, uint64_t shared, uint32_t arrays, uint64_t local,
                       Text *out) {
    const Variable *last = f->params.n ? &f->params.at[f->params.n - 1] : NULL;
    text_str(out, "    {.name = ");
    text_quote(out, f->name);
    if (last) {
        text_str(out, ", .params = p_");
        put_name(out, f->name, 0);
    }
    text_add(out, ", .nparams = %u, .param_bytes = %llu", f->params.n,
             last ? (unsigned long long)(last->offset + last->bytes) : 0);
    text_add(out, ", .static_shared = %llu, .dynamic_offset = %llu", (unsigned long long)shared,
             (unsigned long long)round_up(shared, 16));
    if (arrays) {
        text_str(out, ", .shared = s_");
        put_name(out, f->name, 0);
    }
    text_add(out, ", .nshared = %u", arrays);
    text_add(out, ", .local_bytes = %llu, .max_threads = %u, .collective = %d",
             (unsigned long long)local, f->max_threads, f->collective);
    text_str(out, ", .module = &simt_module, .fast = PTX_FAST(");
    put_name(out, f->name, 0);
    text_str(out, "), .checked = PTX_CHECKED(");
    put_name(out, f->name, 0);
    text_str(out, ")},\n");
}

static void put_module(PtxModule *m, uint32_t kernels, Text *out) {
    uint32_t variables = 0;
    for (uint32_t i = 0; i < m->vars.n; i++) {
        const Variable *v = &m->vars.at[i];
        if (v->space == SP_SHARED) continue;
        text_str(out, variables++ ? "    {" : "static const SimtVariable variables[] = {\n    {");
        text_quote(out, v->name);
        text_str(out, ", v_");
        put_name(out, v->name, 0);
        text_add(out, ", %llu, %d},\n", (unsigned long long)v->bytes, v->space == SP_CONST);
    }
    if (variables) text_str(out, "};\n");
    text_str(out, "const SimtModule simt_module = {.target = ");
    text_quote(out, m->target ? m->target : "");
    text_add(out, ", .kernels = %s, .nkernels = %u, .variables = %s, .nvariables = %u};\n\n",
             kernels ? "kernels" : "0", kernels, variables ? "variables" : "0", variables);
}

static void put_tables(PtxModule *m, uint64_t module_shared, const Arrays *arrays,
                       const uint64_t *local, Text *out) {
    uint32_t kernels = 0, module_arrays = arrays->n;
    uint64_t called = 0; /* frames of all device functions: there is no recursion */
    Text table;
    text_init(&table, m->arena);
    for (uint32_t i = 0; i < m->functions.n; i++)
        if (!m->functions.at[i].entry) called += local[i] + 256;
    put_params(m, out);
    Arrays all = *arrays;
    for (uint32_t i = 0; i < m->functions.n; i++) {
        Function *f = &m->functions.at[i];
        if (!f->entry) continue;
        uint64_t shared = module_shared;
        all.n = module_arrays; /* those of the kernel before are gone */
        place_shared(m, &f->vars, &shared, &all);
        put_arrays(f, &all, out);
        put_kernel(f, shared, all.n, local[i] + called, &table);
        kernels++;
    }
    if (kernels) text_add(out, "static const SimtKernel kernels[] = {\n%s};\n", table.at);
    put_module(m, kernels, out);
}

bool ptx_emit(PtxModule *m, Text *out) {
    Arrays arrays = {0};
    uint64_t module_shared = place_module(m, &arrays);
    uint64_t *local = ARENA_ARRAY(m->arena, uint64_t, m->functions.n + 1);
    mark_collective(m);
    for (uint32_t i = 0; i < m->functions.n; i++) {
        Function *f = &m->functions.at[i];
        uint64_t params = 0;
        for (uint32_t k = 0; k < f->params.n; k++) place(&params, &f->params.at[k]);
        local[i] = place_space(f, SP_LOCAL, 0);
        if (f->entry && !f->has_body) return ptx_fail(m, f->line, "%s has no body", f->name);
    }
    text_str(out, "/* Made by ptx2c. Numbers in comments: lines of the PTX text. */\n"
                  "#ifndef PTX_CHECK\n#include \"simt_device.h\"\n\n");
    put_variables(m, out);
    text_str(
        out,
        "#if SIMT_BODIES & 1\n#define PTX_CHECK 0\n#define PTX_BODY(name) fast_##name\n"
        "#define PTX_FAST(name) fast_##name\n#include __FILE__\n#undef PTX_CHECK\n#undef PTX_BODY\n"
        "#else\n#define PTX_FAST(name) 0\n#endif\n"
        "#if SIMT_BODIES & 2\n#define PTX_CHECK 1\n#define PTX_BODY(name) checked_##name\n"
        "#define PTX_CHECKED(name) checked_##name\n#include __FILE__\n#undef PTX_CHECK\n"
        "#undef PTX_BODY\n#else\n#define PTX_CHECKED(name) 0\n#endif\n\n"
        "extern const SimtModule simt_module;\n");
    put_tables(m, module_shared, &arrays, local, out);
    return put_bodies(m, local, out);
}

bool ptx2c(Arena *arena, const char *ptx, Text *out, char *message, size_t size) {
    PtxModule m = {.arena = arena, .message = message, .message_size = size};
    if (size) message[0] = 0;
    return ptx_parse(&m, ptx) && ptx_emit(&m, out);
}
