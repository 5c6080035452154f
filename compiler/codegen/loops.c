/* loops.c - C for elementwise nodes, column reductions and Fused nodes.
 *
 * LoopNest (ops/loopnest.c) -> one of four shapes of code:
 *  - flat: all operands move together; one parallel simd loop
 *  - rows: some operand stands still along some axis; each thread takes a range of the linear index
 *    and walks it in pieces of the last axis, with a base pointer for each operand and piece
 *  - sums: a reduction; each of THREADS shares takes rows, adds them up in double into its part of
 *    the workspace, and a second loop combines the shares in order and applies `fin`
 *  - columns: a reduction with few rows or very many columns; each share sums its columns alone
 * Shares depend on the compiled thread count only, never on how many threads happen to run, so sums
 * have the same bits always. Sizes are parameters: nodes that differ in nothing else share a loop,
 * and so do the sizes of a program that has several.
 *
 * Operands may be in place: pointers are not restrict; `omp simd` is right all the same, because an
 * output may only alias an input element for element. */
#include "loop.h"

#include <assert.h>

enum { COLUMN_BLOCK = 256, SUM_BLOCK = 512, PAR_CHEAP = 32768, PAR_COSTLY = 4096 };

static void begin_shares(const Loop *w, const char *total) {
    bool cheap = true;
    for (uint32_t k = 0; k < w->l.body.ninst; k++)
        cheap &= (op_def(w->l.body.inst[k].op)->flags & (OPF_CHEAP | OPF_COLREDUCE)) != 0;
    text_add(w->t, "#pragma omp parallel for schedule(static) if (%s >= %d)\n", total,
             cheap ? PAR_CHEAP : PAR_COSTLY);
}

/* ---- pieces of the inner loop ---- */

static void load_inputs(const Loop *w, const char *pad) {
    for (uint32_t k = 0; k < w->n->nin; k++) {
        if (!loop_is_given(w, k) || !loop_moves(w, k, w->last)) continue;
        text_add(w->t, "%sconst %s v%u = %s%u[%s];\n", pad, cg_ctype(loop_type(w, k)), k,
                 w->form == FLAT ? "a" : "q", k, w->in_at);
    }
}

static void store_outputs(const Loop *w, const char *pad) {
    for (uint32_t o = 0; o < w->n->nout; o++) {
        uint32_t k = w->n->nin + o;
        if (!loop_is_walked(w, k)) continue;
        text_add(w->t, "%s%s%u[%s] = t%u;\n", pad, w->form == FLAT ? "a" : "q", k, w->in_at,
                 w->l.body.out_inst[o]);
    }
}

static void inner(const Loop *w, const char *pad) {
    load_inputs(w, pad);
    loop_compute(w, pad);
    store_outputs(w, pad);
}

/* ---- pieces around it ---- */

static void declare_operands(const Loop *w) {
    for (uint32_t k = 0; k < w->nop; k++) {
        if (!loop_is_given(w, k)) continue;
        bool in = k < w->n->nin;
        text_add(w->t, "    %s%s *const a%u = p[%u];\n", in ? "const " : "",
                 cg_ctype(loop_type(w, k)), k, k);
    }
    for (uint32_t k = 0; k < w->l.body.ninst; k++) {
        if (op_def(w->l.body.inst[k].op)->cls != CLS_RANDOM) continue;
        text_str(w->t, "    const uint64_t seed = c->seed, step = c->step;\n");
        break;
    }
}

/* Operand k's element at the start of a piece, from coordinates x0.. of the outer axes. */
static const char *piece_offset(const Loop *w, uint32_t k) {
    if (loop_moves_everywhere(w, k)) return "i";
    Text t;
    text_init(&t, w->a);
    for (uint32_t ax = 0; ax < w->last; ax++) {
        if (!loop_moves(w, k, ax)) continue;
        text_add(&t, "%sx%u", t.n ? " + " : "", ax);
        for (uint32_t j = ax + 1; j <= w->last; j++)
            if (loop_moves(w, k, j)) text_add(&t, " * n%u", j);
    }
    if (loop_moves(w, k, w->last)) text_add(&t, "%sj", t.n ? " + " : "");
    return t.n ? t.at : "0";
}

/* Base pointers q of the piece that starts at linear index i, position j of the last axis; operands
 * that stand still along the last axis become scalars v. */
static void open_piece(const Loop *w, const char *pad) {
    uint32_t wanted = 0;
    for (uint32_t k = 0; k < w->nop; k++)
        if (loop_is_walked(w, k) && !loop_moves_everywhere(w, k)) wanted |= w->l.moves[k];
    for (uint32_t ax = 0; ax < w->last; ax++) {
        if (!(wanted >> ax & 1)) continue;
        const char *inside = loop_product(w, ax + 1, w->last + 1);
        text_add(w->t,
                 ax + 1 < w->last ? "%sconst int64_t x%u = i / (%s)"
                                  : "%sconst int64_t x%u = i / %s",
                 pad, ax, inside);
        text_add(w->t, ax ? " %% n%u;\n" : ";\n", ax);
    }
    for (uint32_t k = 0; k < w->nop; k++) {
        if (!loop_is_walked(w, k)) continue;
        const char *type = cg_ctype(loop_type(w, k)), *at = piece_offset(w, k);
        if (k >= w->n->nin)
            text_add(w->t, "%s%s *const q%u = a%u + %s;\n", pad, type, k, k, at);
        else if (loop_moves(w, k, w->last))
            text_add(w->t, "%sconst %s *const q%u = a%u + %s;\n", pad, type, k, k, at);
        else
            text_add(w->t, "%sconst %s v%u = a%u[%s];\n", pad, type, k, k, at);
    }
}

static void simd_loop(const Loop *w, const char *pad) {
    const char *deeper = arena_printf(w->a, "%s    ", pad);
    text_str(w->t, "#pragma omp simd");
    if (w->scalar_sums) {
        text_str(w->t, " reduction(+ : ");
        for (uint32_t i = 0; i < w->l.nacc; i++) text_add(w->t, "%ssum%u", i ? ", " : "", i);
        text_str(w->t, ")");
    }
    text_add(w->t, "\n%sfor (int64_t e = 0; e < m; e++) {\n", pad);
    inner(w, deeper);
    text_add(w->t, "%s}\n", pad);
}

/* Walks linear indices lo..hi in pieces of the last axis. */
static void walk_range(const Loop *w) {
    const char *pad = "            ";
    text_add(w->t,
             "        for (int64_t i = lo, m; i < hi; i += m) {\n"
             "%sconst int64_t j = i %% n%u;\n"
             "%sm = n%u - j < hi - i ? n%u - j : hi - i;\n",
             pad, w->last, pad, w->last, w->last);
    open_piece(w, pad);
    simd_loop(w, pad);
    text_str(w->t, "        }\n");
}

static void share_of(const Loop *w, const char *total) {
    text_add(w->t, "        const int64_t lo = %s * s / THREADS, hi = %s * (s + 1) / THREADS;\n",
             total, total);
}

/* ---- the four forms ---- */

static void emit_flat(const Loop *w) {
    for (uint32_t k = 0; k < w->n->nin; k++)
        if (loop_is_given(w, k) && !loop_moves(w, k, 0))
            text_add(w->t, "    const %s v%u = a%u[0];\n", cg_ctype(loop_type(w, k)), k, k);
    bool cheap = true;
    for (uint32_t k = 0; k < w->l.body.ninst; k++)
        cheap &= (op_def(w->l.body.inst[k].op)->flags & OPF_CHEAP) != 0;
    text_add(w->t, "#pragma omp parallel for simd schedule(static) if (parallel : n0 >= %d)\n",
             cheap ? PAR_CHEAP : PAR_COSTLY);
    text_str(w->t, "    for (int64_t i = 0; i < n0; i++) {\n");
    inner(w, "        ");
    text_str(w->t, "    }\n");
}

static void emit_rows(const Loop *w) {
    text_add(w->t, "    const int64_t total = %s;\n", loop_product(w, 0, w->l.naxis));
    begin_shares(w, "total");
    text_str(w->t, "    for (int64_t s = 0; s < THREADS; s++) {\n");
    share_of(w, "total");
    walk_range(w);
    text_str(w->t, "    }\n");
}

/* Partial sums of all shares, in order. */
static void combine_shares(const Loop *w) {
    text_str(w->t, "    for (int64_t k = 0; k < columns; k++) {\n        double ");
    for (uint32_t i = 0; i < w->l.nacc; i++) text_add(w->t, "%ssum%u = 0", i ? ", " : "", i);
    text_add(w->t,
             ";\n        for (int64_t s = 0; s < THREADS; s++) {\n"
             "            const double *const part = ws + s * %u * columns + k;\n",
             w->l.nacc);
    for (uint32_t i = 0; i < w->l.nacc; i++)
        text_add(w->t, "            sum%u += part[%u * columns];\n", i, i);
    text_str(w->t, "        }\n");
    loop_finish_sums(w, "        ", "", "k");
    text_str(w->t, "    }\n");
}

static void sum_everything(const Loop *w) {
    text_str(w->t, "        double ");
    for (uint32_t i = 0; i < w->l.nacc; i++) text_add(w->t, "%ssum%u = 0", i ? ", " : "", i);
    text_str(w->t, ";\n");
    share_of(w, "total");
    walk_range(w);
    for (uint32_t i = 0; i < w->l.nacc; i++)
        text_add(w->t, "        ws[s * %u + %u] = sum%u;\n", w->l.nacc, i, i);
}

/* Columns in blocks whose sums stay in the first-level cache, rows of the share inside. */
static void sum_rows(const Loop *w) {
    const char *pad = "                ";
    text_add(w->t,
             "        double *const part = ws + s * %u * columns;\n"
             "        for (int64_t k = 0; k < %u * columns; k++) part[k] = 0;\n"
             "        const int64_t lo = lead * s / THREADS * columns;\n"
             "        const int64_t hi = lead * (s + 1) / THREADS * columns;\n",
             w->l.nacc, w->l.nacc);
    text_add(w->t,
             "        for (int64_t j = 0; j < n%u; j += %d) {\n"
             "            const int64_t m = n%u - j < %d ? n%u - j : %d;\n"
             "            for (int64_t i = lo + j; i < hi; i += n%u) {\n",
             w->last, SUM_BLOCK, w->last, SUM_BLOCK, w->last, SUM_BLOCK, w->last);
    open_piece(w, pad);
    bool one_row = w->l.nlead + 1 == w->l.naxis;
    for (uint32_t i = 0; i < w->l.nacc; i++)
        text_add(w->t, "%sdouble *const sum%u = part + %u * columns + %s;\n", pad, i, i,
                 one_row ? "j" : "i % columns");
    simd_loop(w, pad);
    text_str(w->t, "            }\n        }\n");
}

/* What is summed over, what stays, and the names that `fin` uses. */
static void declare_sizes(const Loop *w) {
    text_add(w->t,
             "    const int64_t lead = %s, columns = %s, total = lead * columns;\n"
             "    const double rows = (double)lead;\n"
             "    (void)rows;\n",
             loop_product(w, 0, w->l.nlead), loop_product(w, w->l.nlead, w->l.naxis));
}

static void emit_sums(const Loop *w) {
    text_add(w->t, "    double *const ws = p[%u];\n", w->nop);
    declare_sizes(w);
    begin_shares(w, "total");
    text_str(w->t, "    for (int64_t s = 0; s < THREADS; s++) {\n");
    if (w->scalar_sums)
        sum_everything(w);
    else
        sum_rows(w);
    text_str(w->t, "    }\n");
    combine_shares(w);
}

/* A task is a block of columns of one row of kept axes. */
static void emit_columns(const Loop *w) {
    const char *pad = "            ";
    declare_sizes(w);
    text_add(w->t, "    const int64_t blocks = (n%u + %d) / %d, tasks = columns / n%u * blocks;\n",
             w->last, COLUMN_BLOCK - 1, COLUMN_BLOCK, w->last);
    begin_shares(w, "total");
    text_add(w->t,
             "    for (int64_t s = 0; s < tasks; s++) {\n"
             "        const int64_t j = s %% blocks * %d;\n"
             "        const int64_t first = s / blocks * n%u + j;\n"
             "        const int64_t m = n%u - j < %d ? n%u - j : %d;\n",
             COLUMN_BLOCK, w->last, w->last, COLUMN_BLOCK, w->last, COLUMN_BLOCK);
    for (uint32_t i = 0; i < w->l.nacc; i++)
        text_add(w->t, "        double sum%u[%d] = {0};\n", i, COLUMN_BLOCK);
    text_add(w->t,
             "        for (int64_t r = 0; r < lead; r++) {\n"
             "%sconst int64_t i = r * columns + first;\n",
             pad);
    open_piece(w, pad);
    simd_loop(w, pad);
    text_str(w->t, "        }\n        for (int64_t e = 0; e < m; e++) {\n");
    loop_finish_sums(w, pad, "[e]", "first + e");
    text_str(w->t, "        }\n    }\n");
}

void cg_loop(Arena *a, const Graph *g, const Node *n, bool by_columns, GenLoop *out) {
    Text t, params, args;
    Loop w;
    text_init(&t, a);
    text_init(&params, a);
    text_init(&args, a);
    loop_open(&w, a, g, n, by_columns, &t);
    loop_parameters(&w, &params, &args);
    declare_operands(&w);
    switch (w.form) {
    case FLAT: emit_flat(&w); break;
    case ROWS: emit_rows(&w); break;
    case SUMS: emit_sums(&w); break;
    case COLUMNS: emit_columns(&w); break;
    }
    *out = (GenLoop){params.at, t.at, args.at, NULL};
}
