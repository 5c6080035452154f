/* test_mutants.c - seeded faults: each kernel text is changed in one place, and the checked run
 * must find it, as a fault of the right kind. First each __syncthreads of every file is dropped,
 * one at a time; then the table. Skipped where there is no NVRTC. */
#include "bench.h"
#include "compile.h"
#include "test.h"

#include <sys/stat.h>

typedef struct {
    const char *name, *file;
    const char *from, *to; /* the first occurrence is replaced */
    unsigned kinds;        /* of findings, one of which must appear: bits 1 << SimtKind */
} Mutant;

#define KIND(kind) (1u << (kind))
static const Mutant mutants[] = {
    {"shared read out of bounds", "softmax.cu", "if (t < half) tree[t] = fmaxf",
     "if (t <= half) tree[t] = fmaxf", KIND(SIMT_MEMORY)},
    {"shared write out of bounds", "softmax.cu", "tree[t] = most;", "tree[t + 1] = most;",
     KIND(SIMT_MEMORY)},
    {"read behind one of two shared arrays", "reduce.cu", "i < 16; i++) sum", "i < 17; i++) sum",
     KIND(SIMT_MEMORY)},
    {"shared atomic out of bounds", "move.cu", "mine[x[i] & 63]", "mine[x[i] & 127]",
     KIND(SIMT_MEMORY)},
    {"global read out of bounds", "elementwise.cu", "i < n;", "i <= n;", KIND(SIMT_MEMORY)},
    {"global write out of bounds", "elementwise.cu", "if (i < n) {", "if (i <= n) {",
     KIND(SIMT_MEMORY)},
    {"store off by one", "move.cu", "* rows + c] = tile", "* rows + c + 1] = tile",
     KIND(SIMT_MEMORY) | KIND(SIMT_BLOCK_RACE)},
    {"write into an input", "elementwise.cu", "m[i] = mi;", "m[i] = ((float *)g)[i] = mi;",
     KIND(SIMT_MEMORY)},
    {"misaligned vector", "elementwise.cu", "((const float4 *)x)[i]",
     "((const float4 *)(x + 1))[i]", KIND(SIMT_ALIGNMENT)},
    {"barrier in a branch", "move.cu",
     "if (threadIdx.x < 64) mine[threadIdx.x] = 0;\n    __syncthreads();",
     "if (threadIdx.x < 64) {\n        mine[threadIdx.x] = 0;\n        __syncthreads();\n    }",
     KIND(SIMT_SYNC)},
    {"return before a barrier", "reduce.cu", "float sum = 0.0f;",
     "float sum = 0.0f; if (row >= m || column >= n) return;", KIND(SIMT_SYNC)},
    {"shuffle by a part of the block", "layernorm.cu", "for (int k = 16; k > 0; k /= 2) {",
     "if (threadIdx.x < 200) for (int k = 16; k > 0; k /= 2) {", KIND(SIMT_SYNC)},
    {"shuffle by a part of the warp", "softmax.cu", "for (int k = 16; k > 0; k /= 2) sum +=",
     "if (lane < 31) for (int k = 16; k > 0; k /= 2) sum +=", KIND(SIMT_SYNC)},
    {"vote after lanes ended", "reduce.cu", "float best = -3.402823466e38f;",
     "float best = -3.402823466e38f; if (lane == 31) return;", KIND(SIMT_SYNC)},
    {"shared word never written", "move.cu", "if (threadIdx.x < 64) mine[threadIdx.x] = 0",
     "if (threadIdx.x < 63) mine[threadIdx.x] = 0", KIND(SIMT_UNINIT_SHARED)},
    {"edge of a tile never written", "reduce.cu",
     "left[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[(long long)row * k + ka] : 0.0f;",
     "if (row < m && ka < k) left[threadIdx.y][threadIdx.x] = a[(long long)row * k + ka];",
     KIND(SIMT_UNINIT_SHARED)},
    {"output read before written", "elementwise.cu", "y[i] = keep ? x[i]", "y[i] = keep ? y[i]",
     KIND(SIMT_UNINIT_GLOBAL)},
    {"scatter without atomics", "move.cu", "atomicAdd(&dtable[to + c], dy[from + c]);",
     "dtable[to + c] += dy[from + c];", KIND(SIMT_BLOCK_RACE)},
    {"sum of blocks without atomics", "move.cu",
     "atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);", "bins[threadIdx.x] += mine[threadIdx.x];",
     KIND(SIMT_BLOCK_RACE)},
    {"count in shared memory without atomics", "move.cu", "atomicAdd(&mine[x[i] & 63], 1u);",
     "mine[x[i] & 63] += 1u;", KIND(SIMT_RACE)},
    {"flag written by many", "move.cu", "atomicAnd(&owner, 0);", "owner = 0;", KIND(SIMT_RACE)},
    {"trap", "elementwise.cu", "if (i == 0)", "if (i == 3) __trap();\n    if (i == 0)",
     KIND(SIMT_TRAP)},
};

/* Text with `to` in place of the first `from` at or after `start`. */
static char *replace(Arena *a, const char *text, const char *start, const char *from,
                     const char *to) {
    const char *at = strstr(start, from);
    return at ? arena_printf(a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) : NULL;
}

static bool found_kind(const SimtFindings *f, unsigned kinds, char *text, size_t size) {
    for (uint32_t i = 0; i < f->count; i++) {
        if (!(kinds >> f->list[i].kind & 1)) continue;
        simt_describe(&f->list[i], text, size);
        return true;
    }
    return false;
}

/* Runs all kernels of the file in two sizes until the fault is found. */
static bool caught(const SimtModule *m, const char *file, unsigned kinds, char *text, size_t size) {
    static const int sizes[] = {257, 33};
    for (uint32_t i = 0; i < 2 * nkernel_cases; i++) {
        const KernelCase *c = &kernel_cases[i / 2];
        if (strcmp(c->file, file)) continue;
        Bench b;
        bench_begin(&b, m, true, SIMT_ASCENDING, 0);
        b.quiet = true;
        c->run(&b, sizes[i % 2]);
        bench_end(&b);
        if (found_kind(&b.found, kinds, text, size)) return true;
    }
    return false;
}

static void run_mutant(Arena *a, const char *name, const char *file, const char *text,
                       unsigned kinds, const char *cache) {
    char message[8000], what[400];
    const char *ptx =
        text ? compile_cuda(a, file, text, "compute_75", NULL, message, sizeof message) : NULL;
    SimtModule *m = ptx ? simt_load(ptx, SIMT_CHECKED, cache, message, sizeof message) : NULL;
    if (!m) {
        fprintf(stderr, "%s: %s\n", name, text ? message : "the text to change is not in the file");
        CHECK(m != NULL);
        return;
    }
    bool ok = caught(m, file, kinds, what, sizeof what);
    printf("%s %s: %s\n", ok ? "caught" : "MISSED", name, ok ? what : "");
    CHECK(ok);
    simt_unload(m);
}

static int drop_barriers(Arena *a, const char *file, const char *cache) {
    const char *text = bench_text(a, file), *barrier = "__syncthreads();";
    int n = 0;
    for (const char *at = text; at && (at = strstr(at, barrier)); at++, n++)
        run_mutant(a, arena_printf(a, "%s without barrier %d", file, n + 1), file,
                   replace(a, text, at, barrier, ";"), KIND(SIMT_RACE), cache);
    return n;
}

int main(int argc, char **argv) {
    if (compile_missing()) {
        fprintf(stderr, "skipped: %s\n", compile_missing());
        return 77;
    }
    Arena *a = arena_new();
    const char *cache = arena_printf(a, "%s/tests/cudasim-objects", argc > 1 ? argv[1] : ".");
    mkdir(cache, 0777);
    int barriers = 0;
    static const char *const files[] = {"softmax.cu", "layernorm.cu", "move.cu", "reduce.cu"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        barriers += drop_barriers(a, files[i], cache);
    CHECK_EQ(barriers, 21); /* 8, 4, 5 and 4: none was overlooked */
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        const Mutant *u = &mutants[i];
        const char *text = bench_text(a, u->file);
        run_mutant(a, u->name, u->file, text ? replace(a, text, text, u->from, u->to) : NULL,
                   u->kinds, cache);
    }
    arena_free(a);
    return test_end();
}
