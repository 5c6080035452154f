/* expr.c - expressions of the operator table as C over the names of one kernel.
 *
 * The table writes each elementwise operator as an expression in a, b, c, ... and p0, p1, ...; a
 * small scanner replaces these identifiers and copies everything else, numbers included. */
#include "gen.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

const char *cg_ctype(DType d) {
    switch (d) {
    case DT_F32: return "float";
    case DT_F64: return "double";
    case DT_I64: return "int64_t";
    case DT_I32: return "int32_t";
    default: return "uint8_t";
    }
}

const char *cg_number(Arena *a, double v, bool is_float) {
    const char *suffix = is_float ? "f" : "";
    if (is_float) v = (double)(float)v;
    if (isnan(v)) return "NAN";
    if (isinf(v)) return v > 0 ? "INFINITY" : "-INFINITY";
    const char *s = arena_printf(a, is_float ? "%.9g" : "%.17g", v);
    return arena_printf(a, strpbrk(s, ".e") ? "%s%s" : "%s.0%s", s, suffix);
}

/* Functions with a version that vectorises and has the same bits in a lane as alone. */
static bool in_vecmath(const char *id, size_t n) {
    static const char *const name[] = {"expf", "logf", "log1pf", "tanhf", "erff"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (strlen(name[i]) == n && !memcmp(name[i], id, n)) return true;
    return false;
}

static void put_identifier(Text *t, const char *id, size_t n, const ExprNames *e) {
    char c = id[0];
    if (n == 1 && c >= 'a' && c < 'a' + (int)e->narg) {
        text_str(t, e->arg[c - 'a']);
    } else if (n == 2 && c == 'p' && id[1] >= '0' && id[1] <= '2') {
        text_str(t, e->p[id[1] - '0']);
    } else if (n == 2 && c == 's' && e->sum && id[1] >= '0' && id[1] <= '2') {
        text_str(t, e->sum[id[1] - '0']);
    } else if (n == 1 && c == 'n' && e->rows) {
        text_str(t, e->rows);
    } else if (n == 5 && !memcmp(id, "index", 5)) {
        text_str(t, e->index);
    } else if (n == 3 && !memcmp(id, "key", 3)) {
        text_str(t, e->key);
    } else {
        text_add(t, "%s%.*s", in_vecmath(id, n) ? "dtrt_" : "", (int)n, id);
    }
}

void cg_expr(Text *t, const char *expr, const ExprNames *e) {
    for (const char *p = expr; *p;) {
        size_t n = 1;
        if (isdigit((unsigned char)*p)) { /* 1, 0.5f, 1e-5f, 0x1f */
            while (isalnum((unsigned char)p[n]) || p[n] == '.' ||
                   ((p[n] == '-' || p[n] == '+') && p[n - 1] == 'e'))
                n++;
            text_add(t, "%.*s", (int)n, p);
        } else if (isalpha((unsigned char)*p) || *p == '_') {
            while (isalnum((unsigned char)p[n]) || p[n] == '_') n++;
            put_identifier(t, p, n, e);
        } else {
            text_char(t, *p);
        }
        p += n;
    }
}
