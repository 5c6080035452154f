/* diag.c - errors and warnings about the user's model and data. Names come from files that anybody
 * may have made, so they are escaped before they reach a terminal. */
#include "base.h"

#include <string.h>

#define NAME_MAX_SHOWN 120

void diag_init(Diag *d, Arena *a, FILE *out) {
    *d = (Diag){.arena = a, .out = out};
    text_init(&d->log, a);
    text_str(&d->log, "");
}

/* Control characters, and those that reorder or break lines. */
static bool is_unsafe(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x200E && c <= 0x200F) ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

const char *diag_name(Arena *a, const char *s) {
    if (!s) return "";
    Text t;
    text_init(&t, a);
    text_str(&t, "");
    for (uint32_t shown = 0; *s; shown++) {
        if (shown == NAME_MAX_SHOWN) {
            text_str(&t, "...");
            break;
        }
        uint32_t code;
        size_t n = utf8_length(s, &code);
        if (n == 0 || is_unsafe(code)) {
            n = n ? n : 1;
            for (size_t i = 0; i < n; i++) text_add(&t, "\\x%02x", (unsigned char)s[i]);
        } else if (code == '\'' || code == '"' || code == '\\') {
            text_add(&t, "\\%c", (int)code);
        } else {
            text_add(&t, "%.*s", (int)n, s);
        }
        s += n;
    }
    return t.at;
}

static void add_place(Text *t, Place p) {
    if (p.file) text_add(t, "%s: ", diag_name(t->arena, p.file));
    if (p.node) text_add(t, "node '%s'", diag_name(t->arena, p.node));
    if (p.op) text_add(t, p.node ? " (%s)" : "%s", diag_name(t->arena, p.op));
    if (p.tensor) {
        if (p.node || p.op) text_str(t, ", ");
        text_add(t, "tensor '%s'", diag_name(t->arena, p.tensor));
    }
    if (p.node || p.op || p.tensor) text_str(t, ": ");
}

static void report(Diag *d, const char *kind, Place p, const char *fmt, va_list ap) {
    size_t from = d->log.n;
    text_str(&d->log, kind);
    add_place(&d->log, p);
    text_str(&d->log, arena_vprintf(d->arena, fmt, ap));
    text_char(&d->log, '\n');
    if (d->out) fputs(d->log.at + from, d->out);
}

bool diag_error(Diag *d, Place p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(d, "error: ", p, fmt, ap);
    va_end(ap);
    d->errors++;
    return false;
}

void diag_warn(Diag *d, Place p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(d, "warning: ", p, fmt, ap);
    va_end(ap);
}

void diag_hint(Diag *d, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(d, "  hint: ", (Place){0}, fmt, ap);
    va_end(ap);
}
