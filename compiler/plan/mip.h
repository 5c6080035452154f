/* mip.h - a mixed-integer program: columns, rows, and its solution through GLPK. Internal to the
 * room. Minimizes the sum of cost * column over columns between 0 and 1.
 *
 * The program is kept in our own arrays (mip.c), so it outlives the solver, can be printed, and is
 * free of GLPK. glpk.c alone includes <glpk.h>: it loads, solves and reads back within one fence.
 */
#ifndef DTRC_MIP_H
#define DTRC_MIP_H

#include "base.h"

/* Columns that are constants: terms with MIP_ONE move to the right-hand side, terms with MIP_ZERO
 * vanish. */
#define MIP_ZERO NO_ID
#define MIP_ONE (NO_ID - 1)

/* Units of the objective in one run of each node: costs near 1 suit the solver's tolerances. */
#define MIP_UNITS 1e5

typedef enum { MIP_MOST, MIP_LEAST } MipSense; /* sum <= rhs, sum >= rhs */

/* Printed as letter, at, "_", id: P2_17; unique together. */
typedef struct {
    char letter;
    uint32_t at, id;
} MipName;

typedef struct {
    double cost, low, high;
    bool integer;
    MipName name;
} MipColumn;

typedef struct {
    MipSense sense;
    double rhs;
    uint32_t first; /* its terms end where those of the next row begin */
    int equation;   /* number in the head of the file that built it; for printing */
    bool links;     /* a knapsack over everything */
} MipRow;

typedef struct {
    uint32_t column;
    double coef;
} MipTerm;

typedef struct {
    Arena *a;
    VEC(MipColumn) column;
    VEC(MipRow) row;
    VEC(MipTerm) term;
    VEC(MipTerm) open; /* of the row that is being built */
    bool impossible;   /* a row cannot be satisfied */
} Mip;

/* ---- mip.c ---- */
Mip *mip_new(Arena *a);
uint32_t mip_column(Mip *m, double cost, double high, bool integer, MipName name);
/* Adds coef * column to the row that is being built. */
void mip_add(Mip *m, uint32_t column, double coef);
/* Ends the row. Rows that hold for all values of their columns are left out; rows of one column
 * become bounds. */
void mip_row(Mip *m, MipSense sense, double rhs, int equation);
/* Ends a row of whole positive coefficients with sum <= rhs: divided by their greatest common
 * divisor, rounded, and scaled, because byte counts are too large for the solver's tolerances. A
 * few more rows, divided by greatest common divisors of the larger coefficients and rounded, come
 * with it when they are tighter (Chvatal's cuts): a few tiny values spoil the rounding of the row
 * itself. */
void mip_knapsack(Mip *m, double rhs, int equation);
/* CPLEX LP format; `head` becomes comment lines. */
void mip_print(Text *out, const Mip *m, const char *head);

/* ---- reduce.c ---- */
typedef enum {
    MIP_OPTIMAL,
    MIP_INFEASIBLE, /* no solution, or none within the cutoff */
    MIP_LIMIT,      /* out of time; bound holds, `has_value` says whether there is a solution */
    MIP_BROKEN      /* the solver gave up: error, memory, numerical trouble; `message` says what */
} MipStatus;

typedef struct {
    double seconds; /* time limit */
    double cutoff;  /* solutions above this do not matter; INFINITY: all do */
    int memory_mib; /* memory limit; 0: none */
    uint32_t
        iterations; /* of the simplex method, roughly; 0: any. Counted, so the same each time */
    bool cuts;      /* MIR and cover cuts */
    bool relaxed;   /* only the linear relaxation */
    bool fail_for_tests; /* provokes an error inside the solver */
} MipOptions;

typedef struct {
    MipStatus status;
    double objective; /* of the solution */
    double bound;     /* no solution within the cutoff is below this; -INFINITY: nothing known */
    double root;      /* value of the linear relaxation, or -INFINITY */
    bool has_value;
    double *value; /* per column */
    uint32_t nodes;
    uint64_t iterations; /* of the simplex method */
    double seconds;
    char message[160];
} MipResult;

/* r->value belongs to a. */
void mip_solve(Arena *a, const Mip *m, const MipOptions *o, MipResult *r);

/* ---- glpk.c: what mip_solve stands on. Both fill *r, whose value[] has room, and keep the bound
 * that is in it already. ---- */
/* The linear relaxation. Columns that no solution within the cutoff can move off their bound are
 * fixed in m. False: r->status says why it was not solved to optimality. */
bool mip_relax(Arena *a, Mip *m, const MipOptions *o, MipResult *r);
/* Branch and cut. */
void mip_branch(Arena *a, const Mip *m, const MipOptions *o, MipResult *r);

#endif
