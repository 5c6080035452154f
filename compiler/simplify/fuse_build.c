/* fuse_build.c - groups of nodes become Fused nodes. Each runs at its group's place in the order;
 * the elementwise members come first, the reductions last, both in node order. */
#include "fuse.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 3 };

typedef struct {
    const Groups *s;
    Rewrite r;
    NodeId order[FUSE_MEMBERS]; /* members as instructions */
    uint32_t n;
    ValueId in[FUSE_INPUTS];
    uint32_t nin;
} Build;

static bool is_sum(const Build *b, NodeId n) {
    return op_is_colreduce(&b->s->g->node[n]);
}

static int by_id(const void *x, const void *y) {
    NodeId p = *(const NodeId *)x, q = *(const NodeId *)y;
    return p < q ? -1 : p > q;
}

static void order_members(Build *b, const Group *x) {
    NodeId all[FUSE_MEMBERS];
    assert(x->member.n <= FUSE_MEMBERS);
    memcpy(all, x->member.at, x->member.n * sizeof *all);
    qsort(all, x->member.n, sizeof *all, by_id);
    b->n = 0;
    for (uint32_t i = 0; i < x->member.n; i++)
        if (!is_sum(b, all[i])) b->order[b->n++] = all[i];
    for (uint32_t i = 0; i < x->member.n; i++)
        if (is_sum(b, all[i])) b->order[b->n++] = all[i];
}

static uint32_t operand(const Build *b, ValueId v) {
    NodeId def = b->s->g->value[v].def;
    for (uint32_t i = 0; i < b->n && def != NO_ID; i++)
        if (b->order[i] == def) return b->nin + i;
    uint32_t k = 0;
    while (k < b->nin && b->in[k] != v) k++;
    assert(k < b->nin); /* an operand is an input or a member */
    return k;
}

static FusedInst instruction(const Build *b, NodeId id) {
    const Node *n = &b->s->g->node[id];
    uint32_t *arg = ARENA_ARRAY(b->r.a, uint32_t, n->nin + 1);
    for (uint32_t i = 0; i < n->nin; i++) arg[i] = operand(b, n->in[i]);
    return (FusedInst){.op = n->op,
                       .nattr = n->nattr,
                       .narg = n->nin,
                       .attr = n->attr,
                       .arg = arg,
                       .dtype = b->s->g->value[n->out[0]].dtype,
                       .key = n->key,
                       .name = n->name};
}

/* "conv1.bn + relu1 + 2 more", and the operators "BnApply+Relu". */
static const char *fused_name(const Build *b) {
    Text t;
    uint32_t shown = 0, more = 0;
    text_init(&t, b->r.a);
    for (uint32_t i = 0; i < b->n; i++) {
        const char *name = b->s->g->node[b->order[i]].name;
        bool known = false;
        for (uint32_t k = 0; k < i; k++) known |= !strcmp(name, b->s->g->node[b->order[k]].name);
        if (known) continue;
        if (shown == NAMES)
            more++;
        else
            text_add(&t, "%s%s", shown++ ? " + " : "", name);
    }
    if (more) text_add(&t, " + %u more", more);
    return t.at;
}

static const char *fused_ops(const Build *b) {
    Text t;
    text_init(&t, b->r.a);
    for (uint32_t i = 0; i < b->n; i++)
        text_add(&t, "%s%s", i ? "+" : "", op_def(b->s->g->node[b->order[i]].op)->name);
    return t.at;
}

static uint32_t count_outputs(const Build *b) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const Node *x = &b->s->g->node[b->order[i]];
        for (uint32_t k = 0; b->s->of[b->order[i]].stored && k < x->nout; k++)
            n += x->out[k] != NO_ID;
    }
    return n;
}

static void add_outputs(Build *b, NodeId now, FusedBody *body) {
    uint32_t o = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const Node *x = &b->s->g->node[b->order[i]];
        for (uint32_t k = 0; b->s->of[b->order[i]].stored && k < x->nout; k++) {
            if (x->out[k] == NO_ID) continue;
            const Value *old = &b->s->g->value[x->out[k]];
            ValueId v = ir_value(b->r.g, old->name, old->dtype, &old->shape, ROLE_TEMP);
            b->r.g->value[v].def = now;
            b->r.g->node[now].out[o] = v;
            b->r.map[x->out[k]] = v;
            body->out_inst[o] = i;
            body->out_res[o++] = k;
        }
    }
}

static void build_group(Build *b, uint32_t id) {
    const Group *x = &b->s->group.at[id];
    order_members(b, x);
    if (b->n == 1) {
        rw_copy(&b->r, b->order[0]);
        return;
    }
    b->nin = group_inputs(b->s, x, b->in, FUSE_INPUTS);
    assert(b->nin <= FUSE_INPUTS);
    uint32_t nout = count_outputs(b);
    NodeId now = ir_node(b->r.g, OP_Fused, x->phase, fused_name(b), b->nin, nout);
    FusedBody *body = ARENA_NEW(b->r.a, FusedBody);
    body->space = x->space;
    body->ninst = b->n;
    body->inst = ARENA_ARRAY(b->r.a, FusedInst, b->n);
    body->out_inst = ARENA_ARRAY(b->r.a, uint32_t, nout + 1);
    body->out_res = ARENA_ARRAY(b->r.a, uint32_t, nout + 1);
    for (uint32_t i = 0; i < b->n; i++) body->inst[i] = instruction(b, b->order[i]);
    for (uint32_t i = 0; i < b->nin; i++) {
        assert(b->r.map[b->in[i]] != NO_ID); /* the group runs after its operands */
        b->r.g->node[now].in[i] = b->r.map[b->in[i]];
    }
    b->r.g->node[now].onnx = fused_ops(b);
    b->r.g->node[now].body = body;
    add_outputs(b, now, body);
}

/* Updates that wait, by the place that they wait for; CSR, in node order. */
typedef struct {
    uint32_t *first;
    NodeId *node;
} Delayed;

static Delayed delayed_updates(const Groups *s) {
    uint32_t n = s->g->nnode;
    Delayed d = {ARENA_ARRAY(s->a, uint32_t, n + 2), ARENA_ARRAY(s->a, NodeId, n + 1)};
    for (NodeId k = 0; k < n; k++)
        if (s->delay[k] != NO_ID) d.first[s->delay[k] + 1]++;
    for (uint32_t i = 1; i < n + 2; i++) d.first[i] += d.first[i - 1];
    uint32_t *at = ARENA_ARRAY(s->a, uint32_t, n + 1);
    for (NodeId k = 0; k < n; k++)
        if (s->delay[k] != NO_ID) d.node[d.first[s->delay[k]] + at[s->delay[k]]++] = k;
    return d;
}

Graph *fuse_build(const Groups *s) {
    Build b = {.s = s};
    Delayed next = delayed_updates(s);
    rw_begin(&b.r, s->a, s->g, NULL);
    uint32_t *at = ARENA_ARRAY(s->a, uint32_t, s->g->nnode + 1);
    for (NodeId n = 0; n < s->g->nnode; n++) at[n] = NO_ID;
    for (uint32_t i = 0; i < s->group.n; i++) {
        if (s->group.at[i].dead) continue;
        assert(at[s->group.at[i].pos] == NO_ID);
        at[s->group.at[i].pos] = i;
    }
    for (NodeId n = 0; n < s->g->nnode; n++) {
        if (at[n] != NO_ID)
            build_group(&b, at[n]);
        else if (s->of[n].n == 0 && s->delay[n] == NO_ID)
            rw_copy(&b.r, n);
        for (uint32_t k = next.first[n]; k < next.first[n + 1]; k++) rw_copy(&b.r, next.node[k]);
    }
    return rw_end(&b.r);
}
