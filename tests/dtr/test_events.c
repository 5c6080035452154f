/* Random training steps under capacities from the floor to more than enough, with every heuristic
 * and way to choose: an independent judge (check.h) follows all events. A step that was stopped in
 * the middle is adopted with other options and goes on from there. */
#include "../plan/steps.h"
#include "check.h"
#include "problem.h"
#include "test.h"

static uint32_t played, done, adopted, adopted_done, evictions;

/* One of many: 7 scores, one by one or windows, all at or incremental, bytes or addresses. */
static DtrOptions options(uint32_t k, const Problem *p, uint64_t capacity) {
    DtrOptions o = {.capacity = capacity,
                    .evict = true,
                    .h = (DtrHeuristic)(k % 7 % DTR_COUNT),
                    .lookahead = k % 7 == 6,
                    .alpha = 1,
                    .beta = k / 7 % 2 ? 0.5 : 1,
                    .gamma = 0.5,
                    .incremental = k / 7 % 2,
                    .window = k / 14 % 2,
                    .two_ended = k / 28 % 2,
                    .bytes_only = k % 5 == 4,
                    .published = k % 11 == 10,
                    .cost_limit = 20 * p->base_ns};
    o.incremental &= !o.published;
    o.lookahead &= !o.published;
    o.regret = o.lookahead && k % 3 == 0;
    return o;
}

static void complain(const Judge *j, uint32_t seed, uint32_t k) {
    CHECK(!j->error[0]);
    if (j->error[0]) fprintf(stderr, "seed %u, options %u: %s\n", seed, k, j->error);
}

static void check_counters(const Dtr *d, const Judge *j) {
    const DtrCounters *c = dtr_counters(d);
    CHECK_EQ(c->cost_ns, j->cost);
    CHECK_EQ(c->peak_bytes, j->peak);
    CHECK(c->high_bytes <= j->capacity);
    evictions += c->evictions;
}

/* Stops after `events`, and goes on with other options in the same capacity (which may fail), and
 * where everything that is to come fits beside what is there (which must not). */
static void go_on(Dtr *d, Judge *j, const Problem *p, const DtrOptions *o, uint32_t seed,
                  uint32_t k, uint32_t events) {
    judge_start(j, d, o);
    j->stop_at = events;
    dtr_set(d, o);
    DtrHooks hooks = judge_hooks(j);
    if (dtr_step(d, &hooks) != DTR_STOPPED) return;
    j->stop_at = UINT32_MAX;
    Judge middle = *j;
    uint64_t *offset = malloc((p->nstorage + 1) * sizeof *offset);
    bool *defined = malloc(p->ntensor + 1), *mutated = malloc(p->nstorage + 1);
    if (!offset || !defined || !mutated) abort();
    memcpy(offset, j->offset, p->nstorage * sizeof *offset);
    memcpy(defined, j->defined, p->ntensor);
    memcpy(mutated, j->mutated, p->nstorage);
    for (int large = 0; large < 2; large++) {
        DtrOptions other = options(k * 3 + 5 + (uint32_t)large, p, o->capacity);
        other.bytes_only = o->bytes_only;
        other.published = false;
        if (large) {
            other.capacity += p->floor_bytes;
            for (uint32_t s = 0; s < p->nstorage; s++) other.capacity += p->bytes[s];
        }
        memcpy(j->offset, offset, p->nstorage * sizeof *offset);
        memcpy(j->defined, defined, p->ntensor);
        memcpy(j->mutated, mutated, p->nstorage);
        j->next = middle.next;
        j->capacity = other.capacity;
        dtr_set(d, &other);
        CHECK(dtr_adopt(d, j->next, j->offset));
        DtrStatus st = dtr_step(d, &hooks);
        CHECK(st == DTR_OK || !large);
        if (st == DTR_OK) judge_end(j);
        complain(j, seed, k);
        adopted++;
        adopted_done += st == DTR_OK;
    }
    free(offset);
    free(defined);
    free(mutated);
}

static void check_step(Arena *a, const Graph *g, uint32_t seed) {
    Cost *c = cost_opaque(a, g);
    Problem *p = problem_new(a, g, c, NULL, seed % 4 == 3);
    Judge j;
    judge_init(&j, &p->dtr);
    Dtr *d = dtr_open(&p->dtr, &(DtrOptions){0});
    uint64_t all = plan_peak_without_budget(g, c, p->align == 1) - p->persistent_bytes;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t k = seed * 6 + i;
        uint64_t capacity = p->floor_bytes + (all - p->floor_bytes) * i / 5;
        DtrOptions o = options(k, p, i == 5 ? 2 * capacity : capacity);
        judge_start(&j, d, &o);
        dtr_set(d, &o);
        DtrHooks hooks = judge_hooks(&j);
        DtrStatus st = dtr_step(d, &hooks);
        CHECK(st == DTR_OK || st == DTR_NO_ROOM || st == DTR_TOO_DEAR);
        CHECK(st == DTR_OK || i < 5 || o.published);
        if (st == DTR_OK) judge_end(&j);
        complain(&j, seed, k);
        if (st == DTR_OK) check_counters(d, &j);
        played++;
        done += st == DTR_OK;
        uint32_t events = j.events;
        if (events > 1) go_on(d, &j, p, &o, seed, k, 1 + (uint32_t)test_uniform(0, events - 1));
    }
    dtr_close(d);
    judge_free(&j);
}

int main(void) {
    for (uint32_t seed = 0; seed < 700; seed++) {
        Arena *a = arena_new();
        uint32_t n = seed % 10 == 9 ? 60 : 3 + seed % 13;
        check_step(a,
                   seed & 1 ? random_step(a, seed, 3 * n)
                            : steps_make(a, seed, (StepShape)(seed / 2 % SHAPE_COUNT), n),
                   seed);
        arena_free(a);
    }
    if (getenv("DTRC_TEST_VERBOSE"))
        fprintf(stderr, "%u of %u steps, %u of %u adopted, %u evictions\n", done, played,
                adopted_done, adopted, evictions);
    CHECK(done > played / 3 && done < played * 2 / 3); /* neither too easy nor too hard */
    CHECK(adopted_done > adopted / 2 && evictions > 2000);
    return test_end();
}
