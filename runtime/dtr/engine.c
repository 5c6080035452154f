/* engine.c - one step: runs in order, makes again what is missing, places everything. See dtr.h. */
#include "engine.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEAR = 16 }; /* lookahead: the part of the base time at which closure costs stop counting */

/* ---- memory ---- */

static void take_stacks(Dtr *d, const DtrGraph *g, Block *b) {
    uint64_t outputs = (uint64_t)g->most_outputs + 1, blocks = g->nstorage + outputs;
    d->frame = block_take(b, (uint64_t)g->nrun + 1, sizeof *d->frame);
    d->held = block_take(b, (uint64_t)g->in.first[g->nrun] + 1, sizeof *d->held);
    d->stack = block_take(b, (uint64_t)g->nstorage + 1, sizeof *d->stack);
    d->secured = block_take(b, (uint64_t)g->nstorage + 1, sizeof *d->secured);
    d->victim = block_take(b, g->nstorage, sizeof *d->victim);
    d->request = block_take(b, outputs, sizeof *d->request);
    d->busy = block_take(b, outputs, sizeof *d->busy);
    d->out = block_take(b, outputs, sizeof *d->out);
    d->window = block_take(b, 2 * blocks + 1, sizeof *d->window);
    d->window_cost = block_take(b, 2 * blocks + 1, sizeof *d->window_cost);
    space_take_memory(&d->space, b, blocks);
}

static void take_memory(Dtr *d, const DtrGraph *g, Block *b) {
    uint32_t ns = g->nstorage;
    uint32_t **numbers[] = {&d->lock,       &d->want, &d->use,     &d->block,
                            &d->pool_at,    &d->need, &d->blocked, &d->alive,
                            &d->next_below, &d->seen, &d->pool};
    double **sums[] = {&d->last, &d->ancestors, &d->descendants, &d->key, &d->own_key, &d->cost};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = block_take(b, ns, sizeof **numbers[i]);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        *sums[i] = block_take(b, ns, sizeof **sums[i]);
    d->entered = block_take(b, ns, sizeof *d->entered);
    d->state = block_take(b, ns, sizeof *d->state);
    d->defined = block_take(b, g->ntensor, sizeof *d->defined);
    d->frozen = block_take(b, g->nrun, sizeof *d->frozen);
    d->dist = block_take(b, (uint64_t)g->nrun + 2, sizeof *d->dist);
    dtr_classes_memory(&d->classes, b, ns);
    d->dirty = block_take(b, ns, sizeof *d->dirty);
    d->dirty_list = block_take(b, ns, sizeof *d->dirty_list);
    kinetic_take_memory(&d->kinetic, b, ns);
    take_stacks(d, g, b);
}

size_t dtr_bytes(const DtrGraph *g) {
    Dtr d = {0};
    Block b = {NULL, sizeof d};
    take_memory(&d, g, &b);
    return b.used;
}

Dtr *dtr_init(void *memory, const DtrGraph *g, const DtrOptions *o) {
    Dtr *d = memory;
    Block b = {memory, sizeof *d};
    *d = (Dtr){.g = g, .dist_beta = -1};
    take_memory(d, g, &b);
    dtr_set(d, o);
    dtr_reset(d);
    return d;
}

Dtr *dtr_open(const DtrGraph *g, const DtrOptions *o) {
    void *memory = calloc(1, dtr_bytes(g));
    return memory ? dtr_init(memory, g, o) : NULL;
}

void dtr_close(Dtr *d) {
    free(d);
}

void dtr_set(Dtr *d, const DtrOptions *o) {
    d->o = *o;
    d->adopted = false;
    d->dear = o->published ? INFINITY : (double)d->g->base_ns / (o->lookahead ? DEAR : 1);
    if (!o->lookahead || o->beta == d->dist_beta) return;
    for (uint32_t i = 0; i < d->g->nrun + 2; i++) d->dist[i] = pow(i ? i : 1, o->beta);
    d->dist_beta = o->beta;
}

void dtr_reset(Dtr *d) {
    const DtrGraph *g = d->g;
    d->count = (DtrCounters){.failed_run = DTR_NONE};
    d->status = DTR_OK;
    d->adopted = false;
    d->now = d->stamp = d->npool = 0;
    d->clock = 1;
    d->bytes = d->hook_ns = d->entries = 0;
    d->ndirty = 0;
    if (d->o.incremental) kinetic_reset(&d->kinetic);
    d->nframe = d->nheld = d->nstack = d->nsecured = d->nvictim = 0;
    space_reset(&d->space, d->o.bytes_only ? 0 : d->o.capacity / g->align * g->align);
    memset(d->defined, 0, g->ntensor * sizeof *d->defined);
    memset(d->frozen, 0, g->nrun * sizeof *d->frozen);
    dtr_classes_reset(&d->classes, g->nstorage);
    for (uint32_t x = 0; x < g->nstorage; x++) {
        d->lock[x] = d->want[x] = d->seen[x] = 0;
        d->need[x] = d->blocked[x] = d->alive[x] = 0;
        d->pool_at[x] = DTR_NONE;
        d->dirty[x] = false;
        d->use[x] = g->users.first[x];
        d->state[x] = 0;
        d->last[x] = d->ancestors[x] = d->descendants[x] = 0;
        d->cost[x] = d->o.published ? 0 : g->cost[x];
        d->own_key[x] = d->o.lookahead ? dtr_lookahead_key(d, x, d->cost[x]) : 0;
    }
}

/* ---- hooks ---- */

uint64_t dtr_time(const Dtr *d) {
    return d->hooks->clock ? d->hooks->clock(d->hooks->user) : 0;
}

void dtr_tell_drop(Dtr *d, Victim v, bool evicted) {
    if (!d->hooks->drop || d->status != DTR_OK) return;
    uint64_t start = dtr_time(d);
    if (!d->hooks->drop(d->hooks->user, v.storage, v.offset, evicted)) d->status = DTR_STOPPED;
    d->hook_ns += dtr_time(d) - start;
}

static void tell_run(Dtr *d, uint32_t r, bool first, uint32_t inplace, uint64_t workspace) {
    d->count.runs++;
    if (!first) d->count.reruns++;
    if (!d->hooks->run || d->status != DTR_OK) return;
    DtrRun e = {r, !first, inplace, d->out, workspace};
    uint64_t start = dtr_time(d);
    if (!d->hooks->run(d->hooks->user, &e)) d->status = DTR_STOPPED;
    d->hook_ns += dtr_time(d) - start;
}

/* ---- coming and going ---- */

uint64_t dtr_where(const Dtr *d, uint32_t x) {
    if (x >= d->g->nstorage || !is_there(d, x)) return DTR_NOWHERE;
    return d->o.bytes_only || !d->g->bytes[x] ? 0 : d->space.block[d->block[x]].offset;
}

void dtr_drop(Dtr *d, uint32_t x, bool evicted) {
    assert(is_there(d, x) && !d->lock[x]);
    Victim v = {x, dtr_where(d, x)};
    if (evicted) {
        d->victim[d->nvictim++] = v;
        if (d->need[x] || dtr_next_use(d, x) != FOREVER) d->count.evictions++;
    }
    d->bytes -= d->g->bytes[x];
    if (!d->o.bytes_only && d->g->bytes[x]) space_give(&d->space, d->block[x]);
    DTR_EACH(d->g->views, x, t) d->defined[t] = false;
    dtr_pool_remove(d, x);
    dtr_gone(d, x);
    if (d->o.h == DTR_EQ && !d->o.lookahead) dtr_classes_gone(d, x);
    if (!evicted) dtr_tell_drop(d, v, false);
}

void dtr_lock(Dtr *d, uint32_t x) {
    if (d->g->is_temp[x] && !d->lock[x]++) dtr_pool_remove(d, x);
}

/* The storage becomes evictable, or goes at once when nothing needs it any more. */
static void unlock(Dtr *d, uint32_t x) {
    if (!d->g->is_temp[x] || --d->lock[x] || !is_there(d, x)) return;
    bool dead = !d->o.published && !d->want[x] && dtr_next_use(d, x) == FOREVER;
    if (dead && dtr_may_drop_dead(d, x))
        dtr_drop(d, x, false);
    else
        dtr_pool_add(d, x);
}

/* ---- one run ---- */

/* What becomes of each output; those that stay are locked. */
static void fill_places(Dtr *d, uint32_t r) {
    const DtrGraph *g = d->g;
    const uint32_t *out = g->out.at + g->out.first[r];
    for (uint32_t k = 0; k < dtr_len(&g->out, r); k++) {
        uint32_t t = out[k];
        d->out[k] = (DtrOut){0, DTR_NOTHING};
        if (t >= g->nstorage || !g->is_temp[t]) continue;
        bool keep = d->o.published || d->want[t] || dtr_next_use(d, t) != FOREVER;
        d->out[k].place = keep && !is_there(d, t) ? DTR_RESIDENT : DTR_SCRATCH;
        if (d->out[k].place == DTR_RESIDENT) d->lock[t]++;
    }
}

/* Outputs that stay count as there: while room is made for them already, since what they need is
 * there and what needs them will be served. */
static void arrive(Dtr *d, uint32_t r) {
    const uint32_t *out = d->g->out.at + d->g->out.first[r];
    for (uint32_t k = 0; k < dtr_len(&d->g->out, r); k++) {
        if (d->out[k].place != DTR_RESIDENT) continue;
        dtr_came(d, out[k]);
        dtr_classes_came(d, out[k]);
    }
}

/* Does the use by run r end the life of its operand x? Its other uses lie behind, no open frame
 * holds it. */
static bool dies_here(Dtr *d, uint32_t x, uint32_t r) {
    if (!is_there(d, x) || d->lock[x] != 1 || d->want[x] || d->g->is_output[x]) return false;
    const DtrLists *u = &d->g->users;
    uint32_t at = d->use[x];
    while (at < u->first[x + 1] && (u->at[at] < d->now || (u->at[at] == r && r == d->now))) at++;
    return at == u->first[x + 1] && dtr_may_drop_dead(d, x);
}

static uint32_t choose_inplace(Dtr *d, uint32_t r) {
    if (!dtr_len(&d->g->out, r) || d->out[0].place != DTR_RESIDENT) return DTR_NONE;
    if (d->o.published) return DTR_NONE;
    DTR_EACH(d->g->inplace, r, x) if (dies_here(d, x, r)) return x;
    return DTR_NONE;
}

/* What run r needs room for, the largest first. */
static void fill_requests(Dtr *d, uint32_t r, uint32_t taken) {
    const DtrGraph *g = d->g;
    uint32_t nout = dtr_len(&g->out, r);
    d->nrequest = 0;
    for (uint32_t k = 0; k <= nout; k++) {
        Request q = {g->workspace[r], k, SPACE_BUSY};
        if (k < nout) {
            if (d->out[k].place == DTR_NOTHING || (!k && taken != DTR_NONE)) continue;
            uint32_t x = g->out.at[g->out.first[r] + k];
            q.bytes = g->bytes[x];
            if (d->out[k].place == DTR_RESIDENT) q.owner = x;
        }
        if (!q.bytes) continue;
        uint32_t i = d->nrequest++;
        for (; i > 0 && d->request[i - 1].bytes < q.bytes; i--) d->request[i] = d->request[i - 1];
        d->request[i] = q;
    }
}

/* Places outputs and workspace, then gives scratch and workspace back: nothing else is placed
 * before the next run. */
static bool place(Dtr *d, uint32_t r, uint32_t taken, uint64_t *workspace) {
    uint32_t nout = dtr_len(&d->g->out, r);
    uint64_t busy_bytes = 0;
    fill_requests(d, r, taken);
    d->nbusy = 0;
    for (uint32_t i = 0; i < d->nrequest; i++) {
        Request q = d->request[i];
        bool high_end = q.owner == SPACE_BUSY || dtr_len(&d->g->users, q.owner) <= 1;
        uint32_t b = dtr_make_room(d, q.bytes, high_end, q.owner);
        if (b == SPACE_NONE) return false;
        d->bytes += q.bytes;
        uint64_t at = d->o.bytes_only ? 0 : d->space.block[b].offset;
        if (q.k == nout)
            *workspace = at;
        else
            d->out[q.k].offset = at;
        if (q.owner != SPACE_BUSY) {
            d->block[q.owner] = b;
            continue;
        }
        d->busy[d->nbusy++] = b;
        busy_bytes += q.bytes;
    }
    if (d->bytes > d->count.peak_bytes) d->count.peak_bytes = d->bytes; /* drops come before it */
    for (uint32_t i = 0; i < d->nbusy && !d->o.bytes_only; i++) space_give(&d->space, d->busy[i]);
    d->bytes -= busy_bytes;
    return true;
}

static void take_over(Dtr *d, uint32_t from, uint32_t to) {
    d->block[to] = d->block[from];
    if (!d->o.bytes_only) d->space.block[d->block[to]].owner = to;
    DTR_EACH(d->g->views, from, t) d->defined[t] = false;
    dtr_gone(d, from);
}

static bool execute(Dtr *d, uint32_t r, bool first) {
    const DtrGraph *g = d->g;
    uint64_t workspace = 0;
    fill_places(d, r);
    uint32_t taken = choose_inplace(d, r);
    if (!d->o.published) arrive(d, r);
    if (!place(d, r, taken, &workspace)) return false;
    if (d->o.published) arrive(d, r);
    if (first) d->now = r + 1;
    if (taken != DTR_NONE) d->out[0].offset = dtr_where(d, taken);
    tell_run(d, r, first, taken, workspace);
    if (taken != DTR_NONE) take_over(d, taken, g->out.at[g->out.first[r]]);
    d->clock += (double)g->ns[r];
    d->count.cost_ns += g->ns[r];
    DTR_EACH(g->out, r, t) {
        if (t == DTR_NONE) continue;
        if (first || !d->o.published) d->last[g->storage[t]] = d->clock;
        if (t >= g->nstorage) d->defined[t] = true;
    }
    if (first) dtr_freeze_readers(d, r);
    for (uint32_t k = 0; k < dtr_len(&g->out, r); k++)
        if (d->out[k].place == DTR_RESIDENT) unlock(d, g->out.at[g->out.first[r] + k]);
    if (d->count.cost_ns > d->o.cost_limit && d->status == DTR_OK) d->status = DTR_TOO_DEAR;
    return d->status == DTR_OK;
}

/* ---- a run with everything it needs ---- */

static void change_want(Dtr *d, uint32_t x, uint32_t by) {
    d->want[x] += by;
    mark_dirty(d, x);
}

static void open_frame(Dtr *d, uint32_t r) {
    d->frame[d->nframe++] = (Frame){r, d->nheld, 0};
    DTR_EACH(d->g->in, r, t) {
        bool there = is_defined(d, t);
        d->last[d->g->storage[t]] = d->clock;
        d->held[d->nheld++] = there;
        if (there)
            dtr_lock(d, d->g->storage[t]);
        else
            change_want(d, d->g->storage[t], 1);
    }
}

static void close_frame(Dtr *d) {
    Frame f = d->frame[--d->nframe];
    d->nheld = f.base;
    DTR_EACH(d->g->in, f.run, t) unlock(d, d->g->storage[t]);
}

/* Runs r, for the first time or again, and before it whatever it needs and is not there. A stack of
 * frames instead of recursion: chains of evicted storages are long. */
bool dtr_ensure(Dtr *d, uint32_t r, bool first) {
    const DtrLists *in = &d->g->in;
    uint32_t bottom = d->nframe;
    open_frame(d, r);
    while (d->nframe > bottom) {
        Frame *f = &d->frame[d->nframe - 1];
        if (f->next < dtr_len(in, f->run)) {
            uint32_t t = in->at[in->first[f->run] + f->next];
            bool *held = &d->held[f->base + f->next];
            if (*held || is_defined(d, t)) {
                if (!*held) {
                    *held = true;
                    change_want(d, d->g->storage[t], UINT32_MAX);
                    dtr_lock(d, d->g->storage[t]);
                }
                f->next++;
                continue;
            }
            uint32_t maker = d->g->def[t];
            assert(d->frozen[maker] != FROZEN); /* nothing needed is ever lost */
            open_frame(d, maker);
            continue;
        }
        if (!execute(d, f->run, first && d->nframe == bottom + 1)) {
            d->count.failed_run = f->run;
            return false;
        }
        close_frame(d);
        if (d->status != DTR_OK) return false;
    }
    return true;
}

/* Makes x now and keeps it locked. */
static bool secure(Dtr *d, uint32_t x) {
    if (!is_there(d, x)) {
        change_want(d, x, 1);
        bool ok = dtr_ensure(d, d->g->def[x], false);
        change_want(d, x, UINT32_MAX);
        if (!ok) return false;
    }
    dtr_lock(d, x);
    d->secured[d->nsecured++] = x;
    return true;
}

/* Before run r mutates w: what readers of w make and somebody will need again has to be there,
 * since no reader of w may run afterwards. */
static bool secure_readers(Dtr *d, uint32_t r) {
    const DtrGraph *g = d->g;
    DTR_EACH(g->writes, r, w)
    DTR_EACH(g->readers, w, q) dtr_freeze(d, q, FREEZING);
    DTR_EACH(g->writes, r, w)
    DTR_EACH(g->readers, w, q)
    DTR_EACH(g->out, q, t) {
        if (t == DTR_NONE || d->frozen[q] == FROZEN || !(d->state[g->storage[t]] & S_NEED))
            continue;
        if (!secure(d, g->storage[t])) return false;
    }
    return true;
}

static void release_secured(Dtr *d) {
    while (d->nsecured) unlock(d, d->secured[--d->nsecured]);
}

/* What must be there at the end and is not is made again; what is there, or came with something
 * else, is not evicted for that. */
static bool finish(Dtr *d) {
    const DtrGraph *g = d->g;
    for (uint32_t i = 0; i < g->noutput; i++) {
        uint32_t x = g->storage[g->output[i]];
        if (is_there(d, x)) dtr_lock(d, x);
    }
    for (uint32_t i = 0; i < g->noutput; i++) {
        uint32_t t = g->output[i], x = g->storage[t];
        if (g->is_temp[x] && !(is_there(d, x) && d->lock[x]) && !secure(d, x)) return false;
        if (!is_defined(d, t) && !dtr_ensure(d, g->def[t], false)) return false;
    }
    return true;
}

static void drop_forced(Dtr *d, uint32_t r) {
    DTR_EACH(*d->o.drop_after, r, x) {
        if (!is_there(d, x) || d->lock[x]) continue;
        if (!d->blocked[x]) dtr_drop(d, x, false);
    }
}

static bool play(Dtr *d) {
    release_secured(d); /* of an adopted step: what is there already */
    for (uint32_t r = d->now; r < d->g->nrun; r++) {
        if (d->o.published) dtr_published_grow(d, r);
        if (!secure_readers(d, r) || !dtr_ensure(d, r, true)) return false;
        if (d->o.published) dtr_published_drop_dead(d, r);
        if (d->o.work_limit && d->count.work > d->o.work_limit) {
            d->status = DTR_TOO_LONG;
            d->count.failed_run = r;
            return false;
        }
        release_secured(d);
        if (d->o.drop_after) drop_forced(d, r);
        if (d->status != DTR_OK) return false;
    }
    return (d->o.published ? dtr_published_finish(d) : finish(d)) && d->status == DTR_OK;
}

DtrStatus dtr_step(Dtr *d, const DtrHooks *hooks) {
    static const DtrHooks none = {0};
    if (!d->adopted) dtr_reset(d);
    d->adopted = false;
    d->hooks = hooks ? hooks : &none;
    uint64_t start = dtr_time(d);
    bool ok = play(d);
    assert(ok == (d->status == DTR_OK));
    (void)ok;
    d->count.engine_ns = dtr_time(d) - start - d->hook_ns;
    d->count.high_bytes = d->o.bytes_only ? d->count.peak_bytes : d->space.high;
    return d->status;
}

const DtrCounters *dtr_counters(const Dtr *d) {
    return &d->count;
}
