/* bench.c - see bench.h. */
#include "bench.h"

#include "gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state;

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), the upper half. */
static uint32_t next_random(void) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

static Buffer *find(Bench *b, const void *p, size_t bytes) {
    const uint8_t *at = p;
    for (uint32_t i = 0; i < b->buffers; i++) {
        Buffer *u = &b->buffer[i];
        if (at >= u->at && at < u->at + u->bytes && bytes <= (size_t)(u->at + u->bytes - at))
            return u;
    }
    return NULL;
}

static bool may(void *ctx, const void *p, size_t bytes, bool write, const char **why) {
    const Buffer *u = find(ctx, p, bytes);
    *why = !u ? "in no buffer" : "a write into an input";
    return u && (!write || u->writable);
}

static bool initialised(void *ctx, const void *p, size_t bytes) {
    const Buffer *u = find(ctx, p, bytes);
    size_t at = (size_t)((const uint8_t *)p - u->at);
    for (size_t i = 0; i < bytes; i++)
        if (!u->written[at + i]) return false;
    return true;
}

static void wrote(void *ctx, const void *p, size_t bytes) {
    Buffer *u = find(ctx, p, bytes);
    memset(u->written + ((const uint8_t *)p - u->at), 1, bytes);
}

void bench_begin(Bench *b, const SimtModule *m, bool check, SimtOrder order, uint64_t seed) {
    *b = (Bench){.module = m, .hash = 0xcbf29ce484222325u};
    b->options = (SimtOptions){.check = check,
                               .order = order,
                               .seed = seed,
                               .may = may,
                               .initialised = initialised,
                               .wrote = wrote,
                               .ctx = b};
    random_state = 1;
}

void bench_end(Bench *b) {
    for (uint32_t i = 0; i < b->buffers; i++) {
        free(b->buffer[i].at);
        free(b->buffer[i].written);
    }
    b->buffers = 0;
}

/* Sizes are not rounded up: what lies behind belongs to nobody. */
static void *add_buffer(Bench *b, size_t bytes, bool writable, bool written) {
    if (b->buffers == MAX_BUFFERS) abort();
    Buffer *u = &b->buffer[b->buffers++];
    *u = (Buffer){malloc(bytes ? bytes : 1), bytes, writable, malloc(bytes ? bytes : 1)};
    if (!u->at || !u->written) abort();
    memset(u->at, 0xff, bytes);
    memset(u->written, written, bytes);
    return u->at;
}

float *bench_floats(Bench *b, size_t n, double lo, double hi) {
    float *f = add_buffer(b, n * sizeof *f, false, true);
    for (size_t i = 0; i < n; i++) f[i] = (float)(lo + (hi - lo) * next_random() * 0x1p-32);
    return f;
}

int *bench_ints(Bench *b, size_t n, int below) {
    int *v = add_buffer(b, n * sizeof *v, false, true);
    for (size_t i = 0; i < n; i++) v[i] = (int)(next_random() % (uint32_t)below);
    return v;
}

void *bench_input(Bench *b, const void *bytes, size_t n) {
    return memcpy(add_buffer(b, n, false, true), bytes, n);
}

void *bench_output(Bench *b, size_t bytes) {
    return add_buffer(b, bytes, true, false);
}

void *bench_state(Bench *b, const void *bytes, size_t n) {
    void *p = add_buffer(b, n, true, true);
    if (bytes)
        memcpy(p, bytes, n);
    else
        memset(p, 0, n);
    return p;
}

void bench_launch(Bench *b, const char *kernel, SimtDim grid, SimtDim block,
                  uint32_t dynamic_shared, void *const *args) {
    const SimtKernel *k = simt_kernel(b->module, kernel);
    if (!k) {
        fprintf(stderr, "no kernel %s\n", kernel);
        b->wrong++;
        return;
    }
    if (!b->on_gpu) {
        simt_launch(k, grid, block, dynamic_shared, args, &b->options, &b->found);
        return;
    }
    GpuBuffer buffers[MAX_BUFFERS];
    for (uint32_t i = 0; i < b->buffers; i++)
        buffers[i] = (GpuBuffer){b->buffer[i].at, b->buffer[i].bytes, b->buffer[i].writable};
    const char *bad = gpu_launch(k, grid, block, dynamic_shared, args, buffers, b->buffers);
    if (!bad) return;
    fprintf(stderr, "%s: %s\n", kernel, bad);
    b->wrong++;
}

/* Floats in the order of their values, as whole numbers: neighbours differ by one. */
static int64_t rank(float f) {
    int32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits < 0 ? INT32_MIN - (int64_t)bits : bits;
}

void bench_record(Bench *b, const float *got, size_t n) {
    Record *r = b->record;
    if (!r->again && r->n + n > r->cap) {
        r->cap = 2 * (r->n + n);
        r->at = realloc(r->at, r->cap * sizeof *r->at);
        if (!r->at) abort();
    }
    for (size_t i = 0; i < n; i++) {
        if (!r->again) {
            r->at[r->n++] = got[i];
            continue;
        }
        float before = r->next < r->n ? r->at[r->next++] : 0;
        if (!memcmp(&before, &got[i], sizeof before)) continue;
        int64_t apart = llabs(rank(before) - rank(got[i]));
        if (isnan(before) && isnan(got[i])) continue; /* of which NaN there are many */
        r->different++;
        if (apart > r->worst) r->worst = apart > UINT32_MAX ? UINT32_MAX : (uint32_t)apart;
    }
}

static void add_hash(Bench *b, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++) b->hash = (b->hash ^ p[i]) * 0x100000001b3u;
}

void bench_compare(Bench *b, const char *what, const float *got, const double *want, size_t n,
                   double relative, double absolute) {
    add_hash(b, got, n * sizeof *got);
    if (b->record) bench_record(b, got, n);
    for (size_t i = 0; i < n && !b->quiet; i++) {
        double limit = absolute + relative * fabs(want[i]);
        if (fabs((double)got[i] - want[i]) <= limit) continue; /* false for NaN */
        if (b->wrong++ < 3)
            fprintf(stderr, "%s[%zu] is %.9g, expected %.9g\n", what, i, (double)got[i], want[i]);
    }
}

void bench_compare_ints(Bench *b, const char *what, const void *got, const void *want, size_t n,
                        size_t bytes) {
    add_hash(b, got, n * bytes);
    if (b->quiet || !memcmp(got, want, n * bytes)) return;
    if (b->wrong++ < 3) fprintf(stderr, "%s differs\n", what);
}

char *bench_text(Arena *a, const char *file) {
    size_t n;
    return file_read(a, arena_printf(a, "tests/cudasim/kernels/%s", file), (size_t)1 << 20, &n);
}
