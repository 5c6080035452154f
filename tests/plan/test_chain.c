/* test_chain.c - `static` on chains against dynamic programming that is written here anew.
 *
 * Layers y_i = f_i(y_{i-1}), i = 1..n, y_0 the input; a loss makes d_n from y_n; backward makes
 * d_{i-1} from d_i, y_{i-1} and, in half of the chains, y_i. opt(i, j, m) is the least time of
 * forward runs that turn d_j into d_i with y_i there and m units of memory besides: forward goes on
 * to some y_k, which alone stays; then d_j becomes d_k, and d_k d_i. When d_k is there, y_k is too
 * and may serve its own backward: hence a second table, with y_j there as well.
 *
 * For equal layers no schedule is better, and the result is known: with s units for checkpoints,
 * forward runs r * n - b(s + 1, r - 1) times, b(s, r) = (s + r)! / s! / r!, for the r with
 * b(s, r - 1) < n <= b(s, r) (Griewank and Walther, ACM TOMS 26, 2000). For others it is the best
 * of those that keep a checkpoint until it is of no more use. */
#include "graphs.h"
#include "test.h"

#ifdef __SANITIZE_ADDRESS__
enum { LONGEST = 10 };
#else
enum { LONGEST = 60 };
#endif

enum { UNIT = 256, FLOATS = UNIT / 4, NEVER = 1 << 28, MOST_UNITS = 420, STEPS = 4 };

typedef struct {
    uint32_t n;
    bool both;            /* backward reads y_i as well */
    int size[64], ns[64]; /* of y_i (and d_i), in units; of f_i */
    int *opt;             /* [there][i][j][m] */
} ChainCase;

static Arena *a;

static Graph *chain_graph(const ChainCase *x) {
    Maker m = maker_new(a, 1);
    ValueId y[64], d = NO_ID;
    y[0] = source(&m, ROLE_INPUT, "x", FLOATS);
    for (uint32_t i = 1; i <= x->n; i++)
        y[i] = node(&m, OP_Opaque, PHASE_FORWARD, x->ns[i], x->size[i] * FLOATS, 1, &y[i - 1], 1);
    d = node(&m, OP_Opaque, PHASE_BACKWARD, 1, x->size[x->n] * FLOATS, 1, &y[x->n], 1);
    for (uint32_t i = x->n; i >= 1; i--) {
        ValueId in[] = {d, y[i - 1], y[i]};
        d = node(&m, OP_Opaque, PHASE_BACKWARD, 200, x->size[i - 1] * FLOATS, x->both ? 3 : 2, in,
                 1);
    }
    output(&m, d);
    return m.g;
}

static int *opt_at(const ChainCase *x, int there, uint32_t i, uint32_t j) {
    size_t at = ((size_t)there * (x->n + 1) + i) * (x->n + 1) + j;
    return x->opt + at * (MOST_UNITS + 1);
}

static int opt(const ChainCase *x, int there, uint32_t i, uint32_t j, int m) {
    return m < 0 ? NEVER : opt_at(x, there, i, j)[m > MOST_UNITS ? MOST_UNITS : m];
}

/* Backward of layer j from y_{j-1}. */
static int last_layer(const ChainCase *x, bool there, uint32_t j, int m) {
    int y = x->size[j], d = x->size[j], ns = 0;
    bool first = j == x->n; /* forward has not been there */
    if (!there && (x->both || first)) {
        if (y + d > m) return NEVER; /* of the first pass: the loss */
        if (!first) ns = x->ns[j];
        if (x->both) m -= y;
    }
    return d + x->size[j - 1] > m ? NEVER : ns;
}

static int least(const ChainCase *x, bool there, uint32_t i, uint32_t j, int m) {
    bool first = j == x->n;
    int ns = 0, d = first ? 0 : x->size[j], best = NEVER;
    if (there) best = opt(x, 0, i, j, m + x->size[j]);
    if (j == i + 1) {
        int one = last_layer(x, there, j, m);
        return one < best ? one : best;
    }
    for (uint32_t k = i + 1; k < j; k++) {
        int y = x->size[k], running = y + d + (k > i + 1 ? x->size[k - 1] : 0);
        if (running > m) break;
        ns += first ? 0 : x->ns[k];
        int freed = m + (there ? x->size[j] : 0);
        int way = ns + opt(x, there, k, j, m - y) + opt(x, 1, i, k, freed - y);
        if (way < best) best = way;
    }
    return best;
}

static void solve(ChainCase *x) {
    x->opt = ARENA_ARRAY(a, int, 2 * (uint64_t)(x->n + 1) * (x->n + 1) * (MOST_UNITS + 1));
    for (uint32_t len = 1; len <= x->n; len++)
        for (uint32_t i = 0; i + len <= x->n; i++)
            for (int there = 0; there < 2; there++)
                for (int m = 0; m <= MOST_UNITS; m++)
                    opt_at(x, there, i, i + len)[m] = least(x, there, i, i + len, m);
}

static uint64_t binomial(uint32_t s, uint32_t r) {
    uint64_t b = 1;
    for (uint32_t k = 1; k <= r; k++) b = b * (s + k) / k;
    return b;
}

/* The known result for equal layers of 100 ns; the first n - 1 runs cost nothing extra. Backward of
 * a layer takes d_i and d_{i-1} besides checkpoints. */
static void compare_known(const ChainCase *x) {
    for (uint32_t m = 3; m <= x->n; m++) {
        uint32_t s = m - 2, r = 1;
        while (binomial(s, r) < x->n) r++;
        uint64_t runs = (uint64_t)r * x->n - binomial(s + 1, r - 1) - (x->n - 1);
        CHECK_EQ((uint64_t)opt(x, 0, 0, x->n, (int)m), 100 * runs);
    }
}

/* Within half a point of the optimum, from the smallest budget on. */
static void compare(const ChainCase *x) {
    Graph *g = chain_graph(x);
    Cost *c = cost_opaque(a, g);
    uint64_t peak = plan_peak_without_budget(g, c, true), low = plan_persistent_bytes(g, c, true);
    int first = 0, last = (int)((peak - low) / UNIT);
    CHECK(last < MOST_UNITS);
    while (opt(x, 0, 0, x->n, first) >= NEVER) first++;
    for (int k = 0; k <= STEPS; k++) {
        int m = first + (last - first) * k * k / (STEPS * STEPS);
        PlanOptions o = {.budget = low + (uint64_t)m * UNIT, .bytes_only = true, .effort = 1};
        Plan *p = NULL;
        CHECK_EQ(plan_make(a, g, c, &o, &p), PLAN_OK);
        double best = opt(x, 0, 0, x->n, m), extra = p ? (double)(p->cost_ns - p->base_ns) : 0;
        bool close = p && 100 * (extra - best) <= 0.5 * (double)p->base_ns;
        if (!close)
            fprintf(stderr, "  %u layers, both %d, %d units: %.0f ns, optimum %.0f\n", x->n,
                    x->both, m, extra, best);
        CHECK(close);
        CHECK(k < STEPS || (best == 0 && extra == 0));
    }
}

int main(void) {
    for (uint32_t n = 10; n <= LONGEST; n += 25)
        for (int kind = 0; kind < 4; kind++) {
            a = arena_new();
            Maker m = maker_new(a, n * 8 + (uint32_t)kind);
            ChainCase x = {.n = n, .both = kind & 1};
            for (uint32_t i = 0; i <= n; i++) {
                x.size[i] = kind < 2 ? 1 : 1 + (int)maker_rnd(&m, 6);
                x.ns[i] = kind < 2 ? 100 : 20 + (int)maker_rnd(&m, 180);
            }
            solve(&x);
            if (kind == 0) compare_known(&x);
            compare(&x);
            arena_free(a);
        }
    return test_end();
}
