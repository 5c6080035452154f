/* Packs instances of the MiniMalloc benchmark (google/minimalloc, benchmarks/challenging: lines
 * "id,lower,upper,size") at capacity 1048576; each must fit, and pass the verifier.
 * minimalloc BUILD [FILE.csv...]: without files, A to F of $DTRC_SHARED/planbench/minimalloc, else
 * of ../shared; exit 77 (skipped) when these are not there. */
#include "layout.h"
#include "test.h"

#include <time.h>

enum { CAPACITY = 1048576, MAX_BLOCKS = 10000, EFFORT = 4 };

static uint32_t read_blocks(FILE *f, LayBlock *b) {
    char line[256];
    uint32_t n = 0;
    while (fgets(line, sizeof line, f)) {
        char *at = line;
        uint64_t v[4];
        int k = 0;
        for (; k < 4; k++) {
            char *end;
            v[k] = strtoull(at, &end, 10);
            if (end == at) break;
            at = *end == ',' ? end + 1 : end;
        }
        if (k == 4 && n < MAX_BLOCKS) b[n++] = (LayBlock){(uint32_t)v[1], (uint32_t)v[2], v[3], 0};
    }
    return n;
}

static void pack(FILE *f, const char *name) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, stderr);
    LayBlock *b = ARENA_ARRAY(a, LayBlock, MAX_BLOCKS);
    uint32_t n = read_blocks(f, b);
    CHECK(n > 0);
    uint64_t load = lay_bound(a, b, n, 1), greedy = lay_pack(a, b, n, 1, CAPACITY, 0);
    clock_t start = clock();
    uint64_t h = lay_pack(a, b, n, 1, CAPACITY, -EFFORT);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    CHECK(h <= CAPACITY);
    CHECK(h > CAPACITY || lay_verify(&d, b, n, 1, CAPACITY));
    printf("%s: %u blocks, load %.4f of the capacity, greedy %.4f, search %.4f in %.3f s\n", name,
           n, (double)load / CAPACITY, (double)greedy / CAPACITY,
           h > CAPACITY ? NAN : (double)h / CAPACITY, seconds);
    arena_free(a);
}

int main(int argc, char **argv) {
    const char *shared = getenv("DTRC_SHARED");
    for (int i = 2; i < argc; i++) {
        FILE *f = fopen(argv[i], "r");
        CHECK(f);
        if (!f) continue;
        pack(f, argv[i]);
        fclose(f);
    }
    for (char c = 'A'; c <= 'F' && argc < 3; c++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/planbench/minimalloc/%c.csv", shared ? shared : "../shared",
                 c);
        FILE *f = fopen(path, "r");
        if (!f) {
            printf("skipped: no %s\n", path);
            return 77;
        }
        pack(f, path);
        fclose(f);
    }
    return test_end();
}
