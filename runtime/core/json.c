/* json.c - the two kinds of JSON values that need care: strings, because names from a model may
 * hold anything, and floats, because JSON has no NaN. */
#include "core.h"

#include <math.h>

/* Length of the UTF-8 sequence at s, 0 when it is not valid (overlong forms and surrogates
 * included). */
static int utf8_length(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

void dtrt_json_string(FILE *f, const char *s) {
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        int n = utf8_length(p);
        if (!n) {
            fputs("\\ufffd", f);
            p++;
        } else if (n == 1 && (*p < 32 || *p == 127)) {
            fprintf(f, "\\u%04x", *p++);
        } else {
            if (*p == '"' || *p == '\\') fputc('\\', f);
            while (n--) fputc(*p++, f);
        }
    }
    fputc('"', f);
}

void dtrt_json_float(FILE *f, double x) {
    if (isfinite(x))
        fprintf(f, "%.9g", x);
    else
        fputs("null", f);
}
