/* lex.c - text to words, one ahead. The text is the user's: every fault is reported with its line.
 */
#include "lex.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool lex_error(Lex *l, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *msg = arena_vprintf(l->d->arena, fmt, ap);
    va_end(ap);
    return diag_error(l->d, (Place){.file = l->file}, "line %u: %s", l->line, msg);
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void skip_space(Lex *l) {
    for (;; l->at++) {
        if (*l->at == '#')
            while (*l->at && *l->at != '\n') l->at++;
        if (*l->at == '\n')
            l->line++;
        else if (*l->at != ' ' && *l->at != '\t' && *l->at != '\r')
            return;
    }
}

static void lex_word(Lex *l) {
    const char *from = l->at;
    while (is_letter(*l->at) || is_digit(*l->at)) l->at++;
    l->word = arena_strn(l->arena, from, (size_t)(l->at - from));
    l->kind = TOK_WORD;
    if (!strcmp(l->word, "inf") || !strcmp(l->word, "nan")) {
        l->kind = TOK_FLOAT;
        l->f = l->word[0] == 'i' ? (double)INFINITY : (double)NAN;
    }
}

/* Copies the characters of a number, so that strtod cannot read anything else (hex, nan(..)). */
static bool lex_number(Lex *l) {
    const char *from = l->at;
    bool is_float = false;
    if (*l->at == '-') l->at++;
    for (; *l->at; l->at++) {
        char c = *l->at;
        bool sign = (c == '-' || c == '+') && (l->at[-1] == 'e' || l->at[-1] == 'E');
        if (c == '.' || c == 'e' || c == 'E')
            is_float = true;
        else if (!is_digit(c) && !sign)
            break;
    }
    char *s = arena_strn(l->arena, from, (size_t)(l->at - from)), *end;
    errno = 0;
    l->kind = is_float ? TOK_FLOAT : TOK_INT;
    if (is_float) {
        l->f = strtod(s, &end);
    } else {
        l->i = strtoll(s, &end, 10);
        l->f = (double)l->i;
        if (errno) return lex_error(l, "number %s is too large", diag_name(l->arena, s));
    }
    if (*end) return lex_error(l, "expected a number, found '%s'", diag_name(l->arena, s));
    return true;
}

static bool lex_string(Lex *l) {
    Text t;
    text_init(&t, l->arena);
    text_str(&t, "");
    for (l->at++; *l->at != '"'; l->at++) {
        char c = *l->at;
        if (c == 0 || c == '\n') return lex_error(l, "expected the end of a string");
        if (c == '\\') {
            c = *++l->at;
            if (c >= '0' && c <= '3') {
                int v = 0;
                for (int i = 0; i < 3; i++, l->at++) {
                    if (*l->at < '0' || *l->at > '7')
                        return lex_error(l, "expected three octal digits after \\ in a string");
                    v = v * 8 + (*l->at - '0');
                }
                l->at--;
                if (v == 0) return lex_error(l, "a string cannot hold a zero byte");
                c = (char)(unsigned char)v;
            } else if (c != '"' && c != '\\' && c != '?') {
                return lex_error(l, "unknown escape in a string");
            }
        }
        text_char(&t, c);
    }
    l->at++;
    l->kind = TOK_STRING;
    l->word = t.at;
    return true;
}

bool lex_next(Lex *l) {
    skip_space(l);
    char c = *l->at;
    if (c == 0) {
        l->kind = TOK_END;
        return true;
    }
    if (is_letter(c)) {
        lex_word(l);
        return true;
    }
    if (c == '-' && !strncmp(l->at, "-inf", 4)) {
        l->at += 4;
        l->kind = TOK_FLOAT;
        l->f = -(double)INFINITY;
        return true;
    }
    if (is_digit(c) || (c == '-' && is_digit(l->at[1]))) return lex_number(l);
    if (c == '"') return lex_string(l);
    if (c == '%') {
        l->at++;
        if (!is_digit(*l->at)) return lex_error(l, "expected a number after %%");
        TRY(lex_number(l));
        if (l->kind != TOK_INT) return lex_error(l, "expected a whole number after %%");
        l->kind = TOK_VALUE;
        return true;
    }
    if (!strchr("=()[]{},.-", c)) {
        char bad[2] = {c, 0};
        return lex_error(l, "unexpected character '%s'", diag_name(l->arena, bad));
    }
    l->at++;
    l->kind = TOK_PUNCT;
    l->punct = c;
    return true;
}

bool lex_init(Lex *l, Arena *a, Diag *d, const char *file, const char *text) {
    *l = (Lex){.arena = a, .d = d, .file = file, .at = text, .line = 1};
    return lex_next(l);
}

static const char *describe(const Lex *l) {
    switch (l->kind) {
    case TOK_END: return "the end of the text";
    case TOK_WORD: return arena_printf(l->arena, "'%s'", diag_name(l->arena, l->word));
    case TOK_STRING: return arena_printf(l->arena, "string '%s'", diag_name(l->arena, l->word));
    case TOK_VALUE: return arena_printf(l->arena, "%%%lld", (long long)l->i);
    case TOK_INT: return arena_printf(l->arena, "%lld", (long long)l->i);
    case TOK_FLOAT: return arena_printf(l->arena, "%g", l->f);
    default: return arena_printf(l->arena, "'%c'", l->punct);
    }
}

bool lex_expected(Lex *l, const char *what) {
    return lex_error(l, "expected %s, found %s", what, describe(l));
}

bool lex_is(const Lex *l, char punct) {
    return l->kind == TOK_PUNCT && l->punct == punct;
}

bool lex_is_word(const Lex *l, const char *word) {
    return l->kind == TOK_WORD && !strcmp(l->word, word);
}

bool lex_take(Lex *l, char punct, bool *took) {
    *took = lex_is(l, punct);
    return !*took || lex_next(l);
}

bool lex_need(Lex *l, char punct) {
    char what[4] = {'\'', punct, '\'', 0};
    return lex_is(l, punct) ? lex_next(l) : lex_expected(l, what);
}

bool lex_need_string(Lex *l, const char **out) {
    if (l->kind != TOK_STRING) return lex_expected(l, "a string");
    *out = l->word;
    return lex_next(l);
}

bool lex_need_u32(Lex *l, uint32_t max, uint32_t *out) {
    if (l->kind != TOK_INT || l->i < 0 || l->i > (int64_t)max)
        return lex_expected(l, arena_printf(l->arena, "a number in 0..%u", max));
    *out = (uint32_t)l->i;
    return lex_next(l);
}
