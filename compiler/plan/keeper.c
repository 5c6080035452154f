/* keeper.c - see keeper.h. Tensors are there or not; nothing is counted. Whoever reads a tensor
 * that is not there has it made again, depth first, from what is there. */
#include "keeper.h"

Keeper *keeper_new(Arena *a, const Problem *p) {
    Keeper *k = ARENA_NEW(a, Keeper);
    *k = (Keeper){.p = p, .a = a, .cost_limit = UINT64_MAX};
    k->there = ARENA_ARRAY(a, bool, p->ntensor);
    k->frozen = problem_frozen(a, p);
    return k;
}

static void execute(Keeper *k, uint32_t run) {
    const Problem *p = k->p;
    uint64_t kept = 0;
    for (uint32_t i = 0; i < list_len(&p->out, run); i++) {
        uint32_t t = p->out.at[p->out.first[run] + i];
        if (t == NO_ID) continue;
        if (i < 64 && !k->there[t]) kept |= (uint64_t)1 << i;
        k->there[t] = true;
    }
    VEC_PUSH(k->a, k->run, run);
    VEC_PUSH(k->a, k->kept, kept);
    k->cost_ns += p->ns[run];
}

static bool is_there(const Keeper *k, uint32_t t) {
    StorageId s = k->p->storage[t];
    return k->there[t] || (t < k->p->nstorage && !k->p->is_temp[s]);
}

bool keeper_make(Keeper *k, uint32_t t) {
    k->stack.n = 0;
    VEC_PUSH(k->a, k->stack, t);
    while (k->stack.n) {
        uint32_t x = k->stack.at[k->stack.n - 1], run = k->p->def[x], missing = NO_ID;
        if (is_there(k, x)) {
            k->stack.n--;
            continue;
        }
        if (run == NO_ID || k->frozen[run] < k->now || k->cost_ns > k->cost_limit) return false;
        EACH(k->p->in, run, y) if (missing == NO_ID && !is_there(k, y)) missing = y;
        if (missing != NO_ID)
            VEC_PUSH(k->a, k->stack, missing);
        else
            execute(k, run);
    }
    return true;
}

bool keeper_step(Keeper *k) {
    EACH(k->p->in, k->now, t) if (!keeper_make(k, t)) return false;
    execute(k, k->now++);
    return true;
}

bool keeper_finish(Keeper *k) {
    while (k->now < k->p->nrun)
        if (!keeper_step(k)) return false;
    for (uint32_t i = 0; i < k->p->noutput; i++)
        if (!keeper_make(k, k->p->output[i])) return false;
    return true;
}

void keeper_forget(Keeper *k, StorageId s) {
    k->there[s] = false;
    EACH(k->p->views, s, v) k->there[v] = false;
}

Sequence keeper_sequence(Arena *a, const Keeper *k) {
    Sequence s = {.n = k->run.n,
                  .run = ARENA_ARRAY(a, uint32_t, k->run.n),
                  .kept = ARENA_ARRAY(a, uint64_t, k->run.n),
                  .cost_ns = k->cost_ns};
    for (uint32_t i = 0; i < s.n; i++) {
        s.run[i] = k->run.at[i];
        s.kept[i] = k->kept.at[i];
    }
    return s;
}
