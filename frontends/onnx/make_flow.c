/* make_flow.c - control flow whose course is known when compiling: the branch that If takes, the
 * iterations of Loop and Scan one after another. A sub-graph's nodes are copied under names that
 * begin with the node's name (and the number of the iteration) and converted like others.
 *
 * What depends on data (a condition, a number of iterations) is refused. Initializers of sub-graphs
 * are constants. */
#include "inline.h"

#include <string.h>

static Res fail_name(const Ctx *c, const char *name, const char *what) {
    return ctx_fail(c, "'%s' in its sub-graph %s", diag_name(c->x->tmp, name), what);
}

static const GraphProto *body_of(const Ctx *c, const char *attr) {
    const AttributeProto *a = attr_of(c, attr);
    return a ? a->g : NULL;
}

/* ---- one run of a sub-graph ---- */

static Res add_initializers(const Ctx *c, const GraphProto *g, const char *prefix, Scope *s) {
    Import *x = c->x;
    for (size_t i = 0; i < g->n_initializer; i++) {
        const TensorProto *t = g->initializer[i];
        if (!t->name || !*t->name)
            return ctx_fail(c, "an initializer of its sub-graph has no name");
        const char *name = arena_printf(x->tmp, "%s/%s", prefix, t->name);
        if (slot_of(x, name) != NO_ID) return fail_name(c, t->name, "is defined twice");
        Tensor *known = ARENA_NEW(x->tmp, Tensor);
        Place p = {.file = x->file, .node = c->n->name, .tensor = t->name};
        if (!tensor_read(x->a, x->d, &x->src, p, t, known)) return FAIL;
        uint32_t slot = slot_new(x, name);
        x->slot.at[slot].known = known;
        scope_put(x, s, t->name, name);
    }
    return OK;
}

static Res fill_node(const Ctx *c, const NodeProto *p, FileNode *f) {
    Import *x = c->x;
    NameList more = {0};
    captured_names(x, p, &more);
    *f = (FileNode){.p = p, .name = p->name, .nin = (uint32_t)p->n_input, .ncap = more.n};
    f->nout = (uint32_t)p->n_output;
    f->in = ARENA_ARRAY(x->tmp, uint32_t, f->nin + f->ncap);
    f->out = ARENA_ARRAY(x->tmp, uint32_t, f->nout);
    for (uint32_t i = 0; i < f->nin + f->ncap; i++) {
        const char *name = i < f->nin ? p->input[i] : more.at[i - f->nin];
        f->in[i] = *name ? slot_of(x, name) : NO_ID;
        if (*name && f->in[i] == NO_ID)
            return fail_name(c, name, "is read but not defined (before its reader)");
    }
    for (uint32_t k = 0; k < f->nout; k++) {
        f->out[k] = NO_ID;
        if (!*p->output[k]) continue;
        if (slot_of(x, p->output[k]) != NO_ID)
            return fail_name(c, p->output[k], "is defined twice");
        f->out[k] = slot_new(x, p->output[k]);
    }
    return OK;
}

/* Counts readers, as the main graph does; the outputs have one that does not end. */
static void count_readers(Import *x, FileNode *f, uint32_t n, const uint32_t *out, size_t nout) {
    for (size_t i = 0; i < nout; i++) x->slot.at[out[i]].nread++, x->slot.at[out[i]].uses++;
    while (n--) {
        for (uint32_t k = 0; k < f[n].nout; k++)
            if (f[n].out[k] != NO_ID && x->slot.at[f[n].out[k]].nread) f[n].live = true;
        for (uint32_t i = 0; f[n].live && i < f[n].nin + f[n].ncap; i++)
            if (f[n].in[i] != NO_ID) x->slot.at[f[n].in[i]].nread++, x->slot.at[f[n].in[i]].uses++;
    }
}

/* in: slots of the sub-graph's inputs; out: those of its outputs. */
static Res run_body(const Ctx *c, const GraphProto *g, const char *prefix, const uint32_t *in,
                    uint32_t *out) {
    Import *x = c->x;
    Scope s = scope_new(x, NULL);
    for (size_t i = 0; i < g->n_input; i++)
        scope_put(x, &s, g->input[i]->name ? g->input[i]->name : "", x->slot.at[in[i]].name);
    MUST(add_initializers(c, g, prefix, &s));
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            scope_put(x, &s, g->node[i]->output[k],
                      arena_printf(x->tmp, "%s/%s", prefix, g->node[i]->output[k]));
    NodeList list = {0};
    for (size_t i = 0; i < g->n_node; i++)
        if (!expand_node(x, &s, prefix, g->node[i], &list)) return FAIL;
    FileNode *f = ARENA_ARRAY(x->tmp, FileNode, list.n);
    for (uint32_t i = 0; i < list.n; i++) MUST(fill_node(c, list.at[i], &f[i]));
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = g->output[i]->name ? g->output[i]->name : "";
        out[i] = slot_of(x, scope_name(x, &s, name));
        if (out[i] == NO_ID) return fail_name(c, name, "is an output but not defined");
    }
    count_readers(x, f, list.n, out, g->n_output);
    for (uint32_t i = 0; i < list.n; i++)
        if (f[i].live && !convert_node(x, &f[i])) return FAIL;
    for (size_t i = 0; i < g->n_output; i++)
        if (x->slot.at[out[i]].lost) return SKIP;
    return OK;
}

/* ---- results ---- */

static ValueId slot_value(const Ctx *c, uint32_t slot) {
    Slot *s = &c->x->slot.at[slot];
    if (s->value == NO_ID) s->value = constant(c->x, s->name, s->known, ROLE_CONST);
    return s->value;
}

static const Shape *slot_shape(const Ctx *c, uint32_t slot) {
    const Slot *s = &c->x->slot.at[slot];
    return s->known ? &s->known->shape : &c->x->g->value[s->value].shape;
}

/* Output k of the node is what the slot holds. */
static Res bind_slot(const Ctx *c, uint32_t k, uint32_t slot) {
    if (!has_out(c, k)) return OK;
    Tensor *known = c->x->slot.at[slot].known;
    if (known) {
        c->x->slot.at[c->n->out[k]].known = known;
        return OK;
    }
    const Shape s = *slot_shape(c, slot);
    ValueId v = emit_view(c, arena_printf(c->x->tmp, ".out%u", k), slot_value(c, slot), &s);
    return bind(c, k, v);
}

static Res stack_known(const Ctx *c, uint32_t k, uint32_t n, const uint32_t *slot, uint32_t axis,
                       const Shape *all) {
    Tensor *t = ARENA_NEW(c->x->tmp, Tensor);
    const Tensor *first = c->x->slot.at[slot[0]].known;
    MUST(tensor_new(c, first->dtype, all, t));
    uint64_t outer = 1, inner = dtype_size(first->dtype);
    for (uint32_t i = 0; i < first->shape.rank; i++)
        *(i < axis ? &outer : &inner) *= (uint64_t)first->shape.dim[i];
    for (uint32_t j = 0; j < n && t->data; j++) {
        const Tensor *part = c->x->slot.at[slot[j]].known;
        for (uint64_t o = 0; o < outer && part->data; o++)
            memcpy((uint8_t *)(uintptr_t)t->data + (o * n + j) * inner,
                   (const uint8_t *)part->data + o * inner, inner);
    }
    if (t->heap) VEC_PUSH(c->x->tmp, c->x->heap, t);
    c->x->slot.at[c->n->out[k]].known = t;
    return OK;
}

/* Output k: the values of n iterations along a new axis. */
static Res stack(const Ctx *c, uint32_t k, uint32_t n, const uint32_t *slot, int64_t at) {
    Import *x = c->x;
    if (!has_out(c, k)) return OK;
    if (!n) return ctx_skip(c, "no iteration, so that its output %u has no shape", k);
    Shape part = *slot_shape(c, slot[0]), one = {.rank = part.rank + 1}, all;
    uint32_t axis;
    if (one.rank > IR_MAX_RANK) return ctx_fail(c, "output %u has too many axes", k);
    MUST(axis_of(c, at, one.rank, &axis));
    for (uint32_t i = 0; i < one.rank; i++)
        one.dim[i] = i == axis ? 1 : part.dim[i < axis ? i : i - 1];
    all = one;
    all.dim[axis] = n;
    bool known = true;
    for (uint32_t j = 0; j < n; j++) {
        const Tensor *t = x->slot.at[slot[j]].known;
        known &= t && !t->missing && t->dtype == x->slot.at[slot[0]].known->dtype;
        if (!shape_eq(slot_shape(c, slot[j]), &part))
            return ctx_fail(c, "output %u changes its shape from %s to %s", k,
                            shape_str(x->tmp, &part), shape_str(x->tmp, slot_shape(c, slot[j])));
    }
    if (known) return stack_known(c, k, n, slot, axis, &all);
    ValueId *in = ARENA_ARRAY(x->tmp, ValueId, n);
    for (uint32_t j = 0; j < n; j++) {
        const char *name = arena_printf(x->tmp, ".%u.out%u", j, k);
        in[j] = emit_view(c, name, slot_value(c, slot[j]), &one);
        if (in[j] == NO_ID) return FAIL;
    }
    Attr attr = attr_i(x->tmp, A_axis, axis);
    return bind(c, k, n == 1 ? in[0] : emit(c, OP_Concat, "", n, in, 1, &attr));
}

/* ---- If ---- */

Res make_if(Ctx *c) {
    const Tensor *cond = known_in(c, 0);
    if (!cond || cond->missing)
        return ctx_skip(c, "its condition depends on data; export the model with the branch taken "
                           "decided (tracing instead of scripting)");
    if (cond->count != 1) return ctx_fail(c, "its condition is not one value");
    const char *branch = tensor_int(cond, 0) ? "then_branch" : "else_branch";
    const GraphProto *g = body_of(c, branch);
    if (!g || g->n_input || g->n_output < c->n->nout)
        return ctx_fail(c, "expected a %s without inputs and with %u outputs", branch, c->n->nout);
    uint32_t *out = ARENA_ARRAY(c->x->tmp, uint32_t, g->n_output);
    const char *prefix = arena_printf(c->x->tmp, "%s.%s", c->n->name, branch);
    MUST(run_body(c, g, prefix, NULL, out));
    for (uint32_t k = 0; k < c->n->nout; k++) MUST(bind_slot(c, k, out[k]));
    return OK;
}

/* ---- Loop ---- */

/* A slot that holds one known number. */
static uint32_t number_slot(const Ctx *c, const char *name, DType dt, int64_t v) {
    Tensor *t = ARENA_NEW(c->x->tmp, Tensor);
    *t = (Tensor){.dtype = dt, .count = 1, .data = arena_alloc(c->x->tmp, 8)};
    put_int(t, 0, v);
    uint32_t slot = slot_new(c->x, name);
    c->x->slot.at[slot].known = t;
    return slot;
}

/* A known number: an input of the node, or one that a sub-graph computed. */
static Res known_number(const Ctx *c, const Tensor *t, const char *what, int64_t *out) {
    if (!t || t->missing) return ctx_skip(c, "%s depends on data", what);
    if (t->count != 1) return ctx_fail(c, "%s is not one value", what);
    *out = tensor_int(t, 0);
    return OK;
}

typedef struct {
    const GraphProto *g;
    uint32_t ncarry, nscan;
    uint32_t *in, *out;  /* slots of the sub-graph's inputs and outputs */
    uint32_t **gathered; /* per scan output: its slot in each iteration */
    uint32_t cap, n;     /* iterations */
} Run;

static void gather(const Ctx *c, Run *r, const uint32_t *scan) {
    if (r->n == r->cap) {
        uint32_t cap = r->cap ? 2 * r->cap : 16;
        for (uint32_t k = 0; k < r->nscan; k++)
            r->gathered[k] =
                arena_grow(c->x->tmp, r->gathered[k], r->cap * sizeof *scan, cap * sizeof *scan);
        r->cap = cap;
    }
    for (uint32_t k = 0; k < r->nscan; k++) r->gathered[k][r->n] = scan[k];
    r->n++;
}

static Res start(const Ctx *c, const char *body, uint32_t inputs, uint32_t outputs, uint32_t ncarry,
                 Run *r) {
    *r = (Run){.g = body_of(c, body), .ncarry = ncarry};
    if (!r->g || r->g->n_input != inputs || r->g->n_output < outputs)
        return ctx_fail(c, "expected a body with %u inputs and at least %u outputs", inputs,
                        outputs);
    r->nscan = (uint32_t)r->g->n_output - outputs;
    if (c->n->nout > ncarry + r->nscan)
        return ctx_fail(c, "the node has %u outputs, its body makes %u", c->n->nout,
                        ncarry + r->nscan);
    r->in = ARENA_ARRAY(c->x->tmp, uint32_t, r->g->n_input);
    r->out = ARENA_ARRAY(c->x->tmp, uint32_t, r->g->n_output);
    r->gathered = ARENA_ARRAY(c->x->tmp, uint32_t *, r->nscan);
    return OK;
}

Res make_loop(Ctx *c) {
    Import *x = c->x;
    int64_t trips = INT64_MAX, go = 1;
    Run r;
    if (has_in(c, 0)) MUST(known_number(c, known_in(c, 0), "its number of iterations", &trips));
    if (has_in(c, 1)) MUST(known_number(c, known_in(c, 1), "its condition", &go));
    uint32_t ncarry = c->n->nin > 2 ? c->n->nin - 2 : 0;
    MUST(start(c, "body", ncarry + 2, ncarry + 1, ncarry, &r));
    for (uint32_t i = 0; i < ncarry; i++) {
        if (!has_in(c, 2 + i)) return ctx_fail(c, "input %u is not there", 2 + i);
        r.in[2 + i] = c->n->in[2 + i];
    }
    while (go && (int64_t)r.n < trips) {
        MUST(count_steps(c, 1));
        const char *prefix = arena_printf(x->tmp, "%s.%u", c->n->name, r.n);
        r.in[0] = number_slot(c, arena_printf(x->tmp, "%s.iteration", prefix), DT_I64, r.n);
        r.in[1] = number_slot(c, arena_printf(x->tmp, "%s.condition", prefix), DT_BOOL, 1);
        MUST(run_body(c, r.g, prefix, r.in, r.out));
        MUST(known_number(c, x->slot.at[r.out[0]].known, "its condition", &go));
        for (uint32_t i = 0; i < ncarry; i++) r.in[2 + i] = r.out[1 + i];
        gather(c, &r, r.out + 1 + ncarry);
    }
    for (uint32_t k = 0; k < ncarry && k < c->n->nout; k++) MUST(bind_slot(c, k, r.in[2 + k]));
    for (uint32_t k = 0; k < r.nscan; k++) MUST(stack(c, ncarry + k, r.n, r.gathered[k], 0));
    return OK;
}

/* ---- Scan ---- */

static Res list_entry(const Ctx *c, const char *attr, uint32_t i, int64_t *out) {
    Ints list;
    MUST(ints_of(c, attr, NO_ID, &list));
    *out = i < list.n ? list.at[i] : 0;
    return OK;
}

/* Entry j of scan input i, as a slot. */
static Res scan_entry(const Ctx *c, uint32_t i, uint32_t axis, int64_t j, const char *prefix,
                      uint32_t *out) {
    Import *x = c->x;
    const Shape s = *shape_in(c, i);
    Shape part = {.rank = s.rank - 1};
    for (uint32_t k = 0; k < part.rank; k++) part.dim[k] = s.dim[k < axis ? k : k + 1];
    const Tensor *t = known_in(c, i);
    const char *name = arena_printf(x->tmp, "%s.in%u", prefix, i);
    *out = slot_new(x, name);
    if (t && !t->missing) {
        Tensor *e = ARENA_NEW(x->tmp, Tensor);
        MUST(tensor_new(c, t->dtype, &part, e));
        uint64_t outer = 1, inner = dtype_size(t->dtype), n = (uint64_t)s.dim[axis];
        for (uint32_t k = 0; k < part.rank; k++)
            *(k < axis ? &outer : &inner) *= (uint64_t)part.dim[k];
        for (uint64_t o = 0; o < outer && e->data; o++)
            memcpy((uint8_t *)(uintptr_t)e->data + o * inner,
                   (const uint8_t *)t->data + (o * n + (uint64_t)j) * inner, inner);
        if (e->heap) VEC_PUSH(x->tmp, x->heap, e);
        x->slot.at[*out].known = e;
        return OK;
    }
    int64_t start_[IR_MAX_RANK] = {0}, step[IR_MAX_RANK], size[IR_MAX_RANK];
    for (uint32_t k = 0; k < s.rank; k++) step[k] = 1, size[k] = s.dim[k];
    start_[axis] = j;
    size[axis] = 1;
    Attr attr[] = {attr_ints(x->tmp, A_starts, start_, s.rank),
                   attr_ints(x->tmp, A_steps, step, s.rank),
                   attr_ints(x->tmp, A_sizes, size, s.rank)};
    ValueId v = value_in(c, i);
    const char *suffix = name + strlen(c->n->name);
    v = emit(c, OP_Slice, arena_printf(x->tmp, "%s.slice", suffix), 1, &v, 3, attr);
    if (v != NO_ID) v = emit_view(c, suffix, v, &part);
    x->slot.at[*out].value = v;
    return v == NO_ID ? FAIL : OK;
}

Res make_scan(Ctx *c) {
    Import *x = c->x;
    int64_t nscan, trips = -1;
    Run r;
    MUST(attr_int(c, "num_scan_inputs", 0, &nscan));
    if (x->opset < 9) return ctx_skip(c, "its form before operator set 9");
    if (nscan < 1 || nscan > c->n->nin)
        return ctx_fail(c, "num_scan_inputs is %lld of %u inputs", (long long)nscan, c->n->nin);
    uint32_t ncarry = c->n->nin - (uint32_t)nscan;
    MUST(start(c, "body", c->n->nin, ncarry, ncarry, &r));
    uint32_t *axis = ARENA_ARRAY(x->tmp, uint32_t, (uint64_t)nscan);
    bool *back = ARENA_ARRAY(x->tmp, bool, (uint64_t)nscan);
    for (uint32_t i = 0; i < c->n->nin; i++) {
        int64_t at, direction;
        if (!has_in(c, i)) return ctx_fail(c, "input %u is not there", i);
        r.in[i] = c->n->in[i];
        if (i < ncarry) continue;
        MUST(list_entry(c, "scan_input_axes", i - ncarry, &at));
        MUST(list_entry(c, "scan_input_directions", i - ncarry, &direction));
        MUST(axis_of(c, at, shape_in(c, i)->rank, &axis[i - ncarry]));
        back[i - ncarry] = direction != 0;
        int64_t d = shape_in(c, i)->dim[axis[i - ncarry]];
        if (trips >= 0 && d != trips)
            return ctx_fail(c, "its scan inputs have %lld and %lld entries", (long long)trips,
                            (long long)d);
        trips = d;
    }
    MUST(count_steps(c, (uint64_t)trips));
    for (int64_t t = 0; t < trips; t++) {
        const char *prefix = arena_printf(x->tmp, "%s.%lld", c->n->name, (long long)t);
        for (uint32_t i = 0; i < nscan; i++)
            MUST(scan_entry(c, ncarry + i, axis[i], back[i] ? trips - 1 - t : t, prefix,
                            &r.in[ncarry + i]));
        MUST(run_body(c, r.g, prefix, r.in, r.out));
        for (uint32_t i = 0; i < ncarry; i++) r.in[i] = r.out[i];
        gather(c, &r, r.out + ncarry);
    }
    for (uint32_t k = 0; k < ncarry && k < c->n->nout; k++) MUST(bind_slot(c, k, r.in[k]));
    for (uint32_t k = 0; k < r.nscan; k++) {
        int64_t at, direction;
        MUST(list_entry(c, "scan_output_axes", k, &at));
        MUST(list_entry(c, "scan_output_directions", k, &direction));
        for (uint32_t j = 0; direction && j < r.n / 2; j++) {
            uint32_t other = r.gathered[k][r.n - 1 - j];
            r.gathered[k][r.n - 1 - j] = r.gathered[k][j];
            r.gathered[k][j] = other;
        }
        MUST(stack(c, ncarry + k, r.n, r.gathered[k], at));
    }
    return OK;
}
