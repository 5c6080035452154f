/* The bound of the DTR paper (Kirisame et al., ICLR 2021, section 3): a linear network of N layers
 * with unit sizes and times, forward and backward, needs O(N) runs under a budget of 2 ceil(sqrt N)
 * units with the e* heuristic. Without recomputation 2 N runs are needed; sqrt N segments made once
 * more give 3 N. Least recently used has no such bound: there the runs of a layer grow with sqrt N,
 * which shows that the measure can tell. DTRC_TEST_VERBOSE prints the table. */
#include "build.h"
#include "test.h"

static bool verbose;

/* Runs per layer. */
static double ratio(const DtrGraph *g, uint32_t n, DtrOptions o) {
    Dtr *d = dtr_open(g, &o);
    DtrStatus st = dtr_step(d, NULL);
    const DtrCounters *c = dtr_counters(d);
    double runs = (double)c->runs / n;
    CHECK_EQ(st, DTR_OK);
    CHECK(c->peak_bytes <= o.capacity && c->high_bytes <= o.capacity);
    if (verbose)
        fprintf(stderr, "%6u %-9s %s %s %6.3f runs a layer, %6.1f steps of work a run\n", n,
                dtr_name(o.h), o.bytes_only ? "bytes" : "arena", o.incremental ? "incr" : "all ",
                runs, (double)c->work / c->runs);
    dtr_close(d);
    return runs;
}

/* Under half of the units of a long chain: what a choice looks at, counted in elementary steps,
 * does not grow with the graph. Looking at all is at least as much as there are layers. */
static void check_work(uint32_t n, bool incremental) {
    Build b = build_chain(n, 256);
    b.g.align = 256;
    for (int h = 0; h < DTR_COUNT; h++) {
        DtrOptions o = {.capacity = 128 * (uint64_t)n,
                        .evict = true,
                        .h = (DtrHeuristic)h,
                        .cost_limit = UINT64_MAX,
                        .window = h % 2,
                        .incremental = incremental};
        Dtr *d = dtr_open(&b.g, &o);
        CHECK_EQ(dtr_step(d, NULL), DTR_OK);
        const DtrCounters *c = dtr_counters(d);
        uint64_t each = c->work / c->decisions;
        CHECK(incremental ? each < 100 : each > n / 4);
        dtr_close(d);
    }
    build_free(&b);
}

int main(void) {
    verbose = getenv("DTRC_TEST_VERBOSE");
    double first[3] = {0}, lru = 0;
    for (uint32_t n = 64; n <= 16384; n *= 2) {
        Build b = build_chain(n, 256);
        b.g.align = 256;
        DtrOptions o = {.capacity = 256 * (uint64_t)(2 * ceil(sqrt(n))),
                        .evict = true,
                        .cost_limit = UINT64_MAX,
                        .incremental = true};
        double now[3] = {ratio(&b.g, n, o)};
        o.h = DTR_EQ;
        now[1] = ratio(&b.g, n, o);
        o.h = DTR_FULL;
        o.bytes_only = true;
        o.incremental = n > 1024;
        now[2] = ratio(&b.g, n, o);
        for (int i = 0; i < 3; i++) {
            if (n == 64) first[i] = now[i];
            CHECK(now[i] > 2 && now[i] < 3.25 && now[i] < 1.2 * first[i]);
        }
        if (n > 4096) {
            build_free(&b);
            continue;
        }
        o = (DtrOptions){.capacity = o.capacity,
                         .evict = true,
                         .cost_limit = UINT64_MAX,
                         .h = DTR_LRU,
                         .incremental = true};
        double least = ratio(&b.g, n, o);
        CHECK(least > lru);
        lru = least;
        build_free(&b);
    }
    CHECK(lru > 10);
    check_work(10000, true);
    check_work(1000, true);
    check_work(1000, false);
    return test_end();
}
