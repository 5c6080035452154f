/* program.c - cg_emit: the files of a program folder. program.c is written top down as it is read:
 * what it is, its memory, its code, its tables, and the struct that hands them to the runtime. */
#include "gen.h"

#include "dtrt_interface.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static void comment_line(Text *t, const char *key, const char *value) {
    text_add(t, " * %-9s ", key);
    text_comment(t, value ? value : "");
    text_char(t, '\n');
}

static void print_front(const Gen *g, Text *t) {
    char x[32], y[32], z[32];
    const Plan *p = g->p;
    text_str(t, "/* A training program made by dtrc.\n *\n");
    comment_line(t, "command", g->o->command);
    comment_line(t, "model", g->o->model);
    comment_line(t, "sha256", g->o->model_sha256);
    comment_line(t, "loss", train_loss_str(g->a, &g->o->loss));
    comment_line(t, "optimizer", train_optimizer_str(g->a, &g->o->opt));
    text_add(t, " * budget    %s\n * peak      %s, known before the run\n",
             format_bytes(x, p->budget), format_bytes(y, p->persistent_bytes + p->arena_bytes));
    text_add(t, " * overhead  %.2f %% of compute time: %u recomputed runs, %u evictions (%s)\n",
             100 * plan_overhead(p), p->recomputed_runs, p->evictions,
             p->planner ? p->planner : "");
    text_add(t, " * threads   %d: sums are shared out for that many, and bits depend on it\n *\n",
             g->c->threads);
    text_str(t, " * Memory: one block, [persistent | arena].\n");
    text_add(t, " *   %12d .. %-12llu persistent: %u tensors, %s\n", 0,
             (unsigned long long)p->persistent_bytes, g->ntensor,
             format_bytes(x, p->persistent_bytes));
    text_add(t, " *   %12llu .. %-12llu arena: what a step computes, %s (sum of live bytes: %s)\n",
             (unsigned long long)p->persistent_bytes,
             (unsigned long long)(p->persistent_bytes + p->arena_bytes),
             format_bytes(y, p->arena_bytes), format_bytes(z, p->byte_peak));
    text_str(t, " */\n");
}

/* The runtime's headers and library must be those that this dtrc was built with: a field that one
 * of them does not know would shift what the tables say. */
static const char *interface_number(const Gen *g) {
    return arena_printf(g->a, "UINT64_C(0x%016llx)", (unsigned long long)DTRT_INTERFACE);
}

static void print_includes(const Gen *g, Text *t) {
    text_str(t, "#include \"dtrt.h\"\n#include \"dtrt_interface.h\"\n");
    text_str(t, g->o->target == TARGET_NULL ? "#include <string.h>\n\n"
                : g->o->target == TARGET_CUDA
                    ? "#include \"dtrt_kernels.h\"\n#include \"dtrt_cuda.h\"\n\n"
                    : "#include \"dtrt_kernels.h\"\n#include \"dtrt_vecmath.h\"\n\n");
    text_add(t,
             "/* Shares that sums are split into, whatever the number of threads that run. */\n"
             "#define THREADS INT64_C(%d)\n"
             "/* Sets of sizes that the program may run at in turn: the batch, and the last one of "
             "an epoch. */\n"
             "enum { SLOTS = %d };\n"
             "/* Sizes stay parameters: one copy of each loop. */\n"
             "#define LOOP __attribute__((noinline))\n"
             "#pragma GCC diagnostic ignored \"-Wunused-parameter\"\n\n",
             g->c->threads, g->sizes ? 2 : 1);
    text_add(
        t,
        "#if DTRT_INTERFACE != %s\n"
        "#error these headers of the runtime do not belong to the dtrc that wrote this program\n"
        "#endif\n\n",
        interface_number(g));
}

static void field_str(Text *t, const char *name, const char *value) {
    text_add(t, "    .%s = ", name);
    text_quote(t, value ? value : "");
    text_str(t, ",\n");
}

static void print_memory_fields(const Gen *g, Text *t) {
    const Plan *p = g->p;
    text_add(t, "const DtrtProgram dtrt_program = {\n    .interface = %s,\n", interface_number(g));
    field_str(t, "model", g->o->model);
    field_str(t, "model_sha256", g->o->model_sha256);
    field_str(t, "command", g->o->command);
    field_str(t, "target", target_name(g->o->target));
    text_add(t, "    .graph_digest = UINT64_C(0x%016llx),\n", (unsigned long long)ir_digest(g->g));
    text_add(t,
             "    .budget_bytes = %llu,\n    .persistent_bytes = %llu,\n"
             "    .planned_overhead = %.9g,\n    .threads = %d,\n",
             (unsigned long long)(g->o->no_budget ? 0 : p->budget),
             (unsigned long long)p->persistent_bytes, plan_overhead(p), g->c->threads);
    text_add(t,
             "    .ntensor = %u,\n    .tensor = tensors,\n"
             "    .nstorage = %u,\n    .storage = storages,\n"
             "    .noperand = %u,\n    .operand = operands,\n"
             "    .nnode = %u,\n    .node = nodes,\n",
             g->ntensor, g->g->nstorage, g->noperand, g->nnode);
    text_add(t,
             "    .plan = {.arena_bytes = %llu,\n             .nrun = %u, .run = runs,\n"
             "             .naddr = %u, .addr = addr,\n             .nstep = %u, .step = steps,\n"
             "             .recomputed_runs = %u, .evictions = %u},\n",
             (unsigned long long)p->arena_bytes, g->nrun, g->naddr, g->nstep, p->recomputed_runs,
             p->evictions);
}

static void print_loss_fields(const Gen *g, Text *t) {
    const LossSpec *l = &g->o->loss;
    Shape s = {0};
    if (g->g->logits != NO_ID) s = g->g->value[g->g->logits].shape;
    int64_t axis = l->class_axis < 0 ? l->class_axis + (int64_t)s.rank : l->class_axis;
    int64_t classes = train_over_classes(l->kind) && axis < (int64_t)s.rank ? s.dim[axis] : 0;
    text_add(t, "    .loss_storage = %u,\n    .logits_storage = %d,\n",
             g->g->value[g->g->loss].storage, cg_logits_storage(g));
    text_add(t, "    .logits_rank = %u,\n    .logits_dim = ", s.rank);
    cg_print_dims(t, &s);
    text_str(t, ",\n");
    field_str(t, "loss_kind", train_loss_name(l->kind));
    text_add(t,
             "    .class_axis = %lld,\n    .nclass = %lld,\n    .has_ignore = %d,\n"
             "    .ignore_index = %lld,\n    .label_smoothing = %s,\n",
             (long long)axis, (long long)classes, l->has_ignore, (long long)l->ignore_index,
             cg_number(g->a, l->label_smoothing, false));
}

static void print_optimizer_fields(const Gen *g, Text *t) {
    const OptSpec *o = &g->o->opt;
    field_str(t, "optimizer", train_optimizer_name(o->kind));
    const char *m = cg_number(g->a, o->momentum, true);
    text_add(t, "    .momentum_state = %d,\n    .lr = %s,\n    .momentum = %s,\n",
             o->momentum_state, cg_number(g->a, o->lr, true), m);
    text_add(t, "    .dampening = %s,\n    .weight_decay = %s,\n",
             cg_number(g->a, o->dampening, true), cg_number(g->a, o->weight_decay, true));
    text_add(t, "    .beta1 = %s,\n    .beta2 = %s,\n    .eps = %s,\n    .nesterov = %d,\n",
             cg_number(g->a, o->beta1, true), cg_number(g->a, o->beta2, true),
             cg_number(g->a, o->eps, true), o->nesterov);
}

/* Value number of the model output that the loss reads, in the forward graph. */
static int ref_output(const Gen *g) {
    const Graph *f = g->fwd;
    for (uint32_t i = 0; g->o->loss.output && i < f->noutput; i++)
        if (!strcmp(f->value[f->output[i]].name, g->o->loss.output)) return (int)f->output[i];
    return f->noutput ? (int)f->output[0] : -1;
}

static void print_device_fields(const Gen *g, Text *t) {
    if (g->o->target != TARGET_CUDA) return;
    text_add(t,
             "    .device = &dtrt_cuda,\n    .nimage = %u,\n    .image = images,\n"
             "    .tf32 = %d,\n",
             g->image.n, g->o->tf32);
}

static void print_export_fields(const Gen *g, Text *t) {
    const OnnxExport *x = &g->o->model_file;
    if (x->n) {
        text_add(t, "    .npiece = %u,\n    .piece = pieces,\n", x->n);
        return;
    }
    text_str(t, "    .no_export = ");
    text_quote(t, x->none ? x->none : "it was compiled from a text graph");
    text_str(t, ",\n");
}

static void print_struct(const Gen *g, Text *t) {
    print_memory_fields(g, t);
    print_loss_fields(g, t);
    print_optimizer_fields(g, t);
    cg_print_size_fields(g, t);
    print_device_fields(g, t);
    print_export_fields(g, t);
    text_add(t,
             "    .init = init,\n    .pack = pack,\n    .unpack = unpack,\n"
             "    .nrefnode = %u,\n    .nrefvalue = %u,\n    .refnode = ref_node,\n"
             "    .refvalue = ref_value,\n    .ref_output = %d,\n};\n\n",
             g->fwd->nnode, g->fwd->nvalue, ref_output(g));
    text_str(t, "int main(int argc, char **argv) {\n"
                "    return dtrt_main(&dtrt_program, argc, argv);\n}\n");
}

static void print_program(Gen *g, Text *t) {
    print_front(g, t);
    print_includes(g, t);
    cg_print_kernels(g, t);
    cg_print_tensors(g, t);
    cg_print_images(g, t);
    cg_print_pieces(g, t);
    cg_print_schedule(g, t);
    cg_print_sizes(g, t);
    cg_print_reference(g, t);
    print_struct(g, t);
}

static void print_cuda(Gen *g, Text *t) {
    text_str(t, g->kernels);
}

static bool write_text(Gen *g, const char *dir, const char *name, void (*print)(Gen *, Text *)) {
    Text t;
    text_init(&t, g->a);
    print(g, &t);
    const char *path = arena_printf(g->a, "%s/%s", dir, name);
    if (file_write(path, t.at, t.n)) return true;
    return diag_error(g->d, (Place){.file = path}, "cannot write: %s", strerror(errno));
}

bool cg_emit(Arena *a, Diag *d, const char *dir, const Graph *fwd, const Graph *step, const Cost *c,
             const Plan *p, const CgOptions *o) {
    Gen g = {.a = a, .d = d, .fwd = fwd, .g = step, .c = c, .p = p, .o = o};
    if (mkdir(dir, 0777) && errno != EEXIST)
        return diag_error(d, (Place){.file = dir}, "cannot make the program folder: %s",
                          strerror(errno));
    TRY(cg_kernels(&g));
    if (o->sizes && !g.sizes)
        diag_warn(d, (Place){.file = o->model}, "the program will run at these sizes only: %s",
                  g.one_size);
    cg_tensors(&g);
    if (o->target == TARGET_CUDA) TRY(cg_cuda_images(&g));
    cg_place_weights(&g);
    TRY(write_text(&g, dir, "program.c", print_program));
    if (g.kernels) TRY(write_text(&g, dir, "kernels.cu", print_cuda));
    TRY(write_text(&g, dir, "Makefile", cg_print_makefile));
    TRY(write_text(&g, dir, "manifest.json", cg_print_manifest));
    return cg_write_weights(&g, arena_printf(a, "%s/weights.bin", dir));
}
