/* json.c - plans as text: the JSON of the planning benchmark with a header, back again, and one
 * line a step.
 *
 *   {"format": "dtrc-plan", "version": 1, HEADER, "budget_bytes": B, ..., "arena_bytes": A,
 *    "steps": [["run", "17", {"x": 4096}, {"inplace": "y", "workspace": 0}], ["drop", "x"], ...]}
 *
 * A node goes by its number, a storage by the name of its root value when no other storage has that
 * name, else by "sN"; where any goes by number, so do those whose own name looks like one. The
 * third entry of a run gives the offset of each output, also of one that is written beside its
 * resident self (PLACE_SCRATCH); an output that nobody wants is placed and dropped in the next
 * step. The fourth is there when it has something to say.
 *
 * Parsing is the one door to cJSON. Plans come from anywhere: sizes, numbers and names are checked
 * here, what they mean is plan_verify's business. */
#include "strategy.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static bool looks_numbered(const char *s) {
    if (*s++ != 's' || !*s) return false;
    while (*s >= '0' && *s <= '9') s++;
    return !*s;
}

/* JSON holds text only: other bytes would not come back as they were. */
static bool is_text(const char *s) {
    uint32_t code;
    for (size_t n; *s; s += n)
        if (!(n = utf8_length(s, &code))) return false;
    return true;
}

static const char **storage_names(Arena *a, const Graph *g) {
    const char **name = ARENA_ARRAY(a, const char *, g->nstorage);
    Map *count = map_new(a);
    bool numbers = false; /* some have to go by number */
    for (StorageId s = 0; s < g->nstorage; s++) {
        name[s] = g->storage[s].root == NO_ID ? "" : g->value[g->storage[s].root].name;
        uint32_t seen = map_get(count, name[s]);
        map_put(count, name[s], seen == NO_ID ? 1 : seen + 1);
        numbers |= seen != NO_ID || !*name[s] || !is_text(name[s]);
    }
    for (StorageId s = 0; s < g->nstorage && numbers; s++) {
        bool own = *name[s] && map_get(count, name[s]) == 1 && is_text(name[s]);
        if (!own || looks_numbered(name[s])) name[s] = arena_printf(a, "s%u", s);
    }
    return name;
}

/* ---- out ---- */

static StorageId out_storage(const Graph *g, const PlanStep *st, uint32_t k) {
    return g->value[g->node[st->id].out[k]].storage;
}

static void print_run(Text *t, const Graph *g, const Cost *c, const Plan *p, const PlanStep *st,
                      const char **name) {
    text_add(t, "[\"run\", \"%u\"", st->id);
    bool workspace = p->placed && c->node_workspace[st->id];
    bool more = st->inplace != NO_ID || workspace;
    if (p->placed || more) {
        text_str(t, ", {");
        bool first = true;
        for (uint32_t k = 0; k < g->node[st->id].nout && p->placed; k++) {
            if (st->out[k].place == PLACE_NONE) continue;
            text_str(t, first ? "" : ", ");
            text_json(t, name[out_storage(g, st, k)]);
            text_add(t, ": %llu", (unsigned long long)st->out[k].offset);
            first = false;
        }
        text_char(t, '}');
    }
    if (more) {
        text_str(t, ", {");
        if (st->inplace != NO_ID) {
            text_str(t, "\"inplace\": ");
            text_json(t, name[st->inplace]);
        }
        if (workspace)
            text_add(t, "%s\"workspace\": %llu", st->inplace != NO_ID ? ", " : "",
                     (unsigned long long)st->workspace);
        text_char(t, '}');
    }
    text_char(t, ']');
}

void plan_print_json(Text *out, const Graph *g, const Cost *c, const Plan *p, const char *header) {
    Arena *a = arena_new();
    const char **name = storage_names(a, g);
    bool *there = ARENA_ARRAY(a, bool, g->nstorage);
    text_str(out, "{\"format\": \"dtrc-plan\", \"version\": 1");
    if (header && *header) text_add(out, ", %s", header);
    text_add(out, ",\n \"planner\": \"%s\", \"budget_bytes\": %llu, \"persistent_bytes\": %llu",
             p->planner, (unsigned long long)p->budget, (unsigned long long)p->persistent_bytes);
    text_add(out, ", \"byte_peak\": %llu, \"cost_ns\": %llu, \"base_cost_ns\": %llu",
             (unsigned long long)p->byte_peak, (unsigned long long)p->cost_ns,
             (unsigned long long)p->base_ns);
    text_add(out, ", \"recomputed_runs\": %u, \"evictions\": %u", p->recomputed_runs, p->evictions);
    if (p->placed) text_add(out, ", \"arena_bytes\": %llu", (unsigned long long)p->arena_bytes);
    text_str(out, ",\n \"steps\": [");
    for (uint32_t i = 0; i < p->nstep; i++) {
        const PlanStep *st = &p->step[i];
        text_str(out, i ? ",\n  " : "\n  ");
        if (st->kind == STEP_DROP) {
            text_str(out, "[\"drop\", ");
            text_json(out, name[st->id]);
            text_char(out, ']');
            there[st->id] = false;
            continue;
        }
        print_run(out, g, c, p, st, name);
        if (st->inplace != NO_ID) there[st->inplace] = false;
        for (uint32_t k = 0; k < g->node[st->id].nout; k++) {
            if (st->out[k].place == PLACE_NONE) continue;
            StorageId s = out_storage(g, st, k);
            if (st->out[k].place == PLACE_RESIDENT) there[s] = true;
            if (st->out[k].place != PLACE_SCRATCH || there[s]) continue;
            text_str(out, ",\n  [\"drop\", "); /* written, not wanted */
            text_json(out, name[s]);
            text_char(out, ']');
        }
    }
    text_str(out, "]}\n");
    arena_free(a);
}

void plan_print_list(Text *out, const Graph *g, const Plan *p) {
    Arena *a = arena_new();
    const char **name = storage_names(a, g);
    Bits ran = bits_new(a, g->nnode);
    for (uint32_t i = 0; i < p->nstep; i++) {
        const PlanStep *st = &p->step[i];
        if (st->kind == STEP_DROP) {
            text_add(out, "%6u drop %s\n", i, diag_name(a, name[st->id]));
            continue;
        }
        const Node *n = &g->node[st->id];
        text_add(out, "%6u %s %u %s %s", i, bits_get(ran, st->id) ? "again" : "run", st->id,
                 op_def(n->op)->name, diag_name(a, n->name));
        bits_set(ran, st->id);
        for (uint32_t k = 0; k < n->nout; k++) {
            if (st->out[k].place == PLACE_NONE) continue;
            text_add(out, " %s", diag_name(a, name[out_storage(g, st, k)]));
            if (p->placed) text_add(out, "@%llu", (unsigned long long)st->out[k].offset);
            if (st->out[k].place == PLACE_SCRATCH) text_str(out, " (scratch)");
        }
        if (st->inplace != NO_ID) text_add(out, " in place of %s", diag_name(a, name[st->inplace]));
        text_char(out, '\n');
    }
    arena_free(a);
}

/* ---- in ---- */

typedef struct {
    Arena *a;
    Diag *d;
    const char *file;
    const Graph *g;
    const Cost *c;
    Map *storage;
    bool *there;
    Plan *p;
    uint32_t index; /* of the step in the file */
} Reader;

static bool bad(Reader *r, const char *what) {
    return diag_error(r->d, (Place){.file = r->file}, "step %u: %s", r->index, what);
}

/* A byte count: an integer from 0 to 2^53. */
static bool get_bytes(const cJSON *j, uint64_t *out) {
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= 0) || j->valuedouble > 9007199254740992.0)
        return false;
    *out = (uint64_t)j->valuedouble;
    return (double)*out == j->valuedouble;
}

static StorageId get_storage(const Reader *r, const cJSON *j) {
    return cJSON_IsString(j) ? map_get(r->storage, j->valuestring) : NO_ID;
}

static bool get_node(const Reader *r, const cJSON *j, NodeId *out) {
    if (!cJSON_IsString(j) || !*j->valuestring || strlen(j->valuestring) > 9) return false;
    char *end;
    unsigned long n = strtoul(j->valuestring, &end, 10);
    if (*end || j->valuestring[0] < '0' || j->valuestring[0] > '9' || n >= r->g->nnode)
        return false;
    *out = (NodeId)n;
    return true;
}

static bool read_offset(Reader *r, PlanStep *st, const cJSON *j) {
    StorageId s = map_get(r->storage, j->string);
    for (uint32_t k = 0; k < r->g->node[st->id].nout && s != NO_ID; k++) {
        if (st->out[k].place == PLACE_NONE || out_storage(r->g, st, k) != s) continue;
        return get_bytes(j, &st->out[k].offset) || bad(r, "expected an offset in bytes");
    }
    return bad(r, "an offset is given for something that this node does not make");
}

static bool read_extras(Reader *r, PlanStep *st, const cJSON *extra) {
    const cJSON *j;
    if (!cJSON_IsObject(extra)) return bad(r, "the fourth entry of a run is not an object");
    cJSON_ArrayForEach(j, extra) {
        if (!strcmp(j->string, "inplace")) {
            st->inplace = get_storage(r, j);
            if (st->inplace == NO_ID) return bad(r, "\"inplace\" names no storage");
        } else if (!strcmp(j->string, "workspace")) {
            if (!get_bytes(j, &st->workspace))
                return bad(r, "expected an offset in bytes for \"workspace\"");
        } else {
            return bad(r, "unknown entry in a run; known are \"inplace\" and \"workspace\"");
        }
    }
    return true;
}

static bool read_run(Reader *r, const cJSON *step, PlanStep *st) {
    const cJSON *where = cJSON_GetArrayItem(step, 2), *extra = cJSON_GetArrayItem(step, 3), *j;
    if (!get_node(r, cJSON_GetArrayItem(step, 1), &st->id))
        return bad(r, "\"run\" takes the number of a node");
    const Node *n = &r->g->node[st->id];
    st->out = ARENA_ARRAY(r->a, PlanOut, n->nout);
    for (uint32_t k = 0; k < n->nout; k++) {
        if (n->out[k] == NO_ID || op_node_class(n) == CLS_VIEW) continue;
        StorageId s = r->g->value[n->out[k]].storage;
        if (!r->g->storage[s].persistent)
            st->out[k].place = r->there[s] ? PLACE_SCRATCH : PLACE_RESIDENT;
    }
    if (where && !cJSON_IsObject(where)) return bad(r, "the third entry of a run is not an object");
    if (where) cJSON_ArrayForEach(j, where) TRY(read_offset(r, st, j));
    if (extra) TRY(read_extras(r, st, extra));
    if (st->inplace != NO_ID) r->there[st->inplace] = false;
    for (uint32_t k = 0; k < n->nout; k++)
        if (st->out[k].place == PLACE_RESIDENT) r->there[out_storage(r->g, st, k)] = true;
    return true;
}

static bool read_step(Reader *r, const cJSON *step, PlanStep *st) {
    const cJSON *kind = cJSON_GetArrayItem(step, 0);
    *st = (PlanStep){.inplace = NO_ID};
    if (!cJSON_IsArray(step) || !cJSON_IsString(kind))
        return bad(r, "expected [\"run\", ...] or [\"drop\", ...]");
    if (!strcmp(kind->valuestring, "run")) return read_run(r, step, st);
    if (strcmp(kind->valuestring, "drop")) return bad(r, "expected \"run\" or \"drop\"");
    st->kind = STEP_DROP;
    st->id = get_storage(r, cJSON_GetArrayItem(step, 1));
    if (st->id == NO_ID || !r->there[st->id])
        return bad(r, "\"drop\" takes a storage that is there");
    r->there[st->id] = false;
    return true;
}

static bool read_plan(Reader *r, const cJSON *root) {
    Place at = {.file = r->file};
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format"),
                *version = cJSON_GetObjectItemCaseSensitive(root, "version"),
                *steps = cJSON_GetObjectItemCaseSensitive(root, "steps"),
                *arena = cJSON_GetObjectItemCaseSensitive(root, "arena_bytes"),
                *planner = cJSON_GetObjectItemCaseSensitive(root, "planner"), *j;
    if (!cJSON_IsString(format) || strcmp(format->valuestring, "dtrc-plan") ||
        !cJSON_IsNumber(version) || version->valuedouble != 1)
        return diag_error(r->d, at, "expected \"format\": \"dtrc-plan\" and \"version\": 1");
    if (!get_bytes(cJSON_GetObjectItemCaseSensitive(root, "budget_bytes"), &r->p->budget))
        return diag_error(r->d, at, "expected \"budget_bytes\" with a number of bytes");
    r->p->placed = arena != NULL;
    if (arena && !get_bytes(arena, &r->p->arena_bytes))
        return diag_error(r->d, at, "expected \"arena_bytes\" with a number of bytes");
    if (!cJSON_IsArray(steps)) return diag_error(r->d, at, "expected \"steps\" with a list");
    r->p->planner = cJSON_IsString(planner) ? arena_str(r->a, planner->valuestring) : "file";
    r->p->step = ARENA_ARRAY(r->a, PlanStep, (uint64_t)cJSON_GetArraySize(steps));
    cJSON_ArrayForEach(j, steps) {
        TRY(read_step(r, j, &r->p->step[r->p->nstep]));
        r->p->nstep++;
        r->index++;
    }
    return true;
}

/* What the header says of its steps, where it does: plan_verify objects when that is not so. Times
 * are those of whoever reads the file. */
static bool read_totals(Reader *r, const cJSON *root) {
    uint64_t again = r->p->recomputed_runs;
    const struct {
        const char *name;
        uint64_t *to;
    } totals[] = {{"persistent_bytes", &r->p->persistent_bytes},
                  {"byte_peak", &r->p->byte_peak},
                  {"recomputed_runs", &again}};
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        const cJSON *j = cJSON_GetObjectItemCaseSensitive(root, totals[i].name);
        if (j && !get_bytes(j, totals[i].to))
            return diag_error(r->d, (Place){.file = r->file}, "expected \"%s\" with a number",
                              totals[i].name);
    }
    r->p->recomputed_runs = again > UINT32_MAX ? UINT32_MAX : (uint32_t)again;
    return true;
}

Plan *plan_parse_json(Arena *a, Diag *d, const char *file, const char *text, size_t n,
                      const Graph *g, const Cost *c) {
    Arena *t = arena_new();
    Reader r = {a, d, file, g, c, map_new(t), ARENA_ARRAY(t, bool, g->nstorage), ARENA_NEW(a, Plan),
                0};
    const char **name = storage_names(t, g);
    for (StorageId s = 0; s < g->nstorage; s++)
        if (!g->storage[s].persistent) map_put(r.storage, name[s], s);
    cJSON *root = cJSON_ParseWithLength(text, n);
    bool ok = root ? read_plan(&r, root)
                   : diag_error(d, (Place){.file = file}, "not JSON: expected a plan file");
    if (ok) {
        plan_fill_totals(g, c, r.p);
        if (!r.p->placed) r.p->arena_bytes = r.p->byte_peak;
        ok = read_totals(&r, root);
    }
    cJSON_Delete(root);
    arena_free(t);
    return ok ? r.p : NULL;
}
