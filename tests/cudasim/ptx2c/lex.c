/* lex.c - PTX text -> tokens. Words hold dots, dollars and percent signs ("ld.global.f32",
 * "%tid.x", "$L__BB0_1", ".reg"): PTX has no blanks inside them. Comments are skipped. */
#include "ptx.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool ptx_fail(PtxModule *m, uint32_t line, const char *fmt, ...) {
    if (m->failed) return false;
    m->failed = true;
    va_list ap;
    va_start(ap, fmt);
    char *what = arena_vprintf(m->arena, fmt, ap);
    va_end(ap);
    snprintf(m->message, m->message_size, "line %u: %s", line, what);
    return false;
}

static bool is_word_char(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static void skip_blanks(Lexer *l) {
    for (;;) {
        if (*l->at == '\n') l->line++;
        if (isspace((unsigned char)*l->at)) {
            l->at++;
        } else if (l->at[0] == '/' && l->at[1] == '/') {
            while (*l->at && *l->at != '\n') l->at++;
        } else if (l->at[0] == '/' && l->at[1] == '*') {
            l->at += 2;
            while (*l->at && !(l->at[0] == '*' && l->at[1] == '/')) l->line += *l->at++ == '\n';
            if (*l->at) l->at += 2;
        } else {
            return;
        }
    }
}

/* 12, -12, 0x1F, 7U, 0f3F800000 (bits of a float), 0d3FF0000000000000 (of a double),
 * 9.0 (a version). */
static void lex_digits(Lexer *l) {
    Token *t = &l->token;
    char *end;
    t->kind = TOK_NUMBER;
    t->form = 'i';
    if (l->at[0] == '0' && strchr("fFdD", l->at[1]) && l->at[1]) {
        t->form = (char)tolower((unsigned char)l->at[1]);
        t->bits = strtoull(l->at + 2, &end, 16);
        if (end - l->at != (t->form == 'f' ? 10 : 18))
            ptx_fail(l->m, l->line, "malformed number %.20s", l->at);
    } else {
        t->bits = strtoull(l->at, &end, 0); /* negative ones wrap around */
        if (*end == 'U') end++;
        if (*end == '.' && isdigit((unsigned char)end[1])) {
            t->form = 'v';
            strtoull(end + 1, &end, 10);
        }
    }
    if (is_word_char(*end)) ptx_fail(l->m, l->line, "malformed number %.20s", l->at);
    l->at = end;
}

void lex_next(Lexer *l) {
    Token *t = &l->token;
    skip_blanks(l);
    *t = (Token){.kind = TOK_END, .line = l->line};
    const char *start = l->at;
    if (!*start || l->m->failed) return;
    if (isdigit((unsigned char)*start) || (*start == '-' && isdigit((unsigned char)start[1]))) {
        lex_digits(l);
    } else if (is_word_char(*start)) {
        while (is_word_char(*l->at)) l->at++;
        t->kind = TOK_WORD;
        t->text = arena_strn(l->m->arena, start, (size_t)(l->at - start));
    } else if (*start == '"') {
        const char *end = strchr(start + 1, '"');
        if (!end) {
            ptx_fail(l->m, l->line, "text without its end");
            return;
        }
        t->kind = TOK_STRING;
        t->text = arena_strn(l->m->arena, start + 1, (size_t)(end - start - 1));
        l->at = end + 1;
    } else {
        t->kind = TOK_CHAR;
        t->c = *l->at++;
    }
}

void lex_start(Lexer *l, PtxModule *m, const char *text) {
    *l = (Lexer){.m = m, .at = text, .line = 1};
    lex_next(l);
}

bool lex_is(const Lexer *l, char c) {
    return l->token.kind == TOK_CHAR && l->token.c == c;
}

bool lex_is_word(const Lexer *l, const char *word) {
    return l->token.kind == TOK_WORD && !strcmp(l->token.text, word);
}

bool lex_skip(Lexer *l, char c) {
    if (!lex_is(l, c)) return false;
    lex_next(l);
    return true;
}

/* What was found instead, for messages. */
static const char *found(const Lexer *l) {
    switch (l->token.kind) {
    case TOK_WORD: return l->token.text;
    case TOK_NUMBER: return "a number";
    case TOK_STRING: return "a text";
    case TOK_CHAR: return arena_printf(l->m->arena, "'%c'", l->token.c);
    default: return "the end";
    }
}

bool lex_expect(Lexer *l, char c) {
    if (lex_skip(l, c)) return true;
    return ptx_fail(l->m, l->token.line, "expected '%c', found %s", c, found(l));
}

bool lex_word(Lexer *l, const char **out) {
    if (l->token.kind != TOK_WORD)
        return ptx_fail(l->m, l->token.line, "expected a name, found %s", found(l));
    *out = l->token.text;
    lex_next(l);
    return true;
}

bool lex_number(Lexer *l, uint64_t *out) {
    if (l->token.kind != TOK_NUMBER || l->token.form != 'i')
        return ptx_fail(l->m, l->token.line, "expected a whole number, found %s", found(l));
    *out = l->token.bits;
    lex_next(l);
    return true;
}
