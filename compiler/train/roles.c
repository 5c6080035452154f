/* roles.c - which weights are trained: --freeze and --train globs on ONNX names, in the order
 * given, a later one wins. Only weights (trained or frozen) change; running statistics and
 * constants are not trained anyway, so that freezing them by name is no mistake and no change. */
#include "train.h"

#include <fnmatch.h>

static bool is_weight(const Value *v) {
    return v->role == ROLE_PARAM || v->role == ROLE_FROZEN;
}

static bool no_match(const Graph *g, Diag *d, const RoleRule *r) {
    Place p = {.file = g->file};
    uint32_t shown = 0;
    diag_error(d, p, "%s '%s' matches none of the weights", r->train ? "--train" : "--freeze",
               diag_name(d->arena, r->glob));
    for (ValueId v = 0; v < g->nvalue && shown < 3; v++)
        if (is_weight(&g->value[v])) {
            diag_hint(d, "a weight is named '%s'", diag_name(d->arena, g->value[v].name));
            shown++;
        }
    return false;
}

bool train_roles(Graph *g, Diag *d, const RoleRule *rules, uint32_t n) {
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t hits = 0;
        for (ValueId v = 0; v < g->nvalue; v++) {
            Value *x = &g->value[v];
            bool fixed = x->role == ROLE_BUFFER || x->role == ROLE_CONST;
            if (!is_weight(x) && !(fixed && !rules[i].train)) continue;
            if (fnmatch(rules[i].glob, x->name, 0)) continue;
            if (!fixed) x->role = rules[i].train ? ROLE_PARAM : ROLE_FROZEN;
            hits++;
        }
        if (!hits) ok = no_match(g, d, &rules[i]);
    }
    return ok;
}
