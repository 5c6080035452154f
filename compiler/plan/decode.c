/* decode.c - a solution of the stage-point model as a schedule: the base order runs; what a first
 * run reads and is not there is made again, right before; after each point everything goes that the
 * solution does not keep. What that costs is not less than the solution says; where it is equal and
 * the schedule fits, the schedule is optimal. */
#include "stages.h"

typedef struct {
    Arena *a;
    const Problem *p;
    bool *there;            /* per tensor */
    bool *happened;         /* per run */
    const uint32_t *frozen; /* per run: see problem_frozen */
    bool late;              /* updates wait for the end of the step */
    VEC(uint32_t) run;
    VEC(uint64_t) kept;
    VEC(uint32_t) stack;
    bool failed;
    uint64_t cost;
} Decoder;

static bool is_there(const Decoder *d, uint32_t t) {
    if (t < d->p->nstorage) return !d->p->is_temp[t] || d->there[t];
    return d->there[t] && is_there(d, d->p->storage[t]);
}

static void drop(Decoder *d, StorageId x) {
    d->there[x] = false;
    EACH(d->p->views, x, t) d->there[t] = false;
}

/* Executes run r. A rerun keeps of its results what is not there. */
static void execute(Decoder *d, uint32_t r, bool first) {
    const Problem *p = d->p;
    uint64_t kept = 0;
    uint32_t k = 0;
    for (uint32_t i = p->out.first[r]; i < p->out.first[r + 1]; i++, k++) {
        uint32_t t = p->out.at[i];
        if (t == NO_ID || (!first && (is_there(d, t) || k >= 64))) continue;
        if (k < 64) kept |= (uint64_t)1 << k;
        d->there[t] = true;
    }
    d->happened[r] = true;
    VEC_PUSH(d->a, d->run, r);
    VEC_PUSH(d->a, d->kept, kept);
    d->cost += p->ns[r];
}

/* A tensor that run r reads and that is not there; NO_ID: none. Storages before their views. */
static uint32_t missing(const Decoder *d, uint32_t r) {
    EACH(d->p->in, r, t) {
        StorageId x = d->p->storage[t];
        if (!is_there(d, x)) return x;
        if (!is_there(d, t)) return t;
    }
    return NO_ID;
}

static bool may_run(const Decoder *d, uint32_t r) {
    return !d->p->effect[r] && (d->frozen[r] == NO_ID || !d->happened[d->frozen[r]]);
}

/* Makes again what run r reads, depth first. */
static void provide(Decoder *d, uint32_t r) {
    d->stack.n = 0;
    VEC_PUSH(d->a, d->stack, r);
    while (d->stack.n && !d->failed) {
        uint32_t top = d->stack.at[d->stack.n - 1], t = missing(d, top);
        if (t != NO_ID) {
            uint32_t maker = d->p->def[t];
            d->failed |= !may_run(d, maker);
            VEC_PUSH(d->a, d->stack, maker);
            continue;
        }
        if (--d->stack.n) execute(d, top, false);
    }
}

/* Outputs of the graph at the end, as if a last run read them. */
static void provide_outputs(Decoder *d) {
    const Problem *p = d->p;
    for (uint32_t i = 0; i < p->noutput && !d->failed; i++) {
        StorageId x = p->storage[p->output[i]];
        uint32_t want[] = {x, p->output[i]};
        for (int k = 0; k < 2; k++) {
            uint32_t maker = p->def[want[k]];
            if (is_there(d, want[k])) continue;
            d->failed |= !may_run(d, maker);
            provide(d, maker);
            if (!d->failed) execute(d, maker, false);
        }
    }
}

static bool is_kept(const Stages *s, const double *value, uint32_t j, StorageId x) {
    uint32_t c = stages_after(s, j, x);
    return c == MIP_ONE || (c != MIP_ZERO && value[c] > 0.5);
}

static void first_run(Decoder *d, uint32_t r) {
    provide(d, r);
    if (!d->failed) execute(d, r, true);
}

static void drop_at_point(Decoder *d, const Stages *s, const double *value, uint32_t j) {
    for (StorageId x = 0; x < s->p->nstorage; x++)
        if (d->there[x] && !is_kept(s, value, j, x)) drop(d, x);
}

static void run_all(Decoder *d, const Stages *s, const double *value) {
    const Problem *p = d->p;
    uint32_t j = 0;
    for (uint32_t r = 0; r < p->nrun && !d->failed; r++) {
        if (d->late && p->effect[r]) continue;
        first_run(d, r);
        if (j < s->npoint && s->point[j] == r && !d->failed) drop_at_point(d, s, value, j++);
    }
    for (uint32_t r = 0; r < p->nrun && d->late && !d->failed; r++)
        if (p->effect[r]) first_run(d, r);
    provide_outputs(d);
}

bool stages_decode(Arena *a, const Stages *s, const double *value, const Problem *as,
                   Sequence *out) {
    const Problem *p = s->p;
    Arena *scratch = arena_new();
    Decoder d = {.a = scratch, .p = p, .late = as != p};
    d.there = ARENA_ARRAY(scratch, bool, p->ntensor);
    d.happened = ARENA_ARRAY(scratch, bool, p->nrun);
    d.frozen = problem_frozen(scratch, p);
    run_all(&d, s, value);
    uint32_t *number = ARENA_ARRAY(scratch, uint32_t, p->g->nnode); /* of nodes, in `as` */
    for (uint32_t r = 0; r < as->nrun; r++) number[as->node[r]] = r;
    *out = (Sequence){.n = d.run.n,
                      .cost_ns = d.cost,
                      .run = ARENA_ARRAY(a, uint32_t, d.run.n),
                      .kept = ARENA_ARRAY(a, uint64_t, d.run.n)};
    for (uint32_t i = 0; i < d.run.n; i++) {
        out->run[i] = number[p->node[d.run.at[i]]];
        out->kept[i] = d.kept.at[i];
    }
    bool ok = !d.failed;
    arena_free(scratch);
    return ok;
}

static bool is_point(const Stages *s, NodeId n) {
    for (uint32_t j = 0; j < s->npoint; j++)
        if (s->p->node[s->point[j]] == n) return true;
    return false;
}

NodeId stages_worst(const Stages *s, const Timeline *t) {
    const Problem *p = t->p;
    int64_t most = (int64_t)s->capacity, here = 0;
    NodeId worst = NO_ID;
    for (uint32_t i = timeline_head(t); i != NO_ID; i = timeline_next(t, i)) {
        const Item *x = &t->item.at[i];
        int64_t bytes = timeline_bytes_at(t, i);
        if (bytes > here) here = bytes;
        if (x->run == p->nrun || !x->first || p->effect[x->run]) continue;
        if (here > most && !is_point(s, p->node[x->run])) {
            most = here;
            worst = p->node[x->run];
        }
        here = 0;
    }
    return worst;
}
