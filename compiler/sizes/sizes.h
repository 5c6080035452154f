/* sizes.h - one training step for all values of the symbolic dimensions.
 *
 * The step is built for a few values, the grid, and must come out with one structure: operators,
 * edges, names, constants. Then every number in it, and every number that code generation writes,
 * is a polynomial in the symbols with integer coefficients, found by interpolation and checked at
 * further points. The grid does not depend on the values that a program is compiled for, and a
 * program for given values is an instance of the same structure: decisions that look at sizes
 * (fusion, layout of images, loops) fall the same way whatever the program was compiled for, so
 * that programs compiled for two sizes, and one program run at both, compute the same bits. */
#ifndef DTRC_SIZES_H
#define DTRC_SIZES_H

#include "ops.h"

enum {
    SIZES_MAX_SYMBOLS = 3,
    SIZES_MAX_NAMES = 4,  /* dimensions that vary together as one symbol */
    SIZES_MAX_COEFS = 27, /* 3 symbols of degree 2 */
    SIZES_MAX_CHECKS = 4
};

typedef struct {
    uint32_t nname;
    const char *name[SIZES_MAX_NAMES]; /* dimensions of the model */
    const char *id;                    /* in generated C: N, N_seq */
    bool batch;                        /* axis 0 of an input */
    uint32_t degree;                   /* of polynomials in this symbol: 1 or 2 */
    int64_t base;                      /* the grid has base .. base + degree */
    int64_t value;                     /* compiled for */
    int64_t lo, hi;                    /* values for which the step makes sense */
} SizeSymbol;

typedef struct {
    uint32_t nsym;
    SizeSymbol sym[SIZES_MAX_SYMBOLS];
    /* Points of the grid (the first symbol changes fastest), then those of checks. */
    uint32_t ngrid, npoint;
    int64_t point[SIZES_MAX_COEFS + SIZES_MAX_CHECKS][SIZES_MAX_SYMBOLS];
    const Graph *step[SIZES_MAX_COEFS + SIZES_MAX_CHECKS]; /* per point, one structure */
} Sizes;

/* Coefficient k belongs to the product of sym[i]^e[i], where the e are the digits of k as the grid
 * counts its points. */
typedef struct {
    int64_t c[SIZES_MAX_COEFS];
} SizePoly;

/* ---- poly.c ---- */
/* Fills the points of the grid from base and degree. */
void sizes_grid(Sizes *s);
/* The polynomial with the value v[i] at grid point i; false when it has other than integer
 * coefficients. */
bool sizes_fit(const Sizes *s, const int64_t *v, SizePoly *out);
/* False when it does not fit 64 bits. */
bool sizes_eval(const Sizes *s, const SizePoly *p, const int64_t *at, int64_t *out);
bool sizes_constant(const Sizes *s, const SizePoly *p);
/* Bit i: symbol i occurs. */
uint32_t sizes_symbols(const Sizes *s, const SizePoly *p);
/* "64 * N * N_seq + 3" */
void sizes_print(Text *t, const Sizes *s, const SizePoly *p);
/* The same for variables of type double. */
void sizes_print_real(Text *t, const Sizes *s, const SizePoly *p);
/* The same value at all points of v (npoint of them)? Else the polynomial, which must also hold at
 * the points of checks. */
bool sizes_fit_checked(const Sizes *s, const int64_t *v, SizePoly *out);

/* ---- compare.c ---- */
/* What differs between two graphs, numbers aside; NULL when nothing does. */
const char *sizes_difference(Arena *a, const Graph *x, const Graph *y);
/* Axes along which a constant repeats itself (bit i: axis i), so that it can be made longer there;
 * along others only shorter. */
uint32_t sizes_repeated_axes(const Value *v);

/* ---- instance.c ---- */
/* The graph at the given values, from graphs of one structure at the points of the grid. NULL with
 * the reason in *why. Sources take their data from the value of the same name in `data`, if given.
 */
Graph *sizes_instance(Arena *a, const Sizes *s, const Graph *const *grid, const int64_t *at,
                      const Graph *data, const char **why);

/* ---- merge.c ---- */
/* One text from texts that differ in numbers, one for each point: integers become polynomials,
 * other numbers 1.0 / polynomial. *used gets the bits of the symbols that occur. False with the
 * reason in *why. */
bool sizes_merge(Arena *a, const Sizes *s, const char *const *text, Text *out, uint32_t *used,
                 const char **why);

#endif
