/* launch.c - runs a grid: checks the launch, then block after block in the asked order; in a block
 * either thread after thread (nothing to wait for, nothing checked) or fibers in rounds, each round
 * running all that can run. */
#include "fiber.h"

#include <stdlib.h>

Launch simt_now;

static void trap(SimtThread *t, uint32_t line) {
    simt_report(t, SIMT_TRAP, line, "trap");
    simt_now.stop = true;
    if (simt_now.current) fiber_end();
}

/* Nothing else runs meanwhile, so what it waits for in a loop does not happen. */
static void runaway(SimtThread *t, uint32_t line) {
    simt_report(t, SIMT_DEADLOCK, line, "jumped back %d times: does the loop end?", PTX_MOST_JUMPS);
    simt_now.stop = true;
    fiber_end();
}

const SimtCalls simt_calls = {.access = simt_access,
                              .barrier = simt_barrier,
                              .warp_sync = simt_warp_sync,
                              .shuffle = simt_shuffle,
                              .ballot = simt_ballot,
                              .reduce = simt_reduce,
                              .trap = trap,
                              .runaway = runaway};

/* Generator of the orders: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The block at place q of the order: for a seed, (a q + c) mod n with a prime to n. */
typedef struct {
    uint64_t n, a, c;
    SimtOrder order;
} BlockOrder;

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t r = a % b;
        a = b, b = r;
    }
    return a;
}

static BlockOrder block_order(uint64_t n, SimtOrder order, uint64_t *seed) {
    BlockOrder o = {n, 1, 0, order};
    if (order != SIMT_SEEDED) return o;
    o.c = next_random(seed) % n;
    do o.a = next_random(seed) % n % UINT32_MAX;
    while (n > 1 && common_divisor(o.a, n) != 1);
    return o;
}

static uint64_t block_at(const BlockOrder *o, uint64_t q) {
    if (o->order == SIMT_ASCENDING) return q;
    if (o->order == SIMT_DESCENDING) return o->n - 1 - q;
    return (uint64_t)((ptx_u128)o->a * q % o->n + o->c) % o->n;
}

/* Fisher-Yates (Knuth, TAOCP vol. 2, 3.4.2, algorithm P) for a seed. */
static void thread_order(uint32_t *order, uint32_t n, SimtOrder how, uint64_t *seed) {
    for (uint32_t i = 0; i < n; i++) order[i] = how == SIMT_DESCENDING ? n - 1 - i : i;
    for (uint32_t i = n - 1; how == SIMT_SEEDED && i > 0; i--) {
        uint32_t j = (uint32_t)(next_random(seed) % (i + 1)), old = order[i];
        order[i] = order[j];
        order[j] = old;
    }
}

static SimtDim place_in(SimtDim size, uint64_t number) {
    return (SimtDim){(uint32_t)(number % size.x), (uint32_t)(number / size.x % size.y),
                     (uint32_t)(number / size.x / size.y)};
}

static void set_thread(SimtThread *t, uint32_t linear, SimtDim tid) {
    t->tid = tid;
    t->ctaid = simt_now.block_id;
    t->linear = linear;
    t->lane = linear % 32;
    t->warp = linear / 32;
}

/* Bytes of the gaps before the extern __shared__ array; each other array has one before it too. */
static uint32_t gaps(void) {
    return simt_now.options->check ? (simt_now.kernel->nshared + 1) * PTX_GAP : 0;
}

/* What is the same for all threads of the launch. */
static SimtThread thread_of_launch(void) {
    Launch *l = &simt_now;
    return (SimtThread){.ntid = l->block,
                        .nctaid = l->grid,
                        .block_threads = l->threads,
                        .dynamic_offset = l->kernel->dynamic_offset + gaps(),
                        .params = l->params,
                        .shared = l->shared,
                        .calls = &simt_calls};
}

/* ---- one block ---- */

static void run_plain(const uint32_t *order, const SimtDim *tids, SimtThread *t) {
    Launch *l = &simt_now;
    void (*body)(SimtThread *) = l->kernel->fast;
    for (uint32_t i = 0; i < l->threads && !l->stop; i++) {
        set_thread(t, order[i], tids[order[i]]);
        body(t);
    }
}

static void prepare_fibers(const SimtDim *tids, const SimtThread *common) {
    Launch *l = &simt_now;
    memset(l->warps, 0, (l->threads + 31) / 32 * sizeof *l->warps);
    for (uint32_t i = 0; i < l->threads; i++) {
        Fiber *f = &l->fibers[i];
        f->t = *common;
        set_thread(&f->t, i, tids[i]);
        l->state[i] = FIBER_READY;
        l->warps[i / 32].present |= 1u << i % 32;
    }
    l->live = l->threads;
    l->at_barrier = l->barrier_votes = 0;
    l->epoch = 0;
}

static void run_fibers(const uint32_t *order) {
    Launch *l = &simt_now;
    while (l->live) {
        bool ran = false;
        for (uint32_t i = 0; i < l->threads; i++) {
            uint32_t linear = order[i];
            if (l->state[linear] != FIBER_READY) continue;
            Fiber *f = &l->fibers[linear];
            fiber_resume(f);
            ran = true;
            if (l->stop) return;
            if (l->state[linear] == FIBER_DONE) thread_ended(f);
        }
        if (ran || release_barrier()) continue;
        report_stuck();
        return;
    }
}

/* Fibers that did not come to their end start anew the next time. */
static void give_up_fibers(void) {
    for (uint32_t i = 0; i < simt_now.threads; i++)
        if (simt_now.state[i] != FIBER_DONE) simt_now.fibers[i].started = false;
}

static void run_grid(uint64_t blocks, bool fibers) {
    Launch *l = &simt_now;
    uint64_t seed = l->options->seed;
    static SimtDim tids[MAX_THREADS];
    uint32_t order[MAX_THREADS];
    for (uint32_t i = 0; i < l->threads; i++) tids[i] = place_in(l->block, i);
    BlockOrder blocks_order = block_order(blocks, l->options->order, &seed);
    SimtThread common = thread_of_launch();
    thread_order(order, l->threads, l->options->order, &seed);
    for (uint64_t q = 0; q < blocks && !l->stop; q++) {
        l->block_number = block_at(&blocks_order, q);
        l->block_id = place_in(l->grid, l->block_number);
        memset(l->shared, 0xff, l->shared_bytes);
        if (l->options->check) memcpy(l->shared_state, l->shared_fresh, l->shared_bytes);
        if (l->options->order == SIMT_SEEDED && q)
            thread_order(order, l->threads, SIMT_SEEDED, &seed);
        if (!fibers) {
            run_plain(order, tids, &common);
            continue;
        }
        prepare_fibers(tids, &common);
        run_fibers(order);
    }
    if (fibers && l->stop) give_up_fibers();
}

/* ---- the launch ---- */

static bool product_over(SimtDim d, uint64_t limit, uint64_t *product) {
    *product = (uint64_t)d.x * d.y;
    if (*product > limit) return true;
    *product *= d.z;
    return *product > limit;
}

/* Limits of compute capability 7.5 to 9.0 ("CUDA C++ Programming Guide", technical specifications).
 */
static bool check_launch(uint32_t dynamic_shared, uint64_t *blocks) {
    Launch *l = &simt_now;
    const SimtKernel *k = l->kernel;
    uint64_t threads, limit = l->options->max_shared ? l->options->max_shared : 49152;
    uint64_t shared =
        dynamic_shared ? (uint64_t)k->dynamic_offset + dynamic_shared : k->static_shared;
    uint64_t most = k->max_threads ? k->max_threads : MAX_THREADS;
    SimtDim g = l->grid, b = l->block;
    if (!g.x || !g.y || !g.z || g.x > INT32_MAX || g.y > 65535 || g.z > 65535 ||
        product_over(g, UINT64_MAX / 2, blocks))
        simt_report(NULL, SIMT_LAUNCH, 0, "impossible grid %u,%u,%u", g.x, g.y, g.z);
    else if (!b.x || !b.y || !b.z || b.x > 1024 || b.y > 1024 || b.z > 64 ||
             product_over(b, MAX_THREADS, &threads))
        simt_report(NULL, SIMT_LAUNCH, 0, "impossible block %u,%u,%u", b.x, b.y, b.z);
    else if (threads > most)
        simt_report(NULL, SIMT_LAUNCH, 0,
                    "%u threads in a block; the kernel is made for %u at most", (uint32_t)threads,
                    (uint32_t)most);
    else if (shared > limit)
        simt_report(NULL, SIMT_LAUNCH, 0, "%llu bytes of shared memory; %llu at most",
                    (unsigned long long)shared, (unsigned long long)limit);
    else if (!(l->options->check ? k->checked : k->fast))
        simt_report(NULL, SIMT_LAUNCH, 0, "the kernel was not compiled for this kind of launch");
    l->threads = (uint32_t)(b.x * b.y * b.z);
    l->shared_bytes = (uint32_t)shared + gaps();
    return !l->findings;
}

/* What a block finds: gaps between the arrays, and bytes that nobody wrote. */
static void mark_arrays(void) {
    Launch *l = &simt_now;
    const SimtKernel *k = l->kernel;
    uint32_t dynamic = k->dynamic_offset + gaps();
    memset(l->shared_fresh, SHARED_GAP, l->shared_bytes);
    for (uint32_t i = 0; i < k->nshared; i++)
        memset(l->shared_fresh + k->shared[i].offset + (i + 1) * PTX_GAP, SHARED_UNWRITTEN,
               k->shared[i].bytes);
    if (l->shared_bytes > dynamic)
        memset(l->shared_fresh + dynamic, SHARED_UNWRITTEN, l->shared_bytes - dynamic);
}

bool simt_launch(const SimtKernel *kernel, SimtDim grid, SimtDim block, uint32_t dynamic_shared,
                 void *const *args, const SimtOptions *options, SimtFindings *found) {
    static const SimtOptions plain = {0};
    Launch *l = &simt_now;
    *l = (Launch){.kernel = kernel,
                  .options = options ? options : &plain,
                  .found = found,
                  .grid = grid,
                  .block = block,
                  .launch = l->launch + 1,
                  .fibers = l->fibers};
    uint64_t blocks = 0;
    if (!check_launch(dynamic_shared, &blocks)) return false;
    bool fibers = kernel->collective || l->options->check;
    size_t params = (kernel->param_bytes + 63u) / 64 * 64 + 64;
    size_t shared = (l->shared_bytes + 63u) / 64 * 64 + 64;
    uint8_t *memory = aligned_alloc(64, params + 3 * shared);
    if (!memory || (fibers && !fibers_ready(l->threads, kernel->local_bytes))) {
        free(memory);
        simt_report(NULL, SIMT_LAUNCH, 0, "no memory for the simulation");
        return false;
    }
    l->params = memory;
    l->shared = memory + params;
    l->shared_state = l->shared + shared;
    l->shared_fresh = l->shared_state + shared;
    if (l->options->check) mark_arrays();
    for (uint32_t i = 0; i < kernel->nparams; i++)
        memcpy(l->params + kernel->params[i].offset, args[i], kernel->params[i].bytes);
    run_grid(blocks, fibers);
    if (l->options->check) shadow_end();
    free(memory);
    return !l->findings;
}

const SimtKernel *simt_kernel(const SimtModule *module, const char *name) {
    for (uint32_t i = 0; i < module->nkernels; i++)
        if (!strcmp(module->kernels[i].name, name)) return &module->kernels[i];
    return NULL;
}

const SimtVariable *simt_variable(const SimtModule *module, const char *name) {
    for (uint32_t i = 0; i < module->nvariables; i++)
        if (!strcmp(module->variables[i].name, name)) return &module->variables[i];
    return NULL;
}
