/* text.c - a growing string, and the three ways in which hostile names enter generated text: as a C
 * literal, as a JSON literal, inside a C comment. */
#include "base.h"

#include <assert.h>
#include <string.h>

void text_init(Text *t, Arena *a) {
    *t = (Text){.arena = a};
}

static void reserve(Text *t, size_t more) {
    size_t need = t->n + more + 1;
    if (need <= t->cap) return;
    size_t cap = t->cap ? t->cap * 2 : 256;
    if (cap < need) cap = need;
    t->at = arena_grow(t->arena, t->at, t->cap, cap);
    t->cap = cap;
}

void text_add(Text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    reserve(t, (size_t)n);
    va_start(ap, fmt);
    vsnprintf(t->at + t->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->n += (size_t)n;
}

static void add_bytes(Text *t, const char *s, size_t n) {
    reserve(t, n);
    memcpy(t->at + t->n, s, n);
    t->n += n;
    t->at[t->n] = 0;
}

void text_str(Text *t, const char *s) {
    add_bytes(t, s, strlen(s));
}

void text_char(Text *t, char c) {
    add_bytes(t, &c, 1);
}

size_t utf8_length(const char *s, uint32_t *code) {
    unsigned char c = (unsigned char)s[0];
    size_t n = c < 0x80                ? 1
               : c >= 0xC2 && c < 0xE0 ? 2
               : (c & 0xF0) == 0xE0    ? 3
               : c >= 0xF0 && c < 0xF5 ? 4
                                       : 0;
    if (n == 0) return 0;
    uint32_t v = n == 1 ? c : c & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        unsigned char x = (unsigned char)s[i];
        if ((x & 0xC0) != 0x80) return 0;
        v = v << 6 | (x & 0x3Fu);
    }
    bool overlong = (n == 3 && v < 0x800) || (n == 4 && v < 0x10000);
    if (overlong || (v >= 0xD800 && v < 0xE000) || v > 0x10FFFF) return 0;
    *code = v;
    return n;
}

/* Octal escapes have at most three digits, so a digit after one cannot join it; '?' is escaped
 * because of trigraphs. */
void text_quote(Text *t, const char *s) {
    text_char(t, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\' || c == '?')
            text_add(t, "\\%c", c);
        else if (c < 0x20 || c >= 0x7F)
            text_add(t, "\\%03o", c);
        else
            text_char(t, (char)c);
    }
    text_char(t, '"');
}

void text_json(Text *t, const char *s) {
    text_char(t, '"');
    while (*s) {
        uint32_t code;
        size_t n = utf8_length(s, &code);
        if (n == 0)
            text_str(t, "\\ufffd");
        else if (code < 0x20 || code == 0x7F)
            text_add(t, "\\u%04x", code);
        else if (code == '"' || code == '\\')
            text_add(t, "\\%c", (int)code);
        else
            add_bytes(t, s, n);
        s += n ? n : 1;
    }
    text_char(t, '"');
}

/* Besides the end of the comment this keeps out line splices (backslash, trigraphs) and bytes
 * outside ASCII, which may reorder what a reader sees. */
void text_comment(Text *t, const char *s) {
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        char last = t->n ? t->at[t->n - 1] : 0;
        bool bad = c < 0x20 || c >= 0x7F || c == '*' || c == '\\' || (c == '?' && last == '?');
        if (c == '/' && last == '*') text_char(t, ' ');
        text_char(t, bad ? '_' : (char)c);
    }
}
