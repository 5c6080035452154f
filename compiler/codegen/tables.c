/* tables.c - a plan as data: persistent tensors, runs with the addresses of their operands, and the
 * order of runs and drops.
 *
 * The plan is replayed once, with the offset of each storage at each moment; nothing is decided
 * here. Offsets count from the start of the block [persistent | arena]. */
#include "gen.h"

#include <assert.h>
#include <string.h>

static uint64_t value_bytes_of(const Gen *g, ValueId v) {
    return g->c->storage_bytes[g->g->value[v].storage];
}

/* ---- persistent tensors ---- */

void cg_tensors(Gen *g) {
    uint32_t n = 0;
    g->tensor_of = ARENA_ARRAY(g->a, uint32_t, g->g->nvalue);
    for (ValueId v = 0; v < g->g->nvalue; v++) n += g->g->value[v].role != ROLE_TEMP;
    g->tensor = ARENA_ARRAY(g->a, ValueId, n + 1);
    g->tensor_offset = ARENA_ARRAY(g->a, uint64_t, n + 1);
    uint64_t at = 0;
    for (ValueId v = 0; v < g->g->nvalue; v++) {
        g->tensor_of[v] = NO_ID;
        if (g->g->value[v].role == ROLE_TEMP) continue;
        g->tensor_of[v] = g->ntensor;
        g->tensor[g->ntensor] = v;
        g->tensor_offset[g->ntensor++] = at;
        at += round_up(value_bytes_of(g, v), PLAN_ALIGN);
    }
    assert(at == g->p->persistent_bytes);
}

static const char *role_c_name(Role r) {
    switch (r) {
    case ROLE_INPUT: return "DTRT_INPUT";
    case ROLE_TARGET: return "DTRT_TARGET";
    case ROLE_PARAM: return "DTRT_PARAM";
    case ROLE_FROZEN: return "DTRT_FROZEN";
    case ROLE_BUFFER: return "DTRT_BUFFER";
    case ROLE_STATE: return "DTRT_STATE";
    default: return "DTRT_CONST";
    }
}

const char *cg_type_name(DType d) {
    static const char *const name[] = {"DTRT_F32", "DTRT_F64", "DTRT_I64",
                                       "DTRT_I32", "DTRT_U8",  "DTRT_BOOL"};
    return name[d];
}

void cg_print_dims(Text *t, const Shape *s) {
    text_char(t, '{');
    for (uint32_t i = 0; i < s->rank; i++)
        text_add(t, "%s%lld", i ? ", " : "", (long long)s->dim[i]);
    text_str(t, s->rank ? "}" : "0}");
}

/* First moments ('m', the velocity of SGD too) are operand 2 of an update, second moments
 * operand 3. */
static char state_kind(const Gen *g, ValueId v) {
    for (NodeId n = 0; n < g->g->nnode; n++) {
        const Node *x = &g->g->node[n];
        if (op_class(x) != CLS_EFFECT) continue;
        for (uint32_t i = 2; i < x->nin; i++)
            if (x->in[i] == v) return i == 2 ? 'm' : 'v';
    }
    return 'm';
}

void cg_print_tensors(Gen *g, Text *t) {
    text_str(
        t, "/* ---- persistent tensors: name, role, type, rank, dims, offset, bytes, conv, param, "
           "state, payload offset, payload bytes ---- */\n"
           "static const DtrtTensor tensors[] = {\n");
    for (uint32_t i = 0; i < g->ntensor; i++) {
        const Value *v = &g->g->value[g->tensor[i]];
        bool state = v->role == ROLE_STATE;
        uint32_t conv = g->conv_of[g->tensor[i]];
        text_add(t, "    /* %u */ {", i);
        text_quote(t, v->name);
        text_add(t, ", %s, %s, %u, ", role_c_name(v->role), cg_type_name(v->dtype), v->shape.rank);
        cg_print_dims(t, &v->shape);
        text_add(t, ", %llu, %llu, %d, %d, ", (unsigned long long)g->tensor_offset[i],
                 (unsigned long long)value_bytes_of(g, g->tensor[i]),
                 conv == NO_ID ? -1 : (int)conv,
                 state && v->param != NO_ID ? (int)g->tensor_of[v->param] : -1);
        text_add(t, state ? "'%c', " : "0, ", state ? state_kind(g, g->tensor[i]) : 0);
        text_add(t, "%llu, %llu},\n", (unsigned long long)g->file_offset[i],
                 (unsigned long long)(v->data ? v->data->n : 0));
    }
    if (!g->ntensor) text_str(t, "    {0}\n");
    text_str(t, "};\n\n");
}

/* ---- storages and nodes ---- */

static void print_storages(const Gen *g, Text *t) {
    text_str(t, "/* Storages: bytes, persistent tensor, type. */\n"
                "static const DtrtStorage storages[] = {\n");
    for (StorageId s = 0; s < g->g->nstorage; s++) {
        ValueId root = g->g->storage[s].root;
        text_add(t, "    /* %u */ {%llu, %d, %s}, /* ", s,
                 (unsigned long long)g->c->storage_bytes[s],
                 g->tensor_of[root] == NO_ID ? -1 : (int)g->tensor_of[root],
                 cg_type_name(g->g->value[root].dtype));
        text_comment(t, g->g->value[root].name);
        text_str(t, " */\n");
    }
    if (!g->g->nstorage) text_str(t, "    {0}\n");
    text_str(t, "};\n");
}

/* The trained tensor that an update changes, or -1. */
static int updated_param(const Gen *g, const Node *n) {
    if (op_class(n) != CLS_EFFECT || !n->nin || n->in[0] == NO_ID) return -1;
    return g->g->value[n->in[0]].role == ROLE_PARAM ? (int)g->tensor_of[n->in[0]] : -1;
}

static void print_operands(const Gen *g, const Node *n, Text *t) {
    for (uint32_t i = 0; i < n->nin + n->nout; i++) {
        ValueId v = i < n->nin ? n->in[i] : n->out[i - n->nin];
        text_add(t, " %d,", v == NO_ID ? -1 : (int)g->g->value[v].storage);
    }
}

/* A row of each table for a node that runs for the first time. */
static void print_node(Gen *g, NodeId id, Text *nodes, Text *operands) {
    const Node *n = &g->g->node[id];
    text_add(operands, "    /* %u */", g->nnode);
    print_operands(g, n, operands);
    text_char(operands, '\n');
    text_add(nodes, "    /* %u */ {k%u, ", g->nnode, g->node_body[id]);
    text_quote(nodes, n->name);
    text_str(nodes, ", ");
    text_quote(nodes, n->onnx ? n->onnx : op_def(n->op)->name);
    text_add(nodes, ", %u, %u, %u, %u, %d, %d, 0x%llx, 0x%llx, %llu, %llu},\n", id, g->noperand,
             n->nin, n->nout, (int)n->phase, updated_param(g, n),
             (unsigned long long)op_inplace_inputs(g->g, n),
             (unsigned long long)(op_class(n) == CLS_EFFECT ? op_def(n->op)->mutates : 0),
             (unsigned long long)g->c->node_workspace[id], (unsigned long long)g->c->node_ns[id]);
    g->graph_node[g->nnode] = id;
    g->noperand += n->nin + n->nout;
    g->nnode++;
}

int cg_logits_storage(const Gen *g) {
    if (g->g->logits == NO_ID) return -1;
    StorageId s = g->g->value[g->g->logits].storage;
    return g->g->value[g->g->storage[s].root].def == NO_ID ? -1 : (int)s;
}

/* ---- the schedule ---- */

typedef struct {
    Gen *g;
    uint64_t *where;   /* per storage: offset in the block, or DTRT_NOWHERE's value */
    uint32_t *node_of; /* per node of the graph: its number in the program, or NO_ID */
    Text nodes, operands, runs, addr, steps;
} Replay;

#define NOWHERE UINT64_MAX

static void print_addr(Replay *r, uint64_t at) {
    if (at == NOWHERE)
        text_str(&r->addr, " DTRT_NOWHERE,");
    else
        text_add(&r->addr, " %llu,", (unsigned long long)at);
    r->g->naddr++;
}

static uint64_t operand_at(const Replay *r, ValueId v) {
    uint64_t at = v == NO_ID ? NOWHERE : r->where[r->g->g->value[v].storage];
    assert(v == NO_ID || at != NOWHERE); /* P2 */
    return at;
}

static void replay_addresses(Replay *r, const PlanStep *s) {
    const Gen *g = r->g;
    const Node *n = &g->g->node[s->id];
    text_add(&r->addr, "    /* %u */", g->nrun);
    for (uint32_t i = 0; i < n->nin; i++) print_addr(r, operand_at(r, n->in[i]));
    if (s->inplace != NO_ID) r->where[s->inplace] = NOWHERE;
    for (uint32_t i = 0; i < n->nout; i++) {
        ValueId v = n->out[i];
        uint64_t at = g->p->persistent_bytes + s->out[i].offset;
        if (v == NO_ID || s->out[i].place == PLACE_NONE) at = NOWHERE;
        print_addr(r, at);
        if (v != NO_ID && s->out[i].place == PLACE_RESIDENT) r->where[g->g->value[v].storage] = at;
    }
    bool works = g->c->node_workspace[s->id] > 0;
    print_addr(r, works ? g->p->persistent_bytes + s->workspace : NOWHERE);
    text_char(&r->addr, '\n');
}

static void replay_run(Replay *r, const PlanStep *s) {
    Gen *g = r->g;
    const Node *n = &g->g->node[s->id];
    if (op_node_class(n) == CLS_VIEW) return;
    bool again = r->node_of[s->id] != NO_ID;
    if (!again) {
        r->node_of[s->id] = g->nnode;
        print_node(g, s->id, &r->nodes, &r->operands);
    }
    text_add(&r->runs, "    /* %u */ {%u, %u}, /* ", g->nrun, r->node_of[s->id], g->naddr);
    replay_addresses(r, s);
    text_add(&r->steps, "    {%u, -1, 0}, /* ", g->nrun);
    Text *const lines[] = {&r->runs, &r->steps};
    for (int i = 0; i < 2; i++) {
        text_comment(lines[i], n->name);
        text_str(lines[i], again ? ": again */\n" : " */\n");
    }
    g->nrun++;
    g->nstep++;
}

static void replay_drop(Replay *r, const PlanStep *s) {
    uint64_t at = r->where[s->id];
    assert(at != NOWHERE);
    text_add(&r->steps, "    {-1, %u, %llu}, /* drop ", s->id, (unsigned long long)at);
    text_comment(&r->steps, r->g->g->value[r->g->g->storage[s->id].root].name);
    text_str(&r->steps, " */\n");
    r->where[s->id] = NOWHERE;
    r->g->nstep++;
}

static void replay_begin(Replay *r, Gen *g) {
    *r = (Replay){.g = g};
    Text *const t[] = {&r->nodes, &r->operands, &r->runs, &r->addr, &r->steps};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) text_init(t[i], g->a);
    r->node_of = ARENA_ARRAY(g->a, uint32_t, g->g->nnode + 1);
    for (NodeId n = 0; n < g->g->nnode; n++) r->node_of[n] = NO_ID;
    r->where = ARENA_ARRAY(g->a, uint64_t, g->g->nstorage + 1);
    for (StorageId s = 0; s < g->g->nstorage; s++) r->where[s] = NOWHERE;
    for (uint32_t i = 0; i < g->ntensor; i++)
        r->where[g->g->value[g->tensor[i]].storage] = g->tensor_offset[i];
}

static void print_table(Text *t, const char *comment, const char *decl, const Text *rows) {
    text_add(t, "/* %s */\nstatic const %s[] = {\n%s};\n\n", comment, decl,
             rows->n ? rows->at : "    0\n");
}

void cg_print_schedule(Gen *g, Text *t) {
    Replay r;
    replay_begin(&r, g);
    g->graph_node = ARENA_ARRAY(g->a, NodeId, g->g->nnode + 1);
    for (uint32_t i = 0; i < g->p->nstep; i++) {
        if (g->p->step[i].kind == STEP_RUN)
            replay_run(&r, &g->p->step[i]);
        else
            replay_drop(&r, &g->p->step[i]);
    }
    text_str(t, "/* ---- the training step ---- */\n");
    print_storages(g, t);
    print_table(t, "Storages of each node: inputs, outputs.", "int32_t operands", &r.operands);
    print_table(
        t,
        "Nodes: function, node, operator, number in the graph, first operand, inputs, outputs, "
        "phase (0\n * forward, 1 backward, 2 update), parameter, inputs that output 0 may take "
        "over, inputs that are\n * changed, workspace, expected ns.",
        "DtrtNode nodes", &r.nodes);
    text_str(t, "/* ---- its schedule ---- */\n");
    print_table(t, "Where each run's inputs, outputs and workspace lie.", "uint64_t addr", &r.addr);
    print_table(t, "Runs: node, first address.", "DtrtRun runs", &r.runs);
    print_table(t, "Runs in order, and drops: storage, offset.", "DtrtStep steps", &r.steps);
}
