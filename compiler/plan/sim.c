/* sim.c - the simulated step: runs in order, remakes what is missing, places everything. Problem
 * and options in, steps with addresses out. See sim.h. */
#include "sim.h"

#include "strategy.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { DEAR = 16 }; /* lookahead: the part of the base time at which closure costs stop counting */

Sim *sim_new(Arena *a, const Problem *p) {
    Sim *s = ARENA_NEW(a, Sim);
    *s = (Sim){.p = p, .a = a, .dist_beta = -1};
    uint32_t ns = p->nstorage, nr = p->nrun;
    space_init(&s->space, a);
    s->defined = ARENA_ARRAY(a, bool, p->ntensor);
    s->state = ARENA_ARRAY(a, uint8_t, ns);
    s->lock = ARENA_ARRAY(a, uint32_t, ns);
    s->want = ARENA_ARRAY(a, uint32_t, ns);
    s->use = ARENA_ARRAY(a, uint32_t, ns);
    s->block = ARENA_ARRAY(a, uint32_t, ns);
    s->pool_at = ARENA_ARRAY(a, uint32_t, ns);
    s->need = ARENA_ARRAY(a, uint32_t, ns);
    s->blocked = ARENA_ARRAY(a, uint32_t, ns);
    s->alive = ARENA_ARRAY(a, uint32_t, ns);
    s->last = ARENA_ARRAY(a, double, ns);
    s->ancestors = ARENA_ARRAY(a, double, ns);
    s->descendants = ARENA_ARRAY(a, double, ns);
    s->key = ARENA_ARRAY(a, double, ns);
    s->next_below = ARENA_ARRAY(a, uint32_t, ns);
    s->seen = ARENA_ARRAY(a, uint32_t, ns);
    s->eq_node = ARENA_ARRAY(a, uint32_t, ns);
    s->pool = ARENA_ARRAY(a, StorageId, ns);
    s->frozen = ARENA_ARRAY(a, uint8_t, nr);
    s->dist = ARENA_ARRAY(a, double, (uint64_t)nr + 2);
    return s;
}

static void reset_storages(Sim *s) {
    const Problem *p = s->p;
    for (StorageId x = 0; x < p->nstorage; x++) {
        s->lock[x] = s->want[x] = s->seen[x] = 0;
        s->need[x] = s->blocked[x] = s->alive[x] = 0;
        s->pool_at[x] = s->eq_node[x] = NO_ID;
        s->use[x] = p->users.first[x];
        s->state[x] = 0;
        s->last[x] = s->ancestors[x] = 0;
    }
}

static void reset(Sim *s, const SimOptions *o) {
    const Problem *p = s->p;
    s->o = *o;
    s->failed = false;
    s->now = s->stamp = s->npool = s->evictions = 0;
    s->clock = 1;
    s->cost = s->work = s->bytes = s->byte_peak = 0;
    s->step.n = s->out.n = s->frame.n = s->held.n = s->stack.n = s->secured.n = 0;
    s->eq_up.n = s->eq_cost.n = s->evicted.n = 0;
    space_reset(&s->space, o->bytes_only ? 0 : o->capacity / p->align * p->align);
    memset(s->defined, 0, p->ntensor * sizeof *s->defined);
    memset(s->frozen, 0, p->nrun * sizeof *s->frozen);
    s->dear = (double)p->base_ns / (o->lookahead ? DEAR : 1);
    reset_storages(s);
    if (o->lookahead && o->beta != s->dist_beta) {
        for (uint32_t i = 0; i < p->nrun + 2; i++) s->dist[i] = pow(i ? i : 1, o->beta);
        s->dist_beta = o->beta;
    }
}

static void lock(Sim *s, StorageId x) {
    if (s->p->is_temp[x] && !s->lock[x]++) sim_pool_remove(s, x);
}

/* The storage becomes evictable, or goes at once when nothing needs it any more. */
static void unlock(Sim *s, StorageId x) {
    if (!s->p->is_temp[x] || --s->lock[x] || !sim_there(s, x)) return;
    if (!s->want[x] && sim_next_use(s, x) == FOREVER && sim_may_drop_dead(s, x))
        sim_drop(s, x, false);
    else
        sim_pool_add(s, x);
}

/* ---- one run ---- */

static void fill_places(Sim *s, uint32_t r, uint32_t base) {
    const Problem *p = s->p;
    EACH(p->out, r, t) {
        PlanOut o = {0, PLACE_NONE};
        if (t < p->nstorage && p->is_temp[t]) {
            bool keep = !sim_there(s, t) && (s->want[t] || sim_next_use(s, t) != FOREVER);
            o.place = keep ? PLACE_RESIDENT : PLACE_SCRATCH;
        }
        VEC_PUSH(s->a, s->out, o);
    }
    for (uint32_t k = 0; k < list_len(&p->out, r); k++) {
        if (s->out.at[base + k].place != PLACE_RESIDENT) continue;
        StorageId x = p->out.at[p->out.first[r] + k];
        s->lock[x]++;
        sim_came(s, x);
        if (s->eq_node[x] != NO_ID) {
            uint32_t i = s->eq_node[x];
            while (s->eq_up.at[i] != i) i = s->eq_up.at[i];
            s->eq_cost.at[i] -= p->cost[x];
            s->eq_node[x] = NO_ID;
        }
    }
}

/* Does the use by run r end the life of its operand x? Its other uses lie behind, no open frame
 * holds it. */
static bool dies_here(Sim *s, StorageId x, uint32_t r) {
    if (!sim_there(s, x) || s->lock[x] != 1 || s->want[x] || s->p->is_output[x]) return false;
    const Lists *u = &s->p->users;
    uint32_t at = s->use[x];
    while (at < u->first[x + 1] && (u->at[at] < s->now || (u->at[at] == r && r == s->now))) at++;
    return at == u->first[x + 1] && sim_may_drop_dead(s, x);
}

static StorageId choose_inplace(Sim *s, uint32_t r, uint32_t base) {
    if (!list_len(&s->p->out, r) || s->out.at[base].place != PLACE_RESIDENT) return NO_ID;
    EACH(s->p->inplace, r, x) if (dies_here(s, x, r)) return x;
    return NO_ID;
}

/* What run r needs room for, the largest first. */
static void fill_requests(Sim *s, uint32_t r, uint32_t base, StorageId taken) {
    const Problem *p = s->p;
    uint32_t nout = list_len(&p->out, r);
    s->request.n = 0;
    for (uint32_t k = 0; k <= nout; k++) {
        SimRequest q = {p->workspace[r], k, SPACE_BUSY};
        if (k < nout) {
            StorageId x = p->out.at[p->out.first[r] + k];
            uint8_t where = s->out.at[base + k].place;
            if (where == PLACE_NONE || (!k && taken != NO_ID)) continue;
            q.bytes = p->bytes[x];
            if (where == PLACE_RESIDENT) q.owner = x;
        }
        if (!q.bytes) continue;
        VEC_PUSH(s->a, s->request, q);
        for (uint32_t i = s->request.n - 1; i > 0 && s->request.at[i - 1].bytes < q.bytes; i--) {
            s->request.at[i] = s->request.at[i - 1];
            s->request.at[i - 1] = q;
        }
    }
}

/* Places outputs and workspace, then gives scratch and workspace back: nothing else is placed
 * before the next run. */
static bool place(Sim *s, uint32_t r, uint32_t base, StorageId taken, uint64_t *workspace) {
    uint32_t nout = list_len(&s->p->out, r);
    uint64_t busy_bytes = 0;
    fill_requests(s, r, base, taken);
    s->busy.n = 0;
    for (uint32_t i = 0; i < s->request.n; i++) {
        SimRequest q = s->request.at[i];
        bool high_end = q.owner == SPACE_BUSY || list_len(&s->p->users, q.owner) <= 1;
        uint32_t b = sim_make_room(s, q.bytes, high_end, q.owner);
        if (b == NO_ID) return false;
        s->bytes += q.bytes;
        uint64_t at = s->o.bytes_only ? 0 : s->space.block.at[b].offset;
        if (q.k == nout)
            *workspace = at;
        else
            s->out.at[base + q.k].offset = at;
        if (q.owner != SPACE_BUSY) {
            s->block[q.owner] = b;
            continue;
        }
        VEC_PUSH(s->a, s->busy, b);
        busy_bytes += q.bytes;
    }
    if (s->bytes > s->byte_peak) s->byte_peak = s->bytes; /* drops come before the run */
    for (uint32_t i = 0; i < s->busy.n && !s->o.bytes_only; i++)
        space_give(&s->space, s->busy.at[i]);
    s->bytes -= busy_bytes;
    return true;
}

static void take_over(Sim *s, StorageId from, StorageId to) {
    s->block[to] = s->block[from];
    if (!s->o.bytes_only) s->space.block.at[s->block[to]].owner = to;
    EACH(s->p->views, from, t) s->defined[t] = false;
    sim_gone(s, from);
}

static void freeze_readers(Sim *s, uint32_t r) {
    EACH(s->p->writes, r, w)
    EACH(s->p->readers, w, q) sim_freeze(s, q, FROZEN);
    if (s->p->effect[r]) sim_freeze(s, r, FROZEN);
}

static bool execute(Sim *s, uint32_t r, bool first) {
    const Problem *p = s->p;
    uint32_t base = s->out.n;
    uint64_t workspace = 0;
    fill_places(s, r, base);
    StorageId taken = choose_inplace(s, r, base);
    if (!place(s, r, base, taken, &workspace)) return false;
    if (first) s->now = r + 1;
    if (taken != NO_ID) {
        s->out.at[base].offset = s->o.bytes_only ? 0 : s->space.block.at[s->block[taken]].offset;
        take_over(s, taken, p->out.at[p->out.first[r]]);
    }
    VEC_PUSH(s->a, s->step, ((SimStep){STEP_RUN, r, taken, base, workspace}));
    s->clock += (double)p->ns[r];
    s->cost += p->ns[r];
    EACH(p->out, r, t) {
        if (t == NO_ID) continue;
        s->last[p->storage[t]] = s->clock;
        if (t >= p->nstorage) s->defined[t] = true;
    }
    if (first) freeze_readers(s, r);
    for (uint32_t k = 0; k < list_len(&p->out, r); k++) {
        StorageId x = p->out.at[p->out.first[r] + k];
        if (s->out.at[base + k].place == PLACE_RESIDENT) unlock(s, x);
    }
    return s->cost <= s->o.cost_limit;
}

/* ---- a run with everything it needs ---- */

static void open_frame(Sim *s, uint32_t r) {
    VEC_PUSH(s->a, s->frame, ((Frame){r, s->held.n, 0}));
    EACH(s->p->in, r, t) {
        bool there = sim_defined(s, t);
        s->last[s->p->storage[t]] = s->clock;
        VEC_PUSH(s->a, s->held, there);
        if (there)
            lock(s, s->p->storage[t]);
        else
            s->want[s->p->storage[t]]++;
    }
}

static void close_frame(Sim *s) {
    Frame f = s->frame.at[--s->frame.n];
    s->held.n = f.base;
    EACH(s->p->in, f.run, t) unlock(s, s->p->storage[t]);
}

/* Runs r, for the first time or again, and before it whatever it needs and is not there. A stack of
 * frames instead of recursion: chains of evicted storages are long. */
static bool ensure(Sim *s, uint32_t r, bool first) {
    const Lists *in = &s->p->in;
    uint32_t bottom = s->frame.n;
    open_frame(s, r);
    while (s->frame.n > bottom) {
        Frame *f = &s->frame.at[s->frame.n - 1];
        if (f->next < list_len(in, f->run)) {
            uint32_t t = in->at[in->first[f->run] + f->next];
            bool *held = &s->held.at[f->base + f->next];
            if (*held || sim_defined(s, t)) {
                if (!*held) {
                    *held = true;
                    s->want[s->p->storage[t]]--;
                    lock(s, s->p->storage[t]);
                }
                f->next++;
                continue;
            }
            uint32_t maker = s->p->def[t];
            assert(s->frozen[maker] != FROZEN); /* P3: nothing needed is ever lost */
            open_frame(s, maker);
            continue;
        }
        if (!execute(s, f->run, first && s->frame.n == bottom + 1)) return false;
        close_frame(s);
    }
    return true;
}

/* Makes x now and keeps it locked. */
static bool secure(Sim *s, StorageId x) {
    if (!sim_there(s, x)) {
        s->want[x]++;
        bool ok = ensure(s, s->p->def[x], false);
        s->want[x]--;
        if (!ok) return false;
    }
    lock(s, x);
    VEC_PUSH(s->a, s->secured, x);
    return true;
}

/* Before run r mutates w: what readers of w make and somebody will need again has to be there,
 * since no reader of w may run afterwards. */
static bool secure_readers(Sim *s, uint32_t r) {
    EACH(s->p->writes, r, w)
    EACH(s->p->readers, w, q) sim_freeze(s, q, FREEZING);
    EACH(s->p->writes, r, w)
    EACH(s->p->readers, w, q)
    EACH(s->p->out, q, t) {
        if (t == NO_ID || s->frozen[q] == FROZEN || !(s->state[s->p->storage[t]] & S_NEED))
            continue;
        if (!secure(s, s->p->storage[t])) return false;
    }
    return true;
}

static void release_secured(Sim *s) {
    while (s->secured.n) unlock(s, s->secured.at[--s->secured.n]);
}

/* What must be there at the end and is not is made again; what is there, or came with something
 * else, is not evicted for that. */
static bool finish(Sim *s) {
    const Problem *p = s->p;
    for (uint32_t i = 0; i < p->noutput; i++) {
        StorageId x = p->storage[p->output[i]];
        if (sim_there(s, x)) lock(s, x);
    }
    for (uint32_t i = 0; i < p->noutput; i++) {
        uint32_t t = p->output[i];
        StorageId x = p->storage[t];
        if (p->is_temp[x] && !(sim_there(s, x) && s->lock[x]) && !secure(s, x)) return false;
        if (!sim_defined(s, t) && !ensure(s, p->def[t], false)) return false;
    }
    return true;
}

static void drop_forced(Sim *s, uint32_t r) {
    EACH(*s->o.drop_after, r, x) {
        if (!sim_there(s, x) || s->lock[x]) continue;
        if (!s->blocked[x]) sim_drop(s, x, false);
    }
}

PlanStatus sim_run(Sim *s, const SimOptions *o) {
    reset(s, o);
    for (uint32_t r = 0; r < s->p->nrun; r++) {
        bool ok = secure_readers(s, r) && ensure(s, r, true);
        if (!ok || (o->work_limit && s->work > o->work_limit)) return PLAN_INFEASIBLE;
        release_secured(s);
        if (o->drop_after) drop_forced(s, r);
    }
    return finish(s) ? PLAN_OK : PLAN_INFEASIBLE;
}

/* ---- result ---- */

Plan *sim_plan(Arena *a, const Sim *s, uint64_t budget, const char *planner) {
    const Problem *p = s->p;
    Plan *plan = ARENA_NEW(a, Plan);
    *plan = (Plan){.nstep = s->step.n,
                   .step = ARENA_ARRAY(a, PlanStep, s->step.n),
                   .placed = !s->o.bytes_only,
                   .budget = budget,
                   .arena_bytes = s->o.bytes_only ? s->byte_peak : s->space.high,
                   .planner = planner};
    PlanOut *out = ARENA_ARRAY(a, PlanOut, s->out.n);
    if (s->out.n) memcpy(out, s->out.at, s->out.n * sizeof *out);
    for (uint32_t i = 0; i < s->step.n; i++) {
        SimStep st = s->step.at[i];
        bool run = st.kind == STEP_RUN;
        plan->step[i] = (PlanStep){.kind = (StepKind)st.kind,
                                   .id = run ? p->node[st.id] : st.id,
                                   .inplace = st.inplace,
                                   .out = run ? out + st.out : NULL,
                                   .workspace = st.workspace};
    }
    plan_fill_totals(p->g, p->c, plan);
    bool counts_alike = plan->placed || p->align == 1; /* else place.c will place it */
    assert(plan->cost_ns == s->cost && (!counts_alike || plan->byte_peak == s->byte_peak));
    (void)counts_alike;
    return plan;
}
