/* mip.c - building and printing of mixed-integer programs (mip.h). */
#include "mip.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

Mip *mip_new(Arena *a) {
    Mip *m = ARENA_NEW(a, Mip);
    *m = (Mip){.a = a};
    return m;
}

uint32_t mip_column(Mip *m, double cost, double high, bool integer, MipName name) {
    VEC_PUSH(m->a, m->column, ((MipColumn){cost, 0, high, integer, name}));
    return m->column.n - 1;
}

void mip_add(Mip *m, uint32_t column, double coef) {
    if (column != MIP_ZERO) VEC_PUSH(m->a, m->open, ((MipTerm){column, coef}));
}

static int term_cmp(const void *x, const void *y) {
    const MipTerm *a = x, *b = y;
    return a->column < b->column ? -1 : a->column > b->column;
}

/* Sorts and merges the open terms; takes the constant ones off the right-hand side. */
static void tidy(Mip *m, double *rhs) {
    uint32_t n = 0;
    if (m->open.n) qsort(m->open.at, m->open.n, sizeof *m->open.at, term_cmp);
    for (uint32_t i = 0; i < m->open.n; i++) {
        MipTerm t = m->open.at[i];
        if (t.column == MIP_ONE)
            *rhs -= t.coef;
        else if (n && m->open.at[n - 1].column == t.column)
            m->open.at[n - 1].coef += t.coef;
        else
            m->open.at[n++] = t;
    }
    m->open.n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (m->open.at[i].coef != 0) m->open.at[m->open.n++] = m->open.at[i];
}

/* Smallest and largest value of the open terms. */
static void fill_range(const Mip *m, double *low, double *high) {
    *low = *high = 0;
    for (uint32_t i = 0; i < m->open.n; i++) {
        const MipColumn *c = &m->column.at[m->open.at[i].column];
        double x = m->open.at[i].coef * c->low, y = m->open.at[i].coef * c->high;
        *low += x < y ? x : y;
        *high += x < y ? y : x;
    }
}

static const double slack = 1e-9;

/* A row of one integer column says what the column is. */
static bool is_bound(Mip *m, MipSense sense, double rhs) {
    if (m->open.n != 1) return false;
    MipColumn *c = &m->column.at[m->open.at[0].column];
    double at = rhs / m->open.at[0].coef;
    bool most = (sense == MIP_MOST) == (m->open.at[0].coef > 0);
    if (!c->integer) return false;
    if (most && floor(at + slack) < c->high) c->high = floor(at + slack);
    if (!most && ceil(at - slack) > c->low) c->low = ceil(at - slack);
    if (c->low > c->high) m->impossible = true;
    return true;
}

static void end_row(Mip *m, MipSense sense, double rhs, int equation) {
    double low, high, eps = slack * (1 + fabs(rhs));
    fill_range(m, &low, &high);
    bool always = sense == MIP_MOST ? high <= rhs + eps : low >= rhs - eps;
    bool never = sense == MIP_MOST ? low > rhs + eps : high < rhs - eps;
    if (never) m->impossible = true;
    if (!always && !never && !is_bound(m, sense, rhs)) {
        VEC_PUSH(m->a, m->row, ((MipRow){sense, rhs, m->term.n, equation, false}));
        for (uint32_t i = 0; i < m->open.n; i++) VEC_PUSH(m->a, m->term, m->open.at[i]);
    }
    m->open.n = 0;
}

void mip_row(Mip *m, MipSense sense, double rhs, int equation) {
    tidy(m, &rhs);
    end_row(m, sense, rhs, equation);
}

/* Largest coefficient of a scaled row. */
static const double LARGEST = 100;

/* Divides by `by`, rounds down, scales, and ends the row. What rounds to nothing is left out. */
static void end_knapsack(Mip *m, double rhs, double by, int equation) {
    uint32_t n = 0;
    double most = 0;
    for (uint32_t i = 0; i < m->open.n; i++) {
        double c = floor(m->open.at[i].coef / by);
        if (c < 1) continue;
        if (c > most) most = c;
        m->open.at[n++] = (MipTerm){m->open.at[i].column, c};
    }
    m->open.n = n;
    double scale = most > LARGEST ? LARGEST / most : 1;
    for (uint32_t i = 0; i < n; i++) m->open.at[i].coef *= scale;
    uint32_t rows = m->row.n;
    end_row(m, MIP_MOST, floor(rhs / by) * scale, equation);
    if (m->row.n > rows) m->row.at[rows].links = true;
}

static int larger_first(const void *x, const void *y) {
    const double *a = x, *b = y;
    return *a > *b ? -1 : *a < *b;
}

typedef struct {
    double by, gain;
} Rounding;

/* What the row that is divided by `by` and rounded gains on the right, less a part of what it loses
 * on the left: most of what it loses belongs to columns that are 0. */
static double gain_of(const Mip *m, double rhs, double by) {
    double lost = 0;
    for (uint32_t i = 0; i < m->open.n; i++) lost += fmod(m->open.at[i].coef, by);
    return fmod(rhs, by) - lost / 10;
}

/* The best of the greatest common divisors of the largest coefficients, how many these may be;
 * `best` is in order of gain. */
enum { ROUNDED_ROWS = 3 };

static uint32_t find_roundings(const Mip *m, double rhs, Rounding *best) {
    uint32_t n = 0;
    Arena *t = arena_new();
    double *c = ARENA_ARRAY(t, double, (uint64_t)m->open.n + 1);
    for (uint32_t i = 0; i < m->open.n; i++) c[i] = m->open.at[i].coef;
    qsort(c, m->open.n, sizeof *c, larger_first);
    uint64_t by = 0;
    for (uint32_t i = 0; i < m->open.n; i++) {
        uint64_t next = gcd(by, (uint64_t)c[i]);
        if (next == by) continue;
        by = next;
        Rounding r = {(double)by, gain_of(m, rhs, (double)by)};
        if (r.gain <= 0) continue;
        uint32_t k = n < ROUNDED_ROWS ? n++ : n;
        for (; k > 0 && best[k - 1].gain < r.gain; k--)
            if (k < ROUNDED_ROWS) best[k] = best[k - 1];
        if (k < ROUNDED_ROWS) best[k] = r;
    }
    arena_free(t);
    return n;
}

void mip_knapsack(Mip *m, double rhs, int equation) {
    tidy(m, &rhs);
    uint64_t by = 0;
    for (uint32_t i = 0; i < m->open.n; i++) {
        assert(m->open.at[i].coef >= 1 && m->open.at[i].coef < 0x1p53);
        by = gcd(by, (uint64_t)m->open.at[i].coef);
    }
    Rounding more[ROUNDED_ROWS];
    uint32_t n = rhs > 0 ? find_roundings(m, rhs, more) : 0;
    Arena *t = arena_new();
    uint32_t nopen = m->open.n;
    MipTerm *row = ARENA_ARRAY(t, MipTerm, (uint64_t)nopen + 1);
    for (uint32_t i = 0; i < nopen; i++) row[i] = m->open.at[i];
    end_knapsack(m, rhs, by ? (double)by : 1, equation);
    for (uint32_t k = 0; k < n; k++) {
        if (more[k].by <= (double)by) continue;
        for (uint32_t i = 0; i < nopen; i++) VEC_PUSH(m->a, m->open, row[i]);
        end_knapsack(m, rhs, more[k].by, equation);
    }
    arena_free(t);
}

/* ---- printing ---- */

enum { LINE = 90 };

/* Starts a new line when the current one is long: readers of the format limit the length. */
static void wrap(Text *out, size_t *line) {
    if (out->n - *line <= LINE) return;
    text_str(out, "\n  ");
    *line = out->n;
}

static void print_name(Text *out, MipName n) {
    text_add(out, "%c%u_%u", n.letter, n.at, n.id);
}

static void print_terms(Text *out, const Mip *m, const MipTerm *t, uint32_t n, size_t *line) {
    for (uint32_t i = 0; i < n; i++) {
        wrap(out, line);
        text_add(out, " %c %.15g ", t[i].coef < 0 ? '-' : '+', fabs(t[i].coef));
        print_name(out, m->column.at[t[i].column].name);
    }
}

static void print_objective(Text *out, const Mip *m) {
    size_t line = out->n;
    text_str(out, "Minimize\n cost:");
    bool any = false;
    for (uint32_t i = 0; i < m->column.n; i++) {
        MipTerm t = {i, m->column.at[i].cost};
        if (t.coef == 0) continue;
        print_terms(out, m, &t, 1, &line);
        any = true;
    }
    if (!any && m->column.n) {
        text_str(out, " 0 ");
        print_name(out, m->column.at[0].name);
    }
    text_char(out, '\n');
}

static uint32_t row_end(const Mip *m, uint32_t i) {
    return i + 1 < m->row.n ? m->row.at[i + 1].first : m->term.n;
}

static void print_rows(Text *out, const Mip *m) {
    text_str(out, "Subject To\n");
    for (uint32_t i = 0; i < m->row.n; i++) {
        const MipRow *r = &m->row.at[i];
        size_t line = out->n;
        text_add(out, " row%d_%u:", r->equation, i);
        print_terms(out, m, m->term.at + r->first, row_end(m, i) - r->first, &line);
        text_add(out, " %s %.15g\n", r->sense == MIP_MOST ? "<=" : ">=", r->rhs);
    }
}

static void print_columns(Text *out, const Mip *m) {
    text_str(out, "Bounds\n");
    for (uint32_t i = 0; i < m->column.n; i++) {
        const MipColumn *c = &m->column.at[i];
        text_add(out, " %.15g <= ", c->low);
        print_name(out, c->name);
        text_add(out, " <= %.15g\n", c->high);
    }
    text_str(out, "Generals\n");
    for (uint32_t i = 0; i < m->column.n; i++) {
        if (!m->column.at[i].integer) continue;
        text_char(out, ' ');
        print_name(out, m->column.at[i].name);
        text_char(out, '\n');
    }
}

void mip_print(Text *out, const Mip *m, const char *head) {
    text_str(out, "\\ ");
    for (const char *s = head; *s; s++) {
        text_char(out, *s);
        if (*s == '\n') text_str(out, "\\ ");
    }
    text_add(out, "\n\\ %u columns, %u rows\n", m->column.n, m->row.n);
    print_objective(out, m);
    print_rows(out, m);
    if (m->impossible && m->column.n) {
        text_str(out, " impossible: 0 ");
        print_name(out, m->column.at[0].name);
        text_str(out, " >= 1\n");
    }
    print_columns(out, m);
    text_str(out, "End\n");
}
