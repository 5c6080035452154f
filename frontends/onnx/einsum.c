/* einsum.c - Einsum as views, transposes, sums and matrix products.
 *
 * Letters become numbers in the order in which the equation names them; the axes of an ellipsis get
 * numbers of their own. An operand with a letter twice is reduced to its diagonal. Operands are
 * then contracted from left to right: letters that neither the other operands nor the result have
 * are summed; of two operands the common letters that stay are batch axes, those that go are the
 * inner axis of the product, the rest its rows and columns. */
#include "import.h"

#include <ctype.h>
#include <string.h>

enum { MAX_LETTERS = 64, MAX_OPERANDS = 16, ELLIPSIS = 52 };

/* A value whose axis k carries letter[k]. */
typedef struct {
    ValueId v;
    uint32_t rank;
    uint8_t letter[IR_MAX_RANK];
} Operand;

typedef struct {
    const Ctx *c;
    int64_t size[MAX_LETTERS]; /* per letter; 0: not seen */
    uint32_t step;             /* numbers the nodes */
} Einsum;

static bool has_letter(const Operand *o, uint8_t l) {
    for (uint32_t k = 0; k < o->rank; k++)
        if (o->letter[k] == l) return true;
    return false;
}

static const char *next_name(Einsum *e) {
    return arena_printf(e->c->x->tmp, ".%u", e->step++);
}

/* ---- the equation ---- */

/* One term, such as "b...ij": letters of the axes. rank: of the operand, or NO_ID for the result,
 * whose ellipsis has `extra` axes. */
static Res read_term(const Ctx *c, const char **text, uint32_t rank, uint32_t *extra, Operand *o) {
    const char *s = *text;
    uint32_t named = 0, n = 0;
    for (const char *p = s; *p && *p != ',' && strncmp(p, "->", 2) != 0; p++)
        named += isalpha((unsigned char)*p) != 0;
    uint32_t dots = rank == NO_ID ? *extra : rank >= named ? rank - named : 0;
    for (; *s && *s != ',' && strncmp(s, "->", 2) != 0; s++) {
        bool ellipsis = !strncmp(s, "...", 3);
        uint32_t count = ellipsis ? dots : 1;
        if (*s == ' ') continue;
        if (!ellipsis && !isalpha((unsigned char)*s))
            return ctx_fail(c, "the equation has an unexpected character '%s'",
                            diag_name(c->x->tmp, arena_strn(c->x->tmp, s, 1)));
        if (n + count > IR_MAX_RANK)
            return ctx_fail(c, "a term has more than %d axes", IR_MAX_RANK);
        for (uint32_t i = 0; i < count; i++)
            o->letter[n++] = ellipsis    ? (uint8_t)(ELLIPSIS + IR_MAX_RANK - count + i)
                             : *s >= 'a' ? (uint8_t)(*s - 'a')
                                         : (uint8_t)(*s - 'A' + 26);
        if (ellipsis && count > *extra) *extra = count;
        if (ellipsis) s += 2;
    }
    if (rank != NO_ID && n != rank)
        return ctx_fail(c, "a term names %u axes, its operand has %u", n, rank);
    o->rank = n;
    *text = s;
    return OK;
}

/* Without "->": the letters that occur once, in alphabetic order, after the ellipsis. */
static void implied_result(const Operand *in, uint32_t n, uint32_t extra, Operand *out) {
    static const char order[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (uint32_t i = 0; i < extra; i++)
        out->letter[out->rank++] = (uint8_t)(ELLIPSIS + IR_MAX_RANK - extra + i);
    for (const char *p = order; *p; p++) {
        uint8_t l = *p >= 'a' ? (uint8_t)(*p - 'a') : (uint8_t)(*p - 'A' + 26);
        uint32_t count = 0;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < in[i].rank; k++) count += in[i].letter[k] == l;
        if (count == 1 && out->rank < IR_MAX_RANK) out->letter[out->rank++] = l;
    }
}

/* Sizes of letters; an ellipsis axis of size 1 broadcasts. */
static Res note_sizes(Einsum *e, const Operand *o) {
    const Shape *s = &e->c->x->g->value[o->v].shape;
    for (uint32_t k = 0; k < o->rank; k++) {
        int64_t *size = &e->size[o->letter[k]], d = s->dim[k];
        if (*size == 0 || *size == 1) *size = d;
        if (*size != d && d != 1)
            return ctx_fail(e->c, "a letter stands for axes of %lld and %lld", (long long)*size,
                            (long long)d);
    }
    return OK;
}

static Res read_equation(Einsum *e, Operand *in, Operand *out) {
    const Ctx *c = e->c;
    const char *text, *s;
    uint32_t extra = 0, n = c->n->nin;
    MUST(attr_text(c, "equation", "", &text));
    if (n > MAX_OPERANDS) return ctx_skip(c, "%u operands (%d are)", n, MAX_OPERANDS);
    if (strlen(text) > 1000) return ctx_fail(c, "the equation is too long");
    s = text;
    for (uint32_t i = 0; i < n; i++) {
        if (!has_in(c, i)) return ctx_fail(c, "input %u is not there", i);
        in[i].v = value_in(c, i);
        MUST(read_term(c, &s, shape_in(c, i)->rank, &extra, &in[i]));
        MUST(note_sizes(e, &in[i]));
        if (i + 1 < n && *s++ != ',') return ctx_fail(c, "the equation has %u terms", i + 1);
    }
    if (!strncmp(s, "->", 2)) {
        s += 2;
        MUST(read_term(c, &s, NO_ID, &extra, out));
    } else {
        implied_result(in, n, extra, out);
    }
    if (*s) return ctx_fail(c, "the equation goes on after the result");
    for (uint32_t k = 0; k < out->rank; k++) {
        bool known = false, twice = false;
        for (uint32_t i = 0; i < n; i++) known = known || has_letter(&in[i], out->letter[k]);
        for (uint32_t j = 0; j < k; j++) twice = twice || out->letter[j] == out->letter[k];
        if (!known || twice) return ctx_fail(c, "the result's axis %u has no or no new letter", k);
    }
    return OK;
}

/* ---- steps ---- */

static ValueId view(Einsum *e, ValueId v, const Shape *s) {
    if (v == NO_ID || shape_eq(&e->c->x->g->value[v].shape, s)) return v;
    return emit_view(e->c, next_name(e), v, s);
}

static Shape shape_of(const Einsum *e, const Operand *o) {
    return o->v == NO_ID ? (Shape){0} : e->c->x->g->value[o->v].shape;
}

/* Puts the axes in the order of `perm`. */
static void transpose(Einsum *e, Operand *o, const int64_t *perm) {
    Operand old = *o;
    bool moved = false;
    for (uint32_t k = 0; k < o->rank; k++) {
        moved = moved || perm[k] != k;
        o->letter[k] = old.letter[perm[k]];
    }
    Attr at = attr_ints(e->c->x->tmp, A_perm, perm, o->rank);
    if (moved && o->v != NO_ID) o->v = emit(e->c, OP_Transpose, next_name(e), 1, &old.v, 1, &at);
}

/* A letter at two axes: they go to the end, [.., n, n] is read as n*n and every n+1st is taken. */
static void take_diagonals(Einsum *e, Operand *o) {
    for (uint32_t i = 0; i < o->rank; i++)
        for (uint32_t j = i + 1; j < o->rank; j++) {
            if (o->letter[i] != o->letter[j] || o->v == NO_ID) continue;
            int64_t perm[IR_MAX_RANK], start[IR_MAX_RANK] = {0}, step[IR_MAX_RANK];
            uint32_t n = 0;
            for (uint32_t k = 0; k < o->rank; k++)
                if (k != i && k != j) perm[n++] = k;
            perm[n] = i, perm[n + 1] = j;
            transpose(e, o, perm);
            Shape s = shape_of(e, o);
            int64_t size = s.dim[n];
            s.rank = --o->rank;
            s.dim[n] = size * size;
            o->v = view(e, o->v, &s);
            for (uint32_t k = 0; k < s.rank; k++) step[k] = k == n ? size + 1 : 1;
            s.dim[n] = size;
            Arena *a = e->c->x->tmp;
            Attr at[] = {attr_ints(a, A_starts, start, s.rank), attr_ints(a, A_steps, step, s.rank),
                         attr_ints(a, A_sizes, s.dim, s.rank)};
            if (o->v != NO_ID) o->v = emit(e->c, OP_Slice, next_name(e), 1, &o->v, 3, at);
            i = NO_ID; /* look again from the start */
            break;
        }
}

/* Sums the axes whose letters are not in `keep`. */
static void sum_letters(Einsum *e, Operand *o, const bool *keep) {
    int64_t axes[IR_MAX_RANK];
    uint32_t n = 0, left = 0;
    for (uint32_t k = 0; k < o->rank; k++) {
        if (!keep[o->letter[k]])
            axes[n++] = k;
        else
            o->letter[left++] = o->letter[k];
    }
    o->rank = left;
    if (!n || o->v == NO_ID) return;
    Arena *a = e->c->x->tmp;
    Attr at[] = {attr_ints(a, A_axes, axes, n), attr_i(a, A_keepdims, 0)};
    o->v = emit(e->c, OP_ReduceSum, next_name(e), 1, &o->v, 2, at);
}

/* Axes of o by group: 0 batch, 1 own, 2 inner (own after inner when `last`). */
typedef struct {
    uint32_t n[3];
    int64_t size[3]; /* products */
} Groups;

static Groups sort_groups(Einsum *e, Operand *o, const Operand *other, const bool *keep,
                          bool own_last) {
    Groups g = {{0}, {1, 1, 1}};
    int64_t perm[IR_MAX_RANK];
    uint32_t at = 0;
    Shape s = shape_of(e, o);
    for (uint32_t pass = 0; pass < 3; pass++) {
        uint32_t want = pass == 0 ? 0 : (pass == 1) == own_last ? 2 : 1;
        /* common letters in the same order on both sides: by letter */
        for (uint8_t l = 0; l < MAX_LETTERS; l++)
            for (uint32_t k = 0; k < o->rank; k++) {
                bool common = has_letter(other, l);
                if (o->letter[k] != l || (common ? keep[l] ? 0u : 2u : 1u) != want) continue;
                g.n[want]++;
                g.size[want] *= s.dim[k];
                perm[at++] = k;
            }
    }
    transpose(e, o, perm);
    return g;
}

/* An ellipsis axis of size 1 against a longer one: expanded, so that both sides are one batch. */
static void match_sizes(Einsum *e, Operand *o, const Operand *other) {
    Shape s = shape_of(e, o), old = s;
    for (uint32_t k = 0; k < o->rank; k++)
        if (has_letter(other, o->letter[k])) s.dim[k] = e->size[o->letter[k]];
    if (o->v == NO_ID || shape_eq(&s, &old)) return;
    Attr at = attr_ints(e->c->x->tmp, A_shape, s.dim, s.rank);
    o->v = emit(e->c, OP_Expand, next_name(e), 1, &o->v, 1, &at);
}

/* The product of two operands; letters outside of `keep` are summed. */
static Operand contract(Einsum *e, Operand a, Operand b, const bool *keep) {
    match_sizes(e, &a, &b);
    match_sizes(e, &b, &a);
    Groups p = sort_groups(e, &a, &b, keep, false), q = sort_groups(e, &b, &a, keep, true);
    Shape sa = shape_of(e, &a), sb = shape_of(e, &b), s = {0};
    Operand r = {.v = NO_ID};
    Shape ma = {3, {p.size[0], p.size[1], p.size[2]}}, mb = {3, {q.size[0], q.size[2], q.size[1]}};
    ValueId in[] = {view(e, a.v, &ma), view(e, b.v, &mb)};
    for (uint32_t k = 0; k < p.n[0] + p.n[1]; k++) {
        if (r.rank == IR_MAX_RANK) break;
        s.dim[r.rank] = sa.dim[k];
        r.letter[r.rank++] = a.letter[k];
    }
    for (uint32_t k = q.n[0] + q.n[2]; k < b.rank && r.rank < IR_MAX_RANK; k++) {
        s.dim[r.rank] = sb.dim[k];
        r.letter[r.rank++] = b.letter[k];
    }
    s.rank = r.rank;
    if (in[0] == NO_ID || in[1] == NO_ID) return r;
    uint64_t have = 0, want = 0;
    /* without an inner axis [b, m, 1] times [b, 1, n] element by element is the same */
    OpCode op = p.n[2] ? OP_MatMul : OP_Mul;
    ValueId v = emit(e->c, op, next_name(e), 2, in, 0, NULL);
    if (v != NO_ID && shape_count(&s, &want)) have = value_count(e->c->x->g, v);
    if (have != want) { /* axes were cut off above */
        ctx_fail(e->c, "a product with more than %d axes", IR_MAX_RANK);
        return r;
    }
    r.v = view(e, v, &s);
    return r;
}

/* Letters that operands from..n-1 or the result still need. */
static void fill_keep(const Operand *in, uint32_t from, uint32_t n, const Operand *out,
                      bool *keep) {
    memset(keep, 0, MAX_LETTERS);
    for (uint32_t k = 0; k < out->rank; k++) keep[out->letter[k]] = true;
    for (uint32_t i = from; i < n; i++)
        for (uint32_t k = 0; k < in[i].rank; k++) keep[in[i].letter[k]] = true;
}

Res make_einsum(Ctx *c) {
    Einsum e = {.c = c};
    Operand in[MAX_OPERANDS] = {0}, out = {0};
    bool keep[MAX_LETTERS];
    uint32_t n = c->n->nin;
    MUST(read_equation(&e, in, &out));
    for (uint32_t i = 0; i < n; i++) take_diagonals(&e, &in[i]);
    Operand now = in[0];
    for (uint32_t i = 0; i < n; i++) {
        Operand next = in[i];
        if (i) { /* letters of the next operand alone */
            fill_keep(in, i + 1, n, &out, keep);
            for (uint32_t k = 0; k < now.rank; k++) keep[now.letter[k]] = true;
            sum_letters(&e, &next, keep);
        }
        fill_keep(in, i ? i : 1, n, &out, keep);
        sum_letters(&e, &now, keep);
        fill_keep(in, i + 1, n, &out, keep);
        if (i) now = contract(&e, now, next, keep);
        if (now.v == NO_ID) return FAIL;
    }
    int64_t perm[IR_MAX_RANK];
    if (now.rank != out.rank) return ctx_fail(c, "the result has %u axes", now.rank);
    for (uint32_t k = 0; k < out.rank; k++)
        for (uint32_t j = 0; j < now.rank; j++)
            if (now.letter[j] == out.letter[k]) perm[k] = j;
    transpose(&e, &now, perm);
    Shape s = shape_of(&e, &now);
    return now.v == NO_ID ? FAIL : bind(c, 0, emit_view(c, "", now.v, &s));
}
