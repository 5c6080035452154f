/* lex.h - words of the text form; private to the ir room. */
#ifndef DTRC_IR_LEX_H
#define DTRC_IR_LEX_H

#include "ir.h"

typedef enum {
    TOK_END,
    TOK_WORD,   /* fwd, Conv, f32, i3 */
    TOK_VALUE,  /* %12 */
    TOK_INT,    /* -3 */
    TOK_FLOAT,  /* 0.5, 1e-3, inf, nan */
    TOK_STRING, /* "..." */
    TOK_PUNCT   /* one of = ( ) [ ] { } , . - */
} TokKind;

typedef struct {
    Arena *arena;
    Diag *d;
    const char *file;
    const char *at; /* after the current token */
    uint32_t line;  /* of the current token */
    TokKind kind;
    char punct;
    const char *word; /* WORD, STRING (decoded) */
    int64_t i;        /* INT; VALUE: the number */
    double f;         /* FLOAT; INT: the same number */
} Lex;

/* Starts at the first token. */
bool lex_init(Lex *l, Arena *a, Diag *d, const char *file, const char *text);
bool lex_next(Lex *l);
/* "FILE: line 3: message". Returns false. */
bool lex_error(Lex *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "expected WHAT, found THIS" */
bool lex_expected(Lex *l, const char *what);
bool lex_is(const Lex *l, char punct);
bool lex_is_word(const Lex *l, const char *word);
/* Takes the token when it is there; *took says so. */
bool lex_take(Lex *l, char punct, bool *took);
bool lex_need(Lex *l, char punct);
bool lex_need_string(Lex *l, const char **out);
/* A number in 0..max. */
bool lex_need_u32(Lex *l, uint32_t max, uint32_t *out);

#endif
