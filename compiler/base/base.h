/* base.h - what every room of the compiler stands on: arena, growing arrays, names, bit sets,
 * checked arithmetic, text buffers and diagnostics.
 *
 * Memory: one Arena per compilation and scratch arenas per stage; nothing is freed singly.
 * Running out of memory is the machine's fault, not the caller's: the arena calls the handler that
 * the driver installed (which longjmps to main and ends with status 4); it never returns NULL. */
#ifndef DTRC_BASE_H
#define DTRC_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NO_ID UINT32_MAX /* "none" for every 32-bit id */

/* ---- arena.c ---------------------------------------------------------------------------- */
typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *a);
void *arena_alloc(Arena *a, size_t bytes); /* zeroed, aligned to 16 */
void *arena_grow(Arena *a, const void *old, size_t old_bytes,
                 size_t new_bytes); /* copies; tail zeroed */
char *arena_str(Arena *a, const char *s);
char *arena_strn(Arena *a, const char *s, size_t n);
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *a, const char *fmt, va_list ap);
bool arena_owns(const Arena *a, const void *at);  /* does it lie in a piece of this arena? */
size_t arena_bytes(const Arena *a);               /* bytes taken from the system so far */
void arena_on_oom(void (*handler)(size_t bytes)); /* must not return */
void arena_fail_at(uint64_t nth); /* tests: the nth block request from now fails; 0 = never */

#define ARENA_NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define ARENA_ARRAY(a, T, n) ((T *)arena_alloc((a), checked_array((n), sizeof(T))))

/* ---- growing arrays: VEC(T) v = {0}; VEC_PUSH(a, v, x); v.at[i], v.n ---------------------- */
#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *at;                                                                                     \
        uint32_t n, cap;                                                                           \
    }
#define VEC_PUSH(a, v, x)                                                                          \
    ((v).n == (v).cap ? ((v).at = vec_grow((a), (v).at, &(v).cap, sizeof *(v).at)) : (v).at,       \
     (v).at[(v).n++] = (x))
void *vec_grow(Arena *a, void *at, uint32_t *cap, size_t elem); /* doubles; oom past 2^31 entries */

/* ---- map.c: names to 32-bit numbers ---- */
typedef struct Map Map;
Map *map_new(Arena *a);
uint32_t map_get(const Map *m, const char *key);     /* NO_ID when absent */
bool map_put(Map *m, const char *key, uint32_t val); /* false: key was there (value replaced) */
uint32_t map_count(const Map *m);

/* ---- bits.c ------------------------------------------------------------------------------ */
typedef struct {
    uint64_t *w;
    uint32_t n;
} Bits;
Bits bits_new(Arena *a, uint32_t n);
static inline bool bits_get(Bits b, uint32_t i) {
    return (b.w[i >> 6] >> (i & 63)) & 1;
}
static inline void bits_set(Bits b, uint32_t i) {
    b.w[i >> 6] |= (uint64_t)1 << (i & 63);
}
static inline void bits_clear(Bits b, uint32_t i) {
    b.w[i >> 6] &= ~((uint64_t)1 << (i & 63));
}

/* ---- checked.c: products and sums of sizes; false on overflow ----------------------------- */
bool checked_mul(uint64_t a, uint64_t b, uint64_t *out);
bool checked_add(uint64_t a, uint64_t b, uint64_t *out);
size_t checked_array(uint64_t n, size_t elem); /* n*elem, or the oom handler */
uint64_t gcd(uint64_t a, uint64_t b);          /* 0 and x: x */
static inline uint64_t round_up(uint64_t x, uint64_t to) {
    return (x + to - 1) / to * to;
}
/* "4G", "512M", "100K", "1234", "1.5G" (powers of 1024). False when malformed. */
bool parse_bytes(const char *s, uint64_t *out);
/* 3.91 GiB and so on, into buf of at least 32 bytes; returns buf. */
char *format_bytes(char *buf, uint64_t bytes);

/* ---- text.c: a growing string ------------------------------------------------------------- */
typedef struct {
    Arena *arena;
    char *at; /* always NUL-terminated once something was added */
    size_t n, cap;
} Text;
void text_init(Text *t, Arena *a);
void text_add(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_str(Text *t, const char *s);
void text_char(Text *t, char c);
/* The bytes of s as a C / JSON string literal with quotes; nothing in it can end the literal early
 * (also safe inside a C comment only after text_comment). */
void text_quote(Text *t, const char *s);   /* C string literal */
void text_json(Text *t, const char *s);    /* JSON string literal */
void text_comment(Text *t, const char *s); /* safe inside a C comment: one line, no comment ends */
/* Length of the valid UTF-8 sequence at s and its code point; 0 when the bytes are not valid. */
size_t utf8_length(const char *s, uint32_t *code);

/* ---- file.c ------------------------------------------------------------------------------- */
/* Writes the whole file through a temporary one in the same folder, fsync and rename, so that an
 * earlier file stays whole on failure; a device or a pipe is written in place. False with errno
 * set. */
bool file_write(const char *path, const void *bytes, size_t n);
/* Could file_write begin? Asked before long work whose result goes there; leaves nothing behind.
 * False with errno set. */
bool file_can_write(const char *path);
/* Reads a whole regular file of at most max bytes. NULL with errno set (EFBIG when larger). */
char *file_read(Arena *a, const char *path, size_t max, size_t *n);

/* ---- process.c ---- */
/* Runs a program without a shell, its output in two files (or one: the same name). The exit status,
 * 128 after a signal; -1: it could not be started (errno). */
int process_run(char *const argv[], const char *out, const char *err);

/* ---- diag.c ------------------------------------------------------------------------------- */
/* Where something is wrong. Any field may be NULL. Names may be hostile: diag escapes them. */
typedef struct {
    const char *file;   /* model or data file */
    const char *node;   /* ONNX node name; an unnamed one is shown as "#12" by the importer */
    const char *op;     /* ONNX operator */
    const char *tensor; /* value name */
} Place;

typedef struct {
    Arena *arena;
    FILE *out;       /* NULL: only collect */
    uint32_t errors; /* number of errors reported so far */
    Text log;        /* everything that was reported, for tests */
} Diag;

void diag_init(Diag *d, Arena *a, FILE *out);
/* "error: FILE: node 'N' (Op), tensor 'T': message". Always returns false, so that callers may
 * write `return diag_error(...)`. The message says what was expected and what was found; a hint
 * goes on its own line through diag_hint. */
bool diag_error(Diag *d, Place p, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void diag_warn(Diag *d, Place p, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void diag_hint(Diag *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* s with control bytes and quotes escaped and cut to 120 characters, for messages. */
const char *diag_name(Arena *a, const char *s);

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if (!(call)) return false;                                                                 \
    } while (0)

#endif
