/* merge.c - C texts that differ in numbers only become one text with expressions in their place.
 *
 * The texts are read in step, token by token: names, whole numbers, other numbers, single
 * characters. Equal tokens are copied. Whole numbers that differ become a polynomial, with its
 * sign; other numbers that differ are factors of means and become 1.0 / polynomial in the precision
 * that they were written in. Anything else that differs ends the attempt. */
#include "sizes.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { T_END, T_NAME, T_WHOLE, T_REAL, T_CHAR } Kind;

typedef struct {
    Kind kind;
    const char *at;
    size_t n;
} Token;

/* A sign belongs to a number where no operand stands before it. */
static bool is_sign(const char *start, const char *p) {
    if (*p != '-' || !isdigit((unsigned char)p[1])) return false;
    while (p > start && p[-1] == ' ') p--;
    return p == start || strchr("({[,=?:<>", p[-1]) != NULL;
}

static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static Token next_token(const char *start, const char *p) {
    Token t = {.kind = T_CHAR, .at = p, .n = 1};
    if (!*p) return (Token){.kind = T_END, .at = p};
    if (isalpha((unsigned char)*p) || *p == '_') {
        t.kind = T_NAME;
        while (is_name(p[t.n])) t.n++;
    } else if (isdigit((unsigned char)*p) || is_sign(start, p)) {
        t.kind = T_WHOLE;
        for (; is_name(p[t.n]) || p[t.n] == '.' ||
               ((p[t.n] == '-' || p[t.n] == '+') && p[t.n - 1] == 'e');
             t.n++)
            if (!isdigit((unsigned char)p[t.n])) t.kind = T_REAL;
    }
    return t;
}

typedef struct {
    Arena *a;
    const Sizes *s;
    Text *out;
    uint32_t used;
    Token *token; /* of each text */
    const char *why;
} Merge;

static bool all_equal(const Merge *m) {
    for (uint32_t i = 1; i < m->s->npoint; i++)
        if (m->token[i].n != m->token[0].n ||
            strncmp(m->token[i].at, m->token[0].at, m->token[0].n))
            return false;
    return true;
}

/* Does an operator stand beside the number, so that a sum needs parentheses? */
static bool in_product(const Merge *m) {
    const Token *t = &m->token[0];
    size_t n = m->out->n;
    while (n && m->out->at[n - 1] == ' ') n--;
    const char *after = t->at + t->n + strspn(t->at + t->n, " ");
    return (n && strchr("*/%+-", m->out->at[n - 1])) || (*after && strchr("*/%", *after));
}

static void put_polynomial(Merge *m, const SizePoly *p, bool closed) {
    if (closed) text_char(m->out, '(');
    sizes_print(m->out, m->s, p);
    if (closed) text_char(m->out, ')');
    m->used |= sizes_symbols(m->s, p);
}

static bool merge_whole(Merge *m) {
    int64_t v[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    SizePoly p;
    for (uint32_t i = 0; i < m->s->npoint; i++) {
        if (m->token[i].kind != T_WHOLE) return false;
        v[i] = strtoll(m->token[i].at, NULL, 10);
    }
    if (!sizes_fit_checked(m->s, v, &p)) return false;
    put_polynomial(m, &p, in_product(m));
    return true;
}

/* The number that is written as 1/q. */
static bool inverse_of(const Token *t, int64_t *q, bool *single) {
    char *end;
    double v = strtod(t->at, &end), r = 1 / v;
    *single = *end == 'f';
    if (end + *single != t->at + t->n || !(fabs(r) < 0x1p53) || r == 0) return false;
    *q = llround(r);
    if (*q == 0) return false;
    double again = 1 / (double)*q;
    return *single ? (float)again == (float)v : again == v;
}

static bool merge_real(Merge *m) {
    int64_t q[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    SizePoly p;
    bool single, first = false;
    for (uint32_t i = 0; i < m->s->npoint; i++) {
        /* 1.0 / 1 is printed without a fraction, but as a real number */
        if (m->token[i].kind != T_REAL || !inverse_of(&m->token[i], &q[i], &single)) return false;
        if (i == 0) first = single;
        if (single != first) return false;
    }
    if (!sizes_fit_checked(m->s, q, &p)) return false;
    text_str(m->out, first ? "(float)(1.0 / (double)" : "(1.0 / (double)");
    put_polynomial(m, &p, true);
    text_char(m->out, ')');
    return true;
}

static bool merge_tokens(Merge *m) {
    if (all_equal(m)) {
        text_add(m->out, "%.*s", (int)m->token[0].n, m->token[0].at);
        return true;
    }
    if (merge_whole(m) || merge_real(m)) return true;
    m->why = arena_printf(m->a, "'%.*s' in its code becomes '%.*s', which is no polynomial of it",
                          (int)(m->token[0].n < 30 ? m->token[0].n : 30), m->token[0].at,
                          (int)(m->token[1].n < 30 ? m->token[1].n : 30), m->token[1].at);
    return false;
}

bool sizes_merge(Arena *a, const Sizes *s, const char *const *text, Text *out, uint32_t *used,
                 const char **why) {
    Token token[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    Merge m = {.a = a, .s = s, .out = out, .token = token};
    for (uint32_t i = 0; i < s->npoint; i++) token[i] = (Token){.at = text[i]};
    bool ok = true;
    do {
        for (uint32_t i = 0; i < s->npoint; i++)
            token[i] = next_token(text[i], token[i].at + token[i].n);
        ok = merge_tokens(&m);
    } while (ok && token[0].kind != T_END);
    *used |= m.used;
    *why = m.why;
    return ok;
}
