/* fuse.c - which elementwise nodes and column reductions run as one loop.
 *
 * Step graph -> the same with Fused nodes. Nodes are visited backwards, so that a producer finds
 * all its consumers in groups. It joins them
 *   - when one group over the same space holds every consumer: its value is never stored;
 *   - when it is cheap and at most three groups hold them: each computes it anew. ReLU's gradient
 *     stands in both loops of batch norm's; batch norm before SiLU is computed again in the
 *     backward pass, which has its operands anyway, instead of being kept;
 *   - else it may share the loop of a reduction that reads it and still store its value: one pass
 *     over its operands instead of two.
 * Then reductions that read a common operand merge. The groups stay convex because a group runs at
 * the place of one member, after all its operands and before all readers of what it stores.
 *
 * Memory decides with: operands must not live longer than before by more than the value that is no
 * longer stored, unless nothing of size happens between the old place and the new one; into the
 * next phase they must not live longer at all. Updates of a weight stay behind its readers (I5).
 * Nothing here depends on a budget, so every budget runs the same kernels and gets the same bits.
 */
#include "fuse.h"

#include <assert.h>

enum { NEAR = 256 }; /* nodes that are looked at between two places */

typedef struct {
    Groups s;
    Users users;
    Bits kept, kept_storage;         /* values, storages that outlive the step's last reader */
    NodeId *mutator;                 /* per storage: the first node that mutates it, or NO_ID */
    uint32_t *mutated;               /* per storage: the place after which that happens, or NO_ID */
    uint32_t *reader_first, *reader; /* per storage: nodes that read it, CSR */
} Fuse;

static bool is_in_group(const Groups *s, NodeId n, uint32_t group) {
    for (uint32_t i = 0; i < s->of[n].n; i++)
        if (s->of[n].at[i] == group) return true;
    return false;
}

uint32_t group_inputs(const Groups *s, const Group *x, ValueId *out, uint32_t max) {
    uint32_t n = 0, self = (uint32_t)(x - s->group.at);
    for (uint32_t m = 0; m < x->member.n; m++) {
        const Node *nd = &s->g->node[x->member.at[m]];
        for (uint32_t i = 0; i < nd->nin; i++) {
            ValueId v = nd->in[i];
            NodeId def = v == NO_ID ? NO_ID : s->g->value[v].def;
            bool known = v == NO_ID || (def != NO_ID && is_in_group(s, def, self));
            for (uint32_t k = 0; k < n && k < max && !known; k++) known = out[k] == v;
            if (known) continue;
            if (n < max) out[n] = v;
            n++;
        }
    }
    return n;
}

static Group *group(const Fuse *f, uint32_t id) {
    return &f->s.group.at[id];
}

/* The latest place where node n runs. */
static uint32_t last_pos(const Fuse *f, NodeId n) {
    const Member *m = &f->s.of[n];
    uint32_t p = m->n ? 0 : n;
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t q = f->s.group.at[m->at[i]].pos;
        p = q > p ? q : p;
    }
    return p;
}

/* ---- memory ---- */

/* Bytes of n's operands that would die before place `pos` if n did not read them there. */
static uint64_t extension(const Fuse *f, NodeId n, uint32_t pos) {
    const Graph *g = f->s.g;
    const Node *nd = &g->node[n];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < nd->nin; i++) {
        if (nd->in[i] == NO_ID) continue;
        StorageId s = g->value[nd->in[i]].storage;
        bool lives = g->storage[s].persistent || bits_get(f->kept_storage, s);
        for (uint32_t k = 0; k < i; k++)
            lives |= nd->in[k] != NO_ID && g->value[nd->in[k]].storage == s;
        for (uint32_t k = f->reader_first[s]; k < f->reader_first[s + 1] && !lives; k++)
            lives = f->reader[k] != n && last_pos(f, f->reader[k]) >= pos;
        if (!lives) bytes += g->storage[s].bytes;
    }
    return bytes;
}

/* Nothing that needs memory runs between node n and place pos, other than n's consumers. */
static bool is_near(const Fuse *f, NodeId n, uint32_t pos) {
    const Graph *g = f->s.g;
    uint64_t size = value_bytes(g, g->node[n].out[0]);
    if (pos - n > NEAR) return false;
    for (NodeId k = n + 1; k < pos; k++) {
        const Node *x = &g->node[k];
        NodeClass cls = op_class(x);
        if (cls == CLS_VIEW || cls == CLS_EFFECT || f->s.of[k].n > 1) continue;
        if (f->s.of[k].n && (!f->s.of[k].stored || group(f, f->s.of[k].at[0])->pos >= pos))
            continue;
        if (!f->s.of[k].n) return false; /* its workspace may be large */
        for (uint32_t i = 0; i < x->nout; i++)
            if (x->out[i] != NO_ID && value_bytes(g, x->out[i]) > size / 8) return false;
    }
    return true;
}

/* An update of a weight can wait when the gradient that it reads is small. */
static bool can_wait(const Fuse *f, NodeId update, uint64_t size) {
    const Graph *g = f->s.g;
    const Node *u = &g->node[update];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < u->nin; i++)
        if (u->in[i] != NO_ID && !is_persistent(g->value[u->in[i]].role))
            bytes += value_bytes(g, u->in[i]);
    return u->phase == PHASE_UPDATE && bytes <= size / 8;
}

/* May n's operands be read at place pos as well? */
static bool may_read_at(const Fuse *f, NodeId n, uint32_t pos, uint64_t saved) {
    const Graph *g = f->s.g;
    const Node *nd = &g->node[n];
    for (uint32_t i = 0; i < nd->nin; i++) {
        if (nd->in[i] == NO_ID || f->mutated[g->value[nd->in[i]].storage] >= pos) continue;
        NodeId update = f->mutator[g->value[nd->in[i]].storage];
        if (!can_wait(f, update, value_bytes(g, nd->out[0]))) return false; /* I5 */
    }
    return is_near(f, n, pos) || extension(f, n, pos) <= saved + saved / 16;
}

/* n's operands are read at place pos: updates of them wait. */
static void read_at(Fuse *f, NodeId n, uint32_t pos) {
    const Node *nd = &f->s.g->node[n];
    for (uint32_t i = 0; i < nd->nin; i++) {
        if (nd->in[i] == NO_ID) continue;
        StorageId s = f->s.g->value[nd->in[i]].storage;
        if (f->mutated[s] >= pos) continue;
        f->mutated[s] = pos;
        f->s.delay[f->mutator[s]] = pos;
    }
}

/* ---- groups ---- */

static uint32_t new_group(Fuse *f, NodeId n) {
    const Graph *g = f->s.g;
    const Node *nd = &g->node[n];
    bool sum = op_is_colreduce(nd);
    Group x = {.space = g->value[sum ? nd->in[0] : nd->out[0]].shape, .phase = nd->phase, .pos = n};
    x.kept = sum ? value_count(g, nd->out[0]) : 0;
    x.nelem = !sum;
    VEC_PUSH(f->s.a, x.member, n);
    VEC_PUSH(f->s.a, f->s.group, x);
    return f->s.group.n - 1;
}

static bool fits(const Fuse *f, NodeId n, const Group *x) {
    const Node *nd = &f->s.g->node[n];
    return nd->phase <= x->phase && shape_eq(&f->s.g->value[nd->out[0]].shape, &x->space) &&
           x->member.n < FUSE_MEMBERS;
}

/* Would the group with n have few enough inputs? A copy must not make its group read much more: at
 * most three operands of full size. */
static bool inputs_fit(Fuse *f, NodeId n, uint32_t id, bool copy) {
    ValueId in[FUSE_INPUTS];
    Group *x = group(f, id);
    Member before = f->s.of[n];
    f->s.of[n] = (Member){.n = 1, .at = {id}};
    VEC_PUSH(f->s.a, x->member, n);
    uint32_t count = group_inputs(&f->s, x, in, FUSE_INPUTS), full = 0;
    x->member.n--;
    f->s.of[n] = before;
    for (uint32_t i = 0; i < count && i < FUSE_INPUTS; i++)
        full += shape_eq(&f->s.g->value[in[i]].shape, &x->space);
    return count <= FUSE_INPUTS && (!copy || full <= 3);
}

static void join(Fuse *f, NodeId n, uint32_t id) {
    Member *m = &f->s.of[n];
    assert(m->n < FUSE_COPIES);
    m->at[m->n++] = id;
    VEC_PUSH(f->s.a, group(f, id)->member, n);
}

/* Groups that hold the consumers of v, at most max; 0 when some consumer is in none, or is not over
 * the group's space with v as a plain operand. */
static uint32_t consumer_groups(const Fuse *f, ValueId v, uint32_t *out, uint32_t max, bool *all) {
    uint32_t n = 0;
    *all = true;
    for (uint32_t i = f->users.first[v]; i < f->users.first[v + 1]; i++) {
        const Member *m = &f->s.of[f->users.user[i]];
        *all &= m->n > 0;
        for (uint32_t k = 0; k < m->n; k++) {
            bool known = false;
            for (uint32_t j = 0; j < n && !known; j++) known = out[j] == m->at[k];
            if (known) continue;
            if (n == max) return max + 1;
            out[n++] = m->at[k];
        }
    }
    return n;
}

/* The first two rules. */
static bool try_vanish(Fuse *f, NodeId n) {
    const Node *nd = &f->s.g->node[n];
    uint32_t at[FUSE_COPIES];
    bool all;
    if (bits_get(f->kept, nd->out[0])) return false;
    uint32_t ngroup = consumer_groups(f, nd->out[0], at, FUSE_COPIES, &all);
    bool cheap = (op_def(nd->op)->flags & OPF_CHEAP) != 0;
    if (!all || ngroup == 0 || ngroup > (cheap ? FUSE_COPIES : 1)) return false;
    uint32_t last = 0;
    bool later = false;
    for (uint32_t i = 0; i < ngroup; i++) {
        const Group *x = group(f, at[i]);
        if (!fits(f, n, x) || !inputs_fit(f, n, at[i], ngroup > 1)) return false;
        last = x->pos > last ? x->pos : last;
        later |= x->phase != nd->phase;
    }
    if (!may_read_at(f, n, last, later ? 0 : value_bytes(f->s.g, nd->out[0]))) return false;
    for (uint32_t i = 0; i < ngroup; i++) join(f, n, at[i]);
    read_at(f, n, last);
    return true;
}

/* Every operand of the group is there before place pos, n's own outputs aside. */
static bool ready_at(const Fuse *f, const Group *x, NodeId n, uint32_t pos) {
    ValueId in[FUSE_INPUTS];
    uint32_t count = group_inputs(&f->s, x, in, FUSE_INPUTS);
    for (uint32_t i = 0; i < count && i < FUSE_INPUTS; i++) {
        NodeId def = f->s.g->value[in[i]].def;
        if (def != NO_ID && def != n && last_pos(f, def) >= pos) return false;
    }
    return count <= FUSE_INPUTS;
}

/* Everybody who reads v, copies of the readers in other groups too, runs after place pos. */
static bool readers_follow(const Fuse *f, ValueId v, uint32_t id, uint32_t pos) {
    for (uint32_t i = f->users.first[v]; i < f->users.first[v + 1]; i++) {
        const Member *m = &f->s.of[f->users.user[i]];
        if (m->n == 0 && f->users.user[i] <= pos) return false;
        for (uint32_t k = 0; k < m->n; k++)
            if (m->at[k] != id && group(f, m->at[k])->pos <= pos) return false;
    }
    return true;
}

static bool read_only_in(const Fuse *f, ValueId v, uint32_t id) {
    for (uint32_t i = f->users.first[v]; i < f->users.first[v + 1]; i++) {
        const Member *m = &f->s.of[f->users.user[i]];
        if (m->n != 1 || m->at[0] != id) return false;
    }
    return true;
}

/* The third rule. A group of reductions may as well run where n stood: what it stores is small. */
static bool try_share(Fuse *f, NodeId n) {
    const Node *nd = &f->s.g->node[n];
    ValueId v = nd->out[0];
    uint32_t at[16];
    bool all;
    uint32_t ngroup = consumer_groups(f, v, at, 16, &all);
    for (uint32_t i = 0; i < ngroup && i < 16; i++) {
        Group *x = group(f, at[i]);
        if (!x->kept || x->nelem || x->phase != nd->phase || !fits(f, n, x) ||
            !inputs_fit(f, n, at[i], false))
            continue;
        uint32_t pos = ready_at(f, x, n, n) ? n : x->pos;
        if (!readers_follow(f, v, at[i], pos) || !may_read_at(f, n, pos, 0)) continue;
        join(f, n, at[i]);
        read_at(f, n, pos);
        f->s.of[n].stored = bits_get(f->kept, v) || !read_only_in(f, v, at[i]);
        x->pos = pos;
        x->nelem = f->s.of[n].stored;
        return true;
    }
    return false;
}

static void group_nodes(Fuse *f) {
    const Graph *g = f->s.g;
    for (NodeId n = g->nnode; n-- > 0;) {
        const Node *nd = &g->node[n];
        if (!op_is_loop(nd) || nd->op == OP_Fused) continue;
        if (!op_is_colreduce(nd) && (try_vanish(f, n) || try_share(f, n))) continue;
        f->s.of[n] = (Member){.n = 1, .at = {new_group(f, n)}, .stored = true};
    }
}

/* ---- reductions with a common operand ---- */

static bool reads_of(const Group *x, const Graph *g, ValueId v) {
    for (uint32_t m = 0; m < x->member.n; m++) {
        const Node *nd = &g->node[x->member.at[m]];
        for (uint32_t i = 0; i < nd->nin; i++)
            if (nd->in[i] == v) return true;
    }
    return false;
}

static uint32_t output_count(const Fuse *f, const Group *x) {
    uint32_t n = 0;
    for (uint32_t m = 0; m < x->member.n; m++)
        if (f->s.of[x->member.at[m]].stored) n += f->s.g->node[x->member.at[m]].nout;
    return n;
}

/* Can group b (only reductions) run inside group a, earlier in the order? */
static bool can_merge(const Fuse *f, uint32_t a, uint32_t b) {
    const Group *x = &f->s.group.at[a], *y = &f->s.group.at[b];
    const Graph *g = f->s.g;
    if (x->dead || a == b || x->pos >= y->pos || x->kept != y->kept || x->phase != y->phase)
        return false;
    if (!shape_eq(&x->space, &y->space) || x->member.n + y->member.n > FUSE_MEMBERS) return false;
    if (output_count(f, x) + output_count(f, y) > FUSE_OUTPUTS) return false;
    ValueId in[FUSE_INPUTS], own[FUSE_INPUTS];
    uint32_t count = group_inputs(&f->s, y, in, FUSE_INPUTS);
    uint32_t both = group_inputs(&f->s, x, own, FUSE_INPUTS);
    bool common = false;
    for (uint32_t i = 0; i < count; i++) {
        NodeId def = g->value[in[i]].def;
        bool inside = def != NO_ID && is_in_group(&f->s, def, a);
        if (inside && op_is_colreduce(&g->node[def])) return false;
        if (!inside && def != NO_ID && last_pos(f, def) >= x->pos) return false;
        bool known = inside || reads_of(x, g, in[i]);
        common |= known && value_count(g, in[i]) > x->kept;
        both += !known;
    }
    return common && both <= FUSE_INPUTS;
}

static void merge(Fuse *f, uint32_t a, uint32_t b) {
    Group *y = group(f, b);
    for (uint32_t m = 0; m < y->member.n; m++) {
        Member *of = &f->s.of[y->member.at[m]];
        bool there = is_in_group(&f->s, y->member.at[m], a);
        for (uint32_t i = 0, k = 0; i < of->n; i++) {
            if (of->at[i] == b && there) continue;
            of->at[k++] = of->at[i] == b ? a : of->at[i];
        }
        of->n -= there;
        if (!there) VEC_PUSH(f->s.a, group(f, a)->member, y->member.at[m]);
    }
    y->dead = true;
}

static void merge_reductions(Fuse *f) {
    for (uint32_t b = 0; b < f->s.group.n; b++) {
        Group *y = group(f, b);
        if (!y->kept || y->nelem || y->dead) continue;
        for (uint32_t a = f->s.group.n; a-- > 0;) { /* groups were made backwards: earliest first */
            if (!group(f, a)->kept || !can_merge(f, a, b)) continue;
            merge(f, a, b);
            break;
        }
    }
}

/* ---- the pass ---- */

static void fill_mutated(Fuse *f) {
    const Graph *g = f->s.g;
    f->mutator = ARENA_ARRAY(f->s.a, NodeId, g->nstorage + 1);
    f->mutated = ARENA_ARRAY(f->s.a, uint32_t, g->nstorage + 1);
    f->s.delay = ARENA_ARRAY(f->s.a, uint32_t, g->nnode + 1);
    for (NodeId n = 0; n < g->nnode; n++) f->s.delay[n] = NO_ID;
    for (StorageId s = 0; s < g->nstorage; s++) f->mutator[s] = f->mutated[s] = NO_ID;
    for (NodeId n = g->nnode; n-- > 0;)
        for (uint32_t i = 0; i < g->node[n].nin; i++) {
            ValueId v = g->node[n].in[i];
            if (v == NO_ID || !(op_def(g->node[n].op)->mutates >> i & 1)) continue;
            f->mutator[g->value[v].storage] = f->mutated[g->value[v].storage] = n;
        }
}

/* A view itself reads nothing; those who read the view do. */
static bool reads(const Graph *g, NodeId n, uint32_t i) {
    return g->node[n].in[i] != NO_ID && op_class(&g->node[n]) != CLS_VIEW;
}

static void fill_readers(Fuse *f) {
    const Graph *g = f->s.g;
    uint32_t total = 0;
    f->reader_first = ARENA_ARRAY(f->s.a, uint32_t, g->nstorage + 2);
    for (NodeId n = 0; n < g->nnode; n++)
        for (uint32_t i = 0; i < g->node[n].nin; i++)
            if (reads(g, n, i)) f->reader_first[g->value[g->node[n].in[i]].storage + 2]++, total++;
    f->reader = ARENA_ARRAY(f->s.a, uint32_t, total + 1);
    for (uint32_t s = 2; s < g->nstorage + 2; s++) f->reader_first[s] += f->reader_first[s - 1];
    for (NodeId n = 0; n < g->nnode; n++)
        for (uint32_t i = 0; i < g->node[n].nin; i++)
            if (reads(g, n, i))
                f->reader[f->reader_first[g->value[g->node[n].in[i]].storage + 1]++] = n;
}

static void keep(Fuse *f, ValueId v) {
    if (v == NO_ID) return;
    bits_set(f->kept, v);
    bits_set(f->kept_storage, f->s.g->value[v].storage);
}

Graph *fuse_graph(Arena *a, const Graph *g) {
    Fuse f = {.s = {.a = a, .g = g}};
    f.users = ir_users(a, g);
    f.s.of = ARENA_ARRAY(a, Member, g->nnode + 1);
    f.kept = bits_new(a, g->nvalue + 1);
    f.kept_storage = bits_new(a, g->nstorage + 1);
    for (uint32_t i = 0; i < g->noutput; i++) keep(&f, g->output[i]);
    keep(&f, g->loss);
    keep(&f, g->logits);
    fill_mutated(&f);
    fill_readers(&f);
    group_nodes(&f);
    merge_reductions(&f);
    return fuse_build(&f.s);
}
