/* glpk.c - mixed-integer programs through GLPK (A. Makhorin): the only file that knows it.
 *
 * Fence. GLPK ends the process when something is wrong inside it or memory runs out. Here its error
 * hook jumps out instead, its whole environment is freed, and the caller gets MIP_BROKEN with the
 * text that GLPK had to say. So every call of GLPK happens inside fenced(), on objects that live no
 * longer than that; it allocates nothing of ours. Memory is limited by GLPK's own limit. Time is
 * looked at by GLPK between iterations and by our callback at every event of the search.
 *
 * Search: dual simplex; columns fixed by reduced cost against the cutoff, as long as that fixes
 * many; then GLPK's presolver, and branch and cut with pseudo-costs, best local bound, MIR and
 * cover cuts, which is what measured best on these programs. The cutoff is a row, so it prunes like
 * an incumbent. */
#include "mip.h"

#include <glpk.h>
#include <math.h>
#include <setjmp.h>
#include <string.h>
#include <time.h>

typedef struct {
    const Mip *m;
    Mip *fix; /* m, when its bounds may change */
    const MipOptions *o;
    MipResult *r;
    glp_prob *lp;
    int *row, *column; /* of each entry, from 1 */
    double *entry, start;
    int before; /* iterations before the search */
    bool stopped;
    char last[sizeof((MipResult *)0)->message]; /* last line that GLPK printed */
    jmp_buf out;
} Solver;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_left(const Solver *s) {
    return s->o->seconds - (now() - s->start);
}

static int left_ms(const Solver *s) {
    double ms = 1e3 * time_left(s);
    return ms < 1 ? 1 : ms > 1e9 ? 1000000000 : (int)ms;
}

/* ---- the fence ---- */

static int on_print(void *info, const char *text) {
    Solver *s = info;
    size_t n = strcspn(text, "\n");
    if (!n || !strncmp(text, "Error detected", 14)) return 1; /* keeps what it said before */
    if (n >= sizeof s->last) n = sizeof s->last - 1;
    memcpy(s->last, text, n);
    s->last[n] = 0;
    return 1; /* nothing reaches the terminal */
}

static void on_error(void *info) {
    Solver *s = info;
    longjmp(s->out, 1);
}

/* Calls work(s) so that an error inside GLPK comes back here. */
static void fenced(Solver *s, void (*work)(Solver *)) {
    if (!setjmp(s->out)) {
        glp_term_hook(on_print, s);
        glp_error_hook(on_error, s);
        glp_term_out(GLP_OFF);
        if (s->o->memory_mib) glp_mem_limit(s->o->memory_mib);
        work(s);
    } else {
        s->r->status = MIP_BROKEN;
        memcpy(s->r->message, s->last, sizeof s->last);
    }
    glp_free_env();
}

/* ---- the program ---- */

static void load_columns(Solver *s) {
    for (uint32_t i = 0; i < s->m->column.n; i++) {
        const MipColumn *c = &s->m->column.at[i];
        int k = (int)i + 1;
        glp_set_col_kind(s->lp, k, c->integer ? GLP_IV : GLP_CV);
        glp_set_col_bnds(s->lp, k, c->low < c->high ? GLP_DB : GLP_FX, c->low, c->high);
        glp_set_obj_coef(s->lp, k, c->cost);
    }
}

/* Rows, then the cutoff. Returns the number of entries. */
static int load_rows(Solver *s) {
    const Mip *m = s->m;
    int n = 0;
    for (uint32_t i = 0; i < m->row.n; i++) {
        const MipRow *r = &m->row.at[i];
        uint32_t end = i + 1 < m->row.n ? m->row.at[i + 1].first : m->term.n;
        glp_set_row_bnds(s->lp, (int)i + 1, r->sense == MIP_MOST ? GLP_UP : GLP_LO, r->rhs, r->rhs);
        for (uint32_t k = r->first; k < end; k++) {
            s->row[++n] = (int)i + 1;
            s->column[n] = (int)m->term.at[k].column + 1;
            s->entry[n] = m->term.at[k].coef;
        }
    }
    if (isinf(s->o->cutoff)) return n;
    glp_set_row_bnds(s->lp, (int)m->row.n + 1, GLP_UP, 0, s->o->cutoff);
    for (uint32_t i = 0; i < m->column.n; i++) {
        if (m->column.at[i].cost == 0) continue;
        s->row[++n] = (int)m->row.n + 1;
        s->column[n] = (int)i + 1;
        s->entry[n] = m->column.at[i].cost;
    }
    return n;
}

static void load(Solver *s) {
    s->lp = glp_create_prob();
    glp_set_obj_dir(s->lp, GLP_MIN);
    glp_add_cols(s->lp, (int)s->m->column.n);
    glp_add_rows(s->lp, (int)s->m->row.n + !isinf(s->o->cutoff));
    load_columns(s);
    glp_load_matrix(s->lp, load_rows(s), s->row, s->column, s->entry);
    if (s->o->fail_for_tests) glp_set_obj_coef(s->lp, -1, 0);
    glp_scale_prob(s->lp, GLP_SF_AUTO);
    glp_adv_basis(s->lp, 0);
}

/* ---- the linear relaxation ---- */

/* True when solved to optimality; else r->status says why not. */
static bool relax(Solver *s) {
    glp_smcp p;
    glp_init_smcp(&p);
    p.msg_lev = GLP_MSG_OFF;
    p.meth = GLP_DUALP;
    p.tm_lim = left_ms(s);
    if (s->o->iterations) p.it_lim = (int)s->o->iterations;
    int before = glp_get_it_cnt(s->lp), code = glp_simplex(s->lp, &p),
        status = glp_get_status(s->lp);
    s->r->iterations += (uint64_t)(glp_get_it_cnt(s->lp) - before);
    if (!code && status == GLP_OPT) {
        double value = glp_get_obj_val(s->lp);
        if (value > s->r->root) s->r->root = s->r->bound = value;
        return true;
    }
    s->r->status = code == GLP_ETMLIM || code == GLP_EITLIM ? MIP_LIMIT
                   : status == GLP_NOFEAS                   ? MIP_INFEASIBLE
                                                            : MIP_BROKEN;
    if (s->r->status == MIP_BROKEN) strcpy(s->r->message, "the linear relaxation was not solved");
    return false;
}

static const double tolerance = 1e-6;

/* Fixes integer columns that no solution within the cutoff can move off their bound: moving one by
 * 1 costs its reduced cost. Returns their number. */
static int fix_columns(Solver *s) {
    double room = s->o->cutoff - glp_get_obj_val(s->lp) + tolerance;
    int n = 0;
    for (uint32_t i = 0; i < s->m->column.n; i++) {
        int k = (int)i + 1, at = glp_get_col_stat(s->lp, k);
        if (!s->m->column.at[i].integer) continue;
        double d = glp_get_col_dual(s->lp, k), low = glp_get_col_lb(s->lp, k),
               high = glp_get_col_ub(s->lp, k);
        bool down = at == GLP_NL && d > room, up = at == GLP_NU && -d > room;
        if (!down && !up) continue;
        double to = down ? low : high;
        glp_set_col_bnds(s->lp, k, GLP_FX, to, to);
        if (s->fix) s->fix->column.at[i].low = s->fix->column.at[i].high = to;
        n++;
    }
    return n;
}

enum { FIX_ROUNDS = 3 };

static bool relax_and_fix(Solver *s) {
    if (!relax(s)) return false;
    if (isinf(s->o->cutoff)) return true;
    for (int i = 0; i < FIX_ROUNDS; i++) {
        int n = fix_columns(s);
        if (n && !relax(s)) return false;
        if (n <= (int)s->m->column.n / 50) break;
    }
    return true;
}

/* ---- branch and cut ---- */

static void on_event(glp_tree *tree, void *info) {
    Solver *s = info;
    int best = glp_ios_best_node(tree), total;
    if (best) {
        double bound = glp_ios_node_bound(tree, best);
        if (bound > s->r->bound && bound < 1e299) s->r->bound = bound;
    }
    glp_ios_tree_size(tree, NULL, NULL, &total);
    s->r->nodes = (uint32_t)total;
    uint64_t done = (uint64_t)(glp_get_it_cnt(glp_ios_get_prob(tree)) - s->before);
    if (time_left(s) > 0 && !(s->o->iterations && done > s->o->iterations)) return;
    s->stopped = true;
    glp_ios_terminate(tree);
}

static void branch(Solver *s) {
    glp_iocp p;
    glp_init_iocp(&p);
    p.msg_lev = GLP_MSG_OFF;
    p.br_tech = GLP_BR_PCH;
    p.bt_tech = GLP_BT_BLB;
    p.tol_int = tolerance;
    p.presolve = GLP_ON;
    p.mir_cuts = p.cov_cuts = s->o->cuts ? GLP_ON : GLP_OFF;
    p.tm_lim = left_ms(s);
    p.cb_func = on_event;
    p.cb_info = s;
    s->before = glp_get_it_cnt(s->lp);
    int code = glp_intopt(s->lp, &p), status = glp_mip_status(s->lp);
    s->r->iterations += (uint64_t)(glp_get_it_cnt(s->lp) - s->before);
    MipResult *r = s->r;
    r->has_value = status == GLP_OPT || status == GLP_FEAS;
    r->status = status == GLP_OPT                           ? MIP_OPTIMAL
                : status == GLP_NOFEAS                      ? MIP_INFEASIBLE
                : s->stopped || !code || code == GLP_ETMLIM ? MIP_LIMIT
                                                            : MIP_BROKEN;
    if (r->status == MIP_BROKEN) strcpy(r->message, "the search was given up");
    if (!r->has_value) return;
    r->objective = glp_mip_obj_val(s->lp);
    if (r->status == MIP_OPTIMAL || r->bound > r->objective) r->bound = r->objective;
    for (uint32_t i = 0; i < s->m->column.n; i++) r->value[i] = glp_mip_col_val(s->lp, (int)i + 1);
}

static void branch_all(Solver *s) {
    load(s);
    if (relax_and_fix(s)) branch(s);
}

static void relax_all(Solver *s) {
    load(s);
    if (!relax_and_fix(s)) return;
    s->r->status = MIP_OPTIMAL;
    s->r->objective = glp_get_obj_val(s->lp);
    for (uint32_t i = 0; i < s->m->column.n; i++)
        s->r->value[i] = glp_get_col_prim(s->lp, (int)i + 1);
}

static void solve(Arena *a, const Mip *m, Mip *fix, const MipOptions *o, MipResult *r,
                  void (*work)(Solver *)) {
    Solver *s = ARENA_NEW(a, Solver);
    uint64_t entries = (uint64_t)m->term.n + m->column.n + 1;
    *s = (Solver){.m = m, .fix = fix, .o = o, .r = r, .start = now()};
    s->row = ARENA_ARRAY(a, int, entries);
    s->column = ARENA_ARRAY(a, int, entries);
    s->entry = ARENA_ARRAY(a, double, entries);
    fenced(s, work);
    r->seconds += now() - s->start;
}

bool mip_relax(Arena *a, Mip *m, const MipOptions *o, MipResult *r) {
    r->status = MIP_OPTIMAL;
    if (m->column.n)
        solve(a, m, m, o, r, relax_all);
    else
        r->root = r->bound = fmax(r->bound, 0);
    return r->status == MIP_OPTIMAL;
}

void mip_branch(Arena *a, const Mip *m, const MipOptions *o, MipResult *r) {
    if (m->column.n) {
        solve(a, m, NULL, o, r, branch_all);
        return;
    }
    r->status = o->cutoff < 0 ? MIP_INFEASIBLE : MIP_OPTIMAL;
    r->has_value = r->status == MIP_OPTIMAL;
    r->objective = 0;
    r->bound = fmax(r->bound, 0);
}
