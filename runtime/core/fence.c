/* fence.c - a library that cannot get memory must not take the program down without a word. oneDNN
 * creates objects with allocations that it does not check, and throws out of others; OpenMP's
 * library calls exit. All three end with a message, status 4, and no half-written file:
 *  - C++ allocations that fail ask this room's handler, which frees a reserve and has them try
 *    again, once; the second time the program ends;
 *  - while a library creates or converts something (dtrt_fence), a crash ends the program;
 *  - a call of exit that is not ours does.
 * Steps allocate nothing but what oneDNN does for each call, through C++. */
#include "core.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RESERVE = 1 << 18 };

static void *reserve;
static bool ours = true; /* the program itself decides when it ends */

static void tell(const char *text) {
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n; /* there is nobody left to tell */
}

/* Async-signal-safe. */
static _Noreturn void end(const char *what) {
    dtrt_out_forget();
    tell(what);
    tell("hint: the memory of the machine does not suffice; free some, or compile the model for a "
         "lower budget or batch\n");
    _exit(ST_MACHINE);
}

static void crashed(int sig) {
    (void)sig;
    end("error: the library crashed while it prepared its objects\n");
}

static void no_memory(void) {
    if (!reserve) end("error: out of memory in the library\n");
    free(reserve);
    reserve = NULL;
}

static void exiting(void) {
    if (!ours) end("error: a library ended the program\n");
}

void dtrt_fence(bool on) {
    static const int sig[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE};
    static struct sigaction before[sizeof sig / sizeof *sig];
    struct sigaction ours_now = {.sa_handler = crashed};
    for (size_t i = 0; i < sizeof sig / sizeof *sig; i++)
        sigaction(sig[i], on ? &ours_now : &before[i], on ? &before[i] : NULL);
}

void dtrt_fence_open(void) {
    typedef void Handler(void);
    typedef Handler *SetHandler(Handler *);
    static bool registered;
    /* std::set_new_handler; the C++ library is there when the library that we link needs it */
    void *found = dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE");
    SetHandler *set;
    memcpy(&set, &found, sizeof set);
    reserve = malloc(RESERVE);
    if (found) set(no_memory);
    if (!registered) registered = !atexit(exiting);
    ours = false;
}

void dtrt_fence_close(void) {
    ours = true;
    free(reserve);
    reserve = NULL;
}
