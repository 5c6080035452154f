/* checkmate.c - a graph of the Checkmate paper (Jain et al., "Checkmate: Breaking the Memory Wall
 * with Optimal Tensor Rematerialization", MLSys 2020) as node-link JSON -> Graph.
 *
 *   {"graph": {"order": [..]}, "nodes": [{"id": 0, "name": "conv", "cost_cpu": 110,
 *    "cost_ram": 4096}, ..], "links": [{"source": 0, "target": 1}, ..]}
 *
 * Also the names that random graphs use: node "name" as id, "duration", "out_cost", "edges" with
 * "0" and "1". Node ids are numbers or texts. The order is graph.order, or that of the ids; it must
 * hold every node once, and edges must go forward in it. Nothing has to be there at the end. */
#include "build.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool is_text;
    int64_t number;
    const char *text; /* also of a number: its digits */
} Key;

typedef struct {
    Key id;
    const cJSON *json;
    uint32_t place; /* in the order; NO_ID: none yet */
    Values preds;   /* node numbers of this file */
} FileNode;

typedef struct {
    Trace *t;
    uint32_t n;
    FileNode *node;
    Map *by_id;      /* text of the id -> node */
    uint32_t *order; /* nodes as they run */
} Reader;

/* ---- fields ---- */

static const cJSON *field(const cJSON *object, const char *name) {
    const cJSON *j, *found = NULL;
    if (!cJSON_IsObject(object)) return NULL;
    cJSON_ArrayForEach(j, object) if (!strcmp(j->string, name)) found = j;
    return found;
}

static const cJSON *either(const cJSON *object, const char *name, const char *other) {
    const cJSON *j = field(object, name);
    return j ? j : field(object, other);
}

static bool whole(const cJSON *j, int64_t least, int64_t *out) {
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= (double)least) || j->valuedouble > 0x1p53)
        return false;
    *out = (int64_t)j->valuedouble;
    return (double)*out == j->valuedouble;
}

static bool get_key(Trace *t, const cJSON *j, Key *out) {
    *out = (Key){.is_text = cJSON_IsString(j)};
    if (out->is_text) {
        out->text = arena_str(t->a, j->valuestring);
        return true;
    }
    if (!whole(j, -((int64_t)1 << 53), &out->number)) return false;
    out->text = arena_printf(t->a, "%lld", (long long)out->number);
    return true;
}

static const char *shown(const Reader *r, uint32_t i) {
    return diag_name(r->t->d->arena, r->node[i].id.text);
}

/* ---- nodes ---- */

static bool read_nodes(Reader *r, const cJSON *list) {
    const cJSON *j;
    if (!cJSON_IsArray(list)) return trace_error(r->t, "expected \"nodes\" with a list");
    uint32_t n = (uint32_t)cJSON_GetArraySize(list);
    if (n > TRACE_TENSORS) return trace_error(r->t, "more than %u nodes", TRACE_TENSORS);
    r->node = ARENA_ARRAY(r->t->a, FileNode, n);
    cJSON_ArrayForEach(j, list) {
        FileNode *x = &r->node[r->n];
        *x = (FileNode){.json = j, .place = NO_ID};
        if (!get_key(r->t, either(j, "id", "name"), &x->id))
            return trace_error(r->t, "entry %u of \"nodes\": expected an \"id\" or a \"name\"",
                               r->n);
        if (x->id.is_text != r->node[0].id.is_text)
            return trace_error(r->t, "node '%s': some ids are numbers and some are texts",
                               shown(r, r->n));
        if (map_get(r->by_id, x->id.text) != NO_ID)
            return trace_error(r->t, "a second node '%s'", shown(r, r->n));
        map_put(r->by_id, x->id.text, r->n++);
    }
    return true;
}

static bool find_node(const Reader *r, const cJSON *j, uint32_t *out) {
    Key key;
    if (!get_key(r->t, j, &key) || (r->n && key.is_text != r->node[0].id.is_text)) return false;
    *out = map_get(r->by_id, key.text);
    return *out != NO_ID;
}

/* ---- the order ---- */

static int node_cmp(const void *x, const void *y) {
    const FileNode *a = *(FileNode *const *)x, *b = *(FileNode *const *)y;
    if (a->id.is_text) return strcmp(a->id.text, b->id.text);
    return a->id.number < b->id.number ? -1 : a->id.number > b->id.number;
}

static void order_by_id(Reader *r) {
    FileNode **sorted = ARENA_ARRAY(r->t->a, FileNode *, r->n);
    for (uint32_t i = 0; i < r->n; i++) sorted[i] = &r->node[i];
    if (r->n) qsort(sorted, r->n, sizeof *sorted, node_cmp);
    for (uint32_t k = 0; k < r->n; k++) {
        r->order[k] = (uint32_t)(sorted[k] - r->node);
        sorted[k]->place = k;
    }
}

static bool order_by_list(Reader *r, const cJSON *list) {
    const cJSON *j;
    uint32_t k = 0, i;
    cJSON_ArrayForEach(j, list) {
        if (!find_node(r, j, &i))
            return trace_error(r->t, "entry %u of \"order\" is not a node", k);
        if (r->node[i].place != NO_ID)
            return trace_error(r->t, "node '%s' stands in \"order\" twice", shown(r, i));
        r->order[k] = i;
        r->node[i].place = k++;
    }
    for (i = 0; i < r->n; i++)
        if (r->node[i].place == NO_ID)
            return trace_error(r->t, "node '%s' is missing in \"order\"", shown(r, i));
    return true;
}

/* ---- edges and the graph ---- */

static bool read_edges(Reader *r, const cJSON *list) {
    const cJSON *j;
    uint32_t k = 0, from, to;
    if (!cJSON_IsArray(list)) return trace_error(r->t, "expected \"links\" with a list");
    if ((uint32_t)cJSON_GetArraySize(list) > TRACE_OPERANDS)
        return trace_error(r->t, "more than %u edges", TRACE_OPERANDS);
    cJSON_ArrayForEach(j, list) {
        if (!find_node(r, either(j, "source", "0"), &from) ||
            !find_node(r, either(j, "target", "1"), &to))
            return trace_error(r->t, "entry %u of \"links\": expected two nodes", k);
        if (r->node[from].place >= r->node[to].place)
            return trace_error(r->t, "node '%s' needs '%s', which does not run before it",
                               shown(r, to), shown(r, from));
        VEC_PUSH(r->t->a, r->node[to].preds, from);
        k++;
    }
    return true;
}

static bool add_operator(Reader *r, uint32_t i, ValueId *made) {
    FileNode *x = &r->node[i];
    int64_t ns, bytes;
    NodeId id;
    if (!whole(either(x->json, "cost_cpu", "duration"), 0, &ns))
        return trace_error(r->t, "node '%s': expected \"cost_cpu\" with a whole number from 0",
                           shown(r, i));
    if (!whole(either(x->json, "cost_ram", "out_cost"), 0, &bytes))
        return trace_error(r->t, "node '%s': expected \"cost_ram\" with a whole number from 0",
                           shown(r, i));
    const cJSON *name = field(x->json, "name");
    Values in = {0};
    for (uint32_t k = 0; k < x->preds.n; k++) VEC_PUSH(r->t->a, in, made[x->preds.at[k]]);
    const char *shown_name =
        cJSON_IsString(name) && *name->valuestring ? name->valuestring : x->id.text;
    TRY(trace_operator(r->t, shown_name, PHASE_FORWARD, (uint64_t)ns, &in, 1, &id));
    TRY(trace_result(r->t, id, 0, x->id.text, (uint64_t)bytes));
    made[i] = r->t->g->node[id].out[0];
    return true;
}

static bool read_graph(Trace *t, const cJSON *root) {
    Reader r = {.t = t, .by_id = map_new(t->a)};
    if (!cJSON_IsObject(root)) return trace_error(t, "expected a node-link graph: a JSON object");
    TRY(read_nodes(&r, field(root, "nodes")));
    r.order = ARENA_ARRAY(t->a, uint32_t, r.n);
    const cJSON *order = field(field(root, "graph"), "order");
    if (cJSON_IsArray(order) && cJSON_GetArraySize(order))
        TRY(order_by_list(&r, order));
    else
        order_by_id(&r);
    TRY(read_edges(&r, either(root, "links", "edges")));
    ValueId *made = ARENA_ARRAY(t->a, ValueId, r.n);
    for (uint32_t k = 0; k < r.n; k++) TRY(add_operator(&r, r.order[k], made));
    return true;
}

/* The line where the text stopped being JSON. */
static uint32_t line_of(const char *text, const char *at) {
    uint32_t line = 1;
    for (const char *s = text; s < at; s++) line += *s == '\n';
    return line;
}

bool trace_checkmate(Trace *t, const char *text, size_t n) {
    const char *end = NULL;
    if (strstr(text, "\\u0000")) return trace_error(t, "a name cannot hold a zero byte");
    cJSON *root = cJSON_ParseWithLengthOpts(text, n, &end, false);
    bool ok = false;
    while (root && end < text + n && strchr(" \t\r\n", *end)) end++;
    if (!root || end < text + n) {
        t->line = end ? line_of(text, end) : 1;
        trace_report(t, "not JSON: expected a node-link graph");
    } else {
        ok = read_graph(t, root);
    }
    cJSON_Delete(root);
    return ok;
}
