/* names.c - what a name means at a place: scopes from the inside out, then parameters, then the
 * module. Names are made C identifiers by their scope, so that hidden ones stay apart. */
#include "ptx.h"

#include <ctype.h>
#include <string.h>

const Register *find_register(const Function *f, uint32_t scope, const char *name) {
    char key[300];
    for (uint32_t s = scope; s; s = f->parent.at[s]) {
        if (snprintf(key, sizeof key, "%u %s", s, name) >= (int)sizeof key) return NULL;
        uint32_t i = map_get(f->reg_index, key);
        if (i != NO_ID) return &f->regs.at[i];
    }
    return NULL;
}

static const Variable *among(const Variables *vars, uint32_t scope, const char *name) {
    for (uint32_t i = vars->n; i-- > 0;)
        if (vars->at[i].scope == scope && !strcmp(vars->at[i].name, name)) return &vars->at[i];
    return NULL;
}

const Variable *find_variable(const PtxModule *m, const Function *f, uint32_t scope,
                              const char *name) {
    const Variable *v = NULL;
    for (uint32_t s = scope; s && !v; s = f->parent.at[s]) v = among(&f->vars, s, name);
    if (!v) v = among(&f->params, 0, name);
    if (!v) v = among(&f->results, 0, name);
    return v ? v : among(&m->vars, 0, name);
}

const Inst *find_label(const Function *f, uint32_t scope, const char *name) {
    for (uint32_t s = scope; s; s = f->parent.at[s])
        for (uint32_t i = 0; i < f->body.n; i++) {
            const Inst *in = &f->body.at[i];
            if (in->label && in->scope == s && !strcmp(in->label, name)) return in;
        }
    return NULL;
}

const Function *find_function(const PtxModule *m, const char *name) {
    for (uint32_t i = 0; i < m->functions.n; i++)
        if (!strcmp(m->functions.at[i].name, name)) return &m->functions.at[i];
    return NULL;
}

/* %r1 -> r1, $L__BB0_1 -> S_L__BB0_1, a name without a percent sign -> n_NAME; of an inner scope 4:
 * s4_... after it. C keywords and our own names do not begin like this, r1 cannot be one. */
void put_name(Text *out, const char *name, uint32_t scope) {
    bool reg = name[0] == '%' && isdigit((unsigned char)name[strlen(name) - 1]);
    text_str(out, name[0] == '$' ? "L" : reg ? "" : "n_");
    for (const char *c = name; *c; c++)
        if (*c != '%' && *c != '$') text_char(out, *c == '.' ? '_' : *c);
    if (scope > 1) text_add(out, "_s%u", scope);
}
