/* cuda_loops.c - CUDA kernels for elementwise nodes, column reductions and Fused nodes, and the C
 * that launches them.
 *
 * The forms are those of loops.c. Shares of a sum are rows of blocks here: a block adds up its
 * share's rows for 32 columns, 8 rows at a time, in double, and a second kernel adds the shares in
 * order; with no kept axis a block adds up its share alone. Every sum has a fixed order, so bits do
 * not depend on the device. Linear indices are 32 bits wide (divisions cost); where the whole has
 * 2^31 elements or more at the compiled sizes there are kernels with 64 bits, too, and the launch
 * picks.
 *
 * Operands may be in place: an element is loaded before it is stored, by one thread. */
#include "loop.h"

#include <assert.h>

typedef struct {
    Loop *w;
    Text *host;        /* body of the function that launches */
    const char *index; /* type of linear indices */
    const char *suffix;
    bool wide; /* kernels with 64-bit indices are wanted, too */
} Kernel;

static bool has_random(const Loop *w) {
    for (uint32_t k = 0; k < w->l.body.ninst; k++)
        if (op_def(w->l.body.inst[k].op)->cls == CLS_RANDOM) return true;
    return false;
}

/* Which operands a kernel has. */
typedef enum { WALKED, SUMS_OUT, ALL } Which;

static bool has_operand(const Loop *w, uint32_t k, Which which) {
    if (!loop_is_given(w, k)) return false;
    return which == ALL || (which == WALKED) == loop_is_walked(w, k);
}

/* "extern "C" __global__ void loop3_part(const float *a0, ..., int64_t n0, uint32_t key0) {" */
static void open_kernel(const Kernel *x, const char *name, Which which, bool workspace) {
    const Loop *w = x->w;
    const char *separator = "";
    text_add(w->t, "extern \"C\" __global__ void loop%c%s(", KERNEL_NUMBER, name);
    for (uint32_t k = 0; k < w->nop; k++) {
        if (!has_operand(w, k, which)) continue;
        text_add(w->t, "%s%s%s *a%u", separator, k < w->n->nin ? "const " : "",
                 cg_ctype(loop_type(w, k)), k);
        separator = ", ";
    }
    if (workspace) text_add(w->t, "%sdouble *ws", separator);
    for (uint32_t i = 0; i < w->l.naxis; i++) text_add(w->t, ", int64_t n%u", i);
    for (uint32_t k = 0; k < w->l.body.ninst; k++)
        if (op_def(w->l.body.inst[k].op)->cls == CLS_RANDOM) text_add(w->t, ", uint32_t key%u", k);
    text_add(w->t, "%c) {\n", SYMBOL_PARAMS);
    if (has_random(w))
        text_str(w->t, "    const uint64_t seed = cu_now.seed, step = cu_now.step;\n"
                       "    (void)seed, (void)step;\n");
}

/* The same arguments on the host. */
static void launch(const Kernel *x, const char *pad, const char *name, Which which, bool workspace,
                   const char *grid) {
    const Loop *w = x->w;
    text_add(x->host, "%s{\n%s    static DtrtLaunch k = {\"loop%c%s\", 0};\n%s    void *args[] = {",
             pad, pad, KERNEL_NUMBER, name, pad);
    for (uint32_t k = 0; k < w->nop; k++)
        if (has_operand(w, k, which)) text_add(x->host, "(void *)&p[%u], ", k);
    if (workspace) text_add(x->host, "(void *)&p[%u], ", w->nop);
    for (uint32_t i = 0; i < w->l.naxis; i++) text_add(x->host, "%s&n%u", i ? ", " : "", i);
    for (uint32_t k = 0; k < w->l.body.ninst; k++)
        if (op_def(w->l.body.inst[k].op)->cls == CLS_RANDOM) text_add(x->host, ", &key%u", k);
    text_add(x->host, "%c};\n%s    dtrt_cuda_launch(&k, %s, 256, args);\n%s}\n", SYMBOL_ARGS, pad,
             grid, pad);
}

/* ---- one element -------------------------------------------------------------------------------
 */

/* Element of operand k at coordinates x0... */
static const char *element(const Kernel *x, uint32_t k) {
    const Loop *w = x->w;
    if (loop_moves_everywhere(w, k)) return "i";
    Text t;
    text_init(&t, w->a);
    for (uint32_t ax = 0; ax < w->l.naxis; ax++) {
        if (!loop_moves(w, k, ax)) continue;
        text_add(&t, "%sx%u", t.n ? " + " : "", ax);
        for (uint32_t j = ax + 1; j < w->l.naxis; j++)
            if (loop_moves(w, k, j)) text_add(&t, " * (%s)n%u", x->index, j);
    }
    return t.n ? t.at : "0";
}

/* Coordinates that some operand needs, from the linear index i, innermost first. */
static void coordinates(const Kernel *x, const char *pad) {
    const Loop *w = x->w;
    uint32_t wanted = 0;
    for (uint32_t k = 0; k < w->nop; k++)
        if (loop_is_walked(w, k) && !loop_moves_everywhere(w, k)) wanted |= w->l.moves[k];
    if (!wanted) return;
    uint32_t first = 0; /* outermost */
    while (!(wanted >> first & 1)) first++;
    text_add(w->t, "%s%s r = i;\n", pad, x->index);
    for (uint32_t ax = w->l.naxis; ax-- > first;) {
        bool last = ax == first;
        if (wanted >> ax & 1)
            text_add(w->t,
                     last && !ax ? "%sconst %s x%u = r;\n" : "%sconst %s x%u = r %% (%s)n%u;\n",
                     pad, x->index, ax, x->index, ax);
        if (!last) text_add(w->t, "%sr /= (%s)n%u;\n", pad, x->index, ax);
    }
}

/* Loads, instructions, stores for the linear index i. */
static void one_element(const Kernel *x, const char *pad) {
    const Loop *w = x->w;
    coordinates(x, pad);
    for (uint32_t k = 0; k < w->n->nin; k++)
        if (loop_is_given(w, k))
            text_add(w->t, "%sconst %s v%u = a%u[%s];\n", pad, cg_ctype(loop_type(w, k)), k, k,
                     element(x, k));
    loop_compute(w, pad);
    for (uint32_t o = 0; o < w->n->nout; o++)
        if (loop_is_walked(w, w->n->nin + o))
            text_add(w->t, "%sa%u[%s] = t%u;\n", pad, w->n->nin + o, element(x, w->n->nin + o),
                     w->l.body.out_inst[o]);
}

static void declare_sums(const Loop *w, const char *pad) {
    text_add(w->t, "%sdouble ", pad);
    for (uint32_t i = 0; i < w->l.nacc; i++) text_add(w->t, "%ssum%u = 0", i ? ", " : "", i);
    text_str(w->t, ";\n");
}

static void declare_sizes(const Loop *w) {
    text_add(w->t,
             "    const int64_t lead = %s, columns = %s;\n"
             "    const double rows = (double)lead;\n    (void)rows, (void)columns;\n",
             loop_product(w, 0, w->l.nlead), loop_product(w, w->l.nlead, w->l.naxis));
}

/* ---- the forms ---------------------------------------------------------------------------------
 */

static void elementwise(const Kernel *x) {
    const Loop *w = x->w;
    open_kernel(x, x->suffix, ALL, false);
    text_add(
        w->t,
        "    const %s total = (%s)(%s), stride = (%s)gridDim.x * blockDim.x;\n"
        "#pragma unroll 4\n"
        "    for (%s i = (%s)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {\n",
        x->index, x->index, loop_product(w, 0, w->l.naxis), x->index, x->index, x->index);
    one_element(x, "        ");
    text_str(w->t, "    }\n}\n");
}

/* One thread a column. */
static void by_columns(const Kernel *x) {
    const Loop *w = x->w;
    open_kernel(x, x->suffix, ALL, false);
    declare_sizes(w);
    text_str(w->t,
             "    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < columns;\n"
             "         k += (int64_t)gridDim.x * blockDim.x) {\n");
    declare_sums(w, "        ");
    text_add(w->t,
             "        for (int64_t row = 0; row < lead; row++) {\n"
             "            const %s i = (%s)(row * columns + k);\n",
             x->index, x->index);
    one_element(x, "            ");
    text_str(w->t, "        }\n");
    loop_finish_sums(w, "        ", "", "k");
    text_str(w->t, "    }\n}\n");
}

/* Blocks (columns / 32, shares) of 32 columns times 8 rows. */
static void share_of_columns(const Kernel *x) {
    const Loop *w = x->w;
    text_str(w->t,
             "    __shared__ double part[8][32];\n"
             "    const int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;\n"
             "    const int64_t lo = lead * blockIdx.y / gridDim.y, hi = lead * (blockIdx.y + 1) / "
             "gridDim.y;\n"
             "    for (int64_t first = (int64_t)blockIdx.x * 32; first < columns;\n"
             "         first += (int64_t)gridDim.x * 32) {\n"
             "        const int64_t k = first + tx;\n");
    declare_sums(w, "        ");
    text_add(w->t,
             "        for (int64_t row = lo + ty; row < hi && k < columns; row += 8) {\n"
             "            const %s i = (%s)(row * columns + k);\n",
             x->index, x->index);
    one_element(x, "            ");
    text_str(w->t, "        }\n");
    for (uint32_t a = 0; a < w->l.nacc; a++)
        text_add(w->t,
                 "        part[ty][tx] = sum%u;\n        __syncthreads();\n"
                 "        if (ty == 0 && k < columns) {\n"
                 "            double sum = part[0][tx];\n"
                 "            for (int j = 1; j < 8; j++) sum += part[j][tx];\n"
                 "            ws[((int64_t)blockIdx.y * %u + %u) * columns + k] = sum;\n"
                 "        }\n        __syncthreads();\n",
                 a, w->l.nacc, a);
    text_str(w->t, "    }\n}\n");
}

static void share_of_all(const Kernel *x) {
    const Loop *w = x->w;
    text_add(w->t,
             "    __shared__ double part[32];\n"
             "    const int64_t lo = lead * blockIdx.y / gridDim.y, hi = lead * (blockIdx.y + 1) / "
             "gridDim.y;\n");
    declare_sums(w, "    ");
    text_add(w->t,
             "    for (int64_t at = lo + threadIdx.x; at < hi; at += blockDim.x) {\n"
             "        const %s i = (%s)at;\n",
             x->index, x->index);
    one_element(x, "        ");
    text_str(w->t, "    }\n");
    for (uint32_t a = 0; a < w->l.nacc; a++)
        text_add(w->t,
                 "    sum%u = block_sum(sum%u, part);\n"
                 "    if (threadIdx.x == 0) ws[(int64_t)blockIdx.y * %u + %u] = sum%u;\n",
                 a, a, w->l.nacc, a, a);
    text_str(w->t, "}\n");
}

static void part_kernel(const Kernel *x) {
    const Loop *w = x->w;
    open_kernel(x, arena_printf(w->a, "_part%s", x->suffix), WALKED, true);
    declare_sizes(w);
    if (w->l.nlead == w->l.naxis)
        share_of_all(x);
    else
        share_of_columns(x);
}

/* Adds the shares up, in order. */
static void fin_kernel(const Kernel *x) {
    const Loop *w = x->w;
    open_kernel(x, "_fin", SUMS_OUT, true);
    declare_sizes(w);
    text_str(w->t,
             "    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < columns;\n"
             "         k += (int64_t)gridDim.x * blockDim.x) {\n");
    declare_sums(w, "        ");
    text_str(w->t, "        for (int64_t s = 0; s < CU_SHARES; s++) {\n");
    for (uint32_t a = 0; a < w->l.nacc; a++)
        text_add(w->t, "            sum%u += ws[(s * %u + %u) * columns + k];\n", a, w->l.nacc, a);
    text_str(w->t, "        }\n");
    loop_finish_sums(w, "        ", "", "k");
    text_str(w->t, "    }\n}\n");
}

/* Kernels with the widths of indices that are wanted; the launch picks. */
static void with_widths(Kernel *x, void (*kernel)(const Kernel *), const char *name, Which which,
                        bool workspace, const char *grid) {
    static const char *const index[] = {"uint32_t", "int64_t"}, *const suffix[] = {"", "_wide"};
    for (int wide = 0; wide <= x->wide; wide++) {
        x->index = index[wide];
        x->suffix = suffix[wide];
        kernel(x);
        text_add(x->host, wide ? "    else\n" : "    if (%s < INT32_MAX)\n",
                 loop_product(x->w, 0, x->w->l.naxis));
        launch(x, "        ", arena_printf(x->w->a, "%s%s", name, suffix[wide]), which, workspace,
               grid);
    }
    if (!x->wide) text_str(x->host, "    else\n        dtrt_cuda_too_large();\n");
}

static void sums(Kernel *x) {
    Loop *w = x->w;
    const char *columns = loop_product(w, w->l.nlead, w->l.naxis);
    const char *part =
        w->l.nlead == w->l.naxis
            ? "dtrt_cuda_grid(1, THREADS)"
            : arena_printf(w->a, "dtrt_cuda_grid(dtrt_cuda_blocks(%s, 32), THREADS)", columns);
    with_widths(x, part_kernel, "_part", WALKED, true, part);
    fin_kernel(x);
    launch(x, "    ", "_fin", SUMS_OUT, true,
           arena_printf(w->a, "dtrt_cuda_grid(dtrt_cuda_blocks(%s, 256), 1)", columns));
}

static void columns(Kernel *x) {
    with_widths(x, by_columns, "", ALL, false,
                arena_printf(x->w->a, "dtrt_cuda_grid(dtrt_cuda_blocks(%s, 256), 1)",
                             loop_product(x->w, x->w->l.nlead, x->w->l.naxis)));
}

static void elements(Kernel *x) {
    const char *grid = arena_printf(x->w->a, "dtrt_cuda_grid(dtrt_cuda_blocks(%s, 1024), 1)",
                                    loop_product(x->w, 0, x->w->l.naxis));
    if (x->w->form == ROWS) {
        with_widths(x, elementwise, "", ALL, false, grid);
        return;
    }
    x->index = "int64_t"; /* nothing is divided */
    x->suffix = "";
    elementwise(x);
    launch(x, "    ", "", ALL, false, grid);
}

void cg_cuda_loop(Arena *a, const Graph *g, const Node *n, bool by_columns_, bool wide,
                  GenLoop *out) {
    Text kernels, host, params, args;
    Loop w;
    text_init(&kernels, a);
    text_init(&host, a);
    text_init(&params, a);
    text_init(&args, a);
    loop_open(&w, a, g, n, by_columns_, &kernels);
    w.scalar_sums = true;
    w.index = "(uint64_t)i";
    loop_parameters(&w, &params, &args);
    Kernel x = {.w = &w, .host = &host, .wide = wide};
    switch (w.form) {
    case FLAT:
    case ROWS: elements(&x); break;
    case SUMS: sums(&x); break;
    case COLUMNS: columns(&x); break;
    }
    *out = (GenLoop){params.at, host.at, args.at, kernels.at};
}
