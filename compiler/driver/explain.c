/* explain.c - plan: the short table after the summary (what is there at the peak, what was dropped
 * and made again, by kind), all of it with --explain, and the same as JSON.
 *
 * Why something was dropped: a planner looks for many bytes that nobody wants for long and that are
 * quickly made again. So a row says the bytes that went, how long they were away, what making them
 * again costs, and bytes times time away over the time of a step: how much less memory is taken on
 * average. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, NAME = 48 }; /* rows of each short table; bytes of a long name */

/* Rows of one kind, summed. */
typedef struct {
    const char *name;
    uint32_t count, order;
    uint64_t bytes, ns;
    double idle_ns, byte_ns;
} Group;

typedef struct {
    Arena *a;
    Map *known;
    VEC(Group) group;
} Groups;

static Groups groups_new(Arena *a) {
    return (Groups){.a = a, .known = map_new(a)};
}

static Group *group_of(Groups *s, const char *name) {
    uint32_t i = map_get(s->known, name);
    if (i == NO_ID) {
        i = s->group.n;
        map_put(s->known, name, i);
        Group g = {.name = name, .order = i};
        VEC_PUSH(s->a, s->group, g);
    }
    return &s->group.at[i];
}

static int dearer(const void *x, const void *y) {
    const Group *a = x, *b = y;
    if (a->ns != b->ns) return a->ns > b->ns ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

/* The first NAME letters, so that a line stays a line. */
static const char *short_name(Arena *a, const char *s) {
    s = diag_name(a, s);
    size_t n = strlen(s), cut = NAME;
    if (n <= NAME) return s;
    while (cut && ((unsigned char)s[cut] & 0xC0) == 0x80) cut--; /* not within a letter */
    return arena_printf(a, "%.*s...", (int)cut, s);
}

/* Operator; for fused nodes those of the body; for nodes of a trace the name without its number. */
const char *explain_kind(Arena *a, const Node *n) {
    if (n->op == OP_Fused && n->onnx) return short_name(a, n->onnx);
    if (n->onnx || !ir_attr(n, A_cost_ns)) return op_def(n->op)->name;
    size_t len = strlen(n->name);
    while (len && strchr("0123456789._", n->name[len - 1])) len--;
    return diag_name(a, len ? arena_strn(a, n->name, len) : op_def(n->op)->name);
}

const char *explain_storage_kind(Arena *a, const Work *w, StorageId s) {
    const Graph *g = w->step;
    if (s == NO_ID) return "workspace";
    const Value *v = &g->value[g->storage[s].root];
    switch (v->role) {
    case ROLE_PARAM: return "trained weights";
    case ROLE_STATE: return "optimizer state";
    case ROLE_FROZEN:
    case ROLE_BUFFER:
    case ROLE_CONST: return "frozen weights, statistics, constants";
    case ROLE_TEMP: break;
    default: return "inputs and targets";
    }
    if (v->param != NO_ID) return "gradients of weights";
    if (v->def == NO_ID) return "values";
    const Node *n = &g->node[v->def];
    return arena_printf(a, "%s of %s", n->phase == PHASE_FORWARD ? "output" : "gradient",
                        explain_kind(a, n));
}

static const char *storage_name(Arena *a, const Graph *g, StorageId s) {
    return s == NO_ID ? "workspace" : diag_name(a, g->value[g->storage[s].root].name);
}

static double percent(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

static void print_peak(FILE *out, Arena *a, const Work *w, const PlanFacts *f) {
    const Plan *p = w->plan;
    char b1[32], b2[32], b3[32];
    if (!p->nstep) return;
    const Node *n = &w->step->node[p->step[f->peak_step].id];
    fprintf(out, "at the peak: %s, step %u of %u (%s '%s')", format_bytes(b1, f->peak_bytes),
            f->peak_step, p->nstep, explain_kind(a, n), short_name(a, n->name));
    if (p->placed)
        fprintf(out, ";\n  placed in %s, %.2f %% of the arena lost between blocks",
                format_bytes(b2, p->persistent_bytes + p->arena_bytes),
                percent((double)(p->arena_bytes - p->byte_peak), (double)p->arena_bytes));
    fputc('\n', out);
    Groups s = groups_new(a);
    for (uint32_t i = 0; i < f->nresident; i++) {
        Group *x = group_of(&s, explain_storage_kind(a, w, f->resident[i].storage));
        x->count++;
        x->bytes += f->resident[i].bytes;
    }
    if (s.group.n) qsort(s.group.at, s.group.n, sizeof *s.group.at, dearer);
    Group rest = {0};
    for (uint32_t i = 0; i < s.group.n; i++) {
        const Group *x = &s.group.at[i];
        if (i < ROWS) {
            fprintf(out, "  %12s  %6u x  %s\n", format_bytes(b3, x->bytes), x->count, x->name);
            continue;
        }
        rest.count += x->count;
        rest.bytes += x->bytes;
    }
    if (rest.count)
        fprintf(out, "  %12s  %6u x  others\n", format_bytes(b3, rest.bytes), rest.count);
}

static void print_row(FILE *out, const Work *w, const Group *x, const char *name) {
    char b1[32], b2[32];
    fprintf(out, "  %6u  %10.3f  %5.1f %%  %10s  %9.2f  %12s  %s\n", x->count, (double)x->ns / 1e6,
            percent((double)x->ns, (double)(w->plan->cost_ns - w->plan->base_ns)),
            format_bytes(b1, x->bytes), x->count ? x->idle_ns / x->count / 1e6 : 0,
            format_bytes(b2, (uint64_t)(x->byte_ns / (double)w->plan->cost_ns)), name);
}

/* Time by the node that runs again, drops by the node that brought the storage back: the same node,
 * but for second outputs. */
static void print_again(FILE *out, Arena *a, const Work *w, const PlanFacts *f) {
    if (!f->nrerun && !f->neviction) {
        fputs("nothing was dropped that is needed again\n", out);
        return;
    }
    Groups s = groups_new(a);
    for (uint32_t i = 0; i < f->nrerun; i++) {
        Group *x = group_of(&s, explain_kind(a, &w->step->node[f->rerun[i].node]));
        x->count += f->rerun[i].again;
        x->ns += f->rerun[i].ns;
    }
    for (uint32_t i = 0; i < f->neviction; i++) {
        const PlanEviction *e = &f->eviction[i];
        Group *x = group_of(&s, explain_kind(a, &w->step->node[e->node]));
        x->bytes += e->bytes;
        x->idle_ns += (double)e->idle_ns;
        x->byte_ns += (double)e->bytes * (double)e->idle_ns;
    }
    qsort(s.group.at, s.group.n, sizeof *s.group.at, dearer);
    fputs("dropped while nobody needs it, and made again:\n"
          "    runs    extra ms    share     dropped  ms away  less on average  operator\n",
          out);
    Group rest = {0};
    for (uint32_t i = 0; i < s.group.n; i++) {
        const Group *x = &s.group.at[i];
        if (i < ROWS) {
            print_row(out, w, x, x->name);
            continue;
        }
        rest.count += x->count;
        rest.ns += x->ns;
        rest.bytes += x->bytes;
        rest.idle_ns += x->idle_ns;
        rest.byte_ns += x->byte_ns;
    }
    if (rest.count) print_row(out, w, &rest, "others");
}

static void print_bound(FILE *out, Arena *a, const Options *o, const Work *w) {
    const Graph *g = w->step;
    PlanBound b = plan_bound(g, w->cost, w->plan->budget, o->plan.bytes_only);
    fprintf(out, "\nlower bound %.4f %%: retention of values over time %.4f %%, cut %.4f %%",
            100 * b.overhead, 100 * b.retention, 100 * b.cut);
    if (b.windows == 1) fprintf(out, " (at '%s')", short_name(a, g->node[b.node].name));
    if (b.windows > 1) fprintf(out, " (in %u windows)", b.windows);
    fprintf(out, "\nthat is with first runs in the graph's order; in any order: %.4f %%\n",
            100 * b.any_order);
    if (!plan_keeps_order(g, w->cost, w->plan))
        fprintf(out, "first runs stand in another order, since the graph's needs more memory\n");
}

static void print_all(FILE *out, Arena *a, const Work *w, const PlanFacts *f) {
    const Graph *g = w->step;
    fprintf(out, "\nrecomputed nodes (%u): times, ns in all, steps, number in the step graph\n",
            f->nrerun);
    for (uint32_t i = 0; i < f->nrerun; i++) {
        const PlanRerun *x = &f->rerun[i];
        const Node *n = &g->node[x->node];
        fprintf(out, "  %5u x %12llu ns  %6u..%-6u  %6u  %-20s %s\n", x->again,
                (unsigned long long)x->ns, x->first, x->last, x->node, explain_kind(a, n),
                diag_name(a, n->name));
    }
    fprintf(out, "\ndropped and made again (%u): bytes, steps from and to, ns away, ns to make\n",
            f->neviction);
    for (uint32_t i = 0; i < f->neviction; i++) {
        const PlanEviction *e = &f->eviction[i];
        fprintf(out, "  %12llu  %6u..%-6u  %14llu ns  %12llu ns  %s\n",
                (unsigned long long)e->bytes, e->gone, e->back, (unsigned long long)e->idle_ns,
                (unsigned long long)e->again_ns, storage_name(a, g, e->storage));
    }
    fprintf(out, "\nthere at the peak, step %u (%u): bytes, since step\n", f->peak_step,
            f->nresident);
    for (uint32_t i = 0; i < f->nresident; i++) {
        const PlanResident *x = &f->resident[i];
        fprintf(out, "  %12llu  %6u  %s%s\n", (unsigned long long)x->bytes, x->since,
                storage_name(a, g, x->storage),
                x->scratch && x->storage != NO_ID ? " (written and not kept)" : "");
    }
}

void explain_print(FILE *out, Arena *a, const Options *o, const Work *w) {
    const PlanFacts *f = plan_explain(a, w->step, w->cost, w->plan);
    print_peak(out, a, w, f);
    print_again(out, a, w, f);
    if (!o->explain) return;
    print_bound(out, a, o, w);
    print_all(out, a, w, f);
}

/* ---- JSON ---- */

static void json_name(Text *t, const Graph *g, StorageId s) {
    text_str(t, "\"name\": ");
    text_json(t, s == NO_ID ? "workspace" : g->value[g->storage[s].root].name);
}

void explain_json(Text *t, const Work *w) {
    const Graph *g = w->step;
    const PlanFacts *f = plan_explain(t->arena, g, w->cost, w->plan);
    text_str(t, "{\"recomputed\": [");
    for (uint32_t i = 0; i < f->nrerun; i++) {
        const PlanRerun *x = &f->rerun[i];
        text_add(t, "%s{\"node\": %u, \"name\": ", i ? ", " : "", x->node);
        text_json(t, g->node[x->node].name);
        text_add(t, ", \"op\": \"%s\", \"times\": %u, \"ns\": %llu, \"first\": %u, \"last\": %u}",
                 op_def(g->node[x->node].op)->name, x->again, (unsigned long long)x->ns, x->first,
                 x->last);
    }
    text_str(t, "], \"dropped\": [");
    for (uint32_t i = 0; i < f->neviction; i++) {
        const PlanEviction *e = &f->eviction[i];
        text_str(t, i ? ", {" : "{");
        json_name(t, g, e->storage);
        text_add(t,
                 ", \"bytes\": %llu, \"gone\": %u, \"back\": %u, \"idle_ns\": %llu, "
                 "\"again_ns\": %llu}",
                 (unsigned long long)e->bytes, e->gone, e->back, (unsigned long long)e->idle_ns,
                 (unsigned long long)e->again_ns);
    }
    text_add(t, "], \"peak\": {\"step\": %u, \"bytes\": %llu, \"there\": [", f->peak_step,
             (unsigned long long)f->peak_bytes);
    for (uint32_t i = 0; i < f->nresident; i++) {
        text_str(t, i ? ", {" : "{");
        json_name(t, g, f->resident[i].storage);
        text_add(t, ", \"bytes\": %llu, \"since\": %u}", (unsigned long long)f->resident[i].bytes,
                 f->resident[i].since);
    }
    text_str(t, "]}}");
}
