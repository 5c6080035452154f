/* read.c - a trace file -> Graph: decompression, choice of the reader, final check. */
#include "build.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

enum {
    LOG_MAX = 1 << 26, /* bytes of a log, decompressed */
    JSON_MAX = 1 << 22 /* of a node-link graph: as a tree it takes 30 times as much */
};

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

bool trace_is(const char *path) {
    return ends_with(path, ".log") || ends_with(path, ".log.gz") || ends_with(path, ".json");
}

typedef struct {
    const char *at;
    size_t n;
} Bytes;

static bool inflate_error(Trace *t, z_stream *z, const char *what) {
    inflateEnd(z);
    return trace_error(t, "%s", what);
}

/* Members of a gzip file one after another, into memory that doubles up to the limit. */
static bool unzip(Trace *t, Bytes in, size_t max, Bytes *out) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in.at, .avail_in = (uInt)in.n};
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) return trace_error(t, "cannot decompress");
    size_t cap = (size_t)1 << 20, have = 0;
    char *buf = arena_alloc(t->a, cap + 1);
    for (int st = Z_OK; st != Z_STREAM_END || z.avail_in;) {
        if (st == Z_STREAM_END && inflateReset(&z) != Z_OK)
            return inflate_error(t, &z, "cannot decompress");
        if (have == cap && cap >= max) return inflate_error(t, &z, "too large when decompressed");
        if (have == cap) {
            buf = arena_grow(t->a, buf, cap + 1, 2 * cap + 1);
            cap *= 2;
        }
        z.next_out = (Bytef *)buf + have;
        z.avail_out = (uInt)(cap - have);
        st = inflate(&z, Z_NO_FLUSH);
        have = cap - z.avail_out;
        if (st != Z_OK && st != Z_STREAM_END && !(st == Z_BUF_ERROR && !z.avail_out))
            return inflate_error(t, &z, "not a whole gzip file");
    }
    inflateEnd(&z);
    buf[have] = 0;
    *out = (Bytes){buf, have};
    return true;
}

static bool parse(Trace *t, Bytes text) {
    bool json = ends_with(t->file, ".json");
    size_t max = json ? JSON_MAX : LOG_MAX;
    if (text.n > 2 && !memcmp(text.at, "\x1f\x8b", 2)) TRY(unzip(t, text, max, &text));
    if (text.n > max)
        return trace_error(t, "the file has %zu bytes, expected at most %zu", text.n, max);
    if (memchr(text.at, 0, text.n)) return trace_error(t, "not a text: it holds a NUL byte");
    TRY(json ? trace_checkmate(t, text.at, text.n) : trace_simrd(t, text.at, text.n));
    t->line = 0;
    if (!t->g->nnode) return trace_error(t, "no operators");
    return ir_verify(t->d, t->g);
}

Graph *trace_parse(Arena *a, Diag *d, const char *name, const char *bytes, size_t n) {
    Trace t = trace_new(a, d, name);
    char *copy = arena_strn(a, bytes, n); /* ends with a NUL */
    return parse(&t, (Bytes){copy, n}) ? t.g : NULL;
}

Graph *trace_read(Arena *a, Diag *d, const char *path) {
    Trace t = trace_new(a, d, path);
    Bytes b;
    b.at = file_read(a, path, LOG_MAX, &b.n);
    if (!b.at) {
        trace_report(&t, "cannot read the trace: %s", strerror(errno));
        return NULL;
    }
    return parse(&t, b) ? t.g : NULL;
}
