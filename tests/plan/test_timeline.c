/* test_timeline.c - the changeable schedule against a replay from scratch, undo, repair and
 * reduction against plan_verify. */
#include "graphs.h"
#include "test.h"

#include "mend.h"
#include "peaks.h"
#include "search.h"
#include "timeline.h"

static bool reads(const Problem *p, uint32_t run, StorageId x) {
    if (run == p->nrun) {
        for (uint32_t i = 0; i < p->noutput; i++)
            if (p->storage[p->output[i]] == x) return true;
        return false;
    }
    EACH(p->in, run, t) if (p->storage[t] == x) return true;
    return false;
}

static bool makes(const Problem *p, const Sequence *s, uint32_t i, StorageId x, bool *kept) {
    bool first = true;
    for (uint32_t j = 0; j < i; j++) first &= s->run[j] != s->run[i];
    for (uint32_t k = 0; k < list_len(&p->out, s->run[i]); k++) {
        if (p->out.at[p->out.first[s->run[i]] + k] != x) continue;
        *kept = first || (s->kept[i] >> k & 1);
        return true;
    }
    return false;
}

/* Last reader of the copy of x that serves execution i, and whether there is one. */
static uint32_t end_of_copy(const Problem *p, const Sequence *s, StorageId x, uint32_t maker) {
    uint32_t end = maker;
    bool kept;
    for (uint32_t i = maker + 1; i <= s->n; i++) {
        if (reads(p, i < s->n ? s->run[i] : p->nrun, x)) end = i;
        if (i < s->n && makes(p, s, i, x, &kept) && kept) break;
    }
    return end;
}

/* Bytes at the position of each execution, by replaying the sequence with the rules of timeline.h
 * and nothing else: a copy of a storage lives from its maker to the last reader before the next
 * one. */
static void replay(const Problem *p, const Sequence *s, int64_t *bytes) {
    memset(bytes, 0, (s->n + 1) * sizeof *bytes);
    for (uint32_t i = 0; i < s->n; i++) {
        bytes[i] += (int64_t)p->workspace[s->run[i]];
        for (StorageId x = 0; x < p->nstorage; x++) {
            bool kept;
            if (!p->is_temp[x] || !makes(p, s, i, x, &kept)) continue;
            if (!kept) {
                bytes[i] += (int64_t)p->bytes[x];
                continue;
            }
            uint32_t to = end_of_copy(p, s, x, i);
            for (uint32_t j = i; j <= to; j++) bytes[j] += (int64_t)p->bytes[x];
        }
    }
    /* in place: output 0, when it begins a copy, over the first operand whose copy ends here */
    for (uint32_t i = 0; i < s->n; i++) {
        bool kept = false;
        uint32_t r = s->run[i];
        if (!list_len(&p->inplace, r)) continue;
        makes(p, s, i, p->out.at[p->out.first[r]], &kept);
        if (!kept) continue;
        EACH(p->inplace, r, x) {
            uint32_t m = NO_ID;
            bool k;
            for (uint32_t j = 0; j < i; j++)
                if (makes(p, s, j, x, &k) && k) m = j;
            if (m == NO_ID || end_of_copy(p, s, x, m) != i) continue;
            bytes[i] -= (int64_t)p->bytes[x];
            break;
        }
    }
}

static void check_against_replay(Timeline *t) {
    Arena *a = arena_new();
    Sequence s = timeline_save(a, t);
    int64_t *bytes = ARENA_ARRAY(a, int64_t, (uint64_t)s.n + 1), most = 0;
    replay(t->p, &s, bytes);
    uint32_t n = 0;
    for (uint32_t i = timeline_head(t); i != NO_ID; i = timeline_next(t, i), n++) {
        CHECK_EQ(timeline_bytes_at(t, i), bytes[n]);
        if (bytes[n] > most) most = bytes[n];
    }
    CHECK_EQ(n, s.n + 1);
    CHECK_EQ(timeline_peak(t), most);
    arena_free(a);
}

/* Random insertions and removals, then all of them taken back. */
static void test_changes(void) {
    for (uint32_t seed = 1; seed <= 60; seed++) {
        Arena *a = arena_new();
        Graph *g = random_step(a, seed, 10 + seed % 60);
        const Problem *p = problem_new(a, g, cost_opaque(a, g), NULL, seed & 1);
        Timeline *t = timeline_new(a, p);
        Maker m = {a, g, seed * 7919};
        check_against_replay(t);
        int64_t peak = timeline_peak(t);
        Numbers reruns = {0};
        for (uint32_t i = 0; i < 60; i++) {
            uint32_t r = maker_rnd(&m, p->nrun);
            if (reruns.n && !maker_rnd(&m, 3)) {
                uint32_t k = maker_rnd(&m, reruns.n);
                timeline_remove(t, reruns.at[k]);
                reruns.at[k] = reruns.at[--reruns.n];
            } else if (!p->effect[r]) {
                uint32_t before = r + 1 + maker_rnd(&m, p->nrun - r);
                uint32_t x = timeline_insert(t, r, t->first[before], maker_rnd(&m, 8));
                VEC_PUSH(a, reruns, x);
            }
            if (i % 10 == 9) check_against_replay(t);
        }
        timeline_undo(t, 0);
        CHECK_EQ(t->nitem, p->nrun + 1);
        CHECK_EQ(timeline_peak(t), peak);
        CHECK_EQ(t->cost_ns, p->base_ns);
        check_against_replay(t);
        arena_free(a);
    }
}

/* Insertions at one place use up every gap between keys. */
static void test_many_at_one_place(void) {
    Arena *a = arena_new();
    Graph *g = chain_step(a, 6, 100);
    const Problem *p = problem_new(a, g, cost_opaque(a, g), NULL, true);
    Timeline *t = timeline_new(a, p);
    int64_t peak = timeline_peak(t);
    uint32_t place = t->first[4];
    for (uint32_t i = 0; i < 900; i++) {
        uint32_t x = timeline_insert(t, i % 3, place, 1);
        if (i % 5 == 0) place = x;
        if (i % 7 == 0) timeline_remove(t, timeline_insert(t, i % 3, t->first[6], 1));
    }
    check_against_replay(t);
    timeline_undo(t, 0);
    CHECK_EQ(timeline_peak(t), peak);
    CHECK_EQ(t->nitem, p->nrun + 1);
    arena_free(a);
}

static bool verified(Graph *g, const Cost *c, const Plan *plan) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, stderr);
    bool ok = plan_verify(&d, g, c, plan);
    arena_free(a);
    return ok;
}

/* The base order of a step, to be brought down to so many tenths of the way from floor to peak. */
static Mender *mender_of(Arena *a, const Graph *g, const Cost *c, uint32_t tenths) {
    const Problem *p = problem_new(a, g, c, NULL, true);
    Timeline *t = timeline_new(a, p);
    int64_t peak = timeline_peak(t), floor = (int64_t)p->floor_bytes;
    return mender_new(a, t, floor + (peak - floor) * (int64_t)tenths / 10);
}

/* Whatever repair and reduction make is a plan. */
static void test_mend(void) {
    uint32_t met = 0;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        Arena *a = arena_new();
        Graph *g = random_step(a, seed, 20 + seed % 120);
        const Cost *c = cost_opaque(a, g);
        Mender *m = mender_of(a, g, c, 4 + seed % 6);
        Timeline *t = m->t;
        const Problem *p = t->p;
        m->order = seed % 4;
        bool ok = mend(m, p->base_ns * 20, 1000);
        CHECK(timeline_is_legal(t));
        CHECK(verified(g, c, timeline_plan(a, t, UINT64_MAX / 4, "test")));
        if (!ok) m->capacity = timeline_peak(t);
        met += ok;
        uint64_t before = t->cost_ns;
        mend_reduce(m, seed % REDUCE_ORDERS);
        CHECK(t->cost_ns <= before);
        CHECK(timeline_peak(t) <= m->capacity);
        CHECK(timeline_is_legal(t));
        if (seed % 5 == 0) check_against_replay(t);
        CHECK(verified(g, c, timeline_plan(a, t, UINT64_MAX / 4, "test")));
        Sequence s = timeline_save(a, t);
        int64_t now = timeline_peak(t);
        timeline_restore(t, &s);
        CHECK_EQ(timeline_peak(t), now);
        arena_free(a);
    }
    CHECK(met > 150);
}

/* Iterated cuts, what they leave to repair, and local search: still a plan. */
static void test_peaks(void) {
    uint32_t met = 0;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        Arena *a = arena_new();
        Graph *g = random_step(a, seed, 20 + seed % 120);
        const Cost *c = cost_opaque(a, g);
        Mender *m = mender_of(a, g, c, 3 + seed % 7);
        Timeline *t = m->t;
        const Problem *p = t->p;
        m->order = seed % 4;
        met += peaks_cut(m, cut_new(a, p), NULL, p->base_ns * 20, 50);
        CHECK(timeline_is_legal(t));
        CHECK(verified(g, c, timeline_plan(a, t, UINT64_MAX / 4, "test")));
        if (mend(m, p->base_ns * 20, 1000)) {
            uint64_t before = t->cost_ns;
            search_improve(m, 100000, 0.06);
            CHECK(t->cost_ns <= before);
            CHECK(timeline_peak(t) <= m->capacity);
            CHECK(timeline_is_legal(t));
            CHECK(verified(g, c, timeline_plan(a, t, UINT64_MAX / 4, "test")));
        }
        arena_free(a);
    }
    CHECK(met > 60); /* one cut alone does it for 21 */
}

/* A chain y1..y4, then backward: with room for y1, y3, y4 only, y2 has to be made again once.
 * Units: activations of 100 floats. */
static void test_chain(void) {
    Arena *a = arena_new();
    Graph *g = chain_step(a, 4, 100);
    const Problem *p = problem_new(a, g, cost_opaque(a, g), NULL, true);
    Timeline *t = timeline_new(a, p);
    int64_t peak = timeline_peak(t);
    Mender *m = mender_new(a, t, peak - 400);
    CHECK(mend(m, UINT64_MAX, 10));
    mend_reduce(m, BY_COST);
    CHECK_EQ(t->cost_ns, p->base_ns + 100);
    m->capacity = peak;
    mend_reduce(m, BY_COST);
    CHECK_EQ(t->cost_ns, p->base_ns);
    arena_free(a);
}

int main(void) {
    test_changes();
    test_many_at_one_place();
    test_mend();
    test_peaks();
    test_chain();
    return test_end();
}
