/* reduce.c - a mixed-integer program made smaller before it is solved, and solved (mip.h).
 *
 * Rows that hold anyway go; bounds that a row implies are taken over; a column that costs nothing
 * to lower and that no row keeps up goes to its low bound, and so the other way round. This keeps
 * an optimal solution. Fixed columns leave the rows.
 *
 * Then the rows that link everything (the knapsacks) are set aside, and what is left falls apart
 * into components: layers that repeat give components that are the same, entry by entry, also in
 * the knapsacks. Exchanging two of them changes nothing, so one order of each such group is enough:
 * a component must not have fewer columns with a cost at 1 than the next. Without these rows branch
 * and bound proves the same thing once per permutation. (Symmetry breaking by ordering
 * is folklore; see Margot, "Symmetry in Integer Linear Programming", 50 Years of Integer
 * Programming, 2010.)
 *
 * Order of work: reduce, linear relaxation with columns fixed by reduced cost, reduce again and
 * order, branch and cut. */
#include "mip.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double eps = 1e-9;

typedef struct {
    const Mip *m;
    double *low, *high;
    bool *gone; /* per row */
    bool changed, impossible;
} Reducer;

static uint32_t row_end(const Mip *m, uint32_t i) {
    return i + 1 < m->row.n ? m->row.at[i + 1].first : m->term.n;
}

static bool is_fixed(const Reducer *x, uint32_t c) {
    return x->low[c] >= x->high[c];
}

static void set_bounds(Reducer *x, uint32_t c, double low, double high) {
    x->low[c] = low;
    x->high[c] = high;
    x->changed = true;
}

/* Every row as sum >= rhs: the sign of its coefficients and right-hand side. */
static double sign_of(const MipRow *r) {
    return r->sense == MIP_LEAST ? 1 : -1;
}

static void look_at_row(Reducer *x, uint32_t i) {
    const Mip *m = x->m;
    const MipRow *r = &m->row.at[i];
    double sign = sign_of(r), rhs = sign * r->rhs, least = 0, most = 0;
    for (uint32_t k = r->first; k < row_end(m, i); k++) {
        uint32_t c = m->term.at[k].column;
        double a = sign * m->term.at[k].coef;
        least += a > 0 ? a * x->low[c] : a * x->high[c];
        most += a > 0 ? a * x->high[c] : a * x->low[c];
    }
    double slack = eps * (1 + fabs(rhs));
    x->impossible |= most < rhs - slack;
    if (least >= rhs - slack) {
        x->gone[i] = true;
        x->changed = true;
        return;
    }
    /* a column whose other end makes the row impossible */
    for (uint32_t k = r->first; k < row_end(m, i); k++) {
        uint32_t c = m->term.at[k].column;
        double a = sign * m->term.at[k].coef, width = x->high[c] - x->low[c];
        if (width <= 0 || !m->column.at[c].integer || most - fabs(a) * width >= rhs - slack)
            continue;
        if (width > 1) continue; /* none of ours is wider */
        if (a > 0)
            set_bounds(x, c, x->high[c], x->high[c]);
        else
            set_bounds(x, c, x->low[c], x->low[c]);
    }
}

/* Columns that nothing holds up, or down. */
static void fix_unlocked(Reducer *x, uint8_t *locks) {
    const Mip *m = x->m;
    enum { UP = 1, DOWN = 2 };
    memset(locks, 0, m->column.n);
    for (uint32_t i = 0; i < m->row.n; i++) {
        if (x->gone[i]) continue;
        for (uint32_t k = m->row.at[i].first; k < row_end(m, i); k++) {
            bool down = sign_of(&m->row.at[i]) * m->term.at[k].coef > 0;
            locks[m->term.at[k].column] |= down ? DOWN : UP;
        }
    }
    for (uint32_t c = 0; c < m->column.n; c++) {
        double cost = m->column.at[c].cost;
        if (is_fixed(x, c)) continue;
        if (cost >= 0 && !(locks[c] & DOWN))
            set_bounds(x, c, x->low[c], x->low[c]);
        else if (cost <= 0 && !(locks[c] & UP))
            set_bounds(x, c, x->high[c], x->high[c]);
    }
}

enum { ROUNDS = 20 };

/* What is left, in *out, and per column of m its column there or MIP_ZERO; the objective of what
 * was fixed in *fixed. NULL: impossible. */
static Mip *rebuild(Arena *a, const Reducer *x, uint32_t *to, double *fixed) {
    const Mip *m = x->m;
    Mip *out = mip_new(a);
    for (uint32_t c = 0; c < m->column.n; c++) {
        MipColumn k = m->column.at[c];
        to[c] = MIP_ZERO;
        *fixed += is_fixed(x, c) ? k.cost * x->low[c] : 0;
        if (is_fixed(x, c)) continue;
        to[c] = out->column.n;
        k.low = x->low[c];
        k.high = x->high[c];
        VEC_PUSH(a, out->column, k);
    }
    for (uint32_t i = 0; i < m->row.n; i++) {
        if (x->gone[i]) continue;
        MipRow r = m->row.at[i];
        r.first = out->term.n;
        for (uint32_t k = m->row.at[i].first; k < row_end(m, i); k++) {
            MipTerm t = m->term.at[k];
            if (to[t.column] == MIP_ZERO)
                r.rhs -= t.coef * x->low[t.column];
            else
                VEC_PUSH(a, out->term, ((MipTerm){to[t.column], t.coef}));
        }
        if (out->term.n > r.first) VEC_PUSH(a, out->row, r);
    }
    return out;
}

typedef struct {
    Mip *mip; /* NULL: impossible */
    uint32_t *to;
    double *value; /* of columns that were fixed */
    double fixed;
} Reduced;

static Reduced reduce(Arena *a, const Mip *m) {
    Reduced r = {NULL, ARENA_ARRAY(a, uint32_t, m->column.n), NULL, 0};
    Reducer x = {m,
                 ARENA_ARRAY(a, double, m->column.n),
                 ARENA_ARRAY(a, double, m->column.n),
                 ARENA_ARRAY(a, bool, m->row.n),
                 true,
                 m->impossible};
    uint8_t *locks = ARENA_ARRAY(a, uint8_t, m->column.n);
    for (uint32_t c = 0; c < m->column.n; c++) {
        x.low[c] = m->column.at[c].low;
        x.high[c] = m->column.at[c].high;
    }
    for (int k = 0; k < ROUNDS && x.changed && !x.impossible; k++) {
        x.changed = false;
        for (uint32_t i = 0; i < m->row.n; i++)
            if (!x.gone[i]) look_at_row(&x, i);
        fix_unlocked(&x, locks);
    }
    r.value = x.low;
    if (!x.impossible) r.mip = rebuild(a, &x, r.to, &r.fixed);
    return r;
}

/* ---- components that are the same ---- */

typedef struct {
    uint32_t first, n; /* in Order.member; the columns of the component, ascending */
    uint64_t hash;
} Component;

typedef struct {
    Mip *m;
    uint32_t *up;                /* union-find over columns */
    uint32_t *place;             /* per column: number within its component */
    uint32_t *member;            /* columns by component */
    uint32_t *row_of, *row_list; /* per component: its rows in row_list */
    double *linked;              /* per linking row and column: coefficient */
    uint32_t nlink;
    Component *part;
    uint32_t npart;
} Order;

static uint32_t root(uint32_t *up, uint32_t c) {
    while (up[c] != c) c = up[c] = up[up[c]];
    return c;
}

static void mix(uint64_t *h, const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) *h = (*h ^ b[i]) * UINT64_C(0x100000001B3);
}

static void join_by_rows(Order *x) {
    const Mip *m = x->m;
    for (uint32_t c = 0; c < m->column.n; c++) x->up[c] = c;
    for (uint32_t i = 0; i < m->row.n; i++) {
        if (m->row.at[i].links) continue;
        for (uint32_t k = m->row.at[i].first; k < row_end(m, i); k++) {
            uint32_t a = root(x->up, m->term.at[m->row.at[i].first].column),
                     b = root(x->up, m->term.at[k].column);
            x->up[a > b ? a : b] = a > b ? b : a;
        }
    }
}

static void fill_components(Arena *a, Order *x) {
    const Mip *m = x->m;
    uint32_t n = m->column.n, *of = ARENA_ARRAY(a, uint32_t, n);
    for (uint32_t c = 0; c < n; c++) {
        uint32_t r = root(x->up, c);
        of[c] = r == c ? x->npart++ : of[r];
        x->part[of[c]].n++;
    }
    for (uint32_t i = 1; i < x->npart; i++)
        x->part[i].first = x->part[i - 1].first + x->part[i - 1].n;
    for (uint32_t i = 0; i < x->npart; i++) x->part[i].n = 0;
    for (uint32_t c = 0; c < n; c++) {
        Component *p = &x->part[of[c]];
        x->place[c] = p->n;
        x->member[p->first + p->n++] = c;
    }
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < m->row.n; i++) {
            if (m->row.at[i].links) continue;
            uint32_t p = of[m->term.at[m->row.at[i].first].column];
            if (!pass)
                x->row_of[p + 2]++;
            else
                x->row_list[x->row_of[p + 1]++] = i;
        }
        for (uint32_t p = 2; p <= x->npart && !pass; p++) x->row_of[p] += x->row_of[p - 1];
    }
}

static void hash_component(Order *x, Component *p, uint32_t number) {
    const Mip *m = x->m;
    p->hash = UINT64_C(0xCBF29CE484222325);
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t c = x->member[p->first + i];
        const MipColumn *k = &m->column.at[c];
        double d[] = {k->cost, k->low, k->high, k->integer};
        mix(&p->hash, d, sizeof d);
        for (uint32_t l = 0; l < x->nlink; l++)
            mix(&p->hash, &x->linked[(size_t)l * m->column.n + c], sizeof(double));
    }
    for (uint32_t i = x->row_of[number]; i < x->row_of[number + 1]; i++) {
        const MipRow *r = &m->row.at[x->row_list[i]];
        double d[] = {r->sense, r->rhs};
        mix(&p->hash, d, sizeof d);
        for (uint32_t k = r->first; k < row_end(m, x->row_list[i]); k++) {
            double t[] = {x->place[m->term.at[k].column], m->term.at[k].coef};
            mix(&p->hash, t, sizeof t);
        }
    }
}

static bool is_same_row(const Order *x, uint32_t i, uint32_t j) {
    const Mip *m = x->m;
    const MipRow *r = &m->row.at[i], *s = &m->row.at[j];
    uint32_t n = row_end(m, i) - r->first;
    if (r->sense != s->sense || r->rhs != s->rhs || row_end(m, j) - s->first != n) return false;
    for (uint32_t k = 0; k < n; k++) {
        const MipTerm *a = &m->term.at[r->first + k], *b = &m->term.at[s->first + k];
        if (x->place[a->column] != x->place[b->column] || a->coef != b->coef) return false;
    }
    return true;
}

static bool is_same(const Order *x, uint32_t i, uint32_t j) {
    const Mip *m = x->m;
    const Component *p = &x->part[i], *q = &x->part[j];
    uint32_t rows = x->row_of[i + 1] - x->row_of[i];
    if (p->hash != q->hash || p->n != q->n || x->row_of[j + 1] - x->row_of[j] != rows) return false;
    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t c = x->member[p->first + k], d = x->member[q->first + k];
        const MipColumn *a = &m->column.at[c], *b = &m->column.at[d];
        if (a->cost != b->cost || a->low != b->low || a->high != b->high ||
            a->integer != b->integer)
            return false;
        for (uint32_t l = 0; l < x->nlink; l++)
            if (x->linked[(size_t)l * m->column.n + c] != x->linked[(size_t)l * m->column.n + d])
                return false;
    }
    for (uint32_t k = 0; k < rows; k++)
        if (!is_same_row(x, x->row_list[x->row_of[i] + k], x->row_list[x->row_of[j] + k]))
            return false;
    return true;
}

static void add_order(Order *x, uint32_t i, uint32_t j) {
    const Component *p = &x->part[i], *q = &x->part[j];
    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t c = x->member[p->first + k];
        if (!(x->m->column.at[c].cost > 0)) continue;
        mip_add(x->m, c, 1);
        mip_add(x->m, x->member[q->first + k], -1);
    }
    mip_row(x->m, MIP_LEAST, 0, 0);
}

/* Each component against the last one before it that is the same. */
static void order_components(Arena *a, Mip *m) {
    uint32_t n = m->column.n, nrow = m->row.n;
    Order x = {.m = m,
               .up = ARENA_ARRAY(a, uint32_t, n),
               .place = ARENA_ARRAY(a, uint32_t, n),
               .member = ARENA_ARRAY(a, uint32_t, n),
               .part = ARENA_ARRAY(a, Component, n),
               .row_of = ARENA_ARRAY(a, uint32_t, (uint64_t)n + 2),
               .row_list = ARENA_ARRAY(a, uint32_t, nrow)};
    for (uint32_t i = 0; i < nrow; i++) x.nlink += m->row.at[i].links;
    x.linked = ARENA_ARRAY(a, double, (uint64_t)n *x.nlink + 1);
    uint32_t l = 0;
    for (uint32_t i = 0; i < nrow; i++) {
        if (!m->row.at[i].links) continue;
        for (uint32_t k = m->row.at[i].first; k < row_end(m, i); k++)
            x.linked[(size_t)l * n + m->term.at[k].column] = m->term.at[k].coef;
        l++;
    }
    join_by_rows(&x);
    fill_components(a, &x);
    for (uint32_t i = 0; i < x.npart; i++) hash_component(&x, &x.part[i], i);
    for (uint32_t j = 1; j < x.npart; j++)
        for (uint32_t i = j; i-- > 0;)
            if (x.part[i].hash == x.part[j].hash && is_same(&x, i, j)) {
                add_order(&x, i, j);
                break;
            }
}

/* ---- solving ---- */

static void read_back(const Mip *m, const Reduced *r, double *value) {
    for (uint32_t c = m->column.n; c-- > 0;)
        value[c] = r->to[c] == MIP_ZERO ? r->value[c] : value[r->to[c]];
}

void mip_solve(Arena *a, const Mip *m, const MipOptions *o, MipResult *r) {
    *r = (MipResult){.status = MIP_INFEASIBLE,
                     .bound = -INFINITY,
                     .root = -INFINITY,
                     .value = ARENA_ARRAY(a, double, (uint64_t)m->column.n + 1)};
    MipOptions mo = *o;
    Reduced one = reduce(a, m);
    if (!one.mip) return;
    mo.cutoff -= one.fixed;
    if (!mip_relax(a, one.mip, &mo, r)) {
        r->root += one.fixed;
        r->bound += one.fixed;
        return;
    }
    if (o->relaxed) {
        read_back(m, &one, r->value);
        r->has_value = true;
        r->root += one.fixed;
        r->bound += one.fixed;
        r->objective += one.fixed;
        return;
    }
    Reduced two = reduce(a, one.mip);
    double fixed = one.fixed + two.fixed;
    r->status = MIP_INFEASIBLE;
    if (two.mip) {
        order_components(a, two.mip);
        mo.cutoff -= two.fixed;
        mo.seconds -= r->seconds;
        r->root -= two.fixed;
        r->bound -= two.fixed;
        mip_branch(a, two.mip, &mo, r);
        read_back(one.mip, &two, r->value);
        read_back(m, &one, r->value);
        r->root += two.fixed;
        r->bound += two.fixed;
    }
    r->root += one.fixed;
    r->bound += one.fixed;
    r->objective += fixed;
}
