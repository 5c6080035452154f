/* fiber.h - how a fiber and the scheduler change places; inlined, because that is what barriers and
 * shuffles spend their time with.
 *
 * On x86-64 nothing is called and nothing returns: the stack pointer is changed, and a jump goes to
 * where the other side stopped. A pair of call and return would be predicted wrongly each time, as
 * the return goes to another stack than the call came from (about 20 cycles each; Intel and AMD
 * optimization manuals, "return address prediction"). The compiler saves the registers that it
 * needs, because all of them are named as changed. Elsewhere ucontext does it, with a system call
 * each. */
#ifndef FIBER_H
#define FIBER_H

#include "engine.h"

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
#include <sanitizer/common_interface_defs.h>
typedef struct {
    void *fake;
    const void *stack;
    size_t bytes;
} AsanSide;
extern AsanSide simt_asan; /* of the scheduler */
#endif

extern size_t simt_stack_bytes; /* of each fiber */
#ifdef USE_UCONTEXT
extern ucontext_t simt_scheduler;
#else
extern void *simt_scheduler;

/* Stops here, with all that is needed to go on in *from, and goes on where `to` stopped. The 128
 * bytes below the stack pointer may be in use (System V ABI, "red zone"). */
PTX_INLINE void fiber_switch(void **from, void *to) {
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n\t"
                     "pushq %%rbp\n\t"
                     "leaq 1f(%%rip), %%rbx\n\t"
                     "pushq %%rbx\n\t"
                     "movq %%rsp, (%0)\n\t"
                     "movq %1, %%rsp\n\t"
                     "popq %%rbx\n\t"
                     "popq %%rbp\n\t"
                     "leaq 128(%%rsp), %%rsp\n\t"
                     "jmpq *%%rbx\n"
                     "1:"
                     : "+a"(from), "+d"(to)
                     :
                     : "rbx", "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
                       "memory", "cc");
}
#endif

/* From inside a fiber. */
PTX_INLINE void fiber_leave(bool for_good) {
    Fiber *f = simt_now.current;
    (void)for_good;
#ifdef USE_ASAN
    void *fake = NULL;
    __sanitizer_start_switch_fiber(for_good ? NULL : &fake, simt_asan.stack, simt_asan.bytes);
#endif
#ifdef USE_UCONTEXT
    swapcontext(f->context, &simt_scheduler);
#else
    fiber_switch(&f->context, simt_scheduler);
#endif
#ifdef USE_ASAN
    __sanitizer_finish_switch_fiber(fake, &simt_asan.stack, &simt_asan.bytes);
#endif
}

/* From inside: waits until its state is FIBER_READY again. */
PTX_INLINE void fiber_wait(Fiber *f, FiberState why, uint32_t line) {
    simt_now.state[f->t.linear] = (uint8_t)why;
    f->line = line;
    fiber_leave(false);
}

/* From the scheduler: runs it until it waits or ends. */
PTX_INLINE void fiber_resume(Fiber *f) {
    if (!f->started) fiber_start(f);
    simt_now.current = f;
#ifdef USE_ASAN
    __sanitizer_start_switch_fiber(&simt_asan.fake, f->stack, simt_stack_bytes);
#endif
#ifdef USE_UCONTEXT
    swapcontext(&simt_scheduler, f->context);
#else
    fiber_switch(&simt_scheduler, f->context);
#endif
#ifdef USE_ASAN
    __sanitizer_finish_switch_fiber(simt_asan.fake, NULL, NULL);
#endif
    simt_now.current = NULL;
}

#endif
