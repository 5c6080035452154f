/* poly.c - polynomials with integer coefficients in a few symbols: interpolation on a grid of
 * neighbouring integers, evaluation, and their text in C.
 *
 * Interpolation goes axis by axis: along one axis the values at K, K+1, K+2 become the coefficients
 * of 1, n, n^2 by forward differences (I. Newton, Principia, book III, lemma V), kept as twice
 * themselves until the end, where all must be whole. */
#include "sizes.h"

#include <string.h>

__extension__ typedef __int128 Wide;

void sizes_grid(Sizes *s) {
    s->ngrid = 1;
    for (uint32_t i = 0; i < s->nsym; i++) s->ngrid *= s->sym[i].degree + 1;
    for (uint32_t g = 0; g < s->ngrid; g++) {
        uint32_t rest = g;
        for (uint32_t i = 0; i < s->nsym; i++) {
            s->point[g][i] = s->sym[i].base + rest % (s->sym[i].degree + 1);
            rest /= s->sym[i].degree + 1;
        }
    }
    s->npoint = s->ngrid;
}

/* Values at k, k+1 (and k+2) to coefficients; of degree 2: twice the coefficients. */
static void solve_line(Wide *v, uint32_t step, uint32_t degree, Wide k) {
    Wide a = v[0], b = v[step];
    if (degree == 1) {
        v[step] = b - a;
        v[0] = a - k * (b - a);
        return;
    }
    Wide c2 = v[2 * step] - 2 * b + a;
    Wide c1 = 2 * (b - a) - c2 * (2 * k + 1);
    v[0] = 2 * a - c2 * k * k - c1 * k;
    v[step] = c1;
    v[2 * step] = c2;
}

bool sizes_fit(const Sizes *s, const int64_t *v, SizePoly *out) {
    Wide w[SIZES_MAX_COEFS], scale = 1;
    for (uint32_t g = 0; g < s->ngrid; g++) w[g] = v[g];
    for (uint32_t i = 0, step = 1; i < s->nsym; step *= s->sym[i++].degree + 1) {
        uint32_t degree = s->sym[i].degree;
        for (uint32_t g = 0; g < s->ngrid; g++)
            if (g / step % (degree + 1) == 0) solve_line(w + g, step, degree, s->sym[i].base);
        scale *= degree;
    }
    *out = (SizePoly){0};
    for (uint32_t g = 0; g < s->ngrid; g++) {
        if (w[g] % scale) return false;
        out->c[g] = (int64_t)(w[g] / scale);
        if (out->c[g] != w[g] / scale) return false;
    }
    return true;
}

bool sizes_eval(const Sizes *s, const SizePoly *p, const int64_t *at, int64_t *out) {
    *out = 0;
    for (uint32_t k = 0; k < s->ngrid; k++) {
        int64_t term = p->c[k];
        uint32_t rest = k;
        for (uint32_t i = 0; i < s->nsym && term; i++) {
            for (uint32_t e = rest % (s->sym[i].degree + 1); e > 0; e--)
                if (__builtin_mul_overflow(term, at[i], &term)) return false;
            rest /= s->sym[i].degree + 1;
        }
        if (__builtin_add_overflow(*out, term, out)) return false;
    }
    return true;
}

bool sizes_constant(const Sizes *s, const SizePoly *p) {
    for (uint32_t k = 1; k < s->ngrid; k++)
        if (p->c[k]) return false;
    return true;
}

uint32_t sizes_symbols(const Sizes *s, const SizePoly *p) {
    uint32_t bits = 0;
    for (uint32_t k = 1; k < s->ngrid; k++) {
        uint32_t rest = k;
        for (uint32_t i = 0; i < s->nsym && p->c[k]; i++) {
            if (rest % (s->sym[i].degree + 1)) bits |= 1u << i;
            rest /= s->sym[i].degree + 1;
        }
    }
    return bits;
}

static void print_term(Text *t, const Sizes *s, uint32_t k, int64_t c, bool first,
                       const char *point) {
    uint64_t size = c < 0 ? 0 - (uint64_t)c : (uint64_t)c;
    text_str(t, first ? (c < 0 ? "-" : "") : c < 0 ? " - " : " + ");
    const char *times = "";
    if (size != 1 || k == 0) {
        text_add(t, "%llu%s", (unsigned long long)size, point);
        times = " * ";
    }
    for (uint32_t i = 0; i < s->nsym; i++) {
        for (uint32_t e = k % (s->sym[i].degree + 1); e > 0; e--, times = " * ")
            text_add(t, "%s%s", times, s->sym[i].id);
        k /= s->sym[i].degree + 1;
    }
}

static void print(Text *t, const Sizes *s, const SizePoly *p, const char *point) {
    bool first = true;
    for (uint32_t k = s->ngrid; k-- > 0;) {
        if (!p->c[k]) continue;
        print_term(t, s, k, p->c[k], first, point);
        first = false;
    }
    if (first) text_char(t, '0');
}

void sizes_print(Text *t, const Sizes *s, const SizePoly *p) {
    print(t, s, p, "");
}

void sizes_print_real(Text *t, const Sizes *s, const SizePoly *p) {
    print(t, s, p, ".0");
}

bool sizes_fit_checked(const Sizes *s, const int64_t *v, SizePoly *out) {
    if (!sizes_fit(s, v, out)) return false;
    for (uint32_t i = s->ngrid; i < s->npoint; i++) {
        int64_t x;
        if (!sizes_eval(s, out, s->point[i], &x) || x != v[i]) return false;
    }
    return true;
}
