/* cut.c - the single-point minimum cut: cheapest runs to repeat after a point of a schedule, given
 * what may be kept there.
 *
 * Network. Beside the source: needed, dropped, runs again. Per run r before x a node R_r with an
 * arc to the sink of ns_r. Per storage s with maker r a node A_s (needed): arc A_s -> R_r of price
 * * bytes, cut when s is needed and r does not run again, that is, when s is kept. For every
 * operand s of r an infinite arc R_r -> A_s. Storages needed for sure have the source in the place
 * of A_s, those with a single reader its R node. What cannot be made again has an arc A_s -> sink.
 * A run with several outputs is one node, so it counts once.
 *
 * Views with a cost. A dropped storage loses its views: those that are needed for sure run again,
 * and if none is, those through which all uses of the storage go. Their cost v_s is added to that
 * of the maker; if the maker has several outputs, a node D_s stands between A_s and R_r (dropped),
 * with an arc to the sink of v_s. Other views of dropped storages are not charged.
 *
 * Price. The dual is concave and piecewise linear; its slope is bytes(P) less the room. The next
 * price is where the lines through the two ends of the bracket meet. Cuts begin with the flow of
 * the lower end, since capacities only grow. Times and prices are scaled to integers and rounded
 * down, so the value is valid to the last bit.
 *
 * The single-point relaxation is that of Checkmate's ILP (Jain et al., MLSys 2020) with one stage;
 * writing it as a parametric cut is ours. */
#include "cut.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = 0, SURE = 1, MAYBE = 2 }; /* is a storage needed */

struct Cut {
    const Problem *p;
    Arena *a;
    Flow *flow;
    FlowState low; /* flow of the lower end of the bracket */
    /* per storage */
    uint8_t *need;
    uint32_t *node;                  /* A_s, or what stands for it; NO_ID: none */
    uint32_t *readers;               /* runs that read it again */
    uint32_t *meet;                  /* tensor through which all uses seen so far go */
    double *view_ns;                 /* v_s */
    uint32_t *order;                 /* needed storages */
    uint32_t norder, nsure, nwanted; /* the first ones are needed for sure; then wanted */
    uint32_t *drop; /* node beside the source when s is dropped: R_r or D_s; NO_ID: never */
    /* per run */
    uint32_t *run_node; /* R_r or NO_ID */
    double *run_ns;     /* views included */
    bool *counted;      /* a run of a view that is in view_ns already */
    uint32_t *runs;     /* those that have a node */
    uint32_t nruns;
    /* per arc */
    double *bytes; /* 0: its capacity does not depend on the price */
    int64_t *capacity, *low_capacity;
    double scale;         /* capacity per ns */
    double must, must_ns; /* bytes that are kept whatever the price; what keeping them costs */
    double room;          /* bytes for what is kept */
    uint32_t *stack;
    bool *seen;                  /* per storage: needed in the last choice */
    uint8_t *low_mix, *high_mix; /* per storage: MIX_ bits of the choices at the ends */
    double *kept, *have;
    bool *keep, *rerun;           /* of the last cut */
    bool *best_keep, *best_rerun; /* of the best choice */
};

#define PRECISION (INT64_C(1) << 44)

static bool is_single(const Problem *p, uint32_t r) {
    uint32_t n = 0;
    EACH(p->out, r, t) n += t != NO_ID && t < p->nstorage && p->is_temp[t];
    return n <= 1;
}

Cut *cut_new(Arena *a, const Problem *p) {
    Cut *c = ARENA_NEW(a, Cut);
    *c = (Cut){.p = p, .a = a};
    uint32_t ns = p->nstorage, nr = p->nrun;
    uint32_t nodes = 2 * ns + nr + FLOW_NODES, arcs = p->in.first[nr] + 5 * ns + nr;
    c->flow = flow_new(a, nodes, arcs);
    c->low = flow_state_new(a, nodes, arcs);
    c->need = ARENA_ARRAY(a, uint8_t, ns);
    c->node = ARENA_ARRAY(a, uint32_t, ns);
    c->readers = ARENA_ARRAY(a, uint32_t, ns);
    c->meet = ARENA_ARRAY(a, uint32_t, ns);
    c->view_ns = ARENA_ARRAY(a, double, ns);
    c->order = ARENA_ARRAY(a, uint32_t, ns);
    c->drop = ARENA_ARRAY(a, uint32_t, ns);
    c->run_node = ARENA_ARRAY(a, uint32_t, nr);
    c->run_ns = ARENA_ARRAY(a, double, nr);
    c->counted = ARENA_ARRAY(a, bool, nr);
    c->runs = ARENA_ARRAY(a, uint32_t, nr);
    c->bytes = ARENA_ARRAY(a, double, arcs);
    c->capacity = ARENA_ARRAY(a, int64_t, arcs);
    c->low_capacity = ARENA_ARRAY(a, int64_t, arcs);
    c->seen = ARENA_ARRAY(a, bool, ns);
    c->stack = ARENA_ARRAY(a, uint32_t, ns);
    c->low_mix = ARENA_ARRAY(a, uint8_t, ns);
    c->high_mix = ARENA_ARRAY(a, uint8_t, ns);
    c->kept = ARENA_ARRAY(a, double, ns);
    c->have = ARENA_ARRAY(a, double, ns);
    c->keep = ARENA_ARRAY(a, bool, ns);
    c->rerun = ARENA_ARRAY(a, bool, nr);
    c->best_keep = ARENA_ARRAY(a, bool, ns);
    c->best_rerun = ARENA_ARRAY(a, bool, nr);
    return c;
}

/* ---- who is needed ---- */

/* The tensor that a view with a cost is a view of; NO_ID for the storage itself. */
static uint32_t view_base(const Problem *p, uint32_t t) {
    if (t < p->nstorage) return NO_ID;
    EACH(p->in, p->def[t], u) if (p->storage[u] == p->storage[t]) return u;
    return NO_ID;
}

/* The deepest tensor that both x and y are, or are views of. Views stand behind their base. */
static uint32_t meet_of(const Problem *p, uint32_t x, uint32_t y) {
    while (x != y) {
        if (x < p->nstorage || (y >= p->nstorage && p->def[x] < p->def[y])) {
            uint32_t z = x;
            x = y;
            y = z;
        }
        x = view_base(p, x);
        if (x == NO_ID) return p->storage[y];
    }
    return x;
}

/* Is tensor t of the network: must something be done so that it is there after the point? */
static bool is_open(const Cut *c, const CutPoint *at, uint32_t t) {
    const Problem *p = c->p;
    StorageId s = p->storage[t];
    return p->is_temp[s] && p->bytes[s] && at->state[s] != CUT_FIXED && p->def[t] < at->run &&
           p->def[s] < at->run;
}

static void see(Cut *c, uint32_t t, uint8_t level) {
    StorageId s = c->p->storage[t];
    while (t > c->p->nstorage && c->p->def[t - 1] == c->p->def[t]) t--; /* views of one run */
    if (!c->need[s]) {
        c->need[s] = level;
        c->order[c->norder++] = s;
        c->meet[s] = t;
    } else if (level == MAYBE) {
        c->meet[s] = meet_of(c->p, c->meet[s], t);
    }
    if (level == MAYBE) c->readers[s]++;
}

static bool is_stuck(const Cut *c, const CutPoint *at, uint32_t r) {
    return c->p->effect[r] || (at->stuck && at->stuck[r]);
}

/* Storages needed for sure, then, run by run, what their makers read. */
static void fill_needed(Cut *c, const CutPoint *at) {
    const Problem *p = c->p;
    c->norder = c->nruns = 0;
    memset(c->need, NONE, p->nstorage);
    memset(c->readers, 0, p->nstorage * sizeof *c->readers);
    for (uint32_t r = 0; r < p->nrun; r++) c->run_node[r] = NO_ID;
    for (uint32_t t = 0; t < p->ntensor; t++)
        if (at->need[t] && p->def[t] != NO_ID && is_open(c, at, t)) see(c, t, SURE);
    c->nsure = c->norder;
    for (StorageId s = 0; at->want_ns && s < p->nstorage; s++) {
        if (at->want_ns[s] <= 0 || c->need[s] || p->def[s] == NO_ID || !is_open(c, at, s)) continue;
        see(c, s, MAYBE);
        c->readers[s]++; /* a node of its own */
    }
    c->nwanted = c->norder;
    for (uint32_t i = 0; i < c->norder; i++) {
        uint32_t r = p->def[c->order[i]];
        if (c->run_node[r] != NO_ID || is_stuck(c, at, r)) continue;
        c->run_node[r] = FLOW_NODES + c->nruns;
        c->runs[c->nruns++] = r;
        EACH(p->in, r, t) if (is_open(c, at, t)) see(c, t, MAYBE);
    }
}

static void add_views(Cut *c, uint32_t t) {
    const Problem *p = c->p;
    for (; t != NO_ID && t >= p->nstorage && !c->counted[p->def[t]]; t = view_base(p, t)) {
        c->counted[p->def[t]] = true;
        c->view_ns[p->storage[t]] += (double)p->ns[p->def[t]];
    }
}

/* v_s of every needed storage. */
static void fill_view_costs(Cut *c, const CutPoint *at) {
    const Problem *p = c->p;
    for (uint32_t i = 0; i < c->norder; i++) c->view_ns[c->order[i]] = 0;
    for (uint32_t t = p->nstorage; t < p->ntensor; t++)
        if (p->def[t] != NO_ID) c->counted[p->def[t]] = false;
    for (uint32_t t = p->nstorage; t < p->ntensor; t++)
        if (at->need[t] && c->need[p->storage[t]] == SURE && is_open(c, at, t)) add_views(c, t);
    for (uint32_t i = 0; i < c->norder; i++)
        if (c->need[c->order[i]] == MAYBE) add_views(c, c->meet[c->order[i]]);
}

/* ---- the network ---- */

static void add_arc(Cut *c, uint32_t from, uint32_t to, double bytes, int64_t capacity) {
    uint32_t k = flow_arc(c->flow, from, to);
    c->bytes[k] = bytes;
    c->capacity[k] = capacity;
}

/* Rounded down. Nothing need be larger than the cost of all runs together. */
static int64_t scaled(const Cut *c, double ns) {
    double x = ns * c->scale;
    return x < (double)PRECISION ? (int64_t)x : PRECISION;
}

/* Gives every needed storage the node that stands for "needed"; returns the number of nodes. */
static uint32_t number_nodes(Cut *c, const CutPoint *at) {
    const Problem *p = c->p;
    uint32_t n = FLOW_NODES + c->nruns;
    for (uint32_t i = 0; i < c->norder; i++) {
        StorageId s = c->order[i];
        c->node[s] = NO_ID;
        if (c->need[s] == SURE)
            c->node[s] = FLOW_SOURCE;
        else if (c->readers[s] > 1)
            c->node[s] = n++;
    }
    for (uint32_t i = 0; i < c->nruns; i++) EACH(c->p->in, c->runs[i], t)
    if (is_open(c, at, t) && c->node[p->storage[t]] == NO_ID)
        c->node[p->storage[t]] = c->run_node[c->runs[i]];
    return n;
}

static void add_reads(Cut *c, const CutPoint *at) {
    for (uint32_t i = 0; i < c->nruns; i++) {
        uint32_t from = c->run_node[c->runs[i]];
        EACH(c->p->in, c->runs[i], t) {
            uint32_t to = is_open(c, at, t) ? c->node[c->p->storage[t]] : FLOW_SOURCE;
            if (to != FLOW_SOURCE && to != from) add_arc(c, from, to, 0, PRECISION);
        }
    }
}

/* The arcs of s. Returns the next free node. */
static uint32_t add_storage(Cut *c, const CutPoint *at, StorageId s, uint32_t free_node) {
    const Problem *p = c->p;
    uint32_t r = p->def[s], needed = c->node[s], drop = c->run_node[r];
    double bytes = (double)p->bytes[s];
    bool away = at->state[s] == CUT_AWAY;
    if (drop == NO_ID) {
        if (needed == FLOW_SOURCE)
            c->must += away ? INFINITY : bytes;
        else
            add_arc(c, needed, FLOW_SINK, away ? 0 : bytes, away ? PRECISION : 0);
    } else if (c->view_ns[s] > 0 && is_single(p, r)) {
        c->run_ns[r] += c->view_ns[s];
    } else if (c->view_ns[s] > 0) {
        add_arc(c, free_node, drop, 0, PRECISION);
        add_arc(c, free_node, FLOW_SINK, 0, scaled(c, c->view_ns[s]));
        drop = free_node++;
    }
    c->drop[s] = drop;
    if (drop != NO_ID) add_arc(c, needed, drop, away ? 0 : bytes, away ? PRECISION : 0);
    if (!at->keep_ns || at->keep_ns[s] <= 0) return free_node;
    if (drop != NO_ID || needed != FLOW_SOURCE)
        add_arc(c, needed, drop == NO_ID ? FLOW_SINK : drop, 0, scaled(c, at->keep_ns[s]));
    else
        c->must_ns += at->keep_ns[s];
    return free_node;
}

static void build(Cut *c, const CutPoint *at) {
    const Problem *p = c->p;
    double all = 1;
    for (uint32_t i = 0; i < c->nruns; i++) {
        uint32_t r = c->runs[i];
        c->run_ns[r] = at->ns ? at->ns[r] : (double)p->ns[r];
        all += c->run_ns[r];
    }
    for (uint32_t i = 0; i < c->norder; i++) all += c->view_ns[c->order[i]];
    c->scale = (double)PRECISION / all;
    c->must = c->must_ns = 0;
    uint32_t free_node = number_nodes(c, at);
    flow_begin(c->flow);
    add_reads(c, at);
    for (uint32_t i = 0; i < c->norder; i++) free_node = add_storage(c, at, c->order[i], free_node);
    for (uint32_t i = c->nsure; i < c->nwanted; i++)
        add_arc(c, FLOW_SOURCE, c->node[c->order[i]], 0, scaled(c, at->want_ns[c->order[i]]));
    for (uint32_t i = 0; i < c->nruns; i++) {
        uint32_t r = c->runs[i];
        add_arc(c, c->run_node[r], FLOW_SINK, 0, scaled(c, c->run_ns[r]));
    }
    flow_ready(c->flow, free_node);
    for (uint32_t k = 0; k < c->flow->narc; k++)
        if (c->bytes[k] <= 0) flow_raise(c->flow, k, c->capacity[k]);
    c->room = (double)at->capacity - c->must;
}

/* ---- the price ---- */

static void set_price(Cut *c, double price) {
    for (uint32_t k = 0; k < c->flow->narc; k++) {
        if (c->bytes[k] <= 0) continue;
        int64_t to = scaled(c, price * c->bytes[k]);
        if (to <= c->capacity[k]) continue;
        flow_raise(c->flow, k, to - c->capacity[k]);
        c->capacity[k] = to;
    }
}

/* A line above the dual: value at a price of 0, and slope. */
typedef struct {
    double value, slope;
} Line;

/* The choice that belongs to the last cut, from what is needed for sure downwards; `none`: nothing
 * is kept that may be dropped. Fills keep and rerun; the line is its cost and bytes less room. */
static Line read_choice(Cut *c, const CutPoint *at, bool none) {
    const Problem *p = c->p;
    Line l = {c->must_ns, -c->room};
    uint32_t n = 0;
    memset(c->keep, 0, p->nstorage * sizeof *c->keep);
    memset(c->rerun, 0, p->nrun * sizeof *c->rerun);
    for (uint32_t i = 0; i < c->norder; i++) c->seen[c->order[i]] = false;
    for (uint32_t i = 0; i < c->nwanted; i++) {
        StorageId s = c->order[i];
        c->seen[s] = i < c->nsure || none || flow_beside_source(c->flow, c->node[s]);
        if (c->seen[s])
            c->stack[n++] = s;
        else
            l.value += at->want_ns[s];
    }
    while (n) {
        StorageId s = c->stack[--n];
        uint32_t r = p->def[s];
        if (c->drop[s] == NO_ID || !(none || flow_beside_source(c->flow, c->drop[s]))) {
            c->keep[s] = true;
            if (c->drop[s] != NO_ID || c->need[s] != SURE) l.slope += (double)p->bytes[s];
            if (at->state[s] == CUT_AWAY) l.value = INFINITY;
            if (at->keep_ns && (c->drop[s] != NO_ID || c->need[s] != SURE))
                l.value += at->keep_ns[s];
            continue;
        }
        if (!is_single(p, r)) l.value += c->view_ns[s];
        if (c->rerun[r]) continue;
        c->rerun[r] = true;
        l.value += c->run_ns[r];
        EACH(p->in, r, t) {
            if (!is_open(c, at, t) || c->seen[p->storage[t]]) continue;
            c->seen[p->storage[t]] = true;
            c->stack[n++] = p->storage[t];
        }
    }
    return l;
}

static void take_choice(Cut *c, CutResult *r, Line l) {
    if (l.slope > 0 || (r->feasible && l.value >= r->cost)) return;
    r->feasible = true;
    r->cost = l.value;
    r->bytes = (uint64_t)(l.slope + c->room + c->must);
    memcpy(r->keep, c->keep, c->p->nstorage * sizeof *r->keep);
    memcpy(r->rerun, c->rerun, c->p->nrun * sizeof *r->rerun);
}

static void save_low(Cut *c) {
    flow_save(c->flow, &c->low);
    memcpy(c->low_capacity, c->capacity, c->flow->narc * sizeof *c->capacity);
}

static void load_low(Cut *c) {
    flow_load(c->flow, &c->low);
    memcpy(c->capacity, c->low_capacity, c->flow->narc * sizeof *c->capacity);
}

enum { MOST_FLOWS = 64 };
static const double exact = 1e-6;

/* The cut at a price above that of the lower end; raises the value. */
static Line cut_at(Cut *c, const CutPoint *at, CutResult *r, double price) {
    load_low(c);
    set_price(c, price);
    double value = (double)flow_cut(c->flow) / c->scale + c->must_ns - price * c->room;
    r->flows++;
    if (value > r->value) {
        r->value = value;
        r->price = price;
    }
    return read_choice(c, at, false);
}

enum { MIX_KEPT = 1, MIX_HAVE = 2 };

static void save_mix(const Cut *c, const CutPoint *at, uint8_t *mix) {
    if (!at->want_ns) return;
    memset(mix, 0, c->p->nstorage);
    for (uint32_t i = 0; i < c->norder; i++) {
        StorageId s = c->order[i];
        mix[s] = (uint8_t)((c->keep[s] ? MIX_KEPT : 0) | (c->seen[s] ? MIX_HAVE : 0));
    }
}

/* The mixture of the choices at both ends that fills the room exactly. */
static void fill_mix(Cut *c, const CutPoint *at, CutResult *r, Line low, Line high) {
    if (!at->want_ns) return;
    double share = low.slope <= 0 ? 1 : high.slope > 0 ? 0 : high.slope / (high.slope - low.slope);
    for (StorageId s = 0; s < c->p->nstorage; s++) {
        double other = 1 - share;
        c->kept[s] =
            (c->low_mix[s] & MIX_KEPT ? share : 0) + (c->high_mix[s] & MIX_KEPT ? other : 0);
        c->have[s] =
            (c->low_mix[s] & MIX_HAVE ? share : 0) + (c->high_mix[s] & MIX_HAVE ? other : 0);
    }
    r->kept = c->kept;
    r->have = c->have;
}

/* Brackets the best price between two lines and narrows. */
static void climb(Cut *c, const CutPoint *at, CutResult *r) {
    uint32_t most = at->flows ? at->flows : MOST_FLOWS;
    save_low(c);
    Line high = read_choice(c, at, true);
    save_mix(c, at, c->high_mix);
    Line low = cut_at(c, at, r, 0);
    take_choice(c, r, low);
    save_mix(c, at, c->low_mix);
    if (low.slope <= 0 || isinf(low.slope)) {
        fill_mix(c, at, r, low, high);
        return;
    }
    bool bracket = high.slope <= 0 && !isinf(high.value);
    read_choice(c, at, true);
    take_choice(c, r, high);
    double price = at->guess > 0 ? at->guess : 0, slack = exact * (double)c->p->base_ns;
    for (r->flows = 0; r->flows < most;) {
        if (bracket && (r->flows || price <= 0)) {
            price = (high.value - low.value) / (low.slope - high.slope);
            if (low.value + low.slope * price <= r->value + slack) break;
        } else if (r->flows || price <= 0) {
            price = price > 0 ? 4 * price : high.value / low.slope;
            if (r->value > high.value) break; /* dearer than all runs: impossible */
        }
        Line l = cut_at(c, at, r, price);
        take_choice(c, r, l);
        if (l.slope > 0) {
            low = l;
            save_low(c);
            save_mix(c, at, c->low_mix);
        } else {
            high = l;
            save_mix(c, at, c->high_mix);
            bracket = true;
        }
    }
    fill_mix(c, at, r, low, high);
}

void cut_solve(Cut *c, const CutPoint *at, CutResult *r) {
    *r = (CutResult){.keep = c->best_keep, .rerun = c->best_rerun};
    fill_needed(c, at);
    fill_view_costs(c, at);
    build(c, at);
    climb(c, at, r);
    if (at->flows != 1 || !r->flows) return;
    r->keep = c->keep;
    r->rerun = c->rerun;
}
