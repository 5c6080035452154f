/* simrd.c - the log of one training iteration (Kirisame et al., "Dynamic Tensor Rematerialization",
 * ICLR 2021, simulator logs) -> Graph.
 *
 * One JSON object a line; the iteration begins after the line ANNOTATE START where there is one.
 * The recording program holds tensors by variables: CONSTANT, CALL and MUTATE make tensors, COPY
 * and COPY_FROM let another variable hold one, RELEASE lets go. A MUTATE is copy on write: each
 * mutated argument becomes a new tensor, called by the old tensor's name with a '$' more, of the
 * bytes of its storage. A tensor that some variable held last and that has references left is an
 * output of the graph.
 *
 * Not read: an operator that returns views beside results of its own, or views of several storages
 * (recorded programs have none). */
#include "build.h"

#include <cjson/cJSON.h>
#include <string.h>

enum {
    LINE_MAX_BYTES = 1 << 20,
    FIELDS = 16, /* of one object */
    NUMBER_MAX_DIGITS = 18
};

typedef struct {
    Trace *t;
    const char *at, *end;
    cJSON *record;     /* of the current line */
    Map *variable;     /* name -> index in holds */
    Values holds;      /* per variable: the tensor */
    VEC(int64_t) refs; /* per tensor */
    Phase phase;
} Log;

/* ---- lines and fields ---- */

static bool is_blank(const char *s, const char *end) {
    while (s < end && (*s == ' ' || *s == '\t' || *s == '\r')) s++;
    return s == end;
}

static bool parse_line(Log *l, const char *s, const char *end) {
    const char *tail;
    cJSON_Delete(l->record);
    l->record = NULL;
    if (end - s > LINE_MAX_BYTES)
        return trace_error(l->t, "the line is longer than %d bytes", LINE_MAX_BYTES);
    for (const char *p = s; p + 6 <= end; p++)
        if (*p == '\\' && !memcmp(p, "\\u0000", 6))
            return trace_error(l->t, "a name cannot hold a zero byte");
    l->record = cJSON_ParseWithLengthOpts(s, (size_t)(end - s), &tail, false);
    if (!cJSON_IsObject(l->record) || !is_blank(tail, end))
        return trace_error(l->t, "expected one JSON object");
    if (cJSON_GetArraySize(l->record) > FIELDS)
        return trace_error(l->t, "more than %d fields", FIELDS);
    return true;
}

/* The next line that holds something becomes the record; *more is false at the end. */
static bool next_record(Log *l, bool *more) {
    while (l->at < l->end) {
        const char *s = l->at, *end = memchr(s, '\n', (size_t)(l->end - s));
        if (!end) end = l->end;
        l->at = end < l->end ? end + 1 : end;
        l->t->line++;
        if (is_blank(s, end)) continue;
        *more = true;
        return parse_line(l, s, end);
    }
    *more = false;
    return true;
}

/* The last one of that name counts, as in most readers of JSON. */
static const cJSON *field(const Log *l, const char *name) {
    const cJSON *j, *found = NULL;
    cJSON_ArrayForEach(j, l->record) if (!strcmp(j->string, name)) found = j;
    return found;
}

static bool text_field(const Log *l, const char *name, const char **out) {
    const cJSON *j = field(l, name);
    if (!cJSON_IsString(j)) return trace_error(l->t, "expected \"%s\" with a text", name);
    *out = j->valuestring;
    return true;
}

static bool list_field(const Log *l, const char *name, const cJSON **out) {
    *out = field(l, name);
    return cJSON_IsArray(*out) || trace_error(l->t, "expected \"%s\" with a list", name);
}

/* A whole number, as a number or as its digits in a text. */
static bool whole(const cJSON *j, int64_t *out) {
    if (cJSON_IsNumber(j)) {
        if (!(j->valuedouble >= -1) || j->valuedouble > 0x1p53) return false;
        *out = (int64_t)j->valuedouble;
        return (double)*out == j->valuedouble;
    }
    if (!cJSON_IsString(j)) return false;
    const char *s = j->valuestring;
    bool minus = *s == '-';
    size_t n = strlen(s += minus);
    if (!n || n > NUMBER_MAX_DIGITS || strspn(s, "0123456789") != n) return false;
    *out = 0;
    for (; *s; s++) *out = *out * 10 + (*s - '0');
    if (minus) *out = -*out;
    return true;
}

static bool number_field(const Log *l, const char *name, int64_t least, int64_t *out) {
    if (whole(field(l, name), out) && *out >= least) return true;
    return trace_error(l->t, "expected \"%s\" with a whole number from %lld", name,
                       (long long)least);
}

/* The line that must follow, such as MEMORY, with its number. */
static bool follow(Log *l, const char *kind, int64_t least, int64_t *out) {
    bool more;
    const char *found;
    TRY(next_record(l, &more));
    if (!more) return trace_error(l->t, "expected %s, found the end of the file", kind);
    TRY(text_field(l, "INSTRUCTION", &found));
    if (strcmp(found, kind))
        return trace_error(l->t, "expected %s, found %s", kind, diag_name(l->t->d->arena, found));
    return number_field(l, kind, least, out);
}

/* ---- variables and tensors ---- */

static bool held_by(const Log *l, const char *variable, ValueId *out) {
    uint32_t i = map_get(l->variable, variable);
    if (i == NO_ID)
        return trace_error(l->t, "'%s' is not defined here", diag_name(l->t->d->arena, variable));
    *out = l->holds.at[i];
    return true;
}

static bool hold(Log *l, const char *variable, ValueId tensor) {
    uint32_t i = map_get(l->variable, variable);
    if (i != NO_ID) {
        l->holds.at[i] = tensor;
        return true;
    }
    if (l->holds.n >= TRACE_TENSORS)
        return trace_error(l->t, "more than %u variables", TRACE_TENSORS);
    map_put(l->variable, variable, l->holds.n);
    VEC_PUSH(l->t->a, l->holds, tensor);
    return true;
}

/* The tensor was just made: one reference. */
static bool hold_new(Log *l, const char *variable, ValueId tensor) {
    while (l->refs.n <= tensor) VEC_PUSH(l->t->a, l->refs, 0);
    l->refs.at[tensor] = 1;
    return hold(l, variable, tensor);
}

static bool read_names(Log *l, const char *name, Values *tensors) {
    const cJSON *list, *j;
    TRY(list_field(l, name, &list));
    cJSON_ArrayForEach(j, list) {
        ValueId v;
        if (!cJSON_IsString(j)) return trace_error(l->t, "expected names in \"%s\"", name);
        TRY(held_by(l, j->valuestring, &v));
        VEC_PUSH(l->t->a, *tensors, v);
    }
    return true;
}

/* ---- instructions ---- */

static bool read_constant(Log *l) {
    const char *name;
    int64_t bytes;
    ValueId v;
    TRY(text_field(l, "NAME", &name));
    name = arena_str(l->t->a, name);
    TRY(follow(l, "MEMORY", 0, &bytes));
    TRY(trace_tensor(l->t, name, (uint64_t)bytes, ROLE_CONST, &v));
    return hold_new(l, name, v);
}

typedef struct {
    const char *name;
    int64_t bytes, alias;
} Result;

/* All results are views of one storage: *of is an argument that has it; NO_ID: no views at all. */
static bool find_view(Log *l, const Result *r, uint32_t n, const Values *in, uint32_t *of) {
    const Graph *g = l->t->g;
    uint32_t views = 0;
    bool one = true;
    *of = NO_ID;
    for (uint32_t k = 0; k < n; k++) {
        if (r[k].alias < 0) continue;
        if (r[k].alias >= in->n)
            return trace_error(l->t, "ALIAS %lld: the operator has %u arguments",
                               (long long)r[k].alias, in->n);
        uint32_t i = (uint32_t)r[k].alias;
        if (views++)
            one = one && g->value[in->at[i]].storage == g->value[in->at[*of]].storage;
        else
            *of = i;
    }
    if (views && (views < n || !one))
        return trace_error(l->t, "an operator that returns views beside results of its own, or "
                                 "views of several arguments, is not supported");
    return true;
}

static bool add_results(Log *l, const char *op, int64_t ns, const Values *in, const Result *r,
                        uint32_t n) {
    NodeId id;
    uint32_t of;
    TRY(find_view(l, r, n, in, &of));
    TRY(trace_operator(l->t, op, l->phase, (uint64_t)ns, in, n, &id));
    if (of != NO_ID) trace_make_view(l->t, id, of);
    for (uint32_t k = 0; k < n; k++) {
        TRY(of != NO_ID ? trace_view(l->t, id, k, r[k].name)
                        : trace_result(l->t, id, k, r[k].name, (uint64_t)r[k].bytes));
        TRY(hold_new(l, r[k].name, l->t->g->node[id].out[k]));
    }
    return true;
}

static bool read_call(Log *l) {
    const cJSON *list, *j;
    const char *op;
    int64_t ns;
    Values in = {0};
    VEC(Result) result = {0};
    TRY(text_field(l, "NAME", &op));
    op = arena_str(l->t->a, op);
    TRY(number_field(l, "TIME", 0, &ns));
    TRY(read_names(l, "ARGS", &in));
    TRY(list_field(l, "RESULT", &list));
    cJSON_ArrayForEach(j, list) {
        if (!cJSON_IsString(j)) return trace_error(l->t, "expected names in \"RESULT\"");
        VEC_PUSH(l->t->a, result, ((Result){.name = arena_str(l->t->a, j->valuestring)}));
    }
    for (uint32_t k = 0; k < result.n; k++) {
        TRY(follow(l, "MEMORY", 0, &result.at[k].bytes));
        TRY(follow(l, "ALIAS", -1, &result.at[k].alias));
    }
    return add_results(l, op, ns, &in, result.at, result.n);
}

static bool read_mutate(Log *l) {
    const cJSON *list, *args, *j;
    const char *op;
    int64_t ns, m;
    Values in = {0};
    NodeId id;
    TRY(text_field(l, "NAME", &op));
    TRY(number_field(l, "TIME", 0, &ns));
    TRY(read_names(l, "ARGS", &in));
    TRY(list_field(l, "ARGS", &args));
    TRY(list_field(l, "MUTATE", &list));
    uint32_t n = (uint32_t)cJSON_GetArraySize(list), k = 0;
    TRY(trace_operator(l->t, op, l->phase, (uint64_t)ns, &in, n, &id));
    cJSON_ArrayForEach(j, list) {
        if (!whole(j, &m) || m < 0 || m >= in.n)
            return trace_error(l->t, "expected numbers of arguments in \"MUTATE\"");
        const Value *old = &l->t->g->value[in.at[m]];
        const char *name = arena_printf(l->t->a, "%s$", old->name);
        TRY(trace_result(l->t, id, k, name, l->t->g->storage[old->storage].bytes));
        ValueId v = l->t->g->node[id].out[k++];
        l->refs.at[in.at[m]]--;
        TRY(hold_new(l, cJSON_GetArrayItem(args, (int)m)->valuestring, v));
    }
    return true;
}

/* COPY: a new variable. COPY_FROM: a variable that lets go of what it held. */
static bool read_copy(Log *l, bool from) {
    const char *dst, *src;
    ValueId v, old;
    TRY(text_field(l, "DST", &dst));
    TRY(text_field(l, "SRC", &src));
    TRY(held_by(l, src, &v));
    if (from) {
        TRY(held_by(l, dst, &old));
        l->refs.at[old]--;
    }
    l->refs.at[v]++;
    return hold(l, dst, v);
}

static bool read_release(Log *l) {
    const char *name;
    TRY(text_field(l, "NAME", &name));
    uint32_t i = map_get(l->variable, name);
    if (i != NO_ID) l->refs.at[l->holds.at[i]]--; /* what came before START may be let go too */
    return true;
}

static bool read_annotation(Log *l, bool *start) {
    const char *what;
    TRY(text_field(l, "ANNOTATION", &what));
    *start = !strcmp(what, "START");
    if (!strcmp(what, "BACKWARD")) l->phase = PHASE_BACKWARD;
    return true;
}

static bool read_instruction(Log *l) {
    const char *kind;
    bool start;
    TRY(text_field(l, "INSTRUCTION", &kind));
    if (!strcmp(kind, "CALL")) return read_call(l);
    if (!strcmp(kind, "MUTATE")) return read_mutate(l);
    if (!strcmp(kind, "CONSTANT")) return read_constant(l);
    if (!strcmp(kind, "COPY")) return read_copy(l, false);
    if (!strcmp(kind, "COPY_FROM")) return read_copy(l, true);
    if (!strcmp(kind, "RELEASE")) return read_release(l);
    if (!strcmp(kind, "ANNOTATE")) return read_annotation(l, &start);
    return trace_error(l->t, "unknown instruction '%s'", diag_name(l->t->d->arena, kind));
}

/* ---- the whole ---- */

/* Moves behind the first ANNOTATE START; back to the top when there is none. */
static bool find_start(Log *l) {
    const char *top = l->at, *kind;
    bool more = true, start = false;
    while (!start) {
        TRY(next_record(l, &more));
        if (!more) break;
        TRY(text_field(l, "INSTRUCTION", &kind));
        if (!strcmp(kind, "ANNOTATE")) TRY(read_annotation(l, &start));
    }
    l->phase = PHASE_FORWARD;
    if (start) return true;
    l->at = top;
    l->t->line = 0;
    return true;
}

/* Once each, in the order of the tensors. */
static void fill_outputs(Log *l) {
    Graph *g = l->t->g;
    Bits is_output = bits_new(l->t->a, g->nvalue);
    for (uint32_t i = 0; i < l->holds.n; i++)
        if (l->refs.at[l->holds.at[i]] > 0) bits_set(is_output, l->holds.at[i]);
    g->output = ARENA_ARRAY(l->t->a, ValueId, g->nvalue);
    for (ValueId v = 0; v < g->nvalue; v++)
        if (bits_get(is_output, v)) g->output[g->noutput++] = v;
}

/* A view that takes no time runs when it is read (plan_run_views). One that nobody reads is given
 * the smallest time, so that plans run it at all. */
static void time_idle_views(Log *l) {
    Graph *g = l->t->g;
    Bits wanted = bits_new(l->t->a, g->nvalue);
    for (uint32_t i = 0; i < g->noutput; i++) bits_set(wanted, g->output[i]);
    for (NodeId n = g->nnode; n-- > 0;) {
        const Node *x = &g->node[n];
        bool idle = x->op == OP_OpaqueView && !ir_get_i(x, A_cost_ns, 0);
        for (uint32_t k = 0; k < x->nout && idle; k++) idle = !bits_get(wanted, x->out[k]);
        if (idle) ir_attr_i(g, n, A_cost_ns, 1);
        for (uint32_t k = 0; k < x->nin; k++) bits_set(wanted, x->in[k]);
    }
}

static bool read_log(Log *l) {
    bool more = true;
    TRY(find_start(l));
    for (;;) {
        TRY(next_record(l, &more));
        if (!more) break;
        TRY(read_instruction(l));
    }
    fill_outputs(l);
    time_idle_views(l);
    return true;
}

bool trace_simrd(Trace *t, const char *text, size_t n) {
    Log l = {.t = t, .at = text, .end = text + n, .variable = map_new(t->a)};
    bool ok = read_log(&l);
    cJSON_Delete(l.record);
    return ok;
}
