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

/* ---- the schedule ---- */

typedef struct {
    Gen *g;
    uint64_t *where; /* per storage: offset in the block, or DTRT_NOWHERE's value */
    bool *ran;       /* per node */
    Text runs, addr_text, bytes_text, type_text, steps;
    uint32_t nrun, naddr, nstep;
} Replay;

#define NOWHERE UINT64_MAX

static void print_addr(Replay *r, uint64_t at, uint64_t bytes, const char *type) {
    if (at == NOWHERE)
        text_str(&r->addr_text, " DTRT_NOWHERE,");
    else
        text_add(&r->addr_text, " %llu,", (unsigned long long)at);
    text_add(&r->bytes_text, " %llu,", (unsigned long long)bytes);
    text_add(&r->type_text, " %s,", type);
    r->naddr++;
}

static void print_operand(Replay *r, ValueId v, uint64_t at) {
    if (v == NO_ID)
        print_addr(r, NOWHERE, 0, "DTRT_U8");
    else
        print_addr(r, at, value_bytes_of(r->g, v), cg_type_name(r->g->g->value[v].dtype));
}

static void begin_line(Replay *r, Text *t) {
    text_add(t, "    /* %u */", r->nrun);
}

static uint64_t operand_at(const Replay *r, ValueId v) {
    uint64_t at = v == NO_ID ? NOWHERE : r->where[r->g->g->value[v].storage];
    assert(v == NO_ID || at != NOWHERE); /* P2 */
    return at;
}

static void replay_addresses(Replay *r, const PlanStep *s) {
    Gen *g = r->g;
    const Node *n = &g->g->node[s->id];
    begin_line(r, &r->addr_text);
    begin_line(r, &r->bytes_text);
    begin_line(r, &r->type_text);
    for (uint32_t i = 0; i < n->nin; i++) print_operand(r, n->in[i], operand_at(r, n->in[i]));
    if (s->inplace != NO_ID) r->where[s->inplace] = NOWHERE;
    for (uint32_t i = 0; i < n->nout; i++) {
        ValueId v = n->out[i];
        uint64_t at = g->p->persistent_bytes + s->out[i].offset;
        if (v != NO_ID && s->out[i].place == PLACE_NONE) v = NO_ID;
        print_operand(r, v, at);
        if (v != NO_ID && s->out[i].place == PLACE_RESIDENT) r->where[g->g->value[v].storage] = at;
    }
    uint64_t ws = g->c->node_workspace[s->id];
    print_addr(r, ws ? g->p->persistent_bytes + s->workspace : NOWHERE, ws, "DTRT_U8");
    text_char(&r->addr_text, '\n');
    text_char(&r->bytes_text, '\n');
    text_char(&r->type_text, '\n');
}

/* The trained tensor that an update changes, or -1. */
static int updated_param(const Gen *g, const Node *n) {
    if (op_class(n) != CLS_EFFECT || !n->nin || n->in[0] == NO_ID) return -1;
    return g->g->value[n->in[0]].role == ROLE_PARAM ? (int)g->tensor_of[n->in[0]] : -1;
}

static void replay_run(Replay *r, const PlanStep *s) {
    Gen *g = r->g;
    const Node *n = &g->g->node[s->id];
    if (op_node_class(n) == CLS_VIEW) return;
    uint32_t first = r->naddr;
    replay_addresses(r, s);
    begin_line(r, &r->runs);
    text_add(&r->runs, " {k%u, ", g->node_body[s->id]);
    text_quote(&r->runs, n->name);
    text_str(&r->runs, ", ");
    text_quote(&r->runs, n->onnx ? n->onnx : op_def(n->op)->name);
    text_add(&r->runs, ", %u, %u, %u, %d, %d, %u, %u},%s\n", s->id, first, r->naddr - first,
             (int)n->phase, updated_param(g, n), n->nin, n->nout,
             r->ran[s->id] ? " /* again */" : "");
    text_add(&r->steps, "    {%u, 0, 0}, /* ", r->nrun);
    text_comment(&r->steps, n->name);
    text_str(&r->steps, r->ran[s->id] ? ": again */\n" : " */\n");
    if (g->logits_node == s->id && !r->ran[s->id]) {
        g->logits_step = r->nstep;
        g->logits_offset = r->where[g->g->value[g->g->logits].storage];
    }
    r->ran[s->id] = true;
    r->nrun++;
    r->nstep++;
}

static void replay_drop(Replay *r, const PlanStep *s) {
    uint64_t at = r->where[s->id];
    assert(at != NOWHERE);
    text_add(&r->steps, "    {-1, %llu, %llu}, /* drop ", (unsigned long long)at,
             (unsigned long long)r->g->c->storage_bytes[s->id]);
    text_comment(&r->steps, r->g->g->value[r->g->g->storage[s->id].root].name);
    text_str(&r->steps, " */\n");
    r->where[s->id] = NOWHERE;
    r->nstep++;
}

static void replay_begin(Replay *r, Gen *g) {
    *r = (Replay){.g = g};
    text_init(&r->runs, g->a);
    text_init(&r->addr_text, g->a);
    text_init(&r->bytes_text, g->a);
    text_init(&r->type_text, g->a);
    text_init(&r->steps, g->a);
    r->ran = ARENA_ARRAY(g->a, bool, g->g->nnode + 1);
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
    g->logits_node = NO_ID;
    if (g->g->logits != NO_ID) {
        ValueId root = g->g->storage[g->g->value[g->g->logits].storage].root;
        g->logits_node = g->g->value[root].def;
    }
    for (uint32_t i = 0; i < g->p->nstep; i++) {
        if (g->p->step[i].kind == STEP_RUN)
            replay_run(&r, &g->p->step[i]);
        else
            replay_drop(&r, &g->p->step[i]);
    }
    g->nrun = r.nrun;
    g->naddr = r.naddr;
    g->nstep = r.nstep;
    g->loss_offset = r.where[g->g->value[g->g->loss].storage];
    text_str(t, "/* ---- the schedule of one step ---- */\n");
    print_table(t, "Operands of each run: inputs, outputs, workspace.", "uint64_t addr",
                &r.addr_text);
    print_table(t, "Their bytes.", "uint64_t addr_bytes", &r.bytes_text);
    print_table(t, "Their types.", "uint8_t addr_type", &r.type_text);
    print_table(
        t,
        "Runs: function, node, operator, number, first operand, operands, phase (0 forward, "
        "1 backward,\n * 2 update), parameter, inputs, outputs.",
        "DtrtRun runs", &r.runs);
    print_table(t, "Runs and drops in order.", "DtrtStep steps", &r.steps);
}
