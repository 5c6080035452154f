/* published.c - where the rules of the simulator of the DTR paper (Kirisame et al., ICLR 2021; its
 * logs are the planning benchmark) differ from ours. Played with byte accounting, they give its
 * overheads. The rest of the engine asks DtrOptions.published where it deviates:
 *  - All outputs of a run stay, wanted or not, and come after room was made for them: until then
 *    they count as evicted, while room is made for something else.
 *  - Nothing happens in place. What is dead goes only after a first run, among its operands and
 *    results; what was made again for somebody waits in the pool, even when nobody needs it.
 *  - A view that is not defined does not protect its storage.
 *  - The cost of a storage is that of its tensors so far. A class of h_DTR^eq loses the cost at the
 *    time when a member is made again.
 *  - A storage is used when a run that reads it starts, before its missing operands are made, and
 *    when it is made first, not when it is made again.
 *  - Sums over neighbourhoods have no upper end.
 *  - Ties: what became evictable last; among those that cost nothing, first. What has no bytes or
 *    was used right now goes when there is nothing else.
 *  - At the end outputs are made one after the other; those to come are not protected. */
#include "evict.h"

#include <math.h>

void dtr_published_grow(Dtr *d, uint32_t r) {
    const DtrGraph *g = d->g;
    const uint32_t *out = g->out.at + g->out.first[r];
    for (uint32_t k = 0; k < dtr_len(&g->out, r); k++) {
        uint32_t i = 0;
        if (out[k] == DTR_NONE || !g->is_temp[g->storage[out[k]]]) continue;
        while (i < k && (out[i] == DTR_NONE || g->storage[out[i]] != g->storage[out[k]])) i++;
        if (i < k) continue;
        d->cost[g->storage[out[k]]] += (double)g->ns[r];
        dtr_spoil(d, g->storage[out[k]]);
    }
}

static void drop_dead(Dtr *d, uint32_t x) {
    if (d->g->is_temp[x] && is_there(d, x) && !d->lock[x] && dtr_next_use(d, x) == FOREVER &&
        !d->blocked[x])
        dtr_drop(d, x, false);
}

void dtr_published_drop_dead(Dtr *d, uint32_t r) {
    DTR_EACH(d->g->in, r, t) drop_dead(d, d->g->storage[t]);
    DTR_EACH(d->g->out, r, t) if (t != DTR_NONE) drop_dead(d, d->g->storage[t]);
}

static double score(Dtr *d, uint32_t x) {
    d->count.work++;
    if (!d->g->bytes[x] || d->clock - d->last[x] <= 0) return INFINITY;
    return dtr_numbers_score(d, x);
}

uint32_t dtr_published_victim(Dtr *d) {
    uint32_t best = DTR_NONE;
    double low = INFINITY;
    for (uint32_t i = 0; i < d->npool; i++) {
        uint32_t x = d->pool[i];
        if (d->blocked[x]) continue;
        double v = score(d, x);
        bool earlier = best != DTR_NONE && d->entered[x] < d->entered[best];
        if (best != DTR_NONE && (v > low || (v == low && earlier == (v > 0)))) continue;
        low = v;
        best = x;
    }
    return best;
}

bool dtr_published_finish(Dtr *d) {
    const DtrGraph *g = d->g;
    for (uint32_t i = 0; i < g->noutput; i++) {
        uint32_t t = g->output[i];
        if (!is_defined(d, t) && !dtr_ensure(d, g->def[t], false)) return false;
        dtr_lock(d, g->storage[t]);
    }
    return true;
}
