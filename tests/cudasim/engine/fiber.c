/* fiber.c - CUDA threads as fibers: each has a stack of its own and runs until it waits. A fiber
 * whose thread has ended stays in its loop and is used again for the next block. */
#include "fiber.h"

#include <stdlib.h>
#include <sys/mman.h>
#ifdef USE_ASAN
#include <sanitizer/asan_interface.h>
#endif

enum { PAGE = 4096, LEAST_STACK = 12 * PAGE, GUARD = PAGE, LINES = 5 * 64 };
size_t simt_stack_bytes;
static uint8_t *stacks;
static size_t stacks_bytes; /* of all */
static uint32_t nfibers;

#ifdef USE_UCONTEXT
ucontext_t simt_scheduler;
static ucontext_t contexts[MAX_THREADS];
#else
void *simt_scheduler;
#endif
#ifdef USE_ASAN
AsanSide simt_asan;
#endif

static void fiber_main(void) {
#ifdef USE_ASAN
    __sanitizer_finish_switch_fiber(NULL, &simt_asan.stack, &simt_asan.bytes);
#endif
    for (;;) {
        Fiber *f = simt_now.current;
        const SimtKernel *k = simt_now.kernel;
        (simt_now.options->check ? k->checked : k->fast)(&f->t);
        simt_now.state[f->t.linear] = FIBER_DONE;
        fiber_leave(false);
    }
}

void fiber_start(Fiber *f) {
    f->started = true;
#ifdef USE_ASAN
    __asan_unpoison_memory_region(f->stack, simt_stack_bytes); /* of a thread that was given up */
#endif
#ifdef USE_UCONTEXT
    ucontext_t *c = &contexts[f - simt_now.fibers];
    f->context = c;
    getcontext(c);
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = simt_stack_bytes;
    c->uc_link = NULL;
    makecontext(c, fiber_main, 0);
#else
    /* As if it had stopped where fiber_main begins: below the top a return address that is never
     * used (functions start 8 bytes off a multiple of 16), 128 unused bytes, rbp, where to go. */
    void **top = (void **)(void *)(f->stack + simt_stack_bytes);
    *--top = NULL;
    top -= 128 / sizeof *top;
    *--top = NULL;
    *--top = (void *)(uintptr_t)fiber_main;
    f->context = top;
#endif
}

void fiber_end(void) {
    Fiber *f = simt_now.current;
    simt_now.state[f->t.linear] = FIBER_DONE;
    f->started = false; /* its stack is given up */
    fiber_leave(true);
    abort(); /* nobody resumes it here */
}

bool fiber_owns(const Fiber *f, uint64_t address, uint32_t bytes) {
    uint64_t lo = (uint64_t)(uintptr_t)f->stack, hi = lo + simt_stack_bytes;
    return address >= lo && address <= hi && bytes <= hi - address;
}

/* Stacks lie one after the other, each above a page that cannot be touched. Their ends are an odd
 * number of pages and some lines apart: what a thread touches when it is resumed would else compete
 * for the same few lines of the caches with that of all others. */
bool fibers_ready(uint32_t n, uint32_t local_bytes) {
    size_t need = LEAST_STACK + (local_bytes + 4095u) / 4096 * 4096;
    if (n <= nfibers && need <= simt_stack_bytes) return true;
    n = n < 256 ? 256 : MAX_THREADS;
    if (stacks) munmap(stacks, stacks_bytes);
    if (need < simt_stack_bytes) need = simt_stack_bytes;
    size_t apart = (need + PAGE + GUARD) | PAGE;
    stacks_bytes = n * apart;
    stacks = mmap(NULL, stacks_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        stacks = NULL, nfibers = 0, simt_stack_bytes = 0;
        return false;
    }
    static Fiber all[MAX_THREADS];
    simt_stack_bytes = need;
    nfibers = n;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *low = stacks + (size_t)i * apart;
        mprotect(low, GUARD, PROT_NONE);
        all[i] = (Fiber){.stack = low + GUARD + i * LINES % PAGE};
    }
    simt_now.fibers = all;
    return true;
}
