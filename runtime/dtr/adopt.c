/* adopt.c - a step that begins in the middle: a program that followed a plan so far goes on without
 * one. Everything made so far first counts as there, then what is not goes, one after the other:
 * the counters of lives.c come out as if the engine had played the step itself. Staleness is that
 * of the runs so far without any recomputation. */
#include "engine.h"

#include <string.h>

static bool is_made(const Dtr *d, uint32_t x) {
    return d->g->is_temp[x] && d->g->def[x] != DTR_NONE && d->g->def[x] < d->now;
}

static void touch(Dtr *d, const DtrLists *l, uint32_t r) {
    DTR_EACH(*l, r, t) if (t != DTR_NONE) d->last[d->g->storage[t]] = d->clock;
}

static void play_silently(Dtr *d) {
    const DtrGraph *g = d->g;
    for (uint32_t x = 0; x < g->nstorage; x++)
        if (is_made(d, x)) dtr_came(d, x);
    for (uint32_t r = 0; r < d->now; r++) {
        touch(d, &g->in, r);
        d->clock += (double)g->ns[r];
        touch(d, &g->out, r);
        dtr_freeze_readers(d, r);
    }
}

/* x is there: locked until the step goes on, which then drops what nobody needs. */
static bool settle(Dtr *d, uint32_t x, uint64_t offset) {
    uint64_t bytes = d->g->bytes[x];
    if (bytes && !d->o.bytes_only) {
        d->block[x] = space_take_at(&d->space, offset, bytes, x);
        if (d->block[x] == SPACE_NONE) return false;
    }
    d->bytes += bytes;
    d->lock[x] = 1;
    d->secured[d->nsecured++] = x;
    return !d->o.bytes_only || d->bytes <= d->o.capacity;
}

static bool take_stock(Dtr *d, const uint64_t *offset) {
    const DtrGraph *g = d->g;
    for (uint32_t t = g->nstorage; t < g->ntensor; t++)
        if (!g->is_temp[g->storage[t]]) d->defined[t] = g->def[t] < d->now;
    for (uint32_t x = 0; x < g->nstorage; x++) {
        if (!g->is_temp[x] || offset[x] == DTR_NOWHERE) continue;
        if (!is_made(d, x) || !settle(d, x, offset[x])) return false;
    }
    for (uint32_t x = 0; x < g->nstorage; x++) {
        if (!is_made(d, x) || offset[x] != DTR_NOWHERE) continue;
        dtr_gone(d, x);
        if (d->o.h == DTR_EQ && !d->o.lookahead) dtr_classes_gone(d, x);
    }
    for (uint32_t x = 0; x < g->nstorage; x++)
        if (is_made(d, x) && !is_there(d, x) && d->state[x] & S_NEED && d->blocked[x]) return false;
    d->count.peak_bytes = d->bytes;
    return true;
}

bool dtr_adopt(Dtr *d, uint32_t next, const uint64_t *offset) {
    if (next > d->g->nrun) return false;
    dtr_reset(d);
    d->now = next;
    play_silently(d);
    d->adopted = take_stock(d, offset);
    return d->adopted;
}
