/* npy.c - the header of a .npy array (numpy's format 1.0, 2.0 and 3.0): type, shape and where the
 * elements start. The header is the text of a Python dictionary with three keys; a small reader
 * takes exactly that and refuses the rest. Headers are hostile: lengths, counts and products are
 * checked against the size of the entry before anything is believed. */
#include "core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADER_MAX 65536

size_t dtrt_data_size(DataType t) {
    static const uint8_t size[] = {1, 1, 2, 2, 4, 4, 8, 4, 8, 1};
    return size[t];
}

const char *dtrt_data_type_name(DataType t) {
    static const char *const name[] = {"uint8", "int8",  "uint16",  "int16",   "uint32",
                                       "int32", "int64", "float32", "float64", "bool"};
    return name[t];
}

typedef struct {
    const char *at, *what;
    bool have_type, have_order, have_shape;
    NpyHeader *h;
} Reader;

static Status bad(const Reader *r, const char *why) {
    dtrt_error("%s: not a readable .npy array: %s", r->what, why);
    return ST_DATA;
}

static void skip_space(Reader *r) {
    while (*r->at == ' ' || *r->at == '\n' || *r->at == '\t') r->at++;
}

static bool eat(Reader *r, char c) {
    skip_space(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static bool eat_word(Reader *r, const char *w) {
    skip_space(r);
    if (strncmp(r->at, w, strlen(w))) return false;
    r->at += strlen(w);
    return true;
}

/* A quoted string without escapes. */
static bool eat_string(Reader *r, char *buf, size_t n) {
    skip_space(r);
    char quote = *r->at;
    if (quote != '\'' && quote != '"') return false;
    const char *end = strchr(r->at + 1, quote);
    if (!end || (size_t)(end - r->at) > n) return false;
    memcpy(buf, r->at + 1, (size_t)(end - r->at - 1));
    buf[end - r->at - 1] = 0;
    r->at = end + 1;
    return true;
}

static Status read_type(Reader *r) {
    static const struct {
        const char *code;
        DataType type;
    } types[] = {{"u1", D_U8},  {"i1", D_I8},  {"u2", D_U16}, {"i2", D_I16}, {"u4", D_U32},
                 {"i4", D_I32}, {"i8", D_I64}, {"f4", D_F32}, {"f8", D_F64}, {"b1", D_BOOL}};
    char s[32];
    if (!eat_string(r, s, sizeof s))
        return bad(
            r,
            "its elements are records or the type is missing; a plain numeric array is expected");
    if (*s == '>') {
        dtrt_error("%s: big-endian elements (%s) are not supported", r->what, dtrt_name_str(s));
        dtrt_hint("save a.astype(a.dtype.newbyteorder('<'))");
        return ST_DATA;
    }
    const char *code = *s == '<' || *s == '|' || *s == '=' ? s + 1 : s;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(code, types[i].code)) {
            r->h->type = types[i].type;
            r->have_type = true;
            return ST_OK;
        }
    dtrt_error("%s: elements of type %s are not supported", r->what, dtrt_name_str(s));
    dtrt_hint(*code == 'O'
                  ? "object arrays hold Python objects: save a numeric array, "
                    "a.astype('float32') or a.astype('int64')"
                  : "convert with a.astype('float32') or a.astype('int64') and save again");
    return ST_DATA;
}

static Status read_order(Reader *r) {
    r->have_order = true;
    if (eat_word(r, "False")) return ST_OK;
    if (!eat_word(r, "True")) return bad(r, "fortran_order is neither True nor False");
    dtrt_error("%s: the array is in Fortran order", r->what);
    dtrt_hint("save np.ascontiguousarray(a)");
    return ST_DATA;
}

static Status read_shape(Reader *r) {
    r->have_shape = true;
    r->h->rank = 0;
    if (!eat(r, '(')) return bad(r, "its shape is not a tuple");
    while (!eat(r, ')')) {
        char *end;
        skip_space(r);
        if (*r->at < '0' || *r->at > '9') return bad(r, "its shape is not a tuple of numbers");
        if (r->h->rank > DTRT_MAX_RANK) return bad(r, "it has more than 9 axes");
        unsigned long long v = strtoull(r->at, &end, 10);
        if (v > INT64_MAX) return bad(r, "its shape is too large");
        r->h->dim[r->h->rank++] = (int64_t)v;
        r->at = end;
        if (*r->at == 'L') r->at++; /* written by Python 2 */
        if (!eat(r, ',') && *r->at != ')') return bad(r, "its shape is not a tuple of numbers");
    }
    return ST_OK;
}

static Status read_dict(Reader *r) {
    if (!eat(r, '{')) return bad(r, "the header is not a dictionary");
    while (!eat(r, '}')) {
        char key[32];
        if (!eat_string(r, key, sizeof key) || !eat(r, ':'))
            return bad(r, "the header is not a dictionary of names");
        Status st = !strcmp(key, "descr")           ? read_type(r)
                    : !strcmp(key, "fortran_order") ? read_order(r)
                    : !strcmp(key, "shape")         ? read_shape(r)
                                                    : bad(r, "the header has an unknown key");
        if (st) return st;
        if (!eat(r, ',')) {
            skip_space(r);
            if (*r->at != '}') return bad(r, "the header is not a dictionary");
        }
    }
    if (!r->have_type || !r->have_order || !r->have_shape)
        return bad(r, "the header lacks descr, fortran_order or shape");
    return ST_OK;
}

static Status check_size(const char *what, uint64_t size, NpyHeader *h) {
    uint64_t n = dtrt_data_size(h->type);
    bool ok = true;
    for (int i = 0; i < h->rank; i++) ok = ok && dtrt_mul_u64(n, (uint64_t)h->dim[i], &n);
    if (ok && n <= size - h->offset) {
        h->bytes = n;
        return ST_OK;
    }
    dtrt_error("%s: cut short: the header says %s %s, but only %" PRIu64
               " bytes of elements are there",
               what, dtrt_data_type_name(h->type), dtrt_shape_str(h->rank, h->dim, NULL),
               size - h->offset);
    return ST_DATA;
}

Status dtrt_npy_read(int fd, uint64_t offset, uint64_t size, const char *what, NpyHeader *h) {
    uint8_t head[12];
    Reader r = {.what = what, .h = h};
    *h = (NpyHeader){0};
    size_t want = size < sizeof head ? (size_t)size : sizeof head;
    if (want < 10 || pread(fd, head, want, (off_t)offset) != (ssize_t)want ||
        memcmp(head, "\x93NUMPY", 6))
        return bad(&r, "it does not start with the magic number");
    if (head[6] < 1 || head[6] > 3) return bad(&r, "its format version is unknown");
    bool wide = head[6] > 1;
    uint64_t start = wide ? 12 : 10;
    uint32_t n = head[8] | (uint32_t)head[9] << 8;
    if (wide && want >= 12) n |= (uint32_t)head[10] << 16 | (uint32_t)head[11] << 24;
    if (n > HEADER_MAX) return bad(&r, "its header is longer than 64 KiB");
    if (start + n > size) return bad(&r, "it ends within the header");
    char *text = malloc(n + 1);
    if (!text) return dtrt_no_memory(n);
    Status st = ST_OK;
    if (pread(fd, text, n, (off_t)(offset + start)) != (ssize_t)n)
        st = bad(&r, "it ends within the header");
    text[n] = 0;
    r.at = text;
    if (!st) st = read_dict(&r);
    free(text);
    h->offset = start + n;
    return st ? st : check_size(what, size, h);
}
