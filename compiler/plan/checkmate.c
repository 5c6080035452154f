/* checkmate.c - strategy `ilp-checkmate`: the program of Checkmate as published (Jain, Jain,
 * Nrusimha, Gholami, Abbeel, Keutzer, Stoica, Gonzalez, "Checkmate: Breaking the Memory Wall with
 * Optimal Tensor Rematerialization", MLSys 2020, section 4), for comparison on small graphs: its
 * size grows with the square of the graph.
 *
 * The step is cut into stages; stage t ends with the first execution of run t. R[t,i]: run i is
 * executed in stage t; S[t,i]: its results are there when stage t begins; U[t,k]: memory right
 * after run k was executed, or skipped, in stage t; F[t,i,k]: the results of i are freed after
 * that.
 *
 * (1) R[t,t] = 1; R[t,i] = S[t,i] = 0 for i > t; S[0,i] = 0. Least sum of ns_i R[t,i].
 * (2) R[t,j] <= R[t,i] + S[t,i] for each j that reads i.
 * (3) S[t,i] <= R[t-1,i] + S[t-1,i].
 * (4) U[t,0] >= sum of M_i S[t,i] + M_0 R[t,0];
 *     U[t,k+1] >= U[t,k] + M_(k+1) R[t,k+1] - sum of M_i F[t,i,k] over what k reads, and k itself;
 *     U[t,k] + workspace_k R[t,k] <= capacity.
 * (5) F[t,i,k] = R[t,k] (1 - S[t+1,i]) prod (1 - R[t,j]) over readers j > k of i, by the number of
 *     hazards h = (1 - R[t,k]) + S[t+1,i] + sum of R[t,j]:  F + h >= 1,  h + most_h F <= most_h.
 *
 * Where our graphs know more than Checkmate's: a run's results are taken as one value (6); a view
 * with a cost is a run of no bytes that must not outlive its storage: S[t,v] <= S[t,maker] and
 * S[t,v] + R[t,maker] <= 1; updates, and what they froze, are not executed again; outputs are there
 * at the end, S[n,i] = 1. No result takes over an operand's bytes. So the bound speaks of schedules
 * of this form only, which are fewer than those of stages.c. */
#include "ilp.h"

#include "mend.h"
#include "mip.h"

#include <math.h>
#include <string.h>

enum { MOST_COLUMNS = 60000, MEMORY_MIB = 2048 };

typedef struct {
    const Problem *p;
    double capacity;
    uint32_t n;
    Mip *m;
    uint32_t *r, *s;   /* (n + 1) x n: column, MIP_ONE or MIP_ZERO */
    double *bytes;     /* M_i */
    uint32_t *frozen;  /* see problem_frozen */
    Lists deps, users; /* runs that run i reads, and converse */
} Checkmate;

static uint32_t *at(uint32_t *table, const Checkmate *x, uint32_t t, uint32_t i) {
    return &table[(size_t)t * x->n + i];
}

/* ---- the graph of runs ---- */

static uint32_t run_deps(const Problem *p, uint32_t run, uint32_t *out, uint32_t *mark) {
    uint32_t n = 0;
    EACH(p->in, run, t) {
        StorageId s = p->storage[t];
        uint32_t made[] = {p->is_temp[s] ? p->def[s] : NO_ID, p->def[t]};
        for (int k = 0; k < 2; k++) {
            if (made[k] == NO_ID || made[k] == run || mark[made[k]] == run + 1) continue;
            mark[made[k]] = run + 1;
            if (out) out[n] = made[k];
            n++;
        }
    }
    return n;
}

static void fill_graph(Arena *a, Checkmate *x) {
    const Problem *p = x->p;
    uint32_t n = x->n, *mark = ARENA_ARRAY(a, uint32_t, n), most = 2 * p->in.first[n];
    x->deps = (Lists){ARENA_ARRAY(a, uint32_t, (uint64_t)n + 1), ARENA_ARRAY(a, uint32_t, most)};
    x->users = (Lists){ARENA_ARRAY(a, uint32_t, (uint64_t)n + 2), ARENA_ARRAY(a, uint32_t, most)};
    for (uint32_t i = 0; i < n; i++) {
        x->deps.first[i + 1] =
            x->deps.first[i] + run_deps(p, i, x->deps.at + x->deps.first[i], mark);
        EACH(p->out, i, t)
        if (t != NO_ID && t < p->nstorage && p->is_temp[t]) x->bytes[i] += (double)p->bytes[t];
    }
    for (uint32_t i = 0; i < n; i++) EACH(x->deps, i, d) x->users.first[d + 2]++;
    for (uint32_t i = 2; i <= n; i++) x->users.first[i] += x->users.first[i - 1];
    for (uint32_t i = 0; i < n; i++) EACH(x->deps, i, d) x->users.at[x->users.first[d + 1]++] = i;
}

static uint64_t count_columns(const Checkmate *x) {
    uint64_t n = x->n, free = 0;
    for (uint32_t k = 0; k < x->n; k++) free += (n - k) * (1 + list_len(&x->deps, k));
    return 3 * n * (n + 1) / 2 + free;
}

/* ---- columns ---- */

static bool is_view(const Checkmate *x, uint32_t i) {
    EACH(x->p->out, i, t) if (t != NO_ID && t >= x->p->nstorage) return true;
    return false;
}

static uint32_t maker_of_view(const Checkmate *x, uint32_t i) {
    EACH(x->p->out, i, t)
    if (t != NO_ID && x->p->is_temp[x->p->storage[t]]) return x->p->def[x->p->storage[t]];
    return NO_ID;
}

/* (1), and what may not run again. */
static void add_columns(Checkmate *x) {
    const Problem *p = x->p;
    double base = p->base_ns ? (double)p->base_ns : 1;
    for (uint32_t t = 0; t <= x->n; t++) {
        for (uint32_t i = 0; i < x->n; i++) {
            uint32_t *r = at(x->r, x, t, i), *s = at(x->s, x, t, i);
            *r = t == i ? MIP_ONE : MIP_ZERO;
            *s = MIP_ZERO;
            if (i >= t) continue;
            *s = mip_column(x->m, 0, 1, true, (MipName){'S', t, i});
            if (t == x->n || p->effect[i] || (x->frozen[i] != NO_ID && x->frozen[i] < t)) continue;
            double cost = (double)p->ns[i] / base * MIP_UNITS;
            *r = mip_column(x->m, cost, 1, true, (MipName){'R', t, i});
        }
    }
    for (uint32_t i = 0; i < p->noutput; i++) {
        uint32_t tensor = p->output[i], made[] = {p->def[tensor], p->def[p->storage[tensor]]};
        for (int k = 0; k < 2; k++)
            if (made[k] != NO_ID && p->is_temp[p->storage[tensor]])
                *at(x->s, x, x->n, made[k]) = MIP_ONE;
    }
}

/* ---- rows ---- */

static void add_reads(Checkmate *x, uint32_t t, uint32_t j) {
    EACH(x->deps, j, i) {
        mip_add(x->m, *at(x->r, x, t, i), 1);
        mip_add(x->m, *at(x->s, x, t, i), 1);
        mip_add(x->m, *at(x->r, x, t, j), -1);
        mip_row(x->m, MIP_LEAST, 0, 2);
    }
}

static void add_kept(Checkmate *x, uint32_t t, uint32_t i) {
    Mip *m = x->m;
    uint32_t s = *at(x->s, x, t, i), maker = is_view(x, i) ? maker_of_view(x, i) : NO_ID;
    mip_add(m, *at(x->r, x, t - 1, i), 1);
    mip_add(m, *at(x->s, x, t - 1, i), 1);
    mip_add(m, s, -1);
    mip_row(m, MIP_LEAST, 0, 3);
    if (maker == NO_ID) return;
    mip_add(m, *at(x->s, x, t, maker), 1);
    mip_add(m, s, -1);
    mip_row(m, MIP_LEAST, 0, 6);
    mip_add(m, *at(x->r, x, t, maker), 1);
    mip_add(m, s, 1);
    mip_row(m, MIP_MOST, 1, 6);
}

/* F[t,i,k] and its rows. */
static uint32_t add_free(Checkmate *x, uint32_t t, uint32_t i, uint32_t k) {
    Mip *m = x->m;
    uint32_t f = mip_column(m, 0, 1, true, (MipName){'F', t * x->n + k, i}), most = 2;
    EACH(x->users, i, j) most += j > k && j <= t;
    for (int side = 0; side < 2; side++) {
        mip_add(m, *at(x->r, x, t, k), -1); /* h - 1 */
        mip_add(m, *at(x->s, x, t + 1, i), 1);
        EACH(x->users, i, j) if (j > k && j <= t) mip_add(m, *at(x->r, x, t, j), 1);
        mip_add(m, f, side ? (double)most : 1);
        mip_row(m, side ? MIP_MOST : MIP_LEAST, side ? (double)most - 1 : 0, 5);
    }
    return f;
}

static void add_freed(Checkmate *x, uint32_t t, uint32_t k, double scale) {
    Mip *m = x->m;
    Arena *a = arena_new();
    uint32_t *f = ARENA_ARRAY(a, uint32_t, (uint64_t)list_len(&x->deps, k) + 1), n = 0;
    EACH(x->deps, k, i) if (x->bytes[i] > 0) f[n++] = add_free(x, t, i, k);
    if (x->bytes[k] > 0) f[n++] = add_free(x, t, k, k);
    n = 0;
    EACH(x->deps, k, i) if (x->bytes[i] > 0) mip_add(m, f[n++], scale * x->bytes[i]);
    if (x->bytes[k] > 0) mip_add(m, f[n++], scale * x->bytes[k]);
    arena_free(a);
}

/* (4) for stage t, in hundredths of the capacity. */
static void add_memory(Checkmate *x, uint32_t t) {
    static const double units = 100;
    Mip *m = x->m;
    double scale = units / x->capacity;
    uint32_t before = MIP_ZERO;
    for (uint32_t k = 0; k <= t; k++) {
        uint32_t u = mip_column(m, 0, units, false, (MipName){'U', t, k});
        if (k)
            add_freed(x, t, k - 1, scale);
        else
            for (uint32_t i = 0; i < t; i++) mip_add(m, *at(x->s, x, t, i), -scale * x->bytes[i]);
        mip_add(m, *at(x->r, x, t, k), -scale * x->bytes[k]);
        mip_add(m, before, -1);
        mip_add(m, u, 1);
        mip_row(m, MIP_LEAST, 0, 4);
        if (x->p->workspace[k]) {
            mip_add(m, u, 1);
            mip_add(m, *at(x->r, x, t, k), scale * (double)x->p->workspace[k]);
            mip_row(m, MIP_MOST, units, 4);
        }
        before = u;
    }
}

static void add_rows(Checkmate *x) {
    for (uint32_t t = 0; t <= x->n; t++) {
        for (uint32_t j = 0; j <= t && t < x->n; j++)
            if (*at(x->r, x, t, j) != MIP_ZERO) add_reads(x, t, j);
        for (uint32_t i = 0; i < t; i++) add_kept(x, t, i);
        if (t < x->n) add_memory(x, t);
    }
}

/* ---- the plan ---- */

static Plan *read_plan(Arena *a, Arena *t, const Checkmate *x, const double *value,
                       const PlanOptions *o) {
    Sequence q = {.run = ARENA_ARRAY(t, uint32_t, (uint64_t)x->n * x->n),
                  .kept = ARENA_ARRAY(t, uint64_t, (uint64_t)x->n * x->n)};
    for (uint32_t s = 0; s < x->n; s++) {
        for (uint32_t i = 0; i <= s; i++) {
            uint32_t c = x->r[(size_t)s * x->n + i];
            if (c == MIP_ZERO || (c != MIP_ONE && value[c] < 0.5)) continue;
            q.run[q.n] = i;
            q.kept[q.n++] = UINT64_MAX;
            q.cost_ns += x->p->ns[i];
        }
    }
    Timeline *l = timeline_new(t, x->p);
    timeline_restore(l, &q);
    if (!timeline_is_legal(l) || timeline_peak(l) > (int64_t)x->capacity) return NULL;
    return plan_of_timeline(a, l, o, "ilp-checkmate");
}

static void solve(Arena *a, Arena *t, Checkmate *x, const PlanOptions *o, PlanProof *proof,
                  Plan **plan) {
    add_columns(x);
    add_rows(x);
    proof->columns = x->m->column.n;
    proof->rows = x->m->row.n;
    if (o->model)
        mip_print(o->model, x->m,
                  "dtrc: the program of Checkmate (Jain et al., MLSys 2020).\n"
                  "R: run in stage; S: there when the stage begins; U: memory; F: freed");
    MipOptions mo = {.seconds = o->time_limit > 0 ? o->time_limit : PLAN_TIME_LIMIT,
                     .cutoff = INFINITY,
                     .memory_mib = MEMORY_MIB,
                     .cuts = true};
    MipResult r;
    mip_solve(t, x->m, &mo, &r);
    proof->nodes = r.nodes;
    proof->seconds = r.seconds;
    proof->bound = r.bound > 0 ? r.bound / MIP_UNITS : 0;
    proof->message = r.message[0] ? arena_str(a, r.message) : NULL;
    proof->status = r.status == MIP_OPTIMAL      ? "optimal"
                    : r.status == MIP_INFEASIBLE ? "infeasible"
                    : r.status == MIP_LIMIT      ? "limit"
                                                 : "failed";
    if (r.has_value) *plan = read_plan(a, t, x, r.value, o);
}

PlanStatus plan_checkmate(Arena *a, const Problem *p, const PlanOptions *o, Plan **out) {
    Arena *t = arena_new();
    Checkmate x = {.p = p, .n = p->nrun, .m = mip_new(t)};
    x.capacity = (double)plan_capacity(p, o->budget);
    x.bytes = ARENA_ARRAY(t, double, x.n);
    x.frozen = problem_frozen(t, p);
    fill_graph(t, &x);
    *out = NULL;
    if (count_columns(&x) > MOST_COLUMNS) {
        arena_free(t);
        return PLAN_TOO_LARGE;
    }
    uint64_t cells = ((uint64_t)x.n + 1) * x.n;
    x.r = ARENA_ARRAY(t, uint32_t, cells);
    x.s = ARENA_ARRAY(t, uint32_t, cells);
    PlanProof *proof = ARENA_NEW(a, PlanProof);
    proof->published = true;
    solve(a, t, &x, o, proof, out);
    arena_free(t);
    if (!*out) {
        PlanOptions so = *o;
        so.planner = "static";
        if (plan_make(a, p->g, p->c, &so, out) != PLAN_OK) return PLAN_INFEASIBLE;
        proof->start_ns = (*out)->cost_ns;
    }
    (*out)->proof = proof;
    return PLAN_OK;
}
