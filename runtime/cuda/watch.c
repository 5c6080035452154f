/* watch.c - tells a checker that watches the driver what the block's bytes mean (watch.h), where
 * there is one. What lives is followed along the schedule, on its own: the checker then knows
 * liveness from the program's tables, not from the planner. */
#include "cu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "watch.h"

typedef struct {
    uint64_t at, bytes; /* device address */
    bool lives;
} Life;

static struct {
    DtrtWatchArena *arena;
    DtrtWatchLive *live;
    DtrtWatchDead *dead;
    DtrtWatchStep *step;
    Life *life; /* per storage */
    uint32_t n;
    DtrtWatchRange *range, *scratch; /* of the runs told last; scratch lives until the next */
    uint32_t nscratch;
    const DtrtSchedule *of; /* that `stays` is for */
    bool *stays; /* per entry of addr: an output that somebody reads, or that is dropped; others
                    are scratch of their run */
    uint64_t *wanted; /* per storage, while stays is filled: where it is read or dropped next */
    bool everything;  /* the whole arena lives: after a step that went wrong */
} watch;

void cu_watch_open(void *driver) {
    void *to[] = {dlsym(driver, DTRT_WATCH_ARENA), dlsym(driver, DTRT_WATCH_LIVE),
                  dlsym(driver, DTRT_WATCH_DEAD), dlsym(driver, DTRT_WATCH_STEP)};
    if (!to[0] || !to[1] || !to[2] || !to[3]) return;
    memcpy(&watch.arena, &to[0], sizeof to[0]);
    memcpy(&watch.live, &to[1], sizeof to[1]);
    memcpy(&watch.dead, &to[2], sizeof to[2]);
    memcpy(&watch.step, &to[3], sizeof to[3]);
}

void cu_watch_close(void) {
    free(watch.life);
    free(watch.range);
    free(watch.scratch);
    free(watch.stays);
    free(watch.wanted);
    watch.stays = NULL;
    watch.wanted = NULL;
    watch.of = NULL;
    watch.life = NULL;
    watch.range = watch.scratch = NULL;
}

static uint64_t address(const Runtime *rt, uint64_t offset) {
    return (uint64_t)(uintptr_t)(rt->block + offset);
}

/* Both sizes of a run have the same persistent tensors; the larger batch's are told. */
void cu_watch_block(const Runtime *rt) {
    if (!watch.arena) return;
    watch.n = rt->p->nstorage;
    uint32_t most = 0;
    for (uint32_t i = 0; i < rt->p->nnode; i++) {
        uint32_t k = rt->p->node[i].nin + rt->p->node[i].nout + 1;
        if (k > most) most = k;
    }
    watch.life = calloc(watch.n + 1, sizeof *watch.life);
    watch.range = calloc((size_t)(most + 1) * CU_UPDATES, sizeof *watch.range);
    watch.scratch = calloc((size_t)(most + 1) * CU_UPDATES, sizeof *watch.scratch);
    watch.wanted = calloc(watch.n + 1, sizeof *watch.wanted);
    if (!watch.life || !watch.range || !watch.scratch || !watch.wanted)
        cu_fail("no memory for %u storages", watch.n);
    watch.arena(address(rt, 0), rt->block_bytes);
    for (uint32_t i = 0; i < rt->p->ntensor; i++) {
        const DtrtTensor *t = &rt->p->tensor[i];
        if (t->bytes)
            watch.live(cu_device.stream, address(rt, t->offset), t->bytes, DTRT_WATCH_KEEP,
                       t->name);
    }
}

static void read_backwards(const Runtime *rt, const DtrtRun *r) {
    const DtrtNode *n = &rt->p->node[r->node];
    const uint64_t *addr = rt->s->addr + r->first;
    for (uint32_t i = n->nin; i < n->nin + n->nout; i++) {
        int32_t s = rt->p->operand[n->first + i];
        if (s < 0 || addr[i] == DTRT_NOWHERE) continue;
        watch.stays[r->first + i] = watch.wanted[s] == addr[i];
        if (watch.stays[r->first + i]) watch.wanted[s] = DTRT_NOWHERE;
    }
    for (uint32_t i = 0; i < n->nin; i++) {
        int32_t s = rt->p->operand[n->first + i];
        if (s >= 0 && addr[i] != DTRT_NOWHERE) watch.wanted[s] = addr[i];
    }
}

/* The schedule does not say which outputs of a run are scratch: those that nobody reads, or drops,
 * where the run puts them. */
void cu_watch_begin(const Runtime *rt) {
    const DtrtSchedule *s = rt->s;
    if (!watch.life || watch.of == s) return;
    free(watch.stays);
    watch.stays = calloc((size_t)s->naddr + 1, sizeof *watch.stays);
    if (!watch.stays) cu_fail("no memory for %u addresses", s->naddr);
    for (uint32_t i = 0; i < watch.n; i++) watch.wanted[i] = DTRT_NOWHERE;
    watch.wanted[rt->p->loss_storage] =
        (uint64_t)((const uint8_t *)(const void *)rt->loss_at - rt->block);
    for (uint32_t i = s->nstep; i-- > 0;) {
        if (s->step[i].run >= 0)
            read_backwards(rt, &s->run[s->step[i].run]);
        else
            watch.wanted[s->step[i].storage] = s->step[i].offset;
    }
    watch.of = s;
}

static void end_scratch(void) {
    for (uint32_t i = 0; i < watch.nscratch; i++)
        watch.dead(cu_device.stream, watch.scratch[i].at, watch.scratch[i].bytes, 0);
    watch.nscratch = 0;
}

void cu_watch_end(void) {
    if (!watch.life) return;
    end_scratch();
    for (uint32_t i = 0; i < watch.n; i++) {
        Life *l = &watch.life[i];
        if (l->lives) watch.dead(cu_device.stream, l->at, l->bytes, 0);
        l->lives = false;
    }
}

void cu_watch_free_work(void) {
    if (watch.life) watch.step(cu_device.stream, NULL, NULL, 0);
}

void cu_watch_everything(const Runtime *rt) {
    if (!watch.life || watch.everything) return;
    watch.everything = true;
    cu_watch_free_work();
    if (rt->s->arena_bytes)
        watch.live(cu_device.stream, address(rt, rt->p->persistent_bytes), rt->s->arena_bytes,
                   DTRT_WATCH_KEEP, "the arena");
}

void cu_watch_drop(const Runtime *rt, int32_t storage, uint64_t at) {
    if (!watch.life) return;
    end_scratch();
    Life *l = &watch.life[storage];
    if (!l->lives || l->at != address(rt, at)) return; /* taken over in place */
    watch.dead(cu_device.stream, l->at, l->bytes, 0);
    l->lives = false;
}

/* The storage whose bytes an output takes over, among the inputs of its node. */
static Life *taken_over(const Runtime *rt, const DtrtNode *n, uint64_t at, uint64_t bytes) {
    for (uint32_t i = 0; i < n->nin; i++) {
        int32_t s = rt->p->operand[n->first + i];
        Life *l = s < 0 ? NULL : &watch.life[s];
        if (l && l->lives && l->at < at + bytes && at < l->at + l->bytes) return l;
    }
    return NULL;
}

/* An output begins to live, or (of a node that runs for another one) is scratch. */
static bool begin_output(const Runtime *rt, const DtrtNode *n, int32_t s, uint64_t at,
                         uint64_t bytes, bool stays) {
    Life *l = &watch.life[s];
    if (l->lives && l->at == at) return false;
    if (!stays) {
        watch.live(cu_device.stream, at, bytes, 0, "scratch");
        return true;
    }
    Life *old = taken_over(rt, n, at, bytes);
    if (old) {
        watch.dead(cu_device.stream, old->at, old->bytes, DTRT_WATCH_KEEP);
        old->lives = false;
    }
    watch.live(cu_device.stream, at, bytes, old ? DTRT_WATCH_KEEP : 0, n->name);
    *l = (Life){at, bytes, true};
    return false;
}

/* Appends what run r touches, and begins what it makes. */
static uint32_t add_run(const Runtime *rt, const DtrtRun *r, uint32_t count) {
    const DtrtNode *n = &rt->p->node[r->node];
    const uint64_t *addr = rt->s->addr + r->first;
    for (uint32_t i = 0; i <= n->nin + n->nout; i++) {
        uint64_t bytes = dtrt_operand_bytes(rt->p, n, i);
        if (addr[i] == DTRT_NOWHERE || !bytes) continue;
        DtrtWatchRange x = {address(rt, addr[i]), bytes, DTRT_WATCH_READ, 0};
        bool is_scratch = i == n->nin + n->nout;
        if (i >= n->nin) x.use = DTRT_WATCH_WRITE | DTRT_WATCH_READ;
        if (i < n->nin && i < 64 && n->mutates >> i & 1) x.use |= DTRT_WATCH_WRITE;
        int32_t s = is_scratch ? -1 : rt->p->operand[n->first + i];
        if (is_scratch)
            watch.live(cu_device.stream, x.at, bytes, 0, "workspace");
        else if (i >= n->nin && s >= 0 && rt->p->storage[s].tensor < 0)
            is_scratch = begin_output(rt, n, s, x.at, bytes, watch.stays[r->first + i]);
        if (is_scratch) watch.scratch[watch.nscratch++] = x;
        watch.range[count++] = x;
    }
    return count;
}

void cu_watch_runs(const Runtime *rt, const DtrtRun *const *r, uint32_t n) {
    uint32_t count = 0;
    if (!watch.life) return;
    end_scratch();
    for (uint32_t i = 0; i < n; i++) count = add_run(rt, r[i], count);
    watch.step(cu_device.stream, rt->p->node[r[0]->node].name, watch.range, count);
}
