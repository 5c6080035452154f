/* test_exact.c - windows of a schedule solved exactly: a case worked out by hand, and random steps:
 * never dearer, within the capacity, legal, the same twice, and often cheaper than repair. */
#include "steps.h"
#include "test.h"

#include "exact.h"

enum { UNIT = 64, WORK = 30000000 };

static Arena *a;

/* Four things that are made first and read last, and one of six units in between that takes the
 * place of three: a of 3 units and 50 ns, b, c, d of 2 units and 10, 15, 40 ns. Dropping a alone
 * makes room; so do two of the others. */
static const int64_t units[] = {3, 2, 2, 2}, ns[] = {50, 10, 15, 40};

static const Problem *four_things(void) {
    Maker m = maker_new(a, 1);
    ValueId x = source(&m, ROLE_INPUT, "x", UNIT), y[4], big, last[2];
    for (int i = 0; i < 4; i++)
        y[i] = node(&m, OP_Opaque, PHASE_FORWARD, ns[i], units[i] * UNIT, 1, &x, 1);
    big = node(&m, OP_Opaque, PHASE_FORWARD, 5, 6 * UNIT, 1, &x, 1);
    last[0] = node(&m, OP_Opaque, PHASE_FORWARD, 5, 1, 1, &big, 1);
    for (int i = 0; i < 4; i++) {
        last[1] = y[i];
        last[0] = node(&m, OP_Opaque, PHASE_BACKWARD, 5, 1, 2, last, 1);
    }
    output(&m, last[0]);
    return problem_new(a, m.g, cost_opaque(a, m.g), NULL, true);
}

/* 9 units of things, 6 of the big one and a little: 15 units; 12 units have to do. Cheapest is b
 * and c again, 25 ns. */
static void solves_a_window(void) {
    const Problem *p = four_things();
    Timeline *t = timeline_new(a, p);
    Mender *m = mender_new(a, t, 12 * 4 * UNIT + 16);
    uint32_t at = t->first[4];
    CHECK(timeline_peak(t) > m->capacity);
    CHECK(mend_drop(m, timeline_serving(t, p->out.at[p->out.first[0]], at), at)); /* a */
    CHECK_EQ(t->cost_ns - p->base_ns, 50);
    CHECK(timeline_peak(t) <= m->capacity);
    exact_improve(m, 0); /* without work nothing happens */
    CHECK_EQ(t->cost_ns - p->base_ns, 50);
    exact_improve(m, WORK);
    CHECK_EQ(t->cost_ns - p->base_ns, 25);
    CHECK_EQ(t->again.n, 2);
    CHECK(timeline_is_legal(t) && timeline_peak(t) <= m->capacity);
}

/* The base order repaired from its end, which is a poor start; NULL: it cannot be. */
static Mender *repaired(const Problem *p) {
    Timeline *t = timeline_new(a, p);
    int64_t peak = timeline_peak(t), least = (int64_t)p->floor_bytes;
    Mender *m = mender_new(a, t, least + (peak - least) / 2);
    m->order = AT_LAST;
    if (!mend(m, UINT64_MAX, 4 * p->nrun)) return NULL;
    mend_reduce(m, BY_EARLIEST);
    return m;
}

static uint64_t improved(const Problem *p, uint64_t *before) {
    Mender *m = repaired(p);
    if (!m) return 0;
    *before = m->t->cost_ns;
    exact_improve(m, WORK);
    CHECK(timeline_is_legal(m->t) && timeline_peak(m->t) <= m->capacity);
    return m->t->cost_ns;
}

static void improves_random_steps(uint32_t graphs) {
    uint32_t started = 0, cheaper = 0;
    for (uint32_t i = 0; i < graphs; i++) {
        a = arena_new();
        Graph *g = steps_make(a, 1000 + i, (StepShape)(i % SHAPE_COUNT), 12);
        const Problem *p = problem_new(a, g, cost_opaque(a, g), NULL, true);
        uint64_t before = 0, now = improved(p, &before);
        CHECK(now <= before);
        CHECK_EQ(improved(p, &before), now);
        started += now && before > p->base_ns;
        cheaper += now < before;
        arena_free(a);
    }
    CHECK(started > graphs / 3);
    CHECK(cheaper >= 3);
    printf("%u steps, %u with reruns, %u made cheaper\n", graphs, started, cheaper);
}

int main(void) {
    a = arena_new();
    solves_a_window();
    arena_free(a);
    improves_random_steps(30);
    return test_end();
}
