/* message.c - texts for the user: errors, hints, notes, and the pieces they are made of. Names come
 * from models and data files, so they pass through dtrt_name_str, which removes control characters
 * (a name could drive the terminal) and cuts. */
#include "core.h"

#include <stdarg.h>
#include <string.h>

#define BUFFERS 8
#define NAME_MAX_LEN 120

static bool line_open;

void dtrt_line_is_open(bool open) {
    line_open = open;
}

void dtrt_end_line(void) {
    if (line_open) fputc('\n', stderr);
    line_open = false;
}

static void print(const char *kind, const char *fmt, va_list ap) {
    fflush(stdout);
    dtrt_end_line();
    fprintf(stderr, "%s: ", kind);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

void dtrt_error(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print("error", fmt, ap);
    va_end(ap);
}

void dtrt_hint(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print("hint", fmt, ap);
    va_end(ap);
}

void dtrt_note(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print("note", fmt, ap);
    va_end(ap);
}

static char *next_buffer(void) {
    static char buf[BUFFERS][512];
    static int next;
    next = (next + 1) % BUFFERS;
    return buf[next];
}

const char *dtrt_name_str(const char *s) {
    char *buf = next_buffer(), *q = buf;
    *q++ = '"';
    for (size_t i = 0; s[i]; i++) {
        unsigned char c = (unsigned char)s[i];
        if (i == NAME_MAX_LEN) {
            memcpy(q, "...", 3);
            q += 3;
            break;
        }
        if (c < 32 || c == 127)
            q += sprintf(q, "\\x%02x", c);
        else if (c == '"' || c == '\\')
            q += sprintf(q, "\\%c", c);
        else
            *q++ = (char)c;
    }
    *q++ = '"';
    *q = 0;
    return buf;
}

const char *dtrt_size_str(uint64_t bytes) {
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    char *buf = next_buffer();
    double x = (double)bytes;
    int u = 0;
    for (; x >= 1024 && u < 4; u++) x /= 1024;
    sprintf(buf, u ? "%.2f %s" : "%.0f %s", x, unit[u]);
    return buf;
}

const char *dtrt_shape_str(int rank, const int64_t *dim, const char *first) {
    char *buf = next_buffer(), *q = buf;
    *q++ = '[';
    if (first) q += sprintf(q, "%.40s", first);
    for (int i = 0; i < rank; i++)
        q += sprintf(q, i || first ? ",%lld" : "%lld", (long long)dim[i]);
    *q++ = ']';
    *q = 0;
    return buf;
}

bool dtrt_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

Status dtrt_no_memory(uint64_t bytes) {
    dtrt_error("out of memory: %s could not be had from the system", dtrt_size_str(bytes));
    return ST_MACHINE;
}
