/* names.c - who defines and who reads each tensor name, and the order of nodes. ONNX asks writers
 * to sort nodes, but many do not, so they are sorted here: Kahn's algorithm with the lowest file
 * position first, which leaves a sorted file as it is. A cycle is reported by the names of its
 * nodes. Nodes that no model output depends on are left out. */
#include "inline.h"

#include <stdlib.h>
#include <string.h>

uint32_t slot_of(Import *x, const char *name) {
    return map_get(x->names, name);
}

uint32_t slot_new(Import *x, const char *name) {
    Slot s = {.name = name, .node = NO_ID, .init = NO_ID, .input = NO_ID, .value = NO_ID};
    VEC_PUSH(x->tmp, x->slot, s);
    map_put(x->names, name, x->slot.n - 1);
    return x->slot.n - 1;
}

void import_note(Import *x, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *note = arena_vprintf(x->a, fmt, ap);
    va_end(ap);
    VEC_PUSH(x->a, x->notes, note);
}

static uint32_t slot_for(Import *x, const char *name) {
    uint32_t s = slot_of(x, name);
    return s == NO_ID ? slot_new(x, name) : s;
}

static bool define_initializers(Import *x) {
    for (size_t i = 0; i < x->graph->n_initializer; i++) {
        const TensorProto *t = x->graph->initializer[i];
        Place p = {.file = x->file, .tensor = t->name};
        if (!t->name || !*t->name) return diag_error(x->d, p, "initializer %zu has no name", i);
        if (slot_of(x, t->name) != NO_ID)
            return diag_error(x->d, p, "two initializers of one name");
        uint32_t s = slot_new(x, t->name);
        x->slot.at[s].init = x->init.n;
        Init init = {.proto = t, .slot = s};
        VEC_PUSH(x->tmp, x->init, init);
    }
    return true;
}

/* Inputs that are initializers too (always so before IR version 4) are no inputs to us. */
static bool define_inputs(Import *x) {
    for (size_t i = 0; i < x->graph->n_input; i++) {
        const ValueInfoProto *v = x->graph->input[i];
        Place p = {.file = x->file, .tensor = v->name};
        if (!v->name || !*v->name) return diag_error(x->d, p, "model input %zu has no name", i);
        uint32_t s = slot_for(x, v->name);
        if (x->slot.at[s].input != NO_ID)
            return diag_error(x->d, p, "two model inputs of one name");
        if (x->slot.at[s].init == NO_ID) x->slot.at[s].input = (uint32_t)i;
    }
    return true;
}

static Place node_place(const Import *x, uint32_t n, const char *tensor) {
    return (Place){x->file, x->node[n].name, x->node[n].p->op_type, tensor};
}

static bool define_outputs(Import *x, uint32_t n) {
    FileNode *f = &x->node[n];
    for (uint32_t k = 0; k < f->nout; k++) {
        const char *name = f->p->output[k];
        f->out[k] = NO_ID;
        if (!*name) continue;
        uint32_t s = slot_for(x, name);
        Slot *slot = &x->slot.at[s];
        if (slot->node != NO_ID)
            return diag_error(x->d, node_place(x, n, name),
                              "a second definition; node '%s' has the first",
                              diag_name(x->d->arena, x->node[slot->node].name));
        if (slot->init != NO_ID || slot->input != NO_ID)
            return diag_error(x->d, node_place(x, n, name), "this name is that of %s",
                              slot->init != NO_ID ? "an initializer" : "a model input");
        slot->node = n;
        f->out[k] = s;
    }
    return true;
}

static bool find_inputs(Import *x, uint32_t n) {
    FileNode *f = &x->node[n];
    NameList more = {0};
    captured_names(x, f->p, &more);
    f->ncap = more.n;
    f->in = ARENA_ARRAY(x->tmp, uint32_t, f->nin + f->ncap);
    for (uint32_t i = 0; i < f->nin + f->ncap; i++) {
        const char *name = i < f->nin ? f->p->input[i] : more.at[i - f->nin];
        f->in[i] = *name ? slot_of(x, name) : NO_ID;
        if (*name && f->in[i] == NO_ID && i < f->nin)
            return diag_error(x->d, node_place(x, n, name),
                              "input %u is not defined by a node, an initializer or a model input",
                              i);
        if (*name && f->in[i] == NO_ID)
            return diag_error(x->d, node_place(x, n, name),
                              "this name, read by its sub-graph, is not defined by a node, an "
                              "initializer or a model input");
    }
    return true;
}

static bool fill_nodes(Import *x) {
    NodeList list = {0};
    for (size_t i = 0; i < x->graph->n_node; i++)
        TRY(expand_node(x, NULL, NULL, x->graph->node[i], &list));
    x->nnode = list.n;
    x->node = ARENA_ARRAY(x->tmp, FileNode, x->nnode);
    for (uint32_t n = 0; n < x->nnode; n++) {
        FileNode *f = &x->node[n];
        f->p = list.at[n];
        bool named = f->p->name && *f->p->name;
        f->name = named ? f->p->name : arena_printf(x->tmp, "#%u", n);
        f->nin = (uint32_t)f->p->n_input;
        f->nout = (uint32_t)f->p->n_output;
        f->out = ARENA_ARRAY(x->tmp, uint32_t, f->nout);
    }
    for (uint32_t n = 0; n < x->nnode; n++) TRY(define_outputs(x, n));
    for (uint32_t n = 0; n < x->nnode; n++) TRY(find_inputs(x, n));
    return true;
}

/* ---- order ---- */

/* The node that makes input i of node n, or NO_ID. */
static uint32_t maker(const Import *x, uint32_t n, uint32_t i) {
    uint32_t s = x->node[n].in[i];
    return s == NO_ID ? NO_ID : x->slot.at[s].node;
}

typedef struct {
    uint32_t *at, n; /* a binary heap, smallest first */
} Heap;

static void heap_push(Heap *h, uint32_t v) {
    uint32_t i = h->n++;
    for (; i && h->at[(i - 1) / 2] > v; i = (i - 1) / 2) h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = v;
}

static uint32_t heap_pop(Heap *h) {
    uint32_t top = h->at[0], v = h->at[--h->n], i = 0;
    for (uint32_t c; (c = 2 * i + 1) < h->n; i = c) {
        if (c + 1 < h->n && h->at[c + 1] < h->at[c]) c++;
        if (h->at[c] >= v) break;
        h->at[i] = h->at[c];
    }
    h->at[i] = v;
    return top;
}

/* Every node that still waits has a maker that waits, so walking back must meet a node again. */
static bool report_cycle(Import *x, const uint32_t *wait) {
    uint32_t n = 0, shown = 0;
    while (!wait[n]) n++;
    bool *seen = ARENA_ARRAY(x->tmp, bool, x->nnode);
    uint32_t start = n;
    for (;; n = start) {
        if (seen[n]) break;
        seen[n] = true;
        for (uint32_t i = 0; i < x->node[n].nin + x->node[n].ncap; i++) {
            uint32_t m = maker(x, n, i);
            if (m != NO_ID && wait[m]) start = m;
        }
    }
    Text t;
    text_init(&t, x->tmp);
    text_str(&t, "");
    do {
        if (shown < 8)
            text_add(&t, "%s'%s'", shown ? " <- " : "", diag_name(x->tmp, x->node[n].name));
        if (++shown == 9) text_str(&t, " <- ...");
        for (uint32_t i = 0, from = n; i < x->node[from].nin + x->node[from].ncap; i++) {
            uint32_t m = maker(x, from, i);
            if (m != NO_ID && wait[m]) n = m;
        }
    } while (n != start);
    return diag_error(x->d, (Place){.file = x->file}, "the graph has a cycle: %s", t.at);
}

static bool sort_nodes(Import *x) {
    uint32_t n = x->nnode;
    uint32_t *wait = ARENA_ARRAY(x->tmp, uint32_t, n);
    uint32_t *first = ARENA_ARRAY(x->tmp, uint32_t, (uint64_t)n + 1);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < x->node[i].nin + x->node[i].ncap; k++)
            if (maker(x, i, k) != NO_ID) wait[i]++, first[maker(x, i, k) + 1]++;
    for (uint32_t i = 0; i < n; i++) first[i + 1] += first[i];
    uint32_t *user = ARENA_ARRAY(x->tmp, uint32_t, first[n]);
    uint32_t *fill = ARENA_ARRAY(x->tmp, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < x->node[i].nin + x->node[i].ncap; k++) {
            uint32_t m = maker(x, i, k);
            if (m != NO_ID) user[first[m] + fill[m]++] = i;
        }
    Heap ready = {ARENA_ARRAY(x->tmp, uint32_t, n), 0};
    x->order = ARENA_ARRAY(x->tmp, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        if (!wait[i]) heap_push(&ready, i);
    uint32_t done = 0;
    while (ready.n) {
        uint32_t i = heap_pop(&ready);
        x->order[done++] = i;
        for (uint32_t k = first[i]; k < first[i + 1]; k++)
            if (--wait[user[k]] == 0) heap_push(&ready, user[k]);
    }
    return done == n || report_cycle(x, wait);
}

/* ---- outputs ---- */

static bool mark_outputs(Import *x) {
    if (!x->graph->n_output)
        return diag_error(x->d, (Place){.file = x->file}, "the graph has no output");
    for (size_t i = 0; i < x->graph->n_output; i++) {
        const char *name = x->graph->output[i]->name;
        uint32_t s = name && *name ? slot_of(x, name) : NO_ID;
        Place p = {.file = x->file, .tensor = name};
        if (s == NO_ID) return diag_error(x->d, p, "this model output is not defined");
        if (x->slot.at[s].is_output) return diag_error(x->d, p, "two model outputs of one name");
        x->slot.at[s].is_output = true;
    }
    return true;
}

static void mark_live(Import *x) {
    for (uint32_t k = x->nnode; k--;) {
        FileNode *f = &x->node[x->order[k]];
        for (uint32_t i = 0; i < f->nout; i++) {
            const Slot *s = f->out[i] == NO_ID ? NULL : &x->slot.at[f->out[i]];
            if (s && (s->is_output || s->nread)) f->live = true;
        }
        for (uint32_t i = 0; f->live && i < f->nin + f->ncap; i++)
            if (f->in[i] != NO_ID) x->slot.at[f->in[i]].nread++;
    }
    for (uint32_t s = 0; s < x->slot.n; s++)
        x->slot.at[s].uses = x->slot.at[s].nread + x->slot.at[s].is_output;
}

bool names_resolve(Import *x) {
    x->names = map_new(x->tmp);
    TRY(define_initializers(x));
    TRY(define_inputs(x));
    TRY(fill_nodes(x));
    TRY(sort_nodes(x));
    TRY(mark_outputs(x));
    mark_live(x);
    return true;
}
