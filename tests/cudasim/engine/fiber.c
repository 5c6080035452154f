/* fiber.c - CUDA threads as fibers: each has a stack of its own and runs until it waits.
 *
 * On x86-64 a switch saves the six registers that the ABI gives to the called function and changes
 * the stack pointer, about 2 ns; elsewhere ucontext does it (a system call each). A fiber whose
 * thread has ended stays in its loop and is used again for the next block. */
#include "engine.h"

#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__) || defined(SIMT_UCONTEXT)
#define USE_UCONTEXT 1
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#define USE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define USE_ASAN 1
#endif
#endif
#ifdef USE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { LEAST_STACK = 48 * 1024, GUARD = 4096 };
static uint8_t *stacks;
static size_t stacks_bytes, stack_bytes;
static uint32_t nfibers;

#ifdef USE_UCONTEXT
static ucontext_t scheduler, contexts[MAX_THREADS];
#else
static void *scheduler;
/* Pushes what must survive, keeps the old stack pointer in *from and goes on at `to`. */
__attribute__((naked, noinline)) static void switch_stack(void **from __attribute__((unused)),
                                                          void *to __attribute__((unused))) {
    __asm__("pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
            "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
            "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}
#endif

#ifdef USE_ASAN
static void *scheduler_fake;
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;
#endif

static void to_scheduler(bool for_good) {
    Fiber *f = simt_now.current;
    (void)for_good;
#ifdef USE_ASAN
    void *fake = NULL;
    __sanitizer_start_switch_fiber(for_good ? NULL : &fake, scheduler_stack, scheduler_stack_bytes);
#endif
#ifdef USE_UCONTEXT
    swapcontext(f->context, &scheduler);
#else
    switch_stack(&f->context, scheduler);
#endif
#ifdef USE_ASAN
    __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

static void fiber_main(void) {
#ifdef USE_ASAN
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_stack_bytes);
#endif
    for (;;) {
        Fiber *f = simt_now.current;
        const SimtKernel *k = simt_now.kernel;
        (simt_now.options->check ? k->checked : k->fast)(&f->t);
        f->state = FIBER_DONE;
        to_scheduler(false);
    }
}

static void start(Fiber *f) {
    f->started = true;
#ifdef USE_ASAN
    __asan_unpoison_memory_region(f->stack,
                                  stack_bytes - GUARD); /* of a thread that was given up */
#endif
#ifdef USE_UCONTEXT
    ucontext_t *c = &contexts[f - simt_now.fibers];
    f->context = c;
    getcontext(c);
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = stack_bytes - GUARD;
    c->uc_link = NULL;
    makecontext(c, fiber_main, 0);
#else
    /* As if fiber_main had been called: six registers, where to "return" to, and its own return
     * address, 16-byte aligned below which a function starts. */
    void **top = (void **)(void *)(f->stack + stack_bytes - GUARD);
    *--top = NULL;
    *--top = (void *)(uintptr_t)fiber_main;
    for (int i = 0; i < 6; i++) *--top = NULL;
    f->context = top;
#endif
}

void fiber_resume(Fiber *f) {
    if (!f->started) start(f);
    simt_now.current = f;
#ifdef USE_ASAN
    __sanitizer_start_switch_fiber(&scheduler_fake, f->stack, stack_bytes - GUARD);
#endif
#ifdef USE_UCONTEXT
    swapcontext(&scheduler, f->context);
#else
    switch_stack(&scheduler, f->context);
#endif
#ifdef USE_ASAN
    __sanitizer_finish_switch_fiber(scheduler_fake, NULL, NULL);
#endif
    simt_now.current = NULL;
}

void fiber_wait(FiberState why, uint32_t line) {
    simt_now.current->state = why;
    simt_now.current->line = line;
    to_scheduler(false);
}

void fiber_end(void) {
    simt_now.current->state = FIBER_DONE;
    simt_now.current->started = false; /* its stack is given up */
    to_scheduler(true);
}

bool fiber_owns(const Fiber *f, uint64_t address, uint32_t bytes) {
    uint64_t lo = (uint64_t)(uintptr_t)f->stack, hi = lo + stack_bytes - GUARD;
    return address >= lo && address <= hi && bytes <= hi - address;
}

/* Stacks lie one after the other, each above a page that cannot be touched. */
bool fibers_ready(uint32_t n, uint32_t local_bytes) {
    size_t need = LEAST_STACK + (local_bytes + 4095u) / 4096 * 4096 + GUARD;
    if (n <= nfibers && need <= stack_bytes) return true;
    n = n < 256 ? 256 : MAX_THREADS;
    if (stacks) munmap(stacks, stacks_bytes);
    if (need < stack_bytes) need = stack_bytes;
    stacks_bytes = n * need;
    stacks = mmap(NULL, stacks_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        stacks = NULL, nfibers = 0, stack_bytes = 0;
        return false;
    }
    static Fiber all[MAX_THREADS];
    stack_bytes = need;
    nfibers = n;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *low = stacks + (size_t)i * need;
        mprotect(low, GUARD, PROT_NONE);
        all[i] = (Fiber){.stack = low + GUARD};
    }
    simt_now.fibers = all;
    return true;
}
